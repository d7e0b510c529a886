"""GALAXY: bisection between labels on a line of rows for each class.

The line of class k has all rows, labelled or not, in the order of how far class k is behind the
most probable class; rows of which k is the most probable class come last, the most confident one at
the end. Rows up to ``order`` places apart are neighbours on it, except rows labelled k and rows
labelled otherwise. The next pick is in the middle of the shortest path between such two rows: the
label tells on which side of it the class begins. The classes take turns, so rare ones get as many
questions as frequent ones. When no path is left, the order grows by one.

Reference: Zhang, Katz-Samuels and Nowak, GALAXY: Graph-based Active Learning at the Extreme, ICML
2022, and the authors' code, in which the classes take turns.
"""

from __future__ import annotations

import numpy as np

from teeter.base.array_types import Booleans, Floats, Integers

__all__ = [
    "bisect_line",
    "bisect_lines",
    "make_lines",
]

_CONFIDENCE = 1e-8
"""How much the confidence counts beside the distance to the most probable class."""


def make_lines(probabilities: Floats) -> Integers:
    """Return the rows in their order on the line of each class: (N, C) -> (C, N)."""
    highest = probabilities.max(axis=1, keepdims=True)
    scores = probabilities - highest + _CONFIDENCE * highest
    return np.argsort(scores, axis=0, kind="stable").T


def bisect_lines(
    probabilities: Floats,
    labels: Integers,
    n: int,
    *,
    fallback: Integers,
) -> Integers:
    """Pick n rows, one after the other, by bisection on the line of a class.

    The paper learns the label of a pick before the next pick. Here the labels of a batch come
    together, so a pick counts as labelled with its most probable class until then. For n = 1 the
    two are the same.

    Args:
        probabilities: (N, C) of all rows.
        labels: (N,) the class of each row, -1 if it has no label.
        n: number of picks, at most as many as there are rows without a label.
        fallback: (N,) all rows in the order in which they are picked where no path is found.

    Returns:
        (n,) positions of rows without a label, in the order of picking.
    """
    n_classes = probabilities.shape[1]
    known = labels.copy()
    predicted = probabilities.argmax(axis=1)
    lines = make_lines(probabilities)
    remaining = iter(fallback.tolist())

    # The turn goes on where the labels so far have ended.
    turn = int((labels >= 0).sum())
    order = 1
    picks: list[int] = []
    while len(picks) < n:
        k = (turn + len(picks)) % n_classes
        on_line = known[lines[k]]
        signs = np.where(on_line == k, 1, -1)
        signs[on_line < 0] = 0

        place = bisect_line(signs, order)
        if place is None:
            order += 1
            place = bisect_line(signs, order)
        if place is None:
            row = next(row for row in remaining if known[row] < 0)
        else:
            row = int(lines[k, place])

        picks.append(row)
        known[row] = predicted[row]

    return np.array(picks, dtype=np.int64)


def bisect_line(signs: Integers, order: int) -> int | None:
    """Return the middle of the shortest path between a labelled row of a class and another one.

    Args:
        signs: (N,) by place, 1 for a row labelled with the class, -1 for one labelled otherwise, 0
            for one without a label.
        order: rows up to so many places apart are neighbours.

    Returns:
        The place of a row without a label; None if there is no path. Of paths of the same length
        the one nearest the end counts.
    """
    if order == 1:
        return _middle_of_stretch(signs)

    # Breadth first from the rows of the class: levels[t] can be reached in t + 1 steps.
    is_open = signs == 0
    is_beside_others = _within(signs == -1, order)
    level = _within(signs == 1, order) & is_open
    is_seen = level.copy()
    levels = [level]
    while level.any():
        ends = np.flatnonzero(level & is_beside_others)
        if len(ends):
            return _middle_of_path(levels, int(ends[-1]), order)
        level = _within(level, order) & is_open & ~is_seen
        is_seen |= level
        levels.append(level)
    return None


def _middle_of_stretch(signs: Integers) -> int | None:
    """Return what ``bisect_line`` returns for neighbours one place apart."""
    ends = np.flatnonzero(signs)
    lengths = np.diff(ends)
    is_boundary = signs[ends[:-1]] != signs[ends[1:]]
    usable = np.flatnonzero(is_boundary & (lengths > 1))
    if not len(usable):
        return None

    usable_lengths = lengths[usable]
    is_shortest = usable_lengths == usable_lengths.min()
    shortest = usable[is_shortest][-1]
    # Counted from the row of another class.
    steps = int(lengths[shortest] + 1) // 2
    left = int(ends[shortest])
    right = int(ends[shortest + 1])
    if signs[left] == -1:
        return left + steps
    return right - steps


def _middle_of_path(levels: list[Booleans], last: int, order: int) -> int:
    """Return the middle of a path that ends at ``last``, which is beside a row of another class."""
    path = [last]
    for level in reversed(levels[:-1]):
        start = max(0, path[-1] - order)
        neighbours = np.flatnonzero(level[start : path[-1] + order + 1])
        path.append(start + int(neighbours[-1]))

    # With the labelled rows at both ends, the path has two more places.
    return path[(len(path) + 2) // 2 - 1]


def _within(mask: Booleans, distance: int) -> Booleans:
    """Return which places are at most so far from one in the mask: (N,)."""
    counts = np.concatenate([[0], np.cumsum(mask)])
    places = np.arange(len(mask))
    first = np.maximum(places - distance, 0)
    last = np.minimum(places + distance + 1, len(mask))
    within: Booleans = counts[last] > counts[first]
    return within
