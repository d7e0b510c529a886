"""Who somebody is in a campaign, and what they may do there.

Where a campaign names people, they alone may do what their roles allow: known by the campaign's own token, or by a
token of the server that has their name. Where it names nobody, whoever came in without a campaign's
token may do everything.
"""

from __future__ import annotations

from contextlib import suppress

from fastapi import Request

from teeter.campaigns.enums import Role
from teeter.campaigns.people import PERMISSIONS, Person, require_permission, role_allows
from teeter.errors import PermissionDeniedError, StoreError
from teeter.web.service import CampaignService
from teeter.web.workspace import Workspace

__all__ = [
    "allowed",
    "may_make",
    "own_desk",
    "person_in",
    "require_maker",
    "rights_in",
    "site_of",
    "who",
]


def site_of(request: Request) -> Workspace:
    """Return the server's campaigns."""
    site: Workspace = request.app.state.site
    return site


def who(request: Request) -> str:
    """Return who answers."""
    return str(request.state.session.annotator)


def person_in(request: Request, desk: CampaignService) -> Person | None:
    """Return who asks, as a campaign knows them; None if it does not."""
    session, guard = request.state.session, site_of(request).guard
    people, name = desk.campaign.people, str(session.annotator)
    if session.mark and not guard.tokens.has(name, session.mark):
        return people.find_by_token_prefix(name, session.mark)
    found = people.find(name) if session.mark else None
    return found or (None if people.list() else Person(name, Role.OWNER, "", has_token=False))


def rights_in(request: Request, desk: CampaignService) -> frozenset[str]:
    """Return what whoever asks may do in a campaign."""
    person = person_in(request, desk)
    return frozenset() if person is None else PERMISSIONS[person.role]


def allowed(request: Request, slug: str, what: str) -> CampaignService:
    """Return the campaign of an address, if whoever asks may do this there."""
    desk = site_of(request).desk(slug)
    require_permission(person_in(request, desk), what)
    return desk


def own_desk(request: Request) -> CampaignService | None:
    """Return a campaign that names whoever asks as its owner; None if there is none that can be read."""
    for desk in list(site_of(request).desks.values()):
        with suppress(StoreError):
            person = person_in(request, desk) if desk.campaign.people.list() else None
            if person is not None and role_allows(person.role, "manage"):
                return desk
    return None


def may_make(request: Request) -> bool:
    """Tell whether whoever asks may make campaigns: an owner of one, or anybody where none names people."""
    people = site_of(request).roster
    return not people.is_needed() or own_desk(request) is not None


def require_maker(request: Request) -> None:
    """Refuse to make a campaign for somebody who owns none."""
    if not may_make(request):
        raise PermissionDeniedError(
            f"{who(request)} owns no campaign here, and may not make one: ask an owner."
        )
