"""One campaign of a server: its name in addresses, what is spent, and what counts as its labels."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from teeter.campaigns.campaign import Campaign
from teeter.web.service import slug_of
from web.labelled_campaigns import AT, LabelledCampaign
from web.servers import begin, served


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("ünï", "uni"),
        ("Straße 1", "strasse-1"),
        ("ﬁne", "fine"),
        ("标注", "campaign"),
        ("uni", "uni-2"),
    ],
)
def test_names_in_addresses_are_plain_letters(name: str, slug: str) -> None:
    assert slug_of(name, {"uni"} if slug == "uni-2" else set()) == slug


def test_what_is_spent_is_every_answer_of_people(tmp_path: Path) -> None:
    file = begin(tmp_path / "texts.teeter", 20, cost=0.5, budget=10.0)
    campaign = Campaign.open(file)
    campaign.add([{"text": "Known already", "label": "ham"}])
    for name in ("ann", "bob"):
        campaign.tell("t1", "ham", name)
        campaign.skip("t2", name)
    campaign.database.close()
    with served(file) as client:
        told = client.get(f"{AT}/progress").json()
        assert (told["spent"], told["status"]["labelled"]) == (2.0, 2)
        assert "8 of the budget of 10 is left." in told["status"]["advice"]


def test_the_last_round_is_as_right_as_the_campaign(labelled: LabelledCampaign) -> None:
    with closing(sqlite3.connect(labelled.file)) as database:  # an audit sample that has only begun
        (facts,) = database.execute(
            "select facts from models order by version desc limit 1"
        ).fetchone()
        told = json.dumps({**json.loads(facts), "audit": [0, 1], "control": [9, 12]})
        database.execute("update models set facts = ?", [told])
        database.commit()
    found = labelled.client.get(f"{AT}/progress").json()
    assert found["rounds"][-1]["accuracy"]["share"] == 9 / 12
    assert found["status"]["accuracy"]["right"] == 9


def test_labels_are_as_decided_and_flags_show(client: TestClient, file: Path) -> None:
    campaign = Campaign.open(file)
    for name in ("ann", "bob"):
        campaign.tell("t1", "spam", name)
        campaign.tell("t2", "spam", name)
    campaign.flag("t2", "eve")
    assert client.get(f"{AT}/item?id=t1").json()["label"] == "spam"
    campaign.decide("t1", "ham", "ruth")
    campaign.database.close()
    lines = {one["item"]: one for one in client.get(f"{AT}/items?count=5").json()["items"]}
    assert (lines["t1"]["label"], lines["t2"]["state"], lines["t3"]["state"]) == (
        "ham",
        "spam, flag",
        "",
    )
    assert client.get(f"{AT}/labels").json()["labels"][0] == [1, 1]
    assert "decided by ruth" in client.get("/c/texts/item?id=t1").text


def test_what_the_trainer_asked_meanwhile_is_not_given_on_top(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = begin(tmp_path / "texts.teeter", 100)
    campaign = Campaign.open(file)
    campaign.pick_ahead(60)
    campaign.database.close()
    with served(file) as client:
        desk = client.app.state.workspace.services["texts"]  # type: ignore[attr-defined]
        looked = desk.questions

        def slow(annotator: str, n: int, why: Any = None) -> Any:
            monkeypatch.setattr(desk, "questions", looked)
            desk.campaign.ask(20, annotator)
            return []

        monkeypatch.setattr(desk, "questions", slow)
        assert client.get("/c/texts").status_code == 200
        assert len(client.get(f"{AT}/questions", params={"n": 100}).json()["questions"]) == 20
