"""ProbCover by its definition: every ball written out, one pick at a time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from reference.kcenter import k_center

Array = npt.NDArray[np.float64]

ROUNDING = 1e-9


def directions(features: Array) -> Array:
    """The rows at length 1, with one more axis for rows that are 0."""
    rows = []
    for row in features:
        length = float(np.sqrt((row**2).sum()))
        rows.append([*(row / length), 0.0] if length else [*row, 1.0])
    return np.array(rows).reshape(len(features), features.shape[1] + 1)


def distance(a: Array, b: Array) -> float:
    return float(np.sqrt(((a - b) ** 2).sum()))


def is_pure(row: int, radius: float, units: Array, labels: list[int]) -> bool:
    ball = [
        other
        for other in range(len(units))
        if distance(units[row], units[other]) < radius - ROUNDING
    ]
    return all(labels[other] == labels[row] for other in ball)


def purity_radius(features: Array, labels: list[int], purity: float) -> float:
    """The largest radius with enough pure balls: one of the distances between rows."""
    units = directions(features)
    rows = range(len(features))
    largest = 0.0
    for radius in {*(distance(units[a], units[b]) for a in rows for b in rows), np.inf}:
        pure = sum(is_pure(row, radius, units, labels) for row in rows)
        if pure >= purity * len(features) - ROUNDING:
            largest = max(largest, radius)
    return largest


def probcover(features: Array, radius: float, n: int, centres: Array) -> list[int]:
    """Pick the row that covers most uncovered rows; the farthest row if no ball has any."""
    rows = range(len(features))
    everything = directions(np.vstack([features, centres]))
    units = everything[: len(features)]
    labelled = everything[len(features) :]

    def near(a: Array, b: Array) -> bool:
        return distance(a, b) < radius - ROUNDING

    covered = {row for row in rows if any(near(units[row], centre) for centre in labelled)}
    picks: list[int] = []
    while len(picks) < n:
        gains = {
            row: sum(other not in covered and near(units[row], units[other]) for other in rows)
            for row in rows
            if row not in picks
        }
        best = max(gains, key=lambda row: (gains[row], -row))
        if gains[best] == 0:
            rest = sorted(gains)
            more = k_center(units[rest], np.vstack([labelled, units[picks]]), n - len(picks))
            return picks + [rest[position] for position in more]
        picks.append(best)
        covered |= {other for other in rows if near(units[best], units[other])}
    return picks
