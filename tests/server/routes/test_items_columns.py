"""Columns of tables on the page and in the REST API: shown, searched and filtered by."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from server.servers import serve_campaigns
from teeter.campaigns import Campaign, Settings
from teeter.campaigns.items.read_items import read_items

AT = "/api/v1/campaigns/rows"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    """A served campaign of 60 texts with the columns customer, n, place and notes."""
    source = tmp_path / "rows.jsonl"
    rows = []
    for number in range(60):
        row: dict[str, Any] = {"id": f"r{number}", "text": f"text {number}", "n": number}
        row |= {"customer": "ACME" if number % 20 == 3 else f"shop {number}", "notes": None}
        row |= {"place": {"zip": f"10{number}"}, "big": float(number), "ACME": "no column"}
        rows.append(row)
    rows[5]["notes"] = "<b>bold</b> **strong** [docs](https://example.org) [x](javascript:alert(1))"
    rows[6]["notes"] = "lone \ud800 surrogate, 100%"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    path = tmp_path / "rows.teeter"
    settings = Settings(encoder="tfidf", show=["notes", "customer"])
    Campaign.make(read_items(source), ["good", "poor"], at=path, settings=settings).database.close()

    with serve_campaigns(path) as client:
        yield client


def find_items(client: TestClient, **query: Any) -> list[str]:
    response = client.get(f"{AT}/items", params=query)
    assert response.status_code == 200, response.text
    return [row["item"] for row in response.json()["items"]]


def test_items_are_found_by_their_columns(client: TestClient) -> None:
    assert find_items(client, column="customer=ACME") == ["r3", "r23", "r43"]
    assert find_items(client, column="n=5") == ["r5"]
    assert find_items(client, column=["customer=ACME", "n=23"]) == ["r23"]
    assert find_items(client, column='place={"zip": "107"}') == ["r7"]
    assert find_items(client, column="customer=acme") == []
    assert find_items(client, column="lost=ACME") == []
    assert find_items(client, search="SHOP 41") == ["r41"]
    assert find_items(client, search="100%") == ["r6"]
    assert find_items(client, column="notes=", count=2) == ["r0", "r1"]
    assert client.get(f"{AT}/items", params={"column": "customer"}).status_code == 422


def test_the_pages_of_a_filter_have_every_item_once(client: TestClient) -> None:
    items: list[str] = []
    query: dict[str, Any] = {"count": 2, "column": "customer=ACME"}
    while True:
        page = client.get(f"{AT}/items", params=query).json()
        items += [row["item"] for row in page["items"]]
        if page["after"] is None:
            break
        query["after"] = page["after"]
    assert items == ["r3", "r23", "r43"]


def test_reviewers_get_all_columns_and_annotators_those_that_are_shown(client: TestClient) -> None:
    item = client.get(f"{AT}/item", params={"id": "r6"}).json()

    assert item["row"]["place"] == {"zip": "106"}
    assert item["row"]["notes"] == "lone ? surrogate, 100%"
    assert item["content"]["columns"] == [
        {"name": "notes", "value": "lone ? surrogate, 100%"},
        {"name": "customer", "value": "shop 6"},
    ]


def test_pages_show_columns_as_text(client: TestClient) -> None:
    page = client.get("/c/rows/item", params={"id": "r5"}).text
    assert "&lt;b&gt;bold&lt;/b&gt; **strong**" in page

    table = client.get("/c/rows/find", params={"column": "customer", "value": "ACME"}).text
    assert "text 23" in table
    assert "text 24" not in table
