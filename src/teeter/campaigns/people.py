"""The people of a campaign: roles, permissions and tokens, of which only hashes are stored.

``note_session`` notices that two people answer under one name, as happens if neither of them sets
a name. The default name is ``me``. If two people use it, their answers cannot be told apart: the
second answer to an item replaces the first, and undo takes back the last answer of either. The
start of a session is therefore noted in the history, at most once an hour. Terminals are compared
with terminals and browsers with browsers, because people who label alone use both.
"""

from __future__ import annotations

import getpass
import hashlib
import platform
import secrets
import time
from enum import StrEnum
from typing import TYPE_CHECKING

from teeter.base.registry import did_you_mean
from teeter.campaigns.items.item import require_printable
from teeter.campaigns.records import AnnotatorStats, MemberChange, Permission, Person, Role
from teeter.campaigns.review.annotators import annotator_stats
from teeter.campaigns.settings import IMPORTED
from teeter.campaigns.store import Part, Reading, cached_by
from teeter.errors import InputError, PermissionDeniedError, UnknownAnnotatorError, UnknownNameError

if TYPE_CHECKING:
    from teeter.campaigns.campaign import Campaign


_REVIEWER_PERMISSIONS = frozenset(
    {Permission.ANSWER, Permission.REVIEW, Permission.DECIDE, Permission.EXPORT}
)

PERMISSIONS: dict[Role, frozenset[Permission]] = {
    Role.ANNOTATOR: frozenset({Permission.ANSWER}),
    Role.REVIEWER: _REVIEWER_PERMISSIONS,
    Role.OWNER: _REVIEWER_PERMISSIONS | {Permission.MANAGE},
}
"""What each role may do."""

ROLES = tuple(Role)
"""All roles, the one with the fewest permissions first."""

_SECONDS_COMPARED = 3600
"""How long ago another session under the same name may have begun."""

_TEAM_CHECK_SECONDS = 5.0
"""How long it may take until a second annotator is noticed."""

_SESSION = "session"
"""The line of the history that notes a session."""


def role_allows(role: str, permission: str) -> bool:
    """Return whether a role has a permission."""
    return permission in PERMISSIONS[Role(role)]


def require_permission(person: Person | None, permission: str) -> None:
    """Refuse a person who lacks a permission.

    Args:
        person: the person who asks; None if they are not a member of the campaign.
        permission: what they ask for, a value of ``Permission``.

    Raises:
        PermissionDeniedError: they are not a member, or their role lacks the permission.
    """
    if person is None:
        raise PermissionDeniedError(
            f"Only members of this campaign may {permission}: ask an owner to add you."
        )

    if not role_allows(person.role, permission):
        lowest_role = next(role for role in ROLES if role_allows(role, permission))
        raise PermissionDeniedError(
            f"{person.name} is {_with_article(person.role)} and may not {permission}: "
            f"ask {_with_article(lowest_role)}."
        )


class People(Part):
    """The members of a campaign. A campaign without members is open to everybody.

    Over HTTP a campaign must not be left without an owner, because nobody could manage it then, so
    with ``keep_owner`` methods refuse that. Whoever has the file may do it: they keep the file.
    """

    _was_team = False

    def is_team(self) -> bool:
        """Return whether several people work on the campaign. One that was a team stays one."""
        # Remembered: the tabs of a page must not come and go with the number of people at work.
        if not self._was_team:
            self._was_team = self._has_several()
        return self._was_team

    @cached_by(lambda _: int(time.monotonic() / _TEAM_CHECK_SECONDS))
    def _has_several(self) -> bool:
        with self._campaign.reading() as view:
            if view.settings.overlap > 0 or len(view.people.members()) > 1:
                return True
            return view.answers.has_several_annotators()

    def add(
        self,
        name: str,
        role: str = Role.ANNOTATOR,
        *,
        who: str = "me",
        has_token: bool = True,
        keep_owner: bool = False,
    ) -> str:
        """Add a member, or one who was removed again.

        Args:
            name: the member's name.
            role: a value of ``Role``.
            who: who adds them, for the history.
            has_token: give them a token. Those who log in with an account elsewhere need none.
            keep_owner: refuse a first member who is not ``who`` as an owner. The campaign is closed
                to everyone else from then on, so no one could add an owner later.

        Returns:
            The member's token, or an empty string. Only its hash is stored, so it cannot be shown
            again.

        Raises:
            InputError: the name cannot be used, or it is a member's.
            UnknownNameError: there is no such role.
        """
        if not has_token:
            self._add(name, role, None, who, keep_owner=keep_owner)
            return ""

        # 256 bits, so a plain hash is safe to store: guessing is hopeless without a slow one.
        token = secrets.token_urlsafe(32)
        self._add(name, role, hash_token(token), who, keep_owner=keep_owner)
        return token

    def add_as_in(self, other: People, name: str, role: str, *, who: str = "me") -> None:
        """Add a member with the token that they have in another campaign, if they have one."""
        # The hash is copied, not the token, which no campaign knows.
        with other._campaign.reading() as view:
            person = other._member(view, name)

        token_hash = None
        if person is not None:
            token_hash = person.token_hash
        self._add(name, role, token_hash, who)

    def _add(
        self, name: str, role: str, token_hash: str | None, who: str, *, keep_owner: bool = False
    ) -> None:
        name = name.strip()
        require_name(name)
        new_role = _parse_role(role)

        with self._campaign.writing() as change:
            # Inside the transaction, so that two owners cannot add the same name at once.
            is_first = not change.people.members()
            is_own_owner = new_role is Role.OWNER and name == who.strip()
            if keep_owner and is_first and not is_own_owner:
                raise InputError("Add yourself first, as an owner.")
            member = self._member(change, name)
            if member is not None:
                raise InputError(
                    f"{name} is already {_with_article(member.role)}: "
                    "create a new token for them, or change their role."
                )

            change.people.add(name, new_role, token_hash)
            detail = {"name": name, "role": new_role}
            change.history.append(who, "person added", None, detail)

    def change_role(
        self, name: str, role: str, *, who: str = "me", keep_owner: bool = False
    ) -> MemberChange:
        """Give a member another role.

        Raises:
            UnknownNameError: there is no such member or role.
            PermissionDeniedError: with ``keep_owner``, they are the only owner.
        """
        new_role = _parse_role(role)

        with self._campaign.writing() as change:
            member = self._require_member(change, name)
            if keep_owner and not role_allows(new_role, Permission.MANAGE):
                _require_other_owner(change, name)
            if member.role != new_role:
                change.people.change(member.row_id, role=new_role)
                detail = {"name": name, "role": new_role}
                change.history.append(who, "role changed", None, detail)
        return MemberChange(name)

    def new_token(self, name: str, *, who: str = "me") -> str:
        """Replace a member's token. The old one no longer works.

        Returns:
            The new token. It cannot be shown again.

        Raises:
            UnknownAnnotatorError: there is no such member.
        """
        token = secrets.token_urlsafe(32)
        self._set_token_hash(name, hash_token(token), who, "token made")
        return token

    def revoke(self, name: str, *, who: str = "me", keep_owner: bool = False) -> MemberChange:
        """Revoke a member's token. They stay a member, and their sessions end.

        Raises:
            UnknownAnnotatorError: there is no such member.
            PermissionDeniedError: with ``keep_owner``, they are the only owner.
        """
        self._set_token_hash(name, None, who, "token revoked", keep_owner=keep_owner)
        return MemberChange(name)

    def _set_token_hash(
        self, name: str, token_hash: str | None, who: str, what: str, *, keep_owner: bool = False
    ) -> None:
        with self._campaign.writing() as change:
            member = self._require_member(change, name)
            if keep_owner:
                _require_other_owner(change, name)
            if member.token_hash == token_hash:
                return  # it was revoked before

            change.people.change(member.row_id, token=token_hash)
            change.history.append(who, what, None, {"name": name})

    def remove(self, name: str, *, who: str = "me", keep_owner: bool = False) -> MemberChange:
        """Remove a member. Their answers stay, and others can get their open items.

        Raises:
            UnknownAnnotatorError: there never was such a member.
            PermissionDeniedError: with ``keep_owner``, they are the only owner.
        """
        with self._campaign.writing() as change:
            person = change.people.find(name)
            if person is not None and person.removed is not None:
                return MemberChange(name)

            member = self._require_member(change, name)
            if keep_owner:
                _require_other_owner(change, name)
            # In one transaction: a person who is gone holds no items.
            change.people.change(member.row_id, token=None, removed=change.now())
            detail = {"name": name}
            change.history.append(who, "person removed", None, detail)
            return MemberChange(name, change.picks.release(name, who))

    def release(self, name: str = "me", *, who: str = "me") -> MemberChange:
        """Let others have the open items of an annotator, member or not."""
        require_printable(name, "annotator's name")

        with self._campaign.writing() as change:
            return MemberChange(name, change.picks.release(name, who))

    def stats(self) -> list[AnnotatorStats]:
        """Return how fast and how accurate people are: members, then others who have answered.

        Answers about withdrawn items count as answers, but not for the accuracy.
        """
        with self._campaign.reading() as view:
            return annotator_stats(view)

    def list(self) -> list[Person]:
        """Return all members in the order in which they were added."""
        with self._campaign.reading() as view:
            return view.people.members()

    def find(self, name: str) -> Person | None:
        """Return a member by name, or None."""
        with self._campaign.reading() as view:
            return self._member(view, name)

    def find_by_token(self, token: str) -> Person | None:
        """Return the member who has a token, or None."""
        with self._campaign.reading() as view:
            return view.people.find_by_token_hash(hash_token(token))

    def find_by_token_prefix(self, name: str, prefix: str) -> Person | None:
        """Return a member by name if the hash of their token begins with a prefix, or None."""
        with self._campaign.reading() as view:
            member = self._member(view, name)

        # Every hash begins with the empty prefix, which must not let anyone in.
        if member is None or member.token_hash is None or not prefix:
            return None
        if not member.token_hash.startswith(prefix):
            return None
        return member

    def require(self, name: str, permission: str) -> None:
        """Refuse a person who lacks a permission. A campaign without members allows everything.

        Raises:
            UnknownAnnotatorError: the campaign has members, and none of that name.
            PermissionDeniedError: their role lacks the permission.
        """
        people = {person.name: person for person in self.list()}
        if not people:
            return  # the owner of the file labels alone, and needs no role

        if name not in people:
            raise UnknownAnnotatorError(
                f"No member is called {name!r}. {did_you_mean(name, people)}"
            )

        require_permission(people[name], permission)

    def _member(self, view: Reading, name: str) -> Person | None:
        person = view.people.find(name)
        if person is None or person.removed is not None:
            return None
        return person

    def _require_member(self, view: Reading, name: str) -> Person:
        member = self._member(view, name)

        if member is None:
            names = [person.name for person in view.people.members()]
            raise UnknownAnnotatorError(
                f"No member is called {name!r}. {did_you_mean(name, names)}"
            )

        return member


def require_name(annotator: str) -> None:
    """Refuse a name that an annotator cannot have.

    Raises:
        InputError: it is blank, has control characters, or is reserved for imported labels.
    """
    if not annotator.strip():
        raise InputError("The name of the annotator is blank: give a name.")

    require_printable(annotator, "annotator's name")

    if annotator == IMPORTED:
        raise InputError(
            f"The name {IMPORTED!r} is reserved for labels that came with the items: choose "
            f"another name."
        )


def _require_other_owner(view: Reading, name: str) -> None:
    """Raise an error if no one but ``name`` may manage the campaign."""
    members = view.people.members()
    owners = [member.name for member in members if role_allows(member.role, Permission.MANAGE)]
    if owners == [name]:
        raise PermissionDeniedError(f"{name} is the only owner: add another owner first.")


def _parse_role(role: str) -> Role:
    try:
        return Role(role)
    except ValueError:
        hint = did_you_mean(role, ROLES)
        raise UnknownNameError(f"No role is called {role!r}. {hint}") from None


def _with_article(role: Role) -> str:
    article = "a" if role is Role.REVIEWER else "an"
    return f"{article} {role}"


def hash_token(token: str) -> str:
    """Return the hash of a token, as it is stored."""
    # A token has 256 random bits, so a fast hash without a salt is safe.
    return hashlib.sha256(token.encode("utf-8", errors="surrogatepass")).hexdigest()


class SessionKind(StrEnum):
    """Where an annotator labels."""

    TERMINAL = "terminal"
    BROWSER = "browser"


def note_session(campaign: Campaign, annotator: str, kind: SessionKind, identity: str) -> bool:
    """Note a session of an annotator, and return whether the name is used in another one, too.

    Args:
        campaign: the campaign.
        annotator: the name of the annotator.
        kind: where they label.
        identity: what tells sessions of this kind apart. Only a hash of it is stored.

    Returns:
        Whether another session of this kind used the name within the last hour.
    """
    session = hashlib.blake2b(identity.encode(), digest_size=8).hexdigest()

    # Read first: a session that is known already need not wait for other writers.
    with campaign.reading() as view:
        since = view.time_after(-_SECONDS_COMPARED)
        events = view.history.lines(_SESSION, since=since)

    sessions = {
        event["session"] for event in events if event["who"] == annotator and event["kind"] == kind
    }
    if session not in sessions:
        with campaign.writing() as change:
            detail = {"kind": kind, "session": session}
            change.history.append(annotator, _SESSION, None, detail)

    return bool(sessions - {session})


def terminal_identity() -> str:
    """Return the user and the machine of a terminal."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as in some containers
        user = ""
    return f"{user}@{platform.node()}"
