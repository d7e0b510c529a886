"""Decide, by the labels there are, which pseudo-examples a model learns from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from teeter.campaigns.learning.cross_fitting import out_of_fold
from teeter.campaigns.learning.prior import ClassPrior, PseudoExamples, has_faded

__all__ = ["ChosenPrior", "choose_prior"]

Vectors: TypeAlias = npt.NDArray[np.float32]
Integers: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ChosenPrior:
    """The pseudo-examples that a model learns from, and how they were chosen."""

    examples: PseudoExamples | None
    """None if labels alone are better."""
    origins: tuple[str, ...]
    """Where they come from."""
    probabilities: Floats
    """(L, C) out-of-fold probabilities of the labelled rows, with these pseudo-examples."""
    plain_probabilities: Floats
    """(L, C) the same without any, which judge the features alone."""


def choose_prior(
    prior: ClassPrior | None,
    features: Vectors,
    labels: Integers,
    places: Integers,
    *,
    n_classes: int,
    head: str,
) -> ChosenPrior:
    """Choose the origins with which models predict the most labels that they were not trained on.

    Begins with all origins but the sources that agree with the labels no more than by chance, and
    drops one at a time while more labels are predicted correctly without it. With equal counts an
    origin stays: that happens when there are few labels, and then a prior helps most.

    Args:
        prior: pseudo-examples by origin, if anything is known about the classes.
        features: (L, D) of the labelled items.
        labels: (L,) their class indices.
        places: (L,) their places among all items.
        n_classes: C, the number of classes.
        head: one of ``ClassifierKind``.
    """

    def judge(origins: list[str]) -> tuple[int, PseudoExamples | None, Floats]:
        examples = None if prior is None else prior.examples(origins)
        probabilities = out_of_fold(features, labels, head=head, examples=examples)
        n_right = int((probabilities.argmax(axis=1) == labels).sum())
        return n_right, examples, probabilities

    n_right_plain, _, plain = judge([])
    if prior is None or has_faded(len(labels), n_classes):
        return ChosenPrior(None, (), plain, plain)

    origins = []
    for name in prior.origin_names:
        predicted = prior.predicted.get(name)
        if predicted is None or agrees_beyond_chance(predicted[places], labels):
            origins.append(name)
    if not origins:
        return ChosenPrior(None, (), plain, plain)

    n_right, examples, probabilities = judge(origins)

    # One at a time: class names may help where predictions mislead, and the other way round.
    while len(origins) > 1:
        without = {name: judge([other for other in origins if other != name]) for name in origins}
        dropped = max(without, key=lambda name: without[name][0])
        if without[dropped][0] <= n_right:
            break
        n_right, examples, probabilities = without[dropped]
        origins = [name for name in origins if name != dropped]

    if n_right < n_right_plain:
        return ChosenPrior(None, (), plain, plain)
    return ChosenPrior(examples, tuple(origins), probabilities, plain)


def agrees_beyond_chance(predicted: Integers, labels: Integers) -> bool:
    """Return whether predictions agree with labels more than unrelated ones would.

    Unrelated predictions of the same class frequencies agree by chance on a share of the items that
    the frequencies tell. More than that is a positive Cohen's kappa. Nothing more is asked for,
    because picked items are hard for all models. Without a common item there is nothing to compare,
    and predictions get the benefit of the doubt.

    Args:
        predicted: (L,) class indices; -1 for no prediction.
        labels: (L,) class indices.

    Example:
        >>> labels = np.array([0, 1, 0, 1, 0, 1])
        >>> agrees_beyond_chance(labels, labels), agrees_beyond_chance(1 - labels, labels)
        (True, False)
    """
    has_prediction = predicted >= 0
    n = int(has_prediction.sum())
    if n == 0:
        return True

    predicted = predicted[has_prediction]
    labels = labels[has_prediction]
    n_classes = int(max(predicted.max(), labels.max())) + 1
    share_predicted = np.bincount(predicted, minlength=n_classes) / n
    share_labelled = np.bincount(labels, minlength=n_classes) / n
    expected = float(share_predicted @ share_labelled)
    observed = float((predicted == labels).mean())
    # On items of a single class, all agreement is expected.
    return observed > expected or observed == 1
