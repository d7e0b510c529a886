"""A file is uploaded once, looked at, and becomes a campaign."""

from __future__ import annotations

import io
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from campaigns.items.test_image_archives import png
from data.test_table_files_workbooks import write_workbook
from server.servers import HARMFUL, serve_campaigns, text
from server.test_uploads import create_campaign
from teeter.server import uploads
from teeter.server.uploads import KeptUploads

TABLE = "nr,mail,kind\n" + "".join(f'{k},"{text(k)}","{("c", "a, b")[k % 2]}"\n' for k in range(30))


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    with serve_campaigns(folder=tmp_path) as serving:
        yield serving


def send(client: TestClient, name: str, content: str | bytes) -> Any:
    response = client.post("/api/v1/uploads", files={"file": (name, content)})
    return response.json() | {"status": response.status_code}


def kept_files(client: TestClient) -> list[Path]:
    temp = client.app.state.workspace.temp  # type: ignore[attr-defined]
    return list(temp.iterdir())


def test_a_file_is_uploaded_once_and_its_columns_are_chosen(
    client: TestClient, tmp_path: Path
) -> None:
    preview = send(client, "mail.csv", TABLE)
    assert preview["status"] == 201
    assert preview["columns"] == ["nr", "mail", "kind"]
    assert preview["proposed"]["text"] == "mail"

    address = f"/api/v1/uploads/{preview['upload']}"
    counted = client.get(address, params={"labels": "kind"}).json()
    assert counted["classes"] == [["c", 15], ["a, b", 15]]

    chosen = {"text": "mail", "id_column": "nr", "labels": "kind", "show": "nr"}
    wrong = create_campaign(
        client, name="mail", classes='c,"a, b"', upload=preview["upload"], text="nothing"
    )
    assert wrong["state"] == "failed"
    assert "mail.csv" in str(wrong["detail"])
    assert "/" not in str(wrong["detail"]), "paths are not disclosed"

    fields = {"name": "mail", "classes": 'c,"a, b"', "upload": preview["upload"], **chosen}
    job = create_campaign(client, **fields)
    assert job["state"] == "done", job
    assert job["result"]["imported"]["labelled"] == 30
    campaign = client.get("/api/v1/campaigns/mail").json()
    assert [shown["name"] for shown in campaign["classes"]] == ["c", "a, b"]
    assert client.get("/api/v1/campaigns/mail/settings").json()["show"] == ["nr"]
    assert kept_files(client) == []
    assert client.get(address).status_code == 404
    again = client.post("/api/v1/campaigns", data=fields)
    assert again.status_code == 202, "the same request gets the job of the first"


def test_the_sheet_of_a_spreadsheet_is_chosen(client: TestClient, tmp_path: Path) -> None:
    pytest.importorskip("python_calamine")
    rows = [["text"], *([text(k)] for k in range(20))]
    book = write_workbook(tmp_path / "book.xlsx", {"May": rows[:3], "A/B": rows})
    preview = send(client, "book.xlsx", book.read_bytes())
    assert preview["sheets"] == ["May", "A/B"]
    address = f"/api/v1/uploads/{preview['upload']}"
    assert len(client.get(address, params={"sheet": "A/B"}).json()["rows"]) == 8
    assert client.get(address, params={"sheet": "June"}).status_code == 422

    fields = {"name": "book", "classes": "a,b", "upload": preview["upload"]}
    assert "has the sheets May, A/B" in create_campaign(client, **fields)["detail"]
    assert create_campaign(client, **fields, sheet="A/B")["result"]["imported"]["new"] == 20
    assert kept_files(client) == []
    file = ("book.xlsx", book.read_bytes())
    job = create_campaign(client, name="other", classes="a,b", sheet="A/B", file=file)
    assert job["result"]["imported"]["new"] == 20
    assert kept_files(client) == []


def test_images_come_as_an_archive(client: TestClient, tmp_path: Path) -> None:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for number in range(5):
            archive.writestr(f"{number}.png", png(number))
        archive.writestr("notes.txt", b"x")
    preview = send(client, "photos.zip", content.getvalue())
    assert preview["columns"] == []
    assert preview["notes"] == [
        "The archive has 5 images.",
        "1 file was left out, which is no image that teeter reads: 1 .txt.",
    ]
    fields = {"name": "photos", "classes": "a,b", "upload": preview["upload"], "encoder": "pixels"}
    job = create_campaign(client, **fields)
    assert job["result"]["imported"]["new"] == 5
    assert job["result"]["imported"]["left_out_files"] == {".txt": 1}
    image = client.get("/api/v1/campaigns/photos/image", params={"id": "0.png"})
    assert image.content == png(0)
    assert kept_files(client) == []


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.csv", "text\n", "a.csv has a header (text) and no rows."),
        ("a.exe", "x", "Cannot read .exe files: upload .csv"),
        ("a.zip", b"PK\x05\x06" + bytes(18), "a.zip has no images. It is empty."),
        ("a.xlsx", "x", "a.xlsx is not a valid spreadsheet"),
        ("a.parquet", "x", "a.parquet is not a valid Parquet file"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_at_once(
    name: str, content: str, sentence: str, client: TestClient
) -> None:
    refused = send(client, name, content)
    assert refused["status"] == 422
    assert refused["detail"].startswith(sentence)
    assert kept_files(client) == []


def test_cells_of_a_file_are_data_and_not_markup(client: TestClient) -> None:
    preview = send(client, "a.csv", f'text\n"{HARMFUL.replace(chr(34), "")}"\n')
    assert preview["rows"][0][0].startswith("<script>")
    assert "<script>alert" not in client.get("/new").text


def test_a_campaign_that_waits_to_be_created_keeps_its_file(tmp_path: Path) -> None:
    class File:
        filename = "a.csv"
        file = io.BytesIO(b"text\none\n")

    kept = KeptUploads(tmp_path, 1000)
    upload = kept.add(File(), "ann")  # type: ignore[arg-type]
    copy = kept.copy(upload, "ann")
    with pytest.raises(uploads.UnknownResourceError):
        kept.copy(upload, "bob")
    kept.remove(upload)
    assert (copy.name, copy.read_text()) == ("a.csv", "text\none\n")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [copy]


def test_uploads_are_few_and_of_one_person_and_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class File:
        filename = "a.csv"

        def __init__(self) -> None:
            self.file = io.BytesIO(b"text\none\n")

    timers: list[Any] = []

    class Timer(threading.Timer):
        def start(self) -> None:
            timers.append(self)

    monkeypatch.setattr(uploads.threading, "Timer", Timer)
    kept = KeptUploads(tmp_path, 1000)
    ids = [kept.add(File(), "ann") for _ in range(4)]  # type: ignore[arg-type]
    of_bob = kept.add(File(), "bob")  # type: ignore[arg-type]
    assert len(list(tmp_path.iterdir())) == 4
    for upload, owner in ((ids[0], "ann"), (ids[1], "bob"), ("unknown", "ann")):
        with pytest.raises(uploads.UnknownResourceError, match="choose it again"):
            kept.find(upload, owner)
    assert kept.find(of_bob, "bob").read_text() == "text\none\n"

    newest = timers[-1]
    assert newest.interval == 3600
    newest.function(*newest.args)
    with pytest.raises(uploads.UnknownResourceError):
        kept.find(of_bob, "bob")
    kept.close()
    assert list(tmp_path.iterdir()) == []
