"""Webhooks over REST: added once, listed and removed."""

from __future__ import annotations

from fastapi.testclient import TestClient

from server.labelled_campaigns import (
    AT,
)


def test_webhooks_are_added_listed_and_removed(client: TestClient) -> None:
    added = client.post(
        f"{AT}/webhooks", json={"url": "https://example.org/x", "events": ["labelled"]}
    ).json()
    assert len(added["secret"]) > 30
    (listed,) = client.get(f"{AT}/webhooks").json()
    assert "secret" not in listed
    assert client.get(f"{AT}/webhooks/deliveries").json() == []
    assert client.post(f"{AT}/webhooks", json={"url": "file:///etc"}).status_code == 422

    replaced = client.post(f"{AT}/webhooks/secret", json={"id": added["id"]}).json()
    assert replaced["secret"].startswith("whsec_")
    assert replaced["secret"] != added["secret"]

    assert client.post(f"{AT}/webhooks/remove", json={"id": added["id"]}).json() == []
    assert client.post(f"{AT}/webhooks/remove", json={"id": added["id"]}).json() == []
    assert client.post(f"{AT}/webhooks/remove", json={"id": 99}).status_code == 404


def test_a_webhook_that_is_sent_again_is_added_once(client: TestClient) -> None:
    first = client.post(f"{AT}/webhooks", json={"url": "https://example.org/x"}).json()
    repeated = client.post(f"{AT}/webhooks", json={"url": "https://example.org/x"}).json()

    assert repeated == {**first, "secret": None}, "the secret is shown only once"
    assert len(client.get(f"{AT}/webhooks").json()) == 1
