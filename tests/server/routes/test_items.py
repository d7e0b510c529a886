"""Items over REST and on their pages: read, added and changed, once, and by owners only."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlparse

import pytest
from fastapi.testclient import TestClient

from server.labelled_campaigns import (
    AT,
    label_items,
    true_label,
)
from server.servers import (
    HARMFUL,
    text,
)
from teeter.campaigns.campaign import Campaign


def add(client: TestClient, items: list[dict[str, Any]], **headers: str) -> Any:
    return client.post(f"{AT}/items", json={"items": items}, headers=headers)


def test_an_item_has_its_content_and_answers(client: TestClient) -> None:
    (item,) = label_items(client, 1)
    described = client.get(f"{AT}/item", params={"id": item}).json()
    assert described["content"]["text"] == (HARMFUL if item == "html" else text(int(item[1:])))

    answers = [(answer["annotator"], answer["label"]) for answer in described["answers"]]
    assert answers == [("me", true_label(item))]


def test_items_are_found_by_their_index_on_the_map(client: TestClient) -> None:
    assert client.get(f"{AT}/item", params={"index": 3}).json()["item"] == "t3"
    assert client.get(f"{AT}/item", params={"index": 300}).status_code == 404
    assert client.get(f"{AT}/item").status_code == 404


def test_labels_follow_decisions_and_flags_are_shown(client: TestClient, file: Path) -> None:
    campaign = Campaign.open(file)
    for annotator in ("ann", "bob"):
        campaign.tell("t1", "spam", annotator)
        campaign.tell("t2", "spam", annotator)
    campaign.flag("t2", "eve")
    assert client.get(f"{AT}/item?id=t1").json()["label"] == "spam"

    campaign.review.decide("t1", "ham", "ruth")
    campaign.database.close()

    rows = {row["item"]: row for row in client.get(f"{AT}/items?count=5").json()["items"]}
    assert rows["t1"]["label"] == "ham"
    assert rows["t2"]["state"] == "spam, flag"
    assert rows["t3"]["state"] == ""
    assert client.get(f"{AT}/labels").json()["labels"][0] == [1, 1]
    assert "decided by ruth" in client.get("/c/texts/item?id=t1").text


def test_an_item_is_withdrawn_on_its_page(client: TestClient) -> None:
    page = client.get("/c/texts/item?id=t1").text
    assert f'data-api="{AT}/items/withdraw"' in page
    assert '<input type="hidden" name="items" value="t1" data-type="list">' in page

    client.post(f"{AT}/items/withdraw", json={"items": ["t1"]})
    page = client.get("/c/texts/item?id=t1").text
    assert "This item was withdrawn" in page
    assert f'data-api="{AT}/items/put-back"' in page
    assert "t1" in client.get("/c/texts/find?state=withdrawn").text
    client.post(f"{AT}/items/put-back", json={"items": ["t1"]})
    assert "This item was withdrawn" not in client.get("/c/texts/item?id=t1").text


def test_a_class_is_renamed_on_the_page_of_classes(client: TestClient) -> None:
    page = client.get("/c/texts/classes").text
    assert f'data-api="{AT}/classes" data-method="PATCH"' in page
    assert 'data-notice="{new_name} is saved."' in page

    renamed = client.patch(f"{AT}/classes", json={"name": "spam", "new_name": "<ads>"})
    assert renamed.status_code == 200
    assert "<b>&lt;ads&gt;</b>" in client.get("/c/texts/classes").text
    taken = client.patch(f"{AT}/classes", json={"name": "ham", "new_name": "<ads>"})
    assert taken.status_code == 422
    assert "Cannot rename" in taken.json()["detail"]


def test_an_item_is_answered_on_its_page(client: TestClient) -> None:
    answered = client.post("/c/texts/item", data={"id": "t1", "label": "ham"})
    assert answered.status_code == 200
    assert "<b>ham</b>" in answered.text
    flagged = client.post("/c/texts/item", data={"id": "t1", "kind": "flag"})
    assert "<b>flag</b>" in flagged.text
    assert client.post("/c/texts/item", data={"id": "t1", "kind": "shout"}).status_code == 422
    assert client.post("/c/texts/item", data={"id": "lost", "label": "ham"}).status_code == 404


def find_link(page: str, direction: str) -> str | None:
    """Return the address of the next or previous page of a table."""
    match = re.search(rf'href="([^"]*)" rel="{direction}"', page)
    return None if match is None else match[1].replace("&amp;", "&")


def test_the_table_of_items_is_paged_forwards_and_backwards(client: TestClient) -> None:
    first = client.get("/c/texts/find?search=number&state=unlabelled").text
    assert find_link(first, "prev") is None
    second_link = find_link(first, "next")
    assert second_link is not None
    query = parse_qs(urlparse(second_link).query)
    assert (query["search"], query["state"]) == (["number"], ["unlabelled"])

    second = client.get(second_link).text
    third_link = find_link(second, "next")
    assert third_link is not None
    third = client.get(third_link).text
    assert find_link(third, "next") is None, "120 texts fill two pages and a part of the third"

    back = find_link(third, "prev")
    assert back is not None
    page = client.get(back).text
    assert re.findall(r'<span class="id">(\w+)', page) == re.findall(
        r'<span class="id">(\w+)', second
    )
    assert find_link(page, "next") is not None
    first_link = find_link(page, "prev")
    assert first_link is not None
    assert find_link(client.get(first_link).text, "next") is not None


def test_items_are_added_with_their_columns_and_labels(client: TestClient) -> None:
    items: list[dict[str, Any]] = [
        {"id": "new", "text": "A new text", "columns": {"customer": "ACME", "n": {"deep": [1]}}},
        {"text": "Another one", "label": "spam"},
        {"id": "copy", "text": "A new text"},
    ]

    added = add(client, items).json()

    counts = {name: added[name] for name in ("new", "duplicates", "labelled", "conflicts")}
    assert counts == {"new": 2, "duplicates": 1, "labelled": 1, "conflicts": 0}
    assert added["duplicate_items"] == [["copy", "new"]]
    assert (added["failed"], added["failed_items"]) == (0, [])
    item = client.get(f"{AT}/item", params={"id": "new"}).json()
    assert item["row"] == {"customer": "ACME", "n": {"deep": [1]}}
    rows = client.get(f"{AT}/items", params={"column": "customer=ACME"}).json()["items"]
    assert [row["item"] for row in rows] == ["new"]
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


def test_items_are_changed_withdrawn_and_put_back(client: TestClient) -> None:
    client.post(f"{AT}/answers", json={"item": "t1", "label": "ham"})
    body = {"item": "t1", "text": "A new text", "columns": {"customer": "ACME"}}

    changed = client.patch(f"{AT}/item", json=body).json()
    repeated = client.patch(f"{AT}/item", json=body).json()

    assert changed is True
    assert repeated is False
    item = client.get(f"{AT}/item", params={"id": "t1"}).json()
    assert (item["content"]["text"], item["label"]) == ("A new text", "ham")
    assert item["row"] == {"customer": "ACME"}
    moved = client.post(f"{AT}/items/withdraw", json={"items": ["t1", "t2"], "reason": "private"})
    assert moved.json() == 2
    listed = client.get(f"{AT}/items", params={"state": "withdrawn"}).json()["items"]
    assert [row["state"] for row in listed] == ["ham, withdrawn", "withdrawn"]
    assert client.post(f"{AT}/items/put-back", json={"items": ["t1"]}).json() == 1
    lost = client.post(f"{AT}/items/withdraw", json={"items": ["t3", "lost"]})
    assert lost.status_code == 404
    assert client.patch(f"{AT}/item", json={"item": "lost", "text": "x"}).status_code == 404
    taken = client.patch(f"{AT}/item", json={"item": "t3", "text": "A new text"})
    assert taken.status_code == 422

    lines = client.get(f"{AT}/history", params={"count": 1}).json()
    assert (len(lines["lines"]), lines["lines"][0]["what"]) == (1, "created")
    rest = client.get(f"{AT}/history", params={"count": 1000, "after": lines["after"]}).json()
    assert rest["after"] is None
    assert rest["lines"][-1]["what"] == "put back"
    assert client.get(f"{AT}/columns").json() == [{"name": "customer", "type": "text"}]


def test_a_long_cell_fits_into_a_request(client: TestClient) -> None:
    cell = "ü" * 1_000_000

    response = add(client, [{"id": "long", "text": "short", "columns": {"cell": cell}}])

    assert response.status_code == 200, response.text[:300]
    assert client.get(f"{AT}/item", params={"id": "long"}).json()["row"] == {"cell": cell}


@pytest.mark.parametrize("depth", [150, 900, 100_000])
def test_a_body_that_is_nested_deeply_is_refused(client: TestClient, depth: int) -> None:
    value = "[" * depth + "]" * depth
    headers = {"content-type": "application/json"}

    for path, body in (
        ("items", f'{{"items": [{{"text": "a", "columns": {{"x": {value}}}}}]}}'),
        ("settings", f'{{"options": {{"x": {value}}}}}'),
        ("item", f'{{"item": "t1", "columns": {{"x": {value}}}}}'),
    ):
        method = "POST" if path == "items" else "PATCH"
        response = client.request(method, f"{AT}/{path}", content=body, headers=headers)
        assert response.status_code in (400, 422), (path, response.text[:200])


def test_half_a_surrogate_pair_is_no_error_of_the_server(client: TestClient) -> None:
    content = '{"items": [{"text": "a", "columns": {"x": "\\ud800"}}]}'
    headers = {"content-type": "application/json"}

    response = client.post(f"{AT}/items", content=content, headers=headers)

    assert response.status_code in (200, 422), response.text


def test_a_file_of_items_is_added_in_the_background(client: TestClient) -> None:
    upload = {"file": ("more.csv", b"id,body,n\nx1,one more,5\nx2,two more,6\n")}
    job = client.post(f"{AT}/items/file", files=upload, data={"text": "body"}).json()["job"]

    state = client.get(f"/api/v1/jobs/{job}").json()

    assert state["state"] == "done", state
    assert state["result"]["new"] == 2
    assert client.get(f"{AT}/item", params={"id": "x2"}).json()["row"]["n"] == 6
    bad = client.post(f"{AT}/items/file", files={"file": ("x.csv", b"a,b\n1,2\n")}).json()["job"]
    assert client.get(f"/api/v1/jobs/{bad}").json()["state"] == "failed"
