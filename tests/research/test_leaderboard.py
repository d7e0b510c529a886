"""The leaderboard: what may be on it, its table, and cells that are run again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fake_runs import fake_accuracy, fake_run
from research.leaderboard import leaderboard
from teeter.bench import compare_strategies
from teeter.bench.experiments import read_run
from teeter.errors import InputError

DIGITS = leaderboard.RUNS / "digits"


@pytest.fixture(autouse=True)
def _on_one_thread(one_thread: None) -> None:
    torch.set_num_threads(1)


def test_the_page_is_made_from_the_committed_runs() -> None:
    text = leaderboard.PAGE.read_text(encoding="utf-8")
    assert text == leaderboard.fill_page(text), (
        "run python research/leaderboard/leaderboard.py page"
    )
    assert "| research/leaderboard/runs/digits |" in text


def test_a_run_of_others_adds_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = read_run(DIGITS)
    theirs = replace(run, strategies=("random", "margin"), folder=DIGITS.parent / "theirs")
    monkeypatch.setattr(leaderboard, "find_runs", lambda: [run, theirs])
    lines = leaderboard.render_board().splitlines()
    rows = [line for line in lines if line.startswith("| margin")]
    assert [row.split(" | ")[-1] for row in rows] == [
        "research/leaderboard/runs/digits |",
        "research/leaderboard/runs/theirs |",
    ]
    gains = [
        float(line.split(" | ")[2].split(" ± ")[0].replace("−", "-"))
        for line in lines
        if " ± " in line
    ]
    assert gains == sorted(gains, reverse=True)
    gain = compare_strategies(run).gains["margin"]
    assert f"| {gain.mean:+.2f} ± {gain.deviation:.2f} |" in rows[0]


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"finished": False}, "it is not finished"),
        ({"quick": True}, "its setting is a quick one"),
        ({"accuracy": fake_accuracy(("ldm-s", "margin"))}, "it has no random"),
        ({"accuracy": fake_accuracy(repetitions=2)}, "it has 2 repetitions, and 3 are needed"),
    ],
)
def test_what_cannot_stand_beside_others_is_refused(values: dict[str, Any], problem: str) -> None:
    leaderboard.require_comparable(fake_run())
    with pytest.raises(InputError, match=problem):
        leaderboard.require_comparable(fake_run(**values))


def test_three_cells_of_different_strategies_are_drawn() -> None:
    cells = leaderboard.choose_cells(read_run(DIGITS))
    assert len({cell.strategy for cell in cells}) == 3
    assert cells == leaderboard.choose_cells(read_run(DIGITS))


@pytest.mark.slow
def test_a_committed_run_agrees_and_an_edited_one_does_not() -> None:
    run = read_run(DIGITS)
    checks = leaderboard.check_run(run, torch.device("cpu"))
    assert all(check.agrees for check in checks), checks

    better = [replace(result, accuracy=min(1, result.accuracy + 0.02)) for result in run.rounds]
    edited = replace(run, rounds=tuple(better))
    again = {check.cell: check.again for check in checks}
    for cell in leaderboard.choose_cells(edited):
        committed = [result.accuracy for result in edited.rounds if result.cell == cell]
        assert not leaderboard.CellCheck(cell, 100 * np.mean(committed), again[cell]).agrees
