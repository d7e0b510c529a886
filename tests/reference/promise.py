"""The statistics of promises, written down literally and computed with exact fractions. Slow."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations
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


def plausible_numbers(
    size: int, is_wrong: Sequence[bool], alpha: Fraction, a: Fraction, b: Fraction
) -> list[int]:
    """The numbers of wrong items whose ratio of prior and posterior never reached 1 / alpha."""
    plausible = set(range(size + 1))
    for n in range(len(is_wrong) + 1):
        evidence = Fraction(0)
        for number in range(size + 1):
            prior = beta_binomial(size, number, a, b)
            evidence += prior * likelihood(size, number, is_wrong[:n])
        for number in range(size + 1):
            # The ratio of posterior and prior is that of likelihood and evidence.
            if likelihood(size, number, is_wrong[:n]) <= alpha * evidence:
                plausible.discard(number)
    return sorted(plausible)


def stratified_share(
    strata: Sequence[object], drawn: Sequence[int], is_right: Sequence[bool]
) -> Fraction:
    """The mean over all items, where each item counts as the drawn ones of its stratum."""
    total = Fraction(0)
    for stratum in strata:
        rights = [is_right[k] for k, position in enumerate(drawn) if strata[position] == stratum]
        total += Fraction(sum(rights), len(rights))
    return total / len(strata)


def exact_tails(right: int, total: int, share: Fraction) -> tuple[Fraction, Fraction]:
    """The probabilities of at most, and of at least, so many right labels."""

    def probability(k: int) -> Fraction:
        return comb(total, k) * share**k * (1 - share) ** (total - k)

    at_most = sum((probability(k) for k in range(right + 1)), Fraction(0))
    at_least = sum((probability(k) for k in range(right, total + 1)), Fraction(0))
    return at_most, at_least


def rank_p_value(right: Sequence[float], wrong: Sequence[float]) -> Fraction:
    """The share of all assignments in which right labels are at least as much surer as here."""
    values = [*right, *wrong]

    def wins(chosen: Sequence[int]) -> Fraction:
        others = [k for k in range(len(values)) if k not in chosen]
        score = Fraction(0)
        for k in chosen:
            for j in others:
                score += Fraction(int(values[k] > values[j]))
                score += Fraction(int(values[k] == values[j]), 2)
        return score

    seen = wins(range(len(right)))
    scores = [wins(chosen) for chosen in combinations(range(len(values)), len(right))]
    return Fraction(sum(score >= seen for score in scores), len(scores))
