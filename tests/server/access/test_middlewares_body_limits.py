"""Bodies that fill the memory, or hold a connection open by coming slowly."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from starlette.types import Message, Receive, Scope, Send

from server.access.requests import send_slowly
from server.labelled_campaigns import AT
from server.servers import make_text_campaign, serve_campaigns
from teeter.server.access import SecurityConfig
from teeter.server.access.middlewares import BodyLimitMiddleware
from teeter.server.app import make_app

JSON = {"content-type": "application/json"}
COOKIE = SecurityConfig(b"").cookie_name


def test_a_long_body_is_refused(client: TestClient) -> None:
    body = {"item": "t1", "label": "spam", "comment": "x" * 2_000_000}
    assert client.post(f"{AT}/answers", json=body).status_code == 413


@pytest.mark.slow
def test_files_and_items_may_be_longer(client: TestClient) -> None:
    lines = "".join(f"t{number % 120},spam\n" for number in range(150_000))
    upload = {"file": ("predictions.csv", f"id,label\n{lines}".encode())}

    response = client.post(f"{AT}/predictions", files=upload, data={"source": "other"})

    assert response.status_code != 413, response.text
    items = {"items": [{"text": "x" * 900_000} for _ in range(9)]}
    assert client.post(f"{AT}/items", json=items).status_code == 413, "the limit is 8 MB"


def test_a_long_body_that_does_not_say_so_is_refused(client: TestClient) -> None:
    def chunks() -> Iterator[bytes]:
        yield b'{"item": "'
        for _ in range(300):
            yield b"x" * 10_000

    assert client.post(f"{AT}/answers", content=chunks(), headers=JSON).status_code == 413

    def form() -> Iterator[bytes]:
        yield b"csrf="
        for _ in range(300):
            yield b"x" * 10_000

    del client.headers["x-csrf-token"]
    headers = {"content-type": "application/x-www-form-urlencoded"}
    assert client.post("/name", content=form(), headers=headers).status_code == 413


@pytest.mark.parametrize("length", ["-5", "five", "²", "9" * 5000])
def test_a_length_that_is_no_number_is_refused(client: TestClient, length: str) -> None:
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", length.encode("latin-1")),
    ]
    assert client.post(f"{AT}/answers", content=b"{}", headers=headers).status_code == 400


@pytest.mark.parametrize(
    ("path", "content_type", "sends_csrf_header"),
    [
        (f"{AT}/answers", "application/json", True),
        ("/name", "application/x-www-form-urlencoded", True),
        ("/name", "application/x-www-form-urlencoded", False),
        ("/api/v1/campaigns", "multipart/form-data; boundary=x", True),
    ],
)
def test_a_slow_body_is_not_waited_for(
    tmp_path: Path, path: str, content_type: str, sends_csrf_header: bool
) -> None:
    limits = {"body_seconds": 0.2, "upload_seconds": 3600.0}
    if path == "/api/v1/campaigns":
        limits = {"body_seconds": 3600.0, "upload_seconds": 0.2}

    # Another server with the same secret opens the session: on a busy machine that may take longer
    # than a fifth of a second.
    file = make_text_campaign(tmp_path / "texts.teeter", 30)
    with serve_campaigns(file) as client:
        headers = {
            "host": "127.0.0.1",
            "content-type": content_type,
            "cookie": f"{COOKIE}={client.cookies[COOKIE]}",
            "content-length": "100",
        }
        if sends_csrf_header:
            headers["x-csrf-token"] = str(client.headers["x-csrf-token"])

    security = SecurityConfig(b"secret", **limits)
    app = make_app([file], security=security, folder=tmp_path, warm=False)
    status, sent_headers = asyncio.run(send_slowly(app, path, headers))
    app.state.workspace.close()
    assert status == 408
    assert sent_headers[b"connection"] == b"close"


def test_after_the_body_nothing_is_timed() -> None:
    async def wait_for_disconnect(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(receive(), 0.3)
        await send({"type": "http.response.start", "status": 200, "headers": []})

    messages: list[Message] = [{"type": "http.request", "body": b"x", "more_body": False}]
    sent: list[Message] = []

    async def receive() -> Message:
        if not messages:
            await asyncio.sleep(60)
        return messages.pop()

    async def send(message: Message) -> None:
        sent.append(message)

    security = SecurityConfig(b"secret", body_seconds=0.05)
    limited = BodyLimitMiddleware(wait_for_disconnect, security)
    scope = {"type": "http", "method": "POST", "path": "/", "headers": []}
    asyncio.run(limited(scope, receive, send))
    assert sent[0]["status"] == 200
