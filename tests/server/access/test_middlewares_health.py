"""The health check answers anyone, and says nothing."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from teeter.errors import StoreError
from teeter.server.access import HEALTH_PATH


def test_a_health_check_needs_no_token_and_no_host_name(token_client: TestClient) -> None:
    response = token_client.get(HEALTH_PATH, headers={"host": "10.0.0.7:8765"})
    assert response.status_code == 200
    assert response.text == "ok\n"
    assert "set-cookie" not in response.headers
    assert response.headers["x-content-type-options"] == "nosniff"
    assert token_client.head(HEALTH_PATH).status_code == 200


def test_it_does_not_depend_on_a_database(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> bool:
        raise StoreError("away")

    monkeypatch.setattr("teeter.server.access.tokens.CampaignTokens.is_required", fail)
    assert client.get("/").status_code == 503
    assert client.get(HEALTH_PATH).status_code == 200


@pytest.mark.parametrize("path", ["/healthz/", "/healthzx", "/api/healthz"])
def test_nothing_else_is_open(token_client: TestClient, path: str) -> None:
    assert token_client.get(path, follow_redirects=False).status_code in (303, 401)
    assert token_client.post(HEALTH_PATH, follow_redirects=False).status_code == 303
