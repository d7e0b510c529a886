"""Exports: every format, over REST and on the page, and those that take too long."""

from __future__ import annotations

import csv
import io
import json
import re
import zipfile
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from server.labelled_campaigns import (
    AT,
    LabelledCampaign,
)
from server.servers import (
    PATIENCE,
    InlineWorker,
    serve_campaigns,
)
from teeter.campaigns.campaign import Campaign
from teeter.campaigns.export import formats, parquet_rows
from teeter.campaigns.items.columns import ADDED_COLUMNS
from teeter.server.worker.background import (
    ENSURE_QUESTIONS,
    EXPORT,
    FIND_SUSPECTS,
    BackgroundWorker,
    WorkerTask,
)


def test_the_export_page_explains_every_format(client: TestClient) -> None:
    page = client.get("/c/texts/export").text
    assert "/c/texts/export/file?form=spreadsheet" in page
    assert "safe to open in a spreadsheet" in page
    assert "every value of your table unchanged" in page
    for column, meaning in ADDED_COLUMNS.items():
        assert f"<code>{column}</code></th><td>{meaning}</td>" in page


def test_the_export_page_offers_only_formats_that_work(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    offered = {"csv", "spreadsheet", "jsonl", "prodigy", "doccano", "label-studio"}
    monkeypatch.setattr(formats, "find_spec", lambda _: None)
    monkeypatch.setattr(parquet_rows, "find_spec", lambda _: None)

    page = client.get("/c/texts/export").text
    assert set(re.findall("export/file.form=([a-z-]+)", page)) == offered
    assert "Writing Parquet needs pyarrow: pip install" in page
    assert "The format image-folder is only for images" in page
    assert "cleanlab needs labels of two or more classes: label some items first." in page

    monkeypatch.undo()
    for item, label in (("t1", "ham"), ("t2", "spam")):
        client.post("/api/v1/campaigns/texts/answers", json={"item": item, "label": label})
    assert "export/file?form=cleanlab" in client.get("/c/texts/export").text


def test_a_download_that_fails_says_why_on_a_page(client: TestClient) -> None:
    works = client.get("/c/texts/export/file?form=csv")
    assert works.headers["content-disposition"] == 'attachment; filename="texts-csv.csv"'

    fails = client.get("/c/texts/export/file?form=cleanlab")
    assert fails.status_code == 422
    assert fails.headers["content-type"].startswith("text/html")
    assert "cleanlab needs labels of two or more classes: label some items first." in fails.text


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
            assert [row["text"] for row in rows] == [content, "1+1"]


def test_an_export_to_a_folder_is_zipped(labelled: LabelledCampaign) -> None:
    pytest.importorskip("pyarrow")
    response = labelled.client.get(f"{AT}/export?form=datasets")
    assert "train.parquet" in zipfile.ZipFile(io.BytesIO(response.content)).namelist()


def test_an_unknown_export_format_is_refused(client: TestClient) -> None:
    response = client.get(f"{AT}/export?form=punch-cards")
    assert response.status_code == 422
    assert "spreadsheet" in response.json()["detail"]


class BusyWorker(InlineWorker):
    """A worker that postpones exports until a test runs them."""

    def __init__(self) -> None:
        super().__init__()
        self.postponed: list[Callable[[], None]] = []

    def submit(self, task: WorkerTask[Any], campaign: str, **arguments: Any) -> Future[Any]:
        if task != EXPORT:
            return super().submit(task, campaign, **arguments)

        future: Future[Any] = Future()
        submit = super().submit
        self.postponed.append(
            lambda: future.set_result(submit(task, campaign, **arguments).result())
        )
        return future


def test_an_export_that_takes_too_long_does_not_stop_other_work(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("teeter.server.routes.export._EXPORT_SECONDS", 0.05)
    with serve_campaigns(file) as client:
        workspace = client.app.state.workspace  # type: ignore[attr-defined]
        workspace.trainer = BusyWorker()
        response = client.get(f"{AT}/export")
        assert response.status_code == 503
        assert "try again" in response.json()["detail"]

        questions = workspace.trainer.submit(ENSURE_QUESTIONS, str(file), annotator="me", batch=5)
        assert not questions.result().is_finished

        (export,) = workspace.trainer.postponed
        assert list(workspace.temp.iterdir()), "it is still to be written"
        export()
        assert not list(workspace.temp.iterdir()), "a file that no one takes is removed"


@pytest.mark.slow
def test_a_worker_process_survives_an_export_that_takes_too_long(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("teeter.server.routes.export._EXPORT_SECONDS", 0.0)
    with serve_campaigns(file) as client:
        workspace = client.app.state.workspace  # type: ignore[attr-defined]
        workspace.trainer = BackgroundWorker(5)
        assert client.get(f"{AT}/export").status_code == 503

        questions = workspace.trainer.submit(ENSURE_QUESTIONS, str(file), annotator="me", batch=5)
        assert not questions.result(PATIENCE).is_finished

        # Handled in its turn, after the export.
        workspace.trainer.submit(FIND_SUSPECTS, str(file), count=3).result(PATIENCE)
        assert not list(workspace.temp.iterdir()), "a file that no one takes is removed"
