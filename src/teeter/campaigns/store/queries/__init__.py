"""The queries by subject. All of them run in the transaction that they belong to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import (
    ColumnElement,
    Executable,
    Row,
    Select,
    Table,
    delete,
    func,
    insert,
    select,
    update,
)

from teeter.campaigns.store.schema import ITEMS

if TYPE_CHECKING:
    from teeter.campaigns.store.transaction import Reading

__all__ = ["Queries", "chunks"]


class Queries:
    """Queries about one subject, which run in the transaction that they belong to."""

    def __init__(self, transaction: Reading) -> None:
        self._transaction = transaction
        self._connection = transaction.connection
        self._campaign_id = transaction.campaign_id
        self._execute = transaction.connection.execute
        self._scalar = transaction.connection.scalar
        self._scalars = transaction.connection.scalars

    def _own(self, table: Table) -> Select[Any]:
        """Select the campaign's rows of a table."""
        return select(table).where(table.c.campaign_id == self._campaign_id)

    def _in_campaign(self) -> ColumnElement[bool]:
        """Whether an item belongs to the campaign, in queries that select other tables, too."""
        return ITEMS.campaign_id == self._campaign_id

    def _first(self, query: Executable, values: Mapping[str, Any] | None = None) -> Row[Any] | None:
        """Return the first row that a query selects, or None."""
        return self._execute(query, values).first()

    def _in_parts(
        self, query: Select[Any], column: ColumnElement[Any], values: Sequence[Any]
    ) -> Iterator[Row[Any]]:
        """Yield the rows in which a column has one of some values, which may be many."""
        for part in chunks(values):
            yield from self._execute(query.where(column.in_(part)))

    def _count(self, query: Select[Any]) -> int:
        """Return the number of rows that a query selects."""
        counted = select(func.count()).select_from(query.subquery())
        return int(self._scalar(counted) or 0)

    def _insert(self, table: Table, **values: Any) -> int:
        """Insert a row into a table with an ``id``, and return its id."""
        row = self._complete(table, values)
        return int(self._execute(_insert_returning_id(table), row).scalar_one())

    def _insert_all(self, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
        """Insert rows in one statement, which is much faster than one by one."""
        # SQLAlchemy does not take an empty list to mean that nothing is inserted.
        if rows:
            complete = [self._complete(table, row) for row in rows]
            self._execute(insert(table), complete)

    def _complete(self, table: Table, row: Mapping[str, Any]) -> dict[str, Any]:
        if "campaign_id" not in table.c:
            return dict(row)
        return {"campaign_id": self._campaign_id, **row}

    def _update(self, table: Table, *conditions: ColumnElement[bool], **values: Any) -> None:
        """Change the rows that meet all conditions."""
        rows = update(table).where(*conditions)
        self._execute(rows.values(values))

    def _delete(self, table: Table, *conditions: ColumnElement[bool]) -> None:
        """Delete the rows that meet all conditions."""
        self._execute(delete(table).where(*conditions))

    def _note(
        self, who: str, what: str, detail: Mapping[str, Any], item_id: str | None = None
    ) -> None:
        """Append a line to the history."""
        self._transaction.history.append(who, what, item_id, detail)


Value = TypeVar("Value")

_MOST_VALUES = 500
"""Values in one ``IN`` list. SQLite limits the number of parameters of a statement."""


def chunks(values: Sequence[Value]) -> list[Sequence[Value]]:
    """Split values into parts that are short enough for an ``IN`` list."""
    starts = range(0, len(values), _MOST_VALUES)
    return [values[start : start + _MOST_VALUES] for start in starts]


@cache
def _insert_returning_id(table: Table) -> Executable:
    return insert(table).returning(table.c.id)
