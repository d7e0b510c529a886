"""Cross-site request forgery, as far as browsers say where a request comes from."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from server.access.requests import TOKEN
from server.labelled_campaigns import AT

FROM_OTHER_SITES = [
    {"origin": "https://evil.example"},
    {"origin": "null"},
    {"origin": "http://127.0.0.1:9999"},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
]


@pytest.mark.parametrize("headers", FROM_OTHER_SITES)
def test_a_change_from_another_site_is_refused(client: TestClient, headers: dict[str, str]) -> None:
    assert "x-csrf-token" in client.headers, "even with the right token"
    answer = {"item": "t1", "label": "spam"}
    assert client.post(f"{AT}/answers", json=answer, headers=headers).status_code == 403
    assert client.get(AT).json()["labelled"] == 0


@pytest.mark.parametrize("headers", FROM_OTHER_SITES)
def test_a_token_does_not_help_another_site(
    token_client: TestClient, headers: dict[str, str]
) -> None:
    bearer = {"authorization": f"Bearer {TOKEN}"}
    answer = {"item": "t1", "label": "spam"}
    response = token_client.post(f"{AT}/answers", json=answer, headers={**headers, **bearer})
    assert response.status_code == 403


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "POST"])
def test_other_sites_cannot_use_the_api(client: TestClient, method: str) -> None:
    headers = {"sec-fetch-site": "cross-site"}
    assert client.request(method, AT, headers=headers).status_code == 403
    assert client.get("/c/texts", headers=headers).status_code == 200, "a link to the page"


def test_a_change_from_the_page_itself_is_allowed(client: TestClient) -> None:
    headers = {"origin": "http://127.0.0.1:8765", "sec-fetch-site": "same-origin"}
    answer = {"item": "t1", "label": "spam"}
    assert client.post(f"{AT}/answers", json=answer, headers=headers).status_code == 200
