"""Ranks of rows among reference rows without a sort: each is counted among those that are nearly equal.

The bits of floats that are not negative are in the floats' order. Their upper half is a coarse cell; a cell of k
reference rows is cut into k fine ones by the lower half, so that a fine cell holds about one row whatever the rates are
like. What is at or above a bar is then all of the cells above the bar's, and those of its own cell that are not below.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from teeter.arrays import budget

__all__ = ["lower_by_counts"]

CELLS, CROWD = 1 << 15, 64
"""Coarse cells: the upper 16 bits without the sign; how many rows a fine cell may hold."""
ROWS, RAYS = 1024, 8
"""Rows and rays of a program."""


def lower_by_counts(least: Tensor, bars: Tensor, reference: Tensor) -> bool:
    """Lower ``least`` in place to ``#{i : reference_i >= bar_x}`` where that is less on some ray.

    least (N,) int32, bars (R, N) and reference (R, M) float32, not negative -> whether it was done: where many rates
    are equal, as those of copies, ranks are better sorted, and ``least`` is as it was, or lower by some rays.
    """
    size = reference.shape[1]
    rays = max(1, budget(reference.device) // (16 * size + 8 * CELLS))
    for start in range(0, len(bars), rays):
        where = slice(start, start + rays)
        if not _lower(least, bars[where].contiguous(), reference[where].contiguous()):
            return False
    return True


def _lower(least: Tensor, bars: Tensor, reference: Tensor) -> bool:
    rays, size = reference.shape
    blocks = (triton.cdiv(size, ROWS), rays)
    coarse = torch.zeros((rays, CELLS), dtype=torch.int32, device=reference.device)
    _count_coarse[blocks](coarse, reference, size, CELLS=CELLS, ROWS=ROWS)
    coarse_starts = coarse.cumsum(dim=1, dtype=torch.int32) - coarse
    fine = torch.zeros((rays, size), dtype=torch.int32, device=reference.device)
    places = torch.empty_like(fine)
    _count_fine[blocks](fine, places, coarse, coarse_starts, reference, size, CELLS=CELLS, ROWS=ROWS)
    if int(fine.max()) > CROWD:
        return False
    starts = fine.cumsum(dim=1, dtype=torch.int32) - fine
    members = torch.empty_like(reference)
    _place[blocks](members, places, starts, coarse, coarse_starts, reference, size, CELLS=CELLS, ROWS=ROWS)
    _lower_least[(triton.cdiv(bars.shape[1], ROWS), triton.cdiv(rays, RAYS))](
        least,
        bars,
        members,
        fine,
        starts,
        coarse,
        coarse_starts,
        rays,
        bars.shape[1],
        size,
        CELLS=CELLS,
        ROWS=ROWS,
        RAYS=RAYS,
    )
    return True


@triton.jit  # type: ignore[untyped-decorator]
def _cell(value: Any, coarse: Any, coarse_starts: Any, inside: Any) -> Any:
    """Return the fine cell of positive values, which rises with them."""
    bits = value.to(tl.int32, bitcast=True)
    upper, lower = bits >> 16, bits & 0xFFFF
    held = tl.load(coarse + upper, mask=inside, other=0)
    start = tl.load(coarse_starts + upper, mask=inside, other=0)
    return start + ((lower.to(tl.int64) * held) >> 16).to(tl.int32)


@triton.jit  # type: ignore[untyped-decorator]
def _known(coarse: Any, coarse_starts: Any, reference: Any, row: Any, size: Any) -> tuple[Any, Any, Any]:
    """Return reference rows' rates on a ray, which of them are positive, and these ones' fine cells."""
    value = tl.load(reference + row, mask=row < size, other=0.0)
    inside = value > 0
    return value, inside, _cell(value, coarse, coarse_starts, inside)


@triton.jit  # type: ignore[untyped-decorator]
def _count_coarse(coarse: Any, reference: Any, size: Any, CELLS: tl.constexpr, ROWS: tl.constexpr) -> None:
    ray = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    value = tl.load(reference + ray * size + row, mask=row < size, other=0.0)
    upper = value.to(tl.int32, bitcast=True) >> 16
    tl.atomic_add(coarse + ray * CELLS + upper, 1, mask=value > 0)


@triton.jit  # type: ignore[untyped-decorator]
def _count_fine(
    fine: Any,
    places: Any,
    coarse: Any,
    coarse_starts: Any,
    reference: Any,
    size: Any,
    CELLS: tl.constexpr,
    ROWS: tl.constexpr,
) -> None:
    ray = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    _, inside, cell = _known(coarse + ray * CELLS, coarse_starts + ray * CELLS, reference + ray * size, row, size)
    place = tl.atomic_add(fine + ray * size + cell, 1, mask=inside)
    tl.store(places + ray * size + row, place, mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def _place(
    members: Any,
    places: Any,
    starts: Any,
    coarse: Any,
    coarse_starts: Any,
    reference: Any,
    size: Any,
    CELLS: tl.constexpr,
    ROWS: tl.constexpr,
) -> None:
    ray = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    value, inside, cell = _known(coarse + ray * CELLS, coarse_starts + ray * CELLS, reference + ray * size, row, size)
    start = tl.load(starts + ray * size + cell, mask=inside, other=0)
    place = tl.load(places + ray * size + row, mask=inside, other=0)
    tl.store(members + ray * size + start + place, value, mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def _lower_least(
    least: Any,
    bars: Any,
    members: Any,
    fine: Any,
    starts: Any,
    coarse: Any,
    coarse_starts: Any,
    rays: Any,
    rows: Any,
    size: Any,
    CELLS: tl.constexpr,
    ROWS: tl.constexpr,
    RAYS: tl.constexpr,
) -> None:
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = row < rows
    known = tl.load(least + row, mask=inside, other=0)  # others may lower it meanwhile: what is read is no less
    first = tl.program_id(1) * RAYS
    for ray in range(first, tl.minimum(first + RAYS, rays)):
        here = tl.cast(ray, tl.int64)
        bar = tl.load(bars + here * rows + row, mask=inside, other=0.0)
        asked = inside & (bar > 0)  # a bar of 0 is reached by all rows, which is no news
        last = tl.load(coarse_starts + here * CELLS + CELLS - 1) + tl.load(coarse + here * CELLS + CELLS - 1)
        cell = tl.minimum(_cell(bar, coarse + here * CELLS, coarse_starts + here * CELLS, asked), size - 1)
        held = tl.load(fine + here * size + cell, mask=asked, other=0)
        start = tl.load(starts + here * size + cell, mask=asked, other=0)
        count = last - start - held
        asked = asked & (count < known)
        for place in range(0, tl.max(tl.where(asked, held, 0))):
            one = tl.load(members + here * size + start + place, mask=asked & (place < held), other=-1.0)
            count += (one >= bar).to(tl.int32)
        known = tl.where(asked, tl.minimum(known, count), known)
    tl.atomic_min(least + row, known, mask=inside)
