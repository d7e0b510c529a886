from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient

from campaigns.finish.audits import SECRET, answer_rightly, make_rows
from server.servers import serve_campaigns
from teeter.campaigns import Campaign

REST = "/api/v1/campaigns/audit"
ITEMS = 120
ANSWERED = 30


def make_secret_rows() -> list[dict[str, Any]]:
    """Return rows whose confidences are as telling as their reasons."""
    rows = make_rows(ITEMS)
    for number, row in enumerate(rows):
        row["sure"] = f"0.7{number:03}31"
    return rows


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return an audit in which 30 items have an answer."""
    path = tmp_path / "audit.teeter"
    campaign = Campaign.audit(make_secret_rows(), {"llm": "sure", "rule": ""}, require=0.9, at=path)
    answer_rightly(campaign, ANSWERED)
    campaign.database.close()
    return path


@pytest.fixture
def client(file: Path) -> Iterator[TestClient]:
    with serve_campaigns(file, folder=file.parent) as client:
        yield client


def find_secrets(text: str, waiting: set[str]) -> set[str]:
    """Return the items that wait for an answer, and of which a response says more than their text.

    The reason and the confidence of an item are in columns that nobody may see.
    """
    found = {f"m{number}" for number in re.findall(rf"{SECRET} (\d+)", text)}
    found |= {f"m{int(number)}" for number in re.findall(r"\b0\.7(\d{3})31\b", text)}
    return found & waiting


def test_items_that_wait_are_found_and_shown_without_what_judges_say(
    client: TestClient, file: Path
) -> None:
    answered = set(Campaign.open(file).labels())
    waiting = {f"m{number}" for number in range(ITEMS)} - answered
    found = client.get(f"{REST}/items", params={"search": SECRET, "count": 500}).json()
    assert {row["item"] for row in found["items"]} == answered

    item = sorted(waiting)[0]
    for path in (f"{REST}/item", "/c/audit/item"):
        response = client.get(path, params={"id": item})
        assert response.status_code == 200
        assert not find_secrets(response.text, waiting)
    questions = client.get(f"{REST}/questions").text
    assert not find_secrets(questions, waiting)


@pytest.mark.slow
def test_no_response_shows_what_judges_say_of_items_that_wait(
    client: TestClient, file: Path
) -> None:
    answered = set(Campaign.open(file).labels())
    waiting = {f"m{number}" for number in range(ITEMS)} - answered
    first = [question["item"] for question in client.get(f"{REST}/questions").json()["questions"]]
    assert first
    assert set(first) <= waiting

    # Every address of the server, with each item, column and search that an owner may ask for.
    values = [{"id": item} for item in [*first[:3], *sorted(waiting)[:3]]]
    values += [{"search": SECRET}, {"search": "0.7"}, {"column": "llm=spam"}, {"count": "500"}]
    values += [{"column": f"sure=0.7{int(item[1:]):03}31"} for item in sorted(waiting)[:3]]
    values += [{"column": "llm", "value": "spam"}, {"sort": "predicted"}, {"differs": "true"}, {}]
    paths = set()
    for route in client.app.routes:  # type: ignore[attr-defined]
        if isinstance(route, APIRoute) and "GET" in route.methods and "slug" in route.path:
            paths.add(
                re.sub(r"\{(?!slug)\w+(:path)?\}", "x", route.path).replace("{slug}", "audit")
            )
    assert len(paths) > 35

    statuses = set()
    for path in sorted(paths):
        for parameters in values:
            response = client.get(path, params=parameters, follow_redirects=True)
            statuses.add(response.status_code)
            # A page repeats what was looked for.
            asked_for = parameters.get("column", "").partition("=")[2]
            shown = response.text.replace(asked_for, "") if asked_for else response.text
            if path.endswith("/finish"):
                # The step of a promise begins at a confidence, without saying whose that is.
                shown = re.sub(r'"threshold":[0-9.]+', "", shown)
            assert not find_secrets(shown, waiting), (path, parameters)
    assert 200 in statuses
    assert 500 not in statuses

    # The test can fail: what has an answer is there.
    found = client.get(f"{REST}/items", params={"search": SECRET, "count": 500}).json()
    assert {row["item"] for row in found["items"]} == answered
    item = sorted(answered)[0]
    assert SECRET in client.get(f"{REST}/item", params={"id": item}).text
    assert find_secrets(client.get("/c/audit/item", params={"id": item}).text, answered) == {item}
    revealed = client.get(f"{REST}/export", params={"form": "csv", "reveal": True}).text
    assert find_secrets(revealed, waiting) == waiting


def test_an_export_before_the_end_is_refused(client: TestClient) -> None:
    refused = client.get(f"{REST}/export", params={"form": "csv"})
    assert refused.status_code == 422
    assert "end the audit first" in refused.json()["detail"]
    page = client.get("/c/audit/export").text
    assert "Export all the same" in page
    assert "export/file" not in page
    assert "export/file?reveal=true" in client.get("/c/audit/export?reveal=true").text


def test_the_report_over_rest_is_that_of_the_campaign(client: TestClient, file: Path) -> None:
    report = client.get(f"{REST}/judges").json()
    expected = Campaign.open(file).judges.report()
    assert report["draws"] == expected.draws == ANSWERED
    assert report["judges"][0]["sentences"] == expected.judges[0].sentences

    assert client.post(f"{REST}/judges/end").json()["is_running"] is False
    assert client.post(f"{REST}/judges/end").json()["is_running"] is False
    assert client.get(f"{REST}/export", params={"form": "csv"}).status_code == 200


def test_the_page_shows_the_report_and_stays_while_nothing_changes(client: TestClient) -> None:
    page = client.get("/c/audit/audit").text
    for part in ("right on at least 90%", "<svg", "Report to print", "Right labels", "rule says"):
        assert part in page
    seen = page.split("audit?seen=")[1].split('"')[0]
    part = client.get(f"/c/audit/audit?seen={seen}", headers={"hx-request": "true"})
    assert part.status_code == 204
    part = client.get("/c/audit/audit?seen=other", headers={"hx-request": "true"})
    assert part.text.lstrip().startswith("<div")

    document = client.get("/c/audit/audit/file")
    assert document.headers["content-disposition"] == 'attachment; filename="audit-audit.html"'
    assert document.text.startswith("<!DOCTYPE html>")


def test_a_campaign_without_judges_has_no_audit(tmp_path: Path) -> None:
    path = tmp_path / "texts.teeter"
    campaign = Campaign.make(["a", "b"], ["x", "y"], at=path, encode_now=False)
    campaign.database.close()
    with serve_campaigns(path) as client:
        assert client.get("/api/v1/campaigns/texts/judges").status_code == 422
        assert "no audit" in client.get("/c/texts/audit").text
        assert ">Audit</a>" not in client.get("/c/texts/find").text


def create(client: TestClient, rows: list[dict[str, Any]], **fields: str) -> dict[str, Any]:
    """Create a campaign from an uploaded table, and return the job that did it."""
    lines = [",".join(rows[0])]
    lines += [",".join(str(value) for value in row.values()) for row in rows]
    files = {"file": ("answers.csv", "\n".join(lines).encode())}
    response = client.post("/api/v1/campaigns", data={"name": "new one", **fields}, files=files)
    if response.status_code != 202:
        return dict(response.json())
    return dict(client.get(f"/api/v1/jobs/{response.json()['job']}").json())


def test_an_audit_is_created_over_rest(tmp_path: Path) -> None:
    with serve_campaigns(folder=tmp_path) as client:
        job = create(
            client,
            make_rows(60),
            judges="llm, rule",
            confidences="sure",
            require="0.9",
            show="language",
        )
        assert job["state"] == "done", job
        slug = job["result"]["slug"]
        settings = client.get(f"/api/v1/campaigns/{slug}/settings").json()
        assert settings["judges"] == {"llm": "sure", "rule": ""}
        assert settings["require"] == 0.9

        questions = client.get(f"/api/v1/campaigns/{slug}/questions").json()["questions"]
        assert len(questions) == 20
        assert {column["name"] for column in questions[0]["content"]["columns"]} == {"language"}
        assert all(question["suggestion"] is None for question in questions)
        served = client.get(f"/api/v1/campaigns/{slug}").json()
        assert served["is_audit"]
        assert served["is_auditing"]
        assert {entry["name"] for entry in served["classes"]} == {"ham", "spam"}


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"judges": "nope"}, "nope"),
        ({"judges": "llm", "show": "llm"}, "column of a judge"),
        ({"judges": "llm", "labels": "rule"}, "takes no labels"),
        ({"judges": "reason"}, "nothing to audit|different values"),
        ({"classes": ""}, "two or more different names"),
    ],
)
def test_what_cannot_be_audited_is_refused_over_rest(
    tmp_path: Path, fields: dict[str, str], sentence: str
) -> None:
    rows = make_rows(600)
    with serve_campaigns(folder=tmp_path) as client:
        answer = create(client, rows, **fields)
        assert re.search(sentence, str(answer["detail"]))
        assert not list(tmp_path.glob("*.teeter"))
