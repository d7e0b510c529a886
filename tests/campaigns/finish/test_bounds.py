from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from reference import promise as reference
from teeter.campaigns.finish.bounds import (
    ErrorPrior,
    anytime_p_value,
    draws_needed,
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
