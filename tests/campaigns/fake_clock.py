"""A clock that a test sets."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

__all__ = ["FakeClock"]


class FakeClock:
    """A clock that stands still until a test moves it."""

    def __init__(self) -> None:
        self.time = datetime(2030, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        """Return the time, as a campaign asks for it."""
        return self.time

    def wait(self, minutes: float) -> None:
        """Move the clock forward, or back if the number is negative."""
        self.time += timedelta(minutes=minutes)
