"""Seeding whose loop stays on a GPU: draws, acceptance and distances follow each other without a word to the host.

It draws by the same law as the plain loop: candidates with replacement from the weights as they stood, each accepted
with probability ``its weight now / its weight then``. Sums are taken tile by tile in a fixed order, so that the same
seed gives the same picks; a scan of all rows at once would not.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Generator, Tensor

from teeter.arrays import tiles
from teeter.kernels.distances import NEGLIGIBLE, Cosine, Distance
from teeter.seeds import derive_seed, stream, uniform

__all__ = ["seed_on_gpu"]

ROWS, DRAWS, LARGEST = 128, 16, 256
"""Rows of a tile, and tiles of a group: a draw chooses a group, a tile in it, and a row in that. Draws of a program.
The largest block, whose pairs one program holds."""

HELD = 1 << 14
"""Draws of a program times groups that each looks at: more would not stay in registers."""

TILE = {"PICKS": 128, "WIDTH": 64, "num_warps": 8, "num_stages": 3}
"""Sizes of the product with the picks: fixed ones, for trying several takes longer than a first call may."""

SCALE = 2048.0
"""What float16 leaves of a number is kept as float16 too, this many times as large."""


def seed_on_gpu(
    distance: Distance, n: int, *, first: int, log_weights: Tensor, generator: Generator, block: int
) -> Tensor:
    """Return up to n different rows, each drawn by ``(weight * distance to the nearest pick)^2``, ``first`` first.

    log_weights (N,) float64 -> (at most n,) int64 in the order of picking: fewer where every weight left is 0.
    """
    block = min(LARGEST, triton.next_power_of_2(min(block, max(16, n))))
    state = _State(distance, n, first, log_weights, block)
    generator = stream(
        derive_seed(generator), "seeding", device=log_weights.device
    )  # its draws wait for nobody
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

    def __init__(
        self, distance: Distance, n: int, first: int, log_weights: Tensor, block: int
    ) -> None:
        device, rows = log_weights.device, len(log_weights)
        self.distance, self.log_weights, self.block = distance, log_weights, block
        self.picks = torch.full((n,), first, dtype=torch.int64, device=device)
        self.count = torch.ones((), dtype=torch.int32, device=device)
        self.fresh = torch.full((block,), first, dtype=torch.int64, device=device)
        self.fresh_count = torch.ones((), dtype=torch.int32, device=device)
        self.nearest = torch.full((rows,), torch.inf, dtype=torch.float64, device=device)
        halves = isinstance(distance, Cosine) and distance.units.dtype == torch.float32
        self.halves = _halves(distance.units) if halves and isinstance(distance, Cosine) else None
        self.doubled = torch.empty((rows,), dtype=torch.float64, device=device)
        groups = triton.cdiv(triton.cdiv(rows, ROWS), ROWS)
        self.tops = torch.full((groups, ROWS), -torch.inf, dtype=torch.float64, device=device)
        self.sums = torch.zeros((groups, ROWS), dtype=torch.float64, device=device)

    def update(self) -> None:
        """Bring distances and weights up to date with the fresh picks."""
        rows = len(self.nearest)
        grid = (triton.cdiv(rows, ROWS),)
        if self.halves is not None:
            upper, lower = self.halves
            _lower_nearest[grid](
                self.nearest,
                upper,
                lower,
                self.fresh,
                self.fresh_count,
                rows,
                upper.shape[1],
                negligible=NEGLIGIBLE,
                scale=SCALE,
                ROWS=ROWS,
                **TILE,
            )
        else:
            torch.minimum(
                self.nearest, self.distance.nearest(self.fresh).double(), out=self.nearest
            )
        _weigh[grid](
            self.doubled, self.tops, self.sums, self.nearest, self.log_weights, rows, ROWS=ROWS
        )

    def draw(self, generator: Generator) -> Tensor:
        """Return a block of candidates, drawn with replacement by the weights."""
        peak = self.tops.max().clamp_min(
            torch.finfo(torch.float64).min
        )  # finite even where nothing weighs anything
        weights = self.sums * (self.tops - peak).exp()
        groups = weights.sum(dim=1)
        found = torch.empty((self.block,), dtype=torch.int64, device=weights.device)
        points = uniform((self.block,), generator, weights.device)
        wide = max(16, triton.next_power_of_2(len(groups)))
        draws = max(1, min(DRAWS, HELD // wide))
        _draw_rows[(triton.cdiv(self.block, draws),)](
            found,
            points,
            groups,
            weights,
            self.doubled,
            peak,
            len(groups),
            len(self.doubled),
            GROUPS=wide,
            ROWS=ROWS,
            DRAWS=draws,
        )
        return found

    def accept(self, candidates: Tensor, generator: Generator) -> None:
        """Take the candidates that the sequential law accepts, as many as are still wanted."""
        pairs = self.distance.between(candidates, candidates)
        chances = uniform((self.block,), generator, candidates.device)
        weightless = (
            self.doubled[candidates] == -torch.inf
        )  # what is drawn where nothing weighs anything any more
        _walk[(1,)](
            self.picks,
            self.count,
            self.fresh,
            self.fresh_count,
            candidates,
            pairs,
            self.nearest[candidates].masked_fill_(weightless, 0),
            chances,
            len(self.picks),
            BLOCK=self.block,
            num_warps=16 if self.block > 64 else 4,
        )


def _halves(units: Tensor) -> tuple[Tensor, Tensor]:
    """Return numbers within -1 and 1 as sums of two in float16, whose products tensor cores take: 22 bits of them.

    (N, D) float32 -> twice (N, D up to a multiple of a tile's width).
    """
    rows, width = units.shape
    upper = units.new_zeros((rows, width + -width % int(TILE["WIDTH"])), dtype=torch.float16)
    lower = torch.zeros_like(upper)
    for where in tiles(rows, 2 * width * units.element_size(), units.device):
        some = units[where]
        upper[where, :width] = some
        lower[where, :width] = (some - upper[where, :width]).mul_(SCALE)
    return upper, lower


@triton.jit  # type: ignore[untyped-decorator]
def _lower_nearest(
    nearest: tl.tensor,
    upper: tl.tensor,
    lower: tl.tensor,
    fresh: tl.tensor,
    fresh_count: tl.tensor,
    rows: tl.tensor,
    width: tl.tensor,
    negligible: tl.constexpr,
    scale: tl.constexpr,
    ROWS: tl.constexpr,
    PICKS: tl.constexpr,
    WIDTH: tl.constexpr,
) -> None:
    place = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = place < rows
    row = tl.minimum(place, rows - 1).to(tl.int64)  # the last row again rather than a mask
    count = tl.load(fresh_count)
    best = tl.full((ROWS,), -2.0, tl.float32)
    for first in range(0, count, PICKS):
        pick = tl.load(fresh + tl.minimum(first + tl.arange(0, PICKS), count - 1))
        whole = tl.zeros((ROWS, PICKS), tl.float32)
        rest = tl.zeros((ROWS, PICKS), tl.float32)
        for k in range(0, width, WIDTH):
            column = k + tl.arange(0, WIDTH)
            here, there = (
                row[:, None] * width + column[None, :],
                pick[None, :] * width + column[:, None],
            )
            some, more = tl.load(upper + here), tl.load(upper + there)
            whole = tl.dot(some, more, whole)
            rest = tl.dot(some, tl.load(lower + there), rest)
            rest = tl.dot(tl.load(lower + here), more, rest)
        best = tl.maximum(best, tl.max(whole + rest / scale, axis=1))
    away = 1 - best
    away = tl.where(away < negligible, 0.0, away).to(tl.float64)
    before = tl.load(nearest + row)
    tl.store(nearest + row, tl.minimum(before, away), mask=inside & (away < before))


@triton.jit  # type: ignore[untyped-decorator]
def _weigh(
    doubled: tl.tensor,
    tops: tl.tensor,
    sums: tl.tensor,
    nearest: tl.tensor,
    log_weights: tl.tensor,
    rows: tl.tensor,
    ROWS: tl.constexpr,
) -> None:
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
def _chosen(
    weights: tl.tensor, points: tl.tensor, number: tl.tensor
) -> tuple[tl.tensor, tl.tensor]:
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
    found: tl.tensor,
    points: tl.tensor,
    groups: tl.tensor,
    weights: tl.tensor,
    doubled: tl.tensor,
    peak: tl.tensor,
    group_count: tl.tensor,
    rows: tl.tensor,
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
    picks: tl.tensor,
    count: tl.tensor,
    fresh: tl.tensor,
    fresh_count: tl.tensor,
    candidates: tl.tensor,
    pairs: tl.tensor,
    then: tl.tensor,
    chances: tl.tensor,
    wanted: tl.tensor,
    BLOCK: tl.constexpr,
) -> None:
    number = tl.arange(0, BLOCK)
    now = tl.load(then + number)
    bar = tl.sqrt(tl.load(chances + number)) * now
    # A candidate is refused by those accepted before it that are as near as its bar. What is said of the first k is
    # right after k turns, whatever was thought at first; few wait for another, so that a few turns are enough.
    word, bit = tl.arange(0, BLOCK // 16), tl.arange(0, 16)
    before = word[:, None, None] * 16 + bit[None, :, None]
    near = tl.load(pairs + before * BLOCK + number[None, None, :]) <= bar[None, None, :]
    refuses = tl.sum(
        (near & (before < number[None, None, :])).to(tl.int32) << bit[None, :, None], axis=1
    )
    possible = (bar < now).to(tl.int32)
    accepted = possible
    changed = 1
    while changed > 0:
        words = tl.sum(tl.reshape(accepted, (BLOCK // 16, 16)) << bit[None, :], axis=1)
        refused = tl.max(((refuses & words[:, None]) != 0).to(tl.int32), axis=0)
        again = possible * (1 - refused)
        changed = tl.sum((again != accepted).to(tl.int32), axis=0)
        accepted = again
    begun = tl.load(count)
    place = tl.cumsum(accepted, axis=0) - accepted
    taken = (accepted > 0) & (place < wanted - begun)
    more = tl.sum(taken.to(tl.int32), axis=0)
    row = tl.load(candidates + number)
    tl.store(picks + begun + place, row, mask=taken)
    tl.store(fresh + number, tl.load(picks), mask=number >= more)
    tl.store(fresh + place, row, mask=taken)
    tl.store(count, begun + more)
    tl.store(fresh_count, more)
