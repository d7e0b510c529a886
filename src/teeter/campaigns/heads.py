"""What learns from a campaign's features: a linear head in a moment, or a small network; and how it is kept."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from teeter.models.networks import mlp

__all__ = ["HEADS", "few_labels", "head_maker", "out_of_fold", "scaled"]

Vectors = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

HEADS = ("linear", "mlp")
STRENGTH = 0.1
"""The inverse of the linear head's regularisation, for features of mean square 1."""

FOLDS = 5


def scaled(features: Vectors) -> Vectors:
    """Return features about their mean, with a mean square of 1: (N, D)."""
    centred: Vectors = features - features.mean(axis=0)
    size = float(np.sqrt(np.square(centred).mean()))
    if size > 0:
        centred /= size
    return centred


def head_maker(kind: str, width: int, classes: int) -> Callable[[int], Any] | Any:
    """Return what a learner makes models of: a classifier to clone, or a function of a seed."""
    from sklearn.linear_model import LogisticRegression

    if kind == "mlp":
        return lambda seed: mlp(width, classes, seed=seed)
    return LogisticRegression(C=STRENGTH, class_weight="balanced", max_iter=1000)


@contextmanager
def few_labels() -> Iterator[None]:
    """Within it, scikit-learn does not wonder at as many classes as labels, which is how campaigns begin."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The number of unique classes is greater than 50%")
        yield


def out_of_fold(features: Vectors, labels: Integers, *, seed: int = 0) -> Floats:
    """Return the probability of each class for each row by linear heads that did not learn from it.

    features (L, D), labels (L,) numbered from 0 -> (L, C). A class with a single row has no chance there.
    """
    from sklearn.linear_model import LogisticRegression

    classes = int(labels.max()) + 1
    chances = np.zeros((len(labels), classes))
    order = np.random.default_rng(seed).permutation(len(labels))
    for fold in range(min(FOLDS, len(labels))):
        held = order[fold::FOLDS]
        rest = np.setdiff1d(order, held)
        if len(np.unique(labels[rest])) < 2:
            chances[held[:, None], labels[rest]] = 1.0
            continue
        model = LogisticRegression(C=STRENGTH, class_weight="balanced", max_iter=1000)
        with few_labels():
            model.fit(features[rest], labels[rest])
        chances[held[:, None], model.classes_] = model.predict_proba(features[held])
    return chances
