"""Review over REST and on its pages: disagreements, decisions and agreement."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from teeter.campaigns.asking.questions import recent_answers
from teeter.campaigns.items.items import read_content
from teeter.campaigns.records import Agreement, AnswerKind, Decision, Permission, RecentAnswer
from teeter.server.access.permissions import current_user, get_workspace, require_permission
from teeter.server.pages import QUESTIONS_ON_PAGE, open_campaign_page
from teeter.server.schemas import (
    AnswerOut,
    DecisionIn,
    DisagreementOut,
    DisagreementsOut,
    GivenAnswer,
    LabelMode,
    SuspectsOut,
    UndoIn,
)
from teeter.server.service import CampaignService


class ReviewService:
    """What reviewers do in a campaign.

    Args:
        service: the campaign.
        user: who decides.
    """

    def __init__(self, service: CampaignService, user: str) -> None:
        self.service = service
        self._user = user

    # Disagreements

    def list_disagreements(self, count: int) -> DisagreementsOut:
        """Return items that need a decision, the least certain first."""
        described = []
        with self.service.campaign.reading() as view:
            snapshot = self.service.campaign.review.snapshot(view)
            disagreements = snapshot.disagreements()
            # Contents are read only for those that are shown: texts may be long.
            shown = disagreements[:count]
            rows = view.items.by_id([item for item, _ in shown])
            labels = snapshot.labels

            for item, answer_by_annotator in shown:
                answers = [
                    GivenAnswer(annotator=annotator, answer=answer)
                    for annotator, answer in sorted(answer_by_annotator.items())
                ]
                disagreement = DisagreementOut(
                    item=item,
                    content=read_content(view, rows[item]),
                    answers=answers,
                    # A flag by one annotator leaves an item out until a reviewer decides.
                    label=None if item in snapshot.left_out else labels.get(item),
                    confidence=snapshot.confidence(item),
                )
                described.append(disagreement)

        return DisagreementsOut(disagreements=described, waiting=len(disagreements))

    def decide(self, item: str, label: str | None, comment: str | None = None) -> AnswerOut:
        """Decide on the label of an item. The decision is on disk when this returns.

        Args:
            label: its class; None if the item does not belong in the campaign.
        """
        # Idempotent like an answer: a repeated request decides once.
        campaign = self.service.campaign
        is_new = campaign.decide(item, label, self._user, comment=comment)

        stored = AnswerOut(new=is_new, labelled=self.service.campaign.items.count().labelled)

        with campaign.reading() as view:
            decision = view.decisions.for_item(item)
        # Another reviewer may have decided since: that is not for this one to undo.
        if decision is not None and decision.reviewer == self._user:
            stored.number = decision.number
        return stored

    def recent_decisions(self, count: int = 10) -> list[RecentAnswer]:
        """Return the last decisions of the user, newest first."""
        recent = []
        with self.service.campaign.reading() as view:
            decisions = view.decisions.recent(self._user, count)
            rows = view.items.by_id([decision.item for decision in decisions])

            for decision in decisions:
                described = RecentAnswer(
                    number=decision.number,
                    item=decision.item,
                    content=read_content(view, rows[decision.item]),
                    answer=_format_decision(decision),
                    comment=decision.comment,
                )
                recent.append(described)

        return recent


def _format_decision(decision: Decision) -> str:
    return decision.label or AnswerKind.FLAG


router = APIRouter(prefix="/api/v1/campaigns/{slug}")
page_router = APIRouter(include_in_schema=False)


def require_review_permission(request: Request, slug: str, permission: Permission) -> ReviewService:
    """Return the reviews of a campaign, for the user of a request.

    Raises:
        UnknownResourceError: there is no such campaign.
        PermissionDeniedError: the user may not do this there.
    """
    service = require_permission(request, slug, permission)
    return ReviewService(service, current_user(request))


# Labels that may be wrong


@page_router.get("/c/{slug}/review")
def show_suspects(request: Request, slug: str) -> Response:
    """Show labels that may be wrong, one by one. The page asks for them when they are found."""
    page = open_campaign_page(request, slug, "review", Permission.REVIEW)
    get_workspace(request).find_suspects(page.service, again=True)

    recent = recent_answers(page.service.campaign, current_user(request))
    return page.render_labelling(LabelMode.SUSPECTS, questions=[], recent=recent)


@router.get("/suspects")
def find_suspects(request: Request, slug: str, again: bool = False) -> SuspectsOut:
    """Return labels that may be wrong. Repeat the request while the state is ``waiting``."""
    service = require_permission(request, slug, Permission.REVIEW)
    status = get_workspace(request).find_suspects(service, again=again)

    suspects = status.result or []
    columns = service.campaign.items.shown_columns([suspect.item for suspect in suspects])
    return SuspectsOut(state=status.state, detail=status.error, suspects=suspects, columns=columns)


# Disagreements


@router.get("/disagreements")
def list_disagreements(
    request: Request, slug: str, n: Annotated[int, Query(ge=1, le=200)] = 20
) -> DisagreementsOut:
    """Return items that annotators disagree about, the least certain first."""
    return require_review_permission(request, slug, Permission.DECIDE).list_disagreements(n)


@router.post("/decisions")
def decide(request: Request, slug: str, body: DecisionIn) -> AnswerOut:
    """Decide on the label of an item. The decision is on disk when the request returns."""
    review = require_review_permission(request, slug, Permission.DECIDE)
    return review.decide(body.item, body.label, body.comment)


@router.get("/decisions")
def list_recent_decisions(
    request: Request, slug: str, count: Annotated[int, Query(ge=1, le=100)] = 10
) -> list[RecentAnswer]:
    """Return your latest decisions, newest first."""
    return require_review_permission(request, slug, Permission.DECIDE).recent_decisions(count)


@router.post("/decisions/undo")
def undo_decision(request: Request, slug: str, body: UndoIn) -> Decision | None:
    """Undo your last decision, by its number. Sent again, it undoes nothing more.

    It returns null if there was nothing to undo, because you have decided since.
    """
    campaign = require_permission(request, slug, Permission.DECIDE).campaign
    return campaign.undo_decision(current_user(request), number=body.number)


# Agreement


@router.get("/agreement")
def get_agreement(request: Request, slug: str) -> Agreement:
    """Return how well annotators agree: overall, by class and by pair."""
    service = require_permission(request, slug, Permission.REVIEW)
    return service.campaign.review.agreement()


@page_router.get("/c/{slug}/disagreements")
def show_disagreements(request: Request, slug: str) -> Response:
    """Show items that annotators disagree about, one by one."""
    page = open_campaign_page(request, slug, "disagreements", Permission.DECIDE)
    review = ReviewService(page.service, current_user(request))

    listed = review.list_disagreements(QUESTIONS_ON_PAGE)
    return page.render_labelling(
        LabelMode.DECIDE,
        questions=listed.disagreements,
        recent=review.recent_decisions(),
        waiting=listed.waiting,
    )
