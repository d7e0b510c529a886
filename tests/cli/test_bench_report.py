"""teeter bench report, as a command of its own."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import typer

from cli.commands import CommandRunner
from fake_runs import fake_accuracy, fake_run
from teeter.bench import experiments
from teeter.bench.analysis import report as reports
from teeter.bench.analysis.report import Report
from teeter.bench.experiments import Run
from teeter.cli.bench import report
from teeter.cli.output import Commands

pytestmark = pytest.mark.xdist_group("report")  # one worker, so one drawing

RUN = fake_run(fake_accuracy(("ldm-s", "random"), repetitions=3, rounds=4))

APP = typer.Typer(cls=Commands)
APP.command()(report)
APP.command("other")(lambda: None)


@pytest.fixture(scope="module")
def drawn_report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """A report with its figures, drawn once and copied for every test."""
    return reports.write_report([RUN], tmp_path_factory.mktemp("report"))


@pytest.fixture(autouse=True)
def a_run(monkeypatch: pytest.MonkeyPatch, drawn_report: Report) -> None:
    def copy_report(runs: Sequence[Run], out: Path) -> Report:
        assert runs == [RUN]
        drawn_in = drawn_report.page.parent
        shutil.copytree(drawn_in, out)
        files = tuple(out / path.relative_to(drawn_in) for path in drawn_report.files)
        return replace(drawn_report, page=out / drawn_report.page.name, files=files)

    monkeypatch.setattr(experiments, "read_run", lambda folder: RUN)
    monkeypatch.setattr(reports, "write_report", copy_report)


@pytest.mark.slow
def test_the_findings_are_said_and_the_page_is_named(tmp_path: Path) -> None:
    result = CommandRunner().invoke(
        APP, ["report", str(tmp_path / "run"), "--out", str(tmp_path / "out")]
    )
    assert result.exit_code == 0, result.output
    first, *_, last = result.stdout.splitlines()
    assert "LDM-S was the most accurate of 2 strategies" in first
    assert last == f"Curves, tables and settings: {tmp_path / 'out' / 'index.html'}"
    assert (tmp_path / "out" / "index.html").exists()


def test_left_out_the_report_goes_into_the_run(tmp_path: Path) -> None:
    result = CommandRunner().invoke(APP, ["report", str(tmp_path / "run")])
    assert result.exit_code == 0, result.output
    assert (tmp_path / "run" / "report" / "index.html").exists()


def test_json_has_findings_and_tables(tmp_path: Path) -> None:
    result = CommandRunner().invoke(
        APP, ["report", str(tmp_path), "--out", str(tmp_path / "out"), "--json"]
    )
    report = json.loads(result.stdout)
    assert all(Path(path).exists() for path in report["files"])
    assert set(report) == {"page", "findings", "notes", "tables", "files"}
    assert report["tables"]["deltas"][0]["strategy"] == "ldm-s"


def test_what_is_no_run_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    result = CommandRunner().invoke(APP, ["report", str(tmp_path)])
    assert result.exit_code == 2
    assert "There is no run in" in result.stderr
