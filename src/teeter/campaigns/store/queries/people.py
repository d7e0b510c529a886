"""The people of a campaign, with the hashes of their tokens."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Row, select, update

from teeter.campaigns.items.item import require_valid_unicode
from teeter.campaigns.records import Person, Role
from teeter.campaigns.store import schema
from teeter.campaigns.store.queries import Queries, insert_row
from teeter.campaigns.store.schema import PEOPLE


class PeopleQueries(Queries):
    """The people of a campaign, in the order in which they were added."""

    def members(self) -> list[Person]:
        """Return all people who were not removed."""
        query = select(schema.people).where(
            PEOPLE.campaign_id == self._campaign_id, PEOPLE.removed.is_(None)
        )
        rows = self._connection.execute(query.order_by(PEOPLE.id))
        return [_person(row) for row in rows]

    def find(self, name: str) -> Person | None:
        """Return a person by name, removed or not; None if there never was one.

        Raises:
            InputError: the name has a character that no stored name has.
        """
        require_valid_unicode(name, "name")
        query = select(schema.people).where(
            PEOPLE.campaign_id == self._campaign_id, PEOPLE.name == name
        )
        row = self._connection.execute(query).first()
        return None if row is None else _person(row)

    def find_by_token_hash(self, token_hash: str) -> Person | None:
        """Return the member who has a token, or None."""
        query = select(schema.people).where(
            PEOPLE.campaign_id == self._campaign_id,
            PEOPLE.token == token_hash,
            PEOPLE.removed.is_(None),
        )
        row = self._connection.execute(query).first()
        return None if row is None else _person(row)

    def add(self, name: str, role: Role, token_hash: str | None) -> None:
        """Store a person, or a removed one again. The caller checks that the name is free."""
        values = {
            "role": role,
            "token": token_hash,
            "added": self._transaction.now(),
            "removed": None,
        }
        # Names are unique, removed people included: their answers stay under the name.
        removed = self.find(name)

        if removed is None:
            new = {
                "campaign_id": self._campaign_id,
                "name": name,
            }
            insert_row(self._connection, schema.people, new | values)
        else:
            row = PEOPLE.id == removed.row_id
            statement = update(schema.people).where(row).values(values)
            self._connection.execute(statement)

    def set_role(self, row_id: int, role: Role) -> None:
        """Change a person's role."""
        row = PEOPLE.id == row_id
        statement = update(schema.people).where(row).values(role=role)
        self._connection.execute(statement)

    def set_token_hash(self, row_id: int, token_hash: str | None) -> None:
        """Replace the hash of a person's token; None revokes the token."""
        row = PEOPLE.id == row_id
        statement = update(schema.people).where(row).values(token=token_hash)
        self._connection.execute(statement)

    def remove(self, row_id: int) -> None:
        """Remove a person and revoke their token. Their answers stay."""
        removed = {
            "token": None,
            "removed": self._transaction.now(),
        }
        row = PEOPLE.id == row_id
        statement = update(schema.people).where(row).values(removed)
        self._connection.execute(statement)


def _person(row: Row[Any]) -> Person:
    return Person(row.name, Role(row.role), row.added, row.token, row.removed, row.id)
