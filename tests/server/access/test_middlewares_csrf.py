"""Cross-site request forgery: a change needs a token that other sites cannot read."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from server.access.requests import TOKEN
from server.labelled_campaigns import AT


@pytest.mark.parametrize("token", [b"guess", b"", "é".encode("latin-1")])
def test_a_guessed_token_is_refused(client: TestClient, token: bytes) -> None:
    headers = {b"x-csrf-token": token}
    answer = {"item": "t1", "label": "spam"}
    assert client.post(f"{AT}/answers", json=answer, headers=headers).status_code == 403
    assert client.get(AT).json()["labelled"] == 0


def test_a_change_without_a_token_is_refused(client: TestClient) -> None:
    del client.headers["x-csrf-token"]
    assert client.post(f"{AT}/answers", json={"item": "t1", "label": "spam"}).status_code == 403
    assert client.post("/c/texts/item", data={"id": "t1", "label": "spam"}).status_code == 403
    assert client.post("/api/v1/campaigns", data={"name": "a", "classes": "a,b"}).status_code == 403
    assert client.get(AT).json()["labelled"] == 0


def test_the_token_of_another_session_is_refused(client: TestClient) -> None:
    client.cookies.clear()
    assert client.post(f"{AT}/answers", json={"item": "t1", "label": "spam"}).status_code == 403


def test_a_form_may_carry_the_token(client: TestClient) -> None:
    csrf = client.headers.pop("x-csrf-token")
    form = {"id": "t1", "label": "spam", "csrf": csrf}
    assert client.post("/c/texts/item", data=form).status_code == 200
    assert client.get(AT).json()["labelled"] == 1


def test_a_form_of_very_many_fields_is_refused_unread(client: TestClient) -> None:
    csrf = client.headers.pop("x-csrf-token")
    body = f"csrf={csrf}&" + "a&" * 100_000
    headers = {"content-type": "application/x-www-form-urlencoded"}
    assert client.post("/c/texts/item", content=body, headers=headers).status_code == 403


def test_a_login_from_another_site_is_refused(token_client: TestClient) -> None:
    assert token_client.post("/login", data={"token": TOKEN}).status_code == 403


def test_a_static_path_cannot_be_posted_to(client: TestClient) -> None:
    for token in ("", client.headers["x-csrf-token"]):
        response = client.post("/static/label.js", headers={"x-csrf-token": token})
        assert response.status_code == 403
