"""Ranks of rows among reference rows, one ranking a ray, kept only where they lower a row's least count."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

__all__ = ["lower_among_sorted", "lower_by_own_ranks", "lower_by_reference_ranks"]

_ROWS_WORTH_A_THREAD = 20_000

_EQUAL = 64
"""Rates this many roundings apart count as equal: rows on one line flip together, and rounding must not part them."""


def lower_by_own_ranks(least: Tensor, rates: Tensor) -> None:
    """Lower ``least`` in place to ``#{i : rate_i >= rate_x}`` where that is less on some ray.

    least (N,) int32, rates (R, N) not negative; equal rates share the larger count, so a rate of 0 counts all rows.
    """
    if rates.is_cuda or rates.dtype != torch.float32:
        lower_by_reference_ranks(least, rates, rates)
        return
    counts, values = least.numpy(), rates.contiguous().numpy()
    threads = torch.get_num_threads() if values.shape[1] >= _ROWS_WORTH_A_THREAD else 1
    if threads == 1:
        _lower_by_packed_sort(counts, values)
        return
    shares = [share for share in np.array_split(values, threads) if len(share)]
    partial = [counts.copy() for _ in shares]
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(_lower_by_packed_sort, partial, shares))
    for part in partial:
        np.minimum(counts, part, out=counts)


def _lower_by_packed_sort(least: npt.NDArray[np.int32], rates: npt.NDArray[np.float32]) -> None:
    """Sort (rate, row) as one 64-bit number: the bits of floats that are not negative are in the floats' order."""
    rows = rates.shape[1]
    places = np.arange(rows, dtype=np.int64)
    count = np.empty(rows, dtype=np.int32)
    for rate in rates:
        keys = rate.view(np.int32).astype(np.int64)
        keys <<= 32
        keys |= places
        keys.sort()
        values, order = (keys >> 32).astype(np.int32), keys & 0xFFFFFFFF
        count[order] = _counts_from_the_top(values)
        np.minimum(least, count, out=least)


def _counts_from_the_top(values: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """Return how many values are at least as large or close to it, for the bits of floats in rising order."""
    rows = len(values)
    first = np.arange(rows, dtype=np.int32)
    rates = values.view(np.float32)
    bar = rates * np.float32(1 - _EQUAL * np.finfo(np.float32).eps)
    close = np.flatnonzero(rates[:-1] >= bar[1:]) + 1
    for step in range(2, 10):  # nearly all have a neighbour or two; the others are copies
        if not len(close):
            return rows - first
        first[close] -= 1
        close = close[close >= step]
        close = close[rates[close - step] >= bar[close]]
    first[close] = np.searchsorted(rates, bar[close])
    return rows - first


def lower_by_reference_ranks(least: Tensor, rates: Tensor, reference: Tensor) -> None:
    """Lower ``least`` in place to ``#{i : reference_i >= rate_x}`` where that is less on some ray.

    least (N,) int32, rates (R, N), reference (R, M), none of them negative.
    """
    size = reference.shape[1]
    bar = rates * (1 - _EQUAL * torch.finfo(rates.dtype).eps)
    below = torch.searchsorted(reference.sort(dim=1).values, bar, out_int32=True)
    torch.minimum(least, (size - below).amin(dim=0), out=least)


def lower_among_sorted(least: Tensor, rates: Tensor, ranks: Tensor) -> None:
    """Lower ``least`` in place as ``lower_by_reference_ranks`` does, among rates that are sorted already.

    least (N,) int32, rates (R, N), ranks (R, M) rising along each ray. Only rows that a ray lowers are looked up.
    """
    size = ranks.shape[1]
    bars = rates * (1 - _EQUAL * torch.finfo(rates.dtype).eps)
    for bar, known in zip(bars, ranks, strict=True):
        lowered = (
            (known[(size - least).clamp_max_(size - 1)] < bar)
            .logical_and_(least > 0)
            .nonzero()
            .squeeze(1)
        )
        counts = size - torch.searchsorted(known, bar[lowered], out_int32=True)
        least[lowered] = torch.minimum(least[lowered], counts)
