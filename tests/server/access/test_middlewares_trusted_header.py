"""Names in a header: trusted if they come from the proxy, and from no other client."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from server.labelled_campaigns import AT
from server.servers import BASE, make_text_campaign, use_inline_workers
from teeter.server.access import LoginConfig, SecurityConfig
from teeter.server.app import make_app

PROXY = "10.0.0.2"
HEADER = "X-Remote-User"


@contextmanager
def connect(file: Path, address: str = PROXY, **settings: Any) -> Iterator[TestClient]:
    """Serve a campaign, and yield a client whose connections come from an address."""
    login = LoginConfig.model_validate(
        {
            "header": {"name": HEADER, "from": [PROXY, "fd00::/64"]},
            "access": {"domains": ["example.org"]},
            **settings,
        }
    )

    security = SecurityConfig(b"secret", allowed_hosts=None, login=login, proxy=PROXY)
    app = make_app([file], security=security, warm=False)
    use_inline_workers(app.state.workspace)

    with TestClient(app, base_url=BASE, client=(address, 1234)) as client:
        yield client


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return make_text_campaign(tmp_path / "texts.teeter", 30)


def name_header(name: str) -> dict[str, str]:
    return {HEADER: name}


def test_the_person_of_the_proxy_labels(file: Path) -> None:
    with connect(file) as client:
        session = client.get("/api/v1/session", headers=name_header("Ann@Example.org")).json()
        assert session["annotator"] == "ann@example.org"

        answer = {"item": "t1", "label": "ham"}
        headers = name_header("ann@example.org")
        assert client.post(f"{AT}/answers", json=answer, headers=headers).status_code == 403, "CSRF"
        headers["x-csrf-token"] = session["csrf"]
        assert client.post(f"{AT}/answers", json=answer, headers=headers).status_code == 200


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_a_name_beyond_ascii_arrives_as_it_is(file: Path, encoding: str) -> None:
    with connect(file, access={"anyone": True}) as client:
        headers = {HEADER.encode(): "Zoë Jürgens".encode(encoding)}
        session = client.get("/api/v1/session", headers=headers).json()  # type: ignore[arg-type]
        assert session["annotator"] == "zoë jürgens"


@pytest.mark.parametrize("address", ["10.0.0.3", "127.0.0.1", "testclient", "", "fd01::1"])
def test_the_header_of_another_client_is_ignored(file: Path, address: str) -> None:
    with connect(file, address) as client:
        assert client.get(AT, headers=name_header("ann@example.org")).status_code == 401


def test_a_client_cannot_pose_as_the_proxy_by_a_forwarded_address(file: Path) -> None:
    headers = {**name_header("ann@example.org"), "X-Forwarded-For": PROXY}
    with connect(file, "10.0.0.3") as client:
        assert client.get(AT, headers=headers).status_code == 401


def test_the_address_of_the_proxy_counts_and_not_that_of_the_client_behind_it(file: Path) -> None:
    headers = {**name_header("ann@example.org"), "X-Forwarded-For": "203.0.113.9"}
    with connect(file) as client:
        assert client.get(AT, headers=headers).status_code == 200


def test_a_network_of_proxies_can_be_trusted(file: Path) -> None:
    with connect(file, "fd00::17") as client:
        assert client.get(AT, headers=name_header("ann@example.org")).status_code == 200


def test_a_header_that_comes_twice_is_ignored(file: Path) -> None:
    """The proxy added its header to one that the client sent."""
    headers = [(HEADER, "olga@example.org"), (HEADER, "ann@example.org")]
    with connect(file) as client:
        assert client.get(AT, headers=headers).status_code == 401  # type: ignore[arg-type]


def test_headers_that_a_proxy_has_joined_are_ignored(file: Path) -> None:
    """One proxy in a row joins its header to the client's, and the next sees one header."""
    with connect(file, access={"anyone": True}) as client:
        joined = name_header("olga@example.org, ann@example.org")
        assert client.get(AT, headers=joined).status_code == 401


def test_a_name_with_underscores_is_another_header(file: Path) -> None:
    with connect(file) as client:
        headers = {HEADER.replace("-", "_"): "ann@example.org"}
        assert client.get(AT, headers=headers).status_code == 401


@pytest.mark.parametrize(
    "name",
    ["eve@evil.example", "eve@example.org.evil.example", "eve", "x" * 90 + "@example.org"],
)
def test_others_are_not_let_in(file: Path, name: str) -> None:
    with connect(file) as client:
        assert client.get(AT, headers=name_header(name)).status_code == 403
        assert client.get("/", headers=name_header(name)).status_code == 403


@pytest.mark.parametrize("name", ["", " "])
def test_an_empty_name_is_no_login(file: Path, name: str) -> None:
    with connect(file, access={"anyone": True}) as client:
        assert client.get(AT, headers=name_header(name)).status_code == 401


def test_the_cookie_alone_is_no_login(file: Path) -> None:
    """A browser that gets around the proxy has the cookie, but no header with a name."""
    with connect(file) as client:
        assert client.get(AT, headers=name_header("ann@example.org")).status_code == 200
        assert client.get(AT).status_code == 401


def test_another_person_gets_another_session(file: Path) -> None:
    with connect(file) as client:
        first = client.get("/api/v1/session", headers=name_header("ann@example.org")).json()
        second = client.get("/api/v1/session", headers=name_header("bob@example.org")).json()
        assert second["annotator"] == "bob@example.org"
        assert second["csrf"] != first["csrf"]


def test_roles_hold_for_names_too(file: Path) -> None:
    with connect(file, access={"anyone": True}, roles={"rey": "reviewer"}) as client:
        assert "review" in client.get(AT, headers=name_header("rey")).json()["permissions"]
        assert client.get(AT, headers=name_header("ann")).status_code == 403
