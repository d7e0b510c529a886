"""The share of each class in the whole pool, estimated with the help of a model's predictions.

A model labels every item, which tells much about the shares of the classes but is biased by its
errors. Items drawn at random and labelled by people tell how large that bias is. The estimate is
the share that the model predicts, corrected by it: prediction-powered inference [Angelopoulos et
al. 2023], with the weight of the predictions tuned by their worth [Angelopoulos et al. 2024].
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from teeter.campaigns.enums import AnswerKind
from teeter.campaigns.finish.bounds import ErrorPrior, anytime_p_value
from teeter.campaigns.finish.calibration import ReliabilityBin, measure_reliability
from teeter.campaigns.finish.freezing import FrozenFinish, PromiseGroup
from teeter.campaigns.finish.promise import (
    FrozenSet,
    Outcomes,
    PromiseTerms,
    StepResult,
    best_step,
    judge_steps,
    trace_coverage,
)
from teeter.campaigns.store import Answer

__all__ = [
    "ClassShare",
    "CoveragePoint",
    "FinishReport",
    "GroupPromise",
    "ItemAnswers",
    "PlannedStep",
    "estimate_class_shares",
    "judge_groups",
    "look_at_finish",
    "percent",
    "plan_labels",
    "wrong_share",
]


Floats: TypeAlias = npt.NDArray[np.float64]
Integers: TypeAlias = npt.NDArray[np.int64]

FEWEST_DRAWS = 20
"""With fewer drawn items, no share is estimated."""

_NORMAL_QUANTILE = 1.959963984540054
"""95 % of a normal distribution lie within this many standard deviations of its mean."""


@dataclass(frozen=True)
class ClassShare:
    """The share of a class in the pool, with its 95 % confidence interval."""

    label: str
    share: float
    low: float
    high: float
    predicted: float
    """The share without the correction: what people and the model say together."""


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
        covariance = float(np.mean((labels - labels.mean()) * (predictions - predictions.mean())))
        weight = min(max(covariance / spread, 0.0), 1.0)

    # A weight of 0 ignores a useless model: the estimate is then the share among the draws.
    residuals = labels - weight * predictions
    mean = weight * all_predictions + float(residuals.mean())

    # One error more in each direction: if no drawn item shows one, there may still be some.
    widened = np.concatenate([residuals - residuals.mean(), [1.0, -1.0]])
    deviation = math.sqrt(float(np.square(widened).sum()) / len(widened) / len(residuals))
    return mean, deviation


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


Booleans: TypeAlias = npt.NDArray[np.bool_]

_CURVE_POINTS = 25
"""Points of the curve of coverage at most."""


def percent(share: float) -> str:
    """Return a share in percent, not rounded: a promise must not look better than it is.

    Example:
        >>> percent(0.999), percent(0.0025), percent(0.05)
        ('99.9%', '0.25%', '5%')
    """
    return f"{100 * share:.6g}%"


def wrong_share(limit: int, items: int) -> str:
    """Return which share of the model's labels is wrong at most, in percent and rounded up.

    Args:
        limit: how many labels may be wrong.
        items: how many labels the model gives.

    Example:
        >>> wrong_share(16, 110)
        '14.6%'
    """
    return percent(min(1.0, math.ceil(1000 * limit / items) / 1000))


@dataclass(frozen=True)
class ItemAnswers:
    """What people say about the items of a campaign now."""

    labels: Mapping[str, str]
    """The label of each labelled item."""
    set_aside: frozenset[str]
    """Items without a label that someone flagged or could not tell."""
    skipped: frozenset[str]
    """Items without a label that someone skipped."""

    @classmethod
    def from_answers(
        cls, answers: Sequence[Answer], labels: Mapping[str, str], left_out: frozenset[str]
    ) -> ItemAnswers:
        """Sort the live answers of a campaign.

        Args:
            answers: all live answers.
            labels: the consensus label of each item.
            left_out: items that do not belong, which count as set aside even with a label.
        """
        kept_labels = {item: label for item, label in labels.items() if item not in left_out}
        unsure = {answer.item for answer in answers if answer.kind is AnswerKind.UNSURE}
        skipped = {answer.item for answer in answers if answer.kind is AnswerKind.SKIP}
        set_aside = (unsure | left_out) - set(kept_labels)
        return cls(kept_labels, frozenset(set_aside), frozenset(skipped - set_aside - set(labels)))


@dataclass(frozen=True)
class GroupPromise:
    """What is promised about all items, or about those of one predicted class."""

    label: str | None
    """The predicted class; None for all items."""
    items: int
    """How many items the model may label now; 0 without a promise, or if none is left."""
    threshold: float | None
    """The promise is about items of at least this confidence; None without a promise."""
    counted: int
    """How many items the promise counts: more than ``items`` if people labelled some of them since.
    """
    limit: int
    """At most so many of the counted items are labelled wrong by the model."""
    drawn: int
    """Items of the chosen step, or of the group without a promise, that were drawn and answered."""
    wrong: int
    """How many of those the model labels wrong."""
    left: int
    """How many items of the group no person has labelled."""


@dataclass(frozen=True)
class CoveragePoint:
    """How much the model could label after so many draws."""

    draws: int
    coverage: float


@dataclass(frozen=True)
class FinishReport:
    """What a frozen model may label, and what is known of it."""

    is_started: bool
    """False if the model is only looked at as if it were frozen now."""
    attempt: int
    started: str
    model_version: int
    checksum: str
    error: float
    confidence: float
    per_class: bool
    attempt_confidence: float
    """What this attempt may spend of the confidence: later attempts have less."""
    items: int
    """Items of the set: without a label when the model was trained."""
    draws: int
    """Random items that were answered, one after the other."""
    wrong: int
    """How many of them the model labels wrong."""
    asked_draws: int
    """Draws that are asked before the strategy picks again."""
    left: int
    """Items of the set that no person has labelled."""
    covered: int
    """How many of them the model may label."""
    promises: tuple[GroupPromise, ...]
    plan: tuple[PlannedStep, ...]
    curve: tuple[CoveragePoint, ...]
    reliability: tuple[ReliabilityBin, ...]
    class_shares: tuple[ClassShare, ...]
    share_items: int
    """Items that the shares of the classes are about: those of the set, and labelled ones."""
    share_left_out: int
    """Other items of the campaign: added later, set aside, or unreadable."""

    @property
    def coverage(self) -> float:
        """The share of the items left that the model may label."""
        return self.covered / self.left if self.left else 0.0

    @property
    def waiting_draws(self) -> int:
        """How many draws are still to be answered."""
        return max(0, self.asked_draws - self.draws)

    def describe(self) -> list[str]:
        """Return what the report says as sentences for people."""
        if not self.left:
            return ["Every item has a label."]

        sentences = [self._describe_promise()]
        if self.plan:
            first = self.plan[0]
            more = "more " if self.draws else ""
            sentences.append(
                f"With about {first.labels:,} {more}random labels, the model could label "
                f"{first.coverage:.0%} of the items that are left."
            )
        elif not self.covered and not self.per_class:
            sentences.append(
                "No number of random labels is likely to be enough: the model makes too many "
                "mistakes. Label more items and train, or allow a larger error."
            )

        if not self.is_started and self.asked_draws:
            sentences.append(
                f"{self.asked_draws:,} control items labelled since model {self.model_version} "
                f"already count as random labels: start the promise to see what they show."
            )
        elif self.is_started and self.waiting_draws and self.coverage < 1:
            sentences.append(f"{self.waiting_draws:,} random items are waiting for an answer.")
        return sentences

    def describe_error(self) -> str:
        """Return how many labels are wrong at most, as a sentence; only if a promise holds."""
        # Groups without items left have no labels of the model.
        promises = [promise for promise in self.promises if promise.items]
        counted = sum(promise.counted for promise in promises)
        limit = sum(promise.limit for promise in promises)
        of_each = " of each class" if self.per_class else ""

        if counted == self.covered:
            return (
                f"With {percent(self.confidence)} confidence, at most {percent(self.error)} of its "
                f"labels{of_each} are wrong."
            )

        # More labels than the reserve: the promise is about a few items more than are left.
        return (
            f"With {percent(self.confidence)} confidence, at most {percent(self.error)} of its "
            f"labels{of_each} for {counted:,} items are wrong, which is {limit:,} labels. People "
            f"have since labelled {counted - self.covered:,} of these items. If all wrong labels "
            f"are among the {self.covered:,} that are still the model's own, "
            f"up to {wrong_share(limit, self.covered)} of those are wrong."
        )

    def describe_shares(self) -> str:
        """Return what the shares of the classes are about, as a sentence."""
        left_out = ""
        if self.share_left_out:
            are = "is" if self.share_left_out == 1 else "are"
            left_out = f"; {self.share_left_out:,} {are} left out"
        return (
            f"The shares refer to {self.share_items:,} items{left_out}. Each interval is valid for "
            f"a single look, at a number of draws chosen in advance."
        )

    def _describe_promise(self) -> str:
        if self.covered:
            return (
                f"You can stop now for {self.coverage:.0%} of the items: the model may label "
                f"{self.covered:,} of the {self.left:,} items that are left. "
                f"{self.describe_error()}"
            )
        if self.draws:
            return (
                f"The model cannot label the rest yet: {self.draws:,} random labels do not show "
                f"that at most {percent(self.error)} of its labels are wrong."
            )
        return (
            f"The model cannot label the {self.left:,} items that are left yet: only random labels "
            f"can show that at most {percent(self.error)} of its labels are wrong."
        )


def look_at_finish(
    finish: FrozenFinish,
    answers: ItemAnswers,
    classes: Sequence[str],
    *,
    n_items: int,
    is_started: bool = True,
) -> FinishReport:
    """Return what the draws of a frozen model show.

    Args:
        finish: the frozen model.
        answers: what people say now. Corrected labels count as corrected.
        classes: the names of the classes. Classes that were added later count as errors.
        n_items: how many items the campaign has.
        is_started: whether the model was frozen, or is only looked at as if.
    """
    state = _SetState.read(finish, answers, classes)
    # Without --per-class there is one group, the whole set.
    promises = []
    plans = []
    for group, results in zip(finish.groups, _judge_groups(finish, state, classes), strict=True):
        rows = finish.rows_of(group, classes)
        promises.append(_describe_group(group, rows, state, results))
        left = len(rows) - int(state.is_settled[rows].sum())
        plans.append(plan_labels(results, len(rows), left, finish.terms, group.level))

    drawn = np.arange(state.n_draws)
    is_right = ~state.is_wrong[drawn]
    labels_outside = _labels_outside(finish, answers, classes)
    shares = estimate_class_shares(
        classes, finish.frozen.predicted, drawn, state.labels[drawn], labels_outside
    )
    share_items = len(finish.items) + len(labels_outside)
    return FinishReport(
        is_started=is_started,
        attempt=finish.number,
        started=finish.started,
        model_version=finish.model_version,
        checksum=finish.checksum,
        error=finish.terms.error,
        confidence=finish.terms.confidence,
        per_class=finish.terms.per_class,
        attempt_confidence=1 - finish.level,
        items=len(finish.items),
        draws=state.n_draws,
        wrong=int((~is_right).sum()),
        asked_draws=finish.asked_draws,
        left=len(finish.items) - int(state.is_settled.sum()),
        covered=sum(promise.items for promise in promises),
        promises=tuple(promises),
        # Classes are drawn together, so that their plans cannot be added up.
        plan=tuple(plans[0]) if len(plans) == 1 else (),
        curve=tuple(_trace_coverage(finish, state, classes)),
        reliability=tuple(measure_reliability(finish.frozen.confidences[drawn], is_right)),
        class_shares=tuple(shares),
        share_items=share_items,
        share_left_out=n_items - share_items,
    )


@dataclass(frozen=True, eq=False)
class _SetState:
    """The items of a set today, by position in the order of the draws."""

    labels: Integers
    """(N,) class indices; -1 for no label."""
    is_settled: Booleans
    """(N,) whether a person labelled an item or set it aside, so that the model does not label it.
    """
    is_wrong: Booleans
    """(N,) whether an item that was answered is not what the model says."""
    n_draws: int
    """The first so many items were answered."""

    @classmethod
    def read(cls, finish: FrozenFinish, answers: ItemAnswers, classes: Sequence[str]) -> _SetState:
        index_of_class = {name: index for index, name in enumerate(classes)}
        labels = np.full(len(finish.items), -1, dtype=np.int64)
        is_set_aside = np.zeros(len(finish.items), dtype=bool)
        is_skipped = np.zeros(len(finish.items), dtype=bool)
        for position, item in enumerate(finish.items):
            if item in answers.labels:
                labels[position] = index_of_class[answers.labels[item]]
            is_set_aside[position] = item in answers.set_aside
            is_skipped[position] = item in answers.skipped

        # Items that are flagged or that no one can tell would get a wrong label from the model, and
        # so might those that are skipped. Leaving them out would flatter it.
        is_settled = (labels >= 0) | is_set_aside
        is_wrong = (is_settled | is_skipped) & (labels != finish.frozen.predicted)

        # Draws count up to the first that has no answer yet: who answers which one first must not
        # decide what is counted.
        unanswered = np.flatnonzero(~(is_settled | is_skipped))
        n_draws = int(unanswered[0]) if len(unanswered) else len(finish.items)
        return cls(labels, is_settled, is_wrong, n_draws)


def judge_groups(
    finish: FrozenFinish, answers: ItemAnswers, classes: Sequence[str]
) -> list[list[StepResult]]:
    """Return what is shown about the steps of each group of a frozen model."""
    return _judge_groups(finish, _SetState.read(finish, answers, classes), classes)


def _judge_groups(
    finish: FrozenFinish, state: _SetState, classes: Sequence[str]
) -> list[list[StepResult]]:
    results = []
    for group in finish.groups:
        frozen, outcomes = _outcomes_of_group(finish, finish.rows_of(group, classes), state)
        results.append(judge_steps(frozen, group.steps, outcomes, finish.terms, group.level))
    return results


def _outcomes_of_group(
    finish: FrozenFinish, rows: Integers, state: _SetState
) -> tuple[FrozenSet, Outcomes]:
    """Return some items of the set, and what people said about them."""
    frozen = FrozenSet(finish.frozen.predicted[rows], finish.frozen.confidences[rows])
    is_wrong = state.is_wrong[rows]
    # The positions are in the order of the draws already.
    drawn = np.flatnonzero(rows < state.n_draws)
    labelled = np.flatnonzero(state.is_settled[rows])
    return frozen, Outcomes(drawn, is_wrong[drawn], labelled, is_wrong[labelled])


def _describe_group(
    group: PromiseGroup, rows: Integers, state: _SetState, results: Sequence[StepResult]
) -> GroupPromise:
    left = len(rows) - int(state.is_settled[rows].sum())
    best = best_step(results)
    if best is None:
        drawn_rows = rows[rows < state.n_draws]
        return GroupPromise(
            label=group.label,
            items=0,
            threshold=None,
            counted=0,
            limit=0,
            drawn=len(drawn_rows),
            wrong=int(state.is_wrong[drawn_rows].sum()),
            left=left,
        )

    return GroupPromise(
        label=group.label,
        items=best.remaining,
        threshold=best.step.threshold,
        counted=best.counted,
        limit=best.counted_limit,
        drawn=best.drawn,
        wrong=best.wrong,
        left=left,
    )


def _trace_coverage(
    finish: FrozenFinish, state: _SetState, classes: Sequence[str]
) -> list[CoveragePoint]:
    """Return the share of the set that the promise covered after some of the draws."""
    if state.n_draws == 0:
        return []

    # Judged again after fewer draws: earlier looks are not stored, and need not be.
    counts = np.unique(np.linspace(0, state.n_draws, _CURVE_POINTS).astype(np.int64))
    covered = np.zeros(len(counts), dtype=np.int64)
    for group in finish.groups:
        rows = finish.rows_of(group, classes)
        frozen, outcomes = _outcomes_of_group(finish, rows, state)
        covered += trace_coverage(
            frozen,
            group.steps,
            outcomes,
            np.searchsorted(rows, counts),
            terms=finish.terms,
            level=group.level,
        )

    points = []
    for n_draws, n_covered in zip(counts.tolist(), covered.tolist(), strict=True):
        points.append(CoveragePoint(n_draws, n_covered / len(finish.items)))
    return points


def _labels_outside(finish: FrozenFinish, answers: ItemAnswers, classes: Sequence[str]) -> Integers:
    """Return the class indices of labelled items that are not in the set."""
    index_of_class = {name: index for index, name in enumerate(classes)}
    # Items of the set count by the draws, even those that were picked and labelled since.
    in_set = set(finish.items)
    labels = [index_of_class[label] for item, label in answers.labels.items() if item not in in_set]
    return np.array(labels, dtype=np.int64)
