"""The classes of a campaign."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from sqlalchemy import Connection, bindparam, insert, select, update

from teeter.base.registry import did_you_mean
from teeter.campaigns.items.item import require_valid_unicode
from teeter.campaigns.store import schema
from teeter.campaigns.store.queries.history import HistoryRepository
from teeter.campaigns.store.schema import CLASSES
from teeter.campaigns.store.scope import CampaignScope
from teeter.errors import InputError, UnknownNameError

__all__ = ["ClassRepository", "require_distinct_names"]

_RENAMED = "class renamed"
"""The line of the history with the names of a class before and after."""

_ROW_ID = select(CLASSES.id).where(
    CLASSES.campaign_id == bindparam("campaign_id"),
    CLASSES.name == bindparam("name"),
)


def require_distinct_names(new_names: Sequence[str], names: Sequence[str] = ()) -> None:
    """Raise InputError if a new name differs from another one only in case or spaces.

    Args:
        new_names: the names of new classes.
        names: the names of existing classes. These may be alike: older campaigns have such classes.
    """
    name_of: dict[str, str] = {_fold_name(name): name for name in names}
    for name in new_names:
        alike = name_of.setdefault(_fold_name(name), name)
        if alike != name:
            raise InputError(
                f"The classes {alike!r} and {name!r} differ only in case or spaces: use one name "
                "for both, or choose names that are easier to tell apart."
            )


def _fold_name(name: str) -> str:
    return unicodedata.normalize("NFC", " ".join(name.split()).casefold())


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
        """Return the row id of a class, also by a name that it had before.

        Pages, files and projects in Label Studio may still have the old name.

        Raises:
            UnknownNameError: there is no class of that name.
            InputError: the name is not a string that a class can have.
        """
        require_valid_unicode(name or "", "class")
        values = {"campaign_id": self._scope.campaign_id, "name": name}
        row_id = connection.scalar(_ROW_ID, values)

        if row_id is None:
            current_name = self.former_names(connection).get(str(name))
            if current_name is not None:
                return self.row_ids(connection)[current_name]
            hint = did_you_mean(str(name), self.names(connection))
            raise UnknownNameError(f"No class is called {name!r}. {hint}")

        return int(row_id)

    def former_names(self, connection: Connection) -> dict[str, str]:
        """Return the current name of classes by each name that they had before."""
        names = self.names(connection)
        current: dict[str, str] = {}

        for line in self._history.lines(connection, _RENAMED):
            for former, name in list(current.items()):
                if name == line["from"]:
                    current[former] = line["to"]
            current[line["from"]] = line["to"]

        # A name that was given to another class since means that class.
        return {former: name for former, name in current.items() if former not in names}

    def current_name(self, connection: Connection, name: str) -> str:
        """Return the name that a class has now, by that or by one that it had before.

        A name that no class has or had is returned as it is.

        Raises:
            InputError: the name is not a string that a class can have.
        """
        require_valid_unicode(name, "class")
        values = {"campaign_id": self._scope.campaign_id, "name": name}
        if connection.scalar(_ROW_ID, values) is not None:
            return name
        return self.former_names(connection).get(name, name)

    def past_names(self, connection: Connection) -> dict[str, set[str]]:
        """Return the names that classes had before, by their current name.

        Unlike ``former_names``, these may be the names of other classes now.
        """
        past: dict[str, set[str]] = {}
        for line in self._history.lines(connection, _RENAMED):
            past[line["to"]] = past.pop(line["from"], set()) | {line["from"]}
        return past

    def rename(self, connection: Connection, name: str, new_name: str, who: str) -> None:
        """Give a class another name. Its labels, and everything else about it, stay.

        Raises:
            UnknownNameError: there is no class of that name.
            InputError: the new name is blank, or like that of another class.
        """
        row_ids = self.row_ids(connection)
        if name not in row_ids:
            raise UnknownNameError(f"No class is called {name!r}. {did_you_mean(name, row_ids)}")

        stripped = new_name.strip()
        if not stripped or stripped in row_ids:
            raise InputError(
                f"Cannot rename {name!r} to {stripped!r}: the name must not be blank or equal to "
                f"that of an existing class ({', '.join(row_ids)})."
            )

        # A class may change its own case or spaces.
        require_distinct_names([stripped], [other for other in row_ids if other != name])

        is_class = CLASSES.id == row_ids[name]
        connection.execute(update(schema.classes).where(is_class).values(name=stripped))
        detail = {"from": name, "to": stripped}
        self._history.append(connection, who, _RENAMED, None, detail)

    def add(self, connection: Connection, names: Sequence[str], who: str) -> None:
        """Add classes after the existing ones.

        Raises:
            InputError: a name is blank, or like that of another class.
        """
        # Read once: a campaign may have thousands of classes.
        positions = {name: position for position, name in enumerate(self.names(connection))}
        require_distinct_names([name.strip() for name in names], list(positions))
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
