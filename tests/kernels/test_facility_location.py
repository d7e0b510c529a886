"""Facility location against plain greedy, and the lazy step that it shares with BatchBALD."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from reference import facility_location as literal
from teeter.base.arrays import working_memory
from teeter.base.seeds import stream
from teeter.kernels import facility_location as facility_location_module
from teeter.kernels.facility_location import (
    facility_location,
    herd,
    refresh_bounds,
    top_rows,
)


def draw(rows: int, width: int, seed: int) -> Tensor:
    return torch.randn(rows, width, generator=stream(seed, "features"), dtype=torch.float64)


@pytest.mark.checks(
    "fass", "ldm-fass", against="greedy facility location by its definition, pick by pick"
)
@given(
    rows=st.integers(1, 14),
    width=st.integers(1, 4),
    seed=st.integers(0, 10**6),
    copies=st.integers(1, 3),
)
def test_is_plain_greedy(rows: int, width: int, seed: int, copies: int) -> None:
    features = draw(rows, width, seed).repeat(copies, 1)
    features[seed % rows] *= 1e-3
    n = 1 + seed % len(features)
    assert facility_location(features, n).tolist() == literal.greedy(features.numpy(), n)


@given(rows=st.integers(1, 12), width=st.integers(1, 3), seed=st.integers(0, 10**6))
def test_ties_and_zero_rows_are_plain_greedy_too(rows: int, width: int, seed: int) -> None:
    features = draw(rows, width, seed).round()
    assert facility_location(features, rows).tolist() == literal.greedy(features.numpy(), rows)


APRICOT = [
    ((60, 6, 0), [33, 12, 36, 8, 18, 48, 43, 7, 10, 47, 6, 57, 42, 32, 31, 16]),
]
"""Rows, features and seed, and the first picks of apricot-select 0.6.1:
``FacilityLocationSelection(16, metric="precomputed", optimizer="naive")`` on one plus the cosines.
"""


@pytest.mark.parametrize(("size_and_seed", "picks"), APRICOT)
def test_picks_what_another_library_picks(
    size_and_seed: tuple[int, int, int], picks: list[int]
) -> None:
    rows, width, seed = size_and_seed
    features = torch.from_numpy(np.random.default_rng(seed).normal(size=(rows, width)))
    assert facility_location(features, 16).tolist() == picks


def test_one_row_of_each_kind_then_the_lowest() -> None:
    features = torch.tensor([[0.0, 1], [0, 2], [0, 0], [3, 0], [1, 0], [0, 0], [5, 0]])
    assert facility_location(features, 7).tolist() == [3, 0, 2, 1, 4, 5, 6]
    assert facility_location(torch.zeros(5, 3), 4).tolist() == [0, 1, 2, 3]
    assert facility_location(torch.ones(1, 1), 1).tolist() == [0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_copies_are_never_preferred_to_other_rows(dtype: torch.dtype) -> None:
    features = draw(120, 16, 0).to(dtype).repeat(3, 1)
    picks = facility_location(features, 360).tolist()
    assert sorted(picks) == list(range(360))
    assert sorted(picks[:120]) == list(range(120)), "the lowest of each three"
    assert picks[120:] == list(range(120, 360)), "then the copies from the lowest up"


def test_many_rows_are_plain_greedy_with_little_work(monkeypatch: pytest.MonkeyPatch) -> None:
    centres = draw(12, 8, 1)
    features = centres[torch.arange(900) % 12] + 0.5 * draw(900, 8, 2)

    asked = []
    counted = facility_location_module._SimilarityCache.gains
    monkeypatch.setattr(
        facility_location_module._SimilarityCache,
        "gains",
        lambda self, rows, covered, **options: (
            asked.append(len(rows)) or counted(self, rows, covered, **options)
        ),
    )

    picks = facility_location(features, 40).tolist()

    units = torch.nn.functional.normalize(features)
    similar = 1 + units @ units.T
    covered = torch.zeros(900, dtype=torch.float64)
    plain: list[int] = []
    for _ in range(40):
        gains = (similar - covered).clamp_min(0).sum(dim=1)
        gains[plain] = -1
        plain.append(int(gains.argmax()))
        covered = torch.maximum(covered, similar[plain[-1]])

    assert picks == plain
    assert sum(asked) < 900 * 40 / 4


@pytest.mark.parametrize(("rows", "n"), [(250, 15), pytest.param(450, 60, marks=pytest.mark.slow)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [1, 50_000, 1_000_000])
def test_the_working_memory_changes_nothing(
    size: int, dtype: torch.dtype, rows: int, n: int
) -> None:
    features = draw(rows, 9, 3).to(dtype)
    expected = facility_location(features, n)
    with working_memory(size):
        assert torch.equal(facility_location(features, n), expected)


def test_both_precisions_agree() -> None:
    features = draw(300, 12, 4)
    assert torch.equal(facility_location(features, 30), facility_location(features.float(), 30))


def test_bounds_are_renewed_only_as_far_as_needed() -> None:
    gains = torch.tensor([1.0, 5, 2, 4, 3, 0], dtype=torch.float64)
    above = torch.tensor([9.0, 8, 7, 4.5, 3, 2], dtype=torch.float64)
    bounds = above.clone()

    renewed = refresh_bounds(bounds, lambda rows: gains[rows], batch=1)
    assert renewed.tolist() == [0, 1, 2], "one row, then two; 4.5 is below the gain of row 1"
    assert bounds.tolist() == [1, 5, 2, 4.5, 3, 2]
    assert top_rows(bounds, renewed).tolist() == [1]

    assert len(refresh_bounds(above.clone(), lambda rows: gains[rows], batch=1, keep=2)) == 6
    assert len(refresh_bounds(above.clone(), lambda rows: gains[rows], batch=1, slack=0.6)) == 6

    above[1] = -torch.inf
    assert 1 not in refresh_bounds(above, lambda rows: gains[rows], batch=1), (
        "a row that is out stays out"
    )


def test_equal_gains_go_to_the_lowest_row() -> None:
    gains = torch.tensor([3.0, 7, 7 - 1e-9, 7, 1], dtype=torch.float64)
    assert top_rows(gains, torch.tensor([3, 1, 4, 2])).tolist() == [1]
    assert top_rows(gains, torch.tensor([3, 2, 4]), slack=1e-6).tolist() == [2]
    assert top_rows(gains, torch.tensor([3, 2, 4, 0]), 3).tolist() == [3, 2, 0]


@pytest.mark.gpu
def test_gpu_equals_cpu() -> None:
    features = draw(3000, 32, 5)
    cpu = facility_location(features, 200)
    assert torch.equal(facility_location(features.cuda(), 200).cpu(), cpu)


def test_the_reference_counts_what_it_says() -> None:
    pairs = literal.similarities(np.array([[1.0, 0], [0, 1], [-1, 0]]))
    assert literal.value(pairs, []) == 0
    assert literal.value(pairs, [0]) == pytest.approx(2 + 1 + 0)
    assert literal.value(pairs, [0, 1]) == pytest.approx(2 + 2 + 1)


def herding_case(rows: int, width: int, seed: int, centres: int = 0) -> tuple[Tensor, ...]:
    """Return features, weights (a quarter of them 0) and centres, of which the first is a row."""
    features = draw(rows, width, seed)
    weights = torch.rand(rows, generator=stream(seed, "weights"), dtype=torch.float64)
    weights = (weights - 0.25).clamp_min(0)
    others = draw(centres, width, seed + 1)
    if centres:
        others[0] = 3 * features[0]
    return features, weights, others


@pytest.mark.checks(
    "maxherding",
    "uherding",
    "herding-ldm-s",
    against="greedy weighted coverage by its definition, pick by pick",
)
@given(
    rows=st.integers(1, 12),
    width=st.integers(1, 4),
    seed=st.integers(0, 10**6),
    centres=st.integers(0, 3),
    copies=st.integers(1, 2),
)
def test_herding_is_plain_greedy(
    rows: int, width: int, seed: int, centres: int, copies: int
) -> None:
    features, weights, others = herding_case(rows, width, seed, centres)
    features = features.repeat(copies, 1)
    weights = weights.repeat(copies)
    n = 1 + seed % len(features)

    picks, covered_by = herd(features, n, weights=weights, centres=others)
    expected = literal.herding(features.numpy(), n, weights.numpy(), others.numpy())
    assert picks.tolist() == expected
    for row, number in enumerate(covered_by.tolist()):
        similar = [literal.gaussian(features[row].numpy(), features[k].numpy()) for k in picks]
        if number >= 0 and weights[row] > 0:
            assert similar[number] >= max(similar) - 1e-9


def test_lazy_herding_is_plain_greedy_with_little_work(monkeypatch: pytest.MonkeyPatch) -> None:
    centres = draw(12, 8, 1)
    features = centres[torch.arange(900) % 12] + 0.5 * draw(900, 8, 2)
    weights = torch.rand(900, generator=stream(3, "weights"), dtype=torch.float64)
    others = features[:30] + 0.1

    asked = []
    counted = facility_location_module._SimilarityCache.gains
    monkeypatch.setattr(
        facility_location_module._SimilarityCache,
        "gains",
        lambda self, rows, covered, **options: (
            asked.append(len(rows)) or counted(self, rows, covered, **options)
        ),
    )
    picks, _ = herd(features, 40, weights=weights, centres=others)

    units = torch.nn.functional.normalize(features)
    similar = torch.exp(2 * (units @ units.T - 1))
    covered = torch.exp(2 * (units @ torch.nn.functional.normalize(others).T - 1)).amax(dim=1)
    plain: list[int] = []
    for _ in range(40):
        gains = ((similar - covered).clamp_min(0) * weights).sum(dim=1)
        gains[plain] = -1
        plain.append(int(gains.argmax()))
        covered = torch.maximum(covered, similar[plain[-1]])

    assert picks.tolist() == plain
    assert sum(asked) < 900 * 40 / 4


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [1, 50_000, 1_000_000])
def test_the_working_memory_does_not_change_herding(size: int, dtype: torch.dtype) -> None:
    features, weights, centres = herding_case(250, 9, 3, 5)
    expected = herd(features.to(dtype), 15, weights=weights, centres=centres.to(dtype))
    with working_memory(size):
        picks = herd(features.to(dtype), 15, weights=weights, centres=centres.to(dtype))
    for part, expected_part in zip(picks, expected, strict=True):
        assert torch.equal(part, expected_part)


def test_rows_without_weight_are_covered_by_nobody() -> None:
    features = torch.eye(3)
    weights = torch.tensor([0.0, 1.0, 2.0])
    picks, covered_by = herd(features, 2, weights=weights, centres=features[:0])
    assert picks.tolist() == [2, 1]
    assert covered_by[1:].tolist() == [1, 0]


def test_herding_begins_where_no_centre_is() -> None:
    features = torch.tensor([[1.0, 0], [1, 0.1], [1, 0.2], [0, 1]])
    alone, _ = herd(features, 1, weights=torch.ones(4), centres=features[:0])
    beside, covered_by = herd(features, 1, weights=torch.ones(4), centres=5 * features[:2])
    assert (alone.tolist(), beside.tolist()) == ([2], [3])
    assert covered_by.tolist() == [-1, -1, -1, 0]


@pytest.mark.gpu
def test_gpu_herds_as_the_cpu() -> None:
    features, weights, centres = herding_case(3000, 32, 5, 40)
    cpu, _ = herd(features, 200, weights=weights, centres=centres)
    gpu, _ = herd(features.cuda(), 200, weights=weights.cuda(), centres=centres.cuda())
    assert torch.equal(gpu.cpu(), cpu)
