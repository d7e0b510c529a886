"""How requests ended whose database went away before that was written."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeAlias

from teeter.campaigns.store import Connection

__all__ = ["UnwrittenOutcomes", "WriteOutcome"]

WriteOutcome: TypeAlias = Callable[[Connection], None]
"""Writes how a request ended."""

_MAX_OUTCOMES = 10_000


class UnwrittenOutcomes:
    """Outcomes to write when a request is sent again, by the campaign and key of the request.

    The oldest are dropped when there are too many. The database has their requests as running, so
    they are not done again.
    """

    def __init__(self) -> None:
        self._outcomes: dict[tuple[str, str], WriteOutcome] = {}
        self._lock = threading.Lock()

    def add(self, place: tuple[str, str], write_outcome: WriteOutcome) -> None:
        """Remember an outcome."""
        with self._lock:
            self._outcomes[place] = write_outcome
            if len(self._outcomes) > _MAX_OUTCOMES:
                del self._outcomes[next(iter(self._outcomes))]

    def find(self, place: tuple[str, str]) -> WriteOutcome | None:
        """Return the outcome of a request, or None if it was written."""
        with self._lock:
            return self._outcomes.get(place)

    def discard(self, place: tuple[str, str]) -> None:
        """Forget an outcome that was written."""
        with self._lock:
            self._outcomes.pop(place, None)
