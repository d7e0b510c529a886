"""The profile, the penalties and the ranks: by hand, against a literal transcription, and what
always holds.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.comparison import Counts, penalty, profile
from teeter.bench.analysis.statistics import (
    critical_value,
    mean_ranks,
    penalty_matrix,
    performance_profile,
)
from teeter.errors import InputError

NAMES = ("ldm-s", "random", "badge")


@st.composite
def experiments(draw: st.DrawFn) -> list[Counts]:
    """One to three datasets, each with its own repetitions and rounds; few values, so that ties are
    common.
    """
    datasets = []
    for _ in range(draw(st.integers(1, 3))):
        repetitions, rounds = draw(st.integers(2, 5)), draw(st.integers(2, 5))
        runs = st.lists(st.integers(480, 500), min_size=rounds, max_size=rounds)
        cells = st.lists(runs, min_size=repetitions, max_size=repetitions)
        datasets.append({name: draw(cells) for name in draw(st.permutations(NAMES))})
    return datasets


def as_shares(datasets: list[Counts]) -> list[dict[str, np.ndarray]]:
    return [{name: np.array(runs) / 1000 for name, runs in dataset.items()} for dataset in datasets]


def test_a_profile_by_hand() -> None:
    first = {"a": np.array([[0.0, 0.90, 0.80]]), "b": np.array([[1.0, 0.89, 0.83]])}
    second = {"b": np.array([[0.0, 0.50]]), "a": np.array([[1.0, 0.70]])}
    profiles = performance_profile([first, second])
    a, b = profiles["a"], profiles["b"]

    # Half of the first dataset, all of the second.
    assert (a.at(0), a.at(2.99), a.at(3)) == (0.75, 0.75, 1)
    assert (b.at(0), b.at(1), b.at(19.9), b.at(20), b.at(-1)) == (0.25, 0.5, 0.5, 1, 0)

    assert a.area() == pytest.approx(3 * 0.75 + 7)
    assert b.area() == pytest.approx(1 * 0.25 + 9 * 0.5)
    assert b.area(30) == pytest.approx(1 * 0.25 + 19 * 0.5 + 10)


@given(experiments(), st.integers(0, 25))
def test_the_profile_is_the_paper_s(datasets: list[Counts], tenths: int) -> None:
    profiles = performance_profile(as_shares(datasets))
    for name in NAMES:
        assert profiles[name].at(tenths / 10) == pytest.approx(
            float(profile(datasets, name, Fraction(tenths, 10)))
        )


@given(experiments())
def test_a_profile_grows_to_one_and_its_area_is_exact(datasets: list[Counts]) -> None:
    profiles = performance_profile(as_shares(datasets))
    # At least one is the best, each time.
    assert sum(curve.at(0) for curve in profiles.values()) >= 1 - 1e-9

    for name, curve in profiles.items():
        assert (np.diff(curve.shares) > 0).all()
        assert curve.shares[-1] == 1
        # Gaps are tenths of a point.
        steps = [profile(datasets, name, Fraction(k, 10)) for k in range(100)]
        assert curve.area() == pytest.approx(float(sum(steps) / 10))
        assert 0 <= curve.area() <= 10


@given(experiments())
def test_the_penalties_are_the_paper_s(datasets: list[Counts]) -> None:
    penalties = penalty_matrix(as_shares(datasets))
    expected = [
        [penalty(datasets, i, j) for j in penalties.strategies] for i in penalties.strategies
    ]
    np.testing.assert_allclose(penalties.matrix, expected, atol=1e-12)


@given(experiments())
def test_two_strategies_cannot_both_win_a_step(datasets: list[Counts]) -> None:
    penalties = penalty_matrix(as_shares(datasets))
    assert (penalties.matrix >= 0).all()
    assert (penalties.matrix + penalties.matrix.T <= len(datasets) + 1e-9).all()
    assert (np.diag(penalties.matrix) == 0).all()
    np.testing.assert_allclose(penalties.column_means, penalties.matrix.sum(axis=0) / 2)


def test_penalties_by_hand() -> None:
    noise = np.array([0, 0.01, 0.02, 0.03, 0.04])
    good = np.stack([noise, 0.8 + noise, 0.8 + noise, 0.8 + noise, 0.8 + noise], axis=1)
    poor = np.stack(
        [1 + noise, 0.7 + noise, 0.7 + 0.9 * noise, 0.7 + 0.9 * noise, good[:, 4]], axis=1
    )
    penalties = penalty_matrix([{"good": good, "poor": poor}])
    # The first round is left out; the second differs by exactly 0.1 each time and the last by
    # nothing: no wins.
    np.testing.assert_allclose(penalties.matrix, [[0, 0.5], [0, 0]])
    np.testing.assert_allclose(penalties.column_means, [0, 0.5])


@pytest.mark.parametrize(("repetitions", "t"), [(5, 2.776), (3, 4.303), (2, 12.706), (1, np.inf)])
def test_critical_values(repetitions: int, t: float) -> None:
    assert critical_value(repetitions) == pytest.approx(t, abs=5e-4)


def test_one_repetition_or_one_strategy_proves_nothing() -> None:
    once = penalty_matrix([{"a": np.array([[0.1, 0.9]]), "b": np.array([[0.1, 0.2]])}])
    assert (once.matrix == 0).all()
    assert penalty_matrix([{"a": np.ones((3, 4))}]).column_means == [0]


def test_ranks_by_hand() -> None:
    first = {"a": np.array([[0, 0.9], [0, 0.5]]), "b": np.array([[0, 0.8], [0, 0.5]])}
    second = {"b": np.array([[0, 0.8]]), "a": np.array([[0, 0.7]])}
    assert mean_ranks([first]) == {"a": 1.25, "b": 1.75}
    assert mean_ranks([first, second]) == {"a": (1.25 + 2) / 2, "b": (1.75 + 1) / 2}


@given(experiments())
def test_ranks_are_shared_out_whole(datasets: list[Counts]) -> None:
    assert sum(mean_ranks(as_shares(datasets)).values()) == pytest.approx(6)


def test_what_cannot_be_compared_is_refused() -> None:
    runs = np.ones((2, 3))
    with pytest.raises(InputError, match="nothing to compare"):
        performance_profile([])
    with pytest.raises(InputError, match="some datasets lack b"):
        penalty_matrix([{"a": runs}, {"a": runs, "b": runs}])
    with pytest.raises(InputError, match="at least two rounds"):
        mean_ranks([{"a": runs[:, :1]}])
    with pytest.raises(InputError, match="all have the same shape"):
        performance_profile([{"a": runs, "b": runs[:, :2]}])


def test_the_steps_are_sorted() -> None:
    rng = np.random.default_rng(0)
    profiles = performance_profile([{name: rng.random((5, 9)) for name in NAMES}])
    for curve in profiles.values():
        assert all(before < after for before, after in pairwise(curve.gaps))
