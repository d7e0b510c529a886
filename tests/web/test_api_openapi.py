"""Whatever fits the OpenAPI description, or does not, is answered; nothing of it breaks the server."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable

from teeter.campaigns.campaign import Campaign
from teeter.web.app import make_app
from teeter.web.auth import SecurityConfig
from web.servers import InlineWorker, make_text_campaign


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "examples",
    [
        pytest.param(2, id="few"),
        pytest.param(12, marks=pytest.mark.slow, id="some"),
        pytest.param(300, marks=pytest.mark.slow, id="many"),
    ],
)
def test_no_request_breaks_the_server(examples: int, tmp_path: Path) -> None:
    schemathesis = pytest.importorskip("schemathesis")
    file = make_text_campaign(tmp_path / "texts.teeter", 40, overlap=0.5)
    campaign = Campaign.open(file)
    token = campaign.people.add("the owner of all", "owner")
    for name, label in (("ann", "spam"), ("bob", "ham")):
        campaign.tell("t1", label, name)
    campaign.database.close()
    app = make_app([file], security=SecurityConfig(b"secret"), folder=tmp_path, warm=False)
    app.state.workspace.trainer, app.state.workspace.slow_worker = InlineWorker(), InlineWorker()
    headers = {"authorization": f"Bearer {token}"}
    schema = schemathesis.openapi.from_asgi("/api/v1/openapi.json", app, headers=headers)
    operations = [found.ok() for found in schema.get_all_operations()]
    assert len(operations) > 30
    asked = 0
    for operation in operations:
        asked += fuzz(operation, schemathesis.GenerationMode.POSITIVE, examples, headers)
        if has_choices(operation):
            asked += fuzz(operation, schemathesis.GenerationMode.NEGATIVE, examples, headers)
    assert asked > len(operations) * examples / 2


def has_choices(operation: Any) -> bool:
    """Return whether a request has a query or a body. Hypothesis searches a second for what is wrong with nothing."""
    return bool(operation.query.items or operation.body.items)


def fuzz(operation: Any, mode: Any, examples: int, headers: dict[str, str]) -> int:
    """Ask what fits, or what does not; return how often."""
    asked = 0

    @settings(
        max_examples=examples, suppress_health_check=list(HealthCheck), deadline=None, database=None
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def ask(case: Any) -> None:
        nonlocal asked
        if "slug" in (case.path_parameters or {}):
            case.path_parameters["slug"] = "texts"
        answer = case.call(headers=headers)
        asked += 1
        assert answer.status_code < 500, answer.text
        assert answer.status_code not in (401, 403), "an owner may do everything"

    with suppress(Unsatisfiable):  # nothing can be wrong about a query that takes anything
        ask()
    return asked
