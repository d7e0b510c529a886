"""The page in a notebook: served to one origin, and shown in a frame."""

from __future__ import annotations

from pathlib import Path

import httpx2
import pytest
from fastapi.testclient import TestClient

from server.servers import make_text_campaign, use_inline_workers
from teeter.campaigns.integrations import notebooks
from teeter.campaigns.integrations.notebooks import open_notebook_page
from teeter.errors import InputError
from teeter.server.access import SecurityConfig
from teeter.server.app import make_app


def headers_of(file: Path, frame_origin: str | None) -> dict[str, str]:
    security = SecurityConfig(b"secret", frame_origin=frame_origin)
    app = make_app([file], security=security, warm=False)
    use_inline_workers(app.state.workspace)
    with TestClient(app, base_url="http://127.0.0.1:8765") as client:
        return dict(client.get("/c/texts/progress").headers)


def test_only_the_origin_of_the_notebook_may_frame_the_page(tmp_path: Path) -> None:
    file = make_text_campaign(tmp_path / "texts.teeter", 10)

    closed = headers_of(file, None)
    assert "frame-ancestors 'none'" in closed["content-security-policy"]
    assert closed["x-frame-options"] == "DENY"

    opened = headers_of(file, "http://localhost:8888")
    assert opened["content-security-policy"].endswith("frame-ancestors http://localhost:8888")
    assert "x-frame-options" not in opened


def test_a_server_of_its_own_shows_the_page(tmp_path: Path) -> None:
    file = make_text_campaign(tmp_path / "texts.teeter", 10)
    page = open_notebook_page(str(file), origin="http://localhost:8888", height=640)
    try:
        response = httpx2.get(page.url, follow_redirects=True, timeout=600)
        policy = response.headers["content-security-policy"]
        assert response.status_code == 200
        assert policy.endswith("frame-ancestors http://localhost:8888")
        assert f'src="{page.url}"' in page._repr_html_()
    finally:
        page.close()
    assert not page.is_running()


def test_a_notebook_elsewhere_or_unknown_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notebooks, "find_notebook_origin", lambda: None)
    with pytest.raises(InputError, match="The address of the notebook is unknown"):
        open_notebook_page(str(tmp_path / "c.teeter"), height=1)
    with pytest.raises(InputError, match=r"A notebook on hub\.example\.org cannot show"):
        open_notebook_page("c.teeter", origin="https://hub.example.org", height=1)


def test_the_password_of_a_database_is_not_an_argument() -> None:
    location, environment = notebooks._hide_password("postgresql://me:s%40x@db:5432/x#name")

    assert location == "postgresql://me@db:5432/x#name"
    assert environment == {"PGPASSWORD": "s@x"}
    assert notebooks._hide_password("/home/c.teeter") == ("/home/c.teeter", {})
