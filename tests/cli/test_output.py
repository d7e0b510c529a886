"""Progress without a terminal."""

from __future__ import annotations

import pytest

from teeter.cli.output import progress


def test_progress_without_a_terminal_is_about_ten_lines(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with progress("Learning", as_lines=True) as update:
        for done in range(1, 201):
            update(done, 200)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "Learning …"
    assert lines[1:] == [f"Learning: {done} of 200" for done in range(20, 201, 20)]


def test_progress_without_a_terminal_is_silent_by_default(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with progress("Downloading") as update:
        update(1, 2)
    printed = capsys.readouterr()
    assert printed.out == printed.err == ""
