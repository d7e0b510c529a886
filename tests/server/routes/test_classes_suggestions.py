"""Classes and suggestions over HTTP: described, uploaded, shown on picked items, and measured."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from campaigns.fake_language_model import FakeLanguageModel, fake_language_model
from server.labelled_campaigns import (
    AT,
    LabelledCampaign,
    get_questions,
    true_label,
)
from server.servers import (
    PATIENCE,
    make_text_campaign,
    serve_campaigns,
)
from teeter.campaigns.campaign import Campaign
from teeter.campaigns.suggestions.language_model import LanguageModel
from teeter.campaigns.suggestions.sources import is_answered_blind

PAGE = "/c/texts"


def predictions_csv(file: Path, wrong: int = 0) -> str:
    """Return predictions of all items, the first of which are wrong."""
    campaign = Campaign.open(file)
    with campaign.reading() as view:
        items = [item.item_id for item in view.items.all()]
    campaign.database.close()

    lines = ["id,label,probability"]
    for number, item in enumerate(items):
        label = true_label(item)
        if number < wrong:
            label = "ham" if label == "spam" else "spam"
        lines.append(f"{item},{label},0.75")
    return "\n".join(lines)


def upload(client: TestClient, content: str, source: str = "old model") -> object:
    files = {"file": ("old.csv", content.encode(), "text/csv")}
    return client.post(f"{AT}/predictions", files=files, data={"source": source})


def test_suggestions_are_shown_on_picked_items_only(labelled: LabelledCampaign) -> None:
    client = labelled.client
    response = upload(client, predictions_csv(labelled.file))
    assert response.status_code == 200, response.text  # type: ignore[attr-defined]

    questions = get_questions(client, 100)
    assert any(question["pick"]["arm"] == "control" for question in questions)
    for question in questions:
        is_blind = question["pick"]["arm"] != "picked" or is_answered_blind(question["item"], 0)
        if is_blind:
            assert question["suggestion"] is None
        else:
            suggestion = question["suggestion"]
            assert suggestion["source"] == "old model"
            assert suggestion["label"] == true_label(question["item"])
            assert suggestion["probability"] == 0.75

    (source,) = client.get(f"{AT}/sources").json()
    assert source["items"] == 121
    assert source["accuracy"]["share"] == 1.0, "measured on control items that were labelled before"


def test_an_answer_says_what_was_shown(labelled: LabelledCampaign) -> None:
    client = labelled.client
    upload(client, predictions_csv(labelled.file, wrong=121))
    shown = [question for question in get_questions(client, 100) if question["suggestion"]]
    for number, question in enumerate(shown[:6]):
        suggestion = question["suggestion"]
        # Accepts two wrong suggestions, and corrects the others.
        label = suggestion["label"] if number < 2 else true_label(question["item"])
        body = {
            "item": question["item"],
            "label": label,
            "suggestion": {"source": suggestion["source"], "label": suggestion["label"]},
        }
        assert client.post(f"{AT}/answers", json=body).json()["recorded"]

    (source,) = client.get(f"{AT}/sources").json()
    assert (source["shown"]["total"], round(source["shown"]["share"], 3)) == (6, 0.333)
    assert source["blind"]["share"] == 0.0, "answers from before the suggestions"

    team = client.get(f"{PAGE}/team").text
    assert "agreement, shown" in team
    assert "agreement, blind" in team
    assert "old model" in team


def test_an_upload_says_which_predictions_are_left_out(labelled: LabelledCampaign) -> None:
    content = predictions_csv(labelled.file) + "\nelsewhere,spam,0.5\nt0x,spam,0.5\n"
    stored: Any = upload(labelled.client, content)
    assert stored.json()["sentences"] == [
        "Added 121 suggestions by old model.",
        "Left out 2 predictions for items that the campaign does not have.",
    ]


def test_the_labelling_page_has_a_switch_only_if_there_are_suggestions(
    labelled: LabelledCampaign,
) -> None:
    assert 'id="suggest"' not in labelled.client.get(PAGE).text
    upload(labelled.client, predictions_csv(labelled.file))
    page = labelled.client.get(PAGE).text
    assert 'id="suggest"' in page
    assert "are sent to" not in page, "no language model is asked"


def test_wrong_uploads_are_refused_in_one_sentence(client: TestClient) -> None:
    response = upload(client, "id,label\nx,spam\n")
    assert response.status_code == 422  # type: ignore[attr-defined]
    assert "No prediction is for an item" in response.json()["detail"]  # type: ignore[attr-defined]

    response = upload(client, "id,label,probability\nx,spam,200\n")
    detail = response.json()["detail"]  # type: ignore[attr-defined]
    assert "must be a number from 0 to 1" in detail
    assert "/" not in detail, "no path of the server"

    response = upload(client, "id\n1\n", "<script>")
    assert response.status_code == 422  # type: ignore[attr-defined]
    assert "Cannot find a prediction" in response.json()["detail"]  # type: ignore[attr-defined]


def test_a_source_is_removed(labelled: LabelledCampaign) -> None:
    client = labelled.client
    upload(client, predictions_csv(labelled.file))
    removed = client.post(f"{AT}/sources/remove", json={"name": "old model"})
    assert removed.json() == [], "none is left"
    assert client.get(f"{AT}/sources").json() == []
    repeated = client.post(f"{AT}/sources/remove", json={"name": "old model"})
    assert repeated.json() == [], "sent again"
    assert client.post(f"{AT}/sources/remove", json={"name": "lost"}).status_code == 422


def test_without_a_language_model_no_text_leaves_the_server(client: TestClient) -> None:
    response = client.post(f"{AT}/suggest", json={})
    assert response.status_code == 422
    assert "name one in the file of teeter serve --settings" in response.json()["detail"]
    assert "Send all texts" not in client.get(f"{PAGE}/classes").text


@pytest.fixture
def llm() -> Iterator[FakeLanguageModel]:
    with fake_language_model() as running:
        yield running


@pytest.mark.slow
def test_a_server_asks_its_language_model_about_the_next_items_and_then_about_all(
    tmp_path: Path, llm: FakeLanguageModel
) -> None:
    path = make_text_campaign(tmp_path / "texts.teeter")
    model = LanguageModel(llm.url, "tiny", input_price=1, output_price=1, budget=100)
    with serve_campaigns(path, language_model=model) as client:
        assert len(get_questions(client)) > 0
        wait_until(lambda: len(llm.requests) > 0)
        asked_first = len(set(llm.texts))
        assert asked_first < 121, "only about items that annotators get next"

        page = client.get(f"{PAGE}/classes").text
        assert f"127.0.0.1:{llm.server_address[1]}" in page
        started = client.post(f"{AT}/suggest", json={}).json()
        assert started == {"source": "tiny", "sent_to": f"127.0.0.1:{llm.server_address[1]}"}
        wait_until(lambda: client.get(f"{AT}/sources").json()[0]["items"] == 121)

        (source,) = client.get(f"{AT}/sources").json()
        usage = source["usage"]
        assert usage["input_tokens"] + usage["output_tokens"] == 121 * 110
        assert source["remaining_budget"] == pytest.approx(100 - 121 * 110 / 1e6)
        labelling = client.get(PAGE).text
        assert "are sent to" in labelling
        assert json.loads(json.dumps(source))["sent_to"].startswith("127.0.0.1")
    assert max(llm.charged.values()) == 1


@pytest.mark.slow
def test_a_language_model_in_trouble_is_reported_on_the_page(
    tmp_path: Path, llm: FakeLanguageModel
) -> None:
    path = make_text_campaign(tmp_path / "texts.teeter")
    llm.statuses = [401] * 100
    with serve_campaigns(path, language_model=LanguageModel(llm.url, "tiny")) as client:
        get_questions(client)
        wait_until(lambda: "rejected the key" in client.get(f"{PAGE}/classes").text)
        assert get_questions(client), "people can go on labelling"


def wait_until(is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if is_true():
            return
        time.sleep(0.05)
    raise AssertionError("it did not happen in time")
