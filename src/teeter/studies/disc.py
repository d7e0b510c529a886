"""The paper's plane: rows uniform on a disc, two classes, a line through the origin; all is known exactly there.

The hypothesis g has the parameter v = (1, 0), so its boundary is upright. A row's *tilt* is the angle from g's
boundary to the row's line, in [0, pi): turned by ``t`` in (0, pi), the boundary has passed the rows of tilt below t,
and turned by -t those of tilt above pi - t. The share passed is t / pi, and a row's LDM is the smaller way to it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from teeter.seeds import stream

__all__ = ["WEIGHT", "draws", "exact_ldm", "least_of", "on_disc", "shares", "tilts", "turns"]

Array = npt.NDArray[np.floating[Any]]

WEIGHT = np.array([[-0.5, 0.0], [0.5, 0.0]])
"""The head of g: class 1 to the right of the upright line."""


def draws(seed: int, *name: str | int) -> np.random.Generator:
    """Return NumPy's generator for the stream called ``name``."""
    return np.random.default_rng(stream(seed, *name).initial_seed())


def on_disc(count: int, generator: np.random.Generator) -> Array:
    """Return rows uniform on the unit disc: (count, 2)."""
    radius, angle = np.sqrt(generator.random(count)), 2 * np.pi * generator.random(count)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)


def tilts(rows: Array) -> Array:
    """Return the angle from g's boundary to each row's line: (N, 2) -> (N,) in [0, pi)."""
    answer: Array = np.mod(np.arctan2(rows[:, 1], rows[:, 0]) - np.pi / 2, np.pi)
    return answer


def exact_ldm(tilt: Array) -> Array:
    """Return |theta| / pi, with theta the smaller angle between g's boundary and the row's line."""
    answer: Array = np.minimum(tilt, np.pi - tilt) / np.pi
    return answer


def turns(parameters: Array) -> Array:
    """Return by how much each hypothesis is turned against g: (..., 2) -> (...) in (-pi, pi]."""
    answer: Array = np.arctan2(parameters[..., 1], parameters[..., 0])
    return answer


def shares(turned: Array, reference: Array) -> Array:
    """Return the share of ``reference``, tilts in rising order, on which hypotheses turned so far disagree with g."""
    left = np.searchsorted(reference, np.maximum(turned, 0), side="left")
    right = len(reference) - np.searchsorted(reference, np.pi + np.minimum(turned, 0), side="right")
    return np.where(turned >= 0, left, right) / len(reference)


def least_of(tilt: Array, turned: Array, reference: Array) -> Array:
    """Return the paper's estimator with a finite set of hypotheses: the least share among those that flip a row.

    tilt (N,) of the rows, turned (H,) of the hypotheses, reference (M,) tilts in rising order -> (N,), 1 where none
    flips the row. On either side the share grows with the turn, so the first hypothesis past the row is the least.
    """
    left = np.sort(turned[turned > 0])
    right = np.sort(-turned[turned < 0])
    ways = [
        _first_past(tilt, left, 1.0, reference),
        _first_past(np.pi - tilt, right, -1.0, reference),
    ]
    answer: Array = np.minimum(*ways)
    return answer


def _first_past(needed: Array, ordered: Array, sign: float, reference: Array) -> Array:
    answer = np.ones(len(needed))
    place = np.searchsorted(ordered, needed, side="right")
    there = place < len(ordered)
    answer[there] = shares(sign * ordered[place[there]], reference)
    return answer
