"""Agreement: worked examples of the papers, slow transcriptions, and intervals that cover."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score

from reference import agreement as reference
from teeter.campaigns.review.annotators import (
    MIN_ITEMS,
    cohen_kappa,
    krippendorff_alpha,
    krippendorff_alpha_by_class,
    observed_agreement,
    prediction_agreement,
)

# Krippendorff 2011: four observers and twelve units, with values that are missing (section C).
FOUR_OBSERVERS = np.array(
    [
        [1, 2, 3, 3, 2, 1, 4, 1, 2, -1, -1, -1],
        [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, -1, 3],
        [-1, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, -1],
        [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, -1],
    ]
).T

# The same paper: two observers, ten binary units (section A).
TWO_OBSERVERS_BINARY = np.array([[0, 1, 0, 0, 0, 0, 0, 0, 1, 0], [1, 1, 1, 0, 0, 1, 0, 0, 0, 0]]).T

# The same paper: two observers, twelve units of five classes (section B).
TWO_OBSERVERS = np.array(
    [
        ["abcde".index(letter) for letter in line]
        for line in ("aabbdcccedda", "babbbcccEddd".lower())
    ]
).T


@pytest.mark.parametrize(
    ("ratings", "expected"),
    [(FOUR_OBSERVERS, 0.743), (TWO_OBSERVERS_BINARY, 0.095), (TWO_OBSERVERS, 0.692)],
)
def test_alpha_of_the_worked_examples(ratings: np.ndarray, expected: float) -> None:
    score = krippendorff_alpha(ratings)

    assert score is not None
    assert score.value == pytest.approx(expected, abs=5e-4)
    assert score.low <= score.value <= score.high


def ratings_from_table(counts: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Return the ratings of two annotators from their contingency table."""
    pairs = []
    for first, line in enumerate(counts):
        for second, count in enumerate(line):
            pairs += [(first, second)] * count

    return np.array([first for first, _ in pairs]), np.array([second for _, second in pairs])


def test_kappa_of_a_worked_example() -> None:
    # Fleiss, Cohen and Everitt 1969, table 1, with 200 cases.
    score = cohen_kappa(*ratings_from_table([[106, 10, 4], [22, 28, 10], [2, 12, 6]]))

    assert score is not None
    assert score.value == pytest.approx(0.429, abs=5e-4)
    assert score.items == 200


RATINGS = st.integers(2, 4).flatmap(
    lambda n_annotators: st.lists(
        st.lists(st.integers(-1, 3), min_size=n_annotators, max_size=n_annotators),
        min_size=1,
        max_size=30,
    ).map(np.array)
)


@given(RATINGS)
def test_alpha_and_the_observed_agreement_match_the_papers(ratings: np.ndarray) -> None:
    shared = ratings[(ratings >= 0).sum(axis=1) > 1]
    if len(shared) < MIN_ITEMS:
        assert krippendorff_alpha(ratings) is None
        assert observed_agreement(ratings) is None
        return

    observed = observed_agreement(ratings)
    assert observed is not None
    assert observed.value == pytest.approx(reference.observed(ratings))
    assert 0 <= observed.low <= observed.value <= observed.high <= 1

    alpha = krippendorff_alpha(ratings)
    if len(np.unique(shared[shared >= 0])) == 1:
        assert alpha is None
    else:
        assert alpha is not None
        assert alpha.value == pytest.approx(reference.alpha(ratings))
        assert alpha.low <= alpha.value <= alpha.high
        assert alpha.items == len(shared)


@given(st.lists(st.tuples(st.integers(-1, 3), st.integers(-1, 3)), max_size=40))
def test_kappa_matches_the_paper(pairs: list[tuple[int, int]]) -> None:
    first = np.array([pair[0] for pair in pairs], dtype=np.int64)
    second = np.array([pair[1] for pair in pairs], dtype=np.int64)
    both = (first >= 0) & (second >= 0)
    has_one_class = len(set(first[both]) | set(second[both])) < 2

    score = cohen_kappa(first, second)

    assert (score is None) == (both.sum() < MIN_ITEMS or has_one_class)
    if score is not None:
        assert score.value == pytest.approx(reference.kappa(first, second))
        assert score.value == pytest.approx(cohen_kappa_score(first[both], second[both]))
        assert -1 <= score.low <= score.value <= score.high <= 1


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=2, max_size=60))
def test_the_agreement_of_predictions_is_kappa_and_the_share_that_changed(
    pairs: list[tuple[int, int]],
) -> None:
    before, after = (np.array(part) for part in zip(*pairs, strict=True))

    kappa, changed = prediction_agreement(before, after)

    assert changed == pytest.approx(np.mean(before != after))
    if len(set(before) | set(after)) > 1:
        assert kappa == pytest.approx(cohen_kappa_score(before, after))
    else:
        assert kappa == 1


def draw_ratings(seed: int, n_items: int, p_know: float, n_annotators: int = 2) -> np.ndarray:
    """Return ratings of annotators who know the class with a probability, and else guess."""
    generator = np.random.default_rng(seed)
    truth = generator.integers(3, size=(n_items, 1))
    knows = generator.random((n_items, n_annotators)) < p_know
    return np.where(knows, truth, generator.integers(3, size=(n_items, n_annotators)))


@pytest.mark.parametrize("n_items", [15, 60])
def test_the_intervals_cover_the_truth_most_of_the_time(n_items: int) -> None:
    truth = 0.8**2  # two annotators who know with probability 0.8 and else guess
    covered = {"kappa": 0, "alpha": 0}

    for seed in range(150):
        ratings = draw_ratings(seed, n_items, 0.8)
        scores = {
            "kappa": cohen_kappa(ratings[:, 0], ratings[:, 1]),
            "alpha": krippendorff_alpha(ratings),
        }
        for name, score in scores.items():
            covered[name] += score is not None and score.low <= truth <= score.high

    assert min(covered.values()) >= 0.88 * 150, covered


def test_perfect_agreement_on_a_few_items_has_a_wide_interval() -> None:
    ratings = np.repeat([[0], [1], [0], [1], [0], [1]], 2, axis=1)

    for score in (
        krippendorff_alpha(ratings),
        cohen_kappa(ratings[:, 0], ratings[:, 1]),
        observed_agreement(ratings),
    ):
        assert score is not None
        assert score.value == score.high == 1
        assert score.low < 0.7


def test_alpha_by_class_shows_which_classes_are_confused() -> None:
    ratings = draw_ratings(0, 300, 1.0)
    confused = np.random.default_rng(1).integers(1, 3, size=300)
    ratings[:, 1] = np.where(ratings[:, 1] == 2, confused, ratings[:, 1])

    first, second, third = krippendorff_alpha_by_class(ratings, 3)

    assert first is not None
    assert second is not None
    assert third is not None
    assert first.value == 1
    assert max(second.value, third.value) < 0.8
    assert krippendorff_alpha_by_class(ratings, 4)[3] is None, "a class without answers"
