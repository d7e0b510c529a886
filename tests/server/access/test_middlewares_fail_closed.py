"""While the tokens cannot be read, no one is let in."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from server.access.requests import TOKEN
from server.labelled_campaigns import AT
from teeter.errors import StoreError


@pytest.mark.parametrize("headers", [{}, {"authorization": f"Bearer {TOKEN}"}])
def test_a_database_that_is_away_lets_no_one_in(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, headers: dict[str, str]
) -> None:
    def fail(*_: object) -> bool:
        raise StoreError("The database db.example:5432 does not answer.")

    campaign_tokens = client.app.state.workspace.campaign_tokens  # type: ignore[attr-defined]
    monkeypatch.setattr(campaign_tokens, "is_required", fail)

    for path in ("/c/texts", AT):
        response = client.get(path, headers=headers)
        assert response.status_code == 503
        assert response.headers["retry-after"] == "2"
        assert "db.example" not in response.text
    answer = {"item": "t1", "label": "spam"}
    assert client.post(f"{AT}/answers", json=answer, headers=headers).status_code == 503
    assert client.get("/static/label.js").status_code == 200
