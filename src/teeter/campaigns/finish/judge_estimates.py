"""How good the labels of a judge are: a language model, a vendor, or a rule.

A judge has labelled N items, and people label some of them that are drawn at random. How many of
all its labels are wrong is bounded in ``bounds``, at any look. The functions here say more about
the same draws, each for a single look at a number of draws that was chosen in advance.

Nothing here reads a database or loads torch.
"""

from __future__ import annotations

import math

import numpy as np

from teeter.base.array_types import Booleans, Floats, Integers
from teeter.campaigns.learning.stopping import estimate_by_strata, merge_strata
from teeter.campaigns.records import AccuracyEstimate, AgreementScore

_THIRDS = 3

_NORMAL_QUANTILE = 1.959963984540054
"""95 % of a normal distribution lie within this many standard deviations of its mean."""

_FEWEST_TO_COMPARE = 5
"""Right labels, and wrong ones, without which their confidences are not compared."""


def group_judged(labels: Integers, confidences: Floats | None) -> Integers:
    """Divide items by the judge's label and, within each label, into thirds by its confidence.

    Args:
        labels: (N,) the index of the class that the judge gives each item.
        confidences: (N,) how sure it says it is, NaN where it says nothing; None without any.

    Returns:
        (N,) the number of each item's group. Groups of similar confidence have similar numbers, or
        of similar size without one. Nothing that people say decides it.
    """
    groups = labels * _THIRDS
    if confidences is not None:
        # Where it says nothing, it is taken to be the least sure.
        confidences = np.nan_to_num(confidences, nan=-1.0)
        levels = np.arange(1, _THIRDS) / _THIRDS
        for label in np.unique(labels):
            is_label = labels == label
            of_label = confidences[is_label]
            edges = np.quantile(of_label, levels)
            groups[is_label] += np.searchsorted(edges, of_label, side="right")

    _, groups = np.unique(groups, return_inverse=True)
    sizes = np.bincount(groups)
    similarity: Floats = sizes.astype(np.float64)
    if confidences is not None:
        similarity = np.bincount(groups, weights=confidences) / sizes
    order = np.argsort(similarity, kind="stable")
    number_of_group = np.empty(len(order), dtype=np.int64)
    number_of_group[order] = np.arange(len(order))
    numbers: Integers = number_of_group[groups]
    return numbers


def estimate_judged(groups: Integers, drawn: Integers, is_right: Booleans) -> AccuracyEstimate:
    """Estimate which share of a judge's labels is right.

    Neighbouring groups are joined to at most eight strata with five drawn items each.

    Args:
        groups: (N,) as ``group_judged`` returns them.
        drawn: (n,) positions of the items that were drawn at random, one or more.
        is_right: (n,) whether people say the same of them.

    Example:
        >>> labels = np.arange(1000) % 2
        >>> drawn = np.arange(200)
        >>> is_right = (labels[drawn] == 0) | (drawn < 100)
        >>> estimate = estimate_judged(group_judged(labels, None), drawn, is_right)
        >>> f"{estimate.share:.0%} ({estimate.low:.0%} to {estimate.high:.0%})"
        '75% (70% to 79%)'
    """
    right = int(is_right.sum())
    share_drawn = len(drawn) / len(groups)
    if share_drawn == 1:
        share = right / len(drawn)
        return AccuracyEstimate(share=share, low=share, high=share, total=len(drawn), right=right)

    shares = np.bincount(groups) / len(groups)
    of_drawn = groups[drawn]
    totals = np.bincount(of_drawn, minlength=len(shares))
    rights = np.bincount(of_drawn[is_right], minlength=len(shares))
    strata = zip(shares.tolist(), rights.tolist(), totals.tolist(), strict=True)
    merged = merge_strata(list(strata))
    # Only items that were not drawn are left to chance, so the variance is smaller by their share.
    estimate = estimate_by_strata(merged, share_judged=-share_drawn)
    return estimate or AccuracyEstimate(share=0.0, low=0.0, high=1.0, total=0, right=0)


def exact_interval(right: int, total: int, alpha: float) -> tuple[float, float]:
    """Return the exact confidence interval for a share [Clopper and Pearson 1934].

    Args:
        right: how many of the drawn items have the property.
        total: how many were drawn.
        alpha: the probability of error. Divided by their number, several intervals hold at once.

    Example:
        >>> low, high = exact_interval(18, 20, 0.05)
        >>> round(low, 3), round(high, 3)
        (0.683, 0.988)
    """
    from scipy.special import betaincinv

    low = 0.0
    high = 1.0
    if right > 0:
        low = float(betaincinv(right, total - right + 1, alpha / 2))
    if right < total:
        high = float(betaincinv(right + 1, total - right, 1 - alpha / 2))
    return low, high


def compare_judges(first_is_right: Booleans, second_is_right: Booleans) -> AgreementScore:
    """Return by how much more of the first judge's labels are right, on the same n >= 1 items.

    Items that both label right or both label wrong tell nothing about which is better, so that this
    is much more precise than the intervals of the two. A half is added to each of the four counts
    [Agresti and Min 2005].

    Example:
        >>> first = np.arange(100) < 90
        >>> second = np.arange(100) < 80
        >>> score = compare_judges(first, second)
        >>> f"{score.value:.2f} ({score.low:.2f} to {score.high:.2f})"
        '0.10 (0.04 to 0.16)'
    """
    total = len(first_is_right) + 2
    is_only_first = first_is_right & ~second_is_right
    is_only_second = second_is_right & ~first_is_right
    only_first = int(is_only_first.sum()) + 0.5
    only_second = int(is_only_second.sum()) + 0.5
    difference = (only_first - only_second) / total
    variance = ((only_first + only_second) / total - difference**2) / total
    half_width = _NORMAL_QUANTILE * math.sqrt(variance)
    return AgreementScore(
        value=float(first_is_right.mean() - second_is_right.mean()),
        low=max(-1.0, difference - half_width),
        high=min(1.0, difference + half_width),
        items=len(first_is_right),
    )


def tells_right_from_wrong(confidences: Floats, is_right: Booleans) -> bool | None:
    """Return whether a judge is surer of its right labels than of its wrong ones.

    Args:
        confidences: (n,) of drawn items.
        is_right: (n,) whether people say the same.

    Returns:
        Whether a one-sided test of ranks shows it at 5 % [Mann and Whitney 1947]; None where there
        are too few right or wrong labels to say.
    """
    from scipy.stats import mannwhitneyu

    right = confidences[is_right]
    wrong = confidences[~is_right]
    if min(len(right), len(wrong)) < _FEWEST_TO_COMPARE:
        return None
    return bool(mannwhitneyu(right, wrong, alternative="greater").pvalue <= 0.05)
