"""The team of a campaign over REST and on its pages: decisions, members, agreement."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from fastapi import APIRouter, Form, Query, Request
from fastapi.responses import Response

from teeter.campaigns.people import ROLES, role_allows
from teeter.campaigns.records import AnswerKind, ConsensusMethod, Decision, Permission, Role
from teeter.errors import InputError, PermissionDeniedError
from teeter.server.access.permissions import (
    current_session,
    current_user,
    get_workspace,
    require_permission,
)
from teeter.server.routes.pages import QUESTIONS_ON_PAGE, open_campaign_page
from teeter.server.schemas import (
    AgreementOut,
    AnswerOut,
    ConsensusIn,
    DecisionIn,
    DisagreementOut,
    DisagreementsOut,
    GivenAnswer,
    LabelMode,
    MemberChanged,
    MemberOut,
    NameIn,
    PersonIn,
    RecentAnswer,
    TokenOut,
    UndoIn,
    UndoneAnswer,
    UndoOut,
)
from teeter.server.service import CampaignService

__all__ = [
    "MemberAction",
    "TeamService",
    "page_router",
    "require_team_permission",
    "router",
]


class TeamService:
    """What reviewers and owners do in a campaign.

    Args:
        service: the campaign. Its members are changed in the name of ``user``.
        user: who makes the changes, for the history.
    """

    def __init__(self, service: CampaignService, user: str) -> None:
        self.service = service
        self._user = user

    # Disagreements

    def list_disagreements(self, count: int) -> DisagreementsOut:
        """Return items that need a decision, the least certain first."""
        described = []
        with self.service.campaign.reading() as view:
            snapshot = self.service.read_snapshot(view)
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
                    content=self.service.read_content(rows[item], view),
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

        stored = AnswerOut(new=is_new, labelled=self.service.count_items().labelled)

        with campaign.reading() as view:
            decision = view.decisions.for_item(item)
        # Another reviewer may have decided since: that is not for this one to undo.
        if decision is not None and decision.reviewer == self._user:
            stored.number = decision.number
        return stored

    def undo_decision(self, number: int) -> UndoOut:
        """Undo the last decision of the user.

        Args:
            number: the decision. It stays if the user has decided since.
        """
        campaign = self.service.campaign
        decision = campaign.undo_decision(self._user, number=number)
        if decision is None:
            return UndoOut(undone=None)

        with campaign.reading() as view:
            row = view.items.get(decision.item)
            content = self.service.read_content(row, view)

        undone = UndoneAnswer(
            item=decision.item,
            content=content,
            answer=_format_decision(decision),
            undone_decision=decision,
        )
        return UndoOut(undone=undone)

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
                    content=self.service.read_content(rows[decision.item], view),
                    answer=_format_decision(decision),
                    comment=decision.comment,
                )
                recent.append(described)

        return recent

    # Members

    def has_members(self) -> bool:
        """Return whether the campaign has members. Without members it is open to everyone."""
        return bool(self.service.campaign.people.list())

    def list_members(self) -> list[MemberOut]:
        """Return all members, then others who have answered or have open items, by name."""
        campaign = self.service.campaign
        members = {person.name: person for person in campaign.people.list()}
        stats_by_name = {stats.name: stats for stats in campaign.team()}

        with campaign.reading() as view:
            open_items = view.picks.count_open_by_annotator()

        # The others labelled before the campaign had members, or were removed since.
        names = list(members)
        names += sorted((set(stats_by_name) | set(open_items)) - set(members))

        described = []
        for name in names:
            member = MemberOut(
                name=name,
                role=None,
                has_token=False,
                answers=0,
                per_hour=None,
                matches_consensus=None,
                matches_decisions=None,
                open=open_items.get(name, 0),
            )

            if name in members:
                member.role = members[name].role
                member.has_token = members[name].has_token

            if name in stats_by_name:
                stats = stats_by_name[name]
                member.answers = stats.answers
                member.matches_consensus = stats.quality.with_consensus
                member.matches_decisions = stats.quality.with_decisions
                if stats.speed is not None:
                    member.per_hour = round(stats.speed.per_hour)

            described.append(member)
        return described

    def add_member(self, name: str, role: str, *, is_authenticated: bool) -> TokenOut:
        """Add a member and return their token.

        The first member must be the user, as an owner: the campaign is closed to everyone else from
        then on, so no one could add an owner later.

        Args:
            role: a value of ``Role``.
            is_authenticated: whether the user has logged in. If not, they may choose the name that
                they have from now on.

        Raises:
            InputError: the name cannot be used or is taken, or the first member is not an owner.
            UnknownNameError: there is no such role.
        """
        name = name.strip()
        if not self.has_members():
            is_user = not is_authenticated or name == self._user
            if role != Role.OWNER or not is_user:
                raise InputError("Add yourself first, as an owner.")

        token = self.service.campaign.people.add(name, role, who=self._user)
        return TokenOut(name=name, token=token)

    def replace_token(self, name: str) -> TokenOut:
        """Give a member a new token. The old one no longer works."""
        token = self.service.campaign.people.new_token(name, who=self._user)
        return TokenOut(name=name, token=token)

    def revoke_token(self, name: str) -> MemberChanged:
        """Revoke the token of a member. Their sessions end.

        Raises:
            PermissionDeniedError: they are the only owner.
        """
        self._require_other_owner(name)
        self.service.campaign.people.revoke(name, who=self._user)
        return MemberChanged(name=name)

    def change_role(self, name: str, role: str) -> MemberChanged:
        """Give a member another role.

        Raises:
            PermissionDeniedError: they are the only owner.
        """
        if role != Role.OWNER:
            self._require_other_owner(name)
        self.service.campaign.people.change_role(name, role, who=self._user)
        return MemberChanged(name=name)

    def remove_member(self, name: str) -> MemberChanged:
        """Remove a member. Their answers stay, and others can get their open items.

        Raises:
            PermissionDeniedError: they are the only owner.
        """
        self._require_other_owner(name)
        released = self.service.campaign.people.remove(name, who=self._user)
        return MemberChanged(name=name, released=released)

    def release_items(self, name: str) -> MemberChanged:
        """Let others have the open items of an annotator."""
        released = self.service.campaign.release_items(name, who=self._user)
        return MemberChanged(name=name, released=released)

    def _require_other_owner(self, name: str) -> None:
        """Raise an error if no owner but ``name`` exists: no one could manage the campaign."""
        people = self.service.campaign.people.list()
        owners = [person.name for person in people if role_allows(person.role, Permission.MANAGE)]
        if owners == [name]:
            raise PermissionDeniedError(f"{name} is the only owner: add another owner first.")

    # Agreement

    def describe_agreement(self) -> AgreementOut:
        """Return how far annotators agree, and how several answers become one label."""
        campaign = self.service.campaign
        with campaign.reading() as view:
            agreement = self.service.measure_agreement(view)

        return AgreementOut(
            items=agreement.items,
            observed=agreement.observed,
            alpha=agreement.alpha,
            by_class=agreement.by_class,
            pairs=list(agreement.pairs),
            consensus=campaign.settings.consensus,
            methods=list(ConsensusMethod),
        )

    def choose_consensus(self, method: str) -> AgreementOut:
        """Choose how several answers become one label, and return how well annotators agree.

        Raises:
            UnknownNameError: there is no such method.
        """
        campaign = self.service.campaign
        campaign.change_settings(consensus=method, who=self._user)
        return self.describe_agreement()


def _format_decision(decision: Decision) -> str:
    return decision.label or AnswerKind.FLAG


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
def decide(request: Request, slug: str, body: DecisionIn) -> AnswerOut:
    """Decide on the label of an item. The decision is on disk when the request returns."""
    team = require_team_permission(request, slug, Permission.DECIDE)
    return team.decide(body.item, body.label, body.comment)


@router.get("/decisions")
def list_recent_decisions(
    request: Request, slug: str, count: Annotated[int, Query(ge=1, le=100)] = 10
) -> list[RecentAnswer]:
    """Return your latest decisions, newest first."""
    return require_team_permission(request, slug, Permission.DECIDE).recent_decisions(count)


@router.post("/decisions/undo")
def undo_decision(request: Request, slug: str, body: UndoIn) -> UndoOut:
    """Undo your last decision, by its number. Sent again, it undoes nothing more."""
    team = require_team_permission(request, slug, Permission.DECIDE)
    return team.undo_decision(body.number)


# Members


@router.get("/team")
def list_members(request: Request, slug: str) -> list[MemberOut]:
    """Return all members and others who have answered, with their pace and accuracy."""
    return require_team_permission(request, slug, Permission.REVIEW).list_members()


@router.post("/people", status_code=201)
def add_member(request: Request, slug: str, body: PersonIn) -> TokenOut:
    """Add a member and return their token, which is shown only once.

    The first member must be an owner. From then on, everyone needs a token. Sent again, it is
    refused: tokens are not stored, so that a second one would make the first useless.
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
def revoke_token(request: Request, slug: str, body: NameIn) -> MemberChanged:
    """Revoke the token of a member. Their sessions end."""
    team = require_team_permission(request, slug, Permission.MANAGE)
    return team.revoke_token(body.name)


@router.post("/people/role")
def change_role(request: Request, slug: str, body: PersonIn) -> MemberChanged:
    """Give a member another role."""
    team = require_team_permission(request, slug, Permission.MANAGE)
    return team.change_role(body.name, body.role)


@router.post("/people/remove")
def remove_member(request: Request, slug: str, body: NameIn) -> MemberChanged:
    """Remove a member. Their answers stay, and others can get their open items."""
    team = require_team_permission(request, slug, Permission.MANAGE)
    return team.remove_member(body.name)


@router.post("/people/release")
def release_items(request: Request, slug: str, body: NameIn) -> MemberChanged:
    """Release the open items of an annotator to others."""
    team = require_team_permission(request, slug, Permission.MANAGE)
    return team.release_items(body.name)


# Agreement


@router.get("/agreement")
def get_agreement(request: Request, slug: str) -> AgreementOut:
    """Return how well annotators agree: overall, by class and by pair."""
    return require_team_permission(request, slug, Permission.REVIEW).describe_agreement()


@router.post("/consensus")
def choose_consensus(request: Request, slug: str, body: ConsensusIn) -> AgreementOut:
    """Choose how several answers become one label."""
    team = require_team_permission(request, slug, Permission.MANAGE)
    return team.choose_consensus(body.method)


page_router = APIRouter(include_in_schema=False)

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


@page_router.get("/c/{slug}/disagreements")
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


@page_router.get("/c/{slug}/team")
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


@page_router.post("/c/{slug}/people")
def submit_member(
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


@page_router.post("/c/{slug}/people/change")
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


@page_router.post("/c/{slug}/consensus")
def submit_consensus(request: Request, slug: str, method: ChoiceField = "") -> Response:
    """Choose how several answers become one label."""
    team = require_team_permission(request, slug, Permission.MANAGE)
    try:
        team.choose_consensus(method)
    except _SHOWN_ERRORS as error:
        return _render_team(request, slug, error=str(error))
    return _render_team(
        request, slug, notice=f"Several answers about an item are now combined by {method}."
    )
