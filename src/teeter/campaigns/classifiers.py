"""The heads that learn from a campaign's features: logistic regression, or a small network."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from torch import nn

__all__ = [
    "HEAD_OUTPUTS",
    "ClassifierKind",
    "PseudoExamples",
    "head_factory",
    "ignore_few_labels_warning",
    "linear_head",
]


class ClassifierKind(StrEnum):
    """What learns from the features of a campaign."""

    LINEAR = "linear"
    MLP = "mlp"


_LINEAR_OUTPUTS = frozenset({"logits", "features", "head", "labelled"})

HEAD_OUTPUTS = {
    ClassifierKind.LINEAR: _LINEAR_OUTPUTS,
    ClassifierKind.MLP: _LINEAR_OUTPUTS | {"dropout_logits", "ensemble_logits"},
}
"""The outputs that a strategy can get from each head; see ``Strategy.needs``."""

INVERSE_REGULARISATION = 0.1
"""scikit-learn's ``C`` of the linear head, for features with a mean square of 1."""


@dataclass(frozen=True, eq=False)
class PseudoExamples:
    """Rows that stand for classes, such as the features of their names."""

    features: npt.NDArray[np.float32]
    """(M, D), scaled like the items."""
    labels: npt.NDArray[np.int64]
    """(M,) class indices."""


def linear_head(examples: PseudoExamples | None = None) -> Any:
    """Return an untrained logistic regression in which all classes count the same.

    Args:
        examples: pseudo-examples that it learns from beside the labels.
    """
    options: dict[str, Any] = {
        "C": INVERSE_REGULARISATION,
        "class_weight": "balanced",
        "max_iter": 1000,  # many features of few labels converge slowly
    }
    if examples is not None:
        from teeter.campaigns.pseudo_example_head import PseudoExampleRegression

        return PseudoExampleRegression(examples, **options)

    # Loading scikit-learn takes longer than most commands on a campaign.
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(**options)


def head_factory(
    head: str, width: int, n_classes: int, examples: PseudoExamples | None = None
) -> Callable[[int], nn.Module] | Any:
    """Return what a ``Learner`` makes its models from.

    Args:
        head: One of ``ClassifierKind``.
        width: D, the number of features.
        n_classes: C, the number of classes.
        examples: Pseudo-examples that a linear head learns from beside the labels.

    Returns:
        An estimator to clone for a linear head, or a function from a seed to a network.
    """
    if head == ClassifierKind.MLP:
        from teeter.models.networks import mlp

        return lambda seed: mlp(width, n_classes, seed=seed)

    return linear_head(examples)


@contextmanager
def ignore_few_labels_warning() -> Iterator[None]:
    """Silence scikit-learn's warning about almost as many classes as labels.

    Every campaign starts that way.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message="The number of unique classes is greater than 50%"
        )
        yield
