"""The demonstration, small; and whole, as it is promised, among the slow tests."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from teeter.bench.demo import DEMO_SETTING, run_demo
from teeter.cli import app
from teeter.cli.bench import _describe_demo
from teeter.errors import InputError

SMALL = replace(
    DEMO_SETTING, train=200, final=60, epochs=2, repetitions=2, strategies=("ldm-s", "random")
)


def test_a_small_demonstration_has_all_its_parts(tmp_path: Path, one_thread: None) -> None:
    steps: list[tuple[int, int]] = []
    folder = tmp_path / "new" / "folder"
    result = run_demo(
        folder, setting=SMALL, on_step=lambda done, total: steps.append((done, total))
    )

    assert steps[-1] == (12, 12)
    assert result.labelled[-1] == 60
    assert set(result.accuracy) == {"ldm-s", "random"}

    text = (folder / "index.html").read_text()
    for part in (
        "ldm-s",
        "random",
        "paired t-test",
        "gain over random",
        "data:image/png;base64",
        "teeter 0.",
    ):
        assert part in text

    results = json.loads((folder / "results.json").read_text())
    assert np.shape(results["accuracy"]["ldm-s"]) == (2, 3)
    assert results["lines"][0]["gain"]["mean"] == pytest.approx(result.gains["ldm-s"].mean)
    assert (folder / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_other_experiments_are_refused(tmp_path: Path) -> None:
    for setting in (replace(SMALL, strategies=("random",)), replace(SMALL, dataset="mnist")):
        with pytest.raises(InputError, match="compares ldm-s with random on digits"):
            run_demo(tmp_path, setting=setting)


@pytest.mark.slow
def test_fewer_repetitions_than_recorded_are_shown_if_asked_for(tmp_path: Path) -> None:
    run_demo(tmp_path, setting=SMALL)
    fewer = run_demo(tmp_path, setting=replace(SMALL, repetitions=1))
    path = tmp_path / "index.html"
    page = path.read_text()
    assert "One repetition, so the differences cannot" in page
    assert "one repetition: no test" in page
    assert "p = 1" not in " ".join(_describe_demo(fewer, path))
    assert "a test needs two or more repetitions" in _describe_demo(fewer, path)[0]


@pytest.mark.slow
def test_the_demonstration_keeps_its_promise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["bench", "demo"])
    assert done.exit_code == 0, done.output
    assert len(done.stdout.strip().splitlines()) == 3
    # Without a terminal, lines take the place of the progress bar.
    assert len(re.findall(r"Learning digits: [\d,]+ of [\d,]+", done.stderr)) == 10
    gain = run_demo(tmp_path / "teeter-demo").gains["ldm-s"]
    assert gain.mean > 0
    assert gain.significant
