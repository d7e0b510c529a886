"""Near copies: items so similar that the answer about one of them may do for the others.

Two items are near copies if the cosine of their features reaches ``Settings.copy_similarity``. So
are items that a chain of near copies connects: they form a group.

The groups are exact, without an N x N matrix. Most pairs are ruled out by a bound on their cosine.
Let P project unit vectors x and y to their K main directions. By the inequality of Cauchy and
Schwarz,

    cos(x, y) <= Px . Py + |x - Px| |y - Py|,

which is one product of K + 1 numbers. The cosines of the pairs that are left are computed.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from teeter.base.array_types import Booleans, Floats, Integers, Vectors
from teeter.campaigns.store import CampaignStore

MOST_ITEMS = 300_000
"""In larger campaigns no near copies are looked for. The time grows with the square of the items:
100,000 take a quarter of a minute on one core.
"""

_BLOCK = 2048
"""Items that are compared with as many others at a time."""

_DIRECTIONS = 32
"""K, the main directions of the bound."""

_ITERATIONS = 3

_MARGIN = 1e-5
"""More than what rounding can change in a cosine of 32-bit numbers."""

_DENSE = 0.02
"""If the bound leaves a larger share of a block, all cosines of the block are computed."""

_PART = 10_000
"""Pairs whose cosines are computed at a time."""


def group_near_copies(
    features: Vectors, similarity: float, known: Integers | None = None
) -> Integers:
    """Return for each row the first row of its group; a row without near copies is its own.

    Args:
        features: (N, D). A row of zeros is no copy of any other.
        similarity: the cosine from which on two rows are near copies.
        known: (M,) what this function returned for the first M rows alone.

    Example:
        >>> rows = np.array([[1, 0], [0, 1], [2, 0.1], [0, 0]], np.float32)
        >>> group_near_copies(rows, 0.95).tolist()
        [0, 1, 0, 3]
    """
    n_rows = len(features)
    n_known = 0
    groups = np.arange(n_rows)
    if known is not None:
        n_known = len(known)
        groups[:n_known] = known

    lengths = np.sqrt(np.einsum("nd,nd->n", features, features))
    is_zero = lengths == 0
    divisors = np.where(is_zero, 1, lengths)
    units = (features / divisors[:, None]).astype(np.float32)
    bounds = _shorten(units)
    least = similarity - _MARGIN
    for start in range(0, n_rows, _BLOCK):
        rows = slice(start, start + _BLOCK)
        for other_start in range(start, n_rows, _BLOCK):
            others = slice(other_start, other_start + _BLOCK)
            if others.stop <= n_known:
                continue
            is_certain = None
            most_similar = bounds[rows] @ bounds[others].T
            may_be_copies = most_similar >= least
            if np.count_nonzero(may_be_copies) > _DENSE * may_be_copies.size:
                cosines = units[rows] @ units[others].T
                may_be_copies = cosines >= least
                is_certain = cosines >= similarity + _MARGIN
            may_be_copies[is_zero[rows]] = False
            may_be_copies[:, is_zero[others]] = False

            left, right = np.nonzero(may_be_copies)
            are_copies = np.zeros(len(left), dtype=np.bool_)
            if is_certain is not None:
                are_copies = is_certain[left, right]
            left += start
            right += other_start
            # Pairs that are in one group already need no cosine.
            is_joined = groups[left] == groups[right]
            to_compute = np.flatnonzero(~are_copies & ~is_joined)
            left_to_compute = left[to_compute]
            right_to_compute = right[to_compute]
            are_copies[to_compute] = _are_similar(
                features, left_to_compute, right_to_compute, similarity
            )
            groups = join_groups(groups, left[are_copies], right[are_copies])
    return groups


def _shorten(units: Vectors) -> Vectors:
    """Return (N, K + 1) numbers whose products bound the cosines of unit vectors (N, D)."""
    width = units.shape[1]
    generator = np.random.default_rng(0)
    # The main directions roughly, by orthogonal iteration. Any orthonormal ones give a bound.
    start = generator.normal(size=(width, min(width, _DIRECTIONS)))
    directions = start.astype(np.float32)
    for _ in range(_ITERATIONS):
        directions, _ = np.linalg.qr(units.T @ (units @ directions))
    short = units @ directions
    squares = np.einsum("nd,nd->n", units, units)
    short_squares = np.einsum("nk,nk->n", short, short)
    rest_lengths = np.sqrt(np.maximum(squares - short_squares, 0))
    return np.concatenate([short, rest_lengths[:, None]], axis=1, dtype=np.float32)


def _are_similar(features: Vectors, left: Integers, right: Integers, similarity: float) -> Booleans:
    """Return (P,) whether the cosine of each pair of rows reaches a similarity."""
    are_similar = np.zeros(len(left), dtype=np.bool_)
    for start in range(0, len(left), _PART):
        part = slice(start, start + _PART)
        first: Floats = features[left[part]].astype(np.float64)
        second: Floats = features[right[part]].astype(np.float64)
        products = np.einsum("pd,pd->p", first, second)
        first_squares = np.einsum("pd,pd->p", first, first)
        second_squares = np.einsum("pd,pd->p", second, second)
        lengths = np.sqrt(first_squares * second_squares)
        are_similar[part] = products >= similarity * lengths
    return are_similar


def join_groups(groups: Integers, left: Integers, right: Integers) -> Integers:
    """Return groups, named by their first rows, after pairs of rows came into the same one.

    Args:
        groups: (N,) the first row of each row's group.
        left: (P,) the first row of each pair.
        right: (P,) the second.

    Example:
        >>> join_groups(np.arange(5), np.array([4, 2]), np.array([2, 1])).tolist()
        [0, 1, 1, 3, 1]
    """
    if len(left) == 0:
        return groups

    ends = np.concatenate([left, right])
    names, positions = np.unique(groups[ends], return_inverse=True)
    n_pairs = len(left)
    n_names = len(names)
    pairs = (positions[:n_pairs], positions[n_pairs:])
    marks = np.ones(n_pairs, dtype=np.int8)
    graph = coo_matrix((marks, pairs), shape=(n_names, n_names))
    _, parts = connected_components(graph, directed=False)

    first_of_part = np.full(parts.max() + 1, len(groups))
    np.minimum.at(first_of_part, parts, names)
    new_names = np.arange(len(groups))
    new_names[names] = first_of_part[parts]
    joined: Integers = new_names[groups]
    return joined


def update_near_copies(store: CampaignStore) -> None:
    """Look for near copies among items that were not compared yet, if all of them are encoded."""
    while True:
        with store.reading() as view:
            similarity = view.settings.copy_similarity
            current = view.encodings.current()
            n_items = view.items.count()
            if current is None or similarity == 0:
                return
            if n_items > MOST_ITEMS or view.encodings.count_missing(current.row_id):
                return
            copies = view.encodings.near_copies()
            if copies is not None and copies.n_compared == n_items:
                return
            stored = view.encodings.read()

        known = None
        if copies is not None:
            known = copies.first_rows(stored.keys[: copies.n_compared])
        groups = group_near_copies(stored.vectors, similarity, known)

        by_first: dict[int, list[str]] = {}
        for key, first in zip(stored.keys, groups.tolist(), strict=True):
            by_first.setdefault(first, []).append(key)
        several = [items for items in by_first.values() if len(items) > 1]
        with store.writing() as change:
            # Not if features or the setting changed meanwhile: then all over again.
            is_current = change.encodings.revision() == (current.row_id, current.revision)
            if is_current and change.settings.copy_similarity == similarity:
                change.encodings.write_near_copies(similarity, n_items, several)
                return
