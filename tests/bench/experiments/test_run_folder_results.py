"""Results: read back as they were recorded, and a damaged file is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from bench.experiments.tiny_runs import TINY
from teeter.bench.experiments.run_folder import Run, by_cells, read_run
from teeter.bench.experiments.runner import run_setting
from teeter.errors import FileError


@pytest.fixture(autouse=True)
def _on_one_thread(one_thread: None) -> None:
    torch.set_num_threads(1)


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="There is no run in"):
        read_run(tmp_path)
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(FileError, match="is damaged, or is not part of a run folder"):
        read_run(tmp_path)
    (tmp_path / "run.json").write_text('{"format": 99}')
    with pytest.raises(FileError, match="was written by a newer version of teeter"):
        read_run(tmp_path)


def test_a_damaged_line_in_the_middle_is_refused(tmp_path: Path) -> None:
    run_setting(TINY, tmp_path, strategies=["random"], rounds=1, device="cpu")
    path = tmp_path / "cells" / "random-0.jsonl"
    path.write_text("{}\n" + path.read_text())
    with pytest.raises(FileError, match="is damaged: it has a line that does not describe a round"):
        run_setting(TINY, tmp_path, strategies=["random"], device="cpu")


def test_damaged_facts_rounds_and_failures_are_refused(tmp_path: Path) -> None:
    run_setting(TINY, tmp_path, strategies=["random"], rounds=2, device="cpu")
    cell = tmp_path / "cells" / "random-0.jsonl"
    failures = tmp_path / "failures.jsonl"

    lines = cell.read_text()
    cell.write_text("".join(lines.splitlines(keepends=True)[::2]))
    with pytest.raises(FileError, match="is damaged: its rounds are not numbered 0, 1, 2"):
        read_run(tmp_path)

    cell.write_text(lines)

    for damaged in ("{}", "[]", "3", "not JSON"):
        failures.write_text(damaged + "\n")
        with pytest.raises(
            FileError, match="is damaged: it has a line that does not describe a failure"
        ):
            run_setting(TINY, tmp_path, strategies=["random"], device="cpu")

    failures.unlink()
    facts = json.loads((tmp_path / "run.json").read_text())

    for damage in (
        {"setting": {"name": "x"}},
        {"setting": 3},
        {"groups": None},
        {"groups": [3]},
        {"rounds": "two"},
    ):
        (tmp_path / "run.json").write_text(json.dumps({**facts, **damage}))
        for read in (
            read_run,
            lambda folder: run_setting(TINY, folder, strategies=["random"], device="cpu"),
        ):
            with pytest.raises(FileError, match="is damaged, or is not part of a run folder"):
                read(tmp_path)

    for missing in ("setting", "strategies", "repetitions", "rounds", "groups"):
        (tmp_path / "run.json").write_text(
            json.dumps({name: facts[name] for name in facts if name != missing})
        )
        with pytest.raises(FileError, match="is damaged, or is not part of a run folder"):
            read_run(tmp_path)


@pytest.mark.slow
def test_curves_keep_what_all_strategies_have(finished_run: Run) -> None:
    curves = finished_run.curves()
    assert list(curves.accuracy) == list(TINY.strategies)
    assert curves.labelled.tolist() == [20, 40, 60, 80]
    assert curves.accuracy["ldm-s"].shape == (2, 4)

    cells = by_cells(finished_run.rounds)
    assert curves.accuracy["ldm-s"][1, 2] == cells["ldm-s", 1][2].accuracy
    assert curves.seconds["ldm-s"]["selection"][0, 3] == 0

    shorter = replace(
        finished_run,
        rounds=tuple(
            round_
            for round_ in finished_run.rounds
            if (round_.strategy, round_.number) != ("random", 3)
        ),
    )
    assert shorter.curves().labelled.tolist() == [20, 40, 60]

    fewer = replace(
        finished_run,
        rounds=tuple(
            round_
            for round_ in finished_run.rounds
            if (round_.strategy, round_.repetition) != ("random", 0)
        ),
    )
    assert np.array_equal(fewer.curves().accuracy["ldm-s"], curves.accuracy["ldm-s"][1:])

    apart = [
        round_
        for round_ in finished_run.rounds
        if (round_.strategy, round_.repetition) not in (("random", 0), ("ldm-s", 1))
    ]
    assert replace(finished_run, rounds=tuple(apart)).curves().accuracy["ldm-s"].shape == (0, 0)

    none = replace(finished_run, rounds=())
    assert none.curves().accuracy == {}
