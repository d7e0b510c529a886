"""How many of a set of items are wrong, judged by some that are drawn at random.

A set has N items, of which K are wrong. Items are drawn one after the other at random, without
replacement, and each is found right or wrong. The functions here test guesses of K with the
prior-posterior ratio of a beta-binomial prior [Waudby-Smith and Ramdas 2020]: if K is the truth,
the ratio ``prior(K) / posterior(K)`` is a martingale that begins at 1, so that with probability
1 - alpha it never reaches 1 / alpha, however often one looks [Ville 1939].

Nothing here is an approximation. The prior decides how soon a test succeeds, never whether it errs.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, inf, lgamma

import numpy as np

from teeter.base.array_types import Booleans, Floats, Integers


@dataclass(frozen=True)
class ErrorPrior:
    """A beta distribution of the share of wrong items, chosen before any item is drawn."""

    wrong: float
    """Its first parameter: so many wrong items seem to have been seen before."""
    right: float
    """Its second parameter: so many right ones."""

    @classmethod
    def for_error(cls, error: float) -> ErrorPrior:
        """Return the prior with which it is soonest shown that a share is below ``error``.

        Its mean is well below the error, because a model is only asked to label the rest if it is
        better than that. It is wide, so that it also works for a model that is a little better.
        """
        mean = _PRIOR_MEAN * error
        return cls(_PRIOR_WRONG, _PRIOR_WRONG * (1 - mean) / mean)


_PRIOR_WRONG = 1.0
_PRIOR_MEAN = 0.3
"""As a share of the error to be shown.

With 5 % allowed and 3,000 items, 72 draws suffice if none is wrong, 121 if 1 % are and 334 if 2 %
are. Halving or doubling either value changes these numbers by less than a fifth.
"""


JUDGE_PRIOR = ErrorPrior(0.5, 1.0)
"""The prior for a judge of whose errors nothing is known.

After 200 of 5,000 items with errors of 5 to 80 %, the bounds are at most 8 % farther apart than
with the best of twelve priors that were tried. With ``for_error(0.05)``, which expects few errors,
they are 1.6 to 3.3 times as far apart where 20 to 80 % are wrong.
"""


def anytime_p_value(size: int, drawn: int, wrong: float, limit: int, prior: ErrorPrior) -> float:
    """Return a p-value of the hypothesis that more than ``limit`` of all items are wrong.

    If the hypothesis is true, the p-value is below alpha at any time, for any number of looks, with
    a probability of at most alpha.

    Args:
        size: N, the number of all items.
        drawn: how many were drawn at random.
        wrong: how many of those are wrong; an expected number need not be whole.
        limit: the number of wrong items that is allowed.
        prior: chosen before the items were drawn.

    Example:
        >>> prior = ErrorPrior.for_error(0.05)
        >>> anytime_p_value(2000, 80, 0, 100, prior) < 0.05
        True
        >>> anytime_p_value(2000, 60, 0, 100, prior) < 0.05
        False
    """
    if limit >= size:
        return 0.0

    # Of all numbers above the limit, the likeliest gives the largest p-value. The likelihood falls
    # on both sides of its mode.
    mode = 0.0
    if drawn:
        mode = wrong * (size + 1) // drawn
    number = min(max(limit + 1, mode), size)
    log_likelihood = _log_likelihood(size, drawn, wrong, number)
    if log_likelihood == -inf:
        return 0.0

    # A beta-binomial number of wrong items makes draws without replacement look like coin flips
    # whose bias has the beta distribution, so that the size of the set drops out.
    log_posterior = _log_beta(prior.wrong + wrong, prior.right + drawn - wrong)
    log_marginal_likelihood = log_posterior - _log_beta(prior.wrong, prior.right)
    log_ratio = log_likelihood - log_marginal_likelihood
    return min(1.0, exp(min(log_ratio, 0.0)))


def smallest_p_value(size: int, is_wrong: Booleans, limit: int, prior: ErrorPrior) -> float:
    """Return the smallest ``anytime_p_value`` after any number of draws so far.

    What was shown once stays shown: the p-values hold for all numbers of draws at once, so their
    minimum is one as well.

    Args:
        size: N, the number of all items.
        is_wrong: (n,) whether each drawn item is wrong, in the order of the draws.
        limit: the number of wrong items that is allowed.
        prior: chosen before the items were drawn.
    """
    p_values = running_p_values(size, is_wrong, limit, prior)
    return float(p_values[-1])


def running_p_values(size: int, is_wrong: Booleans, limit: int, prior: ErrorPrior) -> Floats:
    """Return the ``smallest_p_value`` after 0, 1, ..., n draws, shape (n + 1,)."""
    if limit >= size:
        return np.zeros(len(is_wrong) + 1)

    # After each draw: how many were drawn, and how many of them are wrong.
    drawn = np.arange(len(is_wrong) + 1)
    wrong = np.concatenate([[0], np.cumsum(is_wrong)]).astype(np.int64)
    likeliest_number = wrong * (size + 1) // np.maximum(drawn, 1)
    number = np.clip(likeliest_number, limit + 1, size)
    log_ratios = _log_ratios(size, wrong, drawn - wrong, number, prior)
    p_values: Floats = np.exp(np.minimum(log_ratios, 0.0))
    return np.minimum.accumulate(p_values)


def upper_bound(size: int, drawn: int, wrong: int, alpha: float, prior: ErrorPrior) -> int:
    """Return a number that the wrong items of the set do not exceed.

    With probability 1 - alpha it holds for every number of drawn items at once.

    Example:
        >>> upper_bound(2000, 100, 1, 0.05, ErrorPrior.for_error(0.05))
        119
    """
    # The p-value falls as the limit rises, which bisection needs.
    low = wrong
    high = size
    while low < high:
        middle = (low + high) // 2
        if anytime_p_value(size, drawn, wrong, middle, prior) <= alpha:
            high = middle
        else:
            low = middle + 1
    return low


def running_bounds(
    size: int, is_wrong: Booleans, alpha: float, prior: ErrorPrior
) -> tuple[Integers, Integers]:
    """Return between which numbers the wrong items of the set lie after 0, 1, ..., n draws.

    With probability 1 - alpha, this holds after all draws at once. So the bounds only ever become
    narrower: what was shown once stays shown.

    Args:
        size: N, the number of all items.
        is_wrong: (n,) whether each drawn item is wrong, in the order of the draws.
        alpha: the probability of error.
        prior: chosen before the items were drawn.

    Returns:
        (n + 1,) the smallest and (n + 1,) the largest number.

    Example:
        >>> low, high = running_bounds(2000, np.arange(200) % 10 == 0, 0.05, JUDGE_PRIOR)
        >>> [(int(low[n]), int(high[n])) for n in (0, 50, 200)]
        [(0, 2000), (46, 551), (98, 360)]
    """
    drawn = np.arange(len(is_wrong) + 1)
    wrong = np.concatenate([[0], np.cumsum(is_wrong)]).astype(np.int64)
    right = drawn - wrong
    likeliest_number = wrong * (size + 1) // np.maximum(drawn, 1)
    likeliest = np.clip(likeliest_number, wrong, size - right)

    # The ratio falls on both sides of the likeliest number, where it is above any alpha.
    ends = []
    for beyond in (wrong - 1, size - right + 1):
        plausible = likeliest
        while (np.abs(beyond - plausible) > 1).any():
            is_open = np.abs(beyond - plausible) > 1
            middle = np.where(is_open, (plausible + beyond) // 2, plausible)
            log_ratios = _log_ratios(size, wrong, right, middle, prior)
            is_plausible = log_ratios > np.log(alpha)
            plausible = np.where(is_plausible, middle, plausible)
            beyond = np.where(is_plausible, beyond, middle)
        ends.append(plausible)
    low, high = ends
    lows = np.maximum.accumulate(low)
    highs = np.minimum.accumulate(high)

    # What was shown before may be refuted, with a probability of at most alpha: then it stays.
    crossed = np.flatnonzero(lows > highs)
    if len(crossed):
        first = crossed[0]
        lows[first:] = lows[first - 1]
        highs[first:] = highs[first - 1]
    return lows, highs


def _log_ratios(
    size: int, wrong: Integers, right: Integers, number: Integers, prior: ErrorPrior
) -> Floats:
    """Return log(posterior / prior) of numbers of wrong items; -inf where the draws refute them."""
    from scipy.special import betaln, gammaln

    # So many right items exist only if fewer are wrong. The logarithms are of clipped numbers, so
    # that they are defined; what they give is replaced.
    is_impossible = (number < wrong) | (size - number < right)
    wrong_left = np.maximum(number - wrong, 0)
    right_left = np.maximum(size - number - right, 0)
    log_likelihoods = (
        gammaln(number + 1)
        - gammaln(wrong_left + 1)
        + gammaln(size - number + 1)
        - gammaln(right_left + 1)
        - gammaln(size + 1)
        + gammaln(size - wrong - right + 1)
    )
    log_prior = betaln(prior.wrong, prior.right)
    log_marginals = betaln(prior.wrong + wrong, prior.right + right) - log_prior
    log_ratios: Floats = log_likelihoods - log_marginals
    log_ratios[is_impossible] = -np.inf
    return log_ratios


def draws_to_decide(
    size: int, drawn: int, wrong: int, limit: int, *, alpha: float, prior: ErrorPrior
) -> int | None:
    """Return how many more draws tell whether more than ``limit`` items are wrong.

    It is an estimate: what happens if the next draws are wrong as often as those so far.

    Returns:
        The number, or None if all items would have to be drawn.
    """
    if drawn == 0:
        return None
    share_wrong = wrong / drawn
    # To show that more are wrong, the limit itself must be refuted; else, the number after it.
    refuted = limit + 1
    if share_wrong * size > limit:
        refuted = limit
    if not 0 <= refuted <= size:
        return None

    counts = np.arange(drawn, size)
    wrong_then = np.round(share_wrong * counts).astype(np.int64)
    number = np.full(len(counts), refuted)
    ratios = _log_ratios(size, wrong_then, counts - wrong_then, number, prior)
    decided = np.flatnonzero(ratios <= np.log(alpha))
    if not len(decided):
        return None
    first = int(decided[0])
    return int(counts[first]) - drawn


def _log_likelihood(size: int, drawn: int, wrong: float, number: float) -> float:
    """Return the log probability of one order of draws if ``number`` of all items are wrong."""
    right = drawn - wrong
    if number < wrong or size - number < right:
        return -inf

    # number! / (number - wrong)! ways for the wrong ones, and so on, of size! / (size - drawn)!.
    ways = _log_falling(number, wrong) + _log_falling(size - number, right)
    return ways - _log_falling(size, drawn)


def _log_falling(count: float, draws: float) -> float:
    """Return log(count * (count - 1) * ...) with as many factors as draws."""
    return lgamma(count + 1) - lgamma(count - draws + 1)


def _log_beta(a: float, b: float) -> float:
    return lgamma(a) + lgamma(b) - lgamma(a + b)


def draws_needed(
    size: int, limit: int, alpha: float, share_wrong: float, prior: ErrorPrior
) -> int | None:
    """Return how many draws show that at most ``limit`` items are wrong, if a share of them is.

    Args:
        size: the number of all items.
        limit: the number of wrong items that is allowed.
        alpha: the level of the test.
        share_wrong: the expected share of wrong items among those drawn.
        prior: the prior of the test.

    Returns:
        The number, or None if all items would have to be drawn.
    """
    # The test would have to show what is not true.
    if share_wrong * size > limit:
        return None

    low = 1
    high = size
    while low < high:
        middle = (low + high) // 2
        wrong = round(share_wrong * middle)
        if anytime_p_value(size, middle, wrong, limit, prior) <= alpha:
            high = middle
        else:
            low = middle + 1
    if low >= size:
        return None
    return low
