"""Campaigns made from uploaded files and from folders of images."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from teeter.web.auth import SecurityConfig
from web.servers import begin_images, served, text


def made(client: TestClient, **told: object) -> dict[str, object]:
    file = told.pop("file", None)
    answer = client.post(
        "/api/v1/campaigns", data=told, files=None if file is None else {"file": file}
    )
    if answer.status_code != 202:
        return {"state": answer.status_code, **answer.json()}
    found: dict[str, object] = client.get(f"/api/v1/jobs/{answer.json()['job']}").json()
    return found


def test_a_campaign_from_an_upload(tmp_path: Path) -> None:
    with served(folder=tmp_path) as client:
        table = "text,kind\n" + "".join(f'"{text(k)}",\n' for k in range(30))
        done = made(client, name="mail", classes="spam, ham", keys="s,h", file=("mail.csv", table))
        assert done["state"] == "done", done
        told = client.get("/api/v1/campaigns/mail").json()
        assert told["items"] == 30
        assert [one["key"] for one in told["classes"]] == ["s", "h"]
        again = made(client, name="mail", classes="a,b", file=("mail.csv", table))
        assert again["state"] == 422
        assert (tmp_path / "mail.teeter").exists()
        bad = made(client, name="other", classes="a,b", file=("other.csv", "x,y\n1,2\n"))
        assert bad["state"] == "failed"
        assert str(tmp_path.anchor) not in str(bad["detail"]), (
            "where files are is nobody's business"
        )
        assert not (tmp_path / "other.teeter").exists()


def test_a_campaign_from_a_folder_of_images(tmp_path: Path) -> None:
    begin_images(tmp_path / "first.teeter", tmp_path / "digits", 12)
    with served(folder=tmp_path) as client:
        assert made(client, name="second", classes="a,b", folder="digits")["state"] == "done"
        assert {one["slug"] for one in client.get("/api/v1/campaigns").json()} == {
            "first",
            "second",
        }


def test_an_oversized_upload_is_refused(tmp_path: Path) -> None:
    with served(folder=tmp_path, security=SecurityConfig(b"secret", upload_limit=10_000)) as client:
        client.headers["x-csrf-token"] = client.get("/api/v1/session").json()["csrf"]
        told = client.post(
            "/api/v1/campaigns",
            data={"name": "a", "classes": "a,b"},
            files={"file": ("a.csv", "text\n" + "x\n" * 9000)},
        )
        assert told.status_code == 413
        assert list(tmp_path.glob("*.teeter")) == []


def test_a_job_that_failed_does_not_say_where_files_are(tmp_path: Path) -> None:
    with served(folder=tmp_path) as client:
        given = {"name": "a", "classes": "a,b", "text": "nothing like it"}
        told = client.post(
            "/api/v1/campaigns", data=given, files={"file": ("mail.csv", "words\none\n")}
        )
        state = client.get(f"/api/v1/jobs/{told.json()['job']}").json()
        assert state["state"] == "failed"
        assert "mail.csv" in state["detail"]
        assert str(client.app.state.site.temp) not in state["detail"]  # type: ignore[attr-defined]
        assert str(tmp_path) not in state["detail"]


def test_a_file_that_unpacks_to_more_than_is_taken_is_refused_unread(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    limit = 1_000_000
    wide = pyarrow.table({"text": ["x" * 1000 + str(k) for k in range(5000)]})
    many = pyarrow.table({"text": pyarrow.array(["x"] * (limit + 1)).dictionary_encode()})
    small = pyarrow.table({"text": [f"text {k}" for k in range(20)]})
    for name, table in (("wide", wide), ("many", many), ("small", small)):
        parquet.write_table(table, tmp_path / f"{name}.parquet", compression="zstd")
        assert (tmp_path / f"{name}.parquet").stat().st_size < limit / 10
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 nothing PAR1")
    with served(folder=tmp_path, security=SecurityConfig(b"secret", upload_limit=limit)) as client:
        client.headers["x-csrf-token"] = client.get("/api/v1/session").json()["csrf"]
        site = client.app.state.site  # type: ignore[attr-defined]
        for name, said in (
            ("wide", "unpacks to"),
            ("many", "unpacks to"),
            ("broken", "not a Parquet file"),
        ):
            with (tmp_path / f"{name}.parquet").open("rb") as file:
                told = client.post(
                    "/api/v1/campaigns", data={"name": name, "classes": "a,b"}, files={"file": file}
                )
            assert told.status_code == 422
            assert said in told.json()["detail"]
            assert list(site.temp.iterdir()) == [], "nothing of it is kept"
        with (tmp_path / "small.parquet").open("rb") as file:
            told = client.post(
                "/api/v1/campaigns", data={"name": "small", "classes": "a,b"}, files={"file": file}
            )
        assert client.get(f"/api/v1/jobs/{told.json()['job']}").json()["state"] == "done"


@pytest.mark.parametrize(
    "where", ["teeter.web.uploads.shutil.copyfileobj", "starlette.datastructures.UploadFile.write"]
)
def test_an_upload_that_the_disk_does_not_take_is_told_of(
    tmp_path: Path, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "/secret/place")

    with served(folder=tmp_path) as client:
        monkeypatch.setattr(where, full)
        files = {"file": ("mail.csv", "text\none\ntwo\n")}
        told = client.post("/api/v1/campaigns", data={"name": "a", "classes": "a,b"}, files=files)
        assert told.status_code == 503
        assert told.json()["detail"].startswith("The server's disk is full.")
        assert "secret" not in told.text
        assert list(client.app.state.site.temp.rglob("*")) == []  # type: ignore[attr-defined]
