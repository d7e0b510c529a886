"""The statistics, against figures worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from teeter.analysis.comparison import gain_over, labels_to_reach, paired_t
from teeter.errors import InputError


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
    ("target", "labels"), [(0.4, 10), (0.5, 10), (0.6, 15), (0.7, 20), (0.65, 17.5), (0.8, 40), (0.75, 35), (0.9, None)]
)
def test_labels_are_read_off_the_first_crossing(target: float, labels: float | None) -> None:
    found = labels_to_reach(np.array([10, 20, 30, 40]), np.array([0.5, 0.7, 0.7, 0.8]), target)
    assert found == (None if labels is None else pytest.approx(labels))
