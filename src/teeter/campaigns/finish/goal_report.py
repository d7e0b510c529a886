"""How far a campaign is from its goal, and what its next questions are for: ``GoalReport``.

Everything here reads the database and returns at once. Nothing loads torch.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

from teeter.base.wording import pluralize
from teeter.campaigns.finish.certificate import certified_labels
from teeter.campaigns.finish.frozen_model import (
    USUAL_GOAL,
    FrozenFinish,
    goal_terms,
    load_finish,
)
from teeter.campaigns.finish.goal import GoalPlan, Outlook, follow, foresee, plan_answers
from teeter.campaigns.finish.promise import PromiseTerms, StepResult, attempt_level, best_step
from teeter.campaigns.finish.report import SetState, judge_groups, newest_certificate, percent
from teeter.campaigns.learning.saved_models import load_arrays
from teeter.campaigns.records import GoalReport, Purpose
from teeter.campaigns.review.consensus import CampaignSnapshot
from teeter.campaigns.store import Reading

_RECENT_MODELS = 30
"""Older models say nothing about how fast the newest improves."""

_EARLY = 3
"""With fewer models, nobody is told that a goal is out of reach."""


def describe_goal(view: Reading, snapshot: CampaignSnapshot) -> GoalReport | None:
    """Return how far a campaign is from its goal; None without a goal.

    Args:
        snapshot: the current answers.
    """
    terms = goal_terms(view.settings)
    if terms is None or terms.labelled is None:
        return None

    n_items = view.items.count() - len(snapshot.left_out)
    has_label = snapshot.consensus.keys() - snapshot.left_out
    needed = math.ceil(terms.labelled * n_items)
    finish = load_finish(view)
    results: list[StepResult] = []
    if finish is not None and finish.terms == terms:
        state = SetState.read(finish, snapshot, view.classes.names())
        (results,) = judge_groups(finish, state, view.classes.names())
    best = best_step(results)
    covered = 0
    if best is not None:
        covered = best.remaining

    report = GoalReport(
        goal=view.settings.goal,
        purpose=Purpose.TEACH,
        answers=len(snapshot.single_labels()),
        to_go=None,
        low=None,
        high=None,
        items=n_items,
        labelled=len(has_label) + covered,
        in_reach=True,
        certificate=None,
        sentences=[],
    )
    if covered and report.labelled >= needed:
        return _describe_reached(view, snapshot, report, terms)

    outlooks = _read_outlooks(view, needed - len(has_label))
    attempt = None
    if finish is not None and results:
        attempt = _follow_attempt(view, finish, results, needed - len(has_label))
    judge = ""
    if attempt is not None and finish is not None and not finish.model_version:
        if attempt.may_succeed() or view.finishes.is_auditing():
            judge = next(iter(view.settings.judges))
        else:
            # After the audit, nobody is asked about labels that are too bad to be kept.
            attempt = None
    if not outlooks and not judge:
        sentence = f"{report.answers:,} answered; how many are to go is known after a training."
        return replace(report, labelled=needed, sentences=[sentence, _describe_terms(terms)])

    plan = plan_answers(outlooks, attempt)
    if outlooks:
        judge = ""
    is_early = len(outlooks) < _EARLY
    if judge and attempt is not None:
        is_early = attempt.may_succeed()
    return _describe_plan(view, report, plan, terms, judge=judge, is_early=is_early, needed=needed)


def _read_outlooks(view: Reading, needed: int) -> list[Outlook]:
    """Return the outlooks of the models, the newest as if it were frozen now."""
    # Models from before the goal was changed foresee another one.
    outlooks = [
        Outlook(**model.facts["outlook"])
        for model in view.models.summaries(newest=_RECENT_MODELS)
        if model.facts.get("outlook_goal") == view.settings.goal
    ]
    if outlooks:
        level = attempt_level(PromiseTerms().confidence, view.finishes.count() + 1)
        outlooks[-1] = replace(outlooks[-1], level=level, needed=needed)
    return outlooks


def plan_ahead(view: Reading, snapshot: CampaignSnapshot) -> str | None:
    """Return whether it takes fewer answers to train first, for a campaign without a goal.

    Returns:
        A sentence; None where too few models are known, or the goal is out of reach.
    """
    labelled = USUAL_GOAL.labelled or 1.0
    has_label = snapshot.consensus.keys() - snapshot.left_out
    n_items = view.items.count() - len(snapshot.left_out)
    needed = math.ceil(labelled * n_items) - len(has_label)
    outlooks = _read_outlooks(view, needed)
    if view.settings.goal or needed <= 0 or len(outlooks) < _EARLY:
        return None
    plan = plan_answers(outlooks)
    if not plan.in_reach:
        return None

    aim = (
        f"For all labels in the file, with at most {percent(USUAL_GOAL.error)} of them wrong and "
        f"{percent(labelled)} of the items labelled"
    )
    between = f"between {plan.low:,} and {plan.high:,}"
    if not plan.taught:
        return (
            f"{aim}, certifying now takes about {plan.answers:,} random labels, {between}: "
            "training first is not expected to save any."
        )
    now = "would probably fail"
    if not math.isinf(plan.draws_now):
        now = f"would take about {plan.draws_now:,.0f}"
    draws = max(1, plan.answers - plan.taught)
    return (
        f"{aim}, train on about {plan.taught:,} more labels, then certify with about {draws:,} "
        f"random ones: {plan.answers:,} in all, {between}. Certifying now {now}."
    )


def _follow_attempt(
    view: Reading, finish: FrozenFinish, results: list[StepResult], needed: int
) -> Outlook:
    """Return the outlook of a running attempt."""
    result = next(result for result in results if result.step.weight)
    for model in view.models.summaries():
        if model.version == finish.model_version and "outlook" in model.facts:
            return follow(Outlook(**model.facts["outlook"]), result)

    # It was trained before the campaign had a goal, or is a judge.
    outlook = foresee(
        finish.confidences,
        [result.step],
        [],
        labels=0,
        needed=needed,
        level=result.level,
        allowed=finish.terms.error,
    )
    return follow(outlook, result)


def _describe_reached(
    view: Reading, snapshot: CampaignSnapshot, report: GoalReport, terms: PromiseTerms
) -> GoalReport:
    certificate_id = None
    certificate = newest_certificate(view)
    if certificate is not None:
        labels, _ = certified_labels(view, snapshot)
        # One that no longer holds is replaced.
        if labels:
            certificate_id = certificate.id
    sentence = (
        f"The goal is reached with {pluralize(report.answers, 'answer')}: {report.labelled:,} of "
        f"{report.items:,} items have a label."
    )
    return replace(
        report,
        purpose=Purpose.DONE,
        to_go=0,
        low=0,
        high=0,
        certificate=certificate_id,
        sentences=[sentence, _describe_terms(terms)],
    )


def _describe_plan(
    view: Reading,
    report: GoalReport,
    plan: GoalPlan,
    terms: PromiseTerms,
    *,
    judge: str,
    is_early: bool,
    needed: int,
) -> GoalReport:
    sentence = (
        f"{report.answers:,} answered; about {plan.answers:,} to go, between {plan.low:,} and "
        f"{plan.high:,}; {needed:,} of {report.items:,} would then be labelled."
    )
    purpose = "The next questions teach the model."
    if plan.purpose is not Purpose.TEACH:
        certified = f"the labels of {judge}" if judge else "the model"
        purpose = f"The next questions certify {certified}: they are drawn at random."
    sentences = [sentence, purpose, _describe_terms(terms)]
    in_reach = plan.in_reach or is_early
    if not in_reach:
        sentences.insert(0, _describe_obstacle(view, plan, judge))
    return replace(
        report,
        purpose=plan.purpose,
        to_go=plan.answers,
        low=plan.low,
        high=plan.high,
        labelled=needed,
        in_reach=in_reach,
        sentences=sentences,
    )


def _describe_terms(terms: PromiseTerms) -> str:
    return (
        f"The goal: with {percent(terms.confidence)} confidence, at most {percent(terms.error)} of "
        f"all labels are wrong, and {percent(terms.labelled or 0)} of the items have one."
    )


def _describe_obstacle(view: Reading, plan: GoalPlan, judge: str) -> str:
    """Return that the goal is out of reach, and what would help."""
    if judge:
        return (
            f"The labels of {judge} are not likely to reach the goal: it would take about "
            f"{plan.answers:,} more answers. End the audit, and the campaign's own model learns "
            "from all answers and labels the rest."
        )

    describe = "Describe the classes"
    confused = _find_confused_classes(view)
    if confused is not None:
        first, second = confused
        describe = f"The model confuses {first!r} and {second!r} most often: describe them"
    return (
        f"The model is not likely to reach the goal with this encoder and these classes: it would "
        f"take about {plan.answers:,} more answers. {describe}, join classes, allow a larger "
        f"error, or switch to another encoder."
    )


def _find_confused_classes(view: Reading) -> tuple[str, str] | None:
    """Return the two classes that models which do not know an item confuse most often."""
    weights = view.models.newest_weights(1)
    if not weights:
        return None
    arrays = load_arrays(weights[0])
    if "unseen" not in arrays:
        return None

    pairs: Counter[tuple[int, int]] = Counter()
    labels = arrays["labels"].tolist()
    for label, predicted in zip(labels, arrays["unseen"].tolist(), strict=True):
        if label != predicted:
            pairs[min(label, predicted), max(label, predicted)] += 1
    if not pairs:
        return None
    names = view.classes.names()
    (first, second), _ = pairs.most_common(1)[0]
    return names[first], names[second]
