"""The REST API of a team: disagreements, decisions, members, agreement and consensus."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request

from teeter.campaigns.enums import Permission
from teeter.web.idempotency import Once
from teeter.web.permissions import (
    current_session,
    current_user,
    get_workspace,
    require_permission,
)
from teeter.web.schemas import (
    AgreementOut,
    AnswerOut,
    ConsensusIn,
    DecisionIn,
    DisagreementsOut,
    MemberChanged,
    MemberOut,
    NameIn,
    PersonIn,
    RecentAnswer,
    TokenOut,
    UndoIn,
    UndoOut,
)
from teeter.web.team import TeamService

__all__ = ["require_team_permission", "router"]

router = APIRouter(prefix="/api/v1/campaigns/{slug}")


def require_team_permission(request: Request, slug: str, permission: Permission) -> TeamService:
    """Return the team of a campaign, for the user of a request.

    Raises:
        UnknownResourceError: there is no such campaign.
        PermissionDeniedError: the user may not do this there.
    """
    service = require_permission(request, slug, permission)
    return TeamService(service, current_user(request))


# Disagreements


@router.get("/disagreements")
def list_disagreements(
    request: Request, slug: str, n: Annotated[int, Query(ge=1, le=200)] = 20
) -> DisagreementsOut:
    """Return items that annotators disagree about, the least certain first."""
    return require_team_permission(request, slug, Permission.DECIDE).list_disagreements(n)


@router.post("/decisions")
def decide(request: Request, slug: str, body: DecisionIn, once: Once) -> AnswerOut:
    """Decide on the label of an item. The decision is on disk when the request returns."""
    team = require_team_permission(request, slug, Permission.DECIDE)
    return once(team.service, body, team.decide, body.item, body.label, body.comment)


@router.get("/decisions")
def list_recent_decisions(
    request: Request, slug: str, count: Annotated[int, Query(ge=1, le=100)] = 10
) -> list[RecentAnswer]:
    """Return your latest decisions, newest first."""
    return require_team_permission(request, slug, Permission.DECIDE).recent_decisions(count)


@router.post("/decisions/undo")
def undo_decision(request: Request, slug: str, body: UndoIn, once: Once) -> UndoOut:
    """Undo your last decision."""
    team = require_team_permission(request, slug, Permission.DECIDE)
    return once(team.service, body, team.undo_decision, body.item)


# Members


@router.get("/team")
def list_members(request: Request, slug: str) -> list[MemberOut]:
    """Return all members and others who have answered, with their pace and accuracy."""
    return require_team_permission(request, slug, Permission.REVIEW).list_members()


@router.post("/people", status_code=201)
def add_member(request: Request, slug: str, body: PersonIn) -> TokenOut:
    """Add a member and return their token, which is shown only once.

    The first member must be an owner. From then on, everyone needs a token. There is no
    ``Idempotency-Key`` here, because tokens are not stored: a member can be added only once.
    """
    team = require_team_permission(request, slug, Permission.MANAGE)
    is_authenticated = current_session(request).is_authenticated

    token = team.add_member(body.name, body.role, is_authenticated=is_authenticated)
    # With the first member everybody needs a login, from the next request on.
    get_workspace(request).campaign_tokens.refresh()
    return token


@router.post("/people/token")
def replace_token(request: Request, slug: str, body: NameIn) -> TokenOut:
    """Give a member a new token, which is shown only once. The old one no longer works."""
    return require_team_permission(request, slug, Permission.MANAGE).replace_token(body.name)


@router.post("/people/revoke")
def revoke_token(request: Request, slug: str, body: NameIn, once: Once) -> MemberChanged:
    """Revoke the token of a member. Their sessions end."""
    team = require_team_permission(request, slug, Permission.MANAGE)
    return once(team.service, body, team.revoke_token, body.name)


@router.post("/people/role")
def change_role(request: Request, slug: str, body: PersonIn, once: Once) -> MemberChanged:
    """Give a member another role."""
    team = require_team_permission(request, slug, Permission.MANAGE)
    return once(team.service, body, team.change_role, body.name, body.role)


@router.post("/people/remove")
def remove_member(request: Request, slug: str, body: NameIn, once: Once) -> MemberChanged:
    """Remove a member. Their answers stay, and others can get their open items."""
    team = require_team_permission(request, slug, Permission.MANAGE)
    return once(team.service, body, team.remove_member, body.name)


@router.post("/people/release")
def release_items(request: Request, slug: str, body: NameIn, once: Once) -> MemberChanged:
    """Release the open items of an annotator to others."""
    team = require_team_permission(request, slug, Permission.MANAGE)
    return once(team.service, body, team.release_items, body.name)


# Agreement


@router.get("/agreement")
def get_agreement(request: Request, slug: str) -> AgreementOut:
    """Return how well annotators agree: overall, by class and by pair."""
    return require_team_permission(request, slug, Permission.REVIEW).describe_agreement()


@router.post("/consensus")
def choose_consensus(request: Request, slug: str, body: ConsensusIn, once: Once) -> AgreementOut:
    """Choose how several answers become one label."""
    team = require_team_permission(request, slug, Permission.MANAGE)
    return once(team.service, body, team.choose_consensus, body.method)
