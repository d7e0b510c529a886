"""The server as a whole: its description, and how errors become responses."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from server.labelled_campaigns import AT
from server.servers import BASE, make_text_campaign, serve_campaigns
from teeter import errors
from teeter.campaigns.campaign import Campaign
from teeter.errors import TeeterError
from teeter.server.access import SecurityConfig
from teeter.server.app import make_app, status_of

STATUS_BY_ERROR = {
    "UnknownItemError": 404,
    "UnknownAnnotatorError": 404,
    "UnknownResourceError": 404,
    "PermissionDeniedError": 403,
    "StoreError": 503,
}


@pytest.mark.parametrize(
    ("path", "status", "title"),
    [
        ("/nothing", 404, "Not found"),
        ("/c/texts/find?after=x", 422, "Something went wrong"),
        ("/c/texts/undo", 404, "Not found"),
    ],
)
def test_an_error_on_a_page_is_a_page(tmp_path: Path, path: str, status: int, title: str) -> None:
    with serve_campaigns(make_text_campaign(tmp_path / "texts.teeter", 5)) as client:
        response = client.get(path)
        assert response.status_code == status
        assert response.headers["content-type"] == "text/html; charset=utf-8"
        assert f"<h1>{title}</h1>" in response.text
        assert "Go to the list of campaigns" in response.text

        assert client.get("/api/v1/nothing").json() == {
            "detail": "There is no page at this address."
        }
        assert client.get("/static/nothing.js").status_code == 404
        refused = client.put("/c/texts")
        assert (refused.status_code, refused.headers["allow"]) == (405, "GET")


@pytest.mark.parametrize("name", errors.__all__)
def test_the_status_of_an_error_follows_from_its_type(name: str) -> None:
    error_class = getattr(errors, name)
    assert issubclass(error_class, TeeterError)
    assert status_of(error_class("No class is called so.")) == STATUS_BY_ERROR.get(name, 422)


def test_a_subclass_has_the_status_of_its_closest_base() -> None:
    class MissingRowError(errors.UnknownItemError):
        pass

    assert status_of(MissingRowError()) == 404


def test_the_api_describes_itself(tmp_path: Path) -> None:
    app = make_app(security=SecurityConfig(b"s"), folder=tmp_path, warm=False)
    with TestClient(app, base_url=BASE) as client:
        description = client.get("/api/v1/openapi.json").json()

    assert {path.split("/")[1] for path in description["paths"]} == {"api"}
    for operations in description["paths"].values():
        for operation in operations.values():
            assert operation.get("summary") or operation.get("description")


def test_reading_changes_nothing(tmp_path: Path) -> None:
    path = make_text_campaign(tmp_path / "texts.teeter", 30)
    with serve_campaigns(path) as client:
        before = Campaign.open(path).history()
        for page in ("/c/texts/find", "/c/texts/progress", f"{AT}/items", f"{AT}/progress"):
            client.get(page)
        assert Campaign.open(path).history() == before


def test_a_form_has_no_page(client: TestClient) -> None:
    form = client.get("/logout")

    assert form.status_code == 405
    assert "<h1>Not a page</h1>" in form.text
    assert "does not answer to GET" in form.text
