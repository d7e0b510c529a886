"""teeter campaign people, agreement and review: several annotators in the terminal."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from cli.commands import refuse_campaign, run_campaign, run_teeter
from teeter.campaigns import Campaign

DISAGREEMENTS = "disagreements"


@pytest.fixture(scope="module")
def team_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a campaign of several annotators, created once and copied for every test."""
    items = tmp_path_factory.mktemp("team") / "things.csv"
    rows = "".join(f"t{number},a thing of number {number}\n" for number in range(30))
    items.write_text(f"id,text\n{rows}")
    run_campaign("new", items, "--classes", "small,large", "--overlap", 0.5, "--lease", 15)
    return items.parent


@pytest.fixture
def campaign_file(tmp_path: Path, team_template: Path) -> Path:
    shutil.copytree(team_template, tmp_path, dirs_exist_ok=True)
    return tmp_path / "things.teeter"


def label_twelve(path: Path, disagreements: int) -> None:
    """Label t0 to t11 as ann and bob, who disagree on the first ``disagreements`` items."""
    campaign = Campaign.open(path)
    for number in range(12):
        for annotator in ("ann", "bob"):
            is_large = number % 2 == 0
            if number < disagreements and annotator == "bob":
                is_large = not is_large
            campaign.tell(f"t{number}", "large" if is_large else "small", annotator)
    campaign.database.close()


def test_team_settings_are_stored(campaign_file: Path) -> None:
    campaign = Campaign.open(campaign_file)
    settings = campaign.settings
    campaign.database.close()
    assert settings.overlap == 0.5
    assert settings.people == 2
    assert settings.lease == 15

    items = campaign_file.with_suffix(".csv")
    other = campaign_file.with_suffix(".other")
    message = refuse_campaign("new", items, "--classes", "a,b", "--file", other, "--overlap", 2)
    assert "overlap is 2.0" in message


def test_disagreements_are_decided_with_one_key_per_class(campaign_file: Path) -> None:
    label_twelve(campaign_file, disagreements=4)
    status = run_teeter("status", campaign_file).stdout
    assert f"4 disagreements to decide. Run: teeter campaign review {campaign_file} " in status

    waiting = json.loads(run_campaign("review", campaign_file, DISAGREEMENTS, "--json"))
    assert {disagreement["item"] for disagreement in waiting} == {"t0", "t1", "t2", "t3"}
    assert set(waiting[0]["answers"]) == {"ann", "bob"}

    # The first is decided, undone and decided again, the second left, the third flagged.
    printed = run_campaign("review", campaign_file, DISAGREEMENTS, "--as", "rey", typed="1\x7f2 f")
    assert "[1] small  [2] large" in printed
    assert "Decided on 2 items. Run the same command to continue." in printed

    campaign = Campaign.open(campaign_file)
    first = waiting[0]["item"]
    third = waiting[2]["item"]
    assert campaign.labels()[first].label == "large"
    state = campaign.load_state()
    assert third not in {state.keys[k] for k in state.labels}
    campaign.database.close()

    assert (
        len(json.loads(run_campaign("review", campaign_file, DISAGREEMENTS, "--json", "-n", 5)))
        == 2
    )
    assert "Decided on 2 items" in run_campaign("review", campaign_file, DISAGREEMENTS, typed="11")
    assert "No disagreements to decide." in run_campaign("review", campaign_file, DISAGREEMENTS)


def test_agreement_shows_unknown_values_as_dashes(campaign_file: Path) -> None:
    assert run_campaign("agreement", campaign_file).count("–") == 4 * 3

    label_twelve(campaign_file, disagreements=3)
    printed = run_campaign("agreement", campaign_file)
    assert "12 items labelled by two or more annotators." in printed
    words = [line.split() for line in printed.splitlines()]
    few = ["Cohen's", "kappa", "of", "ann", "and", "bob", "–"]
    assert few in [line[:7] for line in words], "12 items say too little"

    campaign = Campaign.open(campaign_file)
    campaign.add([{"id": f"more{k}", "text": f"another text {k}"} for k in range(18)])
    for k in range(18):
        label = ("small", "large")[k % 2]
        campaign.tell(f"more{k}", label, "ann")
        campaign.tell(f"more{k}", label, "bob")
    campaign.database.close()
    words = [line.split() for line in run_campaign("agreement", campaign_file).splitlines()]
    assert ["Cohen's", "kappa", "of", "ann", "and", "bob", "0.800"] in [line[:7] for line in words]
    measured = json.loads(run_campaign("agreement", campaign_file, "--json"))
    assert measured["observed"]["value"] == pytest.approx(0.9)
    assert set(measured["by_class"]) == {"small", "large"}


def test_annotators_are_added_listed_and_removed(campaign_file: Path) -> None:
    assert "The campaign has no members" in run_campaign("people", campaign_file)

    label_twelve(campaign_file, disagreements=2)
    token = run_campaign("people", campaign_file, "--add", "ann").strip()
    run_campaign("people", campaign_file, "--add", "rey", "--role", "reviewer")
    campaign = Campaign.open(campaign_file)
    assert campaign.people.find_by_token(token) is not None
    campaign.database.close()

    lines = [line.split() for line in run_campaign("people", campaign_file).splitlines()]
    assert ["ann", "annotator", "12"] in [line[:3] for line in lines]
    assert ["rey", "reviewer", "0", "–", "–", "–", "–"] in lines
    assert ["bob", "not", "a", "member", "12"] in [line[:5] for line in lines]
    rows = json.loads(run_campaign("people", campaign_file, "--json"))
    assert [row["name"] for row in rows] == ["ann", "rey", "bob"]

    assert run_campaign("people", campaign_file, "--new-token", "ann").strip() != token
    printed = run_campaign("people", campaign_file, "--remove", "ann")
    assert printed == "Removed ann and released 0 open items.\n"
    repeated = run_campaign("people", campaign_file, "--remove", "ann")
    assert repeated == printed
    message = refuse_campaign("people", campaign_file, "--remove", "lost")
    assert "No member is called 'lost'" in message


def test_rights_are_checked(campaign_file: Path) -> None:
    run_campaign("people", campaign_file, "--add", "rey", "--role", "reviewer")
    message = refuse_campaign("label", campaign_file, "--as", "bob")
    assert "No member is called 'bob'" in message
    message = refuse_campaign("people", campaign_file, "--add", "eve", "--role", "boss")
    assert "No role is called 'boss'" in message

    run_campaign("people", campaign_file, "--add", "bob")
    message = refuse_campaign("review", campaign_file, DISAGREEMENTS, "--as", "bob")
    assert "bob is an annotator and may not decide" in message
    run_campaign("label", campaign_file, "--as", "bob", typed="\x1b")
    message = refuse_campaign("finish", campaign_file, "--start", "--as", "bob")
    assert "bob is an annotator and may not manage" in message


def test_options_that_exclude_each_other_are_refused(campaign_file: Path) -> None:
    message = refuse_campaign("people", campaign_file, "--add", "ann", "--remove", "bob")
    assert "Give only one of --add, --new-token and --remove." in message
    assert "--role needs --add" in refuse_campaign("people", campaign_file, "--role", "owner")
    assert "--no-token needs --add" in refuse_campaign("people", campaign_file, "--no-token")


def test_the_list_of_annotators_fits_the_terminal(
    campaign_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    label_twelve(campaign_file, disagreements=2)
    for words in (("people", campaign_file), ("agreement", campaign_file)):
        assert max(len(line) for line in run_campaign(*words).splitlines()) <= 80
