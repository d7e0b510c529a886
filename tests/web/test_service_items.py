"""What pages show of a campaign: items of a class, and predictions that stay hidden."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient

from teeter.campaigns.campaign import Campaign
from web.labelled_campaigns import (
    AT,
    LabelledCampaign,
    begin_labelled,
    get_questions,
    label_items,
    true_label,
)
from web.servers import begin, served


def test_the_pages_of_the_table_have_every_item_once(client: TestClient) -> None:
    seen: list[str] = []
    after = None
    while True:
        told = client.get(
            f"{AT}/items", params={"count": 25, **({} if after is None else {"after": after})}
        ).json()
        seen += [one["item"] for one in told["items"]]
        after = told["after"]
        if after is None:
            break
    assert len(seen) == len(set(seen)) == 121


def test_items_are_found_by_text_class_and_state(client: TestClient) -> None:
    items = label_items(client, 6)

    def found(**wanted: str) -> set[str]:
        return {
            one["item"]
            for one in client.get(f"{AT}/items", params={"count": 200, **wanted}).json()["items"]
        }

    assert found(search="NUMBER 17") == {"t17"}
    assert found(search="100%") == set()
    assert found(label="spam") == {item for item in items if true_label(item) == "spam"}
    assert found(state="labelled") == set(items)
    assert len(found(state="unlabelled")) == 115
    assert found(state="asked").isdisjoint(items)
    assert client.get(f"{AT}/items", params={"state": "lost"}).status_code == 422


def test_predictions_of_control_items_stay_hidden(labelled: LabelledCampaign) -> None:
    controls = [one for one in get_questions(labelled.client, 100) if one["arm"] == "control"]
    assert controls
    for one in controls:
        assert set(one) <= {"item", "kind", "text", "arm", "rank", "characters"}


def test_recent_answers_say_why_the_item_was_picked(client: TestClient) -> None:
    label_items(client, 3)
    client.post(f"{AT}/answers", json={"item": "t119", "label": "ham"})
    last = client.get(f"{AT}/answers").json()
    assert "rank" not in last[0], "nobody asked"
    assert all({"arm", "rank"} <= set(one) for one in last[1:])
    client.post(f"{AT}/undo", json={})
    assert {"arm", "rank"} <= set(client.post(f"{AT}/undo", json={}).json()["undone"])


def test_items_of_a_class_are_those_with_that_label(tmp_path: Path) -> None:
    file = begin(tmp_path / "texts.teeter", 30)
    campaign = Campaign.open(file)
    for k in range(12):
        campaign.tell(f"t{k}", "spam", "ann")
        campaign.tell(f"t{k}", "ham" if k % 3 == 0 else "spam", "bob")
    campaign.decide("t1", "ham", "rey")
    campaign.decide("t20", "ham", "rey")
    campaign.database.close()

    def found(client: TestClient, label: str, **more: Any) -> list[str]:
        told = client.get(f"{AT}/items", params={"label": label, **more}).json()
        return [one["item"] for one in told["items"]]

    with served(file) as client:
        ham, spam = found(client, "ham"), found(client, "spam")
        assert ham == ["t0", "t1", "t3", "t6", "t9", "t20"]
        assert spam == ["t2", "t4", "t5", "t7", "t8", "t10", "t11"]
        last = client.get(f"{AT}/items", params={"label": "spam"}).json()["items"][-1]["number"]
        for size in (1, 2, 3, 4):
            first = client.get(f"{AT}/items", params={"label": "spam", "count": size}).json()
            rest = found(client, "spam", count=50, after=first["after"])
            assert [one["item"] for one in first["items"]] + rest == spam
            assert found(client, "spam", count=size, before=last) == spam[-1 - size : -1]
        assert found(client, "nothing") == []
        assert client.get("/c/texts/items?label=ham").text.count("<tr>") == 1 + len(ham)


def test_predictions_of_shared_items_stay_hidden(tmp_path: Path) -> None:
    """Two people who are shown the same guess would agree by it."""
    file = tmp_path / "texts.teeter"
    begin_labelled(file, 40, overlap=0.5)
    with served(file) as client:
        told = [one for one in get_questions(client, 100) if one["arm"] == "picked"]
        campaign = Campaign.open(file)
        shared = [one for one in told if campaign.is_shared(one["item"])]
        assert shared
        assert len(shared) < len(told)
        for one in told:
            hidden = set(one) <= {"item", "kind", "text", "arm", "rank", "characters", "shared"}
            assert hidden == campaign.is_shared(one["item"])
        last = client.get(f"{AT}/answers").json()
        assert not any(
            {"predicted", "probability"} & set(one)
            for one in last
            if campaign.is_shared(one["item"])
        )
