"""Decide what the next questions are for: teaching the model, or certifying its labels.

A goal is reached when a share of all items has a label, of people or of the model, and a promise
for the whole file limits how many labels are wrong (see ``promise``). Every answer costs the same.
An answer that teaches makes the model better, so that fewer random draws certify its labels later.
So after each training two numbers are compared: the draws that would certify the model as it is,
and the fewest answers that are expected if it is taught first.

Nothing here can break a promise. While an attempt runs, its model, steps and level stay as they
are, and it may be looked at after every answer. What its draws show only decides whether to go on
with it. Another attempt has the rest of the level, so this is a matter of cost alone.

Nothing here reads a database or loads torch. The simulations in ``research/goal`` call the same
functions as campaigns do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from teeter.base.array_types import Floats
from teeter.campaigns.finish.bounds import JUDGE_PRIOR, ErrorPrior, anytime_p_value
from teeter.campaigns.finish.promise import Step, StepResult, needed_step
from teeter.campaigns.records import Purpose

_CONFIDENCE_SCALE = 0.4
"""Confidences say that so much more labels are wrong than are: with few labels, they are fitted on
items that were picked because they are hard. Measured on campaigns of digits and SMS Spam.
"""

_CONFIDENCE_WORTH = 20.0
"""What the confidences say counts as much as so many random items."""

_ENOUGH_CHANCE = 0.8
"""An attempt is started only if its step is within the limit with this probability."""

_QUANTILES = (0.1, 0.9)
"""The ends of the interval of the answers that are left."""

_WIDENING = 1.2
"""The interval is so much wider on both sides, because later models and batches vary, too. Without
it, 62 % (SMS Spam) and 74 % (digits) of the intervals held in simulated campaigns; now 82 % and
89 % do.
"""

_USUAL_SLOPE = 1.0
"""The share of wrong labels falls like 1 / labels, if nothing else is known."""

_USUAL_SLOPE_WORTH = 0.3
"""How much that counts, beside the squared logarithms of how often labels have doubled."""

_STEEPEST_SLOPE = 2.0

_TEACHING_PLANS = np.concatenate([[1.0], 1.1 * 1.12 ** np.arange(40)])
"""Numbers of labels at which an attempt might start, as multiples of those there are."""

_LARGE_SHARE = 0.5
"""A goal is out of reach if people would have to label this share of what is left."""


@dataclass(frozen=True)
class Outlook:
    """How soon a model is expected to reach the goal, if it were frozen, or was."""

    labels: int
    """Labels of people when it was trained."""
    needed: int
    """Items that must get a label until the goal is reached."""
    set_size: int
    """Items without a label of people, from which is drawn."""
    step_size: int
    """Those of the step that would reach the goal."""
    limit: int
    """How many labels of the step may be wrong."""
    level: float
    """The probability of error that can be spent on it."""
    allowed: float
    """The share of wrong labels that the goal allows."""
    expected_wrong: float
    """The share of wrong labels in the step that was expected before any draw."""
    worth: float
    """That counts as much as so many draws."""
    drawn: int = 0
    """Items of the step that were drawn since."""
    wrong: int = 0
    """How many of those the model got wrong."""

    @property
    def share_wrong(self) -> float:
        """The share of wrong labels that is expected, by everything known."""
        wrong = self.worth * self.expected_wrong + self.wrong
        return wrong / (self.worth + self.drawn)

    def quantile(self, probability: float) -> float:
        """Return a quantile of the share of wrong labels."""
        from scipy.special import betaincinv

        wrong = self.worth * self.expected_wrong + self.wrong
        right = self.worth + self.drawn - wrong
        return float(betaincinv(max(wrong, 1e-6), max(right, 1e-6), probability))

    def chance(self) -> float:
        """Return the probability that the step is well within its limit."""
        from scipy.special import betainc

        wrong = self.worth * self.expected_wrong + self.wrong
        right = self.worth + self.drawn - wrong
        highest = min(1.0, _ENOUGH_CHANCE * self.limit / self.step_size)
        return float(betainc(max(wrong, 1e-6), max(right, 1e-6), highest))

    def may_succeed(self) -> bool:
        """Return whether some number of draws certifies the step, with luck of one in ten."""
        return math.isfinite(self.draws(self.quantile(_QUANTILES[0])))

    def draws(self, share_wrong: float) -> float:
        """Return how many more draws certify the step if this share of it is wrong.

        It is infinite if no number of draws does.
        """
        prior = ErrorPrior.for_error(self.allowed)

        def passes(count: int) -> bool:
            wrong = self.wrong + share_wrong * count
            drawn = self.drawn + count
            p_value = anytime_p_value(self.step_size, drawn, wrong, self.limit, prior)
            return p_value <= self.level

        low = 0
        high = self.step_size - self.drawn
        if share_wrong * high + self.wrong > self.limit:
            return math.inf
        while low < high:
            middle = (low + high) // 2
            if passes(middle):
                high = middle
            else:
                low = middle + 1
        if not passes(low):
            return math.inf
        # Items of the step are only a part of what is drawn.
        return math.ceil(low * self.set_size / self.step_size)


def foresee(
    confidences: Floats,
    steps: Sequence[Step],
    random_items: Sequence[tuple[float, int]],
    *,
    labels: int,
    needed: int,
    level: float,
    allowed: float,
) -> Outlook:
    """Return the outlook of a model after its training.

    Args:
        confidences: (N,) of the items without a label of people.
        steps: those of a promise for the whole file, if it were started now; at least one.
        random_items: labelled random items, judged by models that do not know them: the share of
            all items of which these models are surer, and whether they are right.
        labels: labels of people.
        needed: items that must get a label until the goal is reached.
        level: the probability of error that an attempt could spend.
        allowed: the share of wrong labels that the goal allows.
    """
    step = steps[needed_step(steps, needed)]

    # Only those random items count of which models are as sure as of the step.
    share = step.size / len(confidences)
    judged = [is_right for rank, is_right in random_items if rank < share]
    expected = _CONFIDENCE_WORTH * _CONFIDENCE_SCALE * step.expected_error
    wrong = expected + len(judged) - sum(judged)
    worth = _CONFIDENCE_WORTH + len(judged)
    if step.has_unsure_items:
        wrong = JUDGE_PRIOR.wrong
        worth = JUDGE_PRIOR.wrong + JUDGE_PRIOR.right
    return Outlook(
        labels=labels,
        needed=needed,
        set_size=len(confidences),
        step_size=step.size,
        limit=min(step.limit, step.size),
        level=level,
        allowed=allowed,
        expected_wrong=wrong / worth,
        worth=worth,
    )


def follow(outlook: Outlook, result: StepResult) -> Outlook:
    """Return the outlook of a frozen model, given what the draws of its step show."""
    step = result.step
    return replace(
        outlook,
        step_size=step.size,
        limit=min(step.limit, step.size),
        level=result.level,
        drawn=result.drawn,
        wrong=result.wrong,
    )


@dataclass(frozen=True)
class GoalPlan:
    """What to ask next, and how many answers are left."""

    purpose: Purpose
    answers: int
    """Answers that are expected until the goal is reached."""
    low: int
    """With a probability of one in ten, it takes fewer answers."""
    high: int
    """With a probability of one in ten, it takes more."""
    in_reach: bool = True
    """Whether the model is expected to save people half of the answers or more."""
    taught: int = 0
    """How many of the answers teach the model before it is certified."""
    draws_now: float = math.inf
    """Random labels that are expected to certify the newest model; infinite if none would."""


def plan_answers(outlooks: Sequence[Outlook], attempt: Outlook | None = None) -> GoalPlan:
    """Decide what the next questions are for.

    Args:
        outlooks: of the models so far, the oldest first. Without any, there must be an attempt.
        attempt: of the frozen model, if an attempt is running, or of a judge.
    """
    answers = low = high = draws_now = math.inf
    lowest, highest = _QUANTILES
    taught = 0
    purpose = Purpose.TEACH
    if outlooks:
        newest = outlooks[-1]
        slope = _error_slope(outlooks)
        answers, taught = _fewest_answers(newest, newest.share_wrong, slope)
        draws_now = newest.draws(newest.share_wrong)
        is_ready = not taught and not math.isinf(answers)
        low, _ = _fewest_answers(newest, newest.quantile(lowest), slope)
        high, _ = _fewest_answers(newest, newest.quantile(highest), slope)
        if is_ready and newest.chance() >= _ENOUGH_CHANCE:
            purpose = Purpose.START

    if attempt is not None:
        low_left = attempt.draws(attempt.quantile(lowest))
        # Another attempt spends level, so a few unlucky draws are no reason to start it.
        if low_left <= answers:
            purpose = Purpose.CERTIFY
            # At worst, it is given up.
            answers = min(attempt.draws(attempt.share_wrong), low_left + answers)
            high = min(attempt.draws(attempt.quantile(highest)), low_left + high)
            low = low_left

    # People can always label the rest.
    newest_outlook = attempt
    if outlooks:
        newest_outlook = outlooks[-1]
    most = 1
    if newest_outlook is not None:
        most = max(1, newest_outlook.needed)
    expected = max(1, round(min(answers, most)))
    low_answers = round(min(low / _WIDENING, most))
    high_answers = round(min(high * _WIDENING, most))
    return GoalPlan(
        purpose,
        expected,
        min(low_answers, expected),
        max(high_answers, expected),
        in_reach=expected < _LARGE_SHARE * most,
        taught=taught,
        draws_now=draws_now,
    )


def _error_slope(outlooks: Sequence[Outlook]) -> float:
    """Return b, if the share of wrong labels falls like labels ** -b."""
    newest = outlooks[-1]
    products = _USUAL_SLOPE * _USUAL_SLOPE_WORTH
    squares = _USUAL_SLOPE_WORTH
    for outlook in outlooks[:-1]:
        doublings = math.log2(max(newest.labels, 1) / max(outlook.labels, 1))
        # Older models say little about how fast the newest improves.
        if 0 < doublings <= 1.5 and min(outlook.share_wrong, newest.share_wrong) > 0:
            products += doublings * math.log2(outlook.share_wrong / newest.share_wrong)
            squares += doublings**2
    return min(max(products / squares, 0.0), _STEEPEST_SLOPE)


def _fewest_answers(outlook: Outlook, share_wrong: float, slope: float) -> tuple[float, int]:
    """Return the fewest answers to the goal, and how many of them teach the model."""
    best = math.inf
    best_taught = 0
    for factor in _TEACHING_PLANS:
        taught = outlook.labels * (factor - 1)
        if taught > outlook.needed:
            break
        draws = outlook.draws(share_wrong * factor**-slope)
        if taught + draws < best:
            best = taught + draws
            best_taught = round(taught)
    return best, best_taught
