"""Flip rates in random subspaces in Triton: few dimensions, so the ratios are all the work.

The plain version is ``kernels.flip_rates.FlipRates._compute_in_subspaces``. With the r = 16
dimensions of a subspace, the product for a row, a class and a direction is 16 multiplications, less
than what follows it: a difference, a ratio and two extremes. So this kernel is built around those
four.

How a program works
-------------------
A program takes 64 rows and 8 of the 16 directions of a block. For each tile of 16 classes it

1. loads the (64, 16) inverse gaps once for all 8 directions: they are the largest input, and
   reading them again for every direction would take longer than everything else;
2. multiplies the (64, r) projected features by the coefficients of 16 classes x 8 directions: one
   tensor core instruction if r is 16;
3. computes the ratios and lowers or raises the running extremes. A thread of a tensor core product
   holds 4 of the 16 classes of a row and direction. Classes are therefore split as (2, 4, 2), and
   only the axes inside a thread are reduced: threads compare their extremes once, at the end.

``fused.flip_rates`` explains what the ratios are, and how ties are treated.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from teeter.base.arrays import full_precision_matmul, memory_budget
from teeter.kernels.directions import BLOCK, SubspaceDirections
from teeter.kernels.fused.flip_rates import ROUNDING

ROWS = 64
"""Rows of a program: as many as one tensor core instruction takes."""

DIRECTIONS = 8
"""Directions of a program: they share the inverse gaps."""

CLASSES = 16
"""Classes of a tile. With the directions, 128 columns of a product."""

PROGRAM = {"num_warps": 4, "num_stages": 3, "maxnreg": 128}
"""128 registers for a thread let four programs share a multiprocessor: some compute, some wait."""

TIE = 16
"""Logits within this many machine epsilons are tied, as in ``kernels.flip_rates``."""


@dataclass(frozen=True, eq=False)
class _RowTile:
    """A slice of the rows."""

    rows: slice
    features: Tensor
    """(n, D) bfloat16."""
    predicted: Tensor
    """(n,) int32, class y of each row."""
    inverse_gaps: Tensor
    """(n, C padded to whole tiles) ``1 / (l_y - l_c)``; 0 at y and in the padding."""
    tied: bool


class FusedSubspaceRates:
    """Flip rates of rows under a head, along directions in subspaces, on a recent GPU."""

    def __init__(self, features: Tensor, weight: Tensor, bias: Tensor | None) -> None:
        self.features = features  # (N, D) float32
        self.classes = len(weight)

        # Rows of zeros up to whole tiles of classes.
        missing = -len(weight) % CLASSES
        self.weight = torch.nn.functional.pad(weight, (0, 0, 0, missing))
        self.bias = None
        if bias is not None:
            self.bias = torch.nn.functional.pad(bias, (0, missing))

        # Each row takes its inverse gaps, made in place of the logits, and bfloat16 features.
        bytes_per_row = 4 * len(self.weight) + 2 * features.shape[1]
        fitting = memory_budget(features.device) // 2 // bytes_per_row
        step = max(ROWS, fitting // ROWS * ROWS)
        N = len(features)
        self._slices = [slice(start, min(start + step, N)) for start in range(0, N, step)]
        self._single_tile: _RowTile | None = None

    def compute(self, directions: SubspaceDirections) -> Tensor:
        """Return flip rates on the rays of the directions: (2B, N)."""
        rates = self.features.new_empty((directions.blocks * BLOCK, 2, len(self.features)))
        noise = _arrange_noise(directions.coefficients, len(self.weight))

        # (K, D, r) -> (D, K r), and (K r,) of the bias.
        bases = _pad_rank(directions.bases.to(torch.bfloat16))
        basis = bases.transpose(0, 1).flatten(1, 2)
        bias_basis = None
        if directions.bias_bases is not None:
            bias_basis = _pad_rank(directions.bias_bases).flatten()

        for rows in self._slices:
            tile = self._make_tile(rows)
            points = torch.mm(tile.features, basis, out_dtype=torch.float32)
            if bias_basis is not None:
                points += bias_basis
            fill_subspace_rates(
                rates[:, :, rows],
                points.to(torch.bfloat16),
                tile.predicted,
                tile.inverse_gaps,
                noise,
                tied=tile.tied,
            )
        return rates[: len(directions)].flatten(0, 1)

    def _make_tile(self, rows: slice) -> _RowTile:
        """Compute predictions and inverse gaps of some rows, in full precision."""
        if self._single_tile is not None:
            return self._single_tile

        features = self.features[rows]
        with full_precision_matmul():
            if self.bias is None:
                logits = features @ self.weight.T
            else:
                logits = torch.addmm(self.bias, features, self.weight.T)
        predicted, tied = invert_gaps(logits, self.classes)

        tile = _RowTile(
            rows=rows,
            features=features.to(torch.bfloat16),
            predicted=predicted,
            inverse_gaps=logits,
            tied=tied,
        )
        if len(self._slices) == 1:
            self._single_tile = tile
        return tile


def _pad_rank(factor: Tensor) -> Tensor:
    """Pad the last axis, r, with zeros to what tensor cores take: a power of 2 from 16 on."""
    rank = factor.shape[-1]
    missing = max(16, triton.next_power_of_2(rank)) - rank
    if not missing:
        return factor
    return torch.nn.functional.pad(factor, (0, missing))


def _arrange_noise(coefficients: Tensor, padded_classes: int) -> Tensor:
    """Return coefficients (K, 16, C, r) in the order in which programs read them.

    Returns:
        (K * 16 / DIRECTIONS, class tiles, DIRECTIONS, CLASSES, r) bfloat16, zeros in the padding.
    """
    noise = _pad_rank(coefficients.to(torch.bfloat16))
    missing = padded_classes - noise.shape[2]
    if missing:
        noise = torch.nn.functional.pad(noise, (0, 0, 0, missing))

    tiled = noise.flatten(0, 1).view(
        -1, DIRECTIONS, padded_classes // CLASSES, CLASSES, noise.shape[3]
    )
    return tiled.transpose(1, 2).contiguous()


def fill_subspace_rates(
    rates: Tensor,
    points: Tensor,
    predicted: Tensor,
    inverse_gaps: Tensor,
    noise: Tensor,
    *,
    tied: bool,
) -> None:
    """Write the flip rates of n rows along 16 K directions and their opposites into ``rates``.

    Args:
        rates: (16 K, 2, n) output; may be a slice of a larger tensor.
        points: (n, K r) bfloat16 or float32, the features in the subspace of each block.
        predicted: (n,) int32.
        inverse_gaps: (n, padded classes) float32.
        noise: (groups, class tiles, DIRECTIONS, CLASSES, r) in the precision of ``points``.
        tied: whether any entry of ``inverse_gaps`` is infinite.
    """
    groups, class_tiles, _, _, rank = noise.shape
    n = rates.shape[2]
    columns = noise.view(-1, rank)

    grid = (triton.cdiv(n, ROWS) * groups,)
    _subspace_rates[grid](
        rates,
        TensorDescriptor.from_tensor(points, [ROWS, rank]),
        predicted,
        TensorDescriptor.from_tensor(inverse_gaps, [ROWS, CLASSES]),
        TensorDescriptor.from_tensor(columns, [DIRECTIONS * CLASSES, rank]),
        noise,
        n,
        groups,
        class_tiles,
        rates.stride(0),
        rates.stride(1),
        tied=tied,
        one_class_tile=class_tiles == 1,
        ROWS=ROWS,
        DIRECTIONS=DIRECTIONS,
        CLASSES=CLASSES,
        RANK=rank,
        GROUPS_PER_BLOCK=BLOCK // DIRECTIONS,
        ROUNDING=ROUNDING,
        **PROGRAM,
    )


@triton.jit  # type: ignore[untyped-decorator]
def _subspace_rates(
    rates: tl.tensor,  # (directions, 2, rows) float32, by the two strides below
    points: tl.tensor_descriptor,  # (rows, blocks * RANK), tiles of (ROWS, RANK)
    predicted: tl.tensor,  # (rows,) int32
    inverse_gaps: tl.tensor_descriptor,  # (rows, classes) float32, tiles of (ROWS, CLASSES)
    noise: tl.tensor_descriptor,  # (groups * class tiles * 128, RANK), tiles of (128, RANK)
    noise_pointer: tl.tensor,  # the same noise, to gather single rows of it
    rows: tl.tensor,
    groups: tl.tensor,
    class_tiles: tl.tensor,
    direction_stride: tl.tensor,
    mirror_stride: tl.tensor,
    tied: tl.constexpr,
    one_class_tile: tl.constexpr,
    ROWS: tl.constexpr,
    DIRECTIONS: tl.constexpr,
    CLASSES: tl.constexpr,
    RANK: tl.constexpr,
    GROUPS_PER_BLOCK: tl.constexpr,
    ROUNDING: tl.constexpr,
) -> None:
    # All groups of one tile of rows run side by side and share its inverse gaps in the cache.
    program = tl.program_id(0)
    group = program % groups
    top = (program // groups) * ROWS

    # (ROWS,) each. Past the end: the last row again instead of a mask.
    place = top + tl.arange(0, ROWS)
    row = tl.minimum(place, rows - 1)
    own_class = tl.load(predicted + row)
    point = points.load([top, (group // GROUPS_PER_BLOCK) * RANK])

    # v_y, the change of the predicted class, (ROWS, DIRECTIONS). If all classes are in one tile and
    # none is tied, it is found among them below. `reach` is the scale of its rounding.
    number = tl.arange(0, DIRECTIONS)
    own_change = tl.zeros((ROWS, DIRECTIONS), tl.float32)
    reach = tl.zeros((ROWS, DIRECTIONS), tl.float32)
    if tied or not one_class_tile:
        factors = point.to(tl.float32)
        own_tile = group * class_tiles + own_class // CLASSES
        column = tl.arange(0, RANK)
        for d in tl.static_range(DIRECTIONS):
            own_row = (own_tile * DIRECTIONS + d) * CLASSES + own_class % CLASSES
            own_noise = tl.load(noise_pointer + own_row[:, None] * RANK + column[None, :])
            terms = factors * own_noise.to(tl.float32)  # (ROWS, RANK)
            is_this = number[None, :] == d
            own_change = tl.where(is_this, tl.sum(terms, axis=1)[:, None], own_change)
            if tied:
                reach = tl.where(is_this, tl.sum(tl.abs(terms), axis=1)[:, None], reach)

    # The extremes, which start at 0, the ratio of the predicted class. The last axis is the thread.
    highest = tl.zeros((ROWS, DIRECTIONS, 4), tl.float32)
    lowest = tl.zeros((ROWS, DIRECTIONS, 4), tl.float32)
    for class_tile in range(0, class_tiles):
        first_column = (group * class_tiles + class_tile) * (DIRECTIONS * CLASSES)
        noise_tile = noise.load([first_column, 0])
        product = tl.dot(point, noise_tile.T, input_precision="ieee")  # (ROWS, 128)
        gap_tile = inverse_gaps.load([top, class_tile * CLASSES])

        # Axes: row, direction, and the class as (pair, thread, one of the pair).
        change = tl.reshape(product, (ROWS, DIRECTIONS, CLASSES // 8, 4, 2))
        gap = tl.reshape(gap_tile, (ROWS, 1, CLASSES // 8, 4, 2))
        if one_class_tile and not tied:
            class_number = tl.reshape(tl.arange(0, CLASSES), (1, 1, CLASSES // 8, 4, 2))
            is_own = class_number == tl.reshape(own_class, (ROWS, 1, 1, 1, 1))
            own_terms = tl.where(is_own, change, 0.0)
            own_change = tl.sum(tl.sum(tl.sum(own_terms, axis=4), axis=2), axis=2)

        difference = change - tl.reshape(own_change, (ROWS, DIRECTIONS, 1, 1, 1))
        if tied:
            # A tied class that moves along, but for rounding, does not flip the row. Both factors
            # become 0 first: 0 * inf would be NaN.
            scale = ROUNDING * tl.reshape(reach, (ROWS, DIRECTIONS, 1, 1, 1))
            stays = (gap == float("inf")) & (tl.abs(difference) <= scale)
            safe_difference = tl.where(stays, 0.0, difference)
            safe_gap = tl.where(stays, 0.0, gap)
            ratio = safe_difference * safe_gap
        else:
            ratio = difference * gap

        highest = tl.maximum(highest, tl.max(tl.max(ratio, axis=4), axis=2))
        lowest = tl.minimum(lowest, tl.min(tl.min(ratio, axis=4), axis=2))

    # The rate of each direction, and that of its opposite.
    direction = (group * DIRECTIONS + number).to(tl.int64)
    output = rates + direction[None, :] * direction_stride + place[:, None]
    is_inside = (place < rows)[:, None]
    tl.store(output, tl.max(highest, axis=2), mask=is_inside)
    tl.store(output + mirror_stride, -tl.min(lowest, axis=2), mask=is_inside)


def invert_gaps(logits: Tensor, classes: int) -> tuple[Tensor, bool]:
    """Replace logits by inverse gaps, and return the predictions and whether any row has a tie.

    Args:
        logits: (n, C or more), changed in place: ``1 / (l_y - l_c)``, 0 at y and after the first C
            columns, infinite for classes that are tied with y.
        classes: C.
    """
    n, columns = logits.shape
    predicted = logits.new_empty((n,), dtype=torch.int32)
    has_tie = logits.new_zeros((), dtype=torch.int32)
    row_tile = 8

    _invert_gaps[(triton.cdiv(n, row_tile),)](
        logits,
        predicted,
        has_tie,
        n,
        classes,
        columns,
        ROUNDING=TIE * torch.finfo(torch.float32).eps,
        ROWS=row_tile,
        COLUMNS=128,
        num_warps=4,
    )
    return predicted, bool(has_tie)


@triton.jit  # type: ignore[untyped-decorator]
def _invert_gaps(
    logits: tl.tensor,  # (rows, columns) float32, changed in place
    predicted: tl.tensor,  # (rows,) int32, output
    has_tie: tl.tensor,  # () int32, set to 1 if any class is tied with the predicted one
    rows: tl.tensor,
    classes: tl.tensor,
    columns: tl.tensor,
    ROUNDING: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
) -> None:
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    is_row = row < rows
    start = logits + row.to(tl.int64) * columns

    # The largest logit, and the scale of rounding.
    largest = tl.full((ROWS,), -float("inf"), tl.float32)
    scale = tl.zeros((ROWS,), tl.float32)
    for first in range(0, classes, COLUMNS):
        column = first + tl.arange(0, COLUMNS)
        mask = is_row[:, None] & (column < classes)[None, :]
        value = tl.load(start[:, None] + column[None, :], mask=mask, other=-float("inf"))
        largest = tl.maximum(largest, tl.max(value, axis=1))
        scale = tl.maximum(scale, tl.max(tl.where(mask, tl.abs(value), 0.0), axis=1))
    tie = scale * ROUNDING
    largest = tl.where(is_row, largest, 0.0)  # -inf - -inf would be NaN

    # The first class within rounding of the largest is the prediction.
    own_class = tl.full((ROWS,), 2147483647, tl.int32)
    zero_gaps = tl.zeros((ROWS,), tl.int32)
    for first in range(0, classes, COLUMNS):
        column = first + tl.arange(0, COLUMNS)
        mask = is_row[:, None] & (column < classes)[None, :]
        value = tl.load(start[:, None] + column[None, :], mask=mask, other=-float("inf"))
        is_zero = mask & (largest[:, None] - value <= tie[:, None])
        zero_gaps += tl.sum(is_zero.to(tl.int32), axis=1)
        own_class = tl.minimum(
            own_class, tl.min(tl.where(is_zero, column[None, :], 2147483647), axis=1)
        )
    tl.store(predicted + row, own_class, mask=is_row)
    is_tied = tl.max(zero_gaps, axis=0) > 1
    tl.atomic_max(has_tie, 1, mask=is_tied)

    for first in range(0, columns, COLUMNS):
        column = first + tl.arange(0, COLUMNS)
        mask = is_row[:, None] & (column < columns)[None, :]
        address = start[:, None] + column[None, :]
        value = tl.load(address, mask=mask, other=0.0)
        gap = largest[:, None] - value
        is_zero = gap <= tie[:, None]
        inverse = tl.where(is_zero, float("inf"), 1.0 / tl.where(is_zero, 1.0, gap))
        is_nothing = (column[None, :] == own_class[:, None]) | (column >= classes)[None, :]
        tl.store(address, tl.where(is_nothing, 0.0, inverse), mask=mask)
