"""Uncertainty as the textbooks write it, one row at a time."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


def probabilities(logits: Array) -> Array:
    return np.array(
        [
            [math.exp(value - max(row)) / sum(math.exp(v - max(row)) for v in row) for value in row]
            for row in logits
        ]
    )


def entropy(logits: Array) -> Array:
    return np.array([-sum(p * math.log(p) for p in row if p > 0) for row in probabilities(logits)])


def margin(logits: Array) -> Array:
    ranked = [sorted(row, reverse=True) for row in probabilities(logits)]
    return np.array([row[0] - row[1] for row in ranked])


def least_confidence(logits: Array) -> Array:
    return np.array([1 - max(row) for row in probabilities(logits)])
