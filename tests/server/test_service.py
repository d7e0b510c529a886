"""One campaign of a server: its slug, its costs, its labels and the items that it assigns."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from fastapi.testclient import TestClient
from safetensors.numpy import save

from server.labelled_campaigns import AT, LabelledCampaign
from server.servers import make_text_campaign, serve_campaigns
from teeter.campaigns.asking.assignment import pick_ahead
from teeter.campaigns.asking.questions import open_questions
from teeter.campaigns.campaign import Campaign
from teeter.campaigns.records import Explanation, ShownQuestion
from teeter.campaigns.store.queries.trained_models import ModelQueries
from teeter.server.routes import pages
from teeter.server.service import CampaignService, make_slug


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("ünï", "uni"),
        ("Straße 1", "strasse-1"),
        ("ﬁne", "fine"),
        ("标注", "campaign"),
    ],
)
def test_slugs_consist_of_letters_digits_and_hyphens(name: str, slug: str) -> None:
    assert make_slug(name, taken=[]) == slug


def test_a_slug_that_is_taken_gets_a_number() -> None:
    assert make_slug("uni", taken=["uni"]) == "uni-2"
    assert make_slug("uni", taken=["uni", "uni-2"]) == "uni-3"


def test_every_answer_of_an_annotator_costs(tmp_path: Path) -> None:
    file = make_text_campaign(tmp_path / "texts.teeter", 20, cost=0.5, budget=10.0)
    campaign = Campaign.open(file)
    campaign.add([{"text": "Known already", "label": "ham"}])
    for annotator in ("ann", "bob"):
        campaign.tell("t1", "ham", annotator)
        campaign.skip("t2", annotator)
    campaign.database.close()

    with serve_campaigns(file) as client:
        progress = client.get(f"{AT}/progress").json()
        assert progress["spent"] == 2.0
        assert progress["budget"] == 10.0
        assert progress["status"]["labelled"] == 2
        assert "8 of the budget of 10 is left." in progress["status"]["advice"]


def test_the_last_round_has_the_accuracy_of_the_campaign(labelled: LabelledCampaign) -> None:
    with closing(sqlite3.connect(labelled.file)) as database:
        query = "select facts from models order by version desc limit 1"
        (stored,) = database.execute(query).fetchone()
        # An audit set that has hardly been labelled: the larger control set counts.
        facts = json.dumps({**json.loads(stored), "audit": [0, 1], "control": [9, 12]})
        database.execute("update models set facts = ?", [facts])
        database.commit()

    progress = labelled.client.get(f"{AT}/progress").json()
    last_round = progress["rounds"][-1]
    assert last_round["accuracy"]["share"] == 9 / 12
    assert last_round["accuracy"]["total"] == 12
    assert (last_round["audit"], last_round["control"]) == ([0, 1], [9, 12])
    assert progress["status"]["accuracy"]["right"] == 9


def test_labels_follow_decisions_and_flags_are_shown(client: TestClient, file: Path) -> None:
    campaign = Campaign.open(file)
    for annotator in ("ann", "bob"):
        campaign.tell("t1", "spam", annotator)
        campaign.tell("t2", "spam", annotator)
    campaign.flag("t2", "eve")
    assert client.get(f"{AT}/item?id=t1").json()["label"] == "spam"

    campaign.decide("t1", "ham", "ruth")
    campaign.database.close()

    rows = {row["item"]: row for row in client.get(f"{AT}/items?count=5").json()["items"]}
    assert rows["t1"]["label"] == "ham"
    assert rows["t2"]["state"] == "spam, flag"
    assert rows["t3"]["state"] == ""
    assert client.get(f"{AT}/labels").json()["labels"][0] == [1, 1]
    assert "decided by ruth" in client.get("/c/texts/item?id=t1").text


def test_changed_predictions_of_withdrawn_items_are_not_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = CampaignService(make_text_campaign(tmp_path / "texts.teeter", 4), "texts")
    predicted = np.zeros(4, dtype=np.int16)
    weights = [save({"predicted": predicted + 1}), save({"predicted": predicted})]
    monkeypatch.setattr(ModelQueries, "newest_weights", lambda *_: weights)
    items = [change.item for change in service.campaign.items.changed_predictions()]

    service.campaign.items.withdraw([items[1]])

    left = [change.item for change in service.campaign.items.changed_predictions()]
    assert left == [items[0], *items[2:]]
    service.campaign.database.close()


def test_items_that_the_worker_assigned_meanwhile_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = make_text_campaign(tmp_path / "texts.teeter", 100)
    campaign = Campaign.open(file)
    pick_ahead(campaign, 60)
    campaign.database.close()

    with serve_campaigns(file) as client:

        def find_none(
            campaign: Campaign, annotator: str, n: int, explanations: Mapping[str, Explanation]
        ) -> list[ShownQuestion]:
            """Find no questions, after which the worker assigns 20."""
            monkeypatch.setattr(pages, "open_questions", open_questions)
            campaign.ask(20, annotator)
            return []

        monkeypatch.setattr(pages, "open_questions", find_none)
        assert client.get("/c/texts").status_code == 200

        questions = client.get(f"{AT}/questions", params={"n": 100}).json()["questions"]
        assert len(questions) == 20


def test_a_second_annotator_makes_a_team_that_stays(
    client: TestClient, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    people = client.app.state.workspace.services["texts"].campaign.people  # type: ignore[attr-defined]
    now = 1000.0
    monkeypatch.setattr("teeter.campaigns.people.time", SimpleNamespace(monotonic=lambda: now))
    campaign = Campaign.open(file)
    campaign.tell("t1", "ham", "ann")
    assert not people.is_team()

    campaign.tell("t1", "ham", "bob")
    assert not people.is_team(), "not checked again at once"
    now += 6
    assert people.is_team()

    campaign.undo("bob")
    campaign.database.close()
    now += 6
    assert people.is_team()
