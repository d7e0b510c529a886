"""The classes of a campaign."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, bindparam, insert, select

from teeter.campaigns.db import schema
from teeter.campaigns.db.history import HistoryRepository
from teeter.campaigns.db.schema import CLASSES
from teeter.campaigns.db.scope import CampaignScope
from teeter.campaigns.items import require_valid_unicode
from teeter.errors import InputError, UnknownNameError
from teeter.registry import did_you_mean

__all__ = ["ClassRepository"]

_ROW_ID = select(CLASSES.id).where(
    CLASSES.campaign_id == bindparam("campaign_id"),
    CLASSES.name == bindparam("name"),
)


class ClassRepository:
    """The classes that items can be labelled with, in the order in which they were added."""

    def __init__(self, scope: CampaignScope, history: HistoryRepository) -> None:
        self._scope = scope
        self._history = history

    def names(self, connection: Connection) -> list[str]:
        """Return the names of the classes, in their order."""
        return list(self.row_ids(connection))

    def row_ids(self, connection: Connection) -> dict[str, int]:
        """Return the row ids of the classes by name, in their order."""
        query = (
            select(CLASSES.name, CLASSES.id)
            .where(CLASSES.campaign_id == self._scope.campaign_id)
            .order_by(CLASSES.position)
        )
        rows = connection.execute(query)
        return {row.name: row.id for row in rows}

    def row_id(self, connection: Connection, name: str | None) -> int:
        """Return the row id of a class.

        Raises:
            UnknownNameError: there is no class of that name.
            InputError: the name is not a string that a class can have.
        """
        require_valid_unicode(name or "", "class")
        values = {"campaign_id": self._scope.campaign_id, "name": name}
        row_id = connection.scalar(_ROW_ID, values)

        if row_id is None:
            hint = did_you_mean(str(name), self.names(connection))
            raise UnknownNameError(f"No class is called {name!r}. {hint}")

        return int(row_id)

    def add(self, connection: Connection, names: Sequence[str], who: str) -> None:
        """Add classes after the existing ones.

        Raises:
            InputError: a name is blank, or it is taken.
        """
        # Read once: a campaign may have thousands of classes.
        positions = {name: position for position, name in enumerate(self.names(connection))}
        rows = []

        for name in names:
            stripped = name.strip()
            if not stripped or stripped in positions:
                raise InputError(
                    f"Cannot add the class {stripped!r}: its name must not be blank or equal to "
                    f"that of an existing class ({', '.join(positions)})."
                )

            positions[stripped] = len(positions)
            row = {
                "campaign_id": self._scope.campaign_id,
                "position": positions[stripped],
                "name": stripped,
            }
            rows.append(row)

        if rows:
            connection.execute(insert(schema.classes), rows)
            details = [{"name": row["name"]} for row in rows]
            self._history.append_each(connection, who, "class", details)
