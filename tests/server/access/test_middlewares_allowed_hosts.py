"""DNS rebinding: a page of another site, under a name that resolves to this
machine, gets nothing.
"""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8765", "127.0.0.1.evil.example", "[::2]", "[", ""]
)
@pytest.mark.parametrize("path", ["/", "/api/v1/session", "/static/label.js"])
def test_another_host_name_is_refused(client: TestClient, host: str, path: str) -> None:
    response = client.get(path, headers={"host": host})
    assert response.status_code == 400
    assert repr(host) in response.text


@pytest.mark.parametrize("host", ["localhost:8765", "127.0.0.1", "[::1]:8765", "LOCALHOST"])
def test_names_of_this_machine_are_allowed(client: TestClient, host: str) -> None:
    assert client.get("/api/v1/session", headers={"host": host}).status_code == 200


def test_a_proxy_may_use_any_name_where_tokens_are_required(token_client: TestClient) -> None:
    response = token_client.get("/login", headers={"host": "label.example.org"})
    assert response.status_code == 200
