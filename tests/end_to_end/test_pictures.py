"""The animation of the README and the gallery are made by their script from the real page."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

from server.browsers import MARKS

pytestmark = MARKS

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "docs" / "readme" / "pictures.py"

COLOURS = 40
"""An empty page has a handful of colours; letters with smooth edges alone have more than these."""


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPT))


def count_colours(path: Path) -> int:
    image = pytest.importorskip("PIL.Image")
    with image.open(path) as picture:
        return len(picture.convert("RGB").getcolors(picture.width * picture.height))


def test_the_gallery_has_every_picture(script: dict[str, Any]) -> None:
    text = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
    for name in script["PICTURES"]:
        assert f"(gallery/{name})" in text
        assert count_colours(ROOT / "docs" / "gallery" / name) > COLOURS


@pytest.mark.slow
def test_the_script_makes_them(script: dict[str, Any], tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    script["main"](tmp_path, tmp_path)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == sorted([script["ANIMATION"], *script["PICTURES"]])

    for name in script["PICTURES"]:
        assert count_colours(tmp_path / name) > COLOURS, f"{name} is blank"
        with image.open(tmp_path / name) as new, image.open(ROOT / "docs/gallery" / name) as old:
            assert new.size == old.size, f"the committed {name} is of another script"
    assert (tmp_path / script["ANIMATION"]).stat().st_size < 2_000_000
