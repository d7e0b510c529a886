"""Facility location as it is defined: every row is served by the pick most similar to it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


def similarity(a: Array, b: Array) -> float:
    """1 + cos(a, b); zero rows have the cosine 1 with each other and 0 with the others."""
    if not a.any() or not b.any():
        return 2.0 if not a.any() and not b.any() else 1.0
    return 1 + float(a @ b) / float(np.linalg.norm(a) * np.linalg.norm(b))


def similarities(features: Array) -> Array:
    return np.array([[similarity(a, b) for b in features] for a in features])


def value(pairs: Array, picks: Sequence[int]) -> float:
    """f(A) = sum over i of max over j in A of the similarity, 0 for no picks."""
    return sum(max((row[j] for j in picks), default=0.0) for row in pairs)


def greedy(features: Array, n: int) -> list[int]:
    """The n rows that each add the most to those before; equal gains go to the lowest row."""
    pairs = similarities(features)
    picks: list[int] = []
    while len(picks) < n:
        rows = [row for row in range(len(features)) if row not in picks]
        values = [value(pairs, [*picks, row]) for row in rows]
        picks.append(
            next(
                row for row, total in zip(rows, values, strict=True) if total >= max(values) - 1e-10
            )
        )
    return picks


def gaussian(a: Array, b: Array) -> float:
    """exp(2 (cos(a, b) - 1)): for rows of length 1, exp of minus their squared distance."""
    return float(np.exp(2 * (similarity(a, b) - 2)))


def herding(features: Array, n: int, weights: Array, centres: Array) -> list[int]:
    """MaxHerding (Bae et al. 2024, algorithm 1) with the weights of UHerding (2025, equation 4):
    the row that raises the weighted coverage most, n times; equal gains go to the lowest row.
    """
    cover = [max((gaussian(z, c) for c in centres), default=0.0) for z in features]
    picks: list[int] = []
    while len(picks) < n:
        gains = {}
        for i in range(len(features)):
            if i not in picks:
                gains[i] = sum(
                    w * max(0.0, gaussian(features[i], z) - c)
                    for z, w, c in zip(features, weights, cover, strict=True)
                )
        largest = max(gains.values())
        picks.append(next(i for i, gain in gains.items() if gain >= largest - 1e-10))
        cover = [
            max(c, gaussian(features[picks[-1]], z)) for z, c in zip(features, cover, strict=True)
        ]
    return picks


def class_weights(probabilities: Array) -> Array:
    """sum over c of p_jc / (1 + sum over i of p_ic), for each row j."""
    totals = [1 + sum(row[c] for row in probabilities) for c in range(probabilities.shape[1])]
    return np.array(
        [sum(p / total for p, total in zip(row, totals, strict=True)) for row in probabilities]
    )
