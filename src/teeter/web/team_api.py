"""The REST interface of a team: disagreements and decisions, people and their tokens, agreement and consensus."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from teeter.web import schemas, team
from teeter.web.permissions import current_user, get_workspace, require_permission

__all__ = ["router"]

router = APIRouter(prefix="/api/v1/campaigns/{slug}")


@router.get("/disagreements")
def disagreements(
    request: Request, slug: str, n: Annotated[int, Query(ge=1, le=200)] = 20
) -> schemas.DisagreementsOut:
    """Return items on which people disagree, the least clear first, with who says what."""
    return schemas.DisagreementsOut(
        **team.disagreements(require_permission(request, slug, "decide"), n)
    )


@router.post("/decisions")
def decide(request: Request, slug: str, told: schemas.DecisionIn) -> schemas.AnswerOut:
    """Settle what an item is, whatever people say of it: it is on disk when this returns."""
    desk = require_permission(request, slug, "decide")
    new = team.decide(desk, current_user(request), told.item, told.label, told.comment)
    return schemas.AnswerOut(new=new, labelled=desk.counts()["labelled"])


@router.get("/decisions")
def last_decisions(
    request: Request, slug: str, count: Annotated[int, Query(ge=1, le=100)] = 10
) -> list[dict[str, Any]]:
    """Return your last decisions, the newest first."""
    return team.last_decisions(
        require_permission(request, slug, "decide"), current_user(request), count
    )


@router.post("/decisions/undo")
def undo(request: Request, slug: str, told: schemas.UndoIn) -> schemas.UndoOut:
    """Take back your last decision."""
    return schemas.UndoOut(
        undone=team.take_back(
            require_permission(request, slug, "decide"), current_user(request), told.item
        )
    )


@router.get("/team")
def members(request: Request, slug: str) -> list[schemas.MemberOut]:
    """Return everybody who is named or has answered, and how they work."""
    return [
        schemas.MemberOut(**one)
        for one in team.members(require_permission(request, slug, "review"))
    ]


@router.get("/agreement")
def agreement(request: Request, slug: str) -> schemas.AgreementOut:
    """Return how far people agree: over all, by class and by pair."""
    return schemas.AgreementOut(**team.agreement(require_permission(request, slug, "review")))


@router.post("/consensus")
def consensus(request: Request, slug: str, told: schemas.ConsensusIn) -> schemas.AgreementOut:
    """Choose how several answers become one label."""
    desk = require_permission(request, slug, "manage")
    team.choose_consensus(desk, told.way, current_user(request))
    return schemas.AgreementOut(**team.agreement(desk))


@router.post("/people", status_code=201)
def add_person(request: Request, slug: str, told: schemas.PersonIn) -> schemas.TokenOut:
    """Name somebody; their token is shown this once. The first one is an owner, and from then on all need tokens."""
    desk = require_permission(request, slug, "manage")
    token = team.add_person(
        desk,
        told.name,
        told.role,
        current_user(request),
        alone=not request.state.session.token_prefix,
    )
    get_workspace(request).roster.refresh()
    return schemas.TokenOut(name=told.name.strip(), token=token)


@router.post("/people/token")
def new_token(request: Request, slug: str, told: schemas.NameIn) -> schemas.TokenOut:
    """Make somebody a token in the place of the one they had; it is shown this once."""
    token = team.new_token(
        require_permission(request, slug, "manage"), told.name, current_user(request)
    )
    return schemas.TokenOut(name=told.name, token=token)


@router.post("/people/revoke")
def revoke(request: Request, slug: str, told: schemas.NameIn) -> schemas.DoneOut:
    """Take somebody's token away; who came in by it is out."""
    team.revoke(require_permission(request, slug, "manage"), told.name, current_user(request))
    return schemas.DoneOut(name=told.name)


@router.post("/people/role")
def change_role(request: Request, slug: str, told: schemas.PersonIn) -> schemas.DoneOut:
    """Give somebody another role."""
    team.change_role(
        require_permission(request, slug, "manage"), told.name, told.role, current_user(request)
    )
    return schemas.DoneOut(name=told.name)


@router.post("/people/remove")
def remove_person(request: Request, slug: str, told: schemas.NameIn) -> schemas.DoneOut:
    """Let somebody go: their answers stay, and open questions go to others."""
    returned = team.remove_person(
        require_permission(request, slug, "manage"), told.name, current_user(request)
    )
    return schemas.DoneOut(name=told.name, returned=returned)


@router.post("/people/give-back")
def give_back(request: Request, slug: str, told: schemas.NameIn) -> schemas.DoneOut:
    """Let others have somebody's open questions."""
    returned = team.give_back(
        require_permission(request, slug, "manage"), told.name, current_user(request)
    )
    return schemas.DoneOut(name=told.name, returned=returned)
