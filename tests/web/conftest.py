"""Served campaigns of texts, with no label yet and with many."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from web.labelled_campaigns import LabelledCampaign, begin_labelled
from web.servers import begin, served


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return begin(tmp_path / "texts.teeter")


@pytest.fixture
def client(file: Path) -> Iterator[TestClient]:
    with served(file) as serving:
        yield serving


@pytest.fixture
def labelled(tmp_path: Path) -> Iterator[LabelledCampaign]:
    """A served campaign of 121 texts; 40 of them are labelled."""
    path = tmp_path / "texts.teeter"
    items = begin_labelled(path, 40, instructions="Read <b>all</b> of it.")
    with served(path) as serving:
        yield LabelledCampaign(path, serving, items)
