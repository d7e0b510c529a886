"""Campaigns that are created from uploaded files and from folders of images."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from server.servers import make_image_campaign, serve_campaigns, text
from teeter.server.access import SecurityConfig


def create_campaign(client: TestClient, **fields: object) -> dict[str, Any]:
    """Create a campaign, and return the state of the job, or the status of the refusal."""
    file = fields.pop("file", None)
    files = None if file is None else {"file": file}
    response = client.post("/api/v1/campaigns", data=fields, files=files)
    if response.status_code != 202:
        return {"state": response.status_code, **response.json()}

    job: dict[str, Any] = client.get(f"/api/v1/jobs/{response.json()['job']}").json()
    return job


def test_a_campaign_from_an_upload(tmp_path: Path) -> None:
    with serve_campaigns(folder=tmp_path) as client:
        table = "text,kind\n" + "".join(f'"{text(k)}",\n' for k in range(30))
        upload = ("mail.csv", table)
        job = create_campaign(client, name="mail", classes="spam, ham", keys="s,h", file=upload)
        assert job["state"] == "done", job

        campaign = client.get("/api/v1/campaigns/mail").json()
        assert campaign["items"] == 30
        assert [shown["shortcut"] for shown in campaign["classes"]] == ["s", "h"]
        assert (tmp_path / "mail.teeter").exists()

        alike = create_campaign(client, name="other", classes="spam, Spam", file=upload)
        assert alike["state"] == 422
        assert "differ only in case, spaces or" in str(alike["detail"])
        assert not (tmp_path / "other.teeter").exists()

        same_name = create_campaign(client, name="mail", classes="a,b", file=upload)
        assert same_name["state"] == 422

        bad = create_campaign(client, name="other", classes="a,b", file=("o.csv", "x,y\n1,2\n"))
        assert bad["state"] == "failed"
        assert str(tmp_path.anchor) not in str(bad["detail"]), "paths are not disclosed"
        assert not (tmp_path / "other.teeter").exists()


def test_a_strategy_that_does_not_exist_is_refused_at_once(tmp_path: Path) -> None:
    with serve_campaigns(folder=tmp_path) as client:
        upload = ("mail.csv", "text\none\ntwo\n")
        job = create_campaign(client, name="a", classes="a,b", strategy="lmd-s", file=upload)
        assert job["state"] == 422
        assert "Did you mean 'ldm-s'?" in str(job["detail"])
        assert list(client.app.state.workspace.temp.iterdir()) == []  # type: ignore[attr-defined]


def test_a_campaign_from_a_folder_of_images(tmp_path: Path) -> None:
    make_image_campaign(tmp_path / "first.teeter", tmp_path / "digits", 12)
    with serve_campaigns(folder=tmp_path) as client:
        (tmp_path / "digits" / "photo.svg").write_bytes(b"")
        job = create_campaign(client, name="second", classes="a,b", folder="digits")
        assert job["state"] == "done"
        assert job["result"]["imported"]["left_out_files"] == {".svg": 1}
        campaigns = client.get("/api/v1/campaigns").json()
        assert {campaign["slug"] for campaign in campaigns} == {"first", "second"}


def test_the_question_for_the_text_column_fits_the_page(tmp_path: Path) -> None:
    with serve_campaigns(folder=tmp_path) as client:
        upload = ("mail.csv", "first,second\none,two\n")
        job = create_campaign(client, name="mail", classes="a,b", file=upload)
        assert job["detail"] == (
            "Which column of mail.csv has the texts: first, second? Name it as the text column, or "
            "rename it to 'text'."
        )


@pytest.mark.parametrize("name", ["mail.exe", "mail", "mail.csv.html", "../mail.tar"])
def test_a_file_of_another_format_is_refused(tmp_path: Path, name: str) -> None:
    with serve_campaigns(folder=tmp_path) as client:
        job = create_campaign(client, name="a", classes="a,b", file=(name, "text\none\ntwo\n"))
        assert job["state"] == 422
        assert ".csv" in str(job["detail"])


def test_the_name_of_an_upload_leads_nowhere(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    with serve_campaigns(folder=inside) as client:
        upload = ("../../\u202e<b>mail\n.csv", "words\none\n")
        job = create_campaign(client, name="a", classes="a,b", text="nothing", file=upload)
        assert job["state"] == "failed"
        assert "<b>" not in str(job["detail"])
    assert list(tmp_path.iterdir()) == [inside]


def test_an_oversized_upload_is_refused(tmp_path: Path) -> None:
    security = SecurityConfig(b"secret", upload_limit=10_000)
    with serve_campaigns(folder=tmp_path, security=security) as client:
        upload = ("a.csv", "text\n" + "x\n" * 9000)
        job = create_campaign(client, name="a", classes="a,b", file=upload)
        assert job["state"] == 413
        assert list(tmp_path.glob("*.teeter")) == []


def test_a_failed_job_does_not_disclose_paths(tmp_path: Path) -> None:
    with serve_campaigns(folder=tmp_path) as client:
        upload = ("mail.csv", "words\none\n")
        job = create_campaign(client, name="a", classes="a,b", text="nothing like it", file=upload)
        assert job["state"] == "failed"
        detail = str(job["detail"])
        assert "mail.csv" in detail
        assert str(client.app.state.workspace.temp) not in detail  # type: ignore[attr-defined]
        assert str(tmp_path) not in detail


def test_a_file_that_unpacks_to_too_much_is_refused_unread(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    limit = 1_000_000
    wide = pyarrow.table({"text": ["x" * 1000 + str(k) for k in range(5000)]})
    many = pyarrow.table({"text": pyarrow.array(["x"] * (limit + 1)).dictionary_encode()})
    rows = pyarrow.table({"text": pyarrow.array(["x"] * 10_000).dictionary_encode()})
    long = pyarrow.table({"text": pyarrow.array(["x" * 100_000] * 100).dictionary_encode()})
    small = pyarrow.table({"text": [f"text {k}" for k in range(20)]})
    tables = {"wide": wide, "many": many, "rows": rows, "long": long, "small": small}
    for name, table in tables.items():
        parquet.write_table(table, tmp_path / f"{name}.parquet", compression="zstd")
        assert (tmp_path / f"{name}.parquet").stat().st_size < limit / 10
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 nothing PAR1")

    security = SecurityConfig(b"secret", upload_limit=limit)
    with serve_campaigns(folder=tmp_path, security=security) as client:
        workspace = client.app.state.workspace  # type: ignore[attr-defined]
        for name, message in (
            ("wide", "unpacks to"),
            ("many", "many.parquet unpacks to"),
            ("rows", "rows.parquet unpacks to 2 MB in memory, but the limit is 1 MB"),
            ("long", "long.parquet unpacks to 10 MB in memory, but the limit is 1 MB"),
            ("broken", "broken.parquet is not a valid Parquet file"),
        ):
            with (tmp_path / f"{name}.parquet").open("rb") as file:
                job = create_campaign(client, name=name, classes="a,b", file=file)
            assert job["state"] == 422
            assert message in str(job["detail"])
            assert list(workspace.temp.iterdir()) == [], "nothing of it is left"

        with (tmp_path / "small.parquet").open("rb") as file:
            assert (
                create_campaign(client, name="small", classes="a,b", file=file)["state"] == "done"
            )


@pytest.mark.parametrize(
    "function",
    ["teeter.server.uploads.shutil.copyfileobj", "starlette.datastructures.UploadFile.write"],
)
def test_a_full_disk_is_reported_without_paths(
    tmp_path: Path, function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "/secret/place")

    with serve_campaigns(folder=tmp_path) as client:
        monkeypatch.setattr(function, fail)
        files = {"file": ("mail.csv", "text\none\ntwo\n")}
        fields = {"name": "a", "classes": "a,b"}
        response = client.post("/api/v1/campaigns", data=fields, files=files)
        assert response.status_code == 503
        assert response.json()["detail"].startswith("The server's disk is full.")
        assert "secret" not in response.text
        assert list(client.app.state.workspace.temp.rglob("*")) == []  # type: ignore[attr-defined]
