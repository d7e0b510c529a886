"""Clients of a served campaign of texts, without labels and with many."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from server.labelled_campaigns import LabelledCampaign, make_labelled_campaign
from server.servers import make_text_campaign, serve_campaigns


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
