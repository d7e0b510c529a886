"""Review over REST and on its pages: disagreements, decisions and agreement."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from teeter.campaigns.asking.questions import recent_answers
from teeter.campaigns.records import (
    Agreement,
    AnswerReceipt,
    ClassAccuracy,
    Decision,
    DisagreementPage,
    Job,
    Permission,
    RecentAnswer,
    SuspectLabel,
)
from teeter.server.access.permissions import (
    CampaignToAnswer,
    CampaignToDecide,
    CampaignToReview,
    User,
    current_user,
    get_workspace,
)
from teeter.server.pages import QUESTIONS_ON_PAGE, LabelMode, open_campaign_page
from teeter.server.routes import Comment, ItemId, Label, Labels, RequestBody, UndoIn

router = APIRouter(prefix="/api/v1/campaigns/{slug}")
page_router = APIRouter(include_in_schema=False)


class DecisionIn(RequestBody):
    """A decision on the label of an item, which overrides all answers."""

    item: ItemId
    label: Label | Labels | None = None
    """The class, or a list of all labels if items may have several; None if the item does not
    belong in the campaign."""
    comment: Comment | None = None


# Labels that may be wrong


@page_router.get("/c/{slug}/review")
def show_suspects(request: Request, slug: str) -> Response:
    """Show labels that may be wrong, one by one. The page asks for them when they are found."""
    page = open_campaign_page(request, slug, "review", Permission.REVIEW)
    get_workspace(request).find_suspects(page.campaign, again=True)

    recent = recent_answers(page.campaign, current_user(request))
    return page.render_labelling(LabelMode.SUSPECTS, questions=[], recent=recent)


@router.get("/suspects")
def find_suspects(
    request: Request, campaign: CampaignToReview, again: bool = False
) -> Job[list[SuspectLabel]]:
    """Return labels that may be wrong, the least likely first.

    Repeat the request while the state is ``waiting``.
    """
    search = get_workspace(request).find_suspects(campaign, again=again)
    if search.result is None:
        return search

    columns = campaign.items.shown_columns([suspect.item for suspect in search.result])
    suspects = [
        replace(suspect, columns=columns.get(suspect.item, {})) for suspect in search.result
    ]
    return replace(search, result=suspects)


# Disagreements


@router.get("/disagreements")
def list_disagreements(
    campaign: CampaignToDecide, n: Annotated[int, Query(ge=1, le=200)] = 20
) -> DisagreementPage:
    """Return items that annotators disagree about, the least certain first."""
    return campaign.review.disagreements(n)


@router.post("/decisions")
def decide(campaign: CampaignToDecide, user: User, body: DecisionIn) -> AnswerReceipt:
    """Decide on the label of an item. The decision is on disk when the request returns.

    Sent again, it decides once.
    """
    receipt = campaign.review.decide(body.item, body.label, user, comment=body.comment)
    return replace(receipt, labelled=campaign.items.count().labelled)


@router.get("/decisions")
def list_recent_decisions(
    campaign: CampaignToDecide, user: User, count: Annotated[int, Query(ge=1, le=100)] = 10
) -> list[RecentAnswer]:
    """Return your latest decisions, newest first."""
    return campaign.review.recent_decisions(user, count)


@router.post("/decisions/undo")
def undo_decision(campaign: CampaignToDecide, user: User, body: UndoIn) -> Decision | None:
    """Undo your last decision, by its number. Sent again, it undoes nothing more.

    It returns null if there was nothing to undo, because you have decided since.
    """
    return campaign.review.undo_decision(user, number=body.number)


# Agreement


@router.get("/agreement")
def get_agreement(campaign: CampaignToReview) -> Agreement:
    """Return how well annotators agree: overall, by class and by pair."""
    return campaign.review.agreement()


@router.get("/confusion")
def get_confusion(campaign: CampaignToAnswer) -> list[ClassAccuracy]:
    """Return what the model takes the items of each class for, by random items answered blind.

    Empty before the first model, and before a random item has a label.
    """
    return campaign.review.confusion()


@page_router.get("/c/{slug}/disagreements")
def show_disagreements(request: Request, slug: str) -> Response:
    """Show items that annotators disagree about, one by one."""
    page = open_campaign_page(request, slug, "disagreements", Permission.DECIDE)
    review = page.campaign.review
    listed = review.disagreements(QUESTIONS_ON_PAGE)
    return page.render_labelling(
        LabelMode.DECIDE,
        questions=listed.disagreements,
        recent=review.recent_decisions(current_user(request)),
        waiting=listed.waiting,
    )
