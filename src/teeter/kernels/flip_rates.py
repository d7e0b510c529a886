"""Flip rates: how soon each row flips on each ray, computed in tiles of rows.

On a ray, the flip rate of a row that predicts ``y`` is

    1 / sigma* = max over c of (v_c - v_y) / (l_y - l_c),

with its logits ``l`` and the change of the logits along the direction, ``v = Z E' + e``;
``kernels.ldm`` derives it. On the opposite ray it is the minimum over c instead of the maximum.
With several labels per row it is the maximum over labels c of ``-v_c / l_c``, and at least 0.

How it works
------------
1. ``chunk_directions`` regroups the blocks of ``kernels.directions`` into chunks that fit in
   memory.
2. ``FlipRates`` cuts the rows into tiles. Per tile it computes the predictions and
   ``1 / (l_y - l_c)`` once, and for each chunk of directions the projections into the subspaces,
   the matrix product ``v``, the ratios, and both extremes over c. On a CPU, threads take the tiles
   in turn, and a tile takes so many directions at a time that their product stays in the cache. On
   recent GPUs fused kernels do all of this in one pass (``kernels.fused``).

The gaps ``l_y - l_c`` are always computed in full precision. ``v`` is noise, so bfloat16 is enough
for its factors on a GPU.

State
-----
``FlipRates`` and its tiles do not change after they are made. Products of a tile are changed in
place before they are reduced; they belong to the function that made them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias, cast

import torch
from torch import Tensor

from teeter.base.arrays import TILE, full_precision_matmul, memory_budget, pad_to_tile, tiles
from teeter.base.seeds import is_portable
from teeter.base.threads import run_in_threads
from teeter.kernels.directions import (
    BLOCK,
    Directions,
    Noise,
    SubspaceDirections,
    default_rays,
    split_heads,
)
from teeter.kernels.fused import MAX_FUSED_RANK, use_fused_kernel

if TYPE_CHECKING:
    from teeter.kernels.fused.subspace_rates import FusedSubspaceRates

__all__ = [
    "Chunk",
    "FlipRates",
    "chunk_directions",
    "flip_rates",
]


Chunk: TypeAlias = Noise | SubspaceDirections
"""Directions that are followed at once: isotropic ones, or blocks of them in subspaces."""

_TIE = 16
"""Logits within this many machine epsilons are tied: equal rows of W may round differently."""

_CPU_TILE_ENTRIES = 1 << 18
"""Entries of the products of a block of isotropic directions on a CPU, which sets the tiles."""

_CPU_CACHE_ENTRIES = 640 << 10
"""Entries of a product in subspaces on a CPU: the passes after it find it in the cache. Smaller
products would spend more time on calls than they save."""

_CPU_BASES = 4
"""Subspaces into which the features of a tile are projected at once on a CPU."""

_OPERATIONS_PER_RATIO = 500
"""Rough cost of a row, class and ray in plain torch, to decide whether a fused kernel pays off."""


def flip_rates(
    features: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    directions: Directions,
    *,
    several: bool = False,
) -> Tensor:
    """Return the flip rate ``1 / sigma*`` of each row on each ray.

    Args:
        features: (N, D).
        weight: (C, D).
        bias: (C,) or None.
        directions: directions to follow.
        several: whether a row may have several labels, so that it flips with the first of them.

    Returns:
        (R, N), rays in the order E1, -E1, E2, ... 0 if the row never flips on the ray, infinite if
        it sits on a decision boundary and flips at once.
    """
    rates = FlipRates(features, weight, bias, several=several)
    blocks = [rates.compute(chunk) for chunk in chunk_directions(directions, len(features))]
    return torch.cat(blocks)


@dataclass(frozen=True)
class _Tile:
    """A slice of the rows, transposed and padded to n columns: a multiple of ``TILE``."""

    rows: slice
    """Which of the N rows these are. It is shorter than n if there is padding."""
    features: Tensor
    """(D, n) in the precision of the noise; zeros in the padding."""
    predicted: Tensor
    """(n,) class y of each row."""
    own_places: Tensor | None
    """(n,) place of each row's own class in a (C, n) array that is flattened. None if rows may have
    several labels: the change of a label is then compared with no other."""
    inverse_gaps: Tensor
    """(C, n) ``1 / (l_y - l_c)``; 0 at c = y and in the padding, infinite for ties. With several
    labels ``-1 / l_c``."""
    tied: bool
    """Whether any class but y has a gap of 0, so that ``inverse_gaps`` has infinite entries."""


class FlipRates:
    """Flip rates of rows under a head, tile by tile.

    Tiles are computed when they are first needed, and kept if they fit in half of the memory
    budget. Otherwise every call computes them again. The numbers are the same either way.
    """

    def __init__(
        self,
        features: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        *,
        several: bool = False,
    ) -> None:
        self.several = several
        self.features = features  # (N, D)
        self.weight = weight  # (C, D)
        self.bias = bias  # (C,) or None
        self.noise_dtype = _noise_dtype(features)
        # The fused kernels know rows of one label only.
        self.may_fuse = self.noise_dtype == torch.bfloat16 and not several
        self.is_fused = self.may_fuse and _is_fused(len(features), weight)
        self._row_slices = list(self._cut_rows())
        # What all tiles take: inverse gaps and, on a GPU, the features in bfloat16.
        bytes_per_row = len(self.weight) * self.features.element_size()
        if self.features.is_cuda:
            bytes_per_row += self.features.shape[1] * 2
        tile_bytes = len(self.features) * bytes_per_row
        self._keeps_tiles = tile_bytes <= memory_budget(features.device) // 2
        self._kept_tiles: list[_Tile | None] = [None] * len(self._row_slices)
        self._fused_rates: FusedSubspaceRates | None = None

    def compute(self, chunk: Chunk) -> Tensor:
        """Return flip rates on 2B rays: (2B, N), each direction before its opposite."""
        if isinstance(chunk, tuple):
            return self._compute_isotropic(*chunk)

        rank = chunk.bases.shape[2]
        if self.may_fuse and _is_fused_in_subspace(len(self.features), self.weight, rank):
            if self._fused_rates is None:
                from teeter.kernels.fused.subspace_rates import FusedSubspaceRates

                self._fused_rates = FusedSubspaceRates(self.features, self.weight, self.bias)
            return self._fused_rates.compute(chunk)
        return self._compute_in_subspaces(chunk)

    def _compute_isotropic(self, weight_noise: Tensor, bias_noise: Tensor | None) -> Tensor:
        """Return flip rates: (B, C, D), (B, C) -> (2B, N)."""
        B = len(weight_noise)
        missing = -B % BLOCK
        if missing:
            # Whole blocks, so that the number of rays does not change how products round.
            weight_noise = torch.nn.functional.pad(weight_noise, (0, 0, 0, 0, 0, missing))
            if bias_noise is not None:
                bias_noise = torch.nn.functional.pad(bias_noise, (0, 0, 0, missing))

        # (padded B, 2, N), filled tile by tile of rows.
        shape = (len(weight_noise), 2, len(self.features))
        rates = self.features.new_empty(shape)
        noise = weight_noise.to(self.noise_dtype)

        def fill_tile(number: int) -> None:
            tile = self._tile(number)
            tile_rates = rates[:, :, tile.rows]
            if self.is_fused:
                from teeter.kernels.fused.flip_rates import fill_flip_rates

                fill_flip_rates(
                    tile_rates,
                    tile.features.T,
                    tile.predicted,
                    tile.inverse_gaps.T,
                    noise,
                    bias_noise,
                    tied=tile.tied,
                )
            else:
                _fill_plain(tile_rates, tile, noise, bias_noise)

        self._for_each_tile(fill_tile)
        return rates[:B].flatten(0, 1)

    def _compute_in_subspaces(self, directions: SubspaceDirections) -> Tensor:
        """Return flip rates on the rays of K blocks: (2B, N)."""
        K = directions.blocks
        rates = self.features.new_empty((K * BLOCK, 2, len(self.features)))

        # (K, r, D), (K, r, 1) and (K, 16, C, r).
        bases = directions.bases.mT.to(self.noise_dtype)
        bias_bases = None
        if directions.bias_bases is not None:
            bias_bases = directions.bias_bases[:, :, None]
        noise = directions.coefficients.to(self.noise_dtype)

        fill = _fill_in_subspaces
        if not self.features.is_cuda:
            fill = _fill_through_cache

            # Always the same number of subspaces at once: other shapes may round differently.
            missing = -K % _CPU_BASES
            bases = torch.nn.functional.pad(bases, (0, 0, 0, 0, 0, missing))
            bases = bases.contiguous()

        def fill_tile(number: int) -> None:
            tile = self._tile(number)
            tile_rates = rates[:, :, tile.rows]
            fill(tile_rates, tile, bases, bias_bases, noise)

        self._for_each_tile(fill_tile)
        return rates[: len(directions)].flatten(0, 1)

    def _for_each_tile(self, fill_tile: Callable[[int], None]) -> None:
        """Call a function with the number of every tile.

        On a CPU each tile is computed by one thread. A product that several threads share is
        rounded differently, so values would depend on the number of threads.
        """
        numbers = range(len(self._row_slices))
        if self.features.is_cuda:
            for number in numbers:
                fill_tile(number)
        else:
            run_in_threads(fill_tile, numbers)

    def _tile(self, number: int) -> _Tile:
        """Return the tile of the slice of this number, from memory if tiles are kept.

        Several threads may ask at once, each for tiles of its own.
        """
        kept_tile = self._kept_tiles[number]
        if kept_tile is not None:
            return kept_tile

        tile = self._make_tile(self._row_slices[number])
        if self._keeps_tiles:
            self._kept_tiles[number] = tile
        return tile

    def _cut_rows(self) -> Iterator[slice]:
        """Yield slices of rows, each small enough for the products of a block."""
        N = len(self.features)
        C = len(self.weight)
        device = self.features.device

        # The fused kernel never stores a product; its tiles hold the inverse gaps alone.
        directions_at_once = BLOCK
        if self.is_fused:
            directions_at_once = 1
        bytes_per_row = directions_at_once * C * self.features.element_size() * 2
        at_most = None
        if not self.features.is_cuda:
            at_most = _cpu_tile_rows(C)

        return tiles(N, bytes_per_row, device, at_most=at_most)

    def _make_tile(self, rows: slice) -> _Tile:
        """Compute predictions and gaps of some rows, in full precision."""
        features = pad_to_tile(self.features[rows]).T  # (D, n)
        with full_precision_matmul():
            logits = self.weight @ features  # (C, n)
        if self.bias is not None:
            logits += self.bias[:, None]
        if self.several:
            return self._make_tile_of_several(rows, features, logits)

        # Ties: classes whose logits equal the largest but for rounding have a gap of exactly 0. The
        # lowest of them is the prediction. The others flip the row at once on rays where they grow
        # faster (rate inf), and never on rays where they do not: _divide_by_gaps makes 0 * inf 0.
        gaps = logits.amax(dim=0) - logits
        largest = logits.abs().amax(dim=0)
        rounding = _TIE * torch.finfo(gaps.dtype).eps * largest
        gaps.masked_fill_(gaps <= rounding, 0)

        # The first of the classes with gap 0: argmax alone does not say which of equals it takes,
        # and is slower than amax. Class c has the number C - c, exact in floating point.
        C = len(gaps)
        lowest_first = torch.arange(C, 0, -1, dtype=gaps.dtype, device=gaps.device)
        highest_number = ((gaps == 0) * lowest_first[:, None]).amax(dim=0)
        predicted = C - highest_number.long()

        # In place: from here on `gaps` is no longer needed.
        inverse_gaps = gaps.reciprocal_()
        inverse_gaps.scatter_(0, predicted[None], 0)
        row_count = rows.stop - rows.start
        inverse_gaps[:, row_count:] = 0
        padded_rows = torch.arange(features.shape[1], device=features.device)
        return _Tile(
            rows=rows,
            features=features.to(self.noise_dtype),
            predicted=predicted,
            own_places=predicted * len(padded_rows) + padded_rows,
            inverse_gaps=inverse_gaps,
            tied=bool(inverse_gaps.isinf().any()),
        )

    def _make_tile_of_several(self, rows: slice, features: Tensor, logits: Tensor) -> _Tile:
        """Return a tile of rows (D, n) that may have several labels, with their logits (C, n)."""
        # A logit that is 0 but for rounding is a label that the row does not have, and gets at once
        # on rays where the logit grows.
        gaps = logits.neg_()
        largest = gaps.abs().amax(dim=0)
        rounding = _TIE * torch.finfo(gaps.dtype).eps * largest
        gaps.masked_fill_(gaps.abs() <= rounding, 0)
        inverse_gaps = gaps.reciprocal_()
        inverse_gaps[:, rows.stop - rows.start :] = 0
        return _Tile(
            rows=rows,
            features=features.to(self.noise_dtype),
            predicted=features.new_empty(0, dtype=torch.int64),
            own_places=None,
            inverse_gaps=inverse_gaps,
            tied=bool(inverse_gaps.isinf().any()),
        )


def _noise_dtype(features: Tensor) -> torch.dtype:
    """Return the precision of the factors of ``v``: bfloat16 for float32 on a GPU."""
    if features.is_cuda and features.dtype == torch.float32 and not is_portable():
        return torch.bfloat16
    return features.dtype


def _is_fused(rows: int, weight: Tensor) -> bool:
    """Return whether a fused kernel pays off for these rows and the default number of rays."""
    operations = default_rays(*weight.shape) * rows * weight.numel()
    return use_fused_kernel(weight, operations)


def _is_fused_in_subspace(rows: int, weight: Tensor, rank: int) -> bool:
    """Return whether the fused kernels for subspaces pay off, and can take this many dimensions."""
    ratios = default_rays(*weight.shape) * rows * len(weight)
    if rank > MAX_FUSED_RANK:
        return False
    return use_fused_kernel(weight, _OPERATIONS_PER_RATIO * ratios)


def _fill_plain(
    rates: Tensor,
    tile: _Tile,
    noise: Tensor,
    bias_noise: Tensor | None,
) -> None:
    """Write a tile's flip rates into ``rates``.

    Args:
        rates: (B, 2, n) output, a view; n is without the padding of the tile.
        tile: the rows.
        noise: (B, C, D) in the precision of ``tile.features``.
        bias_noise: (B, C), or None for a head without a bias.
    """
    B, C, _ = noise.shape
    products = _multiply(noise.flatten(0, 1), tile.features, rates.dtype)
    change = products.view(B, C, -1)
    if bias_noise is not None:
        change += bias_noise[:, :, None]
    _reduce_change(rates, tile, change)


def _fill_in_subspaces(
    rates: Tensor,
    tile: _Tile,
    bases: Tensor,
    bias_bases: Tensor | None,
    noise: Tensor,
) -> None:
    """Write a tile's flip rates along the directions of K blocks at once, for a GPU.

    Args:
        rates: (16 K, 2, n) output, a view.
        tile: the rows.
        bases: (K, r, D) in the precision of ``tile.features``.
        bias_bases: (K, r, 1), or None for a head without a bias.
        noise: (K, 16, C, r) in the same precision.
    """
    K, _, C, r = noise.shape
    points = _multiply(bases.flatten(0, 1), tile.features, rates.dtype)
    points = points.view(K, r, -1)
    if bias_bases is not None:
        points += bias_bases
    points = points.to(noise.dtype)

    products = _multiply(noise.flatten(1, 2), points, rates.dtype)  # (K, 16 C, padded n)
    _reduce_change(rates, tile, products.view(K * BLOCK, C, -1))


def _fill_through_cache(
    rates: Tensor,
    tile: _Tile,
    bases: Tensor,
    bias_bases: Tensor | None,
    noise: Tensor,
) -> None:
    """Write a tile's flip rates along some directions at a time, for a CPU.

    The arguments are those of ``_fill_in_subspaces``, with ``bases`` padded to a multiple of
    ``_CPU_BASES``. A product is followed by four passes over it, which take longer than the product
    itself if it leaves the cache. All products of a tile are written to the same memory: the system
    would have to clear new memory first.
    """
    K, _, C, r = noise.shape
    padded_n = tile.features.shape[1]
    # A power of 2 that depends on C alone, so that the working memory does not change how
    # products round.
    at_once = BLOCK
    while at_once > 1 and at_once * C * _cpu_tile_rows(C) > _CPU_CACHE_ENTRIES:
        at_once //= 2
    n_groups = BLOCK // at_once
    noise_groups = noise.view(K, n_groups, at_once * C, r)

    products = rates.new_empty((at_once * C, padded_n))
    change = products.view(at_once, C, padded_n)
    highest = rates.new_empty((K, n_groups, at_once, padded_n))
    lowest = torch.empty_like(highest)

    with full_precision_matmul():
        for first_block in range(0, K, _CPU_BASES):
            # (_CPU_BASES, r, padded n): the features in the subspaces, the bias as one more.
            some_bases = bases[first_block : first_block + _CPU_BASES]
            points = some_bases.flatten(0, 1) @ tile.features
            points = points.view(_CPU_BASES, r, padded_n)

            for k in range(first_block, min(first_block + _CPU_BASES, K)):
                block_points = points[k - first_block]
                if bias_bases is not None:
                    block_points += bias_bases[k]

                groups = zip(noise_groups[k], highest[k], lowest[k], strict=True)
                for group_noise, group_highest, group_lowest in groups:
                    torch.mm(group_noise, block_points, out=products)
                    _divide_by_gaps(change, tile)
                    torch.amax(change, dim=1, out=group_highest)
                    torch.amin(change, dim=1, out=group_lowest)

    _write_extremes(
        rates, tile, highest.view(K * BLOCK, padded_n), lowest.view(K * BLOCK, padded_n)
    )


def _cpu_tile_rows(C: int) -> int:
    """Return the most rows of a tile on a CPU, a multiple of ``TILE``."""
    fitting = _CPU_TILE_ENTRIES // (BLOCK * C * TILE)
    return max(1, fitting) * TILE


def _reduce_change(rates: Tensor, tile: _Tile, change: Tensor) -> None:
    """Write the flip rates that follow from changes of the logits into ``rates``.

    Args:
        rates: (B, 2, n) output, a view; n is without the padding of the tile.
        tile: the rows.
        change: (B, C, padded n) v, changed in place to the ratios: it is the largest array.
    """
    _divide_by_gaps(change, tile)
    _write_extremes(rates, tile, change.amax(dim=1), change.amin(dim=1))


def _write_extremes(rates: Tensor, tile: _Tile, highest: Tensor, lowest: Tensor) -> None:
    """Write the largest and smallest ratios (B, padded n) as the flip rates of two rays each."""
    # The ratio of y itself is 0, so the maximum is not below 0 and the minimum not above. With
    # several labels there is no such ratio.
    if tile.own_places is None:
        highest = highest.clamp_min_(0)
        lowest = lowest.clamp_max_(0)
    n = rates.shape[2]
    rates[:, 0] = highest[:, :n]
    rates[:, 1] = lowest[:, :n].abs_()


def _divide_by_gaps(change: Tensor, tile: _Tile) -> None:
    """Turn v (B, C, padded n) into the ratios ``(v_c - v_y) / (l_y - l_c)``, in place."""
    if tile.own_places is not None:
        # By flat places: several times faster than a gather.
        flat_change = change.view(len(change), -1)
        own_change = flat_change.index_select(1, tile.own_places)
        change -= own_change[:, None]
    change *= tile.inverse_gaps
    if tile.tied:  # 0 * inf: a tied class that does not move
        change.nan_to_num_(nan=0.0, posinf=torch.inf, neginf=-torch.inf)


def _multiply(
    left: Tensor,
    right: Tensor,
    dtype: torch.dtype,
) -> Tensor:
    """Return the product in ``dtype``, in full precision if the factors have that type too.

    Both factors are matrices, or both are batches of matrices.
    """
    if left.dtype == dtype:
        with full_precision_matmul():
            return left @ right
    if left.ndim == 3:
        return torch.bmm(left, right, out_dtype=dtype)
    return torch.mm(left, right, out_dtype=dtype)


def chunk_directions(directions: Directions, rows: int) -> Iterator[Chunk]:
    """Regroup directions into chunks that use the memory budget well."""
    parts = iter(directions)
    first = next(parts, None)
    if first is None:
        return

    # All parts are of the kind of the first.
    all_parts = chain([first], parts)
    if isinstance(first, SubspaceDirections):
        blocks = _blocks_per_chunk(first, rows)
        for part in cast(Iterator[SubspaceDirections], all_parts):
            yield from part.cut(blocks)
    else:
        yield from _chunk_isotropic(cast(Iterator[Noise], all_parts), rows)


def _blocks_per_chunk(directions: SubspaceDirections, rows: int) -> int:
    """Return how many blocks in subspaces to process at once, at most.

    Ranking the rays of a block takes about four arrays of one number per row for each: rates, their
    sorted copy, thresholds and counts. On a GPU the (C, rows) changes of the logits come on top,
    8 bytes each, unless a fused kernel keeps them out of memory.
    """
    coefficients = directions.coefficients
    budget = memory_budget(coefficients.device)
    _, _, C, rank = coefficients.shape
    ranking_bytes = 2 * BLOCK * rows * 4 * coefficients.element_size()
    fitting = max(1, budget // 2 // ranking_bytes)

    if coefficients.is_cuda and not _is_fused_in_subspace(rows, coefficients[0, 0], rank):
        product_bytes = BLOCK * C * rows * 8
        fitting = min(fitting, max(1, budget // product_bytes))
    return fitting


def _chunk_isotropic(directions: Iterable[Noise], rows: int) -> Iterator[Noise]:
    """Join isotropic blocks until a chunk is full, and cut them into chunks of that size.

    A chunk never mixes the order of directions.
    """
    size = 0  # directions of a chunk; known once the first block shows its shape
    held: list[Noise] = []
    held_directions = 0
    for block in directions:
        weight_noise, _ = block
        if not size:
            size = _directions_per_chunk(weight_noise, rows)

        held.append(block)
        held_directions += len(weight_noise)
        if held_directions >= size:
            yield from _join_and_cut(held, size)
            held = []
            held_directions = 0

    if held:
        yield from _join_and_cut(held, size)


def _directions_per_chunk(weight_noise: Tensor, rows: int) -> int:
    """Return how many directions to process at once, a multiple of ``BLOCK``.

    A CPU gains nothing from more than one block. On a GPU the memory of one direction is:

    - for ranking: two rays, about eight arrays of one number per row for each (rates, their sorted
      copy, thresholds, counts), within half of the budget;
    - for the product: (C, rows) changes of the logits, 8 bytes each. The fused kernel does not
      store them, and needs two copies of the noise (C, D) instead.
    """
    if not weight_noise.is_cuda:
        return BLOCK

    C = weight_noise.shape[1]
    budget = memory_budget(weight_noise.device)
    ranking_bytes = 2 * rows * 8 * weight_noise.element_size()
    product_bytes = C * rows * 8
    if _is_fused(rows, weight_noise[0]):
        product_bytes = 2 * weight_noise[0].numel() * weight_noise.element_size()

    fitting = min(budget // 2 // ranking_bytes, budget // product_bytes)
    fitting_blocks = max(1, fitting // BLOCK)
    return fitting_blocks * BLOCK


def _join_and_cut(blocks: Sequence[Noise], size: int) -> Iterator[Noise]:
    """Yield the directions of all blocks, ``size`` at a time."""
    # A single block, as on a CPU, is not copied.
    weight_noise = blocks[0][0]
    if len(blocks) > 1:
        weight_noise = torch.cat([block_weights for block_weights, _ in blocks])

    # Either all blocks have bias noise or none has.
    bias_blocks = [block_biases for _, block_biases in blocks if block_biases is not None]
    bias_noise = None
    if bias_blocks:
        bias_noise = torch.cat(bias_blocks)

    yield from split_heads(weight_noise, bias_noise, size)
