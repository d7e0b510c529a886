"""Items, classes and settings over REST: added and changed, once, and by owners only."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from teeter.campaigns import Campaign
from web.labelled_campaigns import AT
from web.servers import make_text_campaign, serve_campaigns


def add(client: TestClient, items: list[dict[str, Any]], **headers: str) -> Any:
    return client.post(f"{AT}/items", json={"items": items}, headers=headers)


def test_items_are_added_with_their_columns_and_labels(client: TestClient) -> None:
    items: list[dict[str, Any]] = [
        {"id": "new", "text": "A new text", "columns": {"customer": "ACME", "n": {"deep": [1]}}},
        {"text": "Another one", "label": "spam"},
        {"id": "copy", "text": "A new text"},
    ]

    added = add(client, items).json()

    assert added == {"new": 2, "duplicates": 1, "labelled": 1, "conflicts": 0}
    item = client.get(f"{AT}/item", params={"id": "new"}).json()
    assert item["row"] == {"customer": "ACME", "n": {"deep": [1]}}
    found = client.get(f"{AT}/items", params={"column": "customer=ACME"}).json()["items"]
    assert [row["item"] for row in found] == ["new"]
    assert client.get(AT).json()["items"] == 123


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ({"text": ""}, "has no text"),
        ({"text": "a", "label": "lost"}, "No class is called 'lost'"),
        ({"text": "a", "columns": {"label": "x"}}, "cannot be called 'label'"),
        ({"text": "a", "lost": 1}, "Extra inputs"),
        ({"text": "a\0"}, "NUL"),
        ({"id": "t1", "text": "another"}, "Two different items have the id 't1'"),
    ],
)
def test_an_item_that_cannot_be_added_adds_none(
    client: TestClient, item: dict[str, Any], message: str
) -> None:
    response = add(client, [{"text": "fine"}, item])

    assert response.status_code == 422
    assert message in response.json()["detail"]
    assert client.get(AT).json()["items"] == 121


def test_a_request_with_a_key_is_done_once(client: TestClient) -> None:
    body = {"name": "maybe"}
    headers = {"idempotency-key": "k1"}

    first = client.post(f"{AT}/classes", json=body, headers=headers)
    again = client.post(f"{AT}/classes", json=body, headers=headers)
    other = client.post(f"{AT}/classes", json={"name": "x"}, headers=headers)

    assert first.status_code == again.status_code == 200
    assert first.json() == again.json()
    assert [entry["name"] for entry in first.json()["classes"]] == ["spam", "ham", "maybe"]
    assert other.status_code == 422
    assert "was used for another request" in other.json()["detail"]
    assert client.post(f"{AT}/classes", json=body).status_code == 422, "without a key it fails"


def test_settings_are_changed_together_or_not_at_all(client: TestClient, file: Path) -> None:
    changed = client.patch(f"{AT}/settings", json={"instructions": "Read.", "lease": 5}).json()
    assert (changed["instructions"], changed["lease"]) == ("Read.", 5)

    for body in (
        {"instructions": "No.", "strategy": "lost"},
        {"show": ["lost"]},
        {"keys": ["s", "s"]},
        {"lease": None},
        {"kind": "image"},
        {"budget": 5},
        {"options": {"lost": 1}},
    ):
        assert client.patch(f"{AT}/settings", json=body).status_code == 422, body
    assert client.get(f"{AT}/settings").json() == changed
    campaign = Campaign.open(file)
    assert campaign.settings.instructions == "Read."
    assert campaign.history()[-1]["what"] == "settings"
    campaign.database.close()


def test_a_file_of_items_is_added_in_the_background(client: TestClient) -> None:
    upload = {"file": ("more.csv", b"id,body,n\nx1,one more,5\nx2,two more,6\n")}
    job = client.post(f"{AT}/items/file", files=upload, data={"text": "body"}).json()["job"]

    state = client.get(f"/api/v1/jobs/{job}").json()

    assert state["state"] == "done", state
    assert state["result"]["new"] == 2
    assert client.get(f"{AT}/item", params={"id": "x2"}).json()["row"]["n"] == 6
    bad = client.post(f"{AT}/items/file", files={"file": ("x.csv", b"a,b\n1,2\n")}).json()["job"]
    assert client.get(f"/api/v1/jobs/{bad}").json()["state"] == "failed"


def test_only_owners_change_a_campaign(tmp_path: Path) -> None:
    file = make_text_campaign(tmp_path / "texts.teeter")
    campaign = Campaign.open(file)
    campaign.people.add("olga", "owner")
    token = campaign.people.add("ann", "annotator")
    campaign.database.close()

    with serve_campaigns(file) as client:
        client.headers["authorization"] = f"Bearer {token}"
        for path, body in (
            ("items", {"items": [{"text": "a"}]}),
            ("classes", {"name": "x"}),
            ("webhooks", {"url": "https://example.org"}),
        ):
            assert client.post(f"{AT}/{path}", json=body).status_code == 403, path
        assert client.patch(f"{AT}/settings", json={"lease": 1}).status_code == 403
        assert client.get(f"{AT}/webhooks").status_code == 403
        assert "teeter_items{" not in client.get("/metrics").text


def test_webhooks_are_added_listed_and_removed(client: TestClient) -> None:
    added = client.post(
        f"{AT}/webhooks", json={"url": "https://example.org/x", "events": ["labelled"]}
    ).json()
    assert len(added["secret"]) > 30
    (listed,) = client.get(f"{AT}/webhooks").json()
    assert "secret" not in listed
    assert client.get(f"{AT}/webhooks/deliveries").json() == []
    assert client.post(f"{AT}/webhooks", json={"url": "file:///etc"}).status_code == 422

    assert client.post(f"{AT}/webhooks/remove", json={"id": added["id"]}).json() == []
    assert client.post(f"{AT}/webhooks/remove", json={"id": added["id"]}).status_code == 404


def test_metrics_are_in_the_text_format_of_prometheus(client: TestClient) -> None:
    response = client.get("/metrics")

    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = response.text.splitlines()
    assert 'teeter_items{campaign="texts"} 121' in lines
    assert 'teeter_answered_items{campaign="texts",kind="label"} 0' in lines
    sample = re.compile(r'[a-z_]+(\{[a-z]+="[^"]*"(,[a-z]+="[^"]*")*\})? [0-9.e+]+')
    assert all(line.startswith("# ") or sample.fullmatch(line) for line in lines)


@pytest.mark.slow
def test_the_api_page_lists_every_operation_and_loads_nothing(client: TestClient) -> None:
    page = client.get("/docs")

    assert page.status_code == 200
    description = client.get("/api/v1/openapi.json").json()
    for path, methods in description["paths"].items():
        for method in methods:
            assert f"<code>{method.upper()} {path}</code>" in page.text
    for name in description["components"]["schemas"]:
        assert f'id="type-{name}"' in page.text
    # Everything that the browser would load comes from this server.
    sources = re.findall(r'(?:src|href)="([^"]*)"', page.text)
    assert all(source.startswith(("/", "#", "data:")) for source in sources), sources
