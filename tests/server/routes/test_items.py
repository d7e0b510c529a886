"""Items, classes and settings over REST: added and changed, once, and by owners only."""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from server.labelled_campaigns import AT
from server.servers import make_text_campaign, serve_campaigns
from teeter.campaigns import Campaign
from teeter.campaigns.settings import Settings, changeable_settings, offered_settings
from teeter.server.routes.system import _Metric


def add(client: TestClient, items: list[dict[str, Any]], **headers: str) -> Any:
    return client.post(f"{AT}/items", json={"items": items}, headers=headers)


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

    assert changed == {"item": "t1", "changed": True}
    assert repeated == {"item": "t1", "changed": False}
    item = client.get(f"{AT}/item", params={"id": "t1"}).json()
    assert (item["content"]["text"], item["label"]) == ("A new text", "ham")
    assert item["row"] == {"customer": "ACME"}
    moved = client.post(f"{AT}/items/withdraw", json={"items": ["t1", "t2"], "reason": "private"})
    assert moved.json() == {"items": 2}
    listed = client.get(f"{AT}/items", params={"state": "withdrawn"}).json()["items"]
    assert [row["state"] for row in listed] == ["ham, withdrawn", "withdrawn"]
    assert client.post(f"{AT}/items/put-back", json={"items": ["t1"]}).json() == {"items": 1}
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


def test_a_class_is_renamed_and_described_together(client: TestClient) -> None:
    client.post(f"{AT}/answers", json={"item": "t1", "label": "spam"})
    body = {"name": "spam", "new_name": "ads", "description": "Offers."}

    classes = client.patch(f"{AT}/classes", json=body).json()["classes"]

    assert [entry["name"] for entry in classes] == ["ads", "ham"]
    assert classes[0]["description"] == "Offers."
    examples = {"name": "ads", "examples": ["Win!"]}
    changed = client.patch(f"{AT}/classes", json=examples).json()["classes"][0]
    assert (changed["description"], changed["examples"]) == ("Offers.", ["Win!"])
    assert client.get(f"{AT}/item", params={"id": "t1"}).json()["label"] == "ads"
    late = client.post(f"{AT}/answers", json={"item": "t3", "label": "spam"})
    assert late.status_code == 200, "from a page that still has the old name"
    taken = {"name": "ads", "new_name": "ham", "description": "Not stored."}
    assert client.patch(f"{AT}/classes", json=taken).status_code == 422
    alike = {"name": "ads", "new_name": "HAM"}
    for refused in (
        client.patch(f"{AT}/classes", json=alike),
        client.post(f"{AT}/classes", json={"name": "HAM"}),
    ):
        assert refused.status_code == 422
        assert "'ham' and 'HAM' differ only in case, spaces or" in refused.json()["detail"]
    assert client.get(f"{AT}/classes").json()[0]["description"] == "Offers."


@pytest.mark.parametrize("encoder", ["auto", "tfidf"])
def test_a_campaign_of_table_rows_is_created_and_gets_rows(tmp_path: Path, encoder: str) -> None:
    table = "id,age,city\n" + "".join(f"r{n},{n},Wien\n" for n in range(30))
    with serve_campaigns(folder=tmp_path) as client:
        form = {"name": "people", "classes": "low,high", "rows": "true", "encoder": encoder}
        upload = {"file": ("people.csv", table.encode())}
        job = client.post("/api/v1/campaigns", data=form, files=upload).json()["job"]
        assert client.get(f"/api/v1/jobs/{job}").json()["state"] == "done"
        at = "/api/v1/campaigns/people"

        rows = [{"id": "r99", "columns": {"age": 99, "city": "Graz"}}]
        assert client.post(f"{at}/items", json={"items": rows}).json()["new"] == 1
        more = {"file": ("more.csv", b"id,age,city\nr50,50,Linz\n")}
        client.post(f"{at}/items/file", files=more)

        for item, card in (("r99", "age: 99\ncity: Graz"), ("r50", "age: 50\ncity: Linz")):
            stored = client.get(f"{at}/item", params={"id": item}).json()
            assert stored["content"]["text"] == card
        for row in ({"text": "x"}, {"columns": {"id": "x"}}, {"id": "empty"}):
            refused = client.post(f"{at}/items", json={"items": [row]})
            assert refused.status_code == 422, row
        with_text = client.patch(f"{at}/item", json={"item": "r99", "text": "x"})
        assert with_text.status_code == 422


def test_a_long_cell_fits_into_a_request(client: TestClient) -> None:
    cell = "ü" * 1_000_000

    response = add(client, [{"id": "long", "text": "short", "columns": {"cell": cell}}])

    assert response.status_code == 200, response.text[:300]
    assert client.get(f"{AT}/item", params={"id": "long"}).json()["row"] == {"cell": cell}


def test_an_undo_that_is_sent_again_takes_back_one_answer(client: TestClient) -> None:
    for item in ("t1", "t2"):
        answered = client.post(f"{AT}/answers", json={"item": item, "label": "ham"})
    number = {"number": answered.json()["number"]}

    first = client.post(f"{AT}/undo", json=number)
    repeated = client.post(f"{AT}/undo", json=number)

    assert first.json() == repeated.json()
    assert first.json()["answer"]["item"] == "t2"
    assert client.get(AT).json()["labelled"] == 1
    assert client.post(f"{AT}/undo", json={}).status_code == 422, "an undo names an answer"


def test_a_webhook_that_is_sent_again_is_added_once(client: TestClient) -> None:
    first = client.post(f"{AT}/webhooks", json={"url": "https://example.org/x"}).json()
    repeated = client.post(f"{AT}/webhooks", json={"url": "https://example.org/x"}).json()

    assert repeated == {**first, "secret": None}, "the secret is shown only once"
    assert len(client.get(f"{AT}/webhooks").json()) == 1


def test_a_class_that_two_requests_add_at_once_is_there_once(client: TestClient) -> None:
    send = partial(client.post, f"{AT}/classes", json={"name": "maybe"})
    with ThreadPoolExecutor(4) as pool:
        responses = [pool.submit(send) for _ in range(8)]

    for response in responses:
        names = [entry["name"] for entry in response.result().json()["classes"]]
        assert names == ["spam", "ham", "maybe"]


def test_a_campaign_that_is_created_again_by_the_same_request_is_there_once(
    tmp_path: Path,
) -> None:
    with serve_campaigns(folder=tmp_path) as client:

        def create(name: str, table: bytes, **fields: str) -> Any:
            form = {"name": name, "classes": "low,high", **fields}
            return client.post("/api/v1/campaigns", data=form, files={"file": ("a.csv", table)})

        table = b"id,text\n" + b"".join(b"r%d,text %d\n" % (n, n) for n in range(30))
        started = create("people", table)
        assert create("people", table).json() == started.json()
        client.get(f"/api/v1/jobs/{started.json()['job']}")
        assert create("people", table).json() == started.json()

        for other in (create("people", table + b"x,y\n"), create("people", table, audit="5")):
            assert other.status_code == 422
            assert "There is already a campaign called people" in other.json()["detail"]

        # One that failed is tried again.
        failed = create("broken", b"a,b\n1,2\n").json()["job"]
        while client.get(f"/api/v1/jobs/{failed}").json()["state"] == "waiting":
            time.sleep(0.05)
        assert create("broken", b"a,b\n1,2\n").json()["job"] != failed


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


def test_the_method_of_consensus_is_a_setting(client: TestClient) -> None:
    changed = client.patch(f"{AT}/settings", json={"consensus": "dawid-skene"})
    assert changed.json()["consensus"] == "dawid-skene"
    assert client.patch(f"{AT}/settings", json={"consensus": "lost"}).status_code == 422


def test_each_setting_is_wherever_its_declaration_says(tmp_path: Path) -> None:
    from typer.main import get_command

    from teeter.cli import app

    command: Any = get_command(app)
    for word in ("campaign", "new"):
        command = command.commands[word]
    options = {parameter.name: parameter.help for parameter in command.params}

    with serve_campaigns(folder=tmp_path) as client:
        page = client.get("/new").text
        document = client.app.openapi()  # type: ignore[attr-defined]
    schemas = document["components"]["schemas"]
    form = next(schema for name, schema in schemas.items() if "create_campaign" in name)

    for declared in offered_settings():
        help_text = declared.metadata["help"]
        assert help_text[1:] in options[declared.name]
        assert f'name="{declared.name}"' in page
        assert escape(help_text[1:]) in page
        assert declared.name in form["properties"]
    changeable = {declared.name for declared in changeable_settings()}
    assert set(schemas["SettingsIn"]["properties"]) == changeable
    assert set(schemas["Settings"]["properties"]) == {field.name for field in fields(Settings)}


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
            ("items/withdraw", {"items": ["t1"]}),
            ("items/put-back", {"items": ["t1"]}),
            ("classes", {"name": "x"}),
            ("webhooks", {"url": "https://example.org"}),
        ):
            assert client.post(f"{AT}/{path}", json=body).status_code == 403, path
        for path, change in (
            ("settings", {"lease": "1"}),
            ("item", {"item": "t1", "text": "x"}),
            ("classes", {"name": "spam", "new_name": "x"}),
        ):
            assert client.patch(f"{AT}/{path}", json=change).status_code == 403, path
        assert client.get(f"{AT}/history").status_code == 403
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
    assert client.post(f"{AT}/webhooks/remove", json={"id": added["id"]}).json() == []
    assert client.post(f"{AT}/webhooks/remove", json={"id": 99}).status_code == 404


def test_metrics_are_in_the_text_format_of_prometheus(client: TestClient) -> None:
    response = client.get("/metrics")

    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = response.text.splitlines()
    assert 'teeter_items{campaign="texts"} 121' in lines
    assert 'teeter_answered_items{campaign="texts",kind="label"} 0' in lines
    sample = re.compile(r'[a-z_]+(\{[a-z]+="[^"]*"(,[a-z]+="[^"]*")*\})? [0-9.e+]+')
    assert all(line.startswith("# ") or sample.fullmatch(line) for line in lines)


def test_metrics_have_all_digits() -> None:
    metric = _Metric("teeter_items", "Items.", samples=[({"campaign": "c"}, 12345678)])

    assert list(metric.lines())[-1] == 'teeter_items{campaign="c"} 12345678'


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
