"""What all queries of a campaign share: their transaction, the clock and short helpers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import Connection, Executable, Select, Table, func, insert, select

if TYPE_CHECKING:
    from teeter.campaigns.store.transaction import Reading

__all__ = [
    "Clock",
    "Queries",
    "chunks",
    "count_rows",
    "format_time",
    "insert_row",
    "utc_now",
]


Clock = Callable[[], datetime]
"""Returns the current time in UTC. Tests inject another one."""


def utc_now() -> datetime:
    """Return the current time in UTC."""
    return datetime.now(UTC)


def format_time(moment: datetime) -> str:
    """Return a time as databases store it.

    Args:
        moment: a time with a time zone.

    Returns:
        The time in UTC as ISO 8601 with milliseconds. All have the same length and zone, so sorting
        and comparing the texts sorts and compares the times.
    """
    return moment.astimezone(UTC).isoformat(timespec="milliseconds")


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
