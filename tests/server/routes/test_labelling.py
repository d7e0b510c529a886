"""Labelling: what is asked and why, answers and their corrections."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient

from server.labelled_campaigns import (
    AT,
    LabelledCampaign,
    get_questions,
    label_items,
    true_label,
)
from server.servers import (
    make_text_campaign,
    serve_campaigns,
    text,
)
from teeter.campaigns.asking.assignment import pick_ahead
from teeter.campaigns.asking.questions import open_questions
from teeter.campaigns.campaign import Campaign
from teeter.campaigns.classes import action_keys
from teeter.campaigns.records import Answer, AnswerKind, Explanation, ShownQuestion
from teeter.campaigns.settings import Settings
from teeter.server.routes import labelling


def test_a_question_says_why_it_was_picked(labelled: LabelledCampaign) -> None:
    questions = get_questions(labelled.client, 30)
    picked = next(question for question in questions if question["pick"]["arm"] == "picked")

    pick = picked["pick"]
    assert pick["rank"] > 0
    assert 0 < pick["scores"]["ldm"] <= 1
    assert pick["predicted"] in ("spam", "ham")
    assert 0.5 <= pick["probability"] <= 1

    explanation = picked["explanation"]
    assert abs(sum(share for _, share in explanation["probabilities"]) - 1) < 0.01
    assert {neighbour["label"] for neighbour in explanation["neighbours"]} <= {"spam", "ham"}
    assert len(explanation["neighbours"]) == 3


def test_recent_answers_can_be_changed_and_undone(client: TestClient) -> None:
    items = label_items(client, 3)
    changed = {"item": items[0], "kind": "unsure", "comment": "who knows"}
    client.post(f"{AT}/answers", json=changed)

    recent = client.get(f"{AT}/answers").json()
    assert [(answer["item"], answer["answer"]) for answer in recent][:2] == [
        (items[0], "unsure"),
        (items[2], true_label(items[2])),
    ]
    assert recent[0]["comment"] == "who knows"

    older = client.post(f"{AT}/undo", json={"number": recent[1]["number"]}).json()
    assert older is None, "only the newest answer can be undone"

    undone = client.post(f"{AT}/undo", json={"number": recent[0]["number"]}).json()
    assert undone["answer"]["item"] == items[0]
    assert undone["answer"]["kind"] == "unsure"
    assert undone["before"]["label"] == true_label(items[0])


def test_the_same_answer_sent_twice_is_stored_once(client: TestClient, file: Path) -> None:
    (item,) = label_items(client, 1)
    repeated = client.post(f"{AT}/answers", json={"item": item, "label": true_label(item)})
    receipt = repeated.json()
    assert (receipt["recorded"], receipt["labelled"]) == (False, 1)

    campaign = Campaign.open(file)
    assert len([line for line in campaign.history() if line["what"] == "answer"]) == 1
    campaign.database.close()


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"item": "t1", "label": "eggs"}, 422),
        ({"item": "t1", "label": "Spam"}, 422),
        ({"item": "unknown", "label": "spam"}, 404),
        ({"item": "t1"}, 422),
        ({"item": "t1", "kind": "skip", "label": "spam"}, 422),
        ({"item": "t1", "kind": "shout"}, 422),
        ({"item": "t1", "label": "spam", "more": 1}, 422),
        ({"item": "\ud800", "label": "spam"}, 422),
        ({"item": "t1", "label": "spam", "comment": "x" * 20_000}, 422),
    ],
)
def test_an_invalid_answer_is_refused_and_not_stored(
    client: TestClient, body: dict[str, object], status: int
) -> None:
    headers = {"content-type": "application/json"}
    response = client.post(f"{AT}/answers", content=json.dumps(body), headers=headers)
    assert response.status_code == status
    assert isinstance(response.json()["detail"], str)
    assert client.get(AT).json()["labelled"] == 0


def test_features_are_shown_as_numbers(tmp_path: Path) -> None:
    file = tmp_path / "numbers.teeter"
    campaign = Campaign.make(
        [], ("a", "b"), at=file, name="numbers", settings=Settings(kind="features")
    )
    vectors = np.random.default_rng(0).normal(size=(40, 5))
    campaign.add({"id": f"n{row}", "features": vectors[row]} for row in range(40))
    campaign.database.close()

    with serve_campaigns(file) as client:
        client.get("/api/v1/campaigns/numbers/questions")
        response = client.get("/api/v1/campaigns/numbers/questions")
        content = response.json()["questions"][0]["content"]
        assert content["kind"] == "features"
        assert len(content["features"]) == 5


def test_only_items_that_others_hold_are_said_to_come_back(tmp_path: Path) -> None:
    campaign = Campaign.make([], ("spam", "ham"), at=tmp_path / "texts.teeter")
    campaign.add({"id": f"t{number}", "text": text(number)} for number in range(4))

    with serve_campaigns(tmp_path / "texts.teeter") as client:
        held = [question.item for question in campaign.ask(4, "ann")]
        assert not get_questions(client)
        questions = client.get(f"{AT}/questions").json()
        assert (questions["finished"], questions["held_by_others"]) == (True, 4)

        for item in held:
            campaign.answer(Answer(item, "ann", AnswerKind.UNSURE))
        questions = client.get(f"{AT}/questions").json()
        assert questions["held_by_others"] == 0
    campaign.database.close()


def test_no_answer_is_acknowledged_for_a_file_that_is_gone(client: TestClient, file: Path) -> None:
    items = [str(question["item"]) for question in get_questions(client)]
    answer = {"item": items[0], "label": "spam"}
    assert client.post(f"{AT}/answers", json=answer).status_code == 200

    moved = file.rename(file.with_name("gone.teeter"))
    for path, body in (
        ("answers", {"item": items[1], "label": "spam"}),
        ("undo", {"number": 1}),
        ("keep", {"item": items[0]}),
    ):
        response = client.post(f"{AT}/{path}", json=body)
        assert response.status_code == 503, path
        detail = response.json()["detail"]
        assert detail.startswith("texts.teeter was moved or removed while it was in use")

    for page in ("", "/progress", "/items"):
        assert client.get(f"/c/texts{page}").status_code == 503
    assert not file.exists(), "no empty file takes its place"

    moved.rename(file)
    assert client.post(f"{AT}/answers", json=answer).json()["recorded"] is False


def test_an_undo_that_is_sent_again_takes_back_one_answer(client: TestClient) -> None:
    for item in ("t1", "t2"):
        answered = client.post(f"{AT}/answers", json={"item": item, "label": "ham"})
    number = {"number": answered.json()["number"]}

    first = client.post(f"{AT}/undo", json=number)
    repeated = client.post(f"{AT}/undo", json=number)

    assert first.json() == repeated.json()
    assert first.json()["answer"]["item"] == "t2"
    assert client.get(AT).json()["labelled"] == 1
    assert client.post(f"{AT}/undo", json={}).status_code == 422, "an undo names an answer"


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
            monkeypatch.setattr(labelling, "open_questions", open_questions)
            campaign.ask(20, annotator)
            return []

        monkeypatch.setattr(labelling, "open_questions", find_none)
        assert client.get("/c/texts").status_code == 200

        questions = client.get(f"{AT}/questions", params={"n": 100}).json()["questions"]
        assert len(questions) == 20


def find_action_keys(page: str) -> dict[str, str]:
    """Return the key of each action button of the labelling page."""
    return dict(re.findall(r'data-do="(\w+)" data-key="([^"]+)"', page))


def test_the_buttons_have_the_keys_of_the_terminal(client: TestClient) -> None:
    keys = {str(action): key for action, key in action_keys().items()}
    # The terminal offers no near copies, and a checkbox has their key.
    del keys["stop"], keys["copies"]
    assert find_action_keys(client.get("/c/texts/review").text) == keys

    page = client.get("/c/texts").text
    assert find_action_keys(page) == {name: key for name, key in keys.items() if name != "keep"}
    assert "<kbd>Space</kbd> Skip" in page
    assert "data-always" not in page


def test_with_more_classes_than_keys_actions_have_capitals(tmp_path: Path) -> None:
    path = tmp_path / "many.teeter"
    Campaign.make(
        ["one", "two"], [f"class {number}" for number in range(34)], at=path
    ).database.close()
    with serve_campaigns(path) as client:
        page = client.get("/c/many").text
    keys = find_action_keys(page)
    assert (keys["unsure"], keys["flag"], keys["undo"]) == ("U", "F", "Backspace")
    assert "<kbd>Shift U</kbd> Unsure" in page
    assert "data-always" in page


def test_two_browsers_that_answer_as_me_are_told(client: TestClient) -> None:
    warning = "Another browser is here as me, too."
    assert warning not in client.get("/c/texts").text
    assert warning not in client.get("/c/texts").text

    first_cookies = dict(client.cookies)
    client.cookies.clear()
    second = client.get("/c/texts").text
    assert warning in second
    assert "choose your own name at the top right" in second

    client.cookies.clear()
    client.cookies.update(first_cookies)
    assert warning in client.get("/c/texts").text
