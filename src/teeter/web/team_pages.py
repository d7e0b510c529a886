"""The pages of a team: disagreements to decide on, and who works how."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Form, Request
from fastapi.responses import Response

from teeter.campaigns.people import ROLES
from teeter.campaigns.shortcuts import RESERVED_KEYS
from teeter.errors import InputError, PermissionDeniedError
from teeter.web import team
from teeter.web.pages import campaign_page, page, start_of
from teeter.web.permissions import current_user, get_workspace, require_permission

__all__ = ["router"]

router = APIRouter()

_AHEAD = 40
"""Disagreements that the page has at hand."""

_REFUSED = (InputError, PermissionDeniedError)
"""What is told on the page itself."""

Name = Annotated[str, Form(max_length=80)]


@router.get("/c/{slug}/disagreements")
def disagreements(request: Request, slug: str) -> Response:
    """Show items on which people disagree, one by one."""
    desk, told = campaign_page(request, slug, "disagreements", "decide")
    found, last = team.disagreements(desk, _AHEAD), team.last_decisions(desk, current_user(request))
    more = {"questions": found["disagreements"], "waiting": found["waiting"], "last": last}
    start = start_of(request, desk, told, "decide", **more)
    return page(request, "label.html", {**told, "start": start, "taken": RESERVED_KEYS})


@router.get("/c/{slug}/team")
def members(request: Request, slug: str) -> Response:
    """Show who works on a campaign and how they agree."""
    return _team(request, slug)


def _team(request: Request, slug: str, status: int = 200, **more: Any) -> Response:
    desk, told = campaign_page(request, slug, "team", "review")
    named = bool(desk.campaign.people.list())
    told |= {
        "members": team.members(desk),
        "agreement": team.agreement(desk),
        "roles": ROLES,
        "named": named,
    }
    return page(request, "team.html", {**told, **more}, status)


@router.post("/c/{slug}/people")
def add_person(
    request: Request,
    slug: str,
    name: Name = "",
    role: Annotated[str, Form(max_length=20)] = "annotator",
) -> Response:
    """Name somebody, and show their token this once."""
    desk = require_permission(request, slug, "manage")
    site, session = get_workspace(request), request.state.session
    if not name.strip().isprintable():
        raise InputError("A name is needed, of letters and the like.")
    try:
        token = team.add_person(
            desk, name, role, current_user(request), alone=not session.token_prefix
        )
    except _REFUSED as error:
        return _team(request, slug, 422, wrong=str(error))
    site.roster.refresh()
    if session.token_prefix:
        return _team(request, slug, token=token, of=name.strip())
    # Whoever names the first comes in by that token from now on: nobody does without one any more.
    request.state.session = site.auth.log_in(token, "")
    return _team(request, slug, token=token, of=name.strip())


@router.post("/c/{slug}/people/change")
def change_person(
    request: Request,
    slug: str,
    name: Name = "",
    what: Annotated[str, Form(max_length=20)] = "",
    role: Annotated[str, Form(max_length=20)] = "",
) -> Response:
    """Change somebody's role or token, take their open questions back, or let them go."""
    desk, by = require_permission(request, slug, "manage"), current_user(request)
    try:
        if what == "token":
            return _team(request, slug, token=team.new_token(desk, name, by), of=name)
        return _team(request, slug, done=_changed(desk, name, what, role, by))
    except _REFUSED as error:
        return _team(request, slug, 422, wrong=str(error))


def _changed(desk: Any, name: str, what: str, role: str, by: str) -> str:
    if what == "role":
        team.change_role(desk, name, role, by)
        return f"{name} has the role {role}."
    if what == "revoke":
        team.revoke(desk, name, by)
        return f"The token of {name} lets nobody in any more."
    if what in ("give back", "remove"):
        count = (team.give_back if what == "give back" else team.remove_person)(desk, name, by)
        gone = f"{count} open question{'' if count == 1 else 's'} of {name} went back"
        return f"{gone}." if what == "give back" else f"{name} is removed; {gone}."
    raise InputError(f"{what!r} is none of role, token, revoke, give back and remove.")


@router.post("/c/{slug}/consensus")
def consensus(
    request: Request, slug: str, way: Annotated[str, Form(max_length=20)] = ""
) -> Response:
    """Choose how several answers become one label."""
    desk = require_permission(request, slug, "manage")
    try:
        team.choose_consensus(desk, way, current_user(request))
    except _REFUSED as error:
        return _team(request, slug, 422, wrong=str(error))
    return _team(request, slug, done=f"Several answers become one by {way}.")
