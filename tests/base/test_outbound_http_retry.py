"""Attempts, their pauses, and what ends them."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import format_datetime

import pytest

from teeter.base.outbound_http import LONGEST_PAUSE, AttemptFailedError, retry


class Attempts:
    """Attempts that fail in given ways, and then succeed."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.count = 0

    def __call__(self) -> str:
        self.count += 1
        if self.failures:
            raise self.failures.pop(0)
        return "done"


def test_pauses_double_up_to_the_longest_and_the_server_may_choose_them() -> None:
    pauses: list[float] = []
    answers: list[dict[str, str]] = [{}, {}, {"retry-after": "3"}, {}, {}]
    attempt = Attempts(*[AttemptFailedError("busy", headers) for headers in answers])

    result = retry(attempt, attempts=6, first_pause=1.0, longest_pause=10.0, sleep=pauses.append)

    assert result == "done"
    assert pauses == [1.0, 2.0, 3.0, 8.0, 10.0]


@pytest.mark.parametrize("attempts", [1, 3])
def test_the_last_failure_is_raised(attempts: int) -> None:
    attempt = Attempts(*[AttemptFailedError(f"failure {number}") for number in range(9)])
    with pytest.raises(AttemptFailedError, match=f"failure {attempts - 1}"):
        retry(attempt, attempts=attempts, first_pause=0.0, longest_pause=0.0)
    assert attempt.count == attempts


def test_any_other_error_is_final() -> None:
    attempt = Attempts(AttemptFailedError("busy"), ValueError("wrong"))
    with pytest.raises(ValueError, match="wrong"):
        retry(attempt, attempts=5, first_pause=0.0, longest_pause=0.0)
    assert attempt.count == 2


def test_a_pause_may_end_the_attempts() -> None:
    attempt = Attempts(AttemptFailedError("busy"))
    with pytest.raises(AttemptFailedError):
        retry(attempt, attempts=5, first_pause=0.0, longest_pause=0.0, sleep=lambda _: True)
    assert attempt.count == 1


@pytest.mark.parametrize(
    ("value", "pause"),
    [
        ("7", 7.0),
        ("86400", LONGEST_PAUSE),
        ("-5", 0.0),
        (format_datetime(datetime(2999, 1, 1, tzinfo=UTC), usegmt=True), LONGEST_PAUSE),
        (format_datetime(datetime(1999, 1, 1, tzinfo=UTC), usegmt=True), 0.0),
        *((value, 0.5) for value in ("", "nan", "inf", "soon", "Mon, 01 Jan 99999 00:00:00 GMT")),
    ],
)
def test_a_server_asks_for_a_pause_by_a_number_or_a_date(value: str, pause: float) -> None:
    pauses: list[float] = []
    attempt = Attempts(AttemptFailedError("busy", {"retry-after": value}))
    retry(attempt, attempts=2, first_pause=0.5, sleep=pauses.append)
    assert pauses == [pause]
