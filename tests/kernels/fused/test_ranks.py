"""Ranks by counting in cells are exactly those of a sort; Triton's interpreter runs them here."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from teeter.base.seeds import stream
from teeter.kernels import ranks as plain

pytest.importorskip("triton", reason="needs Triton")
fused: Any = pytest.importorskip("teeter.kernels.fused.ranks")

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def make_rates(rays: int, rows: int, seed: int) -> Tensor:
    generator = stream(seed, "rates")
    rates = torch.randn(rays, rows, generator=generator).abs()
    rates /= torch.rand(rays, rows, generator=generator)
    rates[:, ::7] = 0
    rates[1, 5] = torch.inf
    rates[:, 11] = rates[:, 10]
    return rates.to(DEVICE)


@pytest.mark.parametrize("reference_rows", [None, 350])
def test_ranks_are_those_of_a_sort(reference_rows: int | None) -> None:
    rates = make_rates(40, 200, seed=0)
    reference = rates if reference_rows is None else make_rates(40, reference_rows, seed=1)
    M = reference.shape[1]
    by_cells = torch.full((200,), M, dtype=torch.int32, device=DEVICE)
    by_sort = by_cells.clone()

    # In two steps: what the first lowered must not rise in the second.
    factor = plain._equality_factor(rates)
    for rays in (slice(0, 33), slice(33, 40)):
        assert fused.lower_by_cells(by_cells, rates[rays], reference[rays], factor)
        plain._lower_by_search(by_sort, rates[rays], reference[rays].sort(dim=1).values)
    assert torch.equal(by_cells, by_sort)


def test_crowded_cells_are_left_to_a_sort(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "MOST_READS", 1)
    monkeypatch.setattr(fused, "CANDIDATES_PER_ROW", 2)
    crowded = 1 + 1e-5 * torch.rand(8, 120, generator=stream(0, "rates")).to(DEVICE)
    least = torch.full((120,), 120, dtype=torch.int32, device=DEVICE)
    assert not fused.lower_by_cells(least, crowded, crowded, plain._equality_factor(crowded))
    assert (least == 120).all()
