"""Requests that fit the OpenAPI description, and requests that do not: none breaks the server."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable

from campaigns.stores import new_place, stores_in_groups
from server.servers import make_text_campaign, use_inline_workers
from teeter.campaigns.campaign import Campaign
from teeter.campaigns.store.copies import copy_to_location
from teeter.server.access import SecurityConfig
from teeter.server.app import make_app


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "examples",
    [
        pytest.param(2, id="few"),
        pytest.param(12, id="some"),
        pytest.param(300, id="many"),
    ],
)
@pytest.mark.parametrize("kind", stores_in_groups("requests"))
def test_no_request_breaks_the_server(kind: str, examples: int, tmp_path: Path) -> None:
    if kind == "postgresql":
        # Requests are checked before they reach a store, so fewer of them serve the second one.
        examples = min(examples, 100)

    schemathesis = pytest.importorskip("schemathesis")
    file = make_text_campaign(tmp_path / "texts.teeter", 40, overlap=0.5)
    campaign = Campaign.open(file)
    token = campaign.people.add("the owner of all", "owner")
    campaign.tell("t1", "spam", "ann")
    campaign.tell("t1", "ham", "bob")

    place = str(file)
    if kind == "postgresql":
        place = new_place(kind, tmp_path)
        copy_to_location(campaign.database, campaign.name, place)
    campaign.database.close()

    app = make_app([place], security=SecurityConfig(b"secret"), folder=tmp_path, warm=False)
    use_inline_workers(app.state.workspace)
    headers = {"authorization": f"Bearer {token}"}
    schema = schemathesis.openapi.from_asgi("/api/v1/openapi.json", app, headers=headers)
    operations = [result.ok() for result in schema.get_all_operations()]
    assert len(operations) > 30

    sent = 0
    for operation in operations:
        sent += fuzz(operation, schemathesis.GenerationMode.POSITIVE, examples, headers)
        if has_input(operation):
            sent += fuzz(operation, schemathesis.GenerationMode.NEGATIVE, examples, headers)
    assert sent > len(operations) * examples / 2


def has_input(operation: Any) -> bool:
    """Return whether requests have a query or a body.

    Without them Hypothesis would search for a second for an invalid request.
    """
    return bool(operation.query.items or operation.body.items)


def fuzz(operation: Any, mode: Any, examples: int, headers: dict[str, str]) -> int:
    """Send valid or invalid requests, and return how many were sent."""
    sent = 0

    @settings(
        max_examples=examples, suppress_health_check=list(HealthCheck), deadline=None, database=None
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def send(case: Any) -> None:
        nonlocal sent
        if "slug" in (case.path_parameters or {}):
            case.path_parameters["slug"] = "texts"
        response = case.call(headers=headers)
        sent += 1
        assert response.status_code < 500, response.text
        # Nobody takes back what another annotator said, not even an owner.
        if not operation.path.endswith("/undo"):
            assert response.status_code not in (401, 403), "an owner may do everything"

    with suppress(Unsatisfiable):  # a query that accepts everything has no invalid request
        send()
    return sent
