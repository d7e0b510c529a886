"""The clock campaigns use. Tests inject a fake one."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

__all__ = ["Clock", "format_time", "utc_now"]

Clock = Callable[[], datetime]
"""Returns the current time in UTC."""


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
