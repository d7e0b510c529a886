"""The people of a campaign: their roles, what each may do, and tokens of which only hashes are kept."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, and_, insert, select, update

from teeter.campaigns.db import schema
from teeter.campaigns.db.database import Database
from teeter.campaigns.db.repository import CampaignRepository
from teeter.campaigns.items import require_printable
from teeter.campaigns.settings import IMPORTED
from teeter.errors import (
    InputError,
    PermissionDeniedError,
    UnknownAnnotatorError,
    UnknownNameError,
)
from teeter.registry import did_you_mean

__all__ = [
    "RIGHTS",
    "ROLES",
    "People",
    "Person",
    "hash_token",
    "may",
    "require_name",
    "require_right",
]

RIGHTS = {
    "annotator": frozenset({"answer"}),
    "reviewer": frozenset({"answer", "review", "decide", "export"}),
    "owner": frozenset({"answer", "review", "decide", "export", "manage"}),
}
"""What each role may do; to review is to see what others say, and to look at labels again."""

ROLES = tuple(RIGHTS)


@dataclass(frozen=True)
class Person:
    """Somebody who works on a campaign."""

    name: str
    role: str
    added: str
    has_token: bool
    """Whether a token lets them in."""


def may(role: str, what: str) -> bool:
    """Tell whether a role may answer, review, decide, export or manage."""
    return what in RIGHTS[role]


def require_right(person: Person | None, what: str) -> None:
    """Refuse what somebody may not do; None is somebody whom the campaign does not know."""
    if person is None:
        raise PermissionDeniedError(f"Only people of this campaign may {what}: an owner adds them.")
    if not may(person.role, what):
        able = [role for role in ROLES if may(role, what)]
        raise PermissionDeniedError(
            f"{person.name} is {_a(person.role)} and may not {what}: ask {_a(able[0])}."
        )


class People:
    """Who works on a campaign. Where nobody is named, everybody may do everything."""

    def __init__(self, store: Database, repository: CampaignRepository) -> None:
        self._database, self._repository = store, repository

    def add(self, name: str, role: str = "annotator", *, who: str = "me") -> str:
        """Name somebody, and return their token: it is shown this once. One who was removed may come back."""
        token = secrets.token_urlsafe(32)
        self._add(name, role, hash_token(token), who)
        return token

    def add_as_in(self, other: People, name: str, role: str, *, who: str = "me") -> None:
        """Name somebody who comes in by the token that they have in another campaign, if they have one there."""
        with other._database.reading() as connection:
            row = other._row(connection, name)
        self._add(name, role, None if row is None else row.token, who)

    def _add(self, name: str, role: str, kept: str | None, who: str) -> None:
        name = _checked(name)
        _require_role(role)
        with self._database.writing() as connection:
            found = self._row(connection, name, removed=True)
            if found is not None and found.removed is None:
                raise InputError(
                    f"{name} is {_a(found.role)} already: make another token, or change the role."
                )
            values = {"role": role, "token": kept, "added": self._repository.now(), "removed": None}
            if found is None:
                own = {"campaign_id": self._repository.campaign, "name": name}
                connection.execute(insert(schema.people).values(**own, **values))
            else:
                connection.execute(
                    update(schema.people).where(schema.people.c.id == found.id).values(values)
                )
            self._repository.note(
                connection, who, "person added", None, {"name": name, "role": role}
            )

    def change_role(self, name: str, role: str, *, who: str = "me") -> None:
        """Give somebody another role."""
        _require_role(role)
        self._change(name, {"role": role}, who, "role changed", role=role)

    def new_token(self, name: str, *, who: str = "me") -> str:
        """Make a token in the place of the one somebody had, which no longer lets anybody in; return it, this once."""
        token = secrets.token_urlsafe(32)
        self._change(name, {"token": hash_token(token)}, who, "token made")
        return token

    def revoke(self, name: str, *, who: str = "me") -> None:
        """Take somebody's token away; they stay who they are."""
        self._change(name, {"token": None}, who, "token revoked")

    def remove(self, name: str, *, who: str = "me") -> int:
        """Let somebody go, and return how many open questions of theirs went back; their answers stay."""
        with self._database.writing() as connection:
            gone = {"token": None, "removed": self._repository.now()}
            self._write(connection, name, gone)
            self._repository.note(connection, who, "person removed", None, {"name": name})
            return self._repository.release_items(connection, name, who)

    def list(self) -> list[Person]:
        """Return who works on the campaign, in the order in which they came."""
        own = and_(
            schema.people.c.campaign_id == self._repository.campaign,
            schema.people.c.removed.is_(None),
        )
        with self._database.reading() as connection:
            rows = connection.execute(select(schema.people).where(own).order_by(schema.people.c.id))
            return [_person(row) for row in rows]

    def named(self, name: str) -> Person | None:
        """Return the person called so; None if the campaign has none."""
        with self._database.reading() as connection:
            row = self._row(connection, name)
        return None if row is None else _person(row)

    def find_by_token(self, token: str) -> Person | None:
        """Return whose token it is; None if it is nobody's, or no longer."""
        own = and_(
            schema.people.c.campaign_id == self._repository.campaign,
            schema.people.c.token == hash_token(token),
        )
        with self._database.reading() as connection:
            row = connection.execute(
                select(schema.people).where(own, schema.people.c.removed.is_(None))
            ).first()
        return None if row is None else _person(row)

    def holder(self, name: str, mark: str) -> Person | None:
        """Return the person called so, if the hash of their token begins with a mark; None otherwise."""
        with self._database.reading() as connection:
            row = self._row(connection, name)
        return (
            _person(row)
            if row is not None and mark and (row.token or "").startswith(mark)
            else None
        )

    def require(self, name: str, what: str) -> None:
        """Refuse what the one called so may not do; where nobody is named, everything is allowed."""
        known = self.list()
        if not known:
            return
        person = next((one for one in known if one.name == name), None)
        if person is None:
            raise UnknownAnnotatorError(
                f"Nobody here is called {name!r}. {did_you_mean(name, [one.name for one in known])}"
            )
        require_right(person, what)

    def _row(self, connection: Connection, name: str, *, removed: bool = False) -> Row[Any] | None:
        own = and_(
            schema.people.c.campaign_id == self._repository.campaign, schema.people.c.name == name
        )
        row = connection.execute(select(schema.people).where(own)).first()
        return None if row is None or (row.removed is not None and not removed) else row

    def _change(
        self, name: str, values: dict[str, Any], who: str, what: str, **detail: str
    ) -> None:
        with self._database.writing() as connection:
            self._write(connection, name, values)
            self._repository.note(connection, who, what, None, {"name": name, **detail})

    def _write(self, connection: Connection, name: str, values: dict[str, Any]) -> None:
        row = self._row(connection, name)
        if row is None:
            own = and_(
                schema.people.c.campaign_id == self._repository.campaign,
                schema.people.c.removed.is_(None),
            )
            known = list(connection.scalars(select(schema.people.c.name).where(own)))
            raise UnknownAnnotatorError(
                f"Nobody here is called {name!r}. {did_you_mean(name, known)}"
            )
        connection.execute(update(schema.people).where(schema.people.c.id == row.id).values(values))


def require_name(annotator: str) -> None:
    """Refuse a name that nobody could answer under."""
    if not annotator.strip():
        raise InputError("Whoever answers needs a name, and this one is blank.")
    require_printable(annotator, "name")
    if annotator == IMPORTED:
        raise InputError(
            f"Labels that came with the items are by {IMPORTED!r}: answer under another name."
        )


def _checked(name: str) -> str:
    require_name(name.strip())
    return name.strip()


def _require_role(role: str) -> None:
    if role not in RIGHTS:
        raise UnknownNameError(f"No role is called {role!r}. {did_you_mean(role, list(ROLES))}")


def _a(role: str) -> str:
    return f"an {role}" if role[0] in "ao" else f"a {role}"


def _person(row: Row[Any]) -> Person:
    return Person(row.name, row.role, row.added, row.token is not None)


def hash_token(token: str) -> str:
    """Return what is kept of a token."""
    # A token is 256 random bits, so a fast hash keeps it well.
    return hashlib.sha256(token.encode("utf-8", errors="surrogatepass")).hexdigest()
