"""The paper's two-dimensional example, in which the LDM is known exactly.

Rows are uniform on the unit disc, there are two classes, and a hypothesis is a line through the
origin. The hypothesis g has the parameter v = (1, 0), so its boundary is vertical.

A row's *angle* is the angle from g's boundary to the line through the row, in [0, pi). A hypothesis
that is g rotated by t in (0, pi) disagrees with g on the rows of angle below t, and one rotated by
-t on the rows of angle above pi - t. Both disagree on the share t / pi of the disc. So a row's LDM
is the smaller of the two rotations that reach it, over pi.
"""

from __future__ import annotations

import numpy as np

from research.paper.item import Array
from teeter.base.seeds import stream
from teeter.models.outputs import Outputs

__all__ = [
    "PENALTY",
    "WEIGHT",
    "Array",
    "disagreement_shares",
    "estimated_ldm",
    "exact_ldm",
    "fit_line",
    "line_accuracy",
    "line_outputs",
    "rng",
    "rotation_angles",
    "row_angles",
    "sample_disc",
]

WEIGHT = np.array([[-0.5, 0.0], [0.5, 0.0]])
"""The head of g: class 1 is to the right of the vertical line."""

PENALTY = 0.01
"""Half of it times the squared norm is added to the loss: separable rows have no finite optimum."""


def rng(seed: int, *name: str | int) -> np.random.Generator:
    """Return a NumPy generator for the random stream called ``name``."""
    return np.random.default_rng(stream(seed, *name).initial_seed())


def sample_disc(count: int, generator: np.random.Generator) -> Array:
    """Return rows uniform on the unit disc: (count, 2)."""
    # The square root makes the density uniform in area, not in radius.
    radius = np.sqrt(generator.random(count))
    angle = 2 * np.pi * generator.random(count)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)


def row_angles(rows: Array) -> Array:
    """Return the angle (N,), in [0, pi), from g's boundary to the line through each row (N, 2)."""
    angles: Array = np.mod(np.arctan2(rows[:, 1], rows[:, 0]) - np.pi / 2, np.pi)
    return angles


def exact_ldm(angles: Array) -> Array:
    """Return the LDM of rows: the smaller angle between g's boundary and the row, over pi."""
    values: Array = np.minimum(angles, np.pi - angles) / np.pi
    return values


def rotation_angles(parameters: Array) -> Array:
    """Return how far hypotheses are rotated against g: (..., 2) -> (...), in (-pi, pi]."""
    rotations: Array = np.arctan2(parameters[..., 1], parameters[..., 0])
    return rotations


def disagreement_shares(rotations: Array, reference: Array) -> Array:
    """Return the share of reference rows on which each rotated hypothesis disagrees with g.

    Sorted angles make this a search instead of a comparison of every hypothesis with every row.

    Args:
        rotations: the rotation of each hypothesis, in (-pi, pi].
        reference: the sorted angles of the reference rows: (M,).
    """
    # Rotated to the left by t, it passes the rows of angle below t.
    passed_left = np.searchsorted(reference, np.maximum(rotations, 0), side="left")

    # Rotated to the right by t, it passes the rows of angle above pi - t.
    not_passed = np.searchsorted(reference, np.pi + np.minimum(rotations, 0), side="right")
    passed_right = len(reference) - not_passed
    return np.where(rotations >= 0, passed_left, passed_right) / len(reference)


def estimated_ldm(angles: Array, rotations: Array, reference: Array) -> Array:
    """Return the paper's estimator: the smallest share among the hypotheses that flip a row.

    The share grows with the rotation on either side, so the first hypothesis that passes the row
    has the smallest share of its side.

    Args:
        angles: the angles of the rows: (N,).
        rotations: the rotations of the hypotheses: (H,).
        reference: the sorted angles of the reference rows: (M,).

    Returns:
        The estimates (N,), with 1 for rows that no hypothesis flips.
    """
    to_the_left = np.sort(rotations[rotations > 0])
    to_the_right = np.sort(-rotations[rotations < 0])

    left = _share_of_first_past(angles, to_the_left, 1.0, reference)
    right = _share_of_first_past(np.pi - angles, to_the_right, -1.0, reference)
    estimates: Array = np.minimum(left, right)
    return estimates


def _share_of_first_past(needed: Array, rotations: Array, sign: float, reference: Array) -> Array:
    """Return the share of the first of sorted rotations above each needed one; 1 if none is."""
    positions = np.searchsorted(rotations, needed, side="right")
    is_reached = positions < len(rotations)

    shares = np.ones(len(needed))
    first_past = sign * rotations[positions[is_reached]]
    shares[is_reached] = disagreement_shares(first_past, reference)
    return shares


def fit_line(rows: Array, labels: Array, penalty: float = PENALTY, steps: int = 100) -> Array:
    """Return the weight (2,) of a logistic regression without a bias, by Newton's method.

    Args:
        rows: the labelled rows: (L, 2).
        labels: their classes, 0 or 1: (L,).
        penalty: the factor of the squared norm, see ``PENALTY``.
        steps: the most Newton steps to take.
    """
    weight: Array = np.zeros(2)
    for _ in range(steps):
        # Clipped, because exp overflows beyond 709.
        logits = np.clip(rows @ weight, -500, 500)
        probability = 1 / (1 + np.exp(-logits))

        gradient = rows.T @ (probability - labels) + penalty * weight
        curvature = probability * (1 - probability)
        hessian = (rows * curvature[:, None]).T @ rows + penalty * np.eye(2)

        step = np.linalg.solve(hessian, gradient)
        # Long steps overshoot where the loss is almost flat: none is longer than 5.
        weight = weight - step * min(1.0, 5 / float(np.linalg.norm(step) + 1e-12))

        if np.linalg.norm(step) < 1e-9:
            break
    return weight


def line_accuracy(weight: Array, true_weight: Array) -> float:
    """Return the share of the disc on which two lines through the origin agree."""
    # They disagree on two opposite wedges, the angle between them over pi of the disc.
    norms = np.linalg.norm(weight) * np.linalg.norm(true_weight)
    cosine = float(weight @ true_weight / (norms + 1e-300))
    return 1 - float(np.arccos(np.clip(cosine, -1, 1))) / np.pi


def line_outputs(rows: Array, weight: Array) -> Outputs:
    """Return the outputs of a line as strategies see them: two classes, no bias."""
    return Outputs(features=rows, weight=np.stack([np.zeros(2), weight])).with_logits()
