"""Greedy k-center by its definition: one pick at a time, all distances computed again."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


def k_center(features: Array, centres: Array, n: int) -> list[int]:
    """Pick the row whose nearest centre or pick is the farthest; the lowest row of several.

    Without centres the first pick is the row farthest from the mean.
    """
    picks: list[int] = []

    while len(picks) < n:
        best, farthest = -1, -1.0
        for row in range(len(features)):
            if row in picks:
                continue
            centres_and_picks = [*centres, *(features[pick] for pick in picks)] or [
                features.mean(axis=0)
            ]
            distance = min(
                float(((features[row] - centre) ** 2).sum()) for centre in centres_and_picks
            )
            if distance > farthest:
                best, farthest = row, distance

        picks.append(best)
    return picks
