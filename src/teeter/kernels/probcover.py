"""ProbCover: greedy maximum coverage of the pool by balls of one radius around the picks, on the unit sphere.

Reference: Yehuda et al., Active Learning Through a Covering Lens, NeurIPS 2022.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from teeter.arrays import TILE, full_precision_matmul, memory_budget, pad_to_tile
from teeter.kernels.distances import NEGLIGIBLE, Cosine
from teeter.kernels.kcenter import k_center

__all__ = ["probcover", "purity_radius"]

_WIDE = 10 * TILE
"""Columns of a product: a fixed number, so that the working memory does not decide how products round."""

_BYTES_PER_MEMBER = 5
"""What a ball's member takes while lists are made: 4 bytes there, and 2 before, given back on the way."""


def purity_radius(features: Tensor, labels: Tensor, purity: float) -> float:
    """Return the largest radius for which at least ``purity`` of the rows' balls hold rows of one label only.

    features (N, D) of any length, labels (N,) -> a distance between unit vectors, infinite if there is one label. A
    ball is pure as long as its radius does not exceed the distance to the nearest row of another label, so this is
    the distance of that rank.
    """
    units = Cosine(features).units
    cosines = units.new_full((len(units),), -torch.inf)
    tiles = torch.arange(len(units), device=units.device).split(_WIDE // 2)
    for k, rows in enumerate(tiles):
        for others in tiles[k:]:
            with full_precision_matmul():
                products = (pad_to_tile(units[rows]) @ pad_to_tile(units[others]).T)[
                    : len(rows), : len(others)
                ]
            products.masked_fill_(labels[rows][:, None] == labels[others], -torch.inf)
            cosines[rows] = torch.maximum(cosines[rows], products.amax(dim=1))
            cosines[others] = torch.maximum(cosines[others], products.amax(dim=0))
    impure = min(math.floor((1 - purity) * len(units) + 1e-9), len(units) - 1)
    distance = 1 - float(cosines.sort(descending=True).values[impure])
    return math.sqrt(2 * distance) if distance >= NEGLIGIBLE else 0.0


def probcover(features: Tensor, radius: float, n: int, *, centres: Tensor | None = None) -> Tensor:
    """Return n different rows, each with the most rows in its ball that no centre and no earlier pick covers.

    features (N, D), centres (L, D) or None, of any length -> (n,) int64 in the order of picking; equal counts go to
    the lowest row. A ball holds the rows at a distance below ``radius`` after normalisation. When all rows are covered,
    or can be by none, each next pick is the row farthest from the centres and picks.
    """
    centres = features[:0] if centres is None else centres
    units, known = Cosine(torch.cat([features, centres])).units.split([len(features), len(centres)])
    balls = _Balls(units, radius)
    covered = torch.zeros(len(units), dtype=torch.bool, device=units.device)
    for some in known.split(balls.tall):
        covered |= balls.around(some).any(dim=0)
    gains = balls.sizes - balls.holding(covered.nonzero().flatten())
    picks: list[int] = []
    while len(picks) < n:
        best = int(gains.argmax())
        if gains[best] <= 0:
            break
        fresh = balls.members(best)
        fresh = fresh[~covered[fresh]]
        covered[fresh] = True
        gains -= balls.holding(fresh)
        gains[best] = -1
        picks.append(best)
    return _farthest_too(
        units, known, torch.tensor(picks, dtype=torch.int64, device=units.device), n
    )


def _farthest_too(units: Tensor, known: Tensor, picks: Tensor, n: int) -> Tensor:
    left = torch.ones(len(units), dtype=torch.bool, device=units.device).index_fill_(
        0, picks, False
    )
    rest = left.nonzero().flatten()
    if len(picks) == n:
        return picks
    return torch.cat(
        [picks, rest[k_center(units[rest], torch.cat([known, units[picks]]), n - len(picks))]]
    )


@dataclass(frozen=True)
class _Pairs:
    """Which rows of the tile at ``b`` are in the balls of the tile at ``a``: flat positions (E,) int32, ascending."""

    a: int
    b: int
    wide: int
    places: Tensor


def _places(near: Tensor) -> Tensor:
    """Return the flat positions of what is true: (A, B) -> (E,) int32; on a CPU numpy takes a fifth of torch's time."""
    found = (
        near.flatten().nonzero()[:, 0]
        if near.is_cuda
        else torch.from_numpy(np.flatnonzero(near.numpy()))
    )
    return found.int()


def _order(values: Tensor) -> Tensor:
    """Return what sorts int16 values; numpy sorts them by radix."""
    return (
        values.argsort(stable=True)
        if values.is_cuda
        else torch.from_numpy(values.numpy().argsort(kind="stable"))
    )


class _Balls:
    """Which rows lie in the ball of which: listed where the working memory holds it, else found each time."""

    def __init__(self, units: Tensor, radius: float) -> None:
        self.units = units
        # Balls found at once; torch counts no more than 2^31 entries on a GPU.
        self.tall = (
            max(TILE, min(_WIDE, (1 << 30) // len(units) // TILE * TILE)) if units.is_cuda else TILE
        )
        # Rows at the radius itself are outside, whatever the rounding; negligible distances are 0.
        least = 1 - radius**2 / 2 + 8 * torch.finfo(units.dtype).eps
        self.least_cosine = min(least, 1 - NEGLIGIBLE) if radius > 0 else math.inf
        self.sizes = torch.zeros(len(units), dtype=torch.int64, device=units.device)
        found = self._found()
        self.starts = self.sizes.cumsum(dim=0) - self.sizes
        self.lists = None if found is None else self._listed(found)

    def _found(self) -> list[_Pairs] | None:
        """Count every ball's rows, and return who is in whose, or None if the lists would take too much room.

        Whoever is in my ball has me in theirs, so each pair of tiles is multiplied once.
        """
        side = (40 if self.units.is_cuda else 5) * TILE
        starts = range(0, len(self.units), side)
        room = memory_budget(self.units.device) // _BYTES_PER_MEMBER
        found: list[_Pairs] | None = []
        for a in starts:
            strip = []
            for b in starts[a // side :]:
                near = self._near(self.units[a : a + side], self.units[b : b + side])
                self.sizes[a : a + side] += near.sum(dim=1, dtype=torch.int32)
                if a != b:
                    self.sizes[b : b + side] += near.sum(dim=0, dtype=torch.int32)
                if found is not None:
                    strip.append(_places(near))
                    room -= len(strip[-1]) * (1 if a == b else 2)
                    found = found if room >= 0 else None
            if (
                found is not None
            ):  # one array instead of many small ones, between which the heap would fall apart
                parts = torch.cat(strip).split([len(some) for some in strip])
                found += [
                    _Pairs(a, b, min(side, len(self.units) - b), part)
                    for b, part in zip(starts[a // side :], parts, strict=True)
                ]
        return found

    def _listed(self, found: list[_Pairs]) -> Tensor:
        """Return the rows of every ball, one ball after the other; ``found`` is emptied on the way."""
        lists = torch.empty(int(self.sizes.sum()), dtype=torch.int32, device=self.units.device)
        ends = self.starts.clone()
        while found:
            pairs = found.pop()
            rows, others = pairs.places // pairs.wide, pairs.places % pairs.wide
            self._list(lists, ends, pairs.a, rows, pairs.b + others)
            if pairs.a != pairs.b:
                order = _order(others.short())
                self._list(lists, ends, pairs.b, others[order], pairs.a + rows[order])
        return lists

    def _list(self, lists: Tensor, ends: Tensor, start: int, rows: Tensor, members: Tensor) -> None:
        """Put members (E,) at the ends of the lists of the rows ``start + rows``, which ascend."""
        counts = torch.bincount(rows)
        free = ends[start : start + len(counts)]
        lists[
            torch.arange(len(rows), device=rows.device)
            + (free - counts.cumsum(dim=0) + counts)[rows]
        ] = members
        free += counts

    def _near(self, left: Tensor, right: Tensor) -> Tensor:
        """Return which units are in the balls of which: (A, D), (B, D) -> (A, B) bool."""
        with full_precision_matmul():
            products = pad_to_tile(left) @ pad_to_tile(right).T
        return products[: len(left), : len(right)] > self.least_cosine

    def around(self, centres: Tensor) -> Tensor:
        """Return which rows are in the balls of some units: (A, D) -> (A, N) bool."""
        near = torch.empty((len(centres), len(self.units)), dtype=torch.bool, device=centres.device)
        left = pad_to_tile(centres)
        for some, right in zip(near.split(_WIDE, dim=1), self.units.split(_WIDE), strict=True):
            with full_precision_matmul():
                products = left @ pad_to_tile(right).T
            torch.gt(products[: some.shape[0], : some.shape[1]], self.least_cosine, out=some)
        return near

    def members(self, row: int) -> Tensor:
        """Return the rows in a row's ball: (B,)."""
        if self.lists is None:
            return self.around(self.units[row][None])[0].nonzero().flatten()
        start = int(self.starts[row])
        return self.lists[start : start + int(self.sizes[row])].long()

    def holding(self, rows: Tensor) -> Tensor:
        """Return how many of some rows lie in each row's ball, which are the balls of them it lies in: (A,) -> (N,)."""
        held = torch.zeros_like(self.sizes)
        for some in rows.split(self.tall):
            if self.lists is None:
                held += self.around(self.units[some]).sum(dim=0)
            else:
                sizes = self.sizes[some]
                shifts = self.starts[some] - (sizes.cumsum(dim=0) - sizes)
                places = torch.arange(
                    int(sizes.sum()), device=rows.device
                ) + shifts.repeat_interleave(sizes)
                held += torch.bincount(self.lists[places], minlength=len(held))
        return held
