"""A server on this machine without tokens, and one that requires them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from server.access.requests import TOKEN
from server.servers import make_text_campaign, serve_campaigns
from teeter.server.access import SecurityConfig
from teeter.server.access.tokens import Tokens


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    with serve_campaigns(make_text_campaign(tmp_path / "texts.teeter", 30)) as client:
        yield client


@pytest.fixture
def token_client(tmp_path: Path) -> Iterator[TestClient]:
    """A client without a token, of a server that requires one."""
    tokens = Tokens()
    tokens.add("ann", TOKEN)
    tokens.add("bob", TOKEN + "-of-bob")
    security = SecurityConfig(b"secret", tokens, allowed_hosts=None)
    with serve_campaigns(
        make_text_campaign(tmp_path / "texts.teeter", 30), security=security
    ) as client:
        yield client
