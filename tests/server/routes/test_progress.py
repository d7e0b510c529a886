"""Progress and the map: over REST and on their pages."""

from __future__ import annotations

import html
import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient
from safetensors.numpy import save

from server.labelled_campaigns import (
    AT,
    LabelledCampaign,
    label_items,
)
from server.servers import (
    make_text_campaign,
    serve_campaigns,
)
from teeter.campaigns.campaign import Campaign
from teeter.campaigns.learning.stopping import estimate_accuracy
from teeter.campaigns.records import ClassAccuracy
from teeter.campaigns.review.review import Review
from teeter.campaigns.store.queries.answers import AnswerQueries
from teeter.campaigns.store.queries.trained_models import ModelQueries


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
        # A holdout that has hardly been labelled: the larger control set counts.
        counts = {"holdout": [0, 1], "control": [9, 12], "strata": [[1.0, 9, 12]]}
        facts = json.dumps({**json.loads(stored), **counts})
        database.execute("update models set facts = ?", [facts])
        database.commit()

    progress = labelled.client.get(f"{AT}/progress").json()
    last_round = progress["rounds"][-1]
    assert last_round["accuracy"]["share"] == 9 / 12
    assert last_round["accuracy"]["total"] == 12
    assert (last_round["holdout"], last_round["control"]) == ([0, 1], [9, 12])
    assert progress["status"]["accuracy"]["right"] == 9


def test_progress_has_every_model(labelled: LabelledCampaign) -> None:
    progress = labelled.client.get(f"{AT}/progress").json()
    rounds = progress["rounds"]
    assert [model["version"] for model in rounds] == list(range(1, len(rounds) + 1))
    assert rounds[0]["kappa"] is None
    assert rounds[1]["kappa"] <= 1
    assert len(progress["times"]) == 40
    assert progress["status"]["advice"]


def test_an_unchanged_part_is_not_sent_again(labelled: LabelledCampaign) -> None:
    client = labelled.client
    htmx = {"hx-request": "true"}
    part = client.get("/c/texts/progress", headers=htmx).text
    again = re.search(r'hx-get="(/c/texts/progress[^"]+)"', part)
    assert again is not None
    assert client.get(again[1], headers=htmx).status_code == 204
    assert client.get(again[1]).status_code == 200, "the page itself is always sent"

    label_items(client, 1)
    assert client.get(again[1], headers=htmx).status_code == 200


def test_classes_that_are_mistaken_for_others_link_to_the_items(
    labelled: LabelledCampaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = labelled.client.get(f"{AT}/confusion").json()
    assert [row["label"] for row in rows] == ["spam", "ham"]
    model = labelled.client.get(f"{AT}/progress").json()["rounds"][-1]
    assert sum(sum(row["predicted"].values()) for row in rows) == model["control"][1]

    accuracy = estimate_accuracy(2, 5)
    confusion = [
        ClassAccuracy("spam", {"ham": 3, "spam": 2}, accuracy),
        ClassAccuracy("ham", {}, None),
    ]
    monkeypatch.setattr(Review, "confusion", lambda _: confusion)
    page = labelled.client.get("/c/texts/progress").text
    assert (
        'find?label=spam&amp;predicted=ham" aria-label="3 of class spam predicted as ham"' in page
    )
    assert "<b>40%</b>" in page
    assert "not measured" in page
    assert "5 random items, predicted by models" in page
    assert "They are few" in page

    monkeypatch.setattr("teeter.server.routes.progress._MOST_COLUMNS", 1)
    page = labelled.client.get("/c/texts/progress").text
    assert 'predicted=ham">ham</a> 3</td>' in page


def test_the_page_says_in_one_sentence_whether_to_stop(labelled: LabelledCampaign) -> None:
    status = labelled.client.get(f"{AT}/progress").json()["status"]
    page = labelled.client.get("/c/texts/progress").text
    assert f"<p>{status['advice'][0]}</p>\n    <details><summary>Why" in html.unescape(page)


def test_answers_in_bulk_that_were_checked_are_named(
    labelled: LabelledCampaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "in bulk" not in labelled.client.get("/c/texts/progress").text
    monkeypatch.setattr(AnswerQueries, "bulk_checks", lambda _: [("spam", "spam")] * 9)
    page = labelled.client.get("/c/texts/progress").text
    assert "9 of 9 answers in bulk were confirmed when asked again blind" in page


def test_changed_predictions_have_the_class_before_and_after(labelled: LabelledCampaign) -> None:
    response = labelled.client.get(f"{AT}/flipped", params={"count": 200})
    assert response.status_code == 200
    for change in response.json():
        assert {change["before"], change["after"]} == {"spam", "ham"}


def test_changed_predictions_of_withdrawn_items_are_not_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    campaign = Campaign.open(make_text_campaign(tmp_path / "texts.teeter", 4))
    predicted = np.zeros(4, dtype=np.int16)
    weights = [save({"predicted": predicted + 1}), save({"predicted": predicted})]
    monkeypatch.setattr(ModelQueries, "newest_weights", lambda *_: weights)
    items = [change.item for change in campaign.items.changed_predictions()]

    campaign.items.withdraw([items[1]])

    left = [change.item for change in campaign.items.changed_predictions()]
    assert left == [items[0], *items[2:]]
    campaign.database.close()


def test_going_back_in_the_history_loads_the_whole_page(client: TestClient) -> None:
    restored = {"hx-request": "true", "hx-history-restore-request": "true"}
    for page in ("items?search=17", "progress"):
        assert "<html" in client.get(f"/c/texts/{page}", headers=restored).text
        part = client.get(f"/c/texts/{page}", headers={"hx-request": "true"}).text
        assert "<html" not in part
    assert "t17" in client.get("/c/texts/find?search=17", headers={"hx-request": "true"}).text


def test_the_map_has_every_item(labelled: LabelledCampaign) -> None:
    client = labelled.client
    client.get(f"{AT}/map")  # has it drawn
    response = client.get(f"{AT}/map")
    assert response.status_code == 200

    (count,) = np.frombuffer(response.content[:4], "<i4")
    assert count == 121
    for column in range(2):
        offset = 4 + 4 * count * column
        assert np.isfinite(np.frombuffer(response.content, "<f4", count, offset)).all()
    predicted = np.frombuffer(response.content, "<i4", count, 4 + 8 * count)
    assert set(predicted) <= {0, 1}

    client.get(f"{AT}/map?kind=ldm")
    ldm = np.frombuffer(client.get(f"{AT}/map?kind=ldm").content, "<f4", count, 4)
    assert ((ldm >= 0) & (ldm <= 1)).all()

    assert len(client.get(f"{AT}/labels").json()["labels"]) == 40


def test_a_map_by_t_sne(client: TestClient) -> None:
    pytest.importorskip("openTSNE")
    client.get(f"{AT}/map?kind=tsne")
    assert client.get(f"{AT}/map?kind=tsne").status_code == 200
