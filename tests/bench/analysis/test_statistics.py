"""The statistics, against figures worked out by hand."""

from __future__ import annotations

import doctest

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from teeter.bench.analysis import paper_results, statistics, table_formats
from teeter.bench.analysis.statistics import (
    gain_over,
    labels_to_reach,
    mean_and_std,
    paired_t,
    rank_correlation,
    saving_over,
)
from teeter.errors import InputError


@pytest.mark.parametrize("module", [paper_results, statistics, table_formats])
def test_the_examples_run(module: object) -> None:
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0


def test_the_gain_is_a_paired_difference_without_the_first_round() -> None:
    ours = np.array([[0.1, 0.6, 0.8], [0.9, 0.5, 0.9], [0.5, 0.7, 0.9]])
    theirs = np.array([[0.7, 0.5, 0.7], [0.2, 0.5, 0.7], [0.5, 0.6, 0.7]])
    gain = gain_over(ours, theirs)
    assert gain.mean == pytest.approx((10 + 10 + 15) / 3)
    assert gain.deviation == pytest.approx(np.std([10, 10, 15], ddof=1))
    assert gain.t == pytest.approx(gain.mean / (gain.deviation / np.sqrt(3)))
    assert gain.p == pytest.approx(2 * stats.t.sf(gain.t, df=2))
    assert gain.significant == (gain.p < 0.05)


def test_equal_runs_are_no_win() -> None:
    same = np.array([[0.5, 0.6], [0.5, 0.7]])
    assert paired_t(np.zeros(5)) == (0.0, 1.0)
    assert paired_t(np.full(5, 0.1)) == (0.0, 1.0)
    assert not gain_over(same, same).significant


def test_one_repetition_proves_nothing() -> None:
    gain = gain_over(np.array([[0.5, 0.9]]), np.array([[0.5, 0.6]]))
    assert gain.mean == pytest.approx(30)
    assert (gain.deviation, gain.p) == (0, 1)


@pytest.mark.parametrize("shape", [(3, 1), (3,), (2, 4)])
def test_what_cannot_be_paired_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="cannot be paired"):
        gain_over(np.zeros(shape), np.zeros((3, 4)))


@pytest.mark.parametrize(
    ("target", "labels"),
    [(0.4, 10), (0.5, 10), (0.6, 15), (0.7, 20), (0.65, 17.5), (0.8, 40), (0.75, 35), (0.9, None)],
)
def test_labels_are_read_off_the_first_crossing(target: float, labels: float | None) -> None:
    needed = labels_to_reach(np.array([10, 20, 30, 40]), np.array([0.5, 0.7, 0.7, 0.8]), target)
    assert needed == (None if labels is None else pytest.approx(labels))


def test_differences_that_vary_by_rounding_do_not_vary() -> None:
    base = np.array([0.1, 0.2, 0.3, 0.7, 0.9])
    assert paired_t(100 * ((base + 0.05) - base)) == (0.0, 1.0)


def test_a_band_is_the_mean_and_the_spread_over_repetitions() -> None:
    mean, spread = mean_and_std(np.array([[0.5, 0.6], [0.5, 0.8]]))
    np.testing.assert_allclose(mean, [0.5, 0.7])
    np.testing.assert_allclose(spread, [0, np.sqrt(0.02)])
    np.testing.assert_array_equal(mean_and_std(np.array([[0.5, 0.6]]))[1], [0, 0])


def test_labels_saved_by_hand() -> None:
    labelled = np.array([10.0, 20.0, 30.0])
    random = np.array([[0.5, 0.6, 0.7], [0.5, 0.6, 0.8]])
    ours = np.array([[0.5, 0.7, 0.9], [0.5, 0.8, 0.8]])
    saving = saving_over(labelled, ours, random)
    assert (saving.target, saving.labels, saving.baseline) == pytest.approx((0.75, 20, 30))
    assert saving.saved == pytest.approx(10)
    assert saving.needed_by_repetition == ((20, pytest.approx(30)), (20, pytest.approx(30)))
    assert saving.saved_by_repetition == pytest.approx((10, 10))
    assert saving.spread == pytest.approx((10, 0))
    assert saving.p == 1, "what does not vary is no win"


def test_a_target_that_is_never_reached_saves_nothing_and_has_no_spread() -> None:
    labelled = np.array([10.0, 20.0])
    saving = saving_over(
        labelled, np.array([[0.5, 0.6], [0.5, 0.9]]), np.array([[0.5, 0.9], [0.5, 0.8]])
    )
    assert (saving.labels, saving.saved, saving.spread, saving.p) == (None, None, None, None)
    assert saving.saved_by_repetition[0] is None
    assert saving.saved_by_repetition[1] == pytest.approx(2.5)


def test_random_saves_nothing_against_itself() -> None:
    runs = np.random.default_rng(0).random((4, 6))
    saving = saving_over(np.arange(6.0), runs, runs)
    assert saving.saved == 0
    assert saving.spread == (0, 0)


def test_a_better_curve_saves_more() -> None:
    rng = np.random.default_rng(1)
    labelled = np.arange(10.0, 70, 10)
    random = np.sort(rng.random((5, 6)), axis=1)
    saved = [saving_over(labelled, random + lift, random).saved for lift in (0, 0.05, 0.1, 0.2)]
    assert saved == sorted(saved)
    assert saved[-1] > saved[0] == 0


def test_rank_agreement_by_hand() -> None:
    ours = {"a": 1.0, "b": 2.0, "c": 3.0, "d": 4.0, "mine": 9.0}
    agreement = rank_correlation(ours, {"d": 40.0, "c": 20.0, "b": 30.0, "a": 10.0})
    # 1 - 6 sum d^2 / (n (n^2 - 1))
    assert agreement == pytest.approx(1 - 6 * (1 + 1) / (4 * 15))
    assert rank_correlation(ours, {"a": 1.0, "b": 2.0}) is None
    assert rank_correlation(ours, {"a": 1.0, "b": 1.0, "c": 1.0}) is None


def curves(seed: int, repetitions: int, rounds: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.random((repetitions, rounds)), rng.random((repetitions, rounds))


@given(st.integers(0, 999), st.integers(1, 6), st.integers(2, 6))
def test_a_gain_is_the_other_s_loss(seed: int, repetitions: int, rounds: int) -> None:
    ours, theirs = curves(seed, repetitions, rounds)
    gain, loss = gain_over(ours, theirs), gain_over(theirs, ours)
    assert (gain.mean, gain.t) == pytest.approx((-loss.mean, -loss.t))
    assert (gain.deviation, gain.p) == pytest.approx((loss.deviation, loss.p))
    assert 0 <= gain.p <= 1


@given(st.integers(0, 999), st.integers(2, 6), st.integers(2, 6))
def test_a_gain_needs_only_the_differences(seed: int, repetitions: int, rounds: int) -> None:
    ours, theirs = curves(seed, repetitions, rounds)
    # A repetition that is easier for both.
    luck = np.random.default_rng(seed + 1).random((repetitions, 1))
    moved = gain_over(ours + luck, theirs + luck)
    still = gain_over(ours, theirs)
    assert (moved.mean, moved.deviation, moved.p) == pytest.approx(
        (still.mean, still.deviation, still.p)
    )


@given(st.integers(0, 999), st.floats(0, 1), st.floats(0, 1))
def test_more_accuracy_never_needs_fewer_labels(seed: int, first: float, second: float) -> None:
    curve, _ = curves(seed, 1, 8)
    low, high = (
        labels_to_reach(np.arange(8.0), curve[0], target) for target in sorted((first, second))
    )
    assert high is None or (low is not None and low <= high)
