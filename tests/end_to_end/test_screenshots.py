"""The pictures of the page in the docs are made by their script, and the committed ones are like
them.
"""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from server.browsers import MARKS

pytestmark = MARKS

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial"
NAMES = ("page_label.png", "page_map.png", "page_progress.png")
COLOURS = 40
"""An empty page has a handful of colours; letters with smooth edges alone have more than these."""


def describe_picture(path: Path) -> tuple[tuple[int, int], int, float]:
    """Return the size of a picture, how many colours it has, and the share of its most
    common one.
    """
    image = pytest.importorskip("PIL.Image")
    with image.open(path) as picture:
        counts = [
            count for count, _ in picture.convert("RGB").getcolors(picture.width * picture.height)
        ]
        return picture.size, len(counts), max(counts) / sum(counts)


@pytest.mark.slow
def test_the_script_makes_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("openTSNE")
    monkeypatch.delenv("TEETER_DATA", raising=False)

    script = runpy.run_path(str(TUTORIAL / "screenshots.py"))
    script["main"](tmp_path, answers=40)

    assert sorted(path.name for path in tmp_path.iterdir()) == list(NAMES)
    for name in NAMES:
        size, colours, most = describe_picture(tmp_path / name)
        assert size == (script["VIEW"]["width"], script["VIEW"]["height"])
        assert colours > COLOURS, f"{name} is blank"
        assert most < 0.98, f"{name} is blank"
        assert describe_picture(TUTORIAL / name)[0] == size, (
            f"the committed {name} is of another script"
        )


def test_the_docs_show_them() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in TUTORIAL.parent.rglob("*.md"))
    assert [name for name in NAMES if f"{name})" not in text] == []
