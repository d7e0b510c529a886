"""Send a request again when an attempt fails in a way that may pass."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.message import Message
from email.utils import parsedate_to_datetime
from typing import TypeAlias, TypeVar

from teeter.errors import ServerUnavailableError

__all__ = ["LONGEST_PAUSE", "AttemptFailedError", "retry"]

Result = TypeVar("Result")
Headers: TypeAlias = Mapping[str, str] | Message
"""The headers of an answer, as httpx2 and the standard library give them: names in any case."""

LONGEST_PAUSE = 60.0
"""Seconds to wait at most, whatever the server asks for in ``Retry-After``."""


class AttemptFailedError(ServerUnavailableError):
    """An attempt failed, and another may succeed.

    Args:
        reason: How it failed.
        headers: Those of the answer, if there was one. ``Retry-After`` may ask for a pause.
    """

    def __init__(self, reason: str, headers: Headers | None = None) -> None:
        super().__init__(reason)
        self.retry_after = _read_retry_after(headers or {})


def retry(
    attempt: Callable[[], Result],
    *,
    attempts: int,
    first_pause: float,
    longest_pause: float = LONGEST_PAUSE,
    sleep: Callable[[float], object] = time.sleep,
) -> Result:
    """Return what ``attempt`` returns, calling it again after each ``AttemptFailedError``.

    Whatever else it raises is final.

    Args:
        attempt: Makes one attempt.
        attempts: How many attempts are made at most.
        first_pause: Seconds before the second attempt. Each further pause is twice as long.
        longest_pause: Seconds to wait at most, whatever the server asks for.
        sleep: Waits for a number of seconds. If it returns a true value, as ``Event.wait`` does,
            no further attempt is made.

    Raises:
        AttemptFailedError: The last attempt failed.
    """
    pause = first_pause
    attempts_left = attempts

    while True:
        attempts_left -= 1
        try:
            return attempt()
        except AttemptFailedError as error:
            if attempts_left <= 0:
                raise
            seconds = pause if error.retry_after is None else error.retry_after
            if sleep(min(max(seconds, 0.0), longest_pause)):
                raise

        pause *= 2


def _read_retry_after(headers: Headers) -> float | None:
    """Return the seconds that a server asks to wait, as a number or a date; None without them."""
    value = headers.get("retry-after")
    if value is None:
        return None

    try:
        seconds = float(value)
        return seconds if math.isfinite(seconds) else None
    except ValueError:
        pass

    try:
        return (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds()
    except (ValueError, TypeError, OverflowError):
        return None
