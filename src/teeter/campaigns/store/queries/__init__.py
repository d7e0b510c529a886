"""The queries by subject. All of them run in the transaction that they belong to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import Connection, Executable, Select, Table, func, insert, select

if TYPE_CHECKING:
    from teeter.campaigns.store.transaction import Reading

__all__ = ["Queries", "chunks", "count_rows", "insert_row"]


class Queries:
    """Queries about one subject, which run in the transaction that they belong to."""

    def __init__(self, transaction: Reading) -> None:
        self._transaction = transaction
        self._connection = transaction.connection
        self._campaign_id = transaction.campaign_id


Value = TypeVar("Value")

_MOST_VALUES = 500
"""Values in one ``IN`` list. SQLite limits the number of parameters of a statement."""


def chunks(values: Sequence[Value]) -> list[Sequence[Value]]:
    """Split values into parts that are short enough for an ``IN`` list."""
    starts = range(0, len(values), _MOST_VALUES)
    return [values[start : start + _MOST_VALUES] for start in starts]


def count_rows(connection: Connection, query: Select[Any]) -> int:
    """Return the number of rows that a query selects."""
    return int(connection.scalar(select(func.count()).select_from(query.subquery())) or 0)


def insert_row(connection: Connection, table: Table, values: Mapping[str, Any]) -> int:
    """Insert a row into a table with an ``id``, and return its id."""
    return int(connection.execute(_insert_returning_id(table), dict(values)).scalar_one())


@cache
def _insert_returning_id(table: Table) -> Executable:
    return insert(table).returning(table.c.id)
