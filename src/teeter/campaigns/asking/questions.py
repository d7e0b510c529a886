"""What annotators see: the items that wait for them, and their last answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from teeter.campaigns.items.items import read_content
from teeter.campaigns.people import require_name
from teeter.campaigns.records import (
    MOST_AT_ONCE,
    Explanation,
    RecentAnswer,
    ShownPick,
    ShownQuestion,
)
from teeter.campaigns.settings import RANDOM_STRATEGY, Settings
from teeter.campaigns.store import Pick

if TYPE_CHECKING:
    from teeter.campaigns.campaign import Campaign


_EXCERPT = 160
"""Characters of the text of a near copy."""


def open_questions(
    campaign: Campaign, annotator: str, n: int, explanations: Mapping[str, Explanation]
) -> list[ShownQuestion]:
    """Return the items that wait for an annotator, oldest first.

    Args:
        explanations: what the model makes of items, by item id.
    """
    questions = []
    with campaign.reading() as view:
        picks = view.picks.open_picks(annotator, n)
        rows = view.items.by_id([pick.item for pick in picks])
        row_ids = [row.row_id for row in rows.values()]
        suggestions = campaign.suggestions.visible(view, row_ids)
        copies = campaign.items.unanswered_copies(view, list(rows))
        shown_copies = {item: others[: MOST_AT_ONCE - 1] for item, others in copies.items()}
        copied_rows = view.items.by_id(list(set().union(*shown_copies.values())))

        for pick in picks:
            shown = _show_pick(pick, view.settings)
            suggestion = None
            explanation = None
            # Control, holdout and shared items are labelled without the model's opinion.
            if not shown.is_blind:
                suggestion = suggestions.get(pick.item)
                explanation = explanations.get(pick.item)
            excerpts = {}
            for copy in shown_copies[pick.item]:
                content = copied_rows[copy].content or ""
                excerpts[copy] = content[:_EXCERPT]
            question = ShownQuestion(
                item=pick.item,
                content=read_content(view, rows[pick.item]),
                pick=shown,
                suggestion=suggestion,
                explanation=explanation,
                copies=excerpts,
            )
            questions.append(question)

    return questions


def _show_pick(pick: Pick, settings: Settings) -> ShownPick:
    """Return why an item was picked, without the prediction if annotators must not see it."""
    shown = ShownPick(
        arm=pick.arm,
        rank=pick.rank,
        is_shared=settings.is_shared(pick.item),
        is_sample=settings.strategy == RANDOM_STRATEGY,
        is_counted=bool(settings.goal),
    )
    if shown.is_blind:
        return shown

    scores = dict(pick.reason)
    return replace(
        shown,
        predicted=scores.pop("predicted", None),
        probability=scores.pop("probability", None),
        scores=scores,
    )


def assign_ready_items(campaign: Campaign, annotator: str, n: int) -> bool:
    """Assign items that need no picking, until n items wait for an annotator.

    Returns:
        Whether n items wait for the annotator now, or at least one was assigned.
    """
    require_name(annotator)
    with campaign.reading() as view:
        # Most polls end here, without the write lock that answers need.
        if not view.picks.has_assignable():
            return False

    with campaign.writing() as change:
        # Counted in the transaction that assigns: the worker may have assigned items meanwhile.
        missing = n - len(change.picks.open_picks(annotator, n))
        return missing <= 0 or change.picks.assign(annotator, missing) > 0


def count_held_by_others(campaign: Campaign, annotator: str) -> int:
    """Return the number of items that other annotators have open."""
    with campaign.reading() as view:
        open_items = view.picks.count_open_by_annotator()

    return sum(open_items.values()) - open_items.get(annotator, 0)


def recent_answers(campaign: Campaign, annotator: str, count: int = 10) -> list[RecentAnswer]:
    """Return the last answers of an annotator, newest first."""
    recent = []
    with campaign.reading() as view:
        answers = view.answers.recent(annotator, count)
        rows = view.items.by_id([answer.item for answer in answers])
        picks = view.picks.last_picks(annotator, [row.row_id for row in rows.values()])

        for answer in answers:
            row = rows[answer.item]
            pick = None
            if row.row_id in picks:
                pick = _show_pick(picks[row.row_id], view.settings)
            described = RecentAnswer(
                number=answer.number,
                item=answer.item,
                content=read_content(view, row),
                pick=pick,
                answer=answer.label or answer.kind,
                comment=answer.comment,
            )
            recent.append(described)

    return recent
