"""Lines through the origin, learned from labelled rows of the plane: what the paper's small experiments train."""

from __future__ import annotations

import numpy as np

from teeter.models.outputs import Outputs
from teeter.studies.disc import Array

__all__ = ["PENALTY", "accuracy_of", "fit_line", "outputs_of"]

PENALTY = 0.01
"""Half of this times the squared norm is added to the loss: separable rows have no other finite best line."""


def fit_line(rows: Array, labels: Array, penalty: float = PENALTY, steps: int = 100) -> Array:
    """Return the logistic regression without a bias, by Newton's method: rows (L, 2), labels (L,) 0 or 1 -> (2,)."""
    weight: Array = np.zeros(2)
    for _ in range(steps):
        chance = 1 / (1 + np.exp(-np.clip(rows @ weight, -500, 500)))
        slope = rows.T @ (chance - labels) + penalty * weight
        curve = (rows * (chance * (1 - chance))[:, None]).T @ rows + penalty * np.eye(2)
        move = np.linalg.solve(curve, slope)
        weight = weight - move * min(
            1.0, 5 / float(np.linalg.norm(move) + 1e-12)
        )  # far steps overshoot
        if np.linalg.norm(move) < 1e-9:
            break
    return weight


def accuracy_of(weight: Array, truth: Array) -> float:
    """Return the share of the disc on which two lines through the origin agree."""
    cosine = float(weight @ truth / (np.linalg.norm(weight) * np.linalg.norm(truth) + 1e-300))
    return 1 - float(np.arccos(np.clip(cosine, -1, 1))) / np.pi


def outputs_of(rows: Array, weight: Array) -> Outputs:
    """Return what strategies see of a line: two classes, no bias."""
    return Outputs(features=rows, weight=np.stack([np.zeros(2), weight])).with_logits()
