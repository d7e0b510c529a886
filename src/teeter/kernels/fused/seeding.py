"""Seeding whose loop stays on a GPU: draws, acceptance and distances follow each other without a word to the host.

It draws by the same law as the plain loop: candidates with replacement from the weights as they stood, each accepted
with probability ``its weight now / its weight then``. Sums are taken tile by tile in a fixed order, so that the same
seed gives the same picks; a scan of all rows at once would not.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Generator, Tensor

from teeter.kernels.distances import NEGLIGIBLE, Cosine, Distance
from teeter.seeds import uniform

__all__ = ["seed_on_gpu"]

ROWS, DRAWS = 128, 16
"""Rows of a tile, and tiles of a group: a draw chooses a group, a tile in it, and a row in that. Draws of a program."""


def seed_on_gpu(
    distance: Distance, n: int, *, first: int, log_weights: Tensor, generator: Generator, block: int
) -> Tensor:
    """Return up to n different rows, each drawn by ``(weight * distance to the nearest pick)^2``, ``first`` first.

    log_weights (N,) float64 -> (at most n,) int64 in the order of picking: fewer where every weight left is 0.
    """
    block = triton.next_power_of_2(min(block, max(16, n)))
    state = _State(distance, n, first, log_weights, block)
    known = 1
    while known < n:
        for _ in range(-(-(n - known) // block)):  # at least so many blocks are still to come
            state.update()
            state.accept(state.draw(generator), generator)
        before, known = known, int(state.count)
        if known == before:  # a block of which anything weighs more than 0 gives a pick
            break
    return state.picks[:known]


class _State:
    """What is picked, how far every row is from it, and the weights in tiles and groups of tiles."""

    def __init__(self, distance: Distance, n: int, first: int, log_weights: Tensor, block: int) -> None:
        device, rows = log_weights.device, len(log_weights)
        self.distance, self.log_weights, self.block = distance, log_weights, block
        self.picks = torch.full((n,), first, dtype=torch.int64, device=device)
        self.count = torch.ones((), dtype=torch.int32, device=device)
        self.fresh = torch.full((block,), first, dtype=torch.int64, device=device)
        self.fresh_count = torch.ones((), dtype=torch.int32, device=device)
        self.nearest = torch.full((rows,), torch.inf, dtype=torch.float64, device=device)
        self.doubled = torch.empty((rows,), dtype=torch.float64, device=device)
        groups = triton.cdiv(triton.cdiv(rows, ROWS), ROWS)
        self.tops = torch.full((groups, ROWS), -torch.inf, dtype=torch.float64, device=device)
        self.sums = torch.zeros((groups, ROWS), dtype=torch.float64, device=device)

    def update(self) -> None:
        """Bring distances and weights up to date with the fresh picks."""
        rows = len(self.nearest)
        tiles = (triton.cdiv(rows, ROWS),)
        if isinstance(self.distance, Cosine) and self.distance.units.dtype == torch.float32:
            units = self.distance.units
            _lower_nearest[tiles](
                self.nearest,
                units,
                self.fresh,
                self.fresh_count,
                rows,
                width=units.shape[1],
                negligible=NEGLIGIBLE,
                ROWS=ROWS,
                PICKS=64,
                WIDTH=32,
                num_warps=4,
                num_stages=3,
            )
        else:
            torch.minimum(self.nearest, self.distance.nearest(self.fresh).double(), out=self.nearest)
        _weigh[tiles](self.doubled, self.tops, self.sums, self.nearest, self.log_weights, rows, ROWS=ROWS)

    def draw(self, generator: Generator) -> Tensor:
        """Return a block of candidates, drawn with replacement by the weights."""
        peak = self.tops.max().clamp_min(torch.finfo(torch.float64).min)  # finite even where nothing weighs anything
        weights = self.sums * (self.tops - peak).exp()
        groups = weights.sum(dim=1)
        found = torch.empty((self.block,), dtype=torch.int64, device=weights.device)
        points = uniform((self.block,), generator, weights.device)
        _draw_rows[(triton.cdiv(self.block, DRAWS),)](
            found,
            points,
            groups,
            weights,
            self.doubled,
            peak,
            len(groups),
            len(self.doubled),
            GROUPS=max(16, triton.next_power_of_2(len(groups))),
            ROWS=ROWS,
            DRAWS=DRAWS,
        )
        return found

    def accept(self, candidates: Tensor, generator: Generator) -> None:
        """Take the candidates that the sequential law accepts, as many as are still wanted."""
        pairs = self.distance.between(candidates, candidates).double()
        chances = uniform((self.block,), generator, candidates.device)
        _walk[(1,)](
            self.picks,
            self.count,
            self.fresh,
            self.fresh_count,
            candidates,
            pairs,
            self.nearest[candidates],
            chances,
            len(self.picks),
            BLOCK=self.block,
        )


@triton.jit  # type: ignore[untyped-decorator]
def _lower_nearest(
    nearest: Any,
    units: Any,
    fresh: Any,
    fresh_count: Any,
    rows: Any,
    width: tl.constexpr,
    negligible: tl.constexpr,
    ROWS: tl.constexpr,
    PICKS: tl.constexpr,
    WIDTH: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = row < rows
    count = tl.load(fresh_count)
    best = tl.full((ROWS,), -2.0, tl.float32)
    for first in range(0, count, PICKS):
        number = first + tl.arange(0, PICKS)
        pick = tl.load(fresh + number, mask=number < count, other=0)
        cosine = tl.zeros((ROWS, PICKS), tl.float32)
        for k in range(0, width, WIDTH):
            column = k + tl.arange(0, WIDTH)
            there = inside[:, None] & (column < width)[None, :]
            some = tl.load(units + row[:, None] * width + column[None, :], mask=there, other=0.0)
            wanted = (column < width)[:, None] & (number < count)[None, :]
            centre = tl.load(units + pick[None, :] * width + column[:, None], mask=wanted, other=0.0)
            cosine = tl.dot(some, centre, cosine, input_precision="tf32x3")
        cosine = tl.where((number < count)[None, :], cosine, -2.0)
        best = tl.maximum(best, tl.max(cosine, axis=1))
    away = 1 - best
    away = tl.where(away < negligible, 0.0, away).to(tl.float64)
    before = tl.load(nearest + row, mask=inside, other=0.0)
    tl.store(nearest + row, tl.minimum(before, away), mask=inside & (away < before))


@triton.jit  # type: ignore[untyped-decorator]
def _weigh(doubled: Any, tops: Any, sums: Any, nearest: Any, log_weights: Any, rows: Any, ROWS: tl.constexpr) -> None:
    tile = tl.program_id(0)
    row = tile.to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = row < rows
    away = tl.load(nearest + row, mask=inside, other=0.0)
    log_weight = tl.load(log_weights + row, mask=inside, other=-float("inf"))
    some = away > 0
    value = tl.where(some, 2 * (log_weight + tl.log(tl.where(some, away, 1.0))), -float("inf"))
    tl.store(doubled + row, value, mask=inside)
    top = tl.max(value, axis=0)
    reach = tl.where(top > -float("inf"), top, 0.0)
    tl.store(tops + tile, top)
    tl.store(sums + tile, tl.sum(tl.exp(value - reach), axis=0))


@triton.jit  # type: ignore[untyped-decorator]
def _chosen(weights: Any, points: Any, number: Any) -> tuple[Any, Any]:
    """Return where the running sum passes the points, the last place of any weight at most; and what is left of them.

    weights (draws, places), points (draws,), number (places,).
    """
    ends = tl.cumsum(weights, axis=1)
    last = tl.max(tl.where(weights > 0, number[None, :], 0), axis=1)
    place = tl.minimum(tl.sum((ends <= points[:, None]).to(tl.int32), axis=1), last)
    before = tl.sum(tl.where(number[None, :] == place[:, None], ends - weights, 0.0), axis=1)
    return place, points - before


@triton.jit  # type: ignore[untyped-decorator]
def _draw_rows(
    found: Any,
    points: Any,
    groups: Any,
    weights: Any,
    doubled: Any,
    peak: Any,
    group_count: Any,
    rows: Any,
    GROUPS: tl.constexpr,
    ROWS: tl.constexpr,
    DRAWS: tl.constexpr,
) -> None:
    draw = tl.program_id(0) * DRAWS + tl.arange(0, DRAWS)
    number = tl.arange(0, GROUPS)
    by_group = tl.load(groups + number, mask=number < group_count, other=0.0)
    point = tl.load(points + draw) * tl.sum(by_group, axis=0)
    group, point = _chosen(by_group[None, :], point, number)
    within = tl.arange(0, ROWS)
    start = group.to(tl.int64) * ROWS
    tile, point = _chosen(tl.load(weights + start[:, None] + within[None, :]), point, within)
    start = (start + tile) * ROWS
    row = start[:, None] + within[None, :]
    value = tl.load(doubled + row, mask=row < rows, other=-float("inf")) - tl.load(peak)
    some = value > -float("inf")
    place, point = _chosen(tl.where(some, tl.exp(tl.where(some, value, 0.0)), 0.0), point, within)
    tl.store(found + draw, tl.minimum(start + place, rows - 1))


@triton.jit  # type: ignore[untyped-decorator]
def _walk(
    picks: Any,
    count: Any,
    fresh: Any,
    fresh_count: Any,
    candidates: Any,
    pairs: Any,
    then: Any,
    chances: Any,
    wanted: Any,
    BLOCK: tl.constexpr,
) -> None:
    number = tl.arange(0, BLOCK)
    now = tl.load(then + number)
    bar = tl.sqrt(tl.load(chances + number)) * now
    picked = tl.load(count)
    begun = picked
    for j in range(0, BLOCK):
        here = number == j
        passes = tl.sum((here & (bar < now)).to(tl.int32), axis=0)
        if (passes > 0) & (picked < wanted):
            row = tl.load(candidates + j)
            tl.store(picks + picked, row)
            tl.store(fresh + picked - begun, row)
            picked += 1
            now = tl.minimum(now, tl.load(pairs + j * BLOCK + number))
    tl.store(count, picked)
    tl.store(fresh_count, picked - begun)
    first = tl.load(picks)
    tl.store(fresh + number, first, mask=number >= picked - begun)
