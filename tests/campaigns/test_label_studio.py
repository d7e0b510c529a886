"""Campaigns labelled in Label Studio: every answer arrives once, whatever breaks in between."""

from __future__ import annotations

from pathlib import Path

import pytest

from campaigns.scenes import SCENES
from campaigns.studio import Studio
from campaigns.worlds import imaginary, recorded


@pytest.mark.parametrize("name", SCENES)
def test_as_the_one_in_memory_answers(name: str, tmp_path: Path) -> None:
    studio = Studio()
    world = imaginary(tmp_path, studio)
    SCENES[name](world)


@pytest.mark.parametrize("name", SCENES)
def test_as_a_real_one_answered(name: str, tmp_path: Path) -> None:
    with recorded(tmp_path, name) as world:
        SCENES[name](world)
