from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference import promise as reference
from teeter.campaigns.finish.bounds import (
    JUDGE_PRIOR,
    ErrorPrior,
    anytime_p_value,
    draws_needed,
    draws_to_decide,
    running_bounds,
    smallest_p_value,
    upper_bound,
)

PRIOR = ErrorPrior(1.0, 9.0)


def as_fractions(prior: ErrorPrior) -> tuple[Fraction, Fraction]:
    return Fraction(prior.wrong), Fraction(prior.right)


@pytest.mark.parametrize("seed", range(6))
def test_p_values_are_those_of_the_exact_fractions(seed: int) -> None:
    generator = np.random.default_rng(seed)
    size = int(generator.integers(8, 25))
    limit = int(generator.integers(0, size))
    is_wrong = generator.random(int(generator.integers(1, size))) < 0.2
    prior = ErrorPrior(0.5, 4.0) if seed % 2 else PRIOR

    expected = reference.p_value(size, is_wrong.tolist(), limit, *as_fractions(prior))
    p_value = anytime_p_value(size, len(is_wrong), int(is_wrong.sum()), limit, prior)
    assert p_value == pytest.approx(float(expected), rel=1e-9, abs=1e-15)

    expected = reference.smallest_p_value(size, is_wrong.tolist(), limit, *as_fractions(prior))
    smallest = smallest_p_value(size, is_wrong, limit, prior)
    assert smallest == pytest.approx(float(expected), rel=1e-9, abs=1e-15)


def probability_of_ever_showing(
    size: int, number: int, limit: int, alpha: float, prior: ErrorPrior
) -> float:
    """Return exactly how probable it is that looking after every draw shows what is false."""
    reached = {0: 1.0}
    shown = 0.0
    for drawn in range(1, size + 1):
        after: dict[int, float] = {}
        for wrong, probability in reached.items():
            left = size - drawn + 1
            chance_of_wrong = (number - wrong) / left
            for more, chance in ((1, chance_of_wrong), (0, 1 - chance_of_wrong)):
                if chance > 0:
                    after[wrong + more] = after.get(wrong + more, 0.0) + probability * chance

        reached = {}
        for wrong, probability in after.items():
            if anytime_p_value(size, drawn, wrong, limit, prior) <= alpha:
                shown += probability
            else:
                reached[wrong] = probability
    return shown


@pytest.mark.parametrize("limit", [2, 6, 12])
@pytest.mark.parametrize("excess", [1, 3])
def test_looking_after_every_draw_errs_no_more_often_than_allowed(limit: int, excess: int) -> None:
    alpha = 0.05

    error = probability_of_ever_showing(120, limit + excess, limit, alpha, PRIOR)

    assert 0 < error <= alpha


@pytest.mark.slow
def test_looking_often_at_fixed_tests_would_err_more_often() -> None:
    # The test of this file can fail: the usual binomial test breaks under many looks.
    from scipy.stats import hypergeom

    size = 1200
    limit = 60
    alpha = 0.05
    generator = np.random.default_rng(0)
    broken = 0
    for _ in range(300):
        is_wrong = generator.permutation(np.arange(size) < limit + 1)
        wrong = np.cumsum(is_wrong)
        drawn = np.arange(1, size + 1)
        p_values = hypergeom.cdf(wrong, size, limit + 1, drawn)
        broken += bool((p_values[:600] <= alpha).any())

    assert broken / 300 > 2 * alpha


def test_the_bound_is_the_smallest_limit_that_is_shown() -> None:
    bound = upper_bound(500, 80, 2, 0.05, PRIOR)

    assert anytime_p_value(500, 80, 2, bound, PRIOR) <= 0.05
    assert anytime_p_value(500, 80, 2, bound - 1, PRIOR) > 0.05


def test_what_is_certain_needs_no_draws() -> None:
    # All items may be wrong; or all have been seen.
    assert anytime_p_value(10, 0, 0, 10, PRIOR) == 0
    assert smallest_p_value(10, np.zeros(0, bool), 10, PRIOR) == 0
    assert upper_bound(10, 10, 3, 0.05, PRIOR) == 3


def test_nothing_is_shown_without_draws() -> None:
    assert anytime_p_value(100, 0, 0, 5, PRIOR) == 1
    assert smallest_p_value(100, np.zeros(0, bool), 5, PRIOR) == 1
    assert upper_bound(100, 0, 0, 0.05, PRIOR) == 100


def test_draws_needed_grow_with_the_share_of_wrong_items() -> None:
    prior = ErrorPrior.for_error(0.05)

    needed = [draws_needed(3000, 150, 0.05, share, prior) for share in (0.0, 0.01, 0.02)]

    assert needed == sorted(needed, key=lambda draws: draws or 0)
    assert needed[0] == 72
    assert draws_needed(3000, 150, 0.05, 0.06, prior) is None


@pytest.mark.parametrize("seed", range(8))
def test_bounds_on_both_sides_are_those_of_the_exact_fractions(seed: int) -> None:
    generator = np.random.default_rng(seed)
    size = int(generator.integers(8, 25))
    is_wrong = generator.random(int(generator.integers(1, size + 1))) < generator.random()
    prior = JUDGE_PRIOR if seed % 2 else PRIOR

    alpha = Fraction(1, 5)
    plausible = reference.plausible_numbers(size, is_wrong.tolist(), alpha, *as_fractions(prior))
    lows, highs = running_bounds(size, is_wrong, float(alpha), prior)

    assert list(range(lows[-1], highs[-1] + 1)) == plausible


@given(
    size=st.integers(1, 3000),
    share_drawn=st.floats(0, 1),
    share_wrong=st.floats(0, 1),
    seed=st.integers(0, 2**32 - 1),
)
def test_bounds_only_become_narrower_and_hold_what_was_seen(
    size: int, share_drawn: float, share_wrong: float, seed: int
) -> None:
    generator = np.random.default_rng(seed)
    is_wrong = generator.random(int(share_drawn * size)) < share_wrong

    lows, highs = running_bounds(size, is_wrong, 0.05, JUDGE_PRIOR)

    assert (lows[0], highs[0]) == (0, size)
    assert (np.diff(lows) >= 0).all()
    assert (np.diff(highs) <= 0).all()
    assert (lows <= highs).all()


def count_misses(size: int, number: int, draws: int, times: int, seed: int) -> int:
    """Return how often the truth was outside of the bounds at one of the looks."""
    generator = np.random.default_rng(seed)
    misses = 0
    for _ in range(times):
        is_wrong = generator.permutation(np.arange(size) < number)[:draws]
        lows, highs = running_bounds(size, is_wrong, 0.05, JUDGE_PRIOR)
        misses += not lows[-1] <= number <= highs[-1]
    return misses


@pytest.mark.parametrize("share_wrong", [0.01, 0.2, 0.8])
def test_bounds_looked_at_after_every_draw_miss_the_truth_rarely(share_wrong: float) -> None:
    # Written down before: at most 5 % of 400, and by chance rarely more than 30 of them.
    assert count_misses(1000, round(1000 * share_wrong), 300, 400, seed=7) <= 30


def test_a_decision_takes_as_many_draws_as_estimated() -> None:
    size, limit = 3000, 300
    more = draws_to_decide(size, 100, 20, limit, alpha=0.05, prior=JUDGE_PRIOR)
    assert more is not None

    # If the share stays as it is, the bounds pass the limit then and not before.
    share = 20.5 / 101.5
    for extra, is_decided in ((more - 15, False), (more + 15, True)):
        wrong = round(share * (100 + extra))
        is_wrong = np.zeros(100 + extra, dtype=bool)
        is_wrong[np.linspace(0, 99 + extra, wrong).astype(int)] = True
        lows, _ = running_bounds(size, is_wrong, 0.05, JUDGE_PRIOR)
        assert (lows[-1] > limit) == is_decided


def test_what_may_be_exactly_true_is_not_decided_before_the_end() -> None:
    assert draws_to_decide(500, 100, 10, 50, alpha=0.05, prior=JUDGE_PRIOR) is None
    assert draws_to_decide(40, 10, 0, 0, alpha=0.05, prior=JUDGE_PRIOR) is None
