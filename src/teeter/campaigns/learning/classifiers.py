"""What learns from the features of a campaign: logistic regression, or a network.

Loading it loads scikit-learn, which takes longer than most commands on a campaign.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.linear_model import LogisticRegression

from teeter.campaigns.enums import ClassifierKind
from teeter.campaigns.learning.prior import PseudoExamples

if TYPE_CHECKING:
    from torch import nn

__all__ = [
    "PseudoExampleRegression",
    "head_factory",
    "ignore_few_labels_warning",
    "linear_head",
]


class PseudoExampleRegression(LogisticRegression):  # type: ignore[misc]
    """Logistic regression that appends the same pseudo-examples to the rows of every fit.

    ``clone`` copies the pseudo-examples, so every fold of a cross-validation has them too.

    Args:
        pseudo_examples: rows that stand for classes. Each counts as much as a label.
        C: inverse of the regularisation, as in ``LogisticRegression``.
        class_weight: as in ``LogisticRegression``. Pseudo-examples count when classes are balanced.
        max_iter: as in ``LogisticRegression``.
        random_state: as in ``LogisticRegression``.
    """

    # The parameters are written out, because scikit-learn reads them from the signature.
    def __init__(
        self,
        pseudo_examples: PseudoExamples,
        *,
        C: float = 1.0,
        class_weight: str | None = None,
        max_iter: int = 100,
        random_state: int | None = None,
    ) -> None:
        super().__init__(
            C=C, class_weight=class_weight, max_iter=max_iter, random_state=random_state
        )
        self.pseudo_examples = pseudo_examples

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> PseudoExampleRegression:
        """Fit the model to rows and pseudo-examples.

        Args:
            X: (N, D) features.
            y: (N,) class indices.
            sample_weight: not used, as campaigns weigh all labels alike.
        """
        rows = np.concatenate([np.asarray(X), self.pseudo_examples.features])
        labels = np.concatenate([np.asarray(y), self.pseudo_examples.labels])
        super().fit(rows, labels)
        return self


INVERSE_REGULARISATION = 0.1
"""scikit-learn's ``C`` of the linear head, for features with a mean square of 1."""


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
        return PseudoExampleRegression(examples, **options)

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
