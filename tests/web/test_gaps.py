"""What is easily forgotten: paths in troubles, files that unpack to far more, heads that drip, two servers."""

from __future__ import annotations

import asyncio
import errno
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from teeter.campaigns.campaign import Campaign
from teeter.cli.serve import _options
from teeter.web.api import without_folders
from teeter.web.protocol import Punctual
from teeter.web.security import Guard
from web.servers import Server, begin, begin_images, client_of, served

AT = "/api/v1/campaigns/texts"


def test_items_of_a_class_are_what_counts_as_it(tmp_path: Path) -> None:
    file = begin(tmp_path / "texts.teeter", 30)
    campaign = Campaign.open(file)
    for k in range(12):
        campaign.tell(f"t{k}", "spam", "ann")
        campaign.tell(f"t{k}", "ham" if k % 3 == 0 else "spam", "bob")
    campaign.decide("t1", "ham", "rey")
    campaign.decide("t20", "ham", "rey")
    campaign.store.close()

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


def test_a_job_that_failed_does_not_say_where_files_are(tmp_path: Path) -> None:
    with served(folder=tmp_path) as client:
        given = {"name": "a", "classes": "a,b", "text": "nothing like it"}
        told = client.post("/api/v1/campaigns", data=given, files={"file": ("mail.csv", "words\none\n")})
        state = client.get(f"/api/v1/jobs/{told.json()['job']}").json()
        assert state["state"] == "failed"
        assert "mail.csv" in state["detail"]
        assert str(client.app.state.site.temp) not in state["detail"]  # type: ignore[attr-defined]
        assert str(tmp_path) not in state["detail"]


@pytest.mark.parametrize("path", [f"{AT}/suspects", f"{AT}/map"])
def test_suspects_and_maps_that_fail_do_not_say_it_either(tmp_path: Path, path: str) -> None:
    file = begin(tmp_path / "texts.teeter", 30)
    with served(file) as client:
        site = client.app.state.site  # type: ignore[attr-defined]
        failed = site.trainer.do("chart", str(tmp_path / "gone.teeter"), folder=str(tmp_path), how="pca")
        assert str(tmp_path) in str(failed.exception())
        site._drawn |= {"suspects texts": failed, "map pca texts": failed}
        told = client.get(path).json()
        assert told["state"] == "failed"
        assert "gone.teeter" in told["detail"]
        assert str(tmp_path) not in told["detail"]


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
    with served(folder=tmp_path, guard=Guard(b"secret", upload_limit=limit)) as client:
        client.headers["x-csrf-token"] = client.get("/api/v1/session").json()["csrf"]
        site = client.app.state.site  # type: ignore[attr-defined]
        for name, said in (("wide", "unpacks to"), ("many", "unpacks to"), ("broken", "not a Parquet file")):
            with (tmp_path / f"{name}.parquet").open("rb") as file:
                told = client.post("/api/v1/campaigns", data={"name": name, "classes": "a,b"}, files={"file": file})
            assert told.status_code == 422
            assert said in told.json()["detail"]
            assert list(site.temp.iterdir()) == [], "nothing of it is kept"
        with (tmp_path / "small.parquet").open("rb") as file:
            told = client.post("/api/v1/campaigns", data={"name": "small", "classes": "a,b"}, files={"file": file})
        assert client.get(f"/api/v1/jobs/{told.json()['job']}").json()["state"] == "done"


def test_two_servers_on_one_machine_do_not_log_each_other_out(tmp_path: Path) -> None:
    file = begin(tmp_path / "texts.teeter", 30)
    servers = [Server(tmp_path / "home", file).start() for _ in range(2)]
    try:
        clients = [client_of(one.address) for one in servers]
        names = [{cookie.name for cookie in client.cookies.jar} for client in clients]
        assert names == [{f"teeter_session_{one.port}"} for one in servers]
        for client in clients:
            client.close()
    finally:
        for one in servers:
            one.stop()


def test_heads_that_drip_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    uvicorn = pytest.importorskip("uvicorn")
    assert _options(None)["http"] is Punctual
    monkeypatch.setattr(Punctual, "seconds", 0.6)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(1)  # longer than a head may take
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, lifespan="off", **_options(None)))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        port = listening.getsockname()[1]
        assert dripped(port, b"GET / HTTP/1.1\r\nX-Long: ") < 3, "a head that never ends"
        assert dripped(port, b"") < 3, "nothing at all"
        with socket.create_connection(("127.0.0.1", port), timeout=10) as one:
            for _ in range(2):  # the second over the same connection
                one.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n")
                time.sleep(0.2)
                one.sendall(b"\r\n")
                told = b""
                while not told.endswith(b"ok"):
                    told += (part := one.recv(1000))
                    assert part, "an answer may take longer than a question"
                time.sleep(0.8)
        assert dripped(port, b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nX: ") < 5, "nor a second head"
    finally:
        server.should_exit = True
        thread.join(10)
        listening.close()


def dripped(port: int, begin: bytes) -> float:
    """Send a sign now and then, and return how long the server let it go on, up to ten seconds."""
    started = time.monotonic()
    with socket.create_connection(("127.0.0.1", port), timeout=0.1) as one:
        try:
            one.sendall(begin)
            while time.monotonic() - started < 10:
                try:
                    if one.recv(100) == b"":
                        break
                except TimeoutError:
                    if begin:
                        one.sendall(b"x")
        except OSError:
            pass
    return time.monotonic() - started


def test_maps_and_suspects_are_no_jobs_for_whoever_guesses_their_names(tmp_path: Path) -> None:
    with served(begin(tmp_path / "texts.teeter", 30)) as client:
        assert client.get(f"{AT}/suspects").json()["state"] == "done"
        for _ in range(2):
            client.get(f"{AT}/map")
        for name in ("suspects texts", "map pca texts", "map pca texts next"):
            assert client.get(f"/api/v1/jobs/{name}").status_code == 404


def test_where_images_are_is_not_told(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    with served(begin_images(own / "digits.teeter", tmp_path / "scans", 6)) as client:
        (tmp_path / "scans" / "003.png").unlink()
        told = client.get("/api/v1/campaigns/digits/image", params={"id": "003.png"}).json()["detail"]
        assert told == "There is no file 003.png."
        (tmp_path / "scans" / "003.png").symlink_to("/etc/hostname")
        told = client.get("/api/v1/campaigns/digits/image", params={"id": "003.png"}).json()["detail"]
        assert told == "003.png leads out of the campaign's folder scans: only files inside it are read."
        site = client.app.state.site  # type: ignore[attr-defined]
        site.folder = Path("/")
        assert without_folders(site, "Spam and/or ham.") == "Spam and/or ham."


@pytest.mark.parametrize(
    ("path", "status"), [("/nothing", 404), ("/c/texts/items?after=x", 422), ("/c/texts/undo", 404)]
)
def test_who_reads_a_page_is_refused_by_a_page(tmp_path: Path, path: str, status: int) -> None:
    with served(begin(tmp_path / "texts.teeter", 5)) as client:
        told = client.get(path)
        assert (told.status_code, told.headers["content-type"]) == (status, "text/html; charset=utf-8")
        assert "Back to the start" in told.text
        assert client.get("/api/v1/nothing").json() == {"detail": "There is no such page here."}
        refused = client.put("/c/texts")
        assert (refused.status_code, refused.headers["allow"]) == (405, "GET")


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


def test_a_campaign_that_is_damaged_while_it_is_served_holds_up_no_other(tmp_path: Path) -> None:
    begin(tmp_path / "texts.teeter", 30)
    damaged = begin(tmp_path / "worse.teeter", 30)
    with served(folder=tmp_path) as client:
        site = client.app.state.site  # type: ignore[attr-defined]
        assert [one["name"] for one in client.get("/api/v1/campaigns").json()] == ["texts", "worse"]
        whole = damaged.read_bytes()
        damaged.write_bytes(whole[:100] + b"\xff" * (len(whole) - 100))
        site.desks["worse"].close()
        site.roster.look_again()
        assert client.get("/api/v1/campaigns/worse").status_code == 503
        assert [one["name"] for one in client.get("/api/v1/campaigns").json()] == ["texts"]
        page = client.get("/").text
        assert "worse could not be opened. worse.teeter is damaged" in page
        assert str(tmp_path) not in page
        assert client.post(f"{AT}/answers", json={"item": "t1", "label": "ham"}).status_code == 200


def test_what_the_trainer_asked_meanwhile_is_not_given_on_top(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = begin(tmp_path / "texts.teeter", 100)
    campaign = Campaign.open(file)
    campaign.pick_ahead(60)
    campaign.store.close()
    with served(file) as client:
        desk = client.app.state.site.desks["texts"]  # type: ignore[attr-defined]
        looked = desk.questions

        def slow(annotator: str, n: int, why: Any = None) -> Any:
            monkeypatch.setattr(desk, "questions", looked)
            desk.campaign.ask(20, annotator)
            return []

        monkeypatch.setattr(desk, "questions", slow)
        assert client.get("/c/texts").status_code == 200
        assert len(client.get(f"{AT}/questions", params={"n": 100}).json()["questions"]) == 20
