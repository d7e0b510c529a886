"""Logistic regression that learns from pseudo-examples beside the labels.

Apart from ``classifiers`` because it loads scikit-learn.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression

from teeter.campaigns.classifiers import PseudoExamples

__all__ = ["PseudoExampleRegression"]


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
