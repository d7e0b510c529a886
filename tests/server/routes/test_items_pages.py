"""What pages show of items: searches, labels, and predictions that stay hidden."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from server.labelled_campaigns import (
    AT,
    LabelledCampaign,
    get_questions,
    label_items,
    make_labelled_campaign,
    true_label,
)
from server.servers import make_text_campaign, serve_campaigns
from teeter.campaigns.campaign import Campaign


def find_items(client: TestClient, **query: Any) -> list[str]:
    """Return the ids of the items that a query finds."""
    response = client.get(f"{AT}/items", params={"count": 200, **query})
    return [row["item"] for row in response.json()["items"]]


def is_prediction_hidden(question: dict[str, Any]) -> bool:
    """Return whether a question says nothing about what the model makes of it."""
    assert set(question) == {"item", "content", "pick", "copies", "suggestion", "explanation"}
    assert not question["copies"], "these items have no near copies"
    assert set(question["content"]) == {"kind", "text", "characters", "features", "columns"}
    pick = question["pick"]
    assert set(pick) == {
        *("arm", "rank", "is_shared", "is_sample", "is_counted"),
        *("scores", "predicted", "probability"),
    }

    assert question["suggestion"] is None, "the campaign has no source of suggestions"
    hidden = (pick["scores"], pick["predicted"], pick["probability"], question["explanation"])
    return hidden == ({}, None, None, None)


def test_the_pages_of_the_table_have_every_item_once(client: TestClient) -> None:
    items: list[str] = []
    query = {"count": 25}
    while True:
        page = client.get(f"{AT}/items", params=query).json()
        items += [row["item"] for row in page["items"]]
        if page["after"] is None:
            break
        query["after"] = page["after"]

    assert len(items) == len(set(items)) == 121


def test_items_are_found_by_text_class_and_state(client: TestClient) -> None:
    items = label_items(client, 6)

    assert find_items(client, search="NUMBER 17") == ["t17"]
    assert find_items(client, search="100%") == []

    spam = {item for item in items if true_label(item) == "spam"}
    assert set(find_items(client, label="spam")) == spam
    assert set(find_items(client, state="labelled")) == set(items)
    assert len(find_items(client, state="unlabelled")) == 115
    assert set(find_items(client, state="asked")).isdisjoint(items)
    assert client.get(f"{AT}/items", params={"state": "lost"}).status_code == 422


def test_withdrawn_items_are_listed_and_counted_by_themselves(client: TestClient) -> None:
    labelled = label_items(client, 6)
    unlabelled = find_items(client, state="unlabelled")
    withdrawn = [labelled[0], unlabelled[-1]]
    client.post(f"{AT}/items/withdraw", json={"items": withdrawn})

    assert set(find_items(client, state="withdrawn")) == set(withdrawn)
    assert len(find_items(client)) == 121, "all items are listed"
    assert set(find_items(client, state="labelled")) == set(labelled[1:])
    assert len(find_items(client, state="unlabelled")) == 114
    described = client.get(AT).json()
    assert (described["items"], described["labelled"]) == (119, 5)

    on_map = client.get(f"{AT}/labels").json()
    assert len(on_map["labels"]) == 5
    indices = on_map["withdrawn"]
    shown = {client.get(f"{AT}/item", params={"index": index}).json()["item"] for index in indices}
    assert shown == set(withdrawn)


def test_items_of_a_class_are_those_with_that_label(tmp_path: Path) -> None:
    file = make_text_campaign(tmp_path / "texts.teeter", 30)
    campaign = Campaign.open(file)
    for number in range(12):
        campaign.tell(f"t{number}", "spam", "ann")
        campaign.tell(f"t{number}", "ham" if number % 3 == 0 else "spam", "bob")
    campaign.review.decide("t1", "ham", "rey")
    campaign.review.decide("t20", "ham", "rey")
    campaign.database.close()

    with serve_campaigns(file) as client:
        ham = find_items(client, label="ham")
        spam = find_items(client, label="spam")
        assert ham == ["t0", "t1", "t3", "t6", "t9", "t20"]
        assert spam == ["t2", "t4", "t5", "t7", "t8", "t10", "t11"]

        for size in (1, 2, 3, 4):
            first = client.get(f"{AT}/items", params={"label": "spam", "count": size}).json()
            rest = find_items(client, label="spam", count=50, after=first["after"])
            assert [row["item"] for row in first["items"]] + rest == spam

            assert find_items(client, label="spam", count=size, offset=2) == spam[2 : 2 + size]

        assert find_items(client, label="nothing") == []
        assert client.get("/c/texts/find?label=ham").text.count("<tr>") == 1 + len(ham)


@pytest.mark.slow
def test_predictions_of_control_items_stay_hidden(labelled: LabelledCampaign) -> None:
    questions = get_questions(labelled.client, 100)
    controls = [question for question in questions if question["pick"]["arm"] == "control"]
    assert controls
    assert all(is_prediction_hidden(question) for question in controls)


@pytest.mark.slow
def test_predictions_of_shared_items_stay_hidden(tmp_path: Path) -> None:
    """Two annotators who see the same prediction would agree because of it."""
    file = tmp_path / "texts.teeter"
    make_labelled_campaign(file, 40, overlap=0.5)
    with serve_campaigns(file) as client:
        questions = get_questions(client, 100)
        picked = [question for question in questions if question["pick"]["arm"] == "picked"]

        campaign = Campaign.open(file)
        shared = [question for question in picked if campaign.settings.is_shared(question["item"])]
        assert 0 < len(shared) < len(picked)
        for question in picked:
            assert question["pick"]["is_shared"] == campaign.settings.is_shared(question["item"])
            assert is_prediction_hidden(question) == campaign.settings.is_shared(question["item"])

        for answer in client.get(f"{AT}/answers").json():
            if campaign.settings.is_shared(answer["item"]):
                assert answer["pick"]["predicted"] is None
                assert answer["pick"]["probability"] is None
        campaign.database.close()


def test_recent_answers_say_why_the_item_was_picked(client: TestClient) -> None:
    label_items(client, 3)
    client.post(f"{AT}/answers", json={"item": "t119", "label": "ham"})

    recent = client.get(f"{AT}/answers").json()
    assert recent[0]["pick"] is None, "no one was asked about it"
    assert all(answer["pick"]["rank"] > 0 for answer in recent[1:])


def test_long_texts_are_cut(tmp_path: Path) -> None:
    campaign = Campaign.make([], ("spam", "ham"), at=tmp_path / "texts.teeter")
    campaign.add([{"id": "long", "text": "x" * 30_000}, {"id": "short", "text": "y"}])
    campaign.database.close()

    with serve_campaigns(tmp_path / "texts.teeter") as client:
        cut = client.get(f"{AT}/item", params={"id": "long"}).json()["content"]
        assert (len(cut["text"]), cut["characters"]) == (20_000, 30_000)
        uncut = client.get(f"{AT}/item", params={"id": "short"}).json()["content"]
        assert (uncut["text"], uncut["characters"]) == ("y", None)
