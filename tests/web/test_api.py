"""The REST interface: questions, answers, corrections, tables, maps and exports."""

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

from teeter.campaigns.campaign import Campaign, Settings
from teeter.web import api
from teeter.web.background import BackgroundWorker
from teeter.web.background_requests import (
    DrawMap,
    EnsureQuestions,
    ExportLabels,
    FindSuspects,
    MapKind,
    TaskRequest,
)
from web.labelled_campaigns import AT, LabelledCampaign, get_questions, label_items, true_label
from web.servers import HARMFUL, PATIENCE, InlineWorker, make_text_campaign, serve_campaigns, text


def test_questions_wait_and_answers_stay(labelled: LabelledCampaign) -> None:
    assert len(set(labelled.items)) == 40
    campaign = Campaign.open(labelled.file)
    assert campaign.status().labelled == 40
    assert campaign.status().version >= 2, "a model was trained on the way"
    campaign.database.close()
    told = labelled.client.get(AT).json()
    assert (told["labelled"], told["items"]) == (40, 121)
    assert [one["key"] for one in told["classes"]] == ["1", "2"]


def test_a_question_says_why(labelled: LabelledCampaign) -> None:
    by_arm: dict[str, Any] = {}
    for one in get_questions(labelled.client, 30):
        by_arm.setdefault(one["arm"], one)
    one = by_arm["picked"]
    assert {"ldm", "rank", "predicted", "probability"} <= set(one)
    assert abs(sum(share for _, share in one["probabilities"]) - 1) < 0.01
    assert {near["label"] for near in one["neighbours"]} <= {"spam", "ham"}
    assert len(one["neighbours"]) == 3


def test_the_last_answers_can_be_corrected_and_taken_back(client: TestClient) -> None:
    items = label_items(client, 3)
    client.post(f"{AT}/answers", json={"item": items[0], "kind": "unsure", "comment": "who knows"})
    last = client.get(f"{AT}/answers").json()
    assert [(one["item"], one["said"]) for one in last][:2] == [
        (items[0], "unsure"),
        (items[2], true_label(items[2])),
    ]
    assert last[0]["comment"] == "who knows"
    undone = client.post(f"{AT}/undo", json={}).json()["undone"]
    assert (undone["item"], undone["said"], undone["before"]) == (
        items[0],
        "unsure",
        true_label(items[0]),
    )
    assert client.post(f"{AT}/undo", json={"item": "t77"}).json()["undone"] is None, (
        "only if it is the newest"
    )


def test_the_same_answer_sent_twice_is_one(client: TestClient, file: Path) -> None:
    (item,) = label_items(client, 1)
    again = client.post(f"{AT}/answers", json={"item": item, "label": true_label(item)})
    assert again.json() == {"stored": True, "new": False, "labelled": 1}
    campaign = Campaign.open(file)
    assert len([line for line in campaign.history() if line["what"] == "answer"]) == 1
    campaign.database.close()


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"item": "t1", "label": "eggs"}, 422),
        ({"item": "t1", "label": "Spam"}, 422),
        ({"item": "nobody", "label": "spam"}, 404),
        ({"item": "t1"}, 422),
        ({"item": "t1", "kind": "skip", "label": "spam"}, 422),
        ({"item": "t1", "kind": "shout"}, 422),
        ({"item": "t1", "label": "spam", "more": 1}, 422),
        ({"item": "\ud800", "label": "spam"}, 422),
        ({"item": "t1", "label": "spam", "comment": "x" * 20_000}, 422),
    ],
)
def test_what_does_not_fit_is_refused_and_nothing_is_written(
    client: TestClient, body: dict[str, object], status: int
) -> None:
    told = client.post(
        f"{AT}/answers", content=json.dumps(body), headers={"content-type": "application/json"}
    )
    assert told.status_code == status
    assert isinstance(told.json()["detail"], str)
    assert client.get(AT).json()["labelled"] == 0


def test_an_item_tells_what_people_say(client: TestClient) -> None:
    (item,) = label_items(client, 1)
    told = client.get(f"{AT}/item", params={"id": item}).json()
    assert told["text"] == (text(int(item[1:])) if item != "html" else HARMFUL)
    assert [(one["annotator"], one["label"]) for one in told["answers"]] == [
        ("me", true_label(item))
    ]
    assert client.get(f"{AT}/item", params={"place": 3}).json()["item"] == "t3"
    assert client.get(f"{AT}/item", params={"place": 300}).status_code == 404


def test_the_map_has_every_item(labelled: LabelledCampaign) -> None:
    client = labelled.client
    client.get(f"{AT}/map")
    told = client.get(f"{AT}/map")
    assert told.status_code == 200
    (count,) = np.frombuffer(told.content[:4], "<i4")
    assert count == 121
    x, y = (np.frombuffer(told.content, "<f4", count, 4 + 4 * count * k) for k in range(2))
    predicted = np.frombuffer(told.content, "<i4", count, 4 + 8 * count)
    assert np.isfinite([x, y]).all()
    client.get(f"{AT}/map?how=ldm")
    ldm = np.frombuffer(client.get(f"{AT}/map?how=ldm").content, "<f4", count, 4)
    assert ((ldm >= 0) & (ldm <= 1)).all()
    assert set(predicted) <= {0, 1}
    places = client.get(f"{AT}/labels").json()["labels"]
    assert len(places) == 40


def test_a_map_by_neighbourhoods(client: TestClient) -> None:
    pytest.importorskip("openTSNE")
    client.get(f"{AT}/map?how=tsne")
    assert client.get(f"{AT}/map?how=tsne").status_code == 200


@pytest.mark.parametrize("form", ["csv", "jsonl", "prodigy", "doccano"])
def test_exports(labelled: LabelledCampaign, form: str) -> None:
    told = labelled.client.get(f"{AT}/export", params={"form": form})
    assert told.status_code == 200
    assert "attachment" in told.headers["content-disposition"]
    if form == "csv":
        rows = list(csv.DictReader(io.StringIO(told.text)))
        assert len(rows) == 121
        assert sum(bool(row["label"]) for row in rows) == 40
    else:
        assert all(json.loads(line) for line in told.text.splitlines())


def test_an_export_of_a_folder_is_packed(labelled: LabelledCampaign) -> None:
    pytest.importorskip("pyarrow")
    told = labelled.client.get(f"{AT}/export?form=datasets")
    assert "train.parquet" in zipfile.ZipFile(io.BytesIO(told.content)).namelist()


def test_suspects_are_found_and_kept(labelled: LabelledCampaign) -> None:
    client, wrong = labelled.client, labelled.items[5]
    client.post(
        f"{AT}/answers",
        json={"item": wrong, "label": "ham" if true_label(wrong) == "spam" else "spam"},
    )
    found = client.get(f"{AT}/suspects?anew=true").json()
    assert found["state"] == "done"
    assert wrong in {one["item"] for one in found["suspects"]}
    assert client.post(f"{AT}/keep", json={"item": wrong}).status_code == 200
    assert wrong not in {
        one["item"] for one in client.get(f"{AT}/suspects?anew=true").json()["suspects"]
    }


def test_progress_tells_each_round(labelled: LabelledCampaign) -> None:
    told = labelled.client.get(f"{AT}/progress").json()
    assert [one["version"] for one in told["rounds"]] == list(range(1, len(told["rounds"]) + 1))
    assert len(told["times"]) == 40
    assert told["status"]["advice"]
    assert labelled.client.get(f"{AT}/flipped").status_code == 200


def test_features_are_shown_as_numbers(tmp_path: Path) -> None:
    campaign = Campaign.create(
        tmp_path / "numbers.teeter", "numbers", ("a", "b"), Settings(kind="features")
    )
    vectors = np.random.default_rng(0).normal(size=(40, 5))
    campaign.add({"id": f"n{k}", "features": vectors[k]} for k in range(40))
    campaign.database.close()
    with serve_campaigns(tmp_path / "numbers.teeter") as client:
        client.get("/api/v1/campaigns/numbers/questions")
        one = client.get("/api/v1/campaigns/numbers/questions").json()["questions"][0]
        assert len(one["features"]) == 5


def test_nothing_is_called_stored_in_a_file_that_is_gone(client: TestClient, file: Path) -> None:
    items = [str(one["item"]) for one in get_questions(client)]
    answer = {"item": items[0], "label": "spam"}
    assert client.post(f"{AT}/answers", json=answer).status_code == 200
    file.rename(file.with_name("gone.teeter"))
    for what, body in (
        ("answers", {"item": items[1], "label": "spam"}),
        ("undo", {}),
        ("keep", {"item": items[0]}),
    ):
        told = client.post(f"{AT}/{what}", json=body)
        assert told.status_code == 503, what
        assert told.json()["detail"].startswith(
            "texts.teeter was moved or removed while it is serve_campaigns"
        )
    for page in ("", "/progress", "/items"):
        assert client.get(f"/c/texts{page}").status_code == 503
    assert not file.exists(), "no empty file takes its place"
    file.with_name("gone.teeter").rename(file)
    assert client.post(f"{AT}/answers", json=answer).json()["new"] is False


class BusyWorker(InlineWorker):
    """A trainer that puts off exports until it is told to do them."""

    def __init__(self) -> None:
        super().__init__()
        self.put_off: list[Callable[[], None]] = []

    def submit(self, request: TaskRequest[Any]) -> Future[Any]:
        if not isinstance(request, ExportLabels):
            return super().submit(request)
        waiting: Future[Any] = Future()
        self.put_off.append(
            lambda: waiting.set_result(super(BusyWorker, self).submit(request).result())
        )
        return waiting


def test_an_export_that_takes_too_long_does_not_stop_other_work(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "_EXPORT_SECONDS", 0.05)
    with serve_campaigns(file) as client:
        site = client.app.state.workspace  # type: ignore[attr-defined]
        site.trainer = BusyWorker()
        told = client.get(f"{AT}/export")
        assert told.status_code == 503
        assert "try again" in told.json()["detail"]
        questions = EnsureQuestions(str(file), "me", batch=5)
        assert not site.trainer.submit(questions).result().is_finished
        (export,) = site.trainer.put_off
        assert list(site.temp.iterdir()), "it is still to be written"
        export()
        assert not list(site.temp.iterdir()), "what nobody takes is removed"


@pytest.mark.slow
def test_a_process_goes_on_after_an_export_that_takes_too_long(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "_EXPORT_SECONDS", 0.0)
    with serve_campaigns(file) as client:
        site = client.app.state.workspace  # type: ignore[attr-defined]
        site.trainer = BackgroundWorker(5)
        assert client.get(f"{AT}/export").status_code == 503
        questions = EnsureQuestions(str(file), "me", batch=5)
        assert not site.trainer.submit(questions).result(PATIENCE).is_finished
        # Handled in its turn, after the export.
        site.trainer.submit(FindSuspects(str(file), count=3)).result(PATIENCE)
        assert not list(site.temp.iterdir()), "what nobody takes is removed"


@pytest.mark.parametrize("path", [f"{AT}/suspects", f"{AT}/map"])
def test_suspects_and_maps_that_fail_do_not_say_it_either(tmp_path: Path, path: str) -> None:
    file = make_text_campaign(tmp_path / "texts.teeter", 30)
    with serve_campaigns(file) as client:
        site = client.app.state.workspace  # type: ignore[attr-defined]
        gone = str(tmp_path / "gone.teeter")
        failed = site.trainer.submit(DrawMap(gone, MapKind.PCA, str(tmp_path)))
        assert str(tmp_path) in str(failed.exception())
        site._drawn |= {"suspects texts": failed, "map pca texts": failed}
        told = client.get(path).json()
        assert told["state"] == "failed"
        assert "gone.teeter" in told["detail"]
        assert str(tmp_path) not in told["detail"]
