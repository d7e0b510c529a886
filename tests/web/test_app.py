"""The server as a whole: its description, and how it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from teeter.web.app import make_app
from teeter.web.security import SecurityConfig
from web.servers import BASE, begin, served


@pytest.mark.parametrize(
    ("path", "status"), [("/nothing", 404), ("/c/texts/items?after=x", 422), ("/c/texts/undo", 404)]
)
def test_who_reads_a_page_is_refused_by_a_page(tmp_path: Path, path: str, status: int) -> None:
    with served(begin(tmp_path / "texts.teeter", 5)) as client:
        told = client.get(path)
        assert (told.status_code, told.headers["content-type"]) == (
            status,
            "text/html; charset=utf-8",
        )
        assert "Back to the start" in told.text
        assert client.get("/api/v1/nothing").json() == {"detail": "There is no such page here."}
        refused = client.put("/c/texts")
        assert (refused.status_code, refused.headers["allow"]) == (405, "GET")


def test_the_description_is_there(tmp_path: Path) -> None:
    with TestClient(
        make_app(guard=SecurityConfig(b"s"), folder=tmp_path, warm=False), base_url=BASE
    ) as client:
        told = client.get("/api/v1/openapi.json").json()
    assert {path.split("/")[1] for path in told["paths"]} == {"api"}
    assert all(
        one.get("summary") or one.get("description")
        for path in told["paths"].values()
        for one in path.values()
    )
