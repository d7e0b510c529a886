"""Greedy k-center: the picks of one at a time, from blocks."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from peak_memory import measure_peak_memory
from reference import kcenter as literal
from teeter.base.arrays import working_memory
from teeter.base.seeds import stream
from teeter.kernels import kcenter
from teeter.kernels.kcenter import k_center


def draw(rows: int, width: int, seed: int, name: str = "features") -> Tensor:
    return torch.randn(rows, width, generator=stream(seed, name), dtype=torch.float64)


def pick_literally(features: Tensor, centres: Tensor, n: int) -> list[int]:
    return literal.k_center(features.double().numpy(), centres.double().numpy(), n)


@pytest.mark.checks("coreset", against="greedy k-center, one pick at a time, in float64")
@pytest.mark.parametrize("rows", [12, pytest.param(40, marks=pytest.mark.slow)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("block", [1, 2, 7, 192])
@pytest.mark.parametrize(("width", "centres"), [(1, 3), (2, 1), (16, 5), (3, 0)])
def test_equals_one_at_a_time(
    rows: int, dtype: torch.dtype, block: int, width: int, centres: int
) -> None:
    features = draw(rows, width, 0).to(dtype)
    labelled = draw(centres, width, 1).to(dtype)
    for n in (1, min(9, rows // 2), rows):
        assert k_center(features, labelled, n, block=block).tolist() == pick_literally(
            features, labelled, n
        )


@pytest.mark.slow
@given(
    rows=st.integers(1, 12),
    width=st.integers(1, 3),
    centres=st.integers(0, 3),
    copies=st.integers(1, 3),
    seed=st.integers(0, 10**6),
)
def test_ties_and_copies_go_to_the_lowest_row(
    rows: int, width: int, centres: int, copies: int, seed: int
) -> None:
    half = draw(rows, width, seed).mul(2).round().repeat(copies, 1)
    labelled = draw(centres, width, seed, "centres").mul(2).round()
    # Around 0, so that all sums are exact
    features = torch.cat([half, -half])
    labelled = torch.cat([labelled, -labelled])

    for n in {1, rows, len(features)}:
        expected = pick_literally(features, labelled, n)
        for block in (1 + seed % 7, 192):
            assert k_center(features, labelled, n, block=block).tolist() == expected


@pytest.mark.parametrize(
    ("rows", "centres", "n"),
    [(250, 200, 20), pytest.param(1500, 1300, 300, marks=pytest.mark.slow)],
)
@pytest.mark.parametrize("width", [2, 32])
def test_blocks_change_nothing(width: int, rows: int, centres: int, n: int) -> None:
    features = draw(rows, width, 0)
    labelled = draw(centres, width, 1) * 0.5
    expected = k_center(features, labelled, n, block=1).tolist()
    for block in (10, 192, 5000):
        assert k_center(features, labelled, n, block=block).tolist() == expected
    with working_memory(1):
        assert k_center(features, labelled, n).tolist() == expected


def test_a_block_gives_many_picks(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks: list[int] = []
    farthest = kcenter._pick_farthest

    def counted(*given: object) -> Tensor:
        fresh = farthest(*given)
        blocks.append(len(fresh))
        return fresh

    monkeypatch.setattr(kcenter, "_pick_farthest", counted)
    k_center(draw(2000, 64, 0), draw(10, 64, 1), 100)
    assert sum(blocks) == 100
    assert len(blocks) <= 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_copies_of_centres_and_picks_come_last_the_lowest_first(dtype: torch.dtype) -> None:
    rows = (draw(30, 64, 0) + 10).to(dtype)
    # 30 different rows, of which 10 are centres as well.
    features = torch.cat([rows[:10], rows, rows])
    picks = k_center(features, rows[:10], len(features)).tolist()
    assert sorted(picks[:20]) == list(range(20, 40))
    assert picks[20:] == [*range(20), *range(40, 70)]


def test_a_pool_of_copies_is_picked_in_order() -> None:
    assert k_center(torch.ones(300, 3), torch.ones(1, 3), 200).tolist() == list(range(200))
    assert k_center(torch.ones(300, 3), torch.ones(0, 3), 200).tolist() == list(range(200))


@pytest.mark.checks("coreset", against="memory use: far less than the distances of all pairs")
def test_pairs_of_rows_are_never_all_there() -> None:
    features = draw(12_000, 4, 0).float()
    centres = draw(500, 4, 1).float()
    assert measure_peak_memory(lambda: k_center(features, centres, 500)) < 12_000 * 12_000 * 4 / 4


@pytest.mark.gpu
def test_gpu_equals_cpu() -> None:
    features = draw(5000, 32, 0)
    labelled = draw(100, 32, 1)
    assert (
        k_center(features.cuda(), labelled.cuda(), 500).tolist()
        == k_center(features, labelled, 500).tolist()
    )
