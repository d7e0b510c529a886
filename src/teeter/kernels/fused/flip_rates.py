"""Flip rates in Triton: the product with the noise, the ratios and both extremes in one pass.

The plain version is ``kernels.ldm._fill_plain``. It writes and reads the (directions, classes,
rows) changes of the logits six times. Here a program computes them for 128 rows and one direction,
some classes at a time, and keeps only the largest and the smallest ratio: the changes never reach
the memory. See README.md.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

__all__ = ["fill_flip_rates"]

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

    features = _pad_columns(features, sizes["WIDTH"])
    noise = _pad_columns(weight_noise, sizes["WIDTH"])
    gaps = _pad_columns(inverse_gaps, 4)  # tensor descriptors need rows of a multiple of 16 bytes
    # Triton has no optional pointers: without a bias any pointer will do, as it is never read.
    shifts = noise if bias_noise is None else bias_noise.to(torch.float32).contiguous()

    grid = (directions * triton.cdiv(n, sizes["ROWS"]),)
    _flip_rates[grid](
        rates,
        TensorDescriptor.from_tensor(features, [sizes["ROWS"], sizes["WIDTH"]]),
        predicted,
        TensorDescriptor.from_tensor(gaps, [sizes["ROWS"], sizes["CLASSES"]]),
        TensorDescriptor.from_tensor(noise.flatten(0, 1), [sizes["CLASSES"], sizes["WIDTH"]]),
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
        one_class_tile=classes <= sizes["CLASSES"],
        NEIGHBOURS=NEIGHBOURS,
        ROUNDING=ROUNDING,
        **sizes,
    )


def _pad_columns(values: Tensor, multiple: int) -> Tensor:
    """Pad the last axis with zeros up to a multiple: whole tiles need no masks."""
    return torch.nn.functional.pad(values, (0, -values.shape[-1] % multiple)).contiguous()


def _tile_sizes(classes: int, width: int) -> dict[str, Any]:
    """Return the tile sizes. They are fixed, because autotuning would slow down the first call."""
    class_tile = min(128, max(16, triton.next_power_of_2(classes)))
    if 128 < classes <= 256:
        class_tile = 256  # all classes in one tile

    return {
        "ROWS": 128,
        "CLASSES": class_tile,
        "WIDTH": min(64, max(16, triton.next_power_of_2(width))),
        "num_warps": 8 if class_tile >= 128 else 4,
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
    # Which tile of rows and which direction: NEIGHBOURS tiles of one direction run side by side.
    tiles = tl.cdiv(rows, ROWS)
    program = tl.program_id(0)
    group = program // (NEIGHBOURS * directions)
    tiles_in_group = tl.minimum(tiles - group * NEIGHBOURS, NEIGHBOURS)
    within = program % (NEIGHBOURS * directions)
    top = (group * NEIGHBOURS + within % tiles_in_group) * ROWS
    direction = within // tiles_in_group
    direction64 = direction.to(tl.int64)  # offsets may exceed 32 bits

    place = top + tl.arange(0, ROWS)
    row = tl.minimum(place, rows - 1)  # past the end: the last row again instead of a mask
    own_class = tl.load(predicted + row)
    own_noise = noise_pointer + (direction64 * classes + own_class)[:, None] * width

    # v_y, the change of the predicted class. If all classes fit in one tile and none is tied, it is
    # found among them below. `reach`, the sum of the absolute terms, is the scale of its rounding.
    own_change = tl.zeros((ROWS,), tl.float32)
    reach = tl.zeros((ROWS,), tl.float32)
    if tied or not one_class_tile:
        for k in range(0, width, WIDTH):
            feature_tile = features.load([top, k]).to(tl.float32)
            own_tile = tl.load(own_noise + (k + tl.arange(0, WIDTH))[None, :]).to(tl.float32)
            terms = feature_tile * own_tile
            own_change += tl.sum(terms, axis=1)
            if tied:
                reach += tl.sum(tl.abs(terms), axis=1)
        if has_bias:
            own_change += tl.load(shifts + direction64 * classes + own_class)

    # The extremes over all classes of (v_c - v_y) / (l_y - l_c), one tile of classes at a time.
    highest = tl.zeros((ROWS,), tl.float32)
    lowest = tl.zeros((ROWS,), tl.float32)
    for first in range(0, classes, CLASSES):
        change = tl.zeros((ROWS, CLASSES), tl.float32)
        for k in range(0, width, WIDTH):
            noise_tile = noise.load([direction * classes + first, k])
            change = tl.dot(features.load([top, k]), noise_tile.T, change, input_precision="ieee")

        class_number = first + tl.arange(0, CLASSES)
        if has_bias:
            bias_noise = shifts + direction64 * classes + tl.minimum(class_number, classes - 1)
            change += tl.load(bias_noise)[None, :]
        if one_class_tile and not tied:
            is_own = class_number[None, :] == own_class[:, None]
            own_change = tl.sum(tl.where(is_own, change, 0.0), axis=1)

        # Past the last class the gap is 0, so whatever the change is there, the ratio is 0.
        gap = inverse_gaps.load([top, first])
        difference = change - own_change[:, None]
        if tied:
            # A tied class that moves along, but for rounding, does not flip the row.
            stays = (gap == float("inf")) & (tl.abs(difference) <= ROUNDING * reach[:, None])
            ratio = tl.where(
                stays, 0.0, tl.where(stays, 0.0, difference) * tl.where(stays, 0.0, gap)
            )
        else:
            ratio = difference * gap
        highest = tl.maximum(highest, tl.max(ratio, axis=1))
        lowest = tl.minimum(lowest, tl.min(ratio, axis=1))

    output = rates + direction64 * direction_stride + place
    tl.store(output, highest, mask=place < rows)
    tl.store(output + mirror_stride, -lowest, mask=place < rows)
