"""Weighted seeding in Triton: draws, acceptance and distances without waiting for the host.

The plain version is the loop of ``kernels.seeding.seed_rows``, and the law is the same: candidates
are drawn with replacement from the weights as they were, and each is accepted with probability
``weight now / weight when drawn``. Sums are taken tile by tile in a fixed order, so that the same
seed gives the same picks; a parallel scan of all rows would not. See README.md.

How a block works
-----------------
``_GpuSeeding`` holds all state on the GPU. The host starts kernels, and reads the number of picks
only after as many blocks as are needed at least. A block is three calls:

1. ``update``: lower every row's distance to the nearest pick by the picks of the last block
   (``_lower_nearest``), then compute every row's weight and the sums per tile (``_weigh_tiles``).
2. ``draw``: sum the weights of tiles and groups (``_weigh_groups``) and draw candidates by them
   (``_draw_rows``).
3. ``accept``: decide about all candidates in one program, and append to the picks
   (``_accept_candidates``).

Kernels of one stream run one after the other, so each sees what the one before it wrote. A small
kernel takes a few microseconds whatever it does, and there are hundreds of blocks. So random
numbers are drawn for many blocks at once, and kernels read what they need of candidates themselves.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Generator, Tensor

from teeter.base.arrays import tiles
from teeter.base.seeds import derive_seed, stream, uniform
from teeter.kernels.distances import NEGLIGIBLE, Cosine, Distance

ROWS = 128
"""Rows of a tile, and tiles of a group: a draw chooses a group, a tile in it, and a row."""

DRAWS = 16
"""Most draws of one program."""

MAX_BLOCK = 256
"""Most candidates in a block: one program holds all their pairs."""

MAX_DRAWS_TIMES_GROUPS = 1 << 14
"""Draws of a program times the groups that each looks at: more would not stay in registers."""

PRODUCT_TILE = {"PICKS": 128, "WIDTH": 64, "num_warps": 8, "num_stages": 3}
"""Tile sizes of the product with the picks. Fixed: autotuning would slow down the first call."""

LOWER_SCALE = 2048.0
"""Factor on the lower half of a number, so that it does not underflow in float16."""

GROUPS_AT_ONCE = 16
"""Groups of tiles that the program that sums their weights reads at a time."""

LOWEST = -1e300
"""Below every logarithm of a weight, and finite: differences to it are not NaN."""

MAX_BLOCKS_AHEAD = 1024
"""Most blocks before the host looks at the number of picks: their random numbers are in memory."""


def seed_on_gpu(
    distance: Distance,
    n: int,
    *,
    first: int,
    log_weights: Tensor,
    generator: Generator,
    block: int,
) -> Tensor:
    """Pick up to n different rows, each drawn by ``(weight * distance to the nearest pick)^2``.

    Args:
        distance: distance over the N rows.
        n: number of picks, 1 to N.
        first: position of the first pick.
        log_weights: (N,) float64; -inf for rows that must not be drawn.
        generator: source of randomness.
        block: candidates drawn before the weights are updated, at most ``MAX_BLOCK``.

    Returns:
        (at most n,) int64 positions in the order of picking: fewer if all other weights are 0.
    """
    # A power of 2, as tiles must be, and not many more candidates than picks.
    block = triton.next_power_of_2(min(block, max(16, n)))
    block = min(MAX_BLOCK, block)
    state = _GpuSeeding(distance, n, first, log_weights, block)

    # A generator on the GPU: drawing from one on the host would make the GPU wait.
    generator = stream(derive_seed(generator), "seeding", device=log_weights.device)

    pick_count = 1
    while pick_count < n:
        # A block gives at most `block` picks, so this many blocks are needed at least. The host
        # looks at the count only after them.
        missing = n - pick_count
        blocks_needed = min(MAX_BLOCKS_AHEAD, triton.cdiv(missing, block))
        draws = uniform((blocks_needed, 2, block), generator, log_weights.device)
        for points, chances in draws:
            state.update()
            candidates = state.draw(points)
            state.accept(candidates, chances)

        previous_count = pick_count
        pick_count = int(state.count)
        if pick_count == previous_count:
            break  # a first candidate of positive weight is always accepted, so nothing is left

    return state.picks[:pick_count]


class _GpuSeeding:
    """The picks, every row's distance to them, and the weights in tiles and groups of tiles.

    All tensors live on the GPU and are changed in place by the kernels, so that a step needs no
    answer from the host. Who writes what, once per block:

    - ``update``: ``nearest``, ``log_squares``, ``tops`` and ``sums``;
    - ``draw``: ``tile_weights``, ``group_weights``, ``peak`` and ``candidates``;
    - ``accept``: ``picks``, ``count``, ``fresh`` and ``fresh_count``.

    Between blocks, ``nearest`` accounts for all picks but the first ``fresh_count`` of ``fresh``.
    """

    def __init__(
        self,
        distance: Distance,
        n: int,
        first: int,
        log_weights: Tensor,
        block: int,
    ) -> None:
        device = log_weights.device
        N = len(log_weights)
        self.distance = distance
        self.log_weights = log_weights  # (N,) float64
        self.block = block

        # (n,) picks in order, of which the first `count` are valid.
        self.picks = torch.full((n,), first, dtype=torch.int64, device=device)
        self.count = torch.ones((), dtype=torch.int32, device=device)

        # (block,) the picks of the last block in the first `fresh_count` entries, and the first
        # pick, which changes no distance, in the others.
        self.fresh = torch.full((block,), first, dtype=torch.int64, device=device)
        self.fresh_count = torch.ones((), dtype=torch.int32, device=device)

        # (N,) distance to the nearest pick, and 2 log(weight * distance), -inf for picks.
        self.nearest = torch.full((N,), torch.inf, dtype=torch.float64, device=device)
        self.log_squares = torch.empty((N,), dtype=torch.float64, device=device)

        # (groups, ROWS) per tile: the largest log_squares, and the sum of exp(log_squares -
        # largest). Tiles after the last row keep -inf and 0, so they are never drawn.
        tile_count = triton.cdiv(N, ROWS)
        groups = triton.cdiv(tile_count, ROWS)
        self.tops = torch.full((groups, ROWS), -torch.inf, dtype=torch.float64, device=device)
        self.sums = torch.zeros((groups, ROWS), dtype=torch.float64, device=device)

        # The weights of tiles and groups relative to the largest weight of a row, exp(peak).
        self.tile_weights = torch.zeros_like(self.sums)
        self.group_weights = torch.zeros((groups,), dtype=torch.float64, device=device)
        self.peak = torch.zeros((), dtype=torch.float64, device=device)
        self.candidates = torch.empty((block,), dtype=torch.int64, device=device)

        # Unit vectors for tensor cores; None if distances come from `distance` itself.
        self.halves: tuple[Tensor, Tensor] | None = None
        if isinstance(distance, Cosine) and distance.units.dtype == torch.float32:
            self.halves = _split_into_halves(distance.units)

    def update(self) -> None:
        """Update distances and weights for the fresh picks."""
        N = len(self.nearest)
        grid = (triton.cdiv(N, ROWS),)  # a program for each tile of rows

        if self.halves is not None:
            upper, lower = self.halves
            _lower_nearest[grid](
                self.nearest,
                upper,
                lower,
                self.fresh,
                self.fresh_count,
                N,
                upper.shape[1],
                negligible=NEGLIGIBLE,
                scale=LOWER_SCALE,
                ROWS=ROWS,
                **PRODUCT_TILE,
            )
        else:
            # All entries of `fresh`, also those that are the first pick again: no mask is needed.
            distances = self.distance.nearest(self.fresh).double()
            torch.minimum(self.nearest, distances, out=self.nearest)

        _weigh_tiles[grid](
            self.log_squares,
            self.tops,
            self.sums,
            self.nearest,
            self.log_weights,
            N,
            ROWS=ROWS,
        )

    def draw(self, points: Tensor) -> Tensor:
        """Return candidates, drawn with replacement by the weights. The next draw replaces them.

        Args:
            points: (block,) uniform numbers from [0, 1), float64.

        Returns:
            (block,) int64 positions.
        """
        group_count = len(self.group_weights)
        _weigh_groups[(1,)](
            self.tile_weights,
            self.group_weights,
            self.peak,
            self.tops,
            self.sums,
            group_count,
            LOWEST=LOWEST,
            GROUPS=GROUPS_AT_ONCE,
            ROWS=ROWS,
        )

        padded_groups = max(16, triton.next_power_of_2(group_count))

        # The more groups, the fewer draws a program has registers for.
        draws = min(DRAWS, MAX_DRAWS_TIMES_GROUPS // padded_groups)
        draws = max(1, draws)
        grid = (triton.cdiv(self.block, draws),)
        _draw_rows[grid](
            self.candidates,
            points,
            self.group_weights,
            self.tile_weights,
            self.log_squares,
            self.peak,
            group_count,
            len(self.log_squares),
            GROUPS=padded_groups,
            ROWS=ROWS,
            DRAWS=draws,
        )
        return self.candidates

    def accept(self, candidates: Tensor, chances: Tensor) -> None:
        """Append the candidates that the sequential law accepts to the picks, up to n.

        Args:
            candidates: (block,) int64 positions.
            chances: (block,) uniform numbers from [0, 1), float64.
        """
        pairs = self.distance.between(candidates, candidates)  # (block, block)

        # One program, whose warps share the (block, block) relation of who refuses whom.
        warps = 4
        if self.block > 64:
            warps = 16
        _accept_candidates[(1,)](
            self.picks,
            self.count,
            self.fresh,
            self.fresh_count,
            candidates,
            pairs,
            self.nearest,
            self.log_squares,
            chances,
            len(self.picks),
            BLOCK=self.block,
            num_warps=warps,
        )


def _split_into_halves(units: Tensor) -> tuple[Tensor, Tensor]:
    """Split numbers in [-1, 1] into sums of two float16, for tensor cores: 22 bits.

    (N, D) float32 -> twice (N, D rounded up to whole tiles); the second half is scaled by
    ``LOWER_SCALE``.
    """
    N, D = units.shape
    missing = -D % int(PRODUCT_TILE["WIDTH"])
    upper = units.new_zeros((N, D + missing), dtype=torch.float16)
    lower = torch.zeros_like(upper)

    bytes_per_row = 2 * D * units.element_size()
    for tile in tiles(N, bytes_per_row, units.device):
        chunk = units[tile]
        upper[tile, :D] = chunk  # rounded to float16
        lower[tile, :D] = (chunk - upper[tile, :D]).mul_(LOWER_SCALE)
    return upper, lower


@triton.jit  # type: ignore[untyped-decorator]
def _lower_nearest(
    nearest: tl.tensor,  # (rows,) float64, lowered in place
    upper: tl.tensor,  # (rows, width) float16
    lower: tl.tensor,  # (rows, width) float16, scaled
    fresh: tl.tensor,  # (block,) int64
    fresh_count: tl.tensor,  # () int32
    rows: tl.tensor,
    width: tl.tensor,
    negligible: tl.constexpr,
    scale: tl.constexpr,
    ROWS: tl.constexpr,
    PICKS: tl.constexpr,
    WIDTH: tl.constexpr,
) -> None:
    # (ROWS,) each. Past the end: the last row again, so that loads need no mask.
    place = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = place < rows
    row = tl.minimum(place, rows - 1).to(tl.int64)
    count = tl.load(fresh_count)

    best = tl.full((ROWS,), -2.0, tl.float32)  # largest cosine to a fresh pick
    for first in range(0, count, PICKS):
        # (PICKS,) rows of the picks. Past the last one: the last again.
        number = tl.minimum(first + tl.arange(0, PICKS), count - 1)
        pick = tl.load(fresh + number)

        # (u + l / scale) (u' + l' / scale), without the product of the two lower halves, which is
        # below the precision of float32.
        upper_sum = tl.zeros((ROWS, PICKS), tl.float32)
        mixed_sum = tl.zeros((ROWS, PICKS), tl.float32)
        for k in range(0, width, WIDTH):
            # (ROWS, WIDTH) of the rows and (WIDTH, PICKS) of the picks.
            column = k + tl.arange(0, WIDTH)
            row_offset = row[:, None] * width + column[None, :]
            pick_offset = pick[None, :] * width + column[:, None]
            row_upper = tl.load(upper + row_offset)
            pick_upper = tl.load(upper + pick_offset)
            upper_sum = tl.dot(row_upper, pick_upper, upper_sum)
            mixed_sum = tl.dot(row_upper, tl.load(lower + pick_offset), mixed_sum)
            mixed_sum = tl.dot(tl.load(lower + row_offset), pick_upper, mixed_sum)

        cosine = upper_sum + mixed_sum / scale
        best = tl.maximum(best, tl.max(cosine, axis=1))

    distance = 1 - best
    distance = tl.where(distance < negligible, 0.0, distance).to(tl.float64)

    # Only rows that came nearer are written.
    before = tl.load(nearest + row)
    is_nearer = inside & (distance < before)
    tl.store(nearest + row, tl.minimum(before, distance), mask=is_nearer)


@triton.jit  # type: ignore[untyped-decorator]
def _weigh_tiles(
    log_squares: tl.tensor,  # (rows,) float64, output
    tops: tl.tensor,  # (groups * ROWS,) float64, output: the largest of each tile
    sums: tl.tensor,  # (groups * ROWS,) float64, output: the sum of exp(log_squares - top)
    nearest: tl.tensor,  # (rows,) float64
    log_weights: tl.tensor,  # (rows,) float64
    rows: tl.tensor,
    ROWS: tl.constexpr,
) -> None:
    tile = tl.program_id(0)
    row = tile.to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = row < rows
    distance = tl.load(nearest + row, mask=inside, other=0.0)
    log_weight = tl.load(log_weights + row, mask=inside, other=-float("inf"))

    # 2 log(weight * distance), without the logarithm of 0.
    positive = distance > 0
    log_distance = tl.log(tl.where(positive, distance, 1.0))
    value = tl.where(positive, 2 * (log_weight + log_distance), -float("inf"))
    tl.store(log_squares + row, value, mask=inside)

    top = tl.max(value, axis=0)
    finite_top = tl.where(top > -float("inf"), top, 0.0)  # -inf - -inf would be NaN
    tl.store(tops + tile, top)
    tl.store(sums + tile, tl.sum(tl.exp(value - finite_top), axis=0))


@triton.jit  # type: ignore[untyped-decorator]
def _weigh_groups(
    tile_weights: tl.tensor,  # (groups, ROWS) float64, output
    group_weights: tl.tensor,  # (groups,) float64, output
    peak: tl.tensor,  # () float64, output
    tops: tl.tensor,  # (groups, ROWS) float64
    sums: tl.tensor,  # (groups, ROWS) float64
    group_count: tl.tensor,
    LOWEST: tl.constexpr,
    GROUPS: tl.constexpr,
    ROWS: tl.constexpr,
) -> None:
    number = tl.arange(0, GROUPS)
    within = tl.arange(0, ROWS)

    # LOWEST is finite, so that no NaN appears below even if no row has any weight.
    largest = tl.full((GROUPS, ROWS), LOWEST, tl.float64)
    for first in range(0, group_count, GROUPS):
        group = first + number
        place = group[:, None] * ROWS + within[None, :]
        is_group = (group < group_count)[:, None]
        largest = tl.maximum(largest, tl.load(tops + place, mask=is_group, other=LOWEST))
    top = tl.max(tl.max(largest, axis=1), axis=0)
    tl.store(peak, top)

    for first in range(0, group_count, GROUPS):
        group = first + number
        place = group[:, None] * ROWS + within[None, :]
        is_group = (group < group_count)[:, None]
        tile_top = tl.load(tops + place, mask=is_group, other=LOWEST)
        weight = tl.load(sums + place, mask=is_group, other=0.0) * tl.exp(tile_top - top)
        tl.store(tile_weights + place, weight, mask=is_group)
        tl.store(group_weights + group, tl.sum(weight, axis=1), mask=group < group_count)


@triton.jit  # type: ignore[untyped-decorator]
def _locate(
    weights: tl.tensor,
    points: tl.tensor,
    number: tl.tensor,
) -> tuple[tl.tensor, tl.tensor]:
    """Return the place where the running sum passes each point, and the rest of the point.

    weights (draws or 1, places), points (draws,), number (places,) = 0, 1, ... The place has a
    positive weight even if rounding puts the point past the end.
    """
    ends = tl.cumsum(weights, axis=1)
    last = tl.max(tl.where(weights > 0, number[None, :], 0), axis=1)  # of positive weight

    # As many places lie before the point as end at or before it.
    passed = (ends <= points[:, None]).to(tl.int32)
    place = tl.minimum(tl.sum(passed, axis=1), last)

    # A tile in registers has no indexing: the sum over a mask reads the entry of `place`.
    is_place = number[None, :] == place[:, None]
    before = tl.sum(tl.where(is_place, ends - weights, 0.0), axis=1)
    return place, points - before


@triton.jit  # type: ignore[untyped-decorator]
def _draw_rows(
    candidates: tl.tensor,  # (block,) int64, output
    points: tl.tensor,  # (block,) float64 uniform draws
    group_weights: tl.tensor,  # (groups,) float64
    tile_weights: tl.tensor,  # (groups, ROWS) float64
    log_squares: tl.tensor,  # (rows,) float64
    peak: tl.tensor,  # () float64
    group_count: tl.tensor,
    rows: tl.tensor,
    GROUPS: tl.constexpr,
    ROWS: tl.constexpr,
    DRAWS: tl.constexpr,
) -> None:
    draw = tl.program_id(0) * DRAWS + tl.arange(0, DRAWS)

    # A group of tiles,
    number = tl.arange(0, GROUPS)
    by_group = tl.load(group_weights + number, mask=number < group_count, other=0.0)
    point = tl.load(points + draw) * tl.sum(by_group, axis=0)
    group, point = _locate(by_group[None, :], point, number)

    # a tile in that group,
    within = tl.arange(0, ROWS)
    start = group.to(tl.int64) * ROWS
    by_tile = tl.load(tile_weights + start[:, None] + within[None, :])
    tile, point = _locate(by_tile, point, within)

    # and a row in that tile.
    start = (start + tile) * ROWS
    row = start[:, None] + within[None, :]
    value = tl.load(log_squares + row, mask=row < rows, other=-float("inf"))
    value = value - tl.load(peak)
    positive = value > -float("inf")
    weight = tl.exp(tl.where(positive, value, 0.0))
    by_row = tl.where(positive, weight, 0.0)
    place, point = _locate(by_row, point, within)
    tl.store(candidates + draw, tl.minimum(start + place, rows - 1))


@triton.jit  # type: ignore[untyped-decorator]
def _accept_candidates(
    picks: tl.tensor,  # (n,) int64, appended to
    count: tl.tensor,  # () int32, raised
    fresh: tl.tensor,  # (BLOCK,) int64, output
    fresh_count: tl.tensor,  # () int32, output
    candidates: tl.tensor,  # (BLOCK,) int64
    pairs: tl.tensor,  # (BLOCK, BLOCK) distances between candidates
    nearest: tl.tensor,  # (rows,) float64 distance to the nearest pick
    log_squares: tl.tensor,  # (rows,) float64
    chances: tl.tensor,  # (BLOCK,) float64 uniform draws
    wanted: tl.tensor,  # n
    BLOCK: tl.constexpr,
) -> None:
    # (BLOCK,) each: a candidate is accepted if its distance to the picks is still above this.
    number = tl.arange(0, BLOCK)
    row = tl.load(candidates + number)
    now = tl.load(nearest + row)

    # If no row has any weight, what was drawn is arbitrary: distance 0 rejects it.
    has_weight = tl.load(log_squares + row) > -float("inf")
    now = tl.where(has_weight, now, 0.0)
    threshold = tl.sqrt(tl.load(chances + number)) * now

    # refuses: (BLOCK / 16, BLOCK), bit i of word w of column j: candidate 16 w + i comes before j
    # and is within j's threshold, so j is refused if it is accepted.
    word = tl.arange(0, BLOCK // 16)
    bit = tl.arange(0, 16)
    before = word[:, None, None] * 16 + bit[None, :, None]
    pair_distance = tl.load(pairs + before * BLOCK + number[None, None, :])
    near = pair_distance <= threshold[None, None, :]
    is_refusal = (near & (before < number[None, None, :])).to(tl.int32)
    refuses = tl.sum(is_refusal << bit[None, :, None], axis=1)

    # The sequential walk as a fixed point: start with everyone accepted and recompute until nothing
    # changes. After k rounds the first k decisions are right, so it ends; chains of candidates that
    # wait for each other are short, so a few rounds are enough.
    possible = (threshold < now).to(tl.int32)
    accepted = possible
    changed = 1
    while changed > 0:
        # The accepted candidates as 16-bit words, like `refuses`.
        accepted_bits = tl.reshape(accepted, (BLOCK // 16, 16)) << bit[None, :]
        words = tl.sum(accepted_bits, axis=1)
        meets_refusal = (refuses & words[:, None]) != 0
        refused = tl.max(meets_refusal.to(tl.int32), axis=0)
        again = possible * (1 - refused)
        changed = tl.sum((again != accepted).to(tl.int32), axis=0)
        accepted = again

    # Append as many as there is room for.
    old_count = tl.load(count)
    place = tl.cumsum(accepted, axis=0) - accepted  # accepted candidates before each
    taken = (accepted > 0) & (place < wanted - old_count)
    added = tl.sum(taken.to(tl.int32), axis=0)
    tl.store(picks + old_count + place, row, mask=taken)

    # The first `added` of `fresh` are the new picks, the others the first pick again.
    tl.store(fresh + number, tl.load(picks), mask=number >= added)
    tl.store(fresh + place, row, mask=taken)
    tl.store(count, old_count + added)
    tl.store(fresh_count, added)
