"""The code on selecting from big pools runs, and the estimate for a billion rows follows from the
committed result.
"""

from __future__ import annotations

import math
import re
import runpy
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from teeter.cli import app

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "research" / "speed" / "shards_page.py"
PAGE = ROOT / "docs" / "how_to" / "select_from_a_file.md"


@pytest.fixture
def page_script() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPT))


def test_the_estimate_for_a_billion_rows_follows_from_the_result(
    page_script: dict[str, Any],
) -> None:
    assert page_script["PAGE"] == PAGE
    text = PAGE.read_text(encoding="utf-8")
    assert text == page_script["fill_page"](text), "run python research/speed/shards_page.py"
    assert "were the same with local processes and with Ray" in text


def test_the_requirements_follow_from_the_rates(page_script: dict[str, Any]) -> None:
    engine = {
        "rows a second and core": 10_000.0,
        "fetches": 3,
        "rows fetched": 8000,
        "reference rows": 50_000,
        "worker GB": 0.5,
    }
    result = {
        "rows a group": 100_000,
        "bytes a row": 1000.0,
        "n": 1000,
        "reading": {"rows a second": 100_000.0},
        "drawing": {"rows": 10**6, "seconds": 3.6, "bytes a row": 40.0},
        "engines": [{"engine": "local", "rows are": "features", **engine}],
    }

    requirements = page_script["estimate_requirements"](result)
    groups = 10_000
    passes = 1 + sum(1 - math.exp(-rows / groups) for rows in (50_000, 4000, 4000, 1000))

    assert requirements.passes == pytest.approx(passes)
    assert requirements.stored == pytest.approx(1e12)
    assert requirements.scoring == pytest.approx(1e5 / 3600)
    assert requirements.fetching == pytest.approx((passes - 1) * 1e4 / 3600)
    assert requirements.drawing == pytest.approx(1.0)
    assert requirements.driver == pytest.approx(40e9)
    assert requirements.rate == pytest.approx(10e6)
    assert requirements.hours(100) == pytest.approx(
        (requirements.scoring + requirements.fetching) / 100 + 1
    )


def test_the_model_s_line_runs_after_the_snippet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    text = PAGE.read_text(encoding="utf-8")
    _, first, second = re.findall(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    (line,) = re.findall(r"^teeter (select images.npy .*)$", text, flags=re.MULTILINE)

    namespace: dict[str, Any] = {}
    exec(compile(first, str(PAGE), "exec"), namespace)
    exec(compile(second, str(PAGE), "exec"), namespace)

    result = CliRunner().invoke(app, [*shlex.split(line), "--workers", "1"])
    assert result.exit_code == 0, result.output
    picked = [int(row.split(",")[2]) for row in Path("picks.csv").read_text().splitlines()[1:]]
    assert picked == namespace["selection"].rows.tolist()
