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

from teeter.base.threads import run_in_threads
from teeter.kernels.fused import use_fused_kernel

__all__ = [
    "lower_among_sorted",
    "lower_by_own_ranks",
    "lower_by_reference_ranks",
]

_RATES_WORTH_A_THREAD = 2_000_000
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
    R, M = reference_values.shape

    # (N,) the place in the ascending order of the reference rates from which on they count. It
    # rises where a count falls.
    places = M - counts.astype(np.int64)

    def raise_places(places: npt.NDArray[np.int64], rays: range) -> None:
        for ray in rays:
            thresholds = values[ray] * equality_factor
            if is_sorted:
                _raise_by_ray(places, thresholds, reference_values[ray])
            else:
                _raise_by_unsorted_ray(places, thresholds, reference_values[ray])

    threads = 1
    if values.size + reference_values.size >= _RATES_WORTH_A_THREAD:
        threads = min(R, torch.get_num_threads())
    if threads == 1:
        raise_places(places, range(R))
    else:
        # Each thread has a copy and its own rays: no two threads write to the same array.
        copies = [places.copy() for _ in range(threads)]

        def raise_share(share: int) -> None:
            raise_places(copies[share], range(share, R, threads))

        run_in_threads(raise_share, range(threads))
        places = np.maximum.reduce(copies)

    np.subtract(M, places, out=counts, casting="unsafe")


def _raise_by_unsorted_ray(
    places: npt.NDArray[np.int64],
    thresholds: npt.NDArray[np.floating],
    reference_rates: npt.NDArray[np.floating],
) -> None:
    """Raise the places of rows by one ray whose rates have to be sorted.

    Rates before the lowest place of all rows matter to none: it is enough to sort the others.
    """
    M = len(reference_rates)
    lowest = int(places.min())
    if not M // 8 < lowest < M:
        _raise_by_ray(places, thresholds, np.sort(reference_rates))
        return

    highest_rates = np.partition(reference_rates, lowest)[lowest:]
    highest_rates.sort()
    places -= lowest
    _raise_by_ray(places, thresholds, highest_rates)
    places += lowest


def _raise_by_ray(
    places: npt.NDArray[np.int64],
    thresholds: npt.NDArray[np.floating],
    sorted_rates: npt.NDArray[np.floating],
) -> None:
    """Raise the places of the rows that fewer reference rates reach on this ray.

    Args:
        places: (N,) changed in place.
        thresholds: (N,) the lowest rates that count as equal to the rates of the rows.
        sorted_rates: (M,) rates of the reference rows, ascending.
    """
    # A row's place rises iff the rate at that place does not reach its threshold. A place of M,
    # past the end, is looked up at the last rate instead, and stays M if that one is below, too.
    deciding_rates = sorted_rates.take(places, mode="clip")
    rows = np.flatnonzero(deciding_rates < thresholds)
    places[rows] = np.searchsorted(sorted_rates, thresholds[rows])
