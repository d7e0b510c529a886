"""The team of a campaign: disagreements and decisions, members, agreement and consensus."""

from __future__ import annotations

from teeter.campaigns.enums import AnswerKind, ConsensusMethod, Permission, Role
from teeter.campaigns.people import role_allows
from teeter.campaigns.settings import change_consensus
from teeter.campaigns.store import Decision
from teeter.errors import InputError, PermissionDeniedError
from teeter.server.schemas import (
    AgreementOut,
    AnswerOut,
    DisagreementOut,
    DisagreementsOut,
    GivenAnswer,
    MemberChanged,
    MemberOut,
    RecentAnswer,
    ShareOut,
    TokenOut,
    UndoneAnswer,
    UndoOut,
)
from teeter.server.service import CampaignService

__all__ = ["TeamService"]


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
        """Return items that need a decision, the least certain first.

        Args:
            count: how many to return at most.
        """
        items = self.service.campaign.repository.items
        described = []
        with self.service.campaign.database.reading() as connection:
            snapshot = self.service.read_snapshot(connection)
            disagreements = snapshot.disagreements()
            # Contents are read only for those that are shown: texts may be long.
            shown = disagreements[:count]
            rows = items.by_id(connection, [item for item, _ in shown])
            labels = snapshot.labels

            for item, answer_by_annotator in shown:
                answers = [
                    GivenAnswer(annotator=annotator, answer=answer)
                    for annotator, answer in sorted(answer_by_annotator.items())
                ]
                disagreement = DisagreementOut(
                    item=item,
                    content=self.service.read_content(rows[item], connection),
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
            item: its id.
            label: its class; None if the item does not belong in the campaign.
            comment: the reason.
        """
        # Idempotent like an answer: a repeated request decides once.
        campaign = self.service.campaign
        is_new = campaign.decide(item, label, self._user, comment=comment)

        stored = AnswerOut(new=is_new, labelled=self.service.count_items().labelled)

        with campaign.database.reading() as connection:
            decision = campaign.repository.decisions.for_item(connection, item)
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

        with campaign.database.reading() as connection:
            row = campaign.repository.items.get(connection, decision.item)
            content = self.service.read_content(row, connection)

        undone = UndoneAnswer(
            item=decision.item,
            content=content,
            answer=_format_decision(decision),
            undone_decision=decision,
        )
        return UndoOut(undone=undone)

    def recent_decisions(self, count: int = 10) -> list[RecentAnswer]:
        """Return the last decisions of the user, newest first."""
        repository = self.service.campaign.repository
        recent = []
        with self.service.campaign.database.reading() as connection:
            decisions = repository.decisions.recent(connection, self._user, count)
            rows = repository.items.by_id(connection, [decision.item for decision in decisions])

            for decision in decisions:
                described = RecentAnswer(
                    number=decision.number,
                    item=decision.item,
                    content=self.service.read_content(rows[decision.item], connection),
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

        with campaign.database.reading() as connection:
            open_items = campaign.repository.picks.count_open_by_annotator(connection)

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
                member.matches_consensus = ShareOut.from_estimate(stats.quality.with_consensus)
                member.matches_decisions = ShareOut.from_estimate(stats.quality.with_decisions)
                if stats.speed is not None:
                    member.per_hour = round(stats.speed.per_hour)

            described.append(member)
        return described

    def add_member(self, name: str, role: str, *, is_authenticated: bool) -> TokenOut:
        """Add a member and return their token.

        The first member must be the user, as an owner: the campaign is closed to everyone else from
        then on, so no one could add an owner later.

        Args:
            name: the member's name.
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
        with campaign.database.reading() as connection:
            agreement = self.service.measure_agreement(connection)

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
        campaign.settings = change_consensus(
            campaign.database, campaign.repository, campaign.settings, method, who=self._user
        )
        return self.describe_agreement()


def _format_decision(decision: Decision) -> str:
    return decision.label or AnswerKind.FLAG
