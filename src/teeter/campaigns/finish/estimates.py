"""What the draws of a promise say beside it: shares of classes, labels still needed, calibration.

A model labels every item, which tells much about the shares of the classes but is biased by its
errors. Items drawn at random and labelled by people tell how large that bias is. The estimate is
the share that the model predicts, corrected by it: prediction-powered inference [Angelopoulos et
al. 2023], with the weight of the predictions tuned by their worth [Angelopoulos et al. 2024].

Nothing here reads a database or loads torch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from teeter.base.array_types import Booleans, Floats, Integers
from teeter.campaigns.finish.bounds import JUDGE_PRIOR, ErrorPrior, anytime_p_value
from teeter.campaigns.finish.promise import PromiseTerms, StepResult
from teeter.campaigns.learning.stopping import wilson_interval
from teeter.campaigns.records import ClassShare, PlannedStep, ReliabilityBin

N_BINS = 6

FEWEST_PER_BIN = 10
"""With fewer items in a bin, its share would be mostly chance."""

FEWEST_DRAWS = 20
"""With fewer drawn items, no share is estimated."""

_NORMAL_QUANTILE = 1.959963984540054
"""95 % of a normal distribution lie within this many standard deviations of its mean."""

_CONFIDENCE_WORTH = 40.0
"""The expected errors count as much as so many drawn items: the confidences of a model may be off,
and are believed less the more items are drawn.
"""


def measure_reliability(confidences: Floats, is_right: Booleans) -> list[ReliabilityBin]:
    """Compare confidences with the share of right labels, in bins of equally many items.

    Args:
        confidences: (n,) of items that were drawn at random and did not train the model.
        is_right: (n,) whether the model labels them right.

    Returns:
        Bins from the lowest to the highest confidence; fewer with few items.

    Example:
        >>> bins = measure_reliability(np.full(40, 0.9), np.arange(40) >= 4)
        >>> [(round(bin.confidence, 2), round(bin.right, 2), bin.items) for bin in bins[:1]]
        [(0.9, 0.6, 10)]
    """
    n_bins = min(N_BINS, len(confidences) // FEWEST_PER_BIN)
    if n_bins == 0:
        return []

    # Equally many in each bin: most confidences are close to 1, and bins of equal width would be
    # empty or crowded.
    order = np.argsort(confidences, kind="stable")
    bins = []
    for rows in np.array_split(order, n_bins):
        confidence = float(confidences[rows].mean())
        right = float(is_right[rows].mean())
        low, high = wilson_interval(right, len(rows))
        bins.append(ReliabilityBin(confidence, right, low, high, len(rows)))
    return bins


def estimate_class_shares(
    classes: Sequence[str],
    predicted: Integers,
    drawn: Integers,
    drawn_labels: Integers,
    known_labels: Integers,
) -> list[ClassShare]:
    """Estimate the share of each class among known items and the items of a frozen set.

    Args:
        classes: the names of the classes.
        predicted: (N,) what the model predicts for each item of the set, as an index.
        drawn: (n,) positions of the items that were drawn at random and labelled.
        drawn_labels: (n,) their labels; -1 for an item that has none.
        known_labels: labels of the items outside of the set, which are known.

    Returns:
        The shares in the order of the classes; none if too few items were drawn.
    """
    total = len(predicted)
    n_drawn = len(drawn)
    if n_drawn < FEWEST_DRAWS:
        return []

    n_items = total + len(known_labels)
    shares = []
    for index, label in enumerate(classes):
        known_count = int((known_labels == index).sum())
        is_predicted = (predicted == index).astype(np.float64)
        is_label = (drawn_labels == index).astype(np.float64)
        share, deviation = _estimate_mean(is_label, is_predicted[drawn], float(is_predicted.mean()))
        # Only the draws are left to chance. With all items drawn, nothing is.
        deviation *= math.sqrt(max(0.0, 1 - n_drawn / total))

        centre = (known_count + total * share) / n_items
        half_width = total / n_items * _NORMAL_QUANTILE * deviation
        # What is known already bounds the share from below, and from above.
        lowest = known_count / n_items
        highest = (known_count + total) / n_items
        centre = min(max(centre, lowest), highest)
        shares.append(
            ClassShare(
                label=label,
                share=centre,
                low=max(lowest, centre - half_width),
                high=min(highest, centre + half_width),
                predicted=(known_count + float(is_predicted.sum())) / n_items,
            )
        )
    return shares


def _estimate_mean(
    labels: Floats, predictions: Floats, all_predictions: float
) -> tuple[float, float]:
    """Return a mean and its standard deviation, corrected by predictions.

    Args:
        labels: (n,) what the drawn items are, 0 or 1.
        predictions: (n,) what the model says of them.
        all_predictions: the mean of the predictions over all items.
    """
    # The best weight minimizes the variance of what is left to chance.
    spread = float(predictions.var())
    weight = 0.0
    if spread > 0:
        label_deviations = labels - labels.mean()
        prediction_deviations = predictions - predictions.mean()
        covariance = float(np.mean(label_deviations * prediction_deviations))
        weight = min(max(covariance / spread, 0.0), 1.0)

    # A weight of 0 ignores a useless model: the estimate is then the share among the draws.
    residuals = labels - weight * predictions
    mean = weight * all_predictions + float(residuals.mean())

    # One error more in each direction: if no drawn item shows one, there may still be some.
    widened = np.concatenate([residuals - residuals.mean(), [1.0, -1.0]])
    squares = np.square(widened)
    variance = float(squares.sum()) / len(widened)
    deviation = math.sqrt(variance / len(residuals))
    return mean, deviation


def plan_labels(
    results: Sequence[StepResult], total: int, remaining: int, terms: PromiseTerms, level: float
) -> list[PlannedStep]:
    """Estimate how many more random labels each step needs.

    The estimates are what happens if the share of wrong labels among the next items is as expected,
    rounded up to whole labels. Chance decides too: some campaigns need more.

    Args:
        results: what is shown about the steps so far.
        total: the number of items in the whole set.
        remaining: how many of them no person has labelled.
        terms: what is promised.
        level: the probability of error that may be spent on all steps.

    Returns:
        The steps that are likely to pass and cover more than is covered now, the fewest labels
        first. Each lets the model label more items than the one before: steps that cost more and
        give less are left out.
    """
    # A step that is no larger than what is covered already is not worth a label.
    covered = max((result.remaining for result in results if result.holds), default=0)
    planned: list[PlannedStep] = []

    lower_level = 0.0
    for result in results:
        # No draws can help a step that is refuted, and it hands nothing on.
        if result.known_wrong > result.step.limit:
            lower_level = 0.0
            continue

        # A step without a share of its own is tested with that of the steps below it.
        step_level = max(result.level, level * result.step.weight) or lower_level
        lower_level = step_level
        if result.remaining <= covered or step_level == 0:
            continue

        # From the draws and the model's confidences.
        worth = _CONFIDENCE_WORTH
        expected_wrong = result.step.expected_error * worth
        if result.step.has_unsure_items:
            worth = JUDGE_PRIOR.wrong + JUDGE_PRIOR.right
            expected_wrong = JUDGE_PRIOR.wrong
        share_wrong = (result.wrong + expected_wrong) / (result.drawn + worth)
        draws = _further_draws(result, share_wrong, terms, step_level)
        # Items of the step are only a part of what is drawn.
        if draws is None:
            continue
        labels = -(-draws * total // result.step.size)
        if labels >= remaining:
            continue

        items = result.remaining - draws
        if items <= 0:
            continue
        coverage = items / max(1, remaining - labels)
        planned.append(PlannedStep(labels, items, coverage, share_wrong))

    worthwhile: list[PlannedStep] = []
    for planned_step in sorted(planned, key=lambda step: (step.labels, -step.items)):
        if not worthwhile or planned_step.items > worthwhile[-1].items:
            worthwhile.append(planned_step)
    return worthwhile


def _further_draws(
    result: StepResult, share_wrong: float, terms: PromiseTerms, step_level: float
) -> int | None:
    """Return how many more items of a step must be drawn until it passes, or None for never."""
    prior = ErrorPrior.for_error(terms.error)
    step = result.step

    def passes(draws: int) -> bool:
        drawn = result.drawn + draws
        wrong = result.wrong + math.ceil(share_wrong * draws)
        p_value = anytime_p_value(step.size, drawn, wrong, step.limit, prior)
        return p_value <= step_level

    # Rounding makes the test flip back and forth near the answer, which bisection survives.
    low = 0
    high = step.size - result.drawn
    while low < high:
        middle = (low + high) // 2
        if passes(middle):
            high = middle
        else:
            low = middle + 1

    if not passes(low):
        return None
    return low
