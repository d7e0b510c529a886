"""The REST API: questions, answers, corrections, tables, maps and exports."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from server.labelled_campaigns import (
    AT,
    LabelledCampaign,
    get_questions,
    label_items,
    other_label,
    true_label,
)
from server.servers import HARMFUL, PATIENCE, InlineWorker, serve_campaigns, text
from teeter.campaigns.campaign import Campaign
from teeter.campaigns.records import Answer, AnswerKind
from teeter.campaigns.settings import Settings
from teeter.server.routes import api
from teeter.server.worker.background import BackgroundWorker
from teeter.server.worker.requests import EnsureQuestions, ExportLabels, FindSuspects, TaskRequest


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


def test_new_texts_are_predicted_and_not_stored(labelled: LabelledCampaign) -> None:
    texts = [text(1000), text(1001), "<b>Claim your prize</b>"]

    response = labelled.client.post(f"{AT}/predict", json={"texts": texts})

    assert response.status_code == 200
    predictions = response.json()["predictions"]
    assert [prediction["label"] for prediction in predictions] == ["spam", "ham", "spam"]
    assert all(0.5 <= prediction["probability"] <= 1 for prediction in predictions)
    assert response.json()["model"] >= 2
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


def test_an_item_has_its_content_and_answers(client: TestClient) -> None:
    (item,) = label_items(client, 1)
    described = client.get(f"{AT}/item", params={"id": item}).json()
    assert described["content"]["text"] == (HARMFUL if item == "html" else text(int(item[1:])))

    answers = [(answer["annotator"], answer["label"]) for answer in described["answers"]]
    assert answers == [("me", true_label(item))]


def test_items_are_found_by_their_index_on_the_map(client: TestClient) -> None:
    assert client.get(f"{AT}/item", params={"index": 3}).json()["item"] == "t3"
    assert client.get(f"{AT}/item", params={"index": 300}).status_code == 404
    assert client.get(f"{AT}/item").status_code == 404


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


@pytest.mark.parametrize("form", ["csv", "spreadsheet", "jsonl", "prodigy", "doccano"])
def test_exports(labelled: LabelledCampaign, form: str) -> None:
    response = labelled.client.get(f"{AT}/export", params={"form": form})
    assert response.status_code == 200
    assert "attachment" in response.headers["content-disposition"]

    if form in ("csv", "spreadsheet"):
        rows = list(csv.DictReader(io.StringIO(response.text)))
        assert len(rows) == 121
        assert sum(bool(row["label"]) for row in rows) == 40
    else:
        assert all(json.loads(line) for line in response.text.splitlines())


def test_an_export_to_a_spreadsheet_runs_no_formula(tmp_path: Path) -> None:
    campaign = Campaign.make([], ("spam", "ham"), at=tmp_path / "texts.teeter")
    campaign.add([{"id": "formula", "text": "=1+1"}, {"id": "text", "text": "1+1"}])
    campaign.database.close()

    with serve_campaigns(tmp_path / "texts.teeter") as client:
        for form, content in (("csv", "=1+1"), ("spreadsheet", "'=1+1")):
            response = client.get(f"{AT}/export", params={"form": form})
            rows = list(csv.DictReader(io.StringIO(response.text)))
            assert [row["content"] for row in rows] == [content, "1+1"]


def test_an_export_to_a_folder_is_zipped(labelled: LabelledCampaign) -> None:
    pytest.importorskip("pyarrow")
    response = labelled.client.get(f"{AT}/export?form=datasets")
    assert "train.parquet" in zipfile.ZipFile(io.BytesIO(response.content)).namelist()


def test_an_unknown_export_format_is_refused(client: TestClient) -> None:
    response = client.get(f"{AT}/export?form=punch-cards")
    assert response.status_code == 422
    assert "spreadsheet" in response.json()["detail"]


def test_suspect_labels_are_found_and_can_be_confirmed(labelled: LabelledCampaign) -> None:
    client = labelled.client
    wrong = labelled.items[5]
    answer = {"item": wrong, "label": other_label(true_label(wrong))}
    client.post(f"{AT}/answers", json=answer)

    suspects = client.get(f"{AT}/suspects?again=true").json()
    assert suspects["state"] == "done"
    assert wrong in {suspect["item"] for suspect in suspects["suspects"]}

    assert client.post(f"{AT}/keep", json={"item": wrong}).status_code == 200
    suspects = client.get(f"{AT}/suspects?again=true").json()
    assert wrong not in {suspect["item"] for suspect in suspects["suspects"]}


def test_progress_has_every_model(labelled: LabelledCampaign) -> None:
    progress = labelled.client.get(f"{AT}/progress").json()
    rounds = progress["rounds"]
    assert [model["version"] for model in rounds] == list(range(1, len(rounds) + 1))
    assert rounds[0]["kappa"] is None
    assert rounds[1]["kappa"] <= 1
    assert len(progress["times"]) == 40
    assert progress["status"]["advice"]


def test_changed_predictions_have_the_class_before_and_after(labelled: LabelledCampaign) -> None:
    response = labelled.client.get(f"{AT}/flipped", params={"count": 200})
    assert response.status_code == 200
    for change in response.json():
        assert {change["before"], change["after"]} == {"spam", "ham"}


def test_a_training_is_a_job_with_a_result(labelled: LabelledCampaign) -> None:
    started = labelled.client.post(f"{AT}/train")
    assert started.status_code == 202

    job = labelled.client.get(f"/api/v1/jobs/{started.json()['job']}").json()
    assert job["state"] == "done"
    assert job["result"]["trained"]["labels"] == 40
    assert labelled.client.get("/api/v1/jobs/guessed").status_code == 404


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


class BusyWorker(InlineWorker):
    """A worker that postpones exports until a test runs them."""

    def __init__(self) -> None:
        super().__init__()
        self.postponed: list[Callable[[], None]] = []

    def submit(self, request: TaskRequest[Any]) -> Future[Any]:
        if not isinstance(request, ExportLabels):
            return super().submit(request)

        future: Future[Any] = Future()
        submit = super().submit
        self.postponed.append(lambda: future.set_result(submit(request).result()))
        return future


def test_an_export_that_takes_too_long_does_not_stop_other_work(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "_EXPORT_SECONDS", 0.05)
    with serve_campaigns(file) as client:
        workspace = client.app.state.workspace  # type: ignore[attr-defined]
        workspace.trainer = BusyWorker()
        response = client.get(f"{AT}/export")
        assert response.status_code == 503
        assert "try again" in response.json()["detail"]

        questions = EnsureQuestions(str(file), "me", batch=5)
        assert not workspace.trainer.submit(questions).result().is_finished

        (export,) = workspace.trainer.postponed
        assert list(workspace.temp.iterdir()), "it is still to be written"
        export()
        assert not list(workspace.temp.iterdir()), "a file that no one takes is removed"


@pytest.mark.slow
def test_a_worker_process_survives_an_export_that_takes_too_long(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "_EXPORT_SECONDS", 0.0)
    with serve_campaigns(file) as client:
        workspace = client.app.state.workspace  # type: ignore[attr-defined]
        workspace.trainer = BackgroundWorker(5)
        assert client.get(f"{AT}/export").status_code == 503

        questions = EnsureQuestions(str(file), "me", batch=5)
        assert not workspace.trainer.submit(questions).result(PATIENCE).is_finished

        # Handled in its turn, after the export.
        workspace.trainer.submit(FindSuspects(str(file), count=3)).result(PATIENCE)
        assert not list(workspace.temp.iterdir()), "a file that no one takes is removed"
