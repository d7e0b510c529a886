"""Ranks by flip rate against a literal count."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from teeter.kernels.ranks import (
    lower_among_sorted,
    lower_by_own_ranks,
    lower_by_reference_ranks,
)


def make_rates(rays: int, rows: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
    """Rates with zeros, infinities, copies, and copies but for rounding."""
    rng = np.random.default_rng(seed)
    rates = torch.from_numpy(rng.exponential(size=(rays, rows))).to(dtype)
    rates[:, ::7] = 0
    rates[0, 3] = torch.inf
    rates[:, 5] = rates[:, 4]
    rates[:, 9] = rates[:, 8] * (1 + 8 * torch.finfo(dtype).eps)
    return rates


def count_literally(rates: Tensor, reference: Tensor) -> Tensor:
    lowest_equal = rates * (1 - 64 * torch.finfo(rates.dtype).eps)
    counts = (reference[:, None, :] >= lowest_equal[:, :, None]).sum(dim=2)
    return counts.amin(dim=0).int()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_own_ranks_are_counts(dtype: torch.dtype) -> None:
    rates = make_rates(20, 60, dtype)
    least = torch.full((60,), 60, dtype=torch.int32)
    lower_by_own_ranks(least, rates)
    assert torch.equal(least, count_literally(rates, rates))
    assert least[4] == least[5]
    assert least[8] == least[9]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_ranks_among_other_rows_reach_0(dtype: torch.dtype) -> None:
    rates = make_rates(12, 40, dtype)
    reference = make_rates(12, 90, dtype, seed=1)
    counted = count_literally(rates, reference)

    for lower, compared in (
        (lower_by_reference_ranks, reference),
        (lower_among_sorted, reference.sort(dim=1).values),
    ):
        least = torch.full((40,), 90, dtype=torch.int32)
        # In two steps: a count that is 0 after the first must survive the second.
        lower(least, rates[:5], compared[:5])
        lower(least, rates[5:], compared[5:])
        assert torch.equal(least, counted)

    assert counted.min() == 0


def test_threads_give_the_same_ranks() -> None:
    rates = make_rates(70, 30_000, torch.float32)
    before = torch.get_num_threads()
    counts = []

    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            least = torch.full((30_000,), 30_000, dtype=torch.int32)
            lower_by_own_ranks(least, rates)
            counts.append(least)
    finally:
        torch.set_num_threads(before)

    assert torch.equal(*counts)
