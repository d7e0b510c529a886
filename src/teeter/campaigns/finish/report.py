"""Start a promise, ask for draws, and report what they show: ``FinishReport``.

Everything here reads or writes the database and returns at once. Nothing loads torch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from teeter.base.array_types import Booleans, Integers
from teeter.base.wording import pluralize
from teeter.campaigns.finish.estimates import (
    estimate_class_shares,
    measure_reliability,
    plan_labels,
)
from teeter.campaigns.finish.frozen_model import (
    FrozenFinish,
    PromiseGroup,
    choose_model,
    freeze,
    load_finish,
)
from teeter.campaigns.finish.judge_estimates import exact_interval
from teeter.campaigns.finish.promise import (
    Outcomes,
    PromiseTerms,
    StepResult,
    best_step,
    judge_steps,
    trace_coverage,
)
from teeter.campaigns.records import (
    AnswerKind,
    Certificate,
    CoveragePoint,
    FinishReport,
    GroupPromise,
)
from teeter.campaigns.review.consensus import CampaignSnapshot, read_snapshot
from teeter.campaigns.store import Reading, Writing
from teeter.errors import InputError

_CURVE_POINTS = 25
"""Points of the curve of coverage at most."""

_DOUBT = 0.2
"""The probability with which it may be wrong that a judge makes too many mistakes, on two sides."""


_ENDED = (
    "The last promise ended when classes were merged, because it was about the classes before: "
    "start another one."
)


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
    thousandths = math.ceil(1000 * limit / items)
    return percent(min(1.0, thousandths / 1000))


def _complete(report: FinishReport) -> FinishReport:
    """Return a report with everything that follows from its numbers."""
    left_out = ""
    if report.share_left_out:
        left_out = f"; {pluralize(report.share_left_out, 'is', 'are')} left out"
    shares_note = (
        f"The shares refer to {report.share_items:,} items{left_out}. Each interval is valid for "
        f"a single look, at a number of draws chosen in advance."
    )
    coverage = 0.0
    if report.left:
        coverage = report.covered / report.left
    report = replace(
        report,
        coverage=coverage,
        waiting_draws=max(0, report.asked_draws - report.draws),
        shares_note=shares_note,
    )
    return replace(report, sentences=_describe(report))


def _describe(report: FinishReport) -> list[str]:
    """Return what the report says as sentences for people. The first says what to do next."""
    if not report.left:
        return ["Every item has a label."]

    sentences = []
    if report.plan:
        first = report.plan[0]
        others = max(first.items, report.left - first.labels)
        sentences.append(
            f"Label about {first.labels:,} more, drawn at random, and {report.labeller} can "
            f"probably label {first.items:,} of the {others:,} others, with at most "
            f"{_error_of_labels(report)} wrong."
        )
    elif not report.covered and not report.per_class and _makes_too_many_mistakes(report):
        advice = "Label more items and train, or allow a larger error."
        if report.judge:
            advice = "After the audit, the campaign's own model learns from all answers."
        sentences.append(
            f"No number of random labels is likely to be enough: {report.labeller} makes too many "
            f"mistakes. {advice}"
        )
    sentences.append(_describe_promise(report))
    if report.covered:
        # With a promise for most items, it is the promise that matters.
        sentences.reverse()

    if not report.is_started and report.asked_draws:
        sentences.append(
            f"{report.asked_draws:,} control items labelled since model {report.model_version} "
            f"already count as random labels: start the promise to see what they show."
        )
    elif report.is_started and report.waiting_draws and report.coverage < 1:
        sentences.append(f"{report.waiting_draws:,} random items are waiting for an answer.")
    return sentences


def _makes_too_many_mistakes(report: FinishReport) -> bool:
    """Return whether it is known that a model without a plan cannot keep the promise.

    What a judge says of its confidence is not calibrated, so that only draws tell.
    """
    low, _ = exact_interval(report.wrong, report.draws, _DOUBT)
    return not report.judge or low > report.error


def _error_of_labels(report: FinishReport) -> str:
    """Return the share of labels that may be wrong, and of which labels."""
    error = percent(report.error)
    if report.labelled is None:
        return f"{error} of its labels"
    return f"{error} of all labels in the file"


def describe_error(report: FinishReport) -> str:
    """Return how many labels are wrong at most, as a sentence; only if a promise holds."""
    # Groups without items left have no labels of the model.
    promises = [promise for promise in report.promises if promise.items]
    counted = sum(promise.counted for promise in promises)
    limit = sum(promise.limit for promise in promises)
    n_by_people = counted - report.covered
    at_most = f"With {percent(report.confidence)} confidence, at most {percent(report.error)} of"
    its_labels = "its labels"
    if report.per_class:
        its_labels = "its labels of each class"

    if report.labelled is not None:
        author = report.judge or "the model"
        return (
            f"{at_most} {counted:,} labels in the file are wrong: {report.covered:,} labels of "
            f"{author}, and {n_by_people:,} that people gave one by one, which count as right."
        )
    if counted == report.covered:
        return f"{at_most} {its_labels} are wrong."

    # More labels than the reserve: the promise is about a few items more than are left.
    share = wrong_share(limit, report.covered)
    return (
        f"{at_most} {its_labels} for {counted:,} items are wrong, which is {limit:,} labels. "
        f"People have since labelled {n_by_people:,} of these items. If all wrong labels are "
        f"among the {report.covered:,} that are still {report.labeller}'s own, up to {share} of "
        f"those are wrong."
    )


def _describe_promise(report: FinishReport) -> str:
    subject = report.judge or "The model"
    if report.covered:
        return (
            f"You can stop now for {report.coverage:.0%} of the items: {report.labeller} may label "
            f"{report.covered:,} of the {report.left:,} items that are left. "
            f"{describe_error(report)}"
        )
    if report.draws:
        return (
            f"{subject} cannot label the rest yet: {report.draws:,} random labels do not show "
            f"that at most {_error_of_labels(report)} are wrong."
        )
    return (
        f"{subject} cannot label the {report.left:,} items that are left yet: only random labels "
        f"can show that at most {_error_of_labels(report)} are wrong."
    )


def look_at_finish(
    finish: FrozenFinish,
    snapshot: CampaignSnapshot,
    classes: Sequence[str],
    *,
    n_items: int,
    is_started: bool = True,
) -> FinishReport:
    """Return what the draws of a frozen model show.

    Args:
        snapshot: what people say now. Corrected labels count as corrected.
        classes: the names of the classes. Classes that were added later count as errors.
        is_started: whether the model was frozen, or is only looked at as if.
    """
    state = SetState.read(finish, snapshot, classes)
    # Without --per-class there is one group, the whole set.
    promises = []
    plans = []
    results_of_groups = judge_groups(finish, state, classes)
    for group, results in zip(finish.groups, results_of_groups, strict=True):
        rows = finish.rows_of(group, classes)
        left = len(rows) - int(state.is_settled[rows].sum())
        promises.append(_describe_group(group, rows, state, results, left))
        plans.append(plan_labels(results, len(rows), left, finish.terms, group.level))

    drawn = np.arange(state.n_draws)
    is_right = ~state.is_wrong[drawn]
    shares = estimate_class_shares(
        classes, finish.predicted, drawn, state.labels[drawn], state.labels_outside
    )
    share_items = len(finish.items) + len(state.labels_outside)
    # Classes are drawn together, so that their plans cannot be added up.
    plan = []
    if len(plans) == 1:
        plan = plans[0]
    curve = _trace_coverage(finish, state, classes)
    reliability = measure_reliability(finish.confidences[drawn], is_right)
    report = FinishReport(
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
        plan=tuple(plan),
        curve=tuple(curve),
        reliability=tuple(reliability),
        class_shares=tuple(shares),
        share_items=share_items,
        share_left_out=n_items - share_items,
        labelled=finish.terms.labelled,
    )
    return _complete(report)


@dataclass(frozen=True, eq=False)
class SetState:
    """What people say about a set today, by position in the order of the draws."""

    labels: Integers
    """(N,) class indices; -1 for no label that was given blind."""
    is_settled: Booleans
    """(N,) whether a person labelled an item or set it aside, so that the model does not label it.
    """
    is_counted: Booleans
    """(N,) whether that was done blind, so that it says whether the model is right."""
    is_wrong: Booleans
    """(N,) whether an item that was answered is not what the model says."""
    n_draws: int
    """The first so many items were answered."""
    labels_outside: Integers
    """The class indices of labelled items that are not in the set."""
    is_withdrawn: Booleans
    """(N,) whether an item was withdrawn."""
    single_labels: int
    """How many items in and outside of the set have a label that people gave one by one."""

    @classmethod
    def read(
        cls, finish: FrozenFinish, snapshot: CampaignSnapshot, classes: Sequence[str]
    ) -> SetState:
        """Look up the items of a set among the live answers of a campaign."""
        labels_now = snapshot.labels
        # Items that do not belong count as set aside even with a label.
        counted = {
            item: label for item, label in labels_now.items() if item not in snapshot.left_out
        }
        unsure: set[str] = set()
        skipped: set[str] = set()
        for answer in snapshot.answers:
            if answer.kind is AnswerKind.UNSURE:
                unsure.add(answer.item)
            elif answer.kind is AnswerKind.SKIP:
                skipped.add(answer.item)
        set_aside = (unsure | snapshot.left_out) - set(counted)
        skipped -= set(labels_now)

        index_of_class = {name: index for index, name in enumerate(classes)}
        index_of_item = {item: index_of_class[label] for item, label in counted.items()}
        # What is taken out here is left for the items outside. Items of the set count by the draws,
        # even those that were picked and labelled since.
        labels = np.array([index_of_item.pop(item, -1) for item in finish.items], dtype=np.int64)
        is_in_view = np.array([item in snapshot.in_view for item in finish.items], dtype=bool)
        is_set_aside = np.array([item in set_aside for item in finish.items], dtype=bool)
        is_skipped = np.array([item in skipped for item in finish.items], dtype=bool)

        # Items that are flagged or that no one can tell would get a wrong label from the model, and
        # so might those that are skipped. Leaving them out would flatter it.
        is_settled = (labels >= 0) | is_set_aside
        # Labels that people gave with a prediction in view, or to many items at once, say nothing
        # about the model.
        labels[is_in_view] = -1
        is_counted = (labels >= 0) | is_set_aside
        is_answered = is_counted | is_skipped
        is_wrong = is_answered & (labels != finish.predicted)

        # Draws count up to the first that has no answer yet: who answers which one first must not
        # decide what is counted.
        unanswered = np.flatnonzero(~is_answered)
        n_draws = len(finish.items)
        if len(unanswered):
            n_draws = int(unanswered[0])
        outside = np.array(list(index_of_item.values()), dtype=np.int64)
        is_withdrawn = np.array([item in snapshot.withdrawn for item in finish.items], dtype=bool)
        return cls(
            labels,
            is_settled,
            is_counted,
            is_wrong,
            n_draws,
            outside,
            is_withdrawn,
            len(snapshot.single_labels()),
        )


def judge_groups(
    finish: FrozenFinish, state: SetState, classes: Sequence[str]
) -> list[list[StepResult]]:
    """Return what is shown about the steps of each group of a frozen model."""
    results = []
    for group in finish.groups:
        rows = finish.rows_of(group, classes)
        outcomes = _outcomes_of_group(rows, state)
        confidences = finish.confidences[rows]
        judged = judge_steps(confidences, group.steps, outcomes, finish.terms, group.level)
        results.append(judged)
    return results


def _outcomes_of_group(rows: Integers, state: SetState) -> Outcomes:
    """Return what people said about some items of the set."""
    is_wrong = state.is_wrong[rows]
    # The positions are in the order of the draws already.
    drawn = np.flatnonzero(rows < state.n_draws)
    is_counted = state.is_counted[rows]
    is_settled = state.is_settled[rows]
    labelled = np.flatnonzero(is_counted)
    in_view = np.flatnonzero(is_settled & ~is_counted)
    # Withdrawing an item does not show that its label was wrong.
    is_drawn = np.arange(len(rows)) < len(drawn)
    is_corrected = is_wrong & ~state.is_withdrawn[rows] & is_settled
    is_corrected &= is_drawn | (state.labels[rows] >= 0)
    corrected = np.flatnonzero(is_corrected)
    return Outcomes(
        drawn,
        is_wrong[drawn],
        labelled,
        is_wrong[labelled],
        in_view,
        corrected,
        state.single_labels,
    )


def _describe_group(
    group: PromiseGroup,
    rows: Integers,
    state: SetState,
    results: Sequence[StepResult],
    left: int,
) -> GroupPromise:
    drawn_rows = rows[rows < state.n_draws]
    promise = GroupPromise(
        label=group.label,
        items=0,
        threshold=None,
        counted=0,
        limit=0,
        drawn=len(drawn_rows),
        wrong=int(state.is_wrong[drawn_rows].sum()),
        left=left,
    )
    best = best_step(results)
    if best is None:
        return promise
    return replace(
        promise,
        items=best.remaining,
        threshold=best.step.threshold,
        counted=best.counted,
        limit=best.counted_limit,
        drawn=best.drawn,
        wrong=best.wrong,
    )


def _trace_coverage(
    finish: FrozenFinish, state: SetState, classes: Sequence[str]
) -> list[CoveragePoint]:
    """Return the share of the set that the promise covered after some of the draws."""
    if state.n_draws == 0:
        return []

    # Judged again after fewer draws: earlier looks are not stored, and need not be.
    spaced = np.linspace(0, state.n_draws, _CURVE_POINTS)
    counts = np.unique(spaced.astype(np.int64))
    covered = np.zeros(len(counts), dtype=np.int64)
    for group in finish.groups:
        rows = finish.rows_of(group, classes)
        covered += trace_coverage(
            finish.confidences[rows],
            group.steps,
            _outcomes_of_group(rows, state),
            np.searchsorted(rows, counts),
            terms=finish.terms,
            level=group.level,
        )

    return [
        CoveragePoint(n_draws, n_covered / len(finish.items))
        for n_draws, n_covered in zip(counts.tolist(), covered.tolist(), strict=True)
    ]


def look(
    view: Reading,
    terms: PromiseTerms | None = None,
    *,
    snapshot: CampaignSnapshot | None = None,
) -> FinishReport:
    """Return what is promised, or what could be if a promise were started now.

    Args:
        terms: what is to be promised. None for the terms of the promise that was started, or else
            the default terms.
        snapshot: the current answers, if they were read before.

    Raises:
        InputError: a promise with other terms was started, or there is no model to make one with.
    """
    snapshot = snapshot or read_snapshot(view)
    classes = view.classes.names()
    n_items = view.items.count()

    finish = load_finish(view)
    if finish is not None:
        if terms is not None and terms != finish.terms:
            raise InputError(
                f"A promise with {_describe_terms(finish.terms)} was started on "
                f"{finish.started[:10]}. Leave out the terms to see that promise, or start another "
                f"one with {_describe_terms(terms)}, which needs more random labels."
            )
        report = look_at_finish(finish, snapshot, classes, n_items=n_items)
        certificate = newest_certificate(view)
        if certificate is not None:
            report = replace(report, certificate=certificate.id)
        if finish.model_version:
            return report
        return _complete(replace(report, judge=next(iter(view.settings.judges))))

    terms = terms or PromiseTerms()
    preview = freeze(view, *choose_model(view, terms), terms)
    # Without the answers: who sees how the draws turn out before choosing the terms could choose
    # those that happen to be kept.
    nothing = CampaignSnapshot([], {}, {}, frozenset())
    report = look_at_finish(preview, nothing, classes, n_items=n_items, is_started=False)
    if view.finishes.count():
        report = replace(report, sentences=[_ENDED, *report.sentences])
    return report


def newest_certificate(view: Reading) -> Certificate | None:
    """Return the newest certificate of the newest promise, or None."""
    # A new attempt replaces the model, and the labels of the old one with it.
    certificates = view.finishes.certificates()
    attempt = view.finishes.count()
    if not certificates or view.finishes.newest() is None:
        return None
    newest = certificates[-1]
    if newest.attempt != attempt:
        return None
    return newest


def _describe_terms(terms: PromiseTerms) -> str:
    error = f"an error of {terms.error:.6g}"
    if terms.per_class:
        error += " per class"
    if terms.labelled is not None:
        error += " of all labels in the file"
    return f"{error} and a confidence of {terms.confidence:.6g}"


def set_draws(
    change: Writing,
    report: FinishReport,
    count: int,
    who: str,
) -> FinishReport:
    """Let ``count`` more draws be asked, and return the report with them."""
    if count < 0:
        raise InputError(f"Cannot ask about {count} random items: ask for 0 or more.")

    # An audit that was ended does not begin again, so it does not ask about all of its items.
    most = report.items - 1 if report.judge else report.items
    asked_draws = min(report.draws + count, most)
    change.finishes.set_asked_draws(report.attempt, asked_draws, who)
    # Picks made ahead would be asked first.
    change.picks.remove_outdated()
    return _complete(replace(report, asked_draws=asked_draws))
