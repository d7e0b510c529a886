"""Labelling: the page with its questions, and the answers to them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import Field

from teeter.campaigns.asking.questions import (
    assign_ready_items,
    count_held_by_others,
    open_questions,
    recent_answers,
)
from teeter.campaigns.campaign import Campaign
from teeter.campaigns.classes import label_text
from teeter.campaigns.people import SessionKind, note_session
from teeter.campaigns.records import (
    MOST_AT_ONCE,
    Answer,
    AnswerKind,
    AnswerOrigin,
    AnswerReceipt,
    Permission,
    RecentAnswer,
    ShownQuestion,
    ShownSuggestion,
    UndoResult,
)
from teeter.server.access.permissions import (
    CampaignToAnswer,
    CampaignToReview,
    User,
    current_session,
    current_user,
    get_workspace,
)
from teeter.server.pages import QUESTIONS_ON_PAGE, LabelMode, open_campaign_page
from teeter.server.routes import Comment, ItemId, Label, Labels, RequestBody, UndoIn

router = APIRouter(prefix="/api/v1/campaigns/{slug}")
page_router = APIRouter(include_in_schema=False)


class ShownSuggestionIn(RequestBody):
    """The suggestion that the annotator saw."""

    source: Annotated[str, Field(max_length=200)]
    label: Label


class AnswerIn(RequestBody):
    """An answer about an item."""

    item: ItemId
    kind: AnswerKind = AnswerKind.LABEL
    label: Label | Labels | None = None
    """The class, if the kind is ``label``; a list of all labels if items may have several."""
    comment: Comment | None = None
    suggestion: ShownSuggestionIn | None = None
    """The suggestion that the annotator saw; None if none was shown."""
    origin: Literal["single", "seen"] = "single"
    """``seen`` if a prediction was in view that the server does not know of."""
    copies: bool = False
    """Whether the item's near copies have the same class."""


class BulkAnswerIn(RequestBody):
    """One class for many items."""

    items: list[ItemId] = Field(min_length=1, max_length=MOST_AT_ONCE)
    label: Label | Labels


class ConfirmationIn(RequestBody):
    """An item whose label was reviewed and is correct."""

    item: ItemId
    comment: Comment | None = None


@page_router.get("/c/{slug}")
def show_labelling(request: Request, slug: str) -> Response:
    """Show items to label, one by one."""
    page = open_campaign_page(request, slug, "label", Permission.ANSWER)
    workspace = get_workspace(request)
    campaign = page.campaign
    annotator = current_user(request)

    explanations = workspace.trainer.status(campaign.location).explanations
    questions = open_questions(campaign, annotator, QUESTIONS_ON_PAGE, explanations)
    # Reviewers and owners of a team who only look hold no items: they begin with a button.
    may_only_look = Permission.DECIDE in page.served.permissions and bool(campaign.people.list())
    is_waiting = may_only_look and not questions
    if not is_waiting:
        if not questions and assign_ready_items(campaign, annotator, workspace.batch_of(campaign)):
            questions = open_questions(campaign, annotator, QUESTIONS_ON_PAGE, explanations)
        workspace.trainer.ensure_questions(campaign.location, annotator)

    recent = recent_answers(campaign, annotator)
    return page.render_labelling(
        LabelMode.LABEL,
        questions=questions,
        recent=recent,
        is_name_shared=_is_name_shared(request, campaign),
        is_waiting=is_waiting,
    )


def _is_name_shared(request: Request, campaign: Campaign) -> bool:
    """Return whether the default name is used in another browser, too."""
    session = current_session(request)
    default_name = get_workspace(request).auth.config.default_annotator
    if session.is_authenticated or session.annotator != default_name:
        return False
    # The CSRF token is random, and every browser has its own.
    return note_session(campaign, default_name, SessionKind.BROWSER, identity=session.csrf_token)


@dataclass(frozen=True, kw_only=True)
class QuestionPage:
    """Items to label, and the state of the background work."""

    questions: list[ShownQuestion]
    finished: bool
    """Whether there are no items left for you."""
    held_by_others: int
    """When nothing is left for you: how many items other annotators have open."""
    news: str
    busy: bool
    """Whether work is being done in the background."""
    labelled: int
    items: int


@router.get("/questions")
def list_questions(
    request: Request,
    campaign: CampaignToAnswer,
    user: User,
    n: Annotated[int, Query(ge=1, le=200)] = 20,
) -> QuestionPage:
    """Return items to label.

    If there are none and ``finished`` is false, items are still being picked: repeat the request.
    """
    workspace = get_workspace(request)

    status = workspace.trainer.status(campaign.location)
    questions = open_questions(campaign, user, n, status.explanations)

    batch = workspace.batch_of(campaign)
    low = batch // 2
    if len(questions) < min(n, low) and assign_ready_items(campaign, user, batch):
        questions = open_questions(campaign, user, n, status.explanations)

    lacks_explanation = any(
        question.explanation is None and not question.pick.is_blind for question in questions
    )
    if lacks_explanation or len(questions) <= low:
        workspace.trainer.ensure_questions(campaign.location, user)

    is_finished = not questions and user in status.finished_annotators
    held_by_others = 0
    if is_finished:
        held_by_others = count_held_by_others(campaign, user)
    counts = campaign.items.count()
    return QuestionPage(
        questions=questions,
        finished=is_finished,
        held_by_others=held_by_others,
        news=workspace.describe_news(campaign),
        busy=status.activity is not None,
        labelled=counts.labelled,
        items=counts.items,
    )


@router.post("/answers")
def record_answer(
    request: Request, campaign: CampaignToAnswer, user: User, body: AnswerIn
) -> AnswerReceipt:
    """Record an answer. The answer is on disk when the request returns.

    Sent again, for example because a response was lost, it counts once.
    """
    origin = AnswerOrigin(body.origin)
    label = None
    if body.label is not None:
        label = label_text(body.label, several=campaign.settings.several)
    answer = Answer(body.item, user, body.kind, label, body.comment, origin=origin)
    shown = None
    if body.suggestion is not None:
        shown = ShownSuggestion(body.suggestion.source, body.suggestion.label)

    receipt = campaign.answer(answer, shown=shown, copies=body.copies)
    get_workspace(request).trainer.ensure_questions(campaign.location, user)
    return replace(receipt, labelled=campaign.items.count().labelled)


@router.post("/answers/bulk")
def record_answers(
    request: Request, campaign: CampaignToAnswer, user: User, body: BulkAnswerIn
) -> AnswerReceipt:
    """Record one class for up to 200 items at once: all of them, or none. One undo takes all back.

    What you said of one of the items alone stays.
    """
    receipt = campaign.tell_all(body.items, body.label, user)
    get_workspace(request).trainer.ensure_questions(campaign.location, user)
    return replace(receipt, labelled=campaign.items.count().labelled)


@router.get("/answers")
def list_recent_answers(
    campaign: CampaignToAnswer, user: User, count: Annotated[int, Query(ge=1, le=100)] = 10
) -> list[RecentAnswer]:
    """Return your latest answers, newest first."""
    return recent_answers(campaign, user, count)


@router.post("/undo")
def undo_answer(campaign: CampaignToAnswer, user: User, body: UndoIn) -> UndoResult | None:
    """Undo your last answer, by its number. Sent again, it undoes nothing more.

    It returns null if there was nothing to undo, because you have answered since.
    """
    return campaign.undo(user, number=body.number)


@router.post("/keep")
def confirm_label(campaign: CampaignToReview, user: User, body: ConfirmationIn) -> AnswerReceipt:
    """Record that a label was reviewed and is correct. It is undone like any other answer."""
    receipt = campaign.confirm_label(body.item, user, comment=body.comment)
    return replace(receipt, labelled=campaign.items.count().labelled)


@page_router.get("/c/{slug}/news")
def show_news(request: Request, slug: str) -> Response:
    """Return what is being done in the background, as part of a page."""
    page = open_campaign_page(request, slug, "", Permission.ANSWER)
    return page.render("part_news.html")
