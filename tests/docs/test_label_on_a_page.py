"""The speeds in the how-to come from the committed result, and are fast enough."""

from __future__ import annotations

import json
from pathlib import Path

ROOT = Path(__file__).parents[2]
RESULT = json.loads((ROOT / "research" / "speed" / "results" / "web_cpu.json").read_text())


def test_the_how_to_shows_the_measured_speeds() -> None:
    page = (ROOT / "docs" / "how_to" / "label_on_a_page.md").read_text(encoding="utf-8")
    seconds = [f"{first['first question (s)']:.1f}" for first in RESULT["first questions"]]
    median = RESULT["answers"]["median ms"]
    late = RESULT["answers"]["95th percentile ms"]
    words = " ".join(page.split())
    few, more, many, photographs = seconds
    assert f"takes {few} s for 3,000 texts, {more} s for 15,000 and {many} s for 100,000" in words
    assert f"{photographs} s for 1,000 photographs" in words
    assert f"takes {median:.1f} ms at the median (95th percentile {late:.1f} ms)" in words


def test_annotators_do_not_wait() -> None:
    for first in RESULT["first questions"]:
        assert first["first question (s)"] < 15
    assert RESULT["answers"]["median ms"] < 50
    assert max(page["median ms"] for page in RESULT["pages"]) < 1000
