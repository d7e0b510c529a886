"""What learns from the features of a campaign, and how it judges labels it was not trained on.

A head is a logistic regression, which may learn from the unlabelled items too (a pool head), or a
network.

``out_of_fold`` judges all labelled items, to find suspect labels and to compare features. Each of
its models lacks a fifth of the labels and is therefore a little worse than the model in use.

``cross_fit`` judges only some items, those that were drawn at random, and holds out only a few of
them at a time. Its models have nearly all labels, so that their accuracy is nearly that of the
model in use.

Loading it loads scikit-learn and torch, which takes longer than most commands on a campaign.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import torch
from threadpoolctl import threadpool_limits
from torch import Tensor

from teeter.campaigns.learning.prior import PseudoExamples
from teeter.campaigns.records import ClassifierKind
from teeter.learner.learner import Learner
from teeter.learner.rounds import fit_learners
from teeter.models.pool_head import ExampleRegression, PoolHead
from teeter.training import TrainingConfig

if TYPE_CHECKING:
    from torch import nn


Vectors: TypeAlias = npt.NDArray[np.float32]

Integers: TypeAlias = npt.NDArray[np.int64]

Floats: TypeAlias = npt.NDArray[np.float64]

TRAINING = TrainingConfig(class_weighted=True)
"""How networks are trained. Rare classes count as much as frequent ones."""

FOLDS = {ClassifierKind.POOL: 5, ClassifierKind.LINEAR: 5, ClassifierKind.MLP: 3}
"""Folds of ``out_of_fold``. Networks take longer to train."""

MOST_FOLDS = {ClassifierKind.POOL: 20, ClassifierKind.LINEAR: 20, ClassifierKind.MLP: 5}
"""The largest number of folds of ``cross_fit``."""

FEWEST_FOLDS = 5

MAX_FOLD_POOL = 2_000
"""Unlabelled items that the pool head of a fold learns from, drawn at random."""

FOLD_ITERATIONS = 2
"""How often the pool head of a fold computes class means: half as often as the model in use."""

LACKING_SHARE = 0.02
"""The share of all labels that a model of ``cross_fit`` lacks, if there are enough folds."""

_TEMPERATURES = (0.05, 20.0)
"""The smallest and the largest temperature that is fitted."""

_LOG_TEMPERATURE_DEVIATION = 0.3
"""The standard deviation of the logarithm of a temperature before any item is seen.

Without it, a few items that are all predicted correctly would make a model certain of everything.
"""

_SMALLEST_PROBABILITY = 1e-12
"""A class that a model never saw has probability 0, whose logarithm would be infinite."""


def head_factory(
    head: str,
    width: int,
    n_classes: int,
    examples: PseudoExamples | None = None,
    *,
    iterations: int | None = None,
) -> Callable[[int], nn.Module] | Any:
    """Return what a ``Learner`` makes its models from.

    Args:
        head: One of ``ClassifierKind``.
        width: D, the number of features.
        n_classes: C, the number of classes.
        examples: Pseudo-examples that a head learns from beside the labels, unless it is a network.
        iterations: How often a pool head computes class means. Default: as ``PoolHead`` does.

    Returns:
        An estimator to clone, or a function from a seed to a network.
    """
    if head == ClassifierKind.MLP:
        from teeter.models.networks import mlp

        return lambda seed: mlp(width, n_classes, seed=seed)

    if head == ClassifierKind.LINEAR:
        return ExampleRegression(examples)
    if iterations is None:
        return PoolHead(examples)
    return PoolHead(examples, iterations=iterations)


@contextmanager
def limit_threads_and_warnings() -> Iterator[None]:
    """Fit heads on one thread, without a warning about almost as many classes as labels.

    Every campaign starts that way. Threads of linear algebra gain nothing with such small arrays:
    on a busy machine they wait for each other, and a training that takes 3 s took 74 s.
    """
    with threadpool_limits(1, user_api="blas"), warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message="The number of unique classes is greater than 50%"
        )
        yield


def out_of_fold(
    features: Vectors,
    labels: Integers,
    *,
    head: str = ClassifierKind.LINEAR,
    examples: PseudoExamples | None = None,
    pool: Vectors | None = None,
    groups: Integers | None = None,
) -> Floats:
    """Return class probabilities of each row from a head that was not trained on it.

    Args:
        features: Shape (L, D).
        labels: Class indices from 0, shape (L,).
        head: One of ``ClassifierKind``.
        examples: Pseudo-examples that every head is trained on too.
        pool: Unlabelled rows (M, D) that a pool head learns from, as it does from the rows it is
            judged on, whose labels it does not know.
        groups: (L,) the group of each row. No head that judges a row is trained on one of its
            group. Default: each row is a group.

    Returns:
        Shape (L, C). A class has probability 0 for a row if it occurs in no other fold.
    """
    # Shuffled, because items may have been added class by class.
    order = np.random.default_rng(0).permutation(len(labels))
    folds = _split(order, FOLDS[ClassifierKind(head)])
    return _judge(features, labels, folds, head=head, examples=examples, pool=pool, groups=groups)


def cross_fit(
    features: Vectors,
    labels: Integers,
    judged: Integers,
    *,
    head: str = ClassifierKind.LINEAR,
    examples: PseudoExamples | None = None,
    pool: Vectors | None = None,
    groups: Integers | None = None,
) -> Floats:
    """Return class probabilities of some rows, each from a head trained on nearly all others.

    Args:
        features: Shape (L, D).
        labels: Class indices from 0, shape (L,).
        judged: Positions of the K rows to judge, shape (K,). All other rows train every head.
        head: One of ``ClassifierKind``.
        examples: Pseudo-examples that every head is trained on too.
        pool: Unlabelled rows (M, D) that a pool head learns from, as it does from the rows it is
            judged on, whose labels it does not know.
        groups: (L,) the group of each row. No head that judges a row is trained on one of its
            group. Default: each row is a group.

    Returns:
        Shape (K, C). A class has probability 0 for a row if no other row has it.
    """
    order = np.random.default_rng(0).permutation(judged)
    # Each model lacks len(judged) / n_folds labels: so many folds keep that to LACKING_SHARE.
    n_folds = math.ceil(len(judged) / (LACKING_SHARE * len(labels)))
    n_folds = min(max(n_folds, FEWEST_FOLDS), MOST_FOLDS[ClassifierKind(head)])
    folds = _split(order, n_folds)
    probabilities = _judge(
        features, labels, folds, head=head, examples=examples, pool=pool, groups=groups
    )
    return probabilities[judged]


def fit_temperature(probabilities: Floats, labels: Integers) -> float:
    """Return the temperature that makes probabilities of held-out rows fit their labels best.

    Dividing logits by a temperature above 1 makes a model less sure, without changing what it
    predicts [Guo et al. 2017]. With few rows, the temperature stays close to 1.

    Args:
        probabilities: Shape (K, C), of rows that the model was not trained on.
        labels: Their class indices, shape (K,).

    Example:
        >>> too_sure = np.array([[0.99, 0.01]] * 400)
        >>> fit_temperature(too_sure, np.array([0, 0, 0, 1] * 100)) > 2
        True
    """
    from scipy.optimize import minimize_scalar

    # A row whose class no model has seen says nothing about how sure models should be.
    is_usable = probabilities[np.arange(len(labels)), labels] > 0
    logits = np.log(np.maximum(probabilities[is_usable], _SMALLEST_PROBABILITY))
    labels = labels[is_usable]
    rows = np.arange(len(labels))

    def loss(log_temperature: float) -> float:
        scaled = logits / np.exp(log_temperature)
        # The largest becomes 0, so that exp cannot overflow.
        scaled -= scaled.max(axis=1, keepdims=True)
        normalizers = np.log(np.exp(scaled).sum(axis=1))
        misfit = float((normalizers - scaled[rows, labels]).sum())
        return misfit + (log_temperature / _LOG_TEMPERATURE_DEVIATION) ** 2 / 2

    low, high = np.log(_TEMPERATURES)
    result = minimize_scalar(loss, bounds=(low, high), method="bounded")
    return float(np.exp(result.x))


def predict_logits(learner: Learner, features: Vectors) -> Tensor:
    """Return the logits of rows, with a column for each class that the model has seen."""
    outputs = learner.observe(features, ("logits",)).with_logits()
    return cast(Tensor, outputs.logits)  # both heads have logits


def seen_classes(learner: Learner, n_classes: int) -> list[int]:
    """Return the class index of each column of the model's logits."""
    # scikit-learn has columns only for the classes it was trained on, networks for all.
    seen = getattr(learner.models[0], "classes_", range(n_classes))
    return [int(k) for k in seen]


def _count_classes(labels: Integers, examples: PseudoExamples | None) -> int:
    """Return the number of classes up to the last one that a label or pseudo-example has."""
    last = int(labels.max(initial=-1))
    if examples is not None:
        last = max(last, int(examples.labels.max()))
    return last + 1


def _split(order: Integers, n_folds: int) -> list[Integers]:
    """Return the rows of each fold, of which none is empty."""
    # Taking every n-th row makes folds whose sizes differ by one at most.
    return [order[fold::n_folds] for fold in range(min(n_folds, len(order)))]


def _judge(
    features: Vectors,
    labels: Integers,
    folds: Sequence[Integers],
    *,
    head: str,
    examples: PseudoExamples | None,
    pool: Vectors | None,
    groups: Integers | None,
) -> Floats:
    """Return (L, C) probabilities; those of rows in no fold are 0."""
    n_rows = len(labels)
    if groups is None:
        groups = np.arange(n_rows)
    n_classes = _count_classes(labels, examples)
    probabilities = np.zeros((n_rows, n_classes))

    folds_to_train = []
    for held_out in folds:
        rest = np.flatnonzero(~np.isin(groups, groups[held_out]))
        if len(np.unique(labels[rest])) < 2:
            # A single class needs no training: it is certain.
            probabilities[held_out[:, None], labels[rest]] = 1.0
        else:
            folds_to_train.append((held_out, rest))

    predictions = _predict_folds(
        head, features, labels, folds_to_train, examples=examples, pool=pool
    )
    for (held_out, rest), predicted in zip(folds_to_train, predictions, strict=True):
        # A network has an output for every class, also for those it was not trained on.
        seen = np.unique(labels[rest])
        if examples is not None:
            seen = np.union1d(seen, examples.labels)
        probabilities[held_out[:, None], seen] = predicted[:, seen]

    return probabilities


def _predict_folds(
    head: str,
    features: Vectors,
    labels: Integers,
    folds: Sequence[tuple[Integers, Integers]],
    *,
    examples: PseudoExamples | None,
    pool: Vectors | None,
) -> list[Floats]:
    """Train one head per fold, all at once, and return (H, C) probabilities of each fold's rows."""
    n_classes = _count_classes(labels, examples)
    factory = head_factory(head, features.shape[1], n_classes, examples, iterations=FOLD_ITERATIONS)
    rows = features
    if pool is not None:
        # The rows of a fold are unlabelled in its model, and so a part of the pool.
        rows = np.concatenate([features, pool])

    learners = []
    for _, rest in folds:
        learner = Learner(
            factory,
            rows,
            "random",
            classes=n_classes,
            training=TRAINING,
            device="cpu",
        )
        learner.tell(rest, labels[rest])
        learners.append(learner)

    with limit_threads_and_warnings():
        # A fold without a model would leave rows without probabilities, so any error ends it.
        for error in fit_learners(learners).values():
            raise error

    predictions = []
    for learner, (held_out, _) in zip(learners, folds, strict=True):
        logits = predict_logits(learner, features[held_out])
        probabilities = np.zeros((len(held_out), n_classes))
        seen = seen_classes(learner, n_classes)
        probabilities[:, seen] = torch.softmax(logits.double(), dim=1).numpy()
        predictions.append(probabilities)
    return predictions
