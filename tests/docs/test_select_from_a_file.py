"""What the how-to page shows is what comes out."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from cli.commands import run_teeter

PAGE = Path(__file__).parents[2] / "docs" / "how_to" / "select_from_a_file.md"
BLOCK = re.compile(r'^```(\w+)(?: title="(.+)")?\n(.*?)^```$', flags=re.MULTILINE | re.DOTALL)


def lines_agree(shown: str, written: str) -> bool:
    """Return whether two lines agree; numbers may differ in their last digits."""
    pairs = list(zip(shown.split(","), written.split(","), strict=True))
    return all(
        a == b or ("." in a and float(a) == pytest.approx(float(b), rel=1e-3)) for a, b in pairs
    )


def test_every_command_answers_as_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ran = 0

    for kind, title, text in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        if kind == "csv":
            Path(title).write_text(text, encoding="utf-8")
        elif kind == "python":
            exec(compile(text, str(PAGE), "exec"), {})
        else:
            for command, *shown in (part.splitlines() for part in text.split("$ teeter ")[1:]):
                fails = 2 if shown and shown[0].startswith("Error: ") else 0
                result = run_teeter(*shlex.split(command), "--device", "cpu", fails=fails)

                written = (result.stderr if fails else result.stdout).splitlines()
                assert len(written) == len(shown)
                assert [
                    pair for pair in zip(shown, written, strict=True) if not lines_agree(*pair)
                ] == []
                ran += 1

    assert ran == 6
    assert Path("picks.json").exists()
