"""The promise: which items a model may label so that few of its labels are wrong.

A model is frozen, and with it the set of items that no person has labelled. The set is cut into
steps by the model's confidence: the 5 % of the items that it is surest of, the 10 %, and so on up
to all of them. For each step there is a limit of wrong labels. Then items of the set are drawn at
random and labelled by people, and each step is tested: is it shown that the model's wrong labels in
it are within the limit? The promise holds for the largest step that passes.

Choosing the step after seeing the draws would break a promise that is tested for one step alone.
The fallback procedure [Wiens 2003] allows it. It tests the steps from the smallest to the largest,
gives each a share of the allowed probability of error before anything is drawn, and hands the share
of a step that passes to the next one. With p-values that hold at any time, the promise may be
looked at after every label.

A promise for the whole file limits the wrong labels among all that people gave one by one or the
model gives. People are taken to be right, so with h labels of theirs outside the set, a step of n
items may have a share of h + n wrong labels instead of n. Let K be the wrong labels of the step. A
test shows that K is at most the limit. What people say about an item of the step later only
replaces a label of the model: a wrong one leaves the limit, and a right one stays among the labels.
Labels are lost only if answers are undone, or items withdrawn, flagged or labelled in bulk. So the
labels that are left are counted again at each look, and the promise ends if what may be wrong is
more than its share of them. A reserve of one label in a hundred makes that rare.

Nothing here reads a database or loads torch.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from teeter.base.array_types import Booleans, Floats, Integers
from teeter.campaigns.finish.bounds import (
    ErrorPrior,
    draws_needed,
    running_p_values,
    smallest_p_value,
)
from teeter.errors import InputError

MIN_ERROR = 1e-4
"""The smallest share of wrong labels that can be promised. It would take 30,000 random labels."""

N_STEPS = 20
"""Steps between no item and all items."""

FEWEST_ITEMS = 20
"""A step has at least so many items: a promise about fewer says little."""

_RESERVE = 5.0
"""Divided by the allowed error, the number of labels that a step allows for; see ``make_steps``."""

_LARGEST_RESERVE = 0.1
"""The reserve is at most this share of a step."""

_FILE_RESERVE = 0.01
"""The share of the labels of a file that may be lost before a promise about them ends."""

_PROMISING_WEIGHT = 0.5
"""The share of the allowed probability for the step that the confidences find most promising."""

_OTHER_STARTS = (0.25, 0.5, 0.75, 1.0)
"""Shares of the set at which the tests start as well, because the confidences may be wrong."""

_FIRST_ATTEMPT = 0.9
"""The share of the allowed probability that the first attempt gets, and each later one of the rest.
"""

_NEW_DRAWS = 0.9
"""The share of an attempt for draws after its start. Past control items have what is left of it."""


@dataclass(frozen=True)
class PromiseTerms:
    """What is promised: at most ``error`` of the labels are wrong, with ``confidence``."""

    error: float = 0.05
    confidence: float = 0.95
    per_class: bool = False
    """Whether it is promised for every predicted class separately."""
    labelled: float | None = None
    """None for a promise about the labels of the model. Otherwise it is about all labels in the
    file, and the steps are made so that soon this share of all items has a label.
    """

    def __post_init__(self) -> None:
        """Raise InputError if a value is not a share that can be promised."""
        # Written so that NaN is refused, too.
        if not MIN_ERROR <= self.error < 0.5:
            raise InputError(
                f"error is {self.error:g}: the share of wrong labels must be at least "
                f"{MIN_ERROR:.4f} and below 0.5, for example 0.05."
            )
        if not 0.5 <= self.confidence < 1:
            raise InputError(
                f"confidence is {self.confidence:g}: it must be at least 0.5 and below 1, for "
                "example 0.95."
            )
        if self.labelled is not None and not 0 < self.labelled <= 1:
            raise InputError(
                f"labelled is {self.labelled:g}: the share of the items that are to have a label "
                "must be above 0 and at most 1, for example 0.9."
            )
        if self.labelled is not None and self.per_class:
            raise InputError(
                "A promise for the whole file cannot be made per class: leave out one of them."
            )


def attempt_level(confidence: float, attempt: int, checkpoint: int | None = None) -> float:
    """Return the probability of error that an attempt may spend.

    All attempts of a campaign together spend ``1 - confidence``, so that starting again after a
    failure cannot wear the promise down.

    Args:
        confidence: what is promised.
        attempt: the number of the attempt, from 1.
        checkpoint: the number of the model, from 0, if control items from before the start count.
            Which one it is depends on the day of the start, so each has a part of its own.

    Example:
        >>> [round(attempt_level(0.95, attempt), 5) for attempt in (1, 2)]
        [0.0405, 0.00405]
        >>> [round(attempt_level(0.95, 1, checkpoint), 5) for checkpoint in (0, 1)]
        [0.00225, 0.00113]
    """
    level = (1 - confidence) * _FIRST_ATTEMPT * (1 - _FIRST_ATTEMPT) ** (attempt - 1)
    if checkpoint is None:
        return level * _NEW_DRAWS
    return level * (1 - _NEW_DRAWS) * 0.5 ** (checkpoint + 1)


@dataclass(frozen=True)
class Step:
    """The items of a set that the model is surest of, and how many of them may be wrong."""

    threshold: float
    """They have at least this confidence."""
    size: int
    """How many they are."""
    limit: int
    """How many of them may be predicted wrong; see ``make_steps``."""
    weight: float
    """The share of the allowed probability of error that is spent on this step first."""
    expected_error: float
    """The share of wrong labels that the confidences predict."""

    @property
    def has_unsure_items(self) -> bool:
        """Whether a judge does not say of some items how sure it is. A model always does."""
        return self.threshold <= 0


def make_steps(
    confidences: Floats,
    terms: PromiseTerms,
    level: float,
    *,
    single_labels: int = 0,
    needed: int = 0,
) -> list[Step]:
    """Cut a set into steps before any of its items is drawn.

    The labels of people shrink a step: they remove mostly right labels of the model from it, and
    the wrong ones become a larger share of what is left. So the limit is ``error`` of the step
    without the labels that people are expected to give, its reserve.

    Args:
        confidences: (N,) of all items of the set.
        terms: what is promised.
        level: the probability of error that may be spent.
        single_labels: h, how many labels people gave one by one to items outside the set.
        needed: how many items of the set must get a label until the promised share has one. Only a
            promise for the whole file depends on the last two.

    Returns:
        The steps from the smallest to the largest; none if the set is too small.
    """
    order = np.sort(confidences)[::-1]
    prior = ErrorPrior.for_error(terms.error)

    planned_sizes = set()
    for k in range(1, N_STEPS + 1):
        size = round(len(order) * k / N_STEPS)
        planned_sizes.add(max(1, size))
    if terms.labelled is not None:
        planned_sizes.add(min(max(needed, 1), len(order)))

    steps: list[Step] = []
    for planned_size in sorted(planned_sizes):
        threshold = 1.0
        if len(order):
            threshold = float(order[planned_size - 1])
        # Items with equal confidences cannot be told apart, so they belong to the same step.
        size = int((order >= threshold).sum())
        reserve = min(_RESERVE / terms.error, _LARGEST_RESERVE * size)
        limit = math.floor(terms.error * (size - reserve))
        if terms.labelled is not None:
            n_labels = (1 - _FILE_RESERVE) * (single_labels + size)
            limit = math.floor(terms.error * n_labels)
        is_new = not steps or size > steps[-1].size
        if is_new and size >= FEWEST_ITEMS:
            expected_error = float(np.mean(1 - order[:size]))
            steps.append(Step(threshold, size, limit, 0.0, expected_error))

    if terms.labelled is None:
        weights = _weigh_steps(steps, len(order), level, prior)
    else:
        # A smaller step would not reach the share, so nothing is spent on it. Larger ones inherit.
        weights = [0.0] * len(steps)
        if steps:
            weights[needed_step(steps, needed)] = 1.0
    return [replace(step, weight=weight) for step, weight in zip(steps, weights, strict=True)]


def needed_step(steps: Sequence[Step], needed: int) -> int:
    """Return the position of the smallest step with so many items, or else of the largest."""
    sizes = [step.size for step in steps]
    return min(bisect_left(sizes, needed), len(steps) - 1)


def _weigh_steps(steps: Sequence[Step], total: int, level: float, prior: ErrorPrior) -> list[float]:
    """Share the probability of error out among the steps, by how soon each is likely to pass."""
    if not steps:
        return []

    # How many draws of the whole set each step needs, if the confidences are right.
    costs = []
    for step in steps:
        draws = draws_needed(step.size, step.limit, level, step.expected_error, prior)
        cost = math.inf
        if draws is not None:
            cost = draws * total / step.size
        costs.append(cost)

    # Half for the step that should pass first, and half for a few others: a share of one half costs
    # only ln 2 / error draws more than all of it.
    weights = [0.0] * len(steps)
    other_weight = 1.0
    if min(costs) < math.inf:
        weights[int(np.argmin(costs))] = _PROMISING_WEIGHT
        other_weight -= _PROMISING_WEIGHT

    sizes = np.array([step.size for step in steps])
    for share in _OTHER_STARTS:
        distances = np.abs(sizes - share * total)
        start = int(np.argmin(distances))
        weights[start] += other_weight / len(_OTHER_STARTS)
    return weights


@dataclass(frozen=True, eq=False)
class Outcomes:
    """What people said about items of a set, by position in it."""

    drawn: Integers
    """Positions of the drawn items that were answered, in the order in which they were drawn."""
    drawn_wrong: Booleans
    """For each of them, whether the model's label is wrong."""
    labelled: Integers
    """Positions of all items that people labelled or set aside since, drawn or not, in an order
    that does not depend on the labels.
    """
    labelled_wrong: Booleans
    """For each of those, whether the model's label is wrong."""
    in_view: Integers = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Positions of items with labels of people that say nothing about the model."""
    corrected: Integers = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Positions of items for which people found the model's label to be wrong, so that the file has
    their label or none. Withdrawn items are not among them.
    """
    single_labels: int = 0
    """How many labels in the file people gave one by one, in the set or outside of it."""


@dataclass(frozen=True)
class StepResult:
    """What is shown about a step."""

    step: Step
    drawn: int
    """How many of its items were drawn and answered."""
    wrong: int
    """How many of those the model got wrong."""
    known_wrong: int
    """How many of its items people say the model got wrong, drawn or not."""
    remaining: int
    """How many of its items no person has labelled: those the model would label."""
    level: float
    """The probability of error that could be spent on it."""
    p_value: float
    """The smallest so far."""
    holds: bool
    """Whether it is shown that no more than the limit of its items are predicted wrong."""
    counted: int
    """How many items the promise counts: the remaining ones, and some of the step that people
    labelled if those are more than the reserve; or for the whole file, all that people labelled one
    by one. 0 if the promise does not hold.
    """
    counted_limit: int
    """At most so many of the counted items are predicted wrong."""


def judge_steps(
    confidences: Floats,
    steps: Sequence[Step],
    outcomes: Outcomes,
    terms: PromiseTerms,
    level: float,
) -> list[StepResult]:
    """Test the steps of a set, from the smallest to the largest.

    With probability ``1 - level``, none of the results ever claims what is not true, for any number
    of calls while more items are drawn. A step that is refuted by the labels there are, drawn or
    not, does not hold, whatever the draws showed before.

    Args:
        confidences: (N,) the calibrated probability of the class that the model predicts for each
            item of the set.
        steps: made before the first item was drawn.
        outcomes: what people said since.
        terms: what is promised.
        level: the probability of error that may be spent.
    """
    # The prior must not depend on the draws, so it follows from the terms alone.
    prior = ErrorPrior.for_error(terms.error)
    drawn_confidences = confidences[outcomes.drawn]
    labelled_confidences = confidences[outcomes.labelled]
    in_view_confidences = confidences[outcomes.in_view]
    known_wrong_confidences = confidences[_known_wrong(outcomes)]
    corrected_confidences = confidences[outcomes.corrected]

    results = []
    handed_on = 0.0
    for step in steps:
        drawn_wrong = outcomes.drawn_wrong[drawn_confidences >= step.threshold]
        labelled_wrong = outcomes.labelled_wrong[labelled_confidences >= step.threshold]
        n_in_view = int((in_view_confidences >= step.threshold).sum())

        step_level = level * step.weight + handed_on
        p_value = smallest_p_value(step.size, drawn_wrong, step.limit, prior)
        # What was shown once stays shown, unless it is known to be false by now. Passing less often
        # keeps the probability of error.
        known_wrong = int((known_wrong_confidences >= step.threshold).sum())
        is_refuted = known_wrong > step.limit
        holds = step_level > 0 and p_value <= step_level and not is_refuted
        remaining = step.size - len(labelled_wrong) - n_in_view

        counted = 0
        counted_limit = 0
        if holds and terms.labelled is None:
            counted, counted_limit = _count_promised(step, labelled_wrong, terms.error)
        elif holds:
            counted = outcomes.single_labels + remaining
            n_corrected = int((corrected_confidences >= step.threshold).sum())
            counted_limit = min(step.limit - n_corrected, remaining)
            # Too many labels may have been undone, or items withdrawn, since the limit was made.
            holds = counted_limit <= terms.error * counted
            if not holds:
                counted = 0
                counted_limit = 0
        handed_on = 0.0
        if holds:
            handed_on = step_level

        results.append(
            StepResult(
                step=step,
                drawn=len(drawn_wrong),
                wrong=int(drawn_wrong.sum()),
                known_wrong=known_wrong,
                remaining=remaining,
                level=step_level,
                p_value=p_value,
                holds=holds,
                counted=counted,
                counted_limit=counted_limit,
            )
        )
    return results


def _known_wrong(outcomes: Outcomes) -> Integers:
    """Return the positions of all items whose predicted label is known to be wrong."""
    return np.union1d(
        outcomes.drawn[outcomes.drawn_wrong], outcomes.labelled[outcomes.labelled_wrong]
    )


def _count_promised(step: Step, labelled_wrong: Booleans, error: float) -> tuple[int, int]:
    """Return how many items of a step the promise counts, and how many of them may be wrong.

    People correct the model's wrong labels that they meet, so those leave the limit. Each right
    label that they confirm leaves fewer items for the same limit. As many labels as possible are
    taken out of the step, in their order, such that the limit is still the promised share.
    """
    known_wrong = np.concatenate([[0], np.cumsum(labelled_wrong)])
    counted = step.size - np.arange(len(known_wrong))
    limits = step.limit - known_wrong
    # Without any label taken out, the limit is within the share by construction.
    allowed = np.flatnonzero(limits <= error * counted)
    last = int(allowed[-1])
    return int(counted[last]), int(limits[last])


def trace_coverage(
    confidences: Floats,
    steps: Sequence[Step],
    outcomes: Outcomes,
    counts: Integers,
    *,
    terms: PromiseTerms,
    level: float,
) -> Integers:
    """Return how large the largest step was that had passed after some of the draws.

    Args:
        confidences: (N,) as in ``judge_steps``.
        steps: made before the first item was drawn.
        outcomes: what people said since.
        counts: (K,) numbers of draws.
        terms: what is promised.
        level: the probability of error that may be spent.

    Returns:
        (K,) numbers of items; 0 if no step had passed.
    """
    prior = ErrorPrior.for_error(terms.error)
    drawn_confidences = confidences[outcomes.drawn]
    # When these were labelled is not known here, so they refute a step from the beginning.
    other_wrong = np.setdiff1d(_known_wrong(outcomes), outcomes.drawn)
    other_wrong_confidences = confidences[other_wrong]

    sizes = np.zeros(len(counts), dtype=np.int64)
    handed_on = np.zeros(len(counts))

    # The same as ``judge_steps``, for all counts at once.
    for step in steps:
        is_in_step = drawn_confidences >= step.threshold
        all_drawn_in_step = np.concatenate([[0], np.cumsum(is_in_step)])
        drawn_in_step = all_drawn_in_step[counts]
        drawn_wrong = outcomes.drawn_wrong[is_in_step]
        all_p_values = running_p_values(step.size, drawn_wrong, step.limit, prior)
        p_values = all_p_values[drawn_in_step]

        all_known_wrong = np.concatenate([[0], np.cumsum(drawn_wrong)])
        is_other_in_step = other_wrong_confidences >= step.threshold
        known_wrong = all_known_wrong[drawn_in_step] + int(is_other_in_step.sum())

        levels = level * step.weight + handed_on
        holds = (levels > 0) & (p_values <= levels) & (known_wrong <= step.limit)
        handed_on = np.where(holds, levels, 0.0)
        sizes[holds] = step.size
    return sizes


def best_step(results: Sequence[StepResult]) -> StepResult | None:
    """Return the largest step whose promise holds, or None. People may have labelled all of it."""
    return next((result for result in reversed(results) if result.holds), None)
