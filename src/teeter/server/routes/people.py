"""The people of a campaign over REST, and the page of the team."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import APIRouter, Request
from fastapi.responses import Response

from teeter.campaigns.people import ROLES
from teeter.campaigns.records import AnnotatorStats, ConsensusMethod, MemberChange, Permission, Role
from teeter.campaigns.review.annotators import MIN_REPORTED
from teeter.server.access.permissions import (
    CampaignToManage,
    CampaignToReview,
    User,
    current_session,
    get_workspace,
)
from teeter.server.pages import open_campaign_page
from teeter.server.routes import Name, NameIn, RequestBody

router = APIRouter(prefix="/api/v1/campaigns/{slug}")


class PersonIn(RequestBody):
    """A member and their role."""

    name: Name
    role: Role = Role.ANNOTATOR


@dataclass(frozen=True)
class NewToken:
    """A new token. It is shown only once."""

    name: str
    token: str


@router.get("/team")
def list_people(campaign: CampaignToReview) -> list[AnnotatorStats]:
    """Return all members and others who have answered, with their pace and accuracy."""
    return campaign.people.stats()


@router.post("/people", status_code=201)
def add_member(
    request: Request, campaign: CampaignToManage, user: User, body: PersonIn
) -> NewToken:
    """Add a member and return their token, which is shown only once.

    The first member must be an owner. From then on, everyone needs a token, and a browser is logged
    in with the new one. Sent again, it is refused: tokens are not stored, so that a second one
    would make the first useless.
    """
    workspace = get_workspace(request)
    # Without a login the user is the first member: they choose the name that they have from now on.
    is_authenticated = current_session(request).is_authenticated
    who = user if is_authenticated else body.name

    token = campaign.people.add(body.name, body.role, who=who, keep_owner=True)
    # Now, not at the next periodic check: the new member may log in at once.
    workspace.campaign_tokens.refresh()
    if not is_authenticated:
        request.state.session = workspace.auth.log_in(token, "")
    return NewToken(body.name, token)


@router.post("/people/token")
def replace_token(campaign: CampaignToManage, user: User, body: NameIn) -> NewToken:
    """Give a member a new token, which is shown only once. The old one no longer works."""
    return NewToken(body.name, campaign.people.new_token(body.name, who=user))


@router.post("/people/revoke")
def revoke_token(campaign: CampaignToManage, user: User, body: NameIn) -> MemberChange:
    """Revoke the token of a member. Their sessions end."""
    return campaign.people.revoke(body.name, who=user, keep_owner=True)


@router.post("/people/role")
def change_role(campaign: CampaignToManage, user: User, body: PersonIn) -> MemberChange:
    """Give a member another role."""
    return campaign.people.change_role(body.name, body.role, who=user, keep_owner=True)


@router.post("/people/remove")
def remove_member(campaign: CampaignToManage, user: User, body: NameIn) -> MemberChange:
    """Remove a member. Their answers stay, and others can get their open items."""
    return campaign.people.remove(body.name, who=user, keep_owner=True)


@router.post("/people/release")
def release_items(campaign: CampaignToManage, user: User, body: NameIn) -> MemberChange:
    """Release the open items of an annotator to others."""
    return campaign.people.release(body.name, who=user)


page_router = APIRouter(include_in_schema=False)


@page_router.get("/c/{slug}/team")
def show_team(request: Request, slug: str) -> Response:
    """Show the members of a campaign and how far they agree."""
    page = open_campaign_page(request, slug, "team", Permission.REVIEW)
    campaign = page.campaign
    members = campaign.people.stats()
    return page.render(
        "team.html",
        members=members,
        min_items=MIN_REPORTED,
        agreement=campaign.review.agreement(),
        consensus=campaign.settings.consensus,
        methods=list(ConsensusMethod),
        sources=campaign.suggestions.recent_sources(),
        roles=ROLES,
        has_members=any(member.role is not None for member in members),
    )
