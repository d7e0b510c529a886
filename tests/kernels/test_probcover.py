"""ProbCover: its radius and its picks by the definition, with lists of neighbours and without."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from peak_memory import measure_peak_memory
from reference import probcover as literal
from teeter.base.arrays import working_memory
from teeter.base.seeds import stream
from teeter.kernels.distances import Cosine
from teeter.kernels.probcover import _Neighbourhoods, probcover, purity_radius

slow = pytest.mark.slow


def draw(rows: int, width: int, seed: int, name: str = "features") -> Tensor:
    return torch.randn(rows, width, generator=stream(seed, name), dtype=torch.float64)


def pick_literally(features: Tensor, radius: float, n: int, centres: Tensor) -> list[int]:
    return literal.probcover(features.double().numpy(), radius, n, centres.double().numpy())


@pytest.mark.checks(
    "probcover", against="greedy covering with explicit balls, one pick at a time, in float64"
)
@pytest.mark.parametrize("memory", [1, 1 << 20])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("width", "radius"),
    [
        (2, 0.5),
        (5, 0.6),
        (5, 3.0),
        *(pytest.param(*case, marks=slow) for case in [(2, 0.1), (5, 1.1), (20, 0.2)]),
    ],
)
@pytest.mark.parametrize("centres", [0, 3])
def test_picks_are_the_definition(
    memory: int, dtype: torch.dtype, width: int, radius: float, centres: int
) -> None:
    features = draw(30, width, 0).to(dtype)
    labelled = draw(centres, width, 1).to(dtype)
    with working_memory(memory):
        for n in (1, 8, 30):
            assert probcover(features, radius, n, centres=labelled).tolist() == pick_literally(
                features, radius, n, labelled
            )


@given(
    rows=st.integers(1, 9),
    copies=st.integers(1, 3),
    centres=st.integers(0, 2),
    seed=st.integers(0, 10**6),
    radius=st.sampled_from([0.5, 1.0, math.sqrt(2), 1.5, 2.0, 3.0]),
)
def test_ties_copies_and_zero_rows(
    rows: int, copies: int, centres: int, seed: int, radius: float
) -> None:
    """Rows on eight directions or 0: distances that are the radius itself are outside."""
    features = draw(rows, 2, seed).round().clamp(-1, 1).repeat(copies, 1)
    labelled = draw(centres, 2, seed, "centres").round().clamp(-1, 1)
    for n in {1, len(features)}:
        picks = probcover(features, radius, n, centres=labelled).tolist()
        balls = _picks_of_balls(features, radius, n, labelled)
        assert picks[: len(balls)] == balls
        assert len(set(picks)) == n


def _picks_of_balls(features: Tensor, radius: float, n: int, labelled: Tensor) -> list[int]:
    """The picks while something is left to cover; among farthest rows rounding decides ties."""
    picks = pick_literally(features, radius, n, labelled)
    units = literal.directions(np.vstack([features.numpy(), labelled.numpy()]))

    covered: set[int] = set()
    for count, centre in enumerate([*units[len(features) :], *(units[pick] for pick in picks)]):
        ball = {
            row
            for row in range(len(features))
            if literal.distance(units[row], centre) < radius - 1e-9
        }
        if count >= len(labelled) and not ball - covered:
            return picks[: count - len(labelled)]
        covered |= ball

    return picks


@pytest.mark.checks(
    "probcover", against="the largest radius with enough pure balls, found by trying all radii"
)
@pytest.mark.parametrize("purity", [0.5, 0.9, 0.95, 1.0, 1e-6])
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=slow), pytest.param(2, marks=slow)])
def test_radius_is_the_largest_that_is_pure_enough(purity: float, seed: int) -> None:
    features = draw(20, 3, seed)
    labels = torch.arange(20) % 3 if seed else (features[:, 0] > 0).long()
    expected = literal.purity_radius(features.numpy(), labels.tolist(), purity)
    assert purity_radius(features, labels, purity) == pytest.approx(expected, rel=1e-9)
    assert purity_radius(features.float(), labels, purity) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_row_that_bounds_the_radius_is_outside_whatever_the_rounding(
    dtype: torch.dtype,
) -> None:
    for seed in range(100):
        features = draw(4, 3, seed).to(dtype)
        labels = torch.arange(4) % 2
        balls = _Neighbourhoods(Cosine(features).units, purity_radius(features, labels, 1.0))
        for row in range(4):
            assert set(labels[balls.members(row)].tolist()) == {row % 2}


def test_nine_tenths_of_ten_balls_are_nine() -> None:
    """(1 - 0.9) * 10 is a little less than 1 in floating point."""
    features = draw(10, 3, 0)
    labels = torch.arange(10) % 2
    assert purity_radius(features, labels, 0.9) == pytest.approx(
        literal.purity_radius(features.numpy(), labels.tolist(), 0.9)
    )


def test_radius_across_tiles() -> None:
    features, labels = draw(2100, 4, 0), torch.arange(2100) % 7
    units = torch.nn.functional.normalize(features)
    apart = torch.cdist(units, units).masked_fill(labels[:, None] == labels, torch.inf).amin(dim=1)
    assert purity_radius(features, labels, 0.95) == pytest.approx(
        float(apart.sort().values[105]), rel=1e-6
    )


def test_one_label_has_no_bound_and_copies_have_none_left() -> None:
    assert purity_radius(draw(5, 3, 0), torch.zeros(5, dtype=torch.int64), 0.95) == math.inf
    assert purity_radius(torch.ones(6, 3), torch.arange(6) % 2, 0.95) == 0
    assert purity_radius(draw(1, 3, 0), torch.zeros(1, dtype=torch.int64), 0.95) == math.inf


@pytest.mark.parametrize("memory", [1, 1 << 20])
def test_endless_balls_leave_the_farthest_rows(memory: int) -> None:
    features = draw(400, 4, 0)
    with working_memory(memory):
        picks = probcover(features, math.inf, 400).tolist()
    units = torch.nn.functional.normalize(features)
    assert picks[0] == 0, "all balls hold everything"
    assert picks[1] == int((units - units[0]).norm(dim=1).argmax())
    assert len(set(picks)) == 400


def test_a_radius_of_nothing_leaves_the_farthest_rows() -> None:
    features = draw(50, 4, 0)
    labelled = draw(3, 4, 1)
    assert probcover(features, 0.0, 9, centres=labelled).tolist() == pick_literally(
        features, 0.0, 9, labelled
    )


@pytest.mark.slow
def test_working_memory_changes_nothing() -> None:
    features = draw(2100, 6, 0).float()
    labelled = draw(40, 6, 1).float()
    expected = probcover(features, 0.5, 300, centres=labelled).tolist()
    for memory in (1, 100_000, 1 << 30):
        with working_memory(memory):
            assert probcover(features, 0.5, 300, centres=labelled).tolist() == expected


@pytest.mark.slow
@pytest.mark.checks("probcover", against="memory use: little more than the stored neighbours")
@pytest.mark.parametrize(
    "radius", [pytest.param(0.01, marks=slow), 0.3, pytest.param(2.5, marks=slow)]
)
def test_memory_is_bounded_by_the_neighbours_kept(radius: float) -> None:
    features = draw(10_000, 3, 0).float()
    members = int(_Neighbourhoods(Cosine(features).units, radius).sizes.sum())
    size = 40 << 20  # beyond it nothing is kept, and balls are found each time
    with working_memory(size):
        peak = measure_peak_memory(lambda: probcover(features, radius, 20))
    # The pairs of all rows would take 100 MB as booleans. Loaded code counts too: about 60 MB.
    assert peak < min(12 * members, 2 * size) + (80 << 20)


@pytest.mark.gpu
def test_gpu_equals_cpu() -> None:
    features = draw(5000, 32, 0)
    labelled = draw(100, 32, 1)
    labels = torch.arange(5000) % 10
    radius = purity_radius(features, labels, 0.95)
    assert purity_radius(features.cuda(), labels.cuda(), 0.95) == pytest.approx(radius, rel=1e-9)
    expected = probcover(features, 0.9, 300, centres=labelled).tolist()
    assert probcover(features.cuda(), 0.9, 300, centres=labelled.cuda()).tolist() == expected
