"""Two annotators who answer under one name are warned, and one annotator is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from campaigns.fake_clock import FakeClock
from cli.commands import invoke_campaign
from teeter.campaigns import Campaign, Settings, people
from teeter.campaigns.people import SessionKind, note_session


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    settings = Settings(kind="features")
    return Campaign.make(
        [], ["a", "b"], at=tmp_path / "c.teeter", settings=settings, clock=FakeClock()
    )


def test_a_second_browser_of_the_last_hour_is_noticed(campaign: Campaign) -> None:
    assert not note_session(campaign, "me", SessionKind.BROWSER, "ann")
    assert not note_session(campaign, "me", SessionKind.BROWSER, "ann")
    assert note_session(campaign, "me", SessionKind.BROWSER, "bob")
    assert note_session(campaign, "me", SessionKind.BROWSER, "ann"), "both are warned"

    sessions = [line for line in campaign.history() if line["what"] == "session"]
    assert len(sessions) == 2, "each session is noted once an hour"
    assert "ann" not in str(sessions)


def test_other_names_other_kinds_and_earlier_hours_do_not_count(campaign: Campaign) -> None:
    note_session(campaign, "me", SessionKind.BROWSER, "ann")
    assert not note_session(campaign, "bob", SessionKind.BROWSER, "bob")
    assert not note_session(campaign, "me", SessionKind.TERMINAL, "bob")

    clock = campaign.clock
    assert isinstance(clock, FakeClock)
    clock.wait(minutes=120)
    assert not note_session(campaign, "me", SessionKind.BROWSER, "cid")


def test_a_second_terminal_is_warned_and_shown_how_to_set_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.teeter"
    Campaign.make(["one", "two", "three"], ["a", "b"], at=path).database.close()
    warning = "Another terminal has labelled this campaign as me in the last hour."

    for _ in range(2):
        assert warning not in invoke_campaign("label", path, typed="").stdout

    monkeypatch.setattr(people, "terminal_identity", lambda: "bob@other")
    printed = " ".join(invoke_campaign("label", path, typed="").stdout.split())
    assert f"{warning} If that was not you, stop and give your own name with --as NAME" in printed
    assert warning not in invoke_campaign("label", path, "--as", "bob", typed="").stdout
