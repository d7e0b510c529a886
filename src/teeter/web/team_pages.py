"""The pages of a team: disagreements to decide, and its members and their agreement."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from fastapi import APIRouter, Form, Request
from fastapi.responses import Response

from teeter.campaigns.enums import Permission, Role
from teeter.campaigns.people import ROLES
from teeter.errors import InputError, PermissionDeniedError
from teeter.web.pages import QUESTIONS_ON_PAGE, open_campaign_page
from teeter.web.permissions import current_session, current_user, get_workspace
from teeter.web.schemas import LabelMode, MemberChanged, TokenOut
from teeter.web.team import TeamService
from teeter.web.team_api import require_team_permission

__all__ = ["MemberAction", "router"]

router = APIRouter(include_in_schema=False)

_SHOWN_ERRORS = (InputError, PermissionDeniedError)
"""Errors that are shown on the page of the team, so that the form can be corrected."""

NameField = Annotated[str, Form(max_length=80)]
ChoiceField = Annotated[str, Form(max_length=20)]


class MemberAction(StrEnum):
    """What the page of the team can do with a member."""

    ROLE = "role"
    TOKEN = "token"
    REVOKE = "revoke"
    RELEASE = "release"
    REMOVE = "remove"


@router.get("/c/{slug}/disagreements")
def show_disagreements(request: Request, slug: str) -> Response:
    """Show items that annotators disagree about, one by one."""
    page = open_campaign_page(request, slug, "disagreements", Permission.DECIDE)
    team = TeamService(page.service, current_user(request))

    listed = team.list_disagreements(QUESTIONS_ON_PAGE)
    return page.render_labelling(
        LabelMode.DECIDE,
        questions=listed.disagreements,
        recent=team.recent_decisions(),
        waiting=listed.waiting,
    )


@router.get("/c/{slug}/team")
def show_team(request: Request, slug: str) -> Response:
    """Show the members of a campaign and how far they agree."""
    return _render_team(request, slug)


def _render_team(
    request: Request,
    slug: str,
    *,
    notice: str | None = None,
    error: str | None = None,
    token: TokenOut | None = None,
) -> Response:
    """Return the page of the team.

    Args:
        request: the request of the page.
        slug: the campaign's name in addresses.
        notice: what was just changed.
        error: why a change was refused.
        token: a new token to show.
    """
    page = open_campaign_page(request, slug, "team", Permission.REVIEW)
    team = TeamService(page.service, current_user(request))
    return page.render(
        "team.html",
        # The status tells programs and htmx what the page tells people.
        status=200 if error is None else 422,
        members=team.list_members(),
        agreement=team.describe_agreement(),
        sources=page.list_sources(),
        roles=ROLES,
        has_members=team.has_members(),
        notice=notice,
        error=error,
        token=token,
    )


@router.post("/c/{slug}/people")
def add_member(
    request: Request, slug: str, name: NameField = "", role: ChoiceField = Role.ANNOTATOR
) -> Response:
    """Add a member, and show their token."""
    team = require_team_permission(request, slug, Permission.MANAGE)
    workspace = get_workspace(request)
    # Without a login the user is the first member: they add themselves as the owner.
    is_authenticated = current_session(request).is_authenticated

    if not name.strip().isprintable():
        raise InputError("The name contains characters that cannot be displayed: change it.")
    try:
        token = team.add_member(name, role, is_authenticated=is_authenticated)
    except _SHOWN_ERRORS as error:
        return _render_team(request, slug, error=str(error))

    # Now, not at the next periodic check: the new member may log in at once.
    workspace.campaign_tokens.refresh()
    if not is_authenticated:
        # They added themselves. From now on everyone needs a token, so they are logged in with it.
        request.state.session = workspace.auth.log_in(token.token, "")
    return _render_team(request, slug, token=token)


@router.post("/c/{slug}/people/change")
def change_member(
    request: Request,
    slug: str,
    name: NameField = "",
    action: ChoiceField = "",
    role: ChoiceField = "",
) -> Response:
    """Change the role or token of a member, release their items, or remove them."""
    team = require_team_permission(request, slug, Permission.MANAGE)
    try:
        # A token is shown once, on the page that answers this request. It is in no address and no
        # history of the browser.
        if action == MemberAction.TOKEN:
            return _render_team(request, slug, token=team.replace_token(name))
        return _render_team(request, slug, notice=_change_member(team, name, action, role))
    except _SHOWN_ERRORS as error:
        return _render_team(request, slug, error=str(error))


def _change_member(team: TeamService, name: str, action: str, role: str) -> str:
    """Change a member, and return a sentence about it.

    Raises:
        InputError: there is no such action, member or role.
        PermissionDeniedError: they are the only owner.
    """
    match action:
        case MemberAction.ROLE:
            team.change_role(name, role)
            return f"{name} now has the role {role}."
        case MemberAction.REVOKE:
            team.revoke_token(name)
            return f"The token of {name} was revoked."
        case MemberAction.RELEASE:
            return f"{_describe_release(team.release_items(name))}."
        case MemberAction.REMOVE:
            return f"{name} was removed. {_describe_release(team.remove_member(name))}."

    raise InputError(f"There is no action {action!r}: choose {', '.join(MemberAction)}.")


def _describe_release(change: MemberChanged) -> str:
    if change.released == 1:
        return f"1 open item of {change.name} was released"
    return f"{change.released} open items of {change.name} were released"


@router.post("/c/{slug}/consensus")
def choose_consensus(request: Request, slug: str, method: ChoiceField = "") -> Response:
    """Choose how several answers become one label."""
    team = require_team_permission(request, slug, Permission.MANAGE)
    try:
        team.choose_consensus(method)
    except _SHOWN_ERRORS as error:
        return _render_team(request, slug, error=str(error))
    return _render_team(
        request, slug, notice=f"Several answers about an item are now combined by {method}."
    )
