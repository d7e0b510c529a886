"""Advice on when to stop labelling: the accuracy with an interval, and what changed.

The advice is a list of sentences for people. A campaign never stops by itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from teeter.base.array_types import Booleans, Floats, Integers
from teeter.campaigns.records import AccuracyEstimate

STABLE_MODELS = 3
"""Models whose predictions must have hardly changed from one to the next."""

STABLE_LABELS = 50
"""Further labels that these models must have learned from together, so that training after every
label does not look like a stable model."""

STABLE_DISAGREEMENT = 0.045
"""What their disagreements, 1 - kappa, may add up to: 0.015 for each of three models.

In the ten campaigns of docs/how_to/when_to_stop.md, this stopped as near to the best accuracy as
0.03 did, which took a tenth more labels.
"""

ROUGH_ACCURACY = 0.1
"""If the interval of the accuracy is wider than this, the accuracy is known only roughly."""

FEW_STRATA = 4
MORE_STRATA = 8
MANY_DRAWN = 200
"""Drawn items from which on there are more strata."""

FEWEST_PER_STRATUM = 5
"""Drawn items that a stratum has at least."""

Stratum: TypeAlias = tuple[float, int, int]
"""A stratum's share of all items, how many of its drawn items the model gets right, and how many
were drawn.
"""

_NORMAL_QUANTILE = 1.959963984540054
"""95 % of a normal distribution lie within this many standard deviations of its mean."""


def estimate_accuracy(
    right: int, total: int, *, share_judged: float = 0.0
) -> AccuracyEstimate | None:
    """Estimate an accuracy from items that were drawn at random.

    Args:
        right: How many of them are correct.
        total: How many were drawn.
        share_judged: The share of these items among those that the judging models were trained on.
            Items that train one model and judge another make the estimate vary more, up to about
            as much as half as many independent items would [Bates et al. 2024].

    Returns:
        The estimate, or None if nothing was drawn.

    Example:
        >>> estimate = estimate_accuracy(47, 50)
        >>> f"{estimate.share:.0%} ({estimate.low:.0%} to {estimate.high:.0%})"
        '94% (84% to 98%)'
    """
    if total == 0:
        return None

    low, high = wilson_interval(right / total, total / (1 + share_judged))
    return AccuracyEstimate(share=right / total, low=low, high=high, total=total, right=right)


def stratify(confidences: Floats, drawn: Integers, is_right: Booleans) -> list[Stratum]:
    """Divide items into strata of equal size by the confidence of models that do not know them.

    Neighbouring strata are joined until at least five drawn items are in each.

    Args:
        confidences: (N,) of all items.
        drawn: (n,) positions of the items that were drawn at random.
        is_right: (n,) whether the model is right about them.

    Returns:
        The strata from the lowest to the highest confidence.
    """
    n_strata = FEW_STRATA
    if len(drawn) >= MANY_DRAWN:
        n_strata = MORE_STRATA
    levels = np.arange(1, n_strata) / n_strata
    edges = np.quantile(confidences, levels)
    of_items = np.searchsorted(edges, confidences, side="right")
    of_drawn = of_items[drawn]
    shares = np.bincount(of_items, minlength=n_strata) / len(confidences)
    totals = np.bincount(of_drawn, minlength=n_strata)
    rights = np.bincount(of_drawn[is_right], minlength=n_strata)

    strata = zip(shares.tolist(), rights.tolist(), totals.tolist(), strict=True)
    return merge_strata(list(strata))


def merge_strata(strata: list[Stratum], most: int = MORE_STRATA) -> list[Stratum]:
    """Join neighbouring strata until at least five drawn items are in each, and few are left."""
    strata = list(strata)
    while len(strata) > 1:
        sizes = [size for _, _, size in strata]
        fewest = sizes.index(min(sizes))
        if sizes[fewest] >= FEWEST_PER_STRATUM and len(strata) <= most:
            break
        neighbours = [k for k in (fewest - 1, fewest + 1) if 0 <= k < len(strata)]
        other = min(neighbours, key=sizes.__getitem__)
        share, right, total = strata[fewest]
        strata[other] = (
            strata[other][0] + share,
            strata[other][1] + right,
            strata[other][2] + total,
        )
        del strata[fewest]
    return strata


def estimate_by_strata(
    strata: Sequence[Stratum], *, share_judged: float = 0.0
) -> AccuracyEstimate | None:
    """Estimate an accuracy from items that were drawn at random and then divided into strata.

    The stratum of an item says how likely the model is right about it. How many of each stratum
    were drawn is chance that is known, and so does not count as uncertainty (post-stratification).
    The estimate is the mean of the strata, weighted by their shares of all items.

    Args:
        strata: what was found in each.
        share_judged: as in ``estimate_accuracy``.

    Example:
        >>> estimate = estimate_by_strata([(0.5, 10, 20), (0.5, 20, 20)])
        >>> f"{estimate.share:.0%} ({estimate.low:.0%} to {estimate.high:.0%})"
        '75% (62% to 85%)'
        >>> plain = estimate_accuracy(30, 40)
        >>> f"{plain.share:.0%} ({plain.low:.0%} to {plain.high:.0%})"
        '75% (60% to 86%)'
    """
    right = sum(n_right for _, n_right, _ in strata)
    total = sum(n for _, _, n in strata)
    if len(strata) < 2:
        return estimate_accuracy(right, total, share_judged=share_judged)

    share = sum(weight * n_right / n for weight, n_right, n in strata)
    variance = 0.0
    for weight, n_right, n in strata:
        # A stratum without an error may still have some: two items of the average are added.
        smoothed = (n_right + 2 * right / total) / (n + 2)
        variance += weight**2 * smoothed * (1 - smoothed) / n
    # As many independent items would vary as much.
    effective = float(total)
    if variance > 0 and 0 < share < 1:
        effective = share * (1 - share) / variance
    low, high = wilson_interval(share, effective / (1 + share_judged))
    return AccuracyEstimate(share=share, low=low, high=high, total=total, right=right)


def wilson_interval(share: float, total: float) -> tuple[float, float]:
    """Return Wilson's 95 % confidence interval for a share [Wilson 1927].

    Args:
        share: The share of the drawn items that have the property.
        total: The number of drawn items, which need not be whole: it may be an effective number.

    Example:
        >>> low, high = wilson_interval(1.0, 50)
        >>> round(low, 2), high
        (0.93, 1.0)
    """
    z_squared = _NORMAL_QUANTILE**2 / total
    centre = share + z_squared / 2
    half_width = math.sqrt(share * (1 - share) * z_squared + z_squared**2 / 4)
    low = (centre - half_width) / (1 + z_squared)
    high = (centre + half_width) / (1 + z_squared)
    # Exactly, the interval holds the share and lies between 0 and 1; rounded, it might not.
    low = max(0.0, min(low, share))
    high = min(1.0, max(high, share))
    return low, high


@dataclass(frozen=True)
class Progress:
    """What the advice depends on, after the latest model was trained."""

    labels: int
    accuracy: AccuracyEstimate | None
    """From randomly drawn items; None if none of them is labelled yet."""
    accuracies: tuple[AccuracyEstimate, ...]
    """The estimated accuracies of all models that have one, oldest first."""
    kappas: tuple[float, ...]
    """Cohen's kappa of each model with the one before it, the newest first; see ``recent_kappas``.
    """
    changed: float | None
    """The share of predictions that the latest model changed; None before the second."""
    cost: float | None = None
    """The cost of all answers so far; None if the cost of a label is not set."""
    budget: float | None = None
    measurable: bool = True
    """Whether the campaign draws random items at all."""


def give_advice(progress: Progress) -> list[str]:
    """Return whether to stop, then sentences with the reasons, which also say what is not known.

    Example:
        >>> progress = Progress(400, None, (), kappas=(0.9, 0.92, 0.88), changed=0.08)
        >>> for sentence in give_advice(progress):
        ...     print(sentence)
        Keep labelling: more labels still change what the model predicts.
        The accuracy is not known yet, because no random item has been labelled.
        The latest model changed 8.0% of the predictions (kappa 0.900).
        It is not known yet whether the accuracy is still rising: too few models were measured.
    """
    advice = [
        _recommend(progress),
        _describe_accuracy(progress),
        _describe_change(progress),
        _describe_trend(progress),
    ]

    if progress.budget is not None:
        advice.append(_describe_budget(progress.cost, progress.budget))

    return advice


def recent_kappas(models: Sequence[Mapping[str, Any]]) -> tuple[float, ...]:
    """Return how far the newest models agree, each with the one before it, the newest first.

    Args:
        models: what is known of each model, oldest first.

    Returns:
        Those of the last ``STABLE_MODELS`` models, or of more, back to the first that learned from
        ``STABLE_LABELS`` labels less than the newest. Fewer values if there is none.

    Example:
        >>> models = [{"labels": 20 * k, "kappa": k / 10} for k in range(1, 8)]
        >>> recent_kappas(models)
        (0.7, 0.6, 0.5)
    """
    kappas: list[float] = []
    for facts in reversed(models):
        new_labels = models[-1]["labels"] - facts["labels"]
        if len(kappas) >= STABLE_MODELS and new_labels >= STABLE_LABELS:
            return tuple(kappas)
        if facts.get("kappa") is None:
            break
        kappas.append(facts["kappa"])
    # Too few models or labels yet.
    return tuple(kappas[: STABLE_MODELS - 1])


def _describe_accuracy(progress: Progress) -> str:
    estimate = progress.accuracy
    if estimate is None and progress.measurable:
        return "The accuracy is not known yet, because no random item has been labelled."
    if estimate is None:
        return "The accuracy cannot be measured, because this campaign draws no random items."

    return (
        f"The accuracy is about {estimate.share:.0%}, between {estimate.low:.0%} and "
        f"{estimate.high:.0%} with 95% confidence: {estimate.right} of {estimate.total} random "
        "items are predicted correctly."
    )


def _describe_change(progress: Progress) -> str:
    if not progress.kappas or progress.changed is None:
        return "It is not known yet how much the predictions change: train a second model."

    return (
        f"The latest model changed {progress.changed:.1%} of the predictions "
        f"(kappa {progress.kappas[0]:.3f})."
    )


def _describe_trend(progress: Progress) -> str:
    change = _change_over_three_models(progress.accuracies)
    if change is None and progress.measurable:
        return (
            "It is not known yet whether the accuracy is still rising: too few models were "
            "measured."
        )
    if change is None:
        return "It cannot be measured whether the accuracy is still rising."

    # Whole numbers, so that nothing changes by -0 points.
    difference, low_end, high_end = change
    low = round(100 * low_end)
    high = round(100 * high_end)
    interval = f"between {low:+d} and {high:+d} points with 95% confidence"
    if low <= 0 <= high:
        return (
            f"There are too few random items to tell whether the accuracy changed over the last "
            f"three models: the change is {interval}."
        )
    direction = "rose" if difference > 0 else "fell"
    return f"The accuracy {direction} over the last three models: the change is {interval}."


def _describe_budget(cost: float | None, budget: float) -> str:
    if cost is None:
        return "It is not known how much of the budget is spent: set the cost of a label."

    left = budget - cost
    if left <= 0:
        return f"The budget of {budget:g} is used up: the answers have cost {cost:g}."
    return f"{left:g} of the budget of {budget:g} is left."


def _recommend(progress: Progress) -> str:
    """Say whether to stop: if predictions are stable and the accuracy does not clearly change.

    Whether the accuracy has levelled off cannot be asked of its estimate: one more right prediction
    of 60 moves it by more than a point. The predictions of two models differ in no more than the
    share that changed, and so do their accuracies.
    """
    if progress.budget is not None and (progress.cost or 0) >= progress.budget:
        return "Stop, or raise the budget: it is used up."
    if len(progress.kappas) < STABLE_MODELS:
        return "Keep labelling: there are too few models to see what more labels change."
    if sum(1 - kappa for kappa in progress.kappas) > STABLE_DISAGREEMENT:
        return "Keep labelling: more labels still change what the model predicts."

    change = _change_over_three_models(progress.accuracies)
    if change is not None and change[1] > 0:
        return "Keep labelling: the accuracy is still rising."
    if change is not None and change[2] < 0:
        return "Review the labels before you give more: the accuracy is falling."

    advice = "You can consider stopping: more labels will probably improve the model very little."
    accuracy = progress.accuracy
    if accuracy is None:
        return f"{advice} However, nobody knows how accurate it is."
    if accuracy.high - accuracy.low > ROUGH_ACCURACY:
        advice += (
            f" However, its accuracy is known only roughly, {accuracy.low:.0%} to "
            f"{accuracy.high:.0%}: if it matters, label more random items first."
        )
    return advice


def _change_over_three_models(
    accuracies: Sequence[AccuracyEstimate],
) -> tuple[float, float, float] | None:
    """Return how the accuracy changed from the fourth last model to the last, if there are four.

    The interval combines the two Wilson intervals [Newcombe 1998]. Both models are judged on many
    of the same items, which the interval ignores, so it is rather too wide.

    Returns:
        The difference, and the ends of its 95 % confidence interval.
    """
    if len(accuracies) < 4:
        return None

    before = accuracies[-4]
    after = accuracies[-1]
    difference = after.share - before.share
    # The difference is smallest if the later accuracy is low in its interval, the earlier high.
    down = math.hypot(after.share - after.low, before.high - before.share)
    up = math.hypot(after.high - after.share, before.share - before.low)
    return difference, difference - down, difference + up


def estimate_model_accuracy(facts: Mapping[str, Any]) -> AccuracyEstimate | None:
    """Estimate a model's accuracy on randomly chosen items.

    Args:
        facts: what is known of the model. ``holdout`` and ``control`` hold the number of right
            predictions and of all predictions on these items; the larger set is used. ``strata``
            divides the control items.
    """
    if facts["holdout"][1] >= facts["control"][1]:
        # The holdout trains no model.
        return estimate_accuracy(*facts["holdout"])

    right, total = facts["control"]
    # Models of earlier versions of teeter have none.
    strata = facts.get("strata") or [(1.0, right, total)]
    return estimate_by_strata(strata, share_judged=min(1.0, total / facts["labels"]))
