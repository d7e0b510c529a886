"""Requests with an Idempotency-Key, on both databases and with a database that goes away."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from campaigns.stores import POSTGRESQL_SLOW, new_place
from server.labelled_campaigns import AT
from server.servers import make_text_campaign, serve_campaigns
from teeter.campaigns import Campaign
from teeter.campaigns.store.copies import copy_to_location
from teeter.campaigns.store.queries import idempotency
from teeter.errors import StoreError

KEY = {"idempotency-key": "k"}


@contextmanager
def serve_on(kind: str, folder: Path) -> Iterator[TestClient]:
    """Serve a campaign of texts that is stored in a database of a kind."""
    location: Any = make_text_campaign(folder / "texts.teeter")
    if kind == "postgresql":
        campaign = Campaign.open(location)
        location = new_place(kind, folder)
        copy_to_location(campaign.database, campaign.name, location)
        campaign.database.close()
    with serve_campaigns(location) as client:
        yield client


@pytest.mark.parametrize("kind", POSTGRESQL_SLOW)
def test_a_key_holds_on_every_database(kind: str, tmp_path: Path) -> None:
    with serve_on(kind, tmp_path) as client:
        item = {"item": "t1", "label": "ham"}
        client.post(f"{AT}/answers", json=item)
        client.post(f"{AT}/answers", json={"item": "t2", "label": "ham"})

        first = client.post(f"{AT}/undo", json={}, headers=KEY)
        repeated = client.post(f"{AT}/undo", json={}, headers=KEY)
        other = client.post(f"{AT}/answers", json=item, headers=KEY)

        assert first.json() == repeated.json()
        assert first.json()["undone"]["item"] == "t2"
        assert client.get(AT).json()["labelled"] == 1
        assert other.status_code == 422

        free = {"idempotency-key": "f"}
        failed = client.post(f"{AT}/classes", json={"name": "ham"}, headers=free)
        added = client.post(f"{AT}/classes", json={"name": "new"}, headers=free)

        assert failed.status_code == 422
        assert added.is_success, "a request that failed leaves its key free"


def repository(client: TestClient) -> Any:
    service = client.app.state.workspace.services["texts"]  # type: ignore[attr-defined]
    return service.campaign.repository.requests


def test_a_database_that_goes_away_after_the_change_does_not_block_the_key(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = repository(client)
    finish = requests.finish

    def go_away(*_: object) -> None:
        raise StoreError("The database is away.")

    monkeypatch.setattr(requests, "finish", go_away)
    first = client.post(f"{AT}/classes", json={"name": "new"}, headers=KEY)
    assert first.status_code == 200, "the change is done"
    monkeypatch.setattr(requests, "finish", finish)

    repeated = client.post(f"{AT}/classes", json={"name": "new"}, headers=KEY)

    assert repeated.json() == first.json()
    other = client.post(f"{AT}/classes", json={"name": "other"}, headers=KEY)
    assert other.status_code == 422


def raise_once(action: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that finds the database away the first time."""
    is_away = iter([True])

    def call(*args: Any, **kwargs: Any) -> Any:
        if next(is_away, False):
            raise StoreError("The database is away.")
        return action(*args, **kwargs)

    return call


def test_a_change_is_not_done_again_if_the_database_goes_away_before_the_answer(
    client: TestClient,
) -> None:
    service = client.app.state.workspace.services["texts"]  # type: ignore[attr-defined]
    for item in ("t1", "t3"):
        client.post(f"{AT}/answers", json={"item": item, "label": "ham"})

    service.read_content = raise_once(service.read_content)
    first = client.post(f"{AT}/undo", json={}, headers=KEY)
    repeated = client.post(f"{AT}/undo", json={}, headers=KEY)

    assert (first.status_code, repeated.status_code) == (503, 409)
    assert "look whether it was done" in repeated.json()["detail"]
    assert client.get(AT).json()["labelled"] == 1, "one answer was taken back"


def test_a_request_that_found_the_database_away_is_done_when_it_is_back(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = repository(client)
    campaign = client.app.state.workspace.services["texts"].campaign  # type: ignore[attr-defined]
    monkeypatch.setattr(campaign, "add_class", raise_once(lambda *_, **__: None))
    monkeypatch.setattr(requests, "forget", raise_once(requests.forget))

    first = client.post(f"{AT}/classes", json={"name": "new"}, headers=KEY)
    monkeypatch.undo()
    repeated = client.post(f"{AT}/classes", json={"name": "new"}, headers=KEY)

    assert (first.status_code, repeated.status_code) == (503, 200)
    assert repeated.json()["classes"][-1]["name"] == "new"


def test_an_old_outcome_does_not_touch_a_request_that_was_sent_again(client: TestClient) -> None:
    requests = repository(client)
    app: Any = client.app
    database = app.state.workspace.services["texts"].campaign.database

    with database.writing() as connection:
        requests.start(connection, "k", "fingerprint", "host/1/new")
        requests.forget(connection, "k", "host/1/old")
        requests.finish(connection, "k", "host/1/old", "{}")
        stored = requests.find(connection, "k")

    assert stored is not None
    assert stored.response is None


def test_a_request_without_an_answer_is_interrupted_after_a_while(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repository(client), "finish", lambda *_: None)
    client.post(f"{AT}/classes", json={"name": "new"}, headers=KEY)
    running = client.post(f"{AT}/classes", json={"name": "new"}, headers=KEY)
    monkeypatch.setattr(idempotency, "_LONGEST_ANSWER_SECONDS", -1.0)

    overdue = client.post(f"{AT}/classes", json={"name": "new"}, headers=KEY)

    assert running.status_code == overdue.status_code == 409
    assert "is being answered" in running.json()["detail"]
    assert "look whether it was done" in overdue.json()["detail"]


@pytest.mark.parametrize("depth", [150, 900, 100_000])
@pytest.mark.parametrize("key", [KEY, {}])
def test_a_body_that_is_nested_deeply_is_refused(
    client: TestClient, depth: int, key: dict[str, str]
) -> None:
    value = "[" * depth + "]" * depth
    headers = {**key, "content-type": "application/json"}

    for path, body in (
        ("items", f'{{"items": [{{"text": "a", "columns": {{"x": {value}}}}}]}}'),
        ("settings", f'{{"options": {{"x": {value}}}}}'),
        ("item", f'{{"item": "t1", "columns": {{"x": {value}}}}}'),
    ):
        method = "POST" if path == "items" else "PATCH"
        response = client.request(method, f"{AT}/{path}", content=body, headers=headers)
        assert response.status_code in (400, 422), (path, response.text[:200])
