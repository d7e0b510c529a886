"""teeter campaign decide, agreement and people: a team in the terminal."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from cli.commands import CommandRunner
from teeter.campaigns.campaign import Campaign
from teeter.cli import app


def run(*words: Any, typed: str | None = None, code: int = 0) -> str:
    result = CommandRunner().invoke(app, ["campaign", *map(str, words)], input=typed)
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return result.stdout if code == 0 else result.stderr


@pytest.fixture(scope="module")
def team_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a campaign of several annotators, made once and copied for every test."""
    things = tmp_path_factory.mktemp("team") / "things.csv"
    things.write_text("id,text\n" + "".join(f"t{k},a thing of number {k}\n" for k in range(30)))
    run(
        "new",
        things,
        "--classes",
        "small,large",
        "--overlap",
        0.5,
        "--lease",
        15,
        "--consensus",
        "dawid-skene",
    )
    return things.parent


@pytest.fixture
def made(tmp_path: Path, team_template: Path) -> Path:
    shutil.copytree(team_template, tmp_path, dirs_exist_ok=True)
    return tmp_path / "things.teeter"


def disagree(path: Path, count: int) -> None:
    campaign = Campaign.open(path)
    for k in range(12):
        for who in ("ann", "bob"):
            wrong = k < count and who == "bob"
            campaign.tell(f"t{k}", "large" if (k % 2 == 0) != wrong else "small", who)
    campaign.database.close()


def test_what_is_told_is_kept(made: Path) -> None:
    settings = Campaign.open(made).settings
    assert (settings.overlap, settings.people, settings.lease, settings.consensus) == (
        0.5,
        2,
        15,
        "dawid-skene",
    )
    again = (
        "new",
        made.with_suffix(".csv"),
        "--classes",
        "a,b",
        "--file",
        made.with_suffix(".other"),
    )
    assert "overlap is 2.0" in run(*again, "--overlap", 2, code=2)


def test_disagreements_are_decided_one_key_a_class(made: Path) -> None:
    disagree(made, 4)
    assert "4 items on which people disagree: teeter campaign decide" in run("status", made)
    waiting = json.loads(run("decide", made, "--json"))
    assert {one["item"] for one in waiting} == {"t0", "t1", "t2", "t3"}
    assert set(waiting[0]["said"]) == {"ann", "bob"}
    shown = run("decide", made, "--as", "rey", typed="1u2 f")
    assert "[1] small  [2] large" in shown
    assert "2 decided" in shown
    campaign = Campaign.open(made)
    first, third = waiting[0]["item"], waiting[2]["item"]
    assert campaign.labels()[first].label == "large"
    assert third not in {campaign.load_state().keys[k] for k in campaign.load_state().labels}
    assert len(json.loads(run("decide", made, "--json", "-n", 5))) == 2
    assert "2 decided" in run("decide", made, typed="11")
    assert "Nothing waits for a decision." in run("decide", made)


def test_agreement_says_what_is_not_yet_known(made: Path) -> None:
    assert run("agreement", made).count("not yet known") == 4
    disagree(made, 3)
    told = run("agreement", made)
    assert "12 items labelled by two or more." in told
    assert "Cohen's kappa of ann and bob\t0.500 (" in told
    found = json.loads(run("agreement", made, "--json"))
    assert found["observed"]["value"] == pytest.approx(0.75)
    assert set(found["by_class"]) == {"small", "large"}


def test_people_are_named_shown_and_let_go(made: Path) -> None:
    assert "Nobody is named" in run("people", "list", made)
    disagree(made, 2)
    token = run("people", "add", made, "ann").strip()
    run("people", "add", made, "rey", "--role", "reviewer")
    assert Campaign.open(made).people.find_by_token(token) is not None
    told = run("people", "list", made)
    assert "ann\tannotator\t12 answers" in told
    assert "rey\treviewer\t0 answers" in told
    assert "bob\tnot named" in told
    rows = json.loads(run("people", "list", made, "--json"))
    assert [row["name"] for row in rows] == ["ann", "rey", "bob"]
    assert run("people", "token", made, "ann").strip() != token
    assert run("people", "token", made, "ann", "--revoke") == "ann has no token.\n"
    assert "0 open questions went back" in run("people", "remove", made, "ann")
    for words, message in (
        (("ask", made, "--as", "bob"), "No member is called 'bob'"),
        (("people", "add", made, "eve", "--role", "boss"), "No role is called 'boss'"),
        (("people", "remove", made, "ann"), "No member is called 'ann'"),
    ):
        assert message in run(*words, code=2)
    run("people", "add", made, "bob")
    assert "bob is an annotator and may not decide" in run("decide", made, "--as", "bob", code=2)
    run("ask", made, "--as", "bob")


def test_a_late_answer_is_told(made: Path) -> None:
    (asked,) = json.loads(run("ask", made, "-n", 1, "--as", "ann", "--json"))
    Campaign.open(made).release_items("ann")
    result = CommandRunner().invoke(
        app, ["campaign", "tell", str(made), asked["item"], "small", "--as", "ann"]
    )
    assert result.exit_code == 0
    assert (
        "The question had gone back, and nobody is asked now; your answer counts all the same."
        in result.stderr
    )
    assert json.loads(run("status", made, "--json"))["labelled"] == 1
