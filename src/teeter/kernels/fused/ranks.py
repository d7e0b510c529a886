"""Ranks of rows by flip rate in Triton, by counting in cells instead of sorting.

The plain version is ``kernels.ranks._lower_by_search``: sort the rates of every ray, then search
for every row. Both results are exact and equal.

How it works
------------
The bits of non-negative floats are in the order of the floats. Their upper bits are a *cell*:
with 13 of them, 32 cells for each power of 2. Per ray:

1. ``_count_cells`` counts the reference rates in every cell. A running sum (torch) gives where
   each cell starts in the order of rates, and so for every row an upper and a lower bound of its
   count: with all of its own cell, and with none of it.
2. ``_group_by_cell`` moves the rates to their cells, in any order inside a cell.
3. ``_lower_bounds`` takes the smallest upper bound of each row over all rays.
4. ``_find_candidates`` lists the few (ray, row) whose lower bound is below that: only they can
   give the row's least count. They are about two rays for each row, of hundreds.
5. ``_count_exactly`` reads the cell of each of these and counts.

Where rates crowd in few cells, as on pools of copies, the last step would have to read too much.
Then nothing is changed and the caller sorts.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

ROWS = 512
"""Rows of a program."""

RAYS = 32
"""Rays of a program that goes through several."""

LANES = 64
"""Rates of a cell that are compared at once."""

CANDIDATES = 8
"""Candidates of a program at a time."""

READER_PROGRAMS = 4096
"""Programs that share the list of candidates."""

CANDIDATES_PER_ROW = 32
"""Most candidates for each row on average; with more, sorting is faster."""

MOST_READS = 64
"""Most rates that candidates read, relative to all rates; with more, sorting is faster."""


def lower_by_cells(
    least: Tensor,
    rates: Tensor,
    reference: Tensor,
    equality_factor: float,
) -> bool:
    """Lower ``least`` to ``#{i : reference_i >= rate_x * equality_factor}`` over all rays.

    Args:
        least: (N,) int32, changed in place.
        rates: (R, N) float32, not negative.
        reference: (R, M) float32, not negative.
        equality_factor: factor from a rate to the lowest rate that counts as equal.

    Returns:
        Whether it was done. If not, ``least`` is as it was.
    """
    R, N = rates.shape
    M = reference.shape[1]
    device = rates.device
    rates = rates.contiguous()
    reference = reference.contiguous()
    shift = _cell_shift(M)
    cells = 1 << (31 - shift)

    # (R, cells + 1): after the running sum, how many rates are in the cells before each.
    counts = torch.zeros((R, cells + 1), dtype=torch.int32, device=device)
    # Neighbouring programs take different rays: those of one ray would wait for the same counters.
    reference_grid = (R, triton.cdiv(M, ROWS))
    _count_cells[reference_grid](counts, reference, M, cells + 1, SHIFT=shift, ROWS=ROWS)
    starts = counts.cumsum(dim=1, dtype=torch.int32)

    grouped = torch.empty_like(reference)
    cursors = starts.clone()
    _group_by_cell[reference_grid](
        grouped, cursors, reference, M, cells + 1, SHIFT=shift, ROWS=ROWS
    )

    bounds = least.clone()
    row_grid = (triton.cdiv(N, ROWS), triton.cdiv(R, RAYS))
    sizes = {"SHIFT": shift, "ROWS": ROWS, "RAYS": RAYS}
    factor = {"equality_factor": equality_factor}
    _lower_bounds[row_grid](bounds, rates, starts, N, M, R, cells + 1, **factor, **sizes)

    # (2,): the number of candidates, and of the rates that they have to read.
    totals = torch.zeros((2,), dtype=torch.int64, device=device)
    capacity = CANDIDATES_PER_ROW * N
    candidates = torch.empty((capacity,), dtype=torch.int64, device=device)
    _find_candidates[row_grid](
        candidates, totals, bounds, rates, starts, N, M, R, cells + 1, capacity, **factor, **sizes
    )
    candidate_count, reads = totals.tolist()
    if candidate_count > capacity or reads > MOST_READS * R * (N + M):
        return False

    # Right where the cell of the best ray is empty, and too large only where candidates follow.
    torch.minimum(least, bounds, out=least)
    programs = min(READER_PROGRAMS, triton.cdiv(candidate_count, CANDIDATES))
    if programs:
        _count_exactly[(programs,)](
            least,
            candidates,
            rates,
            grouped,
            starts,
            candidate_count,
            N,
            M,
            cells + 1,
            programs,
            **factor,
            SHIFT=shift,
            CANDIDATES=CANDIDATES,
            LANES=LANES,
        )
    return True


def _cell_shift(M: int) -> int:
    """Return the lower bits of a rate that its cell leaves out: fewer cells for fewer rates."""
    if M >= 400_000:
        return 16
    return 18


@triton.jit  # type: ignore[untyped-decorator]
def _cell_of(rate: tl.tensor, SHIFT: tl.constexpr) -> tl.tensor:
    """Return the cells of rates. A rate of -0.0 is one of 0."""
    bits = tl.maximum(rate, 0.0).to(tl.int32, bitcast=True) & 0x7FFFFFFF
    return bits >> SHIFT


@triton.jit  # type: ignore[untyped-decorator]
def _count_cells(
    counts: tl.tensor,  # (rays, width) int32, raised at cell + 1
    reference: tl.tensor,  # (rays, rows) float32
    rows: tl.tensor,
    width: tl.tensor,
    SHIFT: tl.constexpr,
    ROWS: tl.constexpr,
) -> None:
    ray = tl.program_id(0).to(tl.int64)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    is_row = row < rows
    rate = tl.load(reference + ray * rows + row, mask=is_row, other=0.0)
    tl.atomic_add(counts + ray * width + _cell_of(rate, SHIFT) + 1, 1, mask=is_row, sem="relaxed")


@triton.jit  # type: ignore[untyped-decorator]
def _group_by_cell(
    grouped: tl.tensor,  # (rays, rows) float32, output
    cursors: tl.tensor,  # (rays, width) int32, the next free place of each cell
    reference: tl.tensor,  # (rays, rows) float32
    rows: tl.tensor,
    width: tl.tensor,
    SHIFT: tl.constexpr,
    ROWS: tl.constexpr,
) -> None:
    ray = tl.program_id(0).to(tl.int64)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    is_row = row < rows
    rate = tl.load(reference + ray * rows + row, mask=is_row, other=0.0)
    cursor = cursors + ray * width + _cell_of(rate, SHIFT)
    place = tl.atomic_add(cursor, 1, mask=is_row, sem="relaxed")
    tl.store(grouped + ray * rows + place, rate, mask=is_row)


@triton.jit  # type: ignore[untyped-decorator]
def _lower_bounds(
    bounds: tl.tensor,  # (rows,) int32, lowered to the smallest upper bound
    rates: tl.tensor,  # (rays, rows) float32
    starts: tl.tensor,  # (rays, width) int32
    rows: tl.tensor,
    reference_rows: tl.tensor,
    rays: tl.tensor,
    width: tl.tensor,
    equality_factor: tl.constexpr,
    SHIFT: tl.constexpr,
    ROWS: tl.constexpr,
    RAYS: tl.constexpr,
) -> None:
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    is_row = row < rows
    bound = tl.full((ROWS,), 2147483647, tl.int32)
    first_ray = tl.program_id(1) * RAYS
    for step in range(0, tl.minimum(RAYS, rays - first_ray)):
        ray = first_ray.to(tl.int64) + step  # offsets may exceed 32 bits
        rate = tl.load(rates + ray * rows + row, mask=is_row, other=0.0)
        cell = _cell_of(rate * equality_factor, SHIFT)
        start = tl.load(starts + ray * width + cell)
        bound = tl.minimum(bound, reference_rows - start)
    tl.atomic_min(bounds + row, bound, mask=is_row, sem="relaxed")


@triton.jit  # type: ignore[untyped-decorator]
def _find_candidates(
    candidates: tl.tensor,  # (capacity,) int64, ray * rows + row of each
    totals: tl.tensor,  # (2,) int64: candidates, and rates that they read
    bounds: tl.tensor,  # (rows,) int32
    rates: tl.tensor,  # (rays, rows) float32
    starts: tl.tensor,  # (rays, width) int32
    rows: tl.tensor,
    reference_rows: tl.tensor,
    rays: tl.tensor,
    width: tl.tensor,
    capacity: tl.tensor,
    equality_factor: tl.constexpr,
    SHIFT: tl.constexpr,
    ROWS: tl.constexpr,
    RAYS: tl.constexpr,
) -> None:
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    is_row = row < rows
    bound = tl.load(bounds + row, mask=is_row, other=0)
    first_ray = tl.program_id(1) * RAYS
    for step in range(0, tl.minimum(RAYS, rays - first_ray)):
        ray = first_ray.to(tl.int64) + step  # offsets may exceed 32 bits
        rate = tl.load(rates + ray * rows + row, mask=is_row, other=0.0)
        cell = _cell_of(rate * equality_factor, SHIFT)
        start_address = starts + ray * width + cell
        end = tl.load(start_address + 1)

        # A row that never flips counts all rows, which lowers nothing.
        is_candidate = is_row & (rate > 0) & (reference_rows - end < bound)
        new_candidates = tl.sum(is_candidate.to(tl.int32), axis=0)
        if new_candidates > 0:
            start = tl.load(start_address)
            reads = tl.sum(tl.where(is_candidate, end - start, 0).to(tl.int64), axis=0)
            tl.atomic_add(totals + 1, reads, sem="relaxed")
            first_place = tl.atomic_add(totals, new_candidates.to(tl.int64), sem="relaxed")
            place = first_place + tl.cumsum(is_candidate.to(tl.int32), axis=0) - 1
            has_room = is_candidate & (place < capacity)
            tl.store(candidates + place, ray * rows + row, mask=has_room)


@triton.jit  # type: ignore[untyped-decorator]
def _count_exactly(
    least: tl.tensor,  # (rows,) int32, lowered
    candidates: tl.tensor,  # (count,) int64
    rates: tl.tensor,  # (rays, rows) float32
    grouped: tl.tensor,  # (rays, reference rows) float32
    starts: tl.tensor,  # (rays, width) int32
    count: tl.tensor,
    rows: tl.tensor,
    reference_rows: tl.tensor,
    width: tl.tensor,
    programs: tl.tensor,
    equality_factor: tl.constexpr,
    SHIFT: tl.constexpr,
    CANDIDATES: tl.constexpr,
    LANES: tl.constexpr,
) -> None:
    for first in range(tl.program_id(0) * CANDIDATES, count, programs * CANDIDATES):
        number = first + tl.arange(0, CANDIDATES)
        is_candidate = number < count
        candidate = tl.load(candidates + number, mask=is_candidate, other=0)
        ray = candidate // rows
        row = candidate % rows
        threshold = tl.load(rates + candidate) * equality_factor
        start_address = starts + ray * width + _cell_of(threshold, SHIFT)
        start = tl.load(start_address)
        end = tl.load(start_address + 1)

        # All rates in the cells above, and those of this cell that reach the threshold.
        reaching = reference_rows - end
        longest = tl.max(tl.where(is_candidate, end - start, 0), axis=0)
        for offset in range(0, longest, LANES):
            place = start[:, None] + offset + tl.arange(0, LANES)[None, :]
            is_inside = place < end[:, None]
            address = grouped + ray[:, None] * reference_rows + place
            rate = tl.load(address, mask=is_inside, other=-1.0)
            reaches = is_inside & (rate >= threshold[:, None])
            reaching += tl.sum(reaches.to(tl.int32), axis=1)
        tl.atomic_min(least + row, reaching, mask=is_candidate, sem="relaxed")
