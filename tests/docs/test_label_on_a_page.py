"""The speeds in the how-to come from the committed result, and are fast enough."""

from __future__ import annotations

import json
from pathlib import Path

ROOT = Path(__file__).parents[2]
RESULT = json.loads((ROOT / "research" / "speed" / "results" / "web_cpu.json").read_text())


def test_the_how_to_shows_the_measured_speeds() -> None:
    page = (ROOT / "docs" / "how_to" / "label_on_a_page.md").read_text(encoding="utf-8")
    seconds = RESULT["first question"]["s"]
    median = RESULT["answers"]["median ms"]
    late = RESULT["answers"]["95th percentile ms"]
    words = " ".join(page.split())
    assert f"takes {seconds:.1f} s" in words
    assert f"takes {median:.1f} ms at the median (95th percentile {late:.1f} ms)" in words


def test_annotators_do_not_wait() -> None:
    # Encoding the texts takes longer, but it is done once, with a bar that shows its progress.
    first = RESULT["first question"]
    assert first["serve until a page (s)"] + first["page until an item (s)"] < 30
    assert RESULT["answers"]["median ms"] < 50
    assert max(page["median ms"] for page in RESULT["pages"]) < 1000
