"""Whatever fits the OpenAPI description, or does not, is answered; nothing of it breaks the server."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from teeter.web.app import make_app
from teeter.web.security import Guard
from web.sites import AtOnce, begin

schemathesis = pytest.importorskip("schemathesis")


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> object:
    folder = tmp_path_factory.mktemp("fuzzed")
    file = begin(folder / "texts.teeter", 40)
    app = make_app([file], guard=Guard(b"secret", hosts=None), folder=folder, warm=False)
    app.state.site.trainer, app.state.site.maker = AtOnce(), AtOnce()
    return schemathesis.openapi.from_asgi("/api/v1/openapi.json", app)


schema = schemathesis.pytest.from_fixture("described")


@schema.parametrize()
@settings(max_examples=15, suppress_health_check=list(HealthCheck), deadline=None)
@pytest.mark.filterwarnings("ignore")
def test_no_request_breaks_the_server(case: "schemathesis.Case") -> None:
    guard = case.operation.app.state.site.guard
    session = guard.fresh()
    headers = {"x-csrf-token": guard.csrf(session), "cookie": f"teeter_session={guard.cookie(session)}"}
    if "slug" in (case.path_parameters or {}):
        case.path_parameters["slug"] = "texts"
    answer = case.call(headers=headers)
    assert answer.status_code < 500, answer.text
    assert answer.status_code != 403, "the session is known"


def test_the_description_is_there(tmp_path: Path) -> None:
    from fastapi.testclient import TestClient

    from web.sites import BASE

    with TestClient(make_app(guard=Guard(b"s"), folder=tmp_path, warm=False), base_url=BASE) as client:
        told = client.get("/api/v1/openapi.json").json()
    assert {path.split("/")[1] for path in told["paths"]} == {"api"}
    assert all(one.get("summary") or one.get("description") for path in told["paths"].values() for one in path.values())
