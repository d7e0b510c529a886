"""Clients of a served campaign of texts, without labels, with many, and with a team."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from server.labelled_campaigns import LabelledCampaign, make_labelled_campaign
from server.servers import make_text_campaign, serve_campaigns
from server.teams import SERVER_TOKEN, Team, team_campaign
from teeter.server.access import SecurityConfig
from teeter.server.access.tokens import Tokens


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return make_text_campaign(tmp_path / "texts.teeter")


@pytest.fixture
def client(file: Path) -> Iterator[TestClient]:
    with serve_campaigns(file) as client:
        yield client


@pytest.fixture
def labelled(tmp_path: Path) -> Iterator[LabelledCampaign]:
    """A served campaign of 121 texts, 40 of them labelled."""
    path = tmp_path / "texts.teeter"
    items = make_labelled_campaign(path, 40, instructions="Read <b>all</b> of it.")
    with serve_campaigns(path) as client:
        yield LabelledCampaign(path, client, items)


@pytest.fixture
def team(tmp_path: Path) -> Iterator[Team]:
    file = tmp_path / "texts.teeter"
    _, with_members, tokens = team_campaign()
    file.write_bytes(with_members)

    server_tokens = Tokens()
    all_tokens = dict(tokens)
    for name in ("ann", "stranger"):
        server_tokens.add(name, f"{SERVER_TOKEN}-of-{name}")
        all_tokens[f"server's {name}"] = f"{SERVER_TOKEN}-of-{name}"

    security = SecurityConfig(b"secret", server_tokens)
    with serve_campaigns(file, folder=file.parent, security=security) as client:
        yield Team(file, client, all_tokens)
