"""Agreement: the papers' worked examples, slow transcriptions, intervals that hold, and what is not yet known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score

from reference import agreement as reference
from teeter.campaigns.agreement import ENOUGH, alpha, alpha_by_class, kappa, observed

# Krippendorff 2011: four observers and twelve units, with values that are missing (section C).
FOUR = np.array(
    [
        [1, 2, 3, 3, 2, 1, 4, 1, 2, -1, -1, -1],
        [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, -1, 3],
        [-1, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, -1],
        [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, -1],
    ]
).T
# The same: two observers, ten binary units (section A), and twelve units of five classes (section B).
BINARY = np.array([[0, 1, 0, 0, 0, 0, 0, 0, 1, 0], [1, 1, 1, 0, 0, 1, 0, 0, 0, 0]]).T
TWO = np.array(
    [
        ["abcde".index(letter) for letter in line]
        for line in ("aabbdccceddA".lower(), "babbbcccEddd".lower())
    ]
).T


@pytest.mark.parametrize(("ratings", "expected"), [(FOUR, 0.743), (BINARY, 0.095), (TWO, 0.692)])
def test_the_worked_examples_of_alpha(ratings: np.ndarray, expected: float) -> None:
    found = alpha(ratings)
    assert found is not None
    assert found.value == pytest.approx(expected, abs=5e-4)
    assert found.low <= found.value <= found.high


def from_table(counts: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    pairs = [
        (i, j)
        for i, line in enumerate(counts)
        for j, count in enumerate(line)
        for _ in range(count)
    ]
    return np.array([i for i, _ in pairs]), np.array([j for _, j in pairs])


def test_a_worked_example_of_kappa() -> None:
    # Fleiss, Cohen and Everitt 1969, table 1, of 200 cases.
    found = kappa(*from_table([[106, 10, 4], [22, 28, 10], [2, 12, 6]]))
    assert found is not None
    assert (found.value, found.items) == (pytest.approx(0.429, abs=5e-4), 200)


RATINGS = st.integers(2, 4).flatmap(
    lambda people: st.lists(
        st.lists(st.integers(-1, 3), min_size=people, max_size=people), min_size=1, max_size=30
    ).map(np.array)
)


@given(RATINGS)
def test_they_are_what_the_papers_write(ratings: np.ndarray) -> None:
    shared = ratings[(ratings >= 0).sum(axis=1) > 1]
    if len(shared) < ENOUGH:
        assert alpha(ratings) is None
        assert observed(ratings) is None
        return
    share = observed(ratings)
    assert share is not None
    assert share.value == pytest.approx(reference.observed(ratings))
    assert 0 <= share.low <= share.value <= share.high <= 1
    found = alpha(ratings)
    if len(np.unique(shared[shared >= 0])) == 1:
        assert found is None
    else:
        assert found is not None
        assert found.value == pytest.approx(reference.alpha(ratings))
        assert found.low <= found.value <= found.high
        assert found.items == len(shared)


@given(st.lists(st.tuples(st.integers(-1, 3), st.integers(-1, 3)), max_size=40))
def test_kappa_is_what_the_paper_writes(pairs: list[tuple[int, int]]) -> None:
    first, second = (np.array([pair[k] for pair in pairs], dtype=np.int64) for k in (0, 1))
    both = (first >= 0) & (second >= 0)
    found = kappa(first, second)
    one_class = len(set(first[both]) | set(second[both])) < 2
    assert (found is None) == (both.sum() < ENOUGH or one_class)
    if found is not None:
        assert found.value == pytest.approx(reference.kappa(first, second))
        assert found.value == pytest.approx(cohen_kappa_score(first[both], second[both]))
        assert -1 <= found.low <= found.value <= found.high <= 1


def drawn(seed: int, items: int, right: float, people: int = 2) -> np.ndarray:
    """People who each say what an item is with a probability, and else anything."""
    source = np.random.default_rng(seed)
    truth = source.integers(3, size=(items, 1))
    return np.where(
        source.random((items, people)) < right, truth, source.integers(3, size=(items, people))
    )


@pytest.mark.parametrize("items", [15, 60])
def test_the_intervals_hold_most_times(items: int) -> None:
    true = 0.8**2  # of two who know with 0.8 and else guess, beyond chance
    held = {"kappa": 0, "alpha": 0}
    for seed in range(150):
        ratings = drawn(seed, items, 0.8)
        for name, found in (
            ("kappa", kappa(ratings[:, 0], ratings[:, 1])),
            ("alpha", alpha(ratings)),
        ):
            held[name] += found is not None and found.low <= true <= found.high
    assert min(held.values()) >= 0.88 * 150, held


def test_few_who_agree_are_not_certain() -> None:
    ratings = np.repeat([[0], [1], [0], [1], [0], [1]], 2, axis=1)
    for found in (alpha(ratings), kappa(ratings[:, 0], ratings[:, 1]), observed(ratings)):
        assert found is not None
        assert found.value == found.high == 1
        assert found.low < 0.7


def test_a_class_that_people_confuse_stands_out() -> None:
    ratings = drawn(0, 300, 1.0)
    ratings[:, 1] = np.where(
        ratings[:, 1] == 2, np.random.default_rng(1).integers(1, 3, size=300), ratings[:, 1]
    )
    first, second, third = (
        found.value for found in alpha_by_class(ratings, 3) if found is not None
    )
    assert first == 1
    assert max(second, third) < 0.8
    assert alpha_by_class(ratings, 4)[3] is None, "nobody ever said it"
