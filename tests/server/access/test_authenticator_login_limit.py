"""Guessing tokens."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from fastapi.testclient import TestClient

from server.access.requests import TOKEN
from server.labelled_campaigns import AT
from server.servers import find_csrf_token
from teeter.server.access import authenticator
from teeter.server.access.authenticator import FailedLoginLimit


def test_wrong_tokens_in_the_form_are_slowed_down(token_client: TestClient) -> None:
    csrf = find_csrf_token(token_client.get("/login").text)
    statuses = [
        token_client.post("/login", data={"csrf": csrf, "token": f"wrong {number}"}).status_code
        for number in range(12)
    ]
    assert statuses == [401] * 10 + [429] * 2

    # The same client is counted once for the form and for programs.
    wrong = {"authorization": "Bearer wrong"}
    response = token_client.get(AT, headers=wrong)
    assert response.status_code == 429
    assert response.headers["retry-after"] == "60"

    right = {"authorization": f"Bearer {TOKEN}"}
    assert token_client.get(AT, headers=right).status_code == 200
    form = {"csrf": csrf, "token": TOKEN}
    response = token_client.post("/login", data=form, follow_redirects=False)
    assert response.status_code == 303, "a right token is never refused"


def test_failures_are_forgotten_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(authenticator, "time", SimpleNamespace(monotonic=lambda: now))
    limit = FailedLoginLimit(attempts=2, seconds=60)
    assert [limit.record_failure("192.0.2.1") for _ in range(3)] == [False, False, True]
    assert not limit.record_failure("192.0.2.2"), "another client"
    now += 61
    assert not limit.record_failure("192.0.2.1")


def test_a_client_cannot_evade_by_its_many_ipv6_addresses() -> None:
    limit = FailedLoginLimit(attempts=2)
    refused = [limit.record_failure(f"2001:db8::{number:x}") for number in range(3)]
    assert refused == [False, False, True]
    assert not limit.record_failure("2001:db8:0:1::1"), "another network"


def test_many_addresses_do_not_reset_the_limit_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authenticator, "_MAX_CLIENTS", 5)
    limit = FailedLoginLimit(attempts=1)
    for number in range(20):
        limit.record_failure(f"192.0.2.{number}")
    assert limit.record_failure("192.0.2.19")
    assert len(limit._failures) == 5
