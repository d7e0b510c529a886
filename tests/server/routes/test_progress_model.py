"""Models over REST and on the page: trained, encoded for, and used on new texts."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from server.labelled_campaigns import (
    AT,
    LabelledCampaign,
    label_items,
)
from server.servers import (
    make_image_campaign,
    serve_campaigns,
    text,
)
from teeter.campaigns.campaign import Campaign
from teeter.classifier import load_classifier


def test_new_texts_are_predicted_and_not_stored(labelled: LabelledCampaign) -> None:
    texts = [text(1000), text(1001), "<b>Claim your prize</b>"]

    response = labelled.client.post(f"{AT}/predict", json={"texts": texts})

    assert response.status_code == 200
    predictions = response.json()
    assert [prediction["label"] for prediction in predictions] == ["spam", "ham", "spam"]
    assert all(0.5 <= prediction["probability"] <= 1 for prediction in predictions)
    assert int(response.headers["x-model-version"]) >= 2
    assert labelled.client.get(AT).json()["items"] == 121


@pytest.mark.parametrize("body", [{}, {"texts": []}, {"texts": [1]}, {"texts": ["a"] * 1001}])
def test_a_request_for_predictions_is_checked(
    body: dict[str, Any], labelled: LabelledCampaign
) -> None:
    assert labelled.client.post(f"{AT}/predict", json=body).status_code == 422


def test_without_a_model_nothing_is_predicted(client: TestClient) -> None:
    response = client.post(f"{AT}/predict", json={"texts": ["free cash"]})
    assert response.status_code == 422
    assert "There is no model yet" in response.json()["detail"]


def test_labelled_items_are_counted_and_models_are_trained(labelled: LabelledCampaign) -> None:
    assert len(set(labelled.items)) == 40
    campaign = Campaign.open(labelled.file)
    assert campaign.status().labelled == 40
    assert campaign.status().version >= 2, "models were trained meanwhile"
    campaign.database.close()

    described = labelled.client.get(AT).json()
    assert (described["labelled"], described["items"]) == (40, 121)
    assert described["classes"] == [
        {"name": "spam", "shortcut": "1", "description": "", "examples": []},
        {"name": "ham", "shortcut": "2", "description": "", "examples": []},
    ]


def test_a_training_is_a_job_with_a_result(labelled: LabelledCampaign) -> None:
    started = labelled.client.post(f"{AT}/train")
    assert started.status_code == 202

    job = labelled.client.get(f"/api/v1/jobs/{started.json()['job']}").json()
    assert job["state"] == "done"
    assert job["result"]["labels"] == 40
    assert labelled.client.get("/api/v1/jobs/guessed").status_code == 404


def test_training_on_demand_answers_with_a_sentence(client: TestClient) -> None:
    assert "two classes" in client.post("/c/texts/train").text
    label_items(client, 10)
    assert "is being trained" in client.post("/c/texts/train").text


@pytest.mark.slow
def test_the_encoder_is_switched_on_the_page_of_the_model(labelled: LabelledCampaign) -> None:
    page = labelled.client.get("/c/texts/model").text
    assert "<option selected>tfidf</option>" in page
    assert "<option >pixels</option>" not in page, "these items are texts"

    assert 'data-api="/api/v1/campaigns/texts/encode"' in page
    assert "being encoded in the background" in page
    body = {"encoder": "tfidf+tfidf"}
    response = labelled.client.post("/api/v1/campaigns/texts/encode", json=body)
    assert response.status_code == 202

    page = labelled.client.get("/c/texts/model").text
    assert "With tfidf+tfidf, models correctly predict" in page
    assert "The encoder is <b>tfidf+tfidf</b>." in page


def test_a_server_encodes_the_items_that_are_left(tmp_path: Path) -> None:
    path = tmp_path / "texts.teeter"
    texts = [f"text number {k}" for k in range(40)]
    Campaign.make(texts, ("a", "b"), at=path, encode_now=False).database.close()

    with serve_campaigns(path) as client:
        assert "40 items are not encoded yet." in client.get("/c/texts/progress").text
        assert "when all items are encoded" in client.post("/c/texts/train").text
        client.app.state.workspace.warm_up([path])  # type: ignore[attr-defined]
        assert "not encoded yet" not in client.get("/c/texts/progress").text


def test_an_encoder_that_runs_code_is_refused_on_the_page(client: TestClient) -> None:
    for name in ("os:system", "http://127.0.0.1/v1#m"):
        refused = client.post("/api/v1/campaigns/texts/encode", json={"encoder": name})
        assert refused.status_code == 422
        assert "The page does not offer the encoder" in refused.json()["detail"]


def test_an_encoding_is_a_job_with_a_result(client: TestClient) -> None:
    started = client.post("/api/v1/campaigns/texts/encode", json={"encoder": "tfidf+tfidf"})
    assert started.status_code == 202

    job = client.get(f"/api/v1/jobs/{started.json()['job']}").json()

    assert job["state"] == "done"
    result = job["result"]
    assert (result["encoder"], result["encoded"], result["unreadable"]) == ("tfidf+tfidf", 121, 0)
    assert (result["is_switch"], result["unencoded"]) == (True, 0)


# Files that the model labels


def label_rows(client: TestClient, name: str, content: bytes, text: str = "") -> dict[str, Any]:
    """Upload a file, and return the job that labels its rows."""
    response = client.post(
        f"{AT}/predict/file", files={"file": (name, content)}, data={"text": text}
    )
    assert response.status_code == 202
    job: dict[str, Any] = client.get(f"/api/v1/jobs/{response.json()['job']}").json()
    return job


@pytest.mark.parametrize(
    ("name", "content", "first"),
    [
        ("new.csv", f"n,text\n007,{text(1000)}\n", f"007,{text(1000)},spam,"),
        ("new.tsv", f"n\ttext\n007\t{text(1000)}\n", f"007,{text(1000)},spam,"),
        ("new.jsonl", f'{{"n": 7, "text": "{text(1000)}"}}\n', '"predicted": "spam", "confid'),
    ],
)
def test_a_file_is_labelled_and_comes_back_in_its_format(
    labelled: LabelledCampaign, name: str, content: str, first: str
) -> None:
    client = labelled.client

    job = label_rows(client, name, content.encode())

    assert job["state"] == "done", job
    result = job["result"]
    assert (result["rows"], len(result["sentences"])) == (1, 1)
    assert "1 row is labelled by model " in result["sentences"][0]
    labelled_file = client.get(f"{AT}/predict/file/{result['file']}")
    assert first in labelled_file.text
    suffix = ".jsonl" if name.endswith("jsonl") else ".csv"
    assert f'filename="new-labelled{suffix}"' in labelled_file.headers["content-disposition"]
    assert client.get(AT).json()["items"] == 121, "nothing is added"


def test_a_file_without_a_clear_column_says_what_it_has(labelled: LabelledCampaign) -> None:
    content = f"subject,words\nhello,{text(1000)}\n".encode()

    job = label_rows(labelled.client, "new.csv", content)
    assert job["state"] == "failed"
    assert "subject" in job["detail"]
    assert "teeter-serve" not in job["detail"], "no folder of the server is named"

    assert label_rows(labelled.client, "new.csv", content, text="words")["state"] == "done"


def test_a_labelled_file_is_only_for_who_uploaded_it(labelled: LabelledCampaign) -> None:
    job = label_rows(labelled.client, "new.csv", f"text\n{text(1)}\n".encode())
    address = f"{AT}/predict/file/{job['result']['file']}"
    assert labelled.client.get(address).status_code == 200

    labelled.client.post("/name", data={"annotator": "eve", "csrf": csrf_of(labelled.client)})
    assert labelled.client.get(address).status_code == 404
    assert labelled.client.get(f"{AT}/predict/file/nothing").status_code == 404


def csrf_of(client: TestClient) -> str:
    return str(client.get("/api/v1/session").json()["csrf"])


def test_a_zip_of_images_is_labelled(tmp_path: Path) -> None:
    path = make_image_campaign(tmp_path / "texts.teeter", tmp_path / "digits", 30)
    campaign = Campaign.open(path)
    for number in range(12):
        campaign.tell(f"{number:03}.png", ("even", "odd")[number % 2])
    campaign.train()
    campaign.database.close()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for number in (3, 4):
            archive.write(tmp_path / "digits" / f"{number:03}.png", f"new/{number}.png")

    with serve_campaigns(path) as client:
        assert ".zip of images" in client.get("/c/texts/model").text
        job = label_rows(client, "photos.zip", packed.getvalue())
        assert job["state"] == "done", job
        rows = client.get(f"{AT}/predict/file/{job['result']['file']}").text.splitlines()
    assert rows[0] == "image,predicted,confidence,model"
    assert [row.split(",")[0] for row in rows[1:]] == ["new/3.png", "new/4.png"]


def test_the_model_is_downloaded_and_labels_without_the_campaign(
    labelled: LabelledCampaign, tmp_path: Path
) -> None:
    assert 'href="/c/texts/model/file"' in labelled.client.get("/c/texts/model").text
    response = labelled.client.get(f"{AT}/model")
    assert 'filename="texts-model.zip"' in response.headers["content-disposition"]

    with zipfile.ZipFile(io.BytesIO(response.content)) as archive:
        archive.extractall(tmp_path / "model")
    classifier = load_classifier(tmp_path / "model")
    assert classifier.predict([text(1000), text(1001)]) == ["spam", "ham"]


def test_without_a_model_there_is_none_to_download(client: TestClient) -> None:
    assert client.get(f"{AT}/model").status_code == 422
    page = client.get("/c/texts/model").text
    assert "No model is trained yet." in page
    assert "Label the file" not in page
