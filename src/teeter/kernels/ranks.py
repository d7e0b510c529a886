"""Ranks of rows by flip rate, one ranking per ray, merged into each row's least count.

The least disagreement that flips a row on a ray is the number of reference rows that flip at the
same strength or earlier: those with an equal or larger flip rate. These functions lower a running
minimum ``least`` of that count, in place, because R rankings of N rows would not fit in memory.

Flip rates that differ only by rounding count as equal. Rows on one line flip together, and rounding
must not separate them.

Most rays lower few counts: a row's count falls about log R times on R rays. So the rates of the
reference rows are sorted without their row numbers, which is several times faster than an argsort,
and each row is compared with the one sorted rate that decides whether its count falls at all. Only
rows that pass are searched for. On a GPU, ``kernels.fused.ranks`` does without the sort.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from teeter.kernels.fused import use_fused_kernel
from teeter.threads import run_in_threads

__all__ = ["lower_among_sorted", "lower_by_own_ranks", "lower_by_reference_ranks"]

_ROWS_WORTH_A_THREAD = 2_000_000
"""With fewer rates, starting threads costs more than they save."""

_EQUAL = 64
"""Rates within this many machine epsilons count as equal."""

_OPERATIONS_PER_RATE = 5_000
"""Rough cost of the rank of one row on one ray, to decide whether a fused kernel pays off."""


def lower_by_own_ranks(least: Tensor, rates: Tensor) -> None:
    """Lower ``least`` to ``#{i : rate_i >= rate_x}``, ranking the rows among themselves.

    Equal rates share the larger count, so a rate of 0 (never flips) counts all rows.

    Args:
        least: (N,) int32, changed in place.
        rates: (R, N), not negative.
    """
    lower_by_reference_ranks(least, rates, rates)


def lower_by_reference_ranks(
    least: Tensor,
    rates: Tensor,
    reference: Tensor,
) -> None:
    """Lower ``least`` to ``#{i : reference_i >= rate_x}``, ranking among other rows.

    Args:
        least: (N,) int32, changed in place.
        rates: (R, N), not negative.
        reference: (R, M) rates of the reference rows on the same rays, not negative.
    """
    if rates.is_cuda:
        _lower_on_gpu(least, rates, reference)
    else:
        _lower_on_cpu(least, rates, reference, is_sorted=False)


def lower_among_sorted(
    least: Tensor,
    rates: Tensor,
    ranks: Tensor,
) -> None:
    """Do what ``lower_by_reference_ranks`` does, with reference rates that are sorted already.

    Args:
        least: (N,) int32, changed in place.
        rates: (R, N), not negative.
        ranks: (R, M) rates of the reference rows, ascending along each ray.
    """
    if rates.is_cuda:
        _lower_by_search(least, rates, ranks)
    else:
        _lower_on_cpu(least, rates, ranks, is_sorted=True)


def _lower_on_gpu(least: Tensor, rates: Tensor, reference: Tensor) -> None:
    operations = _OPERATIONS_PER_RATE * (rates.numel() + reference.numel())
    if rates.dtype == torch.float32 and use_fused_kernel(rates, operations):
        from teeter.kernels.fused.ranks import lower_by_cells

        is_done = lower_by_cells(least, rates, reference, _equality_factor(rates))
        if is_done:
            return

    _lower_by_search(least, rates, reference.sort(dim=1).values)


def _lower_by_search(least: Tensor, rates: Tensor, ranks: Tensor) -> None:
    """Lower ``least`` by a binary search for every row on every ray."""
    M = ranks.shape[1]
    threshold = rates * _equality_factor(rates)  # (R, N)

    # (R, N) reference rates below each threshold; all others are equal or larger.
    below = torch.searchsorted(ranks, threshold, out_int32=True)
    torch.minimum(least, (M - below).amin(dim=0), out=least)


def _equality_factor(rates: Tensor) -> float:
    """Return the factor from a rate to the lowest rate that counts as equal to it."""
    return 1 - _EQUAL * torch.finfo(rates.dtype).eps


def _lower_on_cpu(
    least: Tensor,
    rates: Tensor,
    reference: Tensor,
    *,
    is_sorted: bool,
) -> None:
    """Lower ``least`` with NumPy, whose sort is several times faster than that of torch."""
    counts = least.numpy()  # shares the memory of `least`
    values = rates.numpy()
    reference_values = reference.numpy()
    equality_factor = values.dtype.type(_equality_factor(rates))

    def lower(counts: npt.NDArray[np.int32], rays: range) -> None:
        for ray in rays:
            sorted_rates = reference_values[ray]
            if not is_sorted:
                sorted_rates = np.sort(sorted_rates)
            _lower_by_ray(counts, values[ray] * equality_factor, sorted_rates)

    R = len(values)
    threads = 1
    if values.size + reference_values.size >= _ROWS_WORTH_A_THREAD:
        threads = min(R, torch.get_num_threads())
    if threads == 1:
        lower(counts, range(R))
        return

    # Each thread lowers a copy by its own rays: no two threads write to the same array.
    partial_counts = [counts.copy() for _ in range(threads)]

    def lower_share(share: int) -> None:
        lower(partial_counts[share], range(share, R, threads))

    run_in_threads(lower_share, range(threads))
    for partial in partial_counts:
        np.minimum(counts, partial, out=counts)


def _lower_by_ray(
    counts: npt.NDArray[np.int32],
    thresholds: npt.NDArray[np.floating],
    sorted_rates: npt.NDArray[np.floating],
) -> None:
    """Lower the counts of the rows whose rank on one ray is lower.

    Args:
        counts: (N,) changed in place.
        thresholds: (N,) the lowest rates that count as equal to the rates of the rows.
        sorted_rates: (M,) rates of the reference rows, ascending.
    """
    # A count k falls iff fewer than k reference rates reach the threshold, that is iff the k-th
    # largest does not. A count of 0 cannot fall: it wraps to the first place, and is masked.
    M = len(sorted_rates)
    deciding_rates = sorted_rates.take(M - counts, mode="wrap")
    is_lowered = deciding_rates < thresholds
    is_lowered &= counts > 0

    rows = np.flatnonzero(is_lowered)
    counts[rows] = M - np.searchsorted(sorted_rates, thresholds[rows])
