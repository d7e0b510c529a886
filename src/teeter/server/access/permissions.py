"""What the annotator of a request may do in a campaign.

If a campaign names annotators, only they may use it, each according to their role. They are
recognised by the campaign's own token, by a token of the server that has their name, or by their
account at a login provider. If a campaign names no annotators, everybody without a token of another
campaign may do anything, except for accounts on a server that gives them roles.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Annotated

from fastapi import Depends, Request

from teeter.campaigns import people as campaign_people
from teeter.campaigns.campaign import Campaign
from teeter.campaigns.people import PERMISSIONS, role_allows
from teeter.campaigns.records import Permission, Person, Role
from teeter.errors import PermissionDeniedError, StoreError
from teeter.server.access import Session
from teeter.server.access.login_config import normalize_name
from teeter.server.workspace import Workspace


def get_workspace(request: Request) -> Workspace:
    """Return the campaigns of the server."""
    workspace: Workspace = request.app.state.workspace
    return workspace


def current_session(request: Request) -> Session:
    """Return the session that ``SessionMiddleware`` found for a request."""
    session: Session = request.state.session
    return session


def current_user(request: Request) -> str:
    """Return the name of the annotator of a request."""
    return str(current_session(request).annotator)


def campaign_member(request: Request, campaign: Campaign) -> Person | None:
    """Return the annotator of a request as a campaign knows them; None if it does not."""
    session = current_session(request)
    name = current_user(request)
    people = campaign.people
    server_tokens = get_workspace(request).auth.config.tokens

    # A token of a campaign says nothing in another one, even if the names are the same.
    if session.token_prefix and not server_tokens.is_valid(name, session.token_prefix):
        return people.find_by_token_prefix(name, session.token_prefix)

    # A name that was chosen without a login is no proof of being a named annotator.
    if session.is_authenticated:
        member = people.find(name)
        if member is None and session.has_account:
            member = _find_account(people.list(), name)
        if member is not None:
            return member

    if _has_server_role(request):
        role = _server_role(request)
        if role is None:
            return None
        return Person(name, role)

    if people.list():
        return None
    # A campaign without members is open: anyone who reaches the server may do anything.
    return Person(name, Role.OWNER)


def _find_account(people: list[Person], account: str) -> Person | None:
    """Return the member whom a campaign calls by an account's name in other letters, or None.

    Owners write ``Ann@Example.org`` into a campaign. If it did not count, neither would the role
    that they gave her, which may be a lower one than the server's.
    """
    namesakes = [person for person in people if normalize_name(person.name) == account]
    if not namesakes:
        return None

    # Of several, it is unclear which was meant: the one who may do least does no harm.
    member = min(namesakes, key=lambda person: len(PERMISSIONS[person.role]))
    return replace(member, name=account)


def _has_server_role(request: Request) -> bool:
    """Return whether the server, and not only campaigns, says what the user of a request may do."""
    login = get_workspace(request).auth.config.login
    if login is None or not login.has_roles:
        return False
    return current_session(request).has_account


def _server_role(request: Request) -> Role | None:
    """Return the role that the server gives to the user of a request; None if it gives none."""
    login = get_workspace(request).auth.config.login
    if login is None:
        return None
    return login.role_of(current_user(request))


def permissions_in(request: Request, campaign: Campaign) -> frozenset[Permission]:
    """Return what the annotator of a request may do in a campaign."""
    member = campaign_member(request, campaign)
    if member is None:
        return frozenset()
    return PERMISSIONS[member.role]


def require_permission(request: Request, slug: str, permission: Permission) -> Campaign:
    """Return the campaign of an address.

    Args:
        request: whose annotator asks.
        slug: the campaign's name in addresses.

    Raises:
        UnknownResourceError: there is no such campaign.
        PermissionDeniedError: the annotator may not do this there.
    """
    campaign = get_workspace(request).campaign(slug)
    campaign_people.require_permission(campaign_member(request, campaign), permission)
    return campaign


def _to(permission: Permission) -> Callable[[Request, str], Campaign]:
    """Return a dependency that requires a permission in the campaign of an address."""

    def find_campaign(request: Request, slug: str) -> Campaign:
        return require_permission(request, slug, permission)

    return find_campaign


CampaignToAnswer = Annotated[Campaign, Depends(_to(Permission.ANSWER))]
CampaignToReview = Annotated[Campaign, Depends(_to(Permission.REVIEW))]
CampaignToDecide = Annotated[Campaign, Depends(_to(Permission.DECIDE))]
CampaignToExport = Annotated[Campaign, Depends(_to(Permission.EXPORT))]
CampaignToManage = Annotated[Campaign, Depends(_to(Permission.MANAGE))]
"""The campaign of an address, in which the annotator of the request has the permission."""


async def _find_user(request: Request) -> str:
    # Not in a thread, as FastAPI would call ``current_user``.
    return current_user(request)


User = Annotated[str, Depends(_find_user)]
"""The name of the annotator of the request."""


def owned_campaign(request: Request) -> Campaign | None:
    """Return a campaign that names the annotator of a request as its owner, or None."""
    # A copy: other threads open and close campaigns meanwhile.
    for campaign in list(get_workspace(request).campaigns.values()):
        # A campaign that cannot be read now is passed over.
        with suppress(StoreError):
            if not campaign.people.list():
                continue
            member = campaign_member(request, campaign)
            if member is not None and role_allows(member.role, Permission.MANAGE):
                return campaign
    return None


def can_create_campaigns(request: Request) -> bool:
    """Return whether the annotator of a request may create campaigns.

    Owners of a campaign may, and everybody if no campaign names annotators. Where the server gives
    roles to accounts, those with the role of an owner may.
    """
    if _has_server_role(request):
        may_create = _server_role(request) is Role.OWNER
    else:
        campaign_tokens = get_workspace(request).campaign_tokens
        may_create = not campaign_tokens.is_required()
    return may_create or owned_campaign(request) is not None


def require_campaign_creator(request: Request) -> None:
    """Raise ``PermissionDeniedError`` unless the annotator of a request may create campaigns."""
    if not can_create_campaigns(request):
        raise PermissionDeniedError(
            f"{current_user(request)} may not create campaigns on this server, because they are "
            "not an owner of any campaign: ask an owner."
        )
