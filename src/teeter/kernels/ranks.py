"""Ranks of rows by flip rate, one ranking per ray, merged into each row's least count.

The least disagreement that flips a row on a ray is the number of reference rows that flip at the
same strength or earlier: those with an equal or larger flip rate. These functions lower a running
minimum ``least`` of that count, in place, because R rankings of N rows would not fit in memory.

Flip rates that differ only by rounding count as equal. Rows on one line flip together, and rounding
must not separate them.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

__all__ = ["lower_among_sorted", "lower_by_own_ranks", "lower_by_reference_ranks"]

_ROWS_WORTH_A_THREAD = 20_000
"""With fewer rows, starting threads costs more than they save."""

_EQUAL = 64
"""Rates within this many machine epsilons count as equal."""

_NEIGHBOUR_STEPS = 10
"""Neighbours compared one by one before a binary search. Nearly all ties are of two or three."""


def lower_by_own_ranks(least: Tensor, rates: Tensor) -> None:
    """Lower ``least`` to ``#{i : rate_i >= rate_x}``, ranking the rows among themselves.

    Equal rates share the larger count, so a rate of 0 (never flips) counts all rows.

    Args:
        least: (N,) int32, changed in place.
        rates: (R, N), not negative.
    """
    if rates.is_cuda or rates.dtype != torch.float32:
        lower_by_reference_ranks(least, rates, rates)
        return

    counts = least.numpy()  # shares the memory of `least`
    values = rates.contiguous().numpy()
    threads = 1
    if values.shape[1] >= _ROWS_WORTH_A_THREAD:
        threads = torch.get_num_threads()
    if threads == 1:
        _lower_by_packed_sort(counts, values)
        return

    # Each thread ranks its own rays into its own copy: no two threads write to the same array.
    ray_shares = [share for share in np.array_split(values, threads) if len(share)]
    partial_counts = [counts.copy() for _ in ray_shares]
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(_lower_by_packed_sort, partial_counts, ray_shares))
    for partial in partial_counts:
        np.minimum(counts, partial, out=counts)


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
    M = reference.shape[1]
    threshold = rates * _equality_factor(rates)  # (R, N)

    # (R, N) reference rates below each threshold; all others are equal or larger.
    below = torch.searchsorted(reference.sort(dim=1).values, threshold, out_int32=True)
    torch.minimum(least, (M - below).amin(dim=0), out=least)


def lower_among_sorted(
    least: Tensor,
    rates: Tensor,
    ranks: Tensor,
) -> None:
    """Do what ``lower_by_reference_ranks`` does, with reference rates that are sorted already.

    Only the rows that a ray lowers are searched for.

    Args:
        least: (N,) int32, changed in place.
        rates: (R, N), not negative.
        ranks: (R, M) rates of the reference rows, ascending along each ray.
    """
    M = ranks.shape[1]
    thresholds = rates * _equality_factor(rates)

    for threshold, sorted_rates in zip(thresholds, ranks, strict=True):
        # The ray lowers a row's count if the reference rate that would keep it is below the row's.
        keeping_place = (M - least).clamp_max_(M - 1)  # (N,) positions in sorted_rates
        keeping_rate = sorted_rates[keeping_place]
        is_lowered = (keeping_rate < threshold).logical_and_(least > 0)
        rows = is_lowered.nonzero().squeeze(1)

        counts = M - torch.searchsorted(sorted_rates, threshold[rows], out_int32=True)
        least[rows] = torch.minimum(least[rows], counts)


def _equality_factor(rates: Tensor) -> float:
    """Return the factor from a rate to the lowest rate that counts as equal to it."""
    return 1 - _EQUAL * torch.finfo(rates.dtype).eps


def _lower_by_packed_sort(least: npt.NDArray[np.int32], rates: npt.NDArray[np.float32]) -> None:
    """Rank rows by sorting (rate, row) pairs packed into one 64-bit integer each.

    The bits of non-negative floats are in the same order as the floats, so one integer sort, which
    is faster than an argsort, gives the rates and the permutation.
    """
    N = rates.shape[1]
    row_numbers = np.arange(N, dtype=np.int64)
    count = np.empty(N, dtype=np.int32)

    for rate in rates:
        # The rate in the upper half of the bits, the row in the lower.
        keys = rate.view(np.int32).astype(np.int64)
        keys <<= 32
        keys |= row_numbers
        keys.sort()

        sorted_bits = (keys >> 32).astype(np.int32)
        order = keys & 0xFFFFFFFF
        count[order] = _counts_from_the_top(sorted_bits)
        np.minimum(least, count, out=least)


def _counts_from_the_top(sorted_bits: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """Return how many values are at least as large, up to rounding: (N,) ascending -> (N,)."""
    N = len(sorted_bits)
    rates = sorted_bits.view(np.float32)
    equality_factor = np.float32(1 - _EQUAL * np.finfo(np.float32).eps)
    threshold = rates * equality_factor

    # The position of the first value that counts as equal to each value: itself, unless its left
    # neighbour does. `tied` are the positions whose neighbour `step - 1` places to the left is
    # equal, so that their first position moves on by one.
    first = np.arange(N, dtype=np.int32)
    tied = np.flatnonzero(rates[:-1] >= threshold[1:]) + 1
    for step in range(2, _NEIGHBOUR_STEPS):
        if not len(tied):
            return N - first

        first[tied] -= 1
        tied = tied[tied >= step]  # those that have a neighbour `step` places to the left
        is_still_tied = rates[tied - step] >= threshold[tied]
        tied = tied[is_still_tied]

    # The few long ties.
    first[tied] = np.searchsorted(rates, threshold[tied])
    return N - first
