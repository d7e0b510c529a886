"""teeter bench report, as a command of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from fake_runs import fake_accuracy, fake_run
from teeter.cli.errors import Commands
from teeter.cli.report import report
from teeter.experiments import results

APP = typer.Typer(cls=Commands)
APP.command()(report)
APP.command("other")(lambda: None)


@pytest.fixture(autouse=True)
def a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    run = fake_run(fake_accuracy(("ldm-s", "random"), repetitions=3, rounds=4))
    monkeypatch.setattr(results, "read_run", lambda folder: run)


def test_the_findings_are_said_and_the_page_is_named(tmp_path: Path) -> None:
    done = CliRunner().invoke(APP, ["report", str(tmp_path / "run"), "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    first, *_, last = done.stdout.splitlines()
    assert "LDM-S was the most accurate of 2 strategies" in first
    assert last == f"Curves, tables and settings: {tmp_path / 'out' / 'index.html'}"
    assert (tmp_path / "out" / "index.html").exists()


def test_left_out_the_report_goes_into_the_run(tmp_path: Path) -> None:
    done = CliRunner().invoke(APP, ["report", str(tmp_path / "run")])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "run" / "report" / "index.html").exists()


def test_json_has_findings_and_tables(tmp_path: Path) -> None:
    done = CliRunner().invoke(APP, ["report", str(tmp_path), "--out", str(tmp_path / "out"), "--json"])
    told = json.loads(done.stdout)
    assert set(told) == {"page", "findings", "notes", "tables", "files"}
    assert told["tables"]["deltas"][0]["strategy"] == "ldm-s"


def test_what_is_no_run_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    done = CliRunner().invoke(APP, ["report", str(tmp_path)])
    assert done.exit_code == 2
    assert "There is no run in" in done.stderr
