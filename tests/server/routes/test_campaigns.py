"""Campaigns over REST and on their pages: created, described and set."""

from __future__ import annotations

import time
from dataclasses import fields
from html import escape
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi.testclient import TestClient

from server.labelled_campaigns import (
    AT,
    LabelledCampaign,
)
from server.servers import (
    make_text_campaign,
    serve_campaigns,
)
from teeter.campaigns.campaign import Campaign
from teeter.campaigns.settings import Settings, changeable_settings, offered_settings

PAGES = (
    "",
    "/review",
    "/progress",
    "/model",
    "/map",
    "/find",
    "/item?id=html",
    "/classes",
    "/settings",
    "/export",
    "/news",
)


@pytest.mark.parametrize("page", PAGES)
def test_every_page_opens(labelled: LabelledCampaign, page: str) -> None:
    response = labelled.client.get(f"/c/texts{page}")
    assert response.status_code == 200
    assert "<script>alert" not in response.text
    assert "Read <b>all" not in response.text


def test_the_form_for_a_new_campaign_opens_and_an_unknown_campaign_does_not(
    client: TestClient,
) -> None:
    assert client.get("/new").status_code == 200
    assert client.get("/c/nothing").status_code == 404


def test_the_form_for_a_new_campaign_says_what_auto_is(tmp_path: Path) -> None:
    with serve_campaigns(folder=tmp_path) as client:
        page = client.get("/new").text

    assert "<option selected>auto</option>" in page
    assert (
        "With auto: The encoder is tfidf, as set by TEETER_ENCODER. The encoder is pixels" in page
    )


def test_a_second_annotator_makes_a_team_that_stays(
    client: TestClient, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    people = client.app.state.workspace.campaigns["texts"].people  # type: ignore[attr-defined]
    now = 1000.0
    monkeypatch.setattr("teeter.campaigns.people.time", SimpleNamespace(monotonic=lambda: now))
    campaign = Campaign.open(file)
    campaign.tell("t1", "ham", "ann")
    assert not people.is_team()

    campaign.tell("t1", "ham", "bob")
    assert not people.is_team(), "not checked again at once"
    now += 6
    assert people.is_team()

    campaign.undo("bob")
    campaign.database.close()
    now += 6
    assert people.is_team()


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

        for other in (create("people", table + b"x,y\n"), create("people", table, holdout="5")):
            assert other.status_code == 422
            assert "There is already a campaign called people" in other.json()["detail"]

        # One that failed is tried again.
        failed = create("broken", b"a,b\n1,2\n").json()["job"]
        while client.get(f"/api/v1/jobs/{failed}").json()["state"] == "waiting":
            time.sleep(0.05)
        assert create("broken", b"a,b\n1,2\n").json()["job"] != failed


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


def test_the_page_of_settings_has_what_they_are_now(client: TestClient) -> None:
    changes = {"instructions": "Read <b>all", "keys": ["s", "h"], "batch": 7, "cost": 0.5}
    assert client.patch(f"{AT}/settings", json=changes).json()["batch"] == 7
    page = client.get("/c/texts/settings").text
    assert 'data-method="PATCH"' in page
    assert "Read &lt;b&gt;all</textarea>" in page
    for name, value in {"keys": "s, h", "batch": "7", "cost": "0.5", "lease": "60"}.items():
        field = page.split(f'name="{name}"')[1].split(">")[0]
        assert f'value="{value}"' in field, name

    assert client.patch(f"{AT}/settings", json={"batch": 1}).status_code == 422
    removed = client.patch(f"{AT}/settings", json={"batch": None, "cost": None}).json()
    assert (removed["batch"], removed["cost"]) == (None, None)


def test_the_batch_of_a_campaign_is_used_instead_of_the_servers(client: TestClient) -> None:
    client.patch(f"{AT}/settings", json={"batch": 4})
    client.get(f"{AT}/questions")  # has them picked
    questions = client.get(f"{AT}/questions", params={"n": 100}).json()["questions"]
    assert len(questions) == 4
    for number, question in enumerate(questions[:3]):
        body = {"item": question["item"], "label": ("spam", "ham")[number % 2]}
        client.post(f"{AT}/answers", json=body)
    wait_for_model(client)


def wait_for_model(client: TestClient) -> None:
    """Wait until a model is trained, which happens in the background."""
    deadline = time.monotonic() + 60
    while not client.get(AT).json()["model"]:
        assert time.monotonic() < deadline
        time.sleep(0.05)


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
