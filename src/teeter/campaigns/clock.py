"""The time, from one place, so that it can be another's in a test."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

__all__ = ["Clock", "utc", "written"]

Clock = Callable[[], datetime]
"""Tells the time, in UTC."""


def utc() -> datetime:
    """Return the time."""
    return datetime.now(UTC)


def written(moment: datetime) -> str:
    """Return a time as it is written down: texts in the order of time."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds")
