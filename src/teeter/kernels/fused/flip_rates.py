"""Flip rates in Triton: the product with the noise, the ratios and both extremes in one pass.

The plain version is ``kernels.flip_rates._fill_plain``. It writes and reads the (directions,
classes, rows) changes of the logits six times. Here a program computes them for 128 rows and one
direction, some classes at a time, and keeps only the largest and the smallest ratio: the changes
never reach the memory. See README.md.

How a program works
-------------------
For its rows, its direction and each row's predicted class y it computes, with v the changes of the
logits along the direction and l the logits,

    highest, lowest = the extremes over classes c of (v_c - v_y) / (l_y - l_c)

1. Find which rows and which direction are its own.
2. If necessary, compute v_y by a gather (``own_change``).
3. For each tile of classes: v_c as a product on tensor cores (``change``), then the ratios, then
   the running extremes.
4. Store both extremes: the flip rates of the direction and of its opposite.

The only memory that is written is ``rates``, each entry by one program: no two programs share
anything that changes.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

NEIGHBOURS = 8
"""Tiles of rows whose programs run side by side, to share a direction in the cache."""

ROUNDING = 1e-5
"""Changes of two classes are equal if they differ by less than this share of the terms they sum."""


def fill_flip_rates(
    rates: Tensor,
    features: Tensor,
    predicted: Tensor,
    inverse_gaps: Tensor,
    weight_noise: Tensor,
    bias_noise: Tensor | None,
    *,
    tied: bool,
) -> None:
    """Write the flip rates of n rows along B directions and their opposites into ``rates``.

    Args:
        rates: (B, 2, n) output; may be a slice of a larger tensor.
        features: (n or more, D); rows after the first n are padding.
        predicted: (n or more,) predicted class of each row.
        inverse_gaps: (n or more, C) ``1 / (l_y - l_c)``: 0 at the predicted class, infinite for
            ties.
        weight_noise: (B, C, D) in the precision of ``features``.
        bias_noise: (B, C), or None for a head without a bias.
        tied: whether any entry of ``inverse_gaps`` is infinite.
    """
    directions, classes, width = weight_noise.shape
    n = rates.shape[2]
    sizes = _tile_sizes(classes, width)
    row_tile = sizes["ROWS"]
    class_tile = sizes["CLASSES"]
    width_tile = sizes["WIDTH"]

    features = _pad_columns(features, width_tile)
    noise = _pad_columns(weight_noise, width_tile)
    gaps = _pad_columns(inverse_gaps, 4)  # tensor descriptors need rows of a multiple of 16 bytes

    # Triton has no optional pointers: without a bias any pointer will do, as it is never read.
    shifts = noise
    if bias_noise is not None:
        shifts = bias_noise.to(torch.float32).contiguous()

    # A program for each direction and tile of rows.
    grid = (directions * triton.cdiv(n, row_tile),)
    _flip_rates[grid](
        rates,
        TensorDescriptor.from_tensor(features, [row_tile, width_tile]),
        predicted,
        TensorDescriptor.from_tensor(gaps, [row_tile, class_tile]),
        TensorDescriptor.from_tensor(noise.flatten(0, 1), [class_tile, width_tile]),
        noise,
        shifts,
        n,
        directions,
        classes,
        noise.shape[2],
        rates.stride(0),
        rates.stride(1),
        has_bias=bias_noise is not None,
        tied=tied,
        one_class_tile=classes <= class_tile,
        NEIGHBOURS=NEIGHBOURS,
        ROUNDING=ROUNDING,
        **sizes,
    )


def _pad_columns(values: Tensor, multiple: int) -> Tensor:
    """Pad the last axis with zeros up to a multiple: whole tiles need no masks."""
    missing = -values.shape[-1] % multiple
    return torch.nn.functional.pad(values, (0, missing)).contiguous()


def _tile_sizes(classes: int, width: int) -> dict[str, Any]:
    """Return the tile sizes. They are fixed, because autotuning would slow down the first call."""
    # Tensor cores take powers of 2 from 16 on.
    class_tile = min(128, max(16, triton.next_power_of_2(classes)))
    if 128 < classes <= 256:
        class_tile = 256  # all classes in one tile
    width_tile = min(64, max(16, triton.next_power_of_2(width)))

    # The (128, CLASSES) changes are spread over the registers of all warps.
    warps = 4
    if class_tile >= 128:
        warps = 8

    return {
        "ROWS": 128,
        "CLASSES": class_tile,
        "WIDTH": width_tile,
        "num_warps": warps,
        "num_stages": 3,
    }


@triton.jit  # type: ignore[untyped-decorator]
def _flip_rates(
    rates: tl.tensor,  # (directions, 2, rows) float32, by the two strides below
    features: tl.tensor_descriptor,  # (rows, width), tiles of (ROWS, WIDTH)
    predicted: tl.tensor,  # (rows,) int64
    inverse_gaps: tl.tensor_descriptor,  # (rows, classes) float32, tiles of (ROWS, CLASSES)
    noise: tl.tensor_descriptor,  # (directions * classes, width), tiles of (CLASSES, WIDTH)
    noise_pointer: tl.tensor,  # the same noise, to gather single rows of it
    shifts: tl.tensor,  # (directions, classes) float32 bias noise, read only if has_bias
    rows: tl.tensor,
    directions: tl.tensor,
    classes: tl.tensor,
    width: tl.tensor,  # D, padded to whole tiles
    direction_stride: tl.tensor,
    mirror_stride: tl.tensor,
    has_bias: tl.constexpr,
    tied: tl.constexpr,
    one_class_tile: tl.constexpr,
    ROWS: tl.constexpr,
    CLASSES: tl.constexpr,
    WIDTH: tl.constexpr,
    NEIGHBOURS: tl.constexpr,
    ROUNDING: tl.constexpr,
) -> None:
    # 1. Which tile of rows and which direction: NEIGHBOURS tiles of one direction run side by side.
    # The last group may have fewer tiles.
    tiles = tl.cdiv(rows, ROWS)
    program = tl.program_id(0)
    group = program // (NEIGHBOURS * directions)
    tiles_in_group = tl.minimum(tiles - group * NEIGHBOURS, NEIGHBOURS)
    within = program % (NEIGHBOURS * directions)
    top = (group * NEIGHBOURS + within % tiles_in_group) * ROWS
    direction = within // tiles_in_group
    direction64 = direction.to(tl.int64)  # offsets may exceed 32 bits

    # (ROWS,) each. Past the end: the last row again instead of a mask.
    place = top + tl.arange(0, ROWS)
    row = tl.minimum(place, rows - 1)
    own_class = tl.load(predicted + row)
    own_noise_row = direction64 * classes + own_class
    own_noise = noise_pointer + own_noise_row[:, None] * width

    # 2. v_y, the change of the predicted class. If all classes fit in one tile and none is tied, it
    # is found among them below. `reach`, the sum of the absolute terms, is the scale of its
    # rounding.
    own_change = tl.zeros((ROWS,), tl.float32)
    reach = tl.zeros((ROWS,), tl.float32)
    if tied or not one_class_tile:
        for k in range(0, width, WIDTH):
            feature_tile = features.load([top, k]).to(tl.float32)
            column = k + tl.arange(0, WIDTH)
            own_tile = tl.load(own_noise + column[None, :]).to(tl.float32)
            terms = feature_tile * own_tile  # (ROWS, WIDTH)
            own_change += tl.sum(terms, axis=1)
            if tied:
                reach += tl.sum(tl.abs(terms), axis=1)
        if has_bias:
            own_change += tl.load(shifts + direction64 * classes + own_class)

    # 3. The extremes over all classes of (v_c - v_y) / (l_y - l_c), one tile of classes at a time.
    # They start at 0, the ratio of the predicted class itself.
    highest = tl.zeros((ROWS,), tl.float32)
    lowest = tl.zeros((ROWS,), tl.float32)
    for first in range(0, classes, CLASSES):
        # v_c: products with the noise of these classes, WIDTH features at a time.
        change = tl.zeros((ROWS, CLASSES), tl.float32)
        for k in range(0, width, WIDTH):
            noise_tile = noise.load([direction * classes + first, k])
            change = tl.dot(features.load([top, k]), noise_tile.T, change, input_precision="ieee")

        class_number = first + tl.arange(0, CLASSES)
        if has_bias:
            bias_pointer = shifts + direction64 * classes + tl.minimum(class_number, classes - 1)
            change += tl.load(bias_pointer)[None, :]
        if one_class_tile and not tied:
            is_own = class_number[None, :] == own_class[:, None]
            own_change = tl.sum(tl.where(is_own, change, 0.0), axis=1)

        # Past the last class the gap is 0, so whatever the change is there, the ratio is 0.
        gap = inverse_gaps.load([top, first])
        difference = change - own_change[:, None]
        if tied:
            # A tied class that moves along, but for rounding, does not flip the row. Both factors
            # become 0 first: 0 * inf would be NaN.
            is_tied = gap == float("inf")
            stays = is_tied & (tl.abs(difference) <= ROUNDING * reach[:, None])
            safe_difference = tl.where(stays, 0.0, difference)
            safe_gap = tl.where(stays, 0.0, gap)
            ratio = tl.where(stays, 0.0, safe_difference * safe_gap)
        else:
            ratio = difference * gap
        highest = tl.maximum(highest, tl.max(ratio, axis=1))
        lowest = tl.minimum(lowest, tl.min(ratio, axis=1))

    # 4. The rate of the direction, and that of its opposite.
    output = rates + direction64 * direction_stride + place
    tl.store(output, highest, mask=place < rows)
    tl.store(output + mirror_stride, -lowest, mask=place < rows)
