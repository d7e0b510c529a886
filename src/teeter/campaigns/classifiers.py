"""What learns from a campaign's features: a linear head in a moment, or a small network; and how right it is."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from teeter.learner import Learner, fit_learners
from teeter.models.networks import mlp
from teeter.training import TrainingConfig

__all__ = [
    "GIVES",
    "HEADS",
    "TRAINING",
    "head_maker",
    "ignore_few_labels_warning",
    "out_of_fold",
    "scaled",
]

Vectors = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

HEADS = ("linear", "mlp")
GIVES = {
    "linear": frozenset({"logits", "features", "head", "labelled"}),
    "mlp": frozenset(
        {"logits", "features", "head", "labelled", "dropout_logits", "ensemble_logits"}
    ),
}
"""What a strategy can learn from each head."""

STRENGTH = 0.1
"""The inverse of the linear head's regularisation, for features of mean square 1."""

TRAINING = TrainingConfig(class_weighted=True)
"""How networks are trained."""

FOLDS = 5
FEW_FOLDS = 3
"""Of networks, which take longer to train; they learn from fewer rows, and are taken for worse rather than better."""


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
def ignore_few_labels_warning() -> Iterator[None]:
    """Within it, scikit-learn does not wonder at as many classes as labels, which is how campaigns begin."""
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message="The number of unique classes is greater than 50%"
        )
        yield


def out_of_fold(
    features: Vectors, labels: Integers, *, head: str = "linear", seed: int = 0
) -> Floats:
    """Return the probability of each class for each row by heads of the kind that did not learn from it.

    features (L, D), labels (L,) numbered from 0 -> (L, C). A class with a single row has no chance there.
    """
    folds = FEW_FOLDS if head == "mlp" else FOLDS
    order = np.random.default_rng(seed).permutation(len(labels))
    held = [order[fold::folds] for fold in range(min(folds, len(labels)))]
    rest = [np.setdiff1d(order, rows) for rows in held]
    chances = np.zeros((len(labels), int(labels.max()) + 1))
    alone = [len(np.unique(labels[rows])) < 2 for rows in rest]
    for k in (fold for fold, one_class in enumerate(alone) if one_class):
        chances[held[k][:, None], labels[rest[k]]] = 1.0
    taught = [k for k in range(len(held)) if not alone[k]]
    told = _told_by(head, features, labels, [(held[k], rest[k]) for k in taught], seed)
    for k, found in zip(taught, told, strict=True):
        known = np.unique(labels[rest[k]])
        chances[held[k][:, None], known] = found[:, known]
    return chances


def _told_by(
    head: str,
    features: Vectors,
    labels: Integers,
    folds: Sequence[tuple[Integers, Integers]],
    seed: int,
) -> list[Floats]:
    """Return, for each fold, the probabilities (H, C) of the rows held out by a head trained on the rest."""
    classes = int(labels.max()) + 1
    maker = head_maker(head, features.shape[1], classes)
    learners = [
        Learner(
            maker, features, "random", classes=classes, seed=seed, training=TRAINING, device="cpu"
        )
        for _ in folds
    ]
    for learner, (_, rest) in zip(learners, folds, strict=True):
        learner.tell(rest, labels[rest])
    with ignore_few_labels_warning():
        for error in fit_learners(learners).values():
            raise error
    return [
        _chances(learner, features[held], classes)
        for learner, (held, _) in zip(learners, folds, strict=True)
    ]


def _chances(learner: Learner, features: Vectors, classes: int) -> Floats:
    logits = learner.observe(features, ("logits",)).with_logits().logits
    if logits is None:
        raise TypeError("A campaign's head gives logits.")
    known = getattr(learner.models[0], "classes_", np.arange(classes))
    chances = np.zeros((len(features), classes))
    chances[:, known] = torch.softmax(logits.double(), dim=1).numpy()
    return chances
