"""The people of a campaign, with the hashes of their tokens."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Row

from teeter.campaigns.items.item import require_valid_unicode
from teeter.campaigns.records import Person, Role
from teeter.campaigns.store import schema
from teeter.campaigns.store.queries import Queries
from teeter.campaigns.store.schema import PEOPLE


class PeopleQueries(Queries):
    """The people of a campaign, in the order in which they were added."""

    def members(self) -> list[Person]:
        """Return all people who were not removed."""
        present = self._own(schema.people).where(PEOPLE.removed.is_(None))
        rows = self._execute(present.order_by(PEOPLE.id))
        return [_person(row) for row in rows]

    def find(self, name: str) -> Person | None:
        """Return a person by name, removed or not; None if there never was one.

        Raises:
            InputError: the name has a character that no stored name has.
        """
        require_valid_unicode(name, "name")
        has_name = self._own(schema.people).where(PEOPLE.name == name)
        row = self._first(has_name)
        if row is None:
            return None
        return _person(row)

    def find_by_token_hash(self, token_hash: str) -> Person | None:
        """Return the member who has a token, or None."""
        has_token = self._own(schema.people).where(PEOPLE.token == token_hash)
        row = self._first(has_token.where(PEOPLE.removed.is_(None)))
        if row is None:
            return None
        return _person(row)

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
            self._insert(
                schema.people,
                name=name,
                **values,
            )
        else:
            self.change(removed.row_id, **values)

    def change(self, row_id: int, **values: Any) -> None:
        """Change columns of a person. A person who is removed keeps their answers."""
        self._update(
            schema.people,
            PEOPLE.id == row_id,
            **values,
        )


def _person(row: Row[Any]) -> Person:
    return Person(
        row.name,
        Role(row.role),
        row.added,
        row.token,
        row.removed,
        row.id,
    )
