"""ProbCover: greedy maximum coverage of the pool by balls of one radius around the picks.

Features are normalised to length 1, so a ball is a set of rows whose cosine to its centre is above
a threshold. The work is in knowing which rows lie in whose ball: ``_Neighbourhoods`` lists them
once if the lists fit in memory, and computes them again for every pick otherwise.

Reference: Yehuda et al., Active Learning Through a Covering Lens, NeurIPS 2022.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from teeter.base.arrays import TILE, full_precision_matmul, memory_budget, pad_to_tile
from teeter.kernels.distances import NEGLIGIBLE, Cosine
from teeter.kernels.kcenter import k_center

__all__ = [
    "probcover",
    "purity_radius",
]

_COLUMNS_PER_PRODUCT = 10 * TILE
"""A constant, so that the memory budget does not change how products round."""

_BYTES_PER_MEMBER = 5
"""Memory per member while lists are built: 4 in the list, and 2 in the pairs, freed on the way."""

_MOST_CUDA_ENTRIES = 1 << 30
"""Torch cannot index more than 2^31 entries of a tensor on a GPU; half of that is safe."""


def purity_radius(
    features: Tensor,
    labels: Tensor,
    purity: float,
) -> float:
    """Return the largest radius for which enough balls hold rows of a single label.

    A ball is pure as long as its radius does not exceed the distance to the nearest row of another
    label. So the answer is one of these distances: the one of the right rank.

    Args:
        features: (N, D), not normalised.
        labels: (N,) labels or pseudo-labels.
        purity: share of the balls that must be pure, 0 to 1.

    Returns:
        A distance between unit vectors, infinite if there is only one label.
    """
    units = Cosine(features).units
    N = len(units)

    # (N,) each row's largest cosine to a row of another label. Cosines are symmetric, so each pair
    # of blocks is multiplied once and counts for the rows of both.
    largest_cosine = units.new_full((N,), -torch.inf)
    all_rows = torch.arange(N, device=units.device)
    row_blocks = all_rows.split(_COLUMNS_PER_PRODUCT // 2)
    for k, rows in enumerate(row_blocks):
        for columns in row_blocks[k:]:
            with full_precision_matmul():
                products = pad_to_tile(units[rows]) @ pad_to_tile(units[columns]).T

            cosines = products[: len(rows), : len(columns)]
            is_same_label = labels[rows][:, None] == labels[columns]
            cosines.masked_fill_(is_same_label, -torch.inf)
            of_rows = cosines.amax(dim=1)
            of_columns = cosines.amax(dim=0)
            largest_cosine[rows] = torch.maximum(largest_cosine[rows], of_rows)
            largest_cosine[columns] = torch.maximum(largest_cosine[columns], of_columns)

    # Balls that may be impure. 1e-9: (1 - purity) * N may be rounded to below a whole number.
    allowed_impure = math.floor((1 - purity) * N + 1e-9)
    allowed_impure = min(allowed_impure, N - 1)

    # Those with the nearest foreign rows may be. The next one must be pure.
    descending_cosines = largest_cosine.sort(descending=True).values
    distance = 1 - float(descending_cosines[allowed_impure])
    if distance < NEGLIGIBLE:
        return 0.0

    # Between unit vectors: |a - b|^2 = 2 (1 - cos).
    return math.sqrt(2 * distance)


def probcover(
    features: Tensor,
    radius: float,
    n: int,
    *,
    centres: Tensor | None = None,
) -> Tensor:
    """Pick n different rows, each covering the most rows that nothing covers yet.

    A ball holds the rows at a distance below ``radius`` after normalisation. Equal counts go to the
    lowest row. When no ball has an uncovered row, each next pick is the row farthest from the
    centres and picks.

    Args:
        features: (N, D), not normalised.
        radius: of the balls, a distance between unit vectors (0 to 2).
        n: number of picks, 1 to N.
        centres: (L, D) rows whose balls are covered already, for example the labelled ones, or
            None.

    Returns:
        (n,) int64 positions in the order of picking.
    """
    if centres is None:
        centres = features[:0]

    # One call, so that zero rows get the same extra axis on both sides.
    all_units = Cosine(torch.cat([features, centres])).units
    units, centre_units = all_units.split([len(features), len(centres)])
    neighbourhoods = _Neighbourhoods(units, radius)

    # (N,) which rows lie in the ball of a centre or pick. Changed in place from pick to pick.
    is_covered = units.new_zeros(len(units), dtype=torch.bool)
    for chunk in centre_units.split(neighbourhoods.rows_per_product):
        is_covered |= neighbourhoods.around(chunk).any(dim=0)

    # (N,) uncovered rows in each ball; -1 for picks. Lowered in place: being in a ball is mutual,
    # so
    # a row that becomes covered counts less for all rows in its own ball.
    covered_rows = is_covered.nonzero().flatten()
    gains = neighbourhoods.sizes - neighbourhoods.count_members(covered_rows)

    picks: list[int] = []
    while len(picks) < n:
        best = int(gains.argmax())
        if gains[best] <= 0:
            break

        members = neighbourhoods.members(best)
        newly_covered = members[~is_covered[members]]
        is_covered[newly_covered] = True
        gains -= neighbourhoods.count_members(newly_covered)
        gains[best] = -1
        picks.append(best)

    positions = torch.tensor(picks, dtype=torch.int64, device=units.device)
    if len(picks) == n:
        return positions
    return _add_farthest(units, centre_units, positions, n)


def _add_farthest(
    units: Tensor,
    centre_units: Tensor,
    picks: Tensor,
    n: int,
) -> Tensor:
    """Fill the picks up to n by greedy k-center from the centres and picks."""
    is_free = units.new_ones(len(units), dtype=torch.bool)
    is_free.index_fill_(0, picks, False)
    free_rows = is_free.nonzero().flatten()

    covered = torch.cat([centre_units, units[picks]])
    missing = n - len(picks)
    farthest = k_center(units[free_rows], covered, missing)
    return torch.cat([picks, free_rows[farthest]])


@dataclass(frozen=True)
class _TilePairs:
    """The pairs of neighbours between two tiles of rows, as flat positions in their product.

    Position ``p`` is the pair of row ``a + p // width`` and row ``b + p % width``.
    """

    a: int
    """First row of the left tile."""
    b: int
    """First row of the right tile, at or after ``a``."""
    width: int
    """Rows of the right tile."""
    positions: Tensor
    """(E,) int32, ascending."""


class _Neighbourhoods:
    """Which rows lie in the ball of which row.

    Being in someone's ball is mutual, so each pair of tiles is multiplied once.

    Nothing here changes after the constructor. There ``sizes`` is counted up in place tile by tile,
    and ``lists`` is filled from the back of ``pairs``, which is emptied on the way.
    """

    def __init__(self, units: Tensor, radius: float) -> None:
        self.units = units

        # Rows of a product with all N rows.
        self.rows_per_product = TILE
        if units.is_cuda:
            fitting_tiles = _MOST_CUDA_ENTRIES // len(units) // TILE
            fitting_rows = min(_COLUMNS_PER_PRODUCT, fitting_tiles * TILE)
            self.rows_per_product = max(TILE, fitting_rows)

        # A row is in a ball if its cosine is above this. Rows at exactly the radius are outside in
        # spite of rounding. Negligible distances are 0. A ball of radius 0 is empty.
        self.least_cosine = math.inf
        if radius > 0:
            rounding = 8 * torch.finfo(units.dtype).eps
            least_cosine = 1 - radius**2 / 2 + rounding
            self.least_cosine = min(least_cosine, 1 - NEGLIGIBLE)

        # (N,) number of rows in each ball, counted by _find_pairs.
        self.sizes = units.new_zeros(len(units), dtype=torch.int64)
        pairs = self._find_pairs()

        # The members of ball i are lists[starts[i] : starts[i] + sizes[i]]; None if too large.
        self.starts = self.sizes.cumsum(dim=0) - self.sizes
        self.lists: Tensor | None = None
        if pairs is not None:
            self.lists = self._build_lists(pairs)

    def around(self, centres: Tensor) -> Tensor:
        """Return which rows are in the balls around unit vectors: (A, D) -> (A, N) bool."""
        N = len(self.units)
        is_near = centres.new_empty((len(centres), N), dtype=torch.bool)
        left = pad_to_tile(centres)

        for start in range(0, N, _COLUMNS_PER_PRODUCT):
            stop = min(start + _COLUMNS_PER_PRODUCT, N)
            right = self.units[start:stop]
            with full_precision_matmul():
                products = left @ pad_to_tile(right).T
            torch.gt(
                products[: len(centres), : len(right)],
                self.least_cosine,
                out=is_near[:, start:stop],
            )
        return is_near

    def members(self, row: int) -> Tensor:
        """Return the rows in a row's ball: (B,) int64."""
        if self.lists is None:
            unit = self.units[row]
            is_near = self.around(unit[None])[0]
            return is_near.nonzero().flatten()

        start = int(self.starts[row])
        stop = start + int(self.sizes[row])
        return self.lists[start:stop].long()

    def count_members(self, rows: Tensor) -> Tensor:
        """Return how many of the given rows lie in each row's ball: positions (A,) -> (N,)."""
        counts = torch.zeros_like(self.sizes)

        for chunk in rows.split(self.rows_per_product):
            if self.lists is None:
                counts += self.around(self.units[chunk]).sum(dim=0)
                continue

            # Concatenate the lists of the rows of the chunk, and count who appears in them. Entry j
            # of the concatenation is at place j + offset, with an offset per list.
            sizes = self.sizes[chunk]
            places_before = sizes.cumsum(dim=0) - sizes
            offsets = self.starts[chunk] - places_before
            places = torch.arange(int(sizes.sum()), device=rows.device)
            places = places + offsets.repeat_interleave(sizes)
            counts += torch.bincount(self.lists[places], minlength=len(counts))
        return counts

    def _find_pairs(self) -> list[_TilePairs] | None:
        """Fill ``sizes``; return all pairs of neighbours, or None if they need too much memory."""
        N = len(self.units)
        side = 5 * TILE
        if self.units.is_cuda:
            side = 40 * TILE
        starts = range(0, N, side)
        room = memory_budget(self.units.device) // _BYTES_PER_MEMBER  # in members
        pairs: list[_TilePairs] | None = []

        for a in starts:
            left = slice(a, a + side)
            strip = []
            column_starts = starts[a // side :]
            for b in column_starts:
                right = slice(b, b + side)
                is_near = self._is_near(self.units[left], self.units[right])
                self.sizes[left] += is_near.sum(dim=1, dtype=torch.int32)
                if a != b:
                    self.sizes[right] += is_near.sum(dim=0, dtype=torch.int32)

                if pairs is not None:
                    # Off the diagonal a pair makes each of the two a member of the other's ball.
                    positions = _flat_nonzero(is_near)
                    strip.append(positions)
                    room -= len(positions)
                    if a != b:
                        room -= len(positions)
                    if room < 0:
                        pairs = None

            if pairs is not None:
                # One array instead of many small ones, which would fragment the heap.
                part_sizes = [len(positions) for positions in strip]
                parts = torch.cat(strip).split(part_sizes)
                for b, part in zip(column_starts, parts, strict=True):
                    tile_pairs = _TilePairs(
                        a=a,
                        b=b,
                        width=min(side, N - b),
                        positions=part,
                    )
                    pairs.append(tile_pairs)

        return pairs

    def _build_lists(self, pairs: list[_TilePairs]) -> Tensor:
        """Return the members of every ball, one ball after the other: (sum of sizes,) int32.

        ``pairs`` is emptied on the way, so that both need not be in memory at once.
        """
        member_count = int(self.sizes.sum())
        lists = self.units.new_empty(member_count, dtype=torch.int32)
        ends = self.starts.clone()  # (N,) where the next member of each ball goes

        while pairs:
            tile = pairs.pop()
            rows = tile.positions // tile.width
            columns = tile.positions % tile.width
            _append_members(lists, ends, tile.a, rows, tile.b + columns)

            # The other way round, sorted by column, because _append_members wants balls ascending.
            if tile.a != tile.b:
                order = _argsort_int16(columns.short())
                _append_members(lists, ends, tile.b, columns[order], tile.a + rows[order])
        return lists

    def _is_near(self, left: Tensor, right: Tensor) -> Tensor:
        """Return which unit vectors are in the balls of which: (A, D), (B, D) -> (A, B) bool."""
        with full_precision_matmul():
            products = pad_to_tile(left) @ pad_to_tile(right).T
        return products[: len(left), : len(right)] > self.least_cosine


def _append_members(
    lists: Tensor,
    ends: Tensor,
    start: int,
    rows: Tensor,
    members: Tensor,
) -> None:
    """Append members (E,) to the lists of the balls ``start + rows`` (E,), which ascend.

    Changes ``lists`` and ``ends`` in place.
    """
    counts = torch.bincount(rows)
    ball_ends = ends[start : start + len(counts)]  # a view

    # A member's place: the end of its ball's list, plus the number of members before it.
    offsets = (ball_ends - counts.cumsum(dim=0) + counts)[rows]
    places = torch.arange(len(rows), device=rows.device) + offsets
    lists[places] = members
    ball_ends += counts


def _flat_nonzero(mask: Tensor) -> Tensor:
    """Return the flat positions of True: (A, B) -> (E,) int32. Numpy takes a fifth of the time."""
    if mask.is_cuda:
        return mask.flatten().nonzero()[:, 0].int()
    positions = np.flatnonzero(mask.numpy())
    return torch.from_numpy(positions).int()


def _argsort_int16(values: Tensor) -> Tensor:
    """Return a stable argsort. On a CPU numpy sorts int16 by radix, which is faster."""
    if values.is_cuda:
        return values.argsort(stable=True)
    order = values.numpy().argsort(kind="stable")
    return torch.from_numpy(order)
