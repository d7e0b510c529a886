"""Flip rates of rows on rays: the product with the noise, the ratio to the gaps and both maxima in one pass.

A program holds the changes of some rows' logits along one direction, some classes at a time, and keeps only the largest
and the least ratio: the (directions, classes, rows) changes, which plain torch writes and reads six times, are never in
memory. A row's own class comes first, for all its changes are taken against that one.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

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

    features (n, D) and noise (B, C, D) in one precision, predicted (n,), inverse_gaps (C, n), 0 at the own class and
    infinite where a class is tied, shifts (B, C) or None -> rates (B, 2, n), which may be a part of something larger.
    ``tied`` tells whether any class is.
    """
    directions, classes, width = noise.shape
    rows = rates.shape[2]
    sizes = _sizes(classes, width)
    grid = (directions * triton.cdiv(rows, sizes["ROWS"]),)
    _flip_rates[grid](
        rates,
        features.contiguous(),
        predicted,
        inverse_gaps.contiguous(),
        noise.contiguous(),
        noise if shifts is None else shifts.to(torch.float32).contiguous(),
        rows,
        directions,
        inverse_gaps.shape[1],
        rates.stride(0),
        rates.stride(1),
        classes=classes,
        width=width,
        shifted=shifts is not None,
        tied=tied,
        NEIGHBOURS=NEIGHBOURS,
        ROUNDING=ROUNDING,
        **sizes,
    )


def _sizes(classes: int, width: int) -> dict[str, Any]:
    """Return the sizes of a tile: fixed ones, for trying several takes longer than a first call may."""
    across = 128 if classes > 64 else max(16, triton.next_power_of_2(classes))
    return {
        "ROWS": 128,
        "CLASSES": across,
        "WIDTH": 64 if width >= 64 else max(16, triton.next_power_of_2(width)),
        "num_warps": 8 if across == 128 else 4,
        "num_stages": 3,
    }


@triton.jit  # type: ignore[untyped-decorator]
def _flip_rates(
    rates: Any,
    features: Any,
    predicted: Any,
    inverse_gaps: Any,
    noise: Any,
    shifts: Any,
    rows: Any,
    directions: Any,
    gap_stride: Any,
    direction_stride: Any,
    mirror_stride: Any,
    classes: tl.constexpr,
    width: tl.constexpr,
    shifted: tl.constexpr,
    tied: tl.constexpr,
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
    tile = group * NEIGHBOURS + within % beside
    direction = (within // beside).to(tl.int64)

    row = (tile * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    inside = row < rows
    own = tl.load(predicted + row, mask=inside, other=0).to(tl.int64)
    moves = noise + direction * classes * width

    change_of_own = tl.zeros((ROWS,), tl.float32)
    reach = tl.zeros((ROWS,), tl.float32)
    for k in range(0, width, WIDTH):
        column = k + tl.arange(0, WIDTH)
        there = inside[:, None] & (column < width)[None, :]
        some = tl.load(features + row[:, None] * width + column[None, :], mask=there, other=0.0)
        move = tl.load(moves + own[:, None] * width + column[None, :], mask=there, other=0.0)
        part = some.to(tl.float32) * move.to(tl.float32)
        change_of_own += tl.sum(part, axis=1)
        if tied:
            reach += tl.sum(tl.abs(part), axis=1)
    if shifted:
        change_of_own += tl.load(shifts + direction * classes + own)

    highest = tl.zeros((ROWS,), tl.float32)
    lowest = tl.zeros((ROWS,), tl.float32)
    for first in range(0, classes, CLASSES):
        name = first + tl.arange(0, CLASSES)
        known = name < classes
        change = tl.zeros((ROWS, CLASSES), tl.float32)
        for k in range(0, width, WIDTH):
            column = k + tl.arange(0, WIDTH)
            there = inside[:, None] & (column < width)[None, :]
            some = tl.load(features + row[:, None] * width + column[None, :], mask=there, other=0.0)
            wanted = (column < width)[:, None] & known[None, :]
            move = tl.load(moves + name[None, :] * width + column[:, None], mask=wanted, other=0.0)
            change = tl.dot(some, move, change, input_precision="ieee")
        if shifted:
            change += tl.load(shifts + direction * classes + name, mask=known, other=0.0)[None, :]
        both = inside[:, None] & known[None, :]
        gap = tl.load(inverse_gaps + name[None, :].to(tl.int64) * gap_stride + row[:, None], mask=both, other=0.0)
        difference = change - change_of_own[:, None]
        if tied:  # a tied class that moves along but for rounding does not flip the row
            stays = (gap == float("inf")) & (tl.abs(difference) <= ROUNDING * reach[:, None])
            ratio = tl.where(stays, 0.0, tl.where(stays, 0.0, difference) * tl.where(stays, 0.0, gap))
        else:
            ratio = difference * gap
        highest = tl.maximum(highest, tl.max(ratio, axis=1))
        lowest = tl.minimum(lowest, tl.min(ratio, axis=1))

    to = rates + direction * direction_stride + row
    tl.store(to, highest, mask=inside)
    tl.store(to + mirror_stride, -lowest, mask=inside)
