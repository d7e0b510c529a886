"""Groups of a run by workers: the same rounds as in one process, also when a worker is lost or the
run is resumed.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from teeter.bench.experiments.run_folder import Run
from teeter.bench.experiments.runner import run_setting
from teeter.bench.experiments.settings import Setting, setting_named
from teeter.errors import UnknownNameError
from teeter.selection.executors import LocalExecutor, run_task

SETTING = replace(
    setting_named("digits"),
    epochs=3,
    repetitions=3,
    final=60,
    pool=100,
    separate=True,
    strategies=("random", "ldm-s"),
)


class Here:
    """Performs tasks one after the other, and stops after some."""

    def __init__(self, stop: int | None = None) -> None:
        self.stop = stop
        self.performed = 0

    def run(self, tasks: Any, on_done: Any) -> None:
        for task in tasks:
            if self.performed == self.stop:
                raise KeyboardInterrupt
            run_task(task)
            self.performed += 1
            on_done()


def rounds_of(run: Run) -> list[tuple[Any, ...]]:
    results = [
        (
            round_.strategy,
            round_.repetition,
            round_.number,
            round_.accuracy,
            round_.loss,
            round_.picks,
        )
        for round_ in run.rounds
    ]

    return sorted(results)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run_setting(SETTING, tmp_path_factory.mktemp("alone"), device="cpu")


@pytest.mark.slow
def test_workers_find_what_one_process_finds(alone: Run, tmp_path: Path) -> None:
    progress: list[tuple[int, int]] = []

    run = run_setting(
        SETTING,
        tmp_path,
        device="cpu",
        executor=LocalExecutor(2),
        on_step=lambda done, total: progress.append((done, total)),
    )

    assert run.finished
    assert rounds_of(run) == rounds_of(alone)
    assert progress[-1] == (len(run.rounds), len(run.rounds))
    assert {path.name for path in tmp_path.iterdir()} <= {"run.json", "cells", ".lock"}


@pytest.mark.slow
def test_a_driver_that_was_stopped_goes_on(alone: Run, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run_setting(SETTING, tmp_path, device="cpu", executor=Here(stop=1))
    again = Here()
    run = run_setting(SETTING, tmp_path, device="cpu", executor=again)
    assert again.performed == 3  # what was done is read, not done again
    assert rounds_of(run) == rounds_of(alone)
    assert rounds_of(run_setting(SETTING, tmp_path, device="cpu")) == rounds_of(alone)


def test_repetitions_are_groups_only_if_the_setting_says_so(tmp_path: Path) -> None:
    for separate, groups in ((True, 3), (False, 1)):
        executor = Here()
        run_setting(
            replace(SETTING, separate=separate),
            tmp_path / str(separate),
            device="cpu",
            rounds=0,
            executor=executor,
        )
        assert executor.performed == groups


def test_big_networks_are_groups_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("teeter.bench.experiments.runner._BATCHED_NETWORKS", ())
    executor = Here()
    run_setting(
        replace(SETTING, separate=False), tmp_path, device="cpu", rounds=0, executor=executor
    )
    assert executor.performed == 6


def test_what_cannot_be_run_is_refused_before_any_worker_starts(tmp_path: Path) -> None:
    class Never:
        def run(self, tasks: Any, on_done: Any) -> None:
            raise AssertionError

    with pytest.raises(UnknownNameError):
        run_setting(SETTING, tmp_path, strategies=["unknown"], device="cpu", executor=Never())
    assert isinstance(SETTING, Setting)
