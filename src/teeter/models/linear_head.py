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
    """Return the weight (C, D) and bias (C,) that logistic regression finds for features (L, D) and labels (L,).

    Every class from 0 to C - 1 must occur. Features should be of one scale.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    seen = np.unique(labels)
    if n_classes < 2 or not np.array_equal(seen, np.arange(n_classes)):
        raise InputError(
            f"{len(seen)} of {n_classes} classes occur: a head needs 2 or more, each with a labelled row."
        )
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", ConvergenceWarning
        )  # a head that is nearly there ranks rows as well
        model = LogisticRegression(max_iter=1000).fit(features, labels)
    weight, bias = model.coef_.astype(np.float32), model.intercept_.astype(np.float32)
    if n_classes > 2:
        return weight, bias
    return np.vstack([np.zeros_like(weight), weight]), np.concatenate([np.zeros_like(bias), bias])
