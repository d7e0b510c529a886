from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference import promise as reference
from teeter.campaigns.finish.judge_estimates import (
    compare_judges,
    estimate_judged,
    exact_interval,
    group_judged,
    tells_right_from_wrong,
)


@given(
    n_classes=st.integers(1, 40),
    n_items=st.integers(1, 300),
    has_confidences=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_groups_hold_one_label_and_the_surest_have_the_largest_numbers(
    n_classes: int, n_items: int, has_confidences: bool, seed: int
) -> None:
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, n_classes, n_items)
    confidences = generator.random(n_items).round(1) if has_confidences else None
    if confidences is not None:
        confidences[generator.random(n_items) < 0.1] = np.nan

    groups = group_judged(labels, confidences)

    numbers = np.unique(groups)
    assert numbers.tolist() == list(range(len(numbers)))
    assert len(numbers) <= 3 * n_classes
    means = []
    for number in numbers:
        assert len(np.unique(labels[groups == number])) == 1
        if confidences is not None:
            means.append(np.nan_to_num(confidences[groups == number], nan=-1.0).mean())
    assert np.diff(means).min(initial=0.0) >= -1e-12


@given(
    n_groups=st.integers(1, 240),
    n_items=st.integers(1, 300),
    drawn_share=st.floats(0.05, 1),
    seed=st.integers(0, 2**32 - 1),
)
def test_estimates_count_every_draw_once(
    n_groups: int, n_items: int, drawn_share: float, seed: int
) -> None:
    generator = np.random.default_rng(seed)
    groups = generator.integers(0, n_groups, n_items)
    drawn = generator.permutation(n_items)[: max(1, int(drawn_share * n_items))]
    is_right = generator.random(len(drawn)) < 0.7

    estimate = estimate_judged(groups, drawn, is_right)

    assert (estimate.right, estimate.total) == (is_right.sum(), len(drawn))
    assert 0 <= estimate.low <= estimate.share <= estimate.high <= 1


def test_the_estimate_is_the_mean_of_the_strata() -> None:
    generator = np.random.default_rng(3)
    labels = generator.integers(0, 2, 400)
    confidences = generator.random(400)
    drawn = generator.permutation(400)[:120]
    is_right = generator.random(120) < confidences[drawn]

    estimate = estimate_judged(group_judged(labels, confidences), drawn, is_right)

    # Six strata: the two labels, each cut at its terciles.
    strata: list[tuple[int, int]] = []
    for label, confidence in zip(labels.tolist(), confidences.tolist(), strict=True):
        low, high = np.quantile(confidences[labels == label], [1 / 3, 2 / 3])
        strata.append((label, int(confidence >= low) + int(confidence >= high)))
    assert min(np.unique([strata[k] for k in drawn], axis=0, return_counts=True)[1]) >= 5
    expected = reference.stratified_share(strata, drawn.tolist(), is_right.tolist())
    assert estimate.share == pytest.approx(float(expected))
    assert estimate.low < estimate.share < estimate.high


def test_the_estimate_is_certain_once_all_items_are_drawn() -> None:
    is_right = np.arange(30) < 20
    estimate = estimate_judged(np.zeros(30, dtype=np.int64), np.arange(30), is_right)
    assert estimate.low == estimate.share == estimate.high == pytest.approx(2 / 3)


@pytest.mark.parametrize(("right", "total"), [(0, 7), (3, 9), (9, 9), (1, 40), (18, 20)])
def test_exact_intervals_end_where_the_binomial_tails_do(right: int, total: int) -> None:
    low, high = exact_interval(right, total, 0.1)

    if right:
        _, at_least = reference.exact_tails(right, total, Fraction(low))
        assert float(at_least) == pytest.approx(0.05)
    else:
        assert low == 0
    if right < total:
        at_most, _ = reference.exact_tails(right, total, Fraction(high))
        assert float(at_most) == pytest.approx(0.05)
    else:
        assert high == 1


def test_comparisons_cover_the_difference_of_two_judges() -> None:
    # Expected before: at least 94 % of 3,000 intervals hold the true difference of 0.1.
    generator = np.random.default_rng(11)
    covered = 0
    for _ in range(3000):
        both = generator.random(150)
        first = (both < 0.7) | (both > 0.85)
        second = both < 0.75
        score = compare_judges(first, second)
        covered += score.low <= 0.1 <= score.high
    assert covered / 3000 >= 0.94


def test_a_comparison_is_turned_round_by_turning_the_judges_round() -> None:
    generator = np.random.default_rng(5)
    first = generator.random(80) < 0.8
    second = generator.random(80) < 0.6
    forth = compare_judges(first, second)
    back = compare_judges(second, first)
    assert (forth.value, forth.low, forth.high) == pytest.approx(
        (-back.value, -back.high, -back.low)
    )


@pytest.mark.parametrize("shift", [0.0, 0.2, 0.45])
def test_confidences_are_compared_by_their_ranks(shift: float) -> None:
    generator = np.random.default_rng(2)
    wrong = generator.random(5)
    right = generator.random(6) + shift
    confidences = np.concatenate([right, wrong])
    is_right = np.arange(11) < 6

    expected = reference.rank_p_value(right.tolist(), wrong.tolist())
    assert tells_right_from_wrong(confidences, is_right) is (expected <= Fraction(1, 20))


def test_few_wrong_labels_say_nothing_about_confidences() -> None:
    assert tells_right_from_wrong(np.linspace(0, 1, 20), np.arange(20) >= 4) is None
