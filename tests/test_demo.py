"""The demonstration, small; and whole, as it is promised, among the slow tests."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from teeter import TrainingConfig, demo
from teeter.cli import app
from teeter.demo import run_demo


def test_a_small_demonstration_has_all_its_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "POOL", 200)
    steps: list[tuple[int, int]] = []
    found = run_demo(
        tmp_path / "new" / "folder",
        strategies=("ldm-s", "random"),
        repetitions=2,
        rounds=2,
        training=TrainingConfig(epochs=2),
        workers=1,
        on_step=lambda done, whole: steps.append((done, whole)),
    )
    assert steps == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert found.labels == 60
    assert [line.strategy for line in found.lines] == ["ldm-s", "random"]
    text = found.page.read_text()
    for part in ("ldm-s", "random", "paired t-test", "gain over random", "data:image/png;base64", "teeter 0."):
        assert part in text
    results = json.loads((found.page.parent / "results.json").read_text())
    assert np.shape(results["accuracy"]["ldm-s"]) == (2, 3)
    assert results["lines"][0]["gain"]["mean"] == pytest.approx(found.lines[0].gain.mean)
    assert found.picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_workers_change_nothing(tmp_path: Path) -> None:
    options = {"strategies": ("ldm-s", "random"), "repetitions": 1, "rounds": 1, "training": TrainingConfig(epochs=5)}
    alone = run_demo(tmp_path / "one", workers=1, **options)
    together = run_demo(tmp_path / "two", workers=2, **options)
    assert alone.lines == together.lines


@pytest.mark.slow
def test_the_demonstration_keeps_its_promise(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["demo", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert len(done.stdout.strip().splitlines()) == 3
    found = run_demo(tmp_path)
    gain = next(line.gain for line in found.lines if line.strategy == "ldm-s")
    assert gain is not None
    assert gain.mean > 0
    assert gain.significant
