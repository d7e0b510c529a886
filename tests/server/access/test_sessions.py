"""Forged, stolen and outdated session cookies."""

from __future__ import annotations

import os
import time
from contextlib import AbstractContextManager
from pathlib import Path

import itsdangerous
import pytest
from fastapi.testclient import TestClient

from server.access.requests import TOKEN
from server.labelled_campaigns import AT
from server.servers import BASE, find_csrf_token, make_text_campaign, serve_campaigns
from teeter.server.access import Authenticator, EndedSessions, SecurityConfig, sessions
from teeter.server.access.sessions import Session, SessionCookie
from teeter.server.access.tokens import Tokens
from teeter.server.app import make_app

COOKIE = SecurityConfig(b"").cookie_name


def cookie_header(session: Session, secret: bytes = b"secret") -> dict[str, str]:
    return {"cookie": f"{COOKIE}={SessionCookie(COOKIE, secret).encode(session)}"}


def test_scripts_and_other_sites_cannot_use_the_cookie(tmp_path: Path) -> None:
    app = make_app(security=SecurityConfig(b"s"), folder=tmp_path, warm=False)
    with TestClient(app, base_url=BASE) as client:
        cookie = client.get("/").headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=lax" in cookie
    assert "secure" not in cookie

    app = make_app(security=SecurityConfig(b"s"), folder=tmp_path, warm=False)
    with TestClient(app, base_url=BASE.replace("http:", "https:")) as client:
        assert "secure" in client.get("/").headers["set-cookie"].lower()


def test_a_cookie_is_sent_only_when_the_session_changes(client: TestClient) -> None:
    assert "set-cookie" not in client.get(AT).headers
    assert "set-cookie" not in client.get("/static/label.js").headers


def test_a_forged_cookie_is_ignored(client: TestClient) -> None:
    session = Authenticator(SecurityConfig(b"other")).session_for_name("boss")
    headers = cookie_header(session, b"another secret")
    headers["x-csrf-token"] = session.csrf_token
    client.cookies.clear()
    answer = {"item": "t1", "label": "spam"}
    assert client.post(f"{AT}/answers", json=answer, headers=headers).status_code == 403


@pytest.mark.parametrize("value", ["", ".", "a.b", "a.b.c", "é", "x" * 5000, "null"])
def test_a_broken_cookie_is_ignored(client: TestClient, value: str) -> None:
    client.cookies.clear()
    headers = {b"cookie": f"{COOKIE}={value}".encode()}
    assert client.get("/api/v1/session", headers=headers).status_code == 200


def test_a_changed_cookie_is_ignored() -> None:
    cookie = SessionCookie(COOKIE, b"secret")
    value = cookie.encode(Session("ann", "csrf"))
    assert cookie.decode(value) == Session("ann", "csrf")
    for position in range(0, len(value) - 1, 7):
        other = "A" if value[position] != "A" else "B"
        assert cookie.decode(value[:position] + other + value[position + 1 :]) is None


def test_an_old_cookie_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    cookie = SessionCookie(COOKIE, b"secret")
    value = cookie.encode(Session("ann", "csrf"))
    issued_at = itsdangerous.timed.time.time()
    day = 24 * 3600
    monkeypatch.setattr(itsdangerous.timed.time, "time", lambda: issued_at + 13 * day)
    assert cookie.decode(value) is not None
    monkeypatch.setattr(itsdangerous.timed.time, "time", lambda: issued_at + 15 * day)
    assert cookie.decode(value) is None


@pytest.mark.parametrize("payload", [["ann", "csrf", ""], {"annotator": "ann"}, "ann", 1, None])
def test_a_signed_cookie_of_another_version_is_ignored(
    token_client: TestClient, payload: object
) -> None:
    cookie = SessionCookie(COOKIE, b"secret")
    value = str(cookie._serializer.dumps(payload))
    assert cookie.decode(value) is None
    headers = {"cookie": f"{COOKIE}={value}"}
    assert token_client.get(AT, headers=headers).status_code == 401


def test_a_cookie_of_a_server_without_tokens_is_no_login(token_client: TestClient) -> None:
    free = Authenticator(SecurityConfig(b"secret"))
    for session in (free.session_for_name("ann"), free.new_session()):
        token_client.cookies.clear()
        assert token_client.get(AT, headers=cookie_header(session)).status_code == 401


def test_a_login_gets_a_new_session(token_client: TestClient) -> None:
    """A session that an attacker planted before the login is not the one after it."""
    csrf = find_csrf_token(token_client.get("/login").text)
    planted = token_client.cookies[COOKIE]
    token_client.post("/login", data={"csrf": csrf, "token": TOKEN})
    assert token_client.cookies[COOKIE] != planted
    assert token_client.get("/api/v1/session").json()["csrf"] != csrf
    token_client.cookies.clear()
    assert token_client.get(AT, headers={"cookie": f"{COOKIE}={planted}"}).status_code == 401


def test_a_logout_ends_the_session_in_all_tabs_and_for_good(tmp_path: Path) -> None:
    tokens = Tokens()
    tokens.add("ann", TOKEN)
    ended = tmp_path / "ended_sessions"
    file = make_text_campaign(tmp_path / "texts.teeter", 30)

    def serve() -> AbstractContextManager[TestClient]:
        security = SecurityConfig(b"secret", tokens, None, ended_sessions=EndedSessions(ended))
        return serve_campaigns(file, security=security)

    def log_in(client: TestClient) -> dict[str, str]:
        csrf = find_csrf_token(client.get("/login").text)
        client.post("/login", data={"csrf": csrf, "token": TOKEN})
        session = client.get("/api/v1/session").json()
        headers = {"cookie": f"{COOKIE}={client.cookies[COOKIE]}", "x-csrf-token": session["csrf"]}
        client.cookies.clear()
        return headers

    answer = {"item": "t1", "label": "spam"}
    with serve() as client:
        here, elsewhere = log_in(client), log_in(client)
        assert client.post("/logout", headers=here, follow_redirects=False).status_code == 303
        client.cookies.clear()
        assert client.post(f"{AT}/answers", json=answer, headers=here).status_code == 401
        assert client.get(AT, headers=elsewhere).status_code == 200, "the login of another browser"

    with serve() as client:
        assert client.post(f"{AT}/answers", json=answer, headers=here).status_code == 401
        assert client.get(AT, headers=elsewhere).status_code == 200


def test_another_login_ends_the_session_before_it(token_client: TestClient) -> None:
    log_in = {"csrf": find_csrf_token(token_client.get("/login").text), "token": TOKEN}
    token_client.post("/login", data=log_in)
    before = {"cookie": f"{COOKIE}={token_client.cookies[COOKIE]}"}
    csrf = token_client.get("/api/v1/session").json()["csrf"]

    refused = token_client.post("/login", data={"csrf": csrf, "token": "another token"})
    assert refused.status_code == 401
    assert token_client.get(AT).status_code == 200, "a wrong token ends nothing"

    token_client.post("/login", data={"csrf": csrf, "token": TOKEN})
    assert token_client.get(AT).status_code == 200
    token_client.cookies.clear()
    assert token_client.get(AT, headers=before).status_code == 401


def test_a_process_forgets_ended_sessions_whose_cookies_have_expired(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended = EndedSessions()
    first, second = Session("ann", "csrf of ann"), Session("bob", "csrf of bob")
    ended.add(first)
    now = time.time()
    monkeypatch.setattr(sessions.time, "time", lambda: now + 15 * 24 * 3600)
    assert first in ended
    ended.add(second)

    assert second in ended
    assert first not in ended


def test_ended_sessions_are_forgotten_when_their_cookies_have_expired(tmp_path: Path) -> None:
    ended = EndedSessions(tmp_path)
    first, second = Session("ann", "csrf of ann"), Session("bob", "csrf of bob")
    ended.add(first)
    (file,) = tmp_path.iterdir()
    assert file.stat().st_size == 0
    os.utime(file, (0, 0))

    ended.add(second)

    assert len(list(tmp_path.iterdir())) == 1
    assert second in EndedSessions(tmp_path)
    assert first not in EndedSessions(tmp_path)


def test_a_name_can_be_chosen_where_no_token_is_required(client: TestClient) -> None:
    session = client.post("/api/v1/session", json={"annotator": "Zoë"}).json()
    client.headers["x-csrf-token"] = session["csrf"]
    client.post(f"{AT}/answers", json={"item": "t3", "label": "ham"})
    assert client.get(f"{AT}/item?id=t3").json()["answers"][0]["annotator"] == "Zoë"


@pytest.mark.parametrize("name", ["a\0b", "ann\u202ebob", "a\nb", "\u200b", "", " "])
def test_a_name_that_cannot_be_printed_is_refused(client: TestClient, name: str) -> None:
    assert client.post("/api/v1/session", json={"annotator": name}).status_code == 422
    assert client.post("/name", data={"annotator": name}).status_code == 422
