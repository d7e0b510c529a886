"""How many more random labels would let the model label how many items."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from teeter.campaigns.finish.bounds import ErrorPrior, anytime_p_value
from teeter.campaigns.finish.promise import PromiseTerms, StepResult

__all__ = ["PlannedStep", "plan_labels"]

_CONFIDENCE_WORTH = 40.0
"""The expected errors count as much as so many drawn items: the confidences of a model may be off,
and are believed less the more items are drawn.
"""


@dataclass(frozen=True)
class PlannedStep:
    """What so many more random labels are likely to be worth."""

    labels: int
    """Further items to draw at random from the whole set and to label."""
    items: int
    """Items that the model could then label."""
    coverage: float
    """Their share of the items that no person has labelled."""
    expected_error: float
    """The share of wrong labels that is expected among them."""


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
        first. A step that needs as many labels as a larger one is left out.
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

        share_wrong = _expect_error(result)
        draws = _further_draws(result, share_wrong, terms, step_level)
        # Items of the step are only a part of what is drawn.
        labels = None if draws is None else -(-draws * total // result.step.size)
        if labels is None or labels >= remaining:
            continue

        items = result.remaining - (draws or 0)
        if items <= 0:
            continue
        # A larger step for no more labels makes the smaller one pointless.
        while planned and planned[-1].labels >= labels:
            planned.pop()
        planned.append(PlannedStep(labels, items, items / max(1, remaining - labels), share_wrong))

    return planned


def _expect_error(result: StepResult) -> float:
    """Return the expected share of wrong labels, from the draws and the model's confidences."""
    expected_wrong = result.step.expected_error * _CONFIDENCE_WORTH
    return (result.wrong + expected_wrong) / (result.drawn + _CONFIDENCE_WORTH)


def _further_draws(
    result: StepResult, share_wrong: float, terms: PromiseTerms, step_level: float
) -> int | None:
    """Return how many more items of a step must be drawn until it passes, or None for never."""
    prior = ErrorPrior.for_error(terms.error)
    step = result.step

    def passes(draws: int) -> bool:
        wrong = result.wrong + math.ceil(share_wrong * draws)
        p_value = anytime_p_value(step.size, result.drawn + draws, wrong, step.limit, prior)
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

    return low if passes(low) else None
