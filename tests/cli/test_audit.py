from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import pytest

from campaigns.finish.audits import answer_rightly, make_rows
from cli.commands import CommandRunner
from teeter.campaigns import Campaign
from teeter.cli import app


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a table to audit, in the current folder."""
    monkeypatch.chdir(tmp_path)
    rows = make_rows(200)
    with open("answers.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return Path("answers.csv")


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return what would have been served."""
    locations: list[str] = []

    def serve(campaigns: list[str], **_: object) -> None:
        locations.extend(campaigns)

    # The package has the command under the name of the module.
    monkeypatch.setattr(sys.modules["teeter.cli.audit"], "serve_on_this_machine", serve)
    return locations


@pytest.fixture
def runner() -> CommandRunner:
    return CommandRunner()


CREATE = ["--judge", "llm", "--confidence", "sure", "--judge", "rule", "--require", "90%"]


def test_an_audit_from_a_table_to_its_report(
    runner: CommandRunner, table: Path, served: list[str]
) -> None:
    created = runner.invoke(app, ["audit", str(table), *CREATE])
    assert created.exit_code == 0, created.output
    assert "200 items, an audit of llm, rule" in created.output
    assert served == ["answers.teeter"]

    campaign = Campaign.open("answers.teeter")
    answer_rightly(campaign, 60)
    campaign.database.close()

    again = runner.invoke(app, ["audit", str(table)])
    assert again.exit_code == 0, again.output
    assert served == ["answers.teeter"] * 2

    report = runner.invoke(app, ["audit", "answers.teeter"])
    assert report.exit_code == 0, report.output
    assert "llm: right on at least 90%?" in report.output
    assert "60 of 200 items were drawn and answered." in report.output
    as_json = json.loads(runner.invoke(app, ["audit", "answers.teeter", "--json"]).stdout)
    assert as_json["draws"] == 60
    assert [judge["judge"] for judge in as_json["judges"]] == ["llm", "rule"]
    written = runner.invoke(app, ["audit", "answers.teeter", "--html", "report.html"])
    assert written.exit_code == 0, written.output
    assert Path("report.html").read_text().startswith("<!DOCTYPE html>")


def test_an_export_before_the_end_asks_first(
    runner: CommandRunner, table: Path, served: list[str]
) -> None:
    runner.invoke(app, ["audit", str(table), *CREATE])
    refused = runner.invoke(app, ["export", "answers.teeter", "out.csv"], input="n\n")
    assert refused.exit_code == 1
    assert not Path("out.csv").exists()
    assert runner.invoke(app, ["export", "answers.teeter", "out.csv"], input="y\n").exit_code == 0
    assert Path("out.csv").exists()

    ended = runner.invoke(app, ["audit", "answers.teeter", "--end"])
    assert "The audit is over." in ended.output
    assert runner.invoke(app, ["export", "answers.teeter", "later.csv"]).exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["answers.csv"], "--judge is missing"),
        (["answers.csv", "--judge", "nope"], "No column is called 'nope'"),
        (["answers.csv", "--judge", "llm", "--require", "much"], "--require is 'much'"),
        (["answers.csv", "--judge", "llm", "--require", "150%"], "at most 100%"),
        (
            ["answers.csv", "--confidence", "sure", "--judge", "llm", "--confidence", "a"],
            "more --c",
        ),
        (["answers.csv", "--judge", "llm", "--show", "llm"], "column of a judge"),
        (["answers.csv", "--json"], "about an audit that exists"),
        (["none.csv", "--judge", "llm"], "none.csv"),
        (["none.teeter"], "none.teeter"),
    ],
)
def test_a_mistake_is_answered_by_a_sentence(
    runner: CommandRunner, table: Path, served: list[str], arguments: list[str], message: str
) -> None:
    result = runner.invoke(app, ["audit", *arguments])
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
    assert not Path("answers.teeter").exists()
    assert not served


@pytest.mark.parametrize("option", [["--goal", "5% wrong"], ["--people", "3"], ["--require", "9%"]])
def test_what_is_set_before_the_first_draw_is_refused_for_an_audit_that_exists(
    runner: CommandRunner, table: Path, served: list[str], option: list[str]
) -> None:
    runner.invoke(app, ["audit", str(table), *CREATE])
    for source in (served[0], str(table)):
        result = runner.invoke(app, ["audit", source, *option])
        assert result.exit_code == 2
        assert "is a campaign already" in result.output
    assert len(served) == 1
