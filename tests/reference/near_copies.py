"""Groups of near copies by every pair and a union-find."""

from __future__ import annotations

import numpy as np

from teeter.base.array_types import Integers, Vectors


def group_near_copies(features: Vectors, similarity: float) -> Integers:
    """Return for each row the first row of its group."""
    rows = features.astype(np.float64)
    parents = list(range(len(rows)))

    def find(row: int) -> int:
        while parents[row] != row:
            row = parents[row]
        return row

    for i, first in enumerate(rows):
        for j, second in enumerate(rows[:i]):
            lengths = np.sqrt((first @ first) * (second @ second))
            if lengths > 0 and first @ second >= similarity * lengths:
                low, high = sorted((find(i), find(j)))
                parents[high] = low
    return np.array([find(row) for row in range(len(rows))], dtype=np.int64)
