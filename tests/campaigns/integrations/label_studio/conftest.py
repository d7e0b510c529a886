"""A fake Label Studio, and a backend that uses it."""

from __future__ import annotations

from pathlib import Path

import pytest

from campaigns.fake_label_studio import FakeLabelStudio
from campaigns.label_studio_backends import LabelStudioBackend, fake_backend


@pytest.fixture
def studio() -> FakeLabelStudio:
    return FakeLabelStudio()


@pytest.fixture
def backend(studio: FakeLabelStudio, tmp_path: Path) -> LabelStudioBackend:
    return fake_backend(tmp_path, studio)
