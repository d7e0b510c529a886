"""What the how-to says of the page's speed comes from the committed result, and is within what was asked for."""

from __future__ import annotations

import json
from pathlib import Path

ROOT = Path(__file__).parents[2]
RESULT = json.loads((ROOT / "benchmarks" / "speed" / "results" / "web_cpu.json").read_text())


def test_the_how_to_s_figures_are_measured() -> None:
    text = (ROOT / "docs" / "how_to" / "label_on_a_page.md").read_text(encoding="utf-8")
    answers = RESULT["answers"]
    assert f"takes {RESULT['first question']['s']:.1f} s" in text
    assert (
        f"takes {answers['median ms']:.1f} ms at the median (95th percentile {answers['95th percentile ms']:.1f} ms)"
        in text
    )


def test_nobody_waits() -> None:
    assert RESULT["first question"]["s"] < 30
    assert RESULT["answers"]["median ms"] < 50
    assert max(one["median ms"] for one in RESULT["pages"]) < 1000
