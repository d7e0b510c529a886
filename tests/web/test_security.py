"""Whoever has no business here is refused: other sites, other hosts, wrong tokens, long bodies, paths that lead out."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from teeter.campaigns.campaign import Campaign
from teeter.errors import InputError
from teeter.web.app import make_app
from teeter.web.security import COOKIE, SecurityConfig, is_loopback
from teeter.web.tokens import Tokens, make_token
from web.labelled_campaigns import AT
from web.servers import BASE, HARMFUL, begin, csrf_of, served

TOKEN = "correct-horse-battery-staple"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    with served(begin(tmp_path / "texts.teeter", 30)) as made:
        yield made


@pytest.fixture
def strict(tmp_path: Path) -> Iterator[TestClient]:
    """A server that needs tokens."""
    tokens = Tokens()
    tokens.add("ann", TOKEN)
    tokens.add("bob", TOKEN + "-of-bob")
    with served(
        begin(tmp_path / "texts.teeter", 30), guard=SecurityConfig(b"secret", tokens, None)
    ) as made:
        yield made


def test_headers_on_everything(client: TestClient) -> None:
    for path in ("/c/texts", AT, "/static/label.js", "/c/nothing", f"{AT}/item?id=nobody"):
        headers = client.get(path).headers
        assert headers["content-security-policy"].startswith("default-src 'self'")
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert "access-control-allow-origin" not in headers


def test_the_cookie_cannot_be_read_or_sent_from_elsewhere(tmp_path: Path) -> None:
    with TestClient(
        make_app(guard=SecurityConfig(b"s"), folder=tmp_path, warm=False), base_url=BASE
    ) as client:
        cookie = client.get("/").headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8765", "127.0.0.1.evil.example", "[::2]", ""]
)
def test_another_host_name_is_refused(client: TestClient, host: str) -> None:
    assert client.get("/api/v1/session", headers={"host": host}).status_code == 400


@pytest.mark.parametrize("host", ["localhost:8765", "127.0.0.1", "[::1]:8765"])
def test_our_own_names_are_known(client: TestClient, host: str) -> None:
    assert client.get("/api/v1/session", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9999"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"x-csrf-token": "guess"},
        {"x-csrf-token": "é".encode("latin-1").decode("latin-1")},
    ],
)
def test_a_post_from_another_site_is_refused(client: TestClient, headers: dict[str, str]) -> None:
    raw = {name: value.encode("latin-1") for name, value in headers.items()}
    told = client.post(f"{AT}/answers", json={"item": "t1", "label": "spam"}, headers=raw)
    assert told.status_code == 403
    assert client.get(AT).json()["labelled"] == 0


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "POST"])
def test_other_sites_ask_the_interface_nothing(client: TestClient, method: str) -> None:
    assert client.request(method, AT, headers={"sec-fetch-site": "cross-site"}).status_code == 403
    assert client.get("/c/texts", headers={"sec-fetch-site": "cross-site"}).status_code == 200, (
        "a link to the page"
    )


def test_a_post_without_the_session_s_token_is_refused(client: TestClient) -> None:
    del client.headers["x-csrf-token"]
    assert client.post(f"{AT}/answers", json={"item": "t1", "label": "spam"}).status_code == 403
    assert client.post("/c/texts/item", data={"id": "t1", "label": "spam"}).status_code == 403
    assert client.post("/api/v1/campaigns", data={"name": "a", "classes": "a,b"}).status_code == 403
    assert client.get(AT).json()["labelled"] == 0


def test_a_form_may_carry_it(client: TestClient) -> None:
    csrf = client.headers.pop("x-csrf-token")
    told = client.post("/c/texts/item", data={"id": "t1", "label": "spam", "csrf": csrf})
    assert told.status_code == 200
    assert client.get(AT).json()["labelled"] == 1


def test_a_forged_cookie_is_nobody_s(client: TestClient) -> None:
    guard = SecurityConfig(b"another secret")
    session = guard.named(guard.fresh(), "boss")
    headers = {"cookie": f"{COOKIE}={guard.cookie(session)}", "x-csrf-token": guard.csrf(session)}
    client.cookies.clear()
    assert (
        client.post(
            f"{AT}/answers", json={"item": "t1", "label": "spam"}, headers=headers
        ).status_code
        == 403
    )
    for broken in ("", ".", "a.b", "é", "x" * 5000):
        client.cookies.clear()
        assert (
            client.get(
                "/api/v1/session", headers={b"cookie": f"{COOKIE}={broken}".encode()}
            ).status_code
            == 200
        )


def test_long_bodies_are_refused(client: TestClient) -> None:
    body = {"item": "t1", "label": "spam", "comment": "x" * 2_000_000}
    assert client.post(f"{AT}/answers", json=body).status_code == 413

    def chunks() -> Iterator[bytes]:
        yield b'{"item": "'
        for _ in range(300):
            yield b"x" * 10_000

    headers = {"content-type": "application/json"}
    assert client.post(f"{AT}/answers", content=chunks(), headers=headers).status_code == 413
    assert (
        client.post(
            f"{AT}/answers", content=b"{}", headers={**headers, "content-length": "-5"}
        ).status_code
        == 400
    )


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        (f"{AT}/answers", "application/json"),
        ("/name", "application/x-www-form-urlencoded"),
        ("/api/v1/campaigns", "multipart/form-data; boundary=x"),
    ],
)
def test_bodies_that_do_not_come_are_not_waited_for(tmp_path: Path, path: str, kind: str) -> None:
    limits = {"body_seconds": 0.2, "upload_seconds": 3600.0}
    if path == "/api/v1/campaigns":
        limits = {"body_seconds": 3600.0, "upload_seconds": 0.2}
    guard = SecurityConfig(b"secret", **limits)
    with served(begin(tmp_path / "texts.teeter", 30), guard=guard, folder=tmp_path) as client:
        cookie = f"{COOKIE}={client.cookies[COOKIE]}"
        told = {
            "host": "127.0.0.1",
            "content-type": kind,
            "cookie": cookie,
            "content-length": "100",
        }
        told["x-csrf-token"] = client.headers["x-csrf-token"]
        status, headers = asyncio.run(dripped(client.app, path, told))
        assert status == 408
        assert headers[b"connection"] == b"close"
        guard.body_seconds = (
            3600.0  # a busy machine may take longer than the fifth of a second above
        )
        assert client.post("/name", data={"annotator": "Zoë"}).status_code == 200


async def dripped(app: Any, path: str, headers: dict[str, str]) -> tuple[int, dict[bytes, bytes]]:
    """Post a body of which a sign comes now and then, and return the answer's status and headers."""
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(0.05)
        return {"type": "http.request", "body": b"\n", "more_body": True}

    async def send(message: Any) -> None:
        sent.append(message)

    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
    }
    scope |= {
        "headers": raw,
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
        "scheme": "http",
    }
    scope |= {"http_version": "1.1", "root_path": ""}
    await asyncio.wait_for(app(scope, receive, send), 120)
    return sent[0]["status"], dict(sent[0]["headers"])


def test_html_in_texts_is_text(client: TestClient) -> None:
    page = client.get("/c/texts/item?id=html").text
    assert HARMFUL not in page
    assert "&lt;script&gt;alert" in page
    assert "<script>alert" not in client.get("/c/texts/items?search=script").text
    refused = client.get("/c/texts/item", params={"id": "<script>alert(1)</script>"})
    assert refused.status_code == 404
    assert "<script>alert" not in refused.text


def test_beyond_this_machine_nobody_comes_in_without_a_token(strict: TestClient) -> None:
    assert strict.get(AT).status_code == 401
    assert strict.get("/c/texts", follow_redirects=False).headers["location"] == "/login"
    assert strict.get("/login").status_code == 200
    for wrong in ("", "guess", TOKEN + " ", TOKEN[:-1]):
        told = strict.get(AT, headers={"authorization": f"Bearer {wrong}x"})
        assert told.status_code == 401


def test_a_program_comes_in_by_its_token(strict: TestClient) -> None:
    headers = {"authorization": f"Bearer {TOKEN}"}
    assert (
        strict.post(
            f"{AT}/answers", json={"item": "t1", "label": "ham"}, headers=headers
        ).status_code
        == 200
    )
    said = strict.get(f"{AT}/item?id=t1", headers=headers).json()["answers"]
    assert [(one["annotator"], one["label"]) for one in said] == [("ann", "ham")]
    assert (
        strict.post("/api/v1/session", json={"annotator": "boss"}, headers=headers).status_code
        == 422
    )


def test_people_log_in_and_out(strict: TestClient) -> None:
    page = strict.get("/login").text
    told = strict.post("/login", data={"csrf": csrf_of(page), "token": TOKEN})
    assert told.status_code == 200
    session = strict.get("/api/v1/session").json()
    assert session["annotator"] == "ann"
    strict.post(
        f"{AT}/answers",
        json={"item": "t1", "label": "ham"},
        headers={"x-csrf-token": session["csrf"]},
    )
    strict.post("/logout", data={"csrf": session["csrf"]})
    assert strict.get(AT).status_code == 401


def test_a_login_from_another_site_is_refused(strict: TestClient) -> None:
    assert strict.post("/login", data={"token": TOKEN}).status_code == 403


def test_wrong_tokens_are_slowed_down(strict: TestClient) -> None:
    csrf = csrf_of(strict.get("/login").text)
    states = [
        strict.post("/login", data={"csrf": csrf, "token": f"wrong {k}"}).status_code
        for k in range(12)
    ]
    assert states[:10] == [401] * 10
    assert states[10:] == [429] * 2
    assert strict.get(AT, headers={"authorization": "Bearer wrong"}).status_code == 429
    assert strict.get(AT, headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200
    told = strict.post("/login", data={"csrf": csrf, "token": TOKEN}, follow_redirects=False)
    assert told.status_code == 303, "a right token is never kept waiting"


def test_programs_with_wrong_tokens_are_slowed_down(strict: TestClient) -> None:
    states = [
        strict.get(AT, headers={"authorization": f"Bearer wrong {k}"}).status_code
        for k in range(12)
    ]
    assert states == [401] * 10 + [429] * 2


def test_a_token_that_is_gone_ends_its_sessions() -> None:
    tokens = Tokens()
    tokens.add("ann", TOKEN)
    guard = SecurityConfig(b"secret", tokens)
    session = guard.entered(TOKEN)
    assert session is not None
    cookie = guard.cookie(session)
    assert guard.session_of(cookie) == session
    for name, token in (("bob", TOKEN), ("ann", TOKEN + "-renewed")):
        other = Tokens()
        other.add(name, token)
        assert SecurityConfig(b"secret", other).session_of(cookie) is None
    assert SecurityConfig(b"secret").session_of(cookie) is None, (
        "nor is it one where no token is needed"
    )


def test_a_cookie_of_a_server_without_tokens_is_no_login(strict: TestClient) -> None:
    free = SecurityConfig(b"secret")
    for session in (free.named(free.fresh(), "ann"), free.fresh()):
        strict.cookies.clear()
        assert (
            strict.get(AT, headers={"cookie": f"{COOKIE}={free.cookie(session)}"}).status_code
            == 401
        )


def test_a_cookie_of_fewer_fields_is_unknown(strict: TestClient) -> None:
    guard = SecurityConfig(b"secret")
    packed = (
        base64.urlsafe_b64encode(json.dumps(["id", "ann", int(time.time())]).encode())
        .decode()
        .rstrip("=")
    )
    cookie = f"{packed}.{guard._signature(packed)}"
    assert guard.session_of(cookie) is None
    assert strict.get(AT, headers={"cookie": f"{COOKIE}={cookie}"}).status_code == 401


@pytest.mark.parametrize(
    ("host", "alone"), [("127.0.0.1", True), ("localhost", True), ("::1", True), ("0.0.0.0", False)]
)
def test_loopback(host: str, alone: bool) -> None:
    assert is_loopback(host) is alone


def test_a_name_can_be_chosen_on_this_machine(client: TestClient) -> None:
    told = client.post("/api/v1/session", json={"annotator": "Zoë"}).json()
    client.headers["x-csrf-token"] = told["csrf"]
    client.post(f"{AT}/answers", json={"item": "t3", "label": "ham"})
    assert client.get(f"{AT}/item?id=t3").json()["answers"][0]["annotator"] == "Zoë"


@pytest.mark.parametrize("name", ["a\0b", "ann\u202ebob", "a\nb", "\u200b", "", " "])
def test_a_name_that_cannot_be_printed_is_refused(
    client: TestClient, tmp_path: Path, name: str
) -> None:
    assert client.post("/api/v1/session", json={"annotator": name}).status_code == 422
    assert client.post("/name", data={"annotator": name}).status_code == 422
    with pytest.raises(InputError, match="name of an annotator"):
        make_token(tmp_path / "tokens.json", name)


def test_nothing_of_the_campaign_is_changed_by_reading(client: TestClient, tmp_path: Path) -> None:
    before = Campaign.open(tmp_path / "texts.teeter").history()
    for page in ("/c/texts/items", "/c/texts/progress", f"{AT}/items", f"{AT}/progress"):
        client.get(page)
    assert Campaign.open(tmp_path / "texts.teeter").history() == before
