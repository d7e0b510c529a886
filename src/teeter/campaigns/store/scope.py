"""What all queries of one campaign share: the campaign, the clock, the lease and short helpers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, TypeVar

from sqlalchemy import Connection, Executable, Select, Table, func, insert, select

__all__ = [
    "CampaignScope",
    "Clock",
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


@dataclass
class CampaignScope:
    """The campaign that queries are about, the clock they read and the lease they give."""

    campaign_id: int
    clock: Clock = utc_now
    lease: timedelta = timedelta(0)
    """Time after which an unanswered item is reassigned; zero for never."""

    def now(self) -> str:
        """Return the current time as it is stored."""
        return format_time(self.clock())

    def time_after(self, seconds: float) -> str:
        """Return the time in so many seconds as it is stored."""
        return format_time(self.clock() + timedelta(seconds=seconds))

    def lease_end(self) -> str | None:
        """Return when a lease given now expires, as it is stored; None for never."""
        if not self.lease:
            return None
        return format_time(self.clock() + self.lease)


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
