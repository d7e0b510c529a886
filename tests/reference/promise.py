"""The statistics of promises, written down literally and computed with exact fractions. Slow."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import comb


def rising(start: Fraction, factors: int) -> Fraction:
    product = Fraction(1)
    for k in range(factors):
        product *= start + k
    return product


def beta_binomial(size: int, number: int, a: Fraction, b: Fraction) -> Fraction:
    """The prior probability that ``number`` of ``size`` items are wrong."""
    ways = comb(size, number)
    return ways * rising(a, number) * rising(b, size - number) / rising(a + b, size)


def likelihood(size: int, number: int, is_wrong: Sequence[bool]) -> Fraction:
    """The probability of these draws, one after the other, if ``number`` items are wrong."""
    probability = Fraction(1)
    wrong_left = number
    right_left = size - number

    for wrong in is_wrong:
        left = wrong_left + right_left
        if wrong:
            probability *= Fraction(wrong_left, left)
            wrong_left -= 1
        else:
            probability *= Fraction(right_left, left)
            right_left -= 1

        if probability == 0:
            return probability

    return probability


def p_value(size: int, is_wrong: Sequence[bool], limit: int, a: Fraction, b: Fraction) -> Fraction:
    """The largest ``posterior / prior`` of a number above the limit, at most 1."""
    likelihoods = [likelihood(size, number, is_wrong) for number in range(size + 1)]
    evidence = Fraction(0)
    for number in range(size + 1):
        evidence += beta_binomial(size, number, a, b) * likelihoods[number]

    ratios = [likelihoods[number] / evidence for number in range(limit + 1, size + 1)]
    return min(Fraction(1), max(ratios, default=Fraction(0)))


def smallest_p_value(
    size: int, is_wrong: Sequence[bool], limit: int, a: Fraction, b: Fraction
) -> Fraction:
    """The smallest p-value after any number of the draws."""
    p_values = [p_value(size, is_wrong[:n], limit, a, b) for n in range(len(is_wrong) + 1)]
    return min(p_values)


def fallback(p_values: Sequence[float], weights: Sequence[float], level: float) -> list[bool]:
    """Which hypotheses the fallback procedure rejects."""
    rejected = []
    for k in range(len(p_values)):
        spendable = weights[k] * level
        # The shares of all hypotheses just before this one that were rejected without a gap.
        before = k - 1
        while before >= 0 and rejected[before]:
            spendable += weights[before] * level
            before -= 1
        rejected.append(spendable > 0 and p_values[k] <= spendable)
    return rejected
