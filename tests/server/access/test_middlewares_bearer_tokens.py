"""Programs need a valid token in each request, and cannot guess one."""

from __future__ import annotations

from fastapi.testclient import TestClient

from server.access.requests import TOKEN
from server.labelled_campaigns import AT


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def test_a_wrong_token_is_refused(token_client: TestClient) -> None:
    for wrong in ("", "guess", TOKEN + " x", TOKEN[:-1]):
        response = token_client.get(AT, headers=bearer(wrong))
        assert response.status_code == 401
        assert "invalid_token" in response.headers["www-authenticate"]
    assert token_client.get(AT, headers={"authorization": "Bearer"}).status_code == 401
    assert token_client.get("/login", headers=bearer("guess")).status_code == 401
    assert token_client.get("/static/label.js", headers=bearer("guess")).status_code == 401


def test_a_program_answers_by_its_token(token_client: TestClient) -> None:
    answer = {"item": "t1", "label": "ham"}
    response = token_client.post(f"{AT}/answers", json=answer, headers=bearer(TOKEN))
    assert response.status_code == 200
    assert "set-cookie" not in response.headers

    answers = token_client.get(f"{AT}/item?id=t1", headers=bearer(TOKEN)).json()["answers"]
    assert [(answer["annotator"], answer["label"]) for answer in answers] == [("ann", "ham")]


def test_a_program_cannot_choose_another_name(token_client: TestClient) -> None:
    body = {"annotator": "boss"}
    response = token_client.post("/api/v1/session", json=body, headers=bearer(TOKEN))
    assert response.status_code == 422


def test_guessing_is_slowed_down_but_a_right_token_always_works(token_client: TestClient) -> None:
    statuses = [
        token_client.get(AT, headers=bearer(f"wrong {number}")).status_code for number in range(12)
    ]
    assert statuses == [401] * 10 + [429] * 2
    assert token_client.get(AT, headers=bearer(TOKEN)).status_code == 200


def test_a_token_is_ignored_where_none_is_required(client: TestClient) -> None:
    assert client.get(AT, headers=bearer("whatever")).status_code == 200
