"""A linear head fitted to labelled rows: multinomial logistic regression."""

from __future__ import annotations

import warnings
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from teeter.errors import InputError

__all__ = ["fit_head"]

Floats: TypeAlias = npt.NDArray[np.float32]


def fit_head(
    features: Floats, labels: npt.NDArray[np.int64], n_classes: int
) -> tuple[Floats, Floats]:
    """Fit the last layer of a classifier by logistic regression.

    Args:
        features: (L, D) the labelled rows, in columns of similar scale.
        labels: (L,) their classes, from 0 to C - 1. Every class must occur.
        n_classes: C, at least 2.

    Returns:
        The weight (C, D) and the bias (C,).

    Example:
        >>> features = np.array([[-2.0, 0.0], [-1.0, 1.0], [1.0, 0.0], [2.0, 1.0]], np.float32)
        >>> weight, bias = fit_head(features, np.array([0, 0, 1, 1]), 2)
        >>> (features @ weight.T + bias).argmax(axis=1).tolist()
        [0, 0, 1, 1]
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    classes_present = np.unique(labels)
    all_classes = np.arange(n_classes)
    if n_classes < 2 or not np.array_equal(classes_present, all_classes):
        raise InputError(
            f"Only {len(classes_present)} of {n_classes} classes have labelled rows: a head "
            f"needs at least 2."
        )

    with warnings.catch_warnings():
        # A head that has nearly converged ranks rows as well.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = LogisticRegression(max_iter=1000).fit(features, labels)

    weight = model.coef_.astype(np.float32)
    bias = model.intercept_.astype(np.float32)

    # scikit-learn stores a binary head as one row w, which is the head [0; w] of two classes.
    if n_classes == 2:
        weight = np.vstack([np.zeros_like(weight), weight])
        bias = np.concatenate([np.zeros_like(bias), bias])
    return weight, bias
