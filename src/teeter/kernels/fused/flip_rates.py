"""Flip rates of rows on rays: the product with the noise, the ratio to the gaps and both maxima in one pass.

A program holds the changes of some rows' logits along one direction, some classes at a time, and keeps only the largest
and the least ratio: the (directions, classes, rows) changes, which plain torch writes and reads six times, are never in
memory. All of a row's changes are taken against that of its own class: where a program sees all classes at once it is
one of them, and else it is computed first.
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
"""Tiles of rows that run beside each other, so that a direction is read from the cache by all of them."""

ROUNDING = 1e-5
"""Changes of two classes that are this much of their terms apart are equal but for the order of adding up."""


def fill_flip_rates(
    rates: Tensor,
    features: Tensor,
    predicted: Tensor,
    inverse_gaps: Tensor,
    noise: Tensor,
    shifts: Tensor | None,
    *,
    tied: bool,
) -> None:
    """Write the flip rates of n rows along B directions and their mirrors into ``rates``.

    features (n, D) and noise (B, C, D) in one precision, predicted (n,), inverse_gaps (n, C), 0 at the own class and
    infinite where a class is tied, shifts (B, C) or None -> rates (B, 2, n), which may be a part of something larger;
    rows past its n are left out. ``tied`` tells whether any class is.
    """
    directions, classes, width = noise.shape
    rows = rates.shape[2]
    sizes = _sizes(classes, width)
    features, noise = _widened(features, sizes["WIDTH"]), _widened(noise, sizes["WIDTH"])
    gaps = _widened(inverse_gaps, 4)  # what copies tiles wants rows of whole 16 bytes
    _flip_rates[(directions * triton.cdiv(rows, sizes["ROWS"]),)](
        rates,
        TensorDescriptor.from_tensor(features, [sizes["ROWS"], sizes["WIDTH"]]),
        predicted,
        TensorDescriptor.from_tensor(gaps, [sizes["ROWS"], sizes["CLASSES"]]),
        TensorDescriptor.from_tensor(noise.flatten(0, 1), [sizes["CLASSES"], sizes["WIDTH"]]),
        noise,
        noise if shifts is None else shifts.to(torch.float32).contiguous(),
        rows,
        directions,
        classes,
        noise.shape[2],
        rates.stride(0),
        rates.stride(1),
        shifted=shifts is not None,
        tied=tied,
        whole=classes <= sizes["CLASSES"],
        NEIGHBOURS=NEIGHBOURS,
        ROUNDING=ROUNDING,
        **sizes,
    )


def _widened(values: Tensor, multiple: int) -> Tensor:
    """Return ``values`` with zeros after their last axis, up to a multiple: whole tiles need no masks."""
    return torch.nn.functional.pad(values, (0, -values.shape[-1] % multiple)).contiguous()


def _sizes(classes: int, width: int) -> dict[str, Any]:
    """Return the sizes of a tile: fixed ones, for trying several takes longer than a first call may."""
    across = 256 if 128 < classes <= 256 else min(128, max(16, triton.next_power_of_2(classes)))
    return {
        "ROWS": 128,
        "CLASSES": across,
        "WIDTH": min(64, max(16, triton.next_power_of_2(width))),
        "num_warps": 8 if across >= 128 else 4,
        "num_stages": 3,
    }


@triton.jit  # type: ignore[untyped-decorator]
def _flip_rates(
    rates: tl.tensor,
    features: tl.tensor_descriptor,
    predicted: tl.tensor,
    inverse_gaps: tl.tensor_descriptor,
    noise: tl.tensor_descriptor,
    moves: tl.tensor,
    shifts: tl.tensor,
    rows: tl.tensor,
    directions: tl.tensor,
    classes: tl.tensor,
    width: tl.tensor,
    direction_stride: tl.tensor,
    mirror_stride: tl.tensor,
    shifted: tl.constexpr,
    tied: tl.constexpr,
    whole: tl.constexpr,
    ROWS: tl.constexpr,
    CLASSES: tl.constexpr,
    WIDTH: tl.constexpr,
    NEIGHBOURS: tl.constexpr,
    ROUNDING: tl.constexpr,
) -> None:
    tiles = tl.cdiv(rows, ROWS)
    program = tl.program_id(0)
    group = program // (NEIGHBOURS * directions)
    beside = tl.minimum(tiles - group * NEIGHBOURS, NEIGHBOURS)
    within = program % (NEIGHBOURS * directions)
    top = (group * NEIGHBOURS + within % beside) * ROWS
    direction = within // beside
    here = direction.to(tl.int64)

    place = top + tl.arange(0, ROWS)
    row = tl.minimum(place, rows - 1)  # the last row again rather than a mask
    own = tl.load(predicted + row)
    of_own = moves + (here * classes + own)[:, None] * width

    change_of_own = tl.zeros((ROWS,), tl.float32)
    reach = tl.zeros((ROWS,), tl.float32)
    if tied or not whole:
        for k in range(0, width, WIDTH):
            some = features.load([top, k]).to(tl.float32)
            part = some * tl.load(of_own + (k + tl.arange(0, WIDTH))[None, :]).to(tl.float32)
            change_of_own += tl.sum(part, axis=1)
            if tied:
                reach += tl.sum(tl.abs(part), axis=1)
        if shifted:
            change_of_own += tl.load(shifts + here * classes + own)

    highest = tl.zeros((ROWS,), tl.float32)
    lowest = tl.zeros((ROWS,), tl.float32)
    for first in range(0, classes, CLASSES):
        change = tl.zeros((ROWS, CLASSES), tl.float32)
        for k in range(0, width, WIDTH):
            move = noise.load([direction * classes + first, k])
            change = tl.dot(features.load([top, k]), move.T, change, input_precision="ieee")
        name = first + tl.arange(0, CLASSES)
        if shifted:
            change += tl.load(shifts + here * classes + tl.minimum(name, classes - 1))[None, :]
        if whole and not tied:  # the own class is among those at hand
            change_of_own = tl.sum(tl.where(name[None, :] == own[:, None], change, 0.0), axis=1)
        gap = inverse_gaps.load([top, first])  # 0 past the last class, whatever the change is there
        difference = change - change_of_own[:, None]
        if tied:  # a tied class that moves along but for rounding does not flip the row
            stays = (gap == float("inf")) & (tl.abs(difference) <= ROUNDING * reach[:, None])
            ratio = tl.where(
                stays, 0.0, tl.where(stays, 0.0, difference) * tl.where(stays, 0.0, gap)
            )
        else:
            ratio = difference * gap
        highest = tl.maximum(highest, tl.max(ratio, axis=1))
        lowest = tl.minimum(lowest, tl.min(ratio, axis=1))

    to = rates + here * direction_stride + place
    tl.store(to, highest, mask=place < rows)
    tl.store(to + mirror_stride, -lowest, mask=place < rows)
