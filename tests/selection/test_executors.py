"""Plans: what is done is not done again, workers that are lost are replaced, and what is missing is
found.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from teeter.base.worker_process import WorkerDiedError
from teeter.errors import InputError, TeeterError
from teeter.selection import executors
from teeter.selection.executors import LocalExecutor, Task, make_executor, run_plan, run_task

TASKS = "selection.worker_tasks"


def make_tasks(function: str, folder: Path, count: int, **arguments: Any) -> list[Task]:
    return [Task(f"{TASKS}:{function}", arguments, str(folder / f"{k}")) for k in range(count)]


class InProcessWorker:
    """Stands for a worker process: runs every task at once, in this process."""

    is_closed = False

    def __init__(self, *arguments: Any, **options: Any) -> None:
        pass

    def run(self, task: Task) -> None:
        run_task(task)

    def close(self) -> None:
        self.is_closed = True


@pytest.mark.slow
def test_a_worker_that_is_killed_is_replaced(tmp_path: Path) -> None:
    tasks = make_tasks("die_once", tmp_path, 6, marker=str(tmp_path / "killed"))
    progress: list[tuple[int, int]] = []
    run_plan(LocalExecutor(2), tasks, lambda done, total: progress.append((done, total)))
    assert all(Path(task.output).read_text() == "done" for task in tasks)
    assert progress[0] == (0, 6)
    assert progress[-1] == (6, 6)


@pytest.mark.slow
def test_an_error_in_a_worker_is_raised_here(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"This shard is bad\."):
        run_plan(LocalExecutor(2), make_tasks("fail", tmp_path, 2))


def test_workers_have_the_environment_of_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for value in ("one", "two"):
        monkeypatch.setenv("TEETER_TEST_VARIABLE", value)
        (tmp_path / value).mkdir()
        tasks = make_tasks("write_variable", tmp_path / value, 2, name="TEETER_TEST_VARIABLE")
        run_plan(LocalExecutor(2), tasks)
        assert [Path(task.output).read_text() for task in tasks] == [value, value]


def test_a_task_whose_workers_are_always_killed_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class DyingWorker(InProcessWorker):
        def run(self, task: Task) -> None:
            attempts.append(task.output)
            raise WorkerDiedError

    attempts: list[str] = []
    monkeypatch.setattr(executors, "WorkerProcess", DyingWorker)
    with pytest.raises(
        TeeterError,
        match=rf"Workers were killed in {executors.MAX_ATTEMPTS} attempts while writing .*[01]:",
    ):
        run_plan(LocalExecutor(2), make_tasks("write_done", tmp_path, 2))
    assert all(attempts.count(output) == executors.MAX_ATTEMPTS for output in set(attempts))


@pytest.mark.slow
def test_processes_that_are_always_killed_are_given_up(tmp_path: Path) -> None:
    with pytest.raises(
        TeeterError, match=rf"Workers were killed in {executors.MAX_ATTEMPTS} attempts"
    ):
        run_plan(LocalExecutor(2), make_tasks("die_always", tmp_path, 2))


def test_a_task_whose_worker_died_after_writing_is_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class ForgetfulWorker(InProcessWorker):
        def run(self, task: Task) -> None:
            attempts.append(task.output)
            super().run(task)
            raise WorkerDiedError

    attempts: list[str] = []
    monkeypatch.setattr(executors, "WorkerProcess", ForgetfulWorker)
    progress: list[int] = []
    run_plan(
        LocalExecutor(2),
        make_tasks("write_done", tmp_path, 3),
        lambda done, total: progress.append(done),
    )
    assert progress == [0, 1, 2, 3]
    assert len(attempts) == 3


def test_an_interrupted_plan_does_not_wait_for_its_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class EndlessWorker(InProcessWorker):
        """Its first task is done at once; the others end only when the worker is closed."""

        def __init__(self, *arguments: Any, **options: Any) -> None:
            self.closed = threading.Event()

        @property
        def is_closed(self) -> bool:  # type: ignore[override]
            return self.closed.is_set()

        def run(self, task: Task) -> None:
            if task.output.endswith("0"):
                run_task(task)
                return
            assert self.closed.wait(60)
            raise WorkerDiedError

        def close(self) -> None:
            self.closed.set()

    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(executors, "WorkerProcess", EndlessWorker)
    with pytest.raises(KeyboardInterrupt):
        LocalExecutor(2).run(make_tasks("write_done", tmp_path, 3), interrupt)
    assert (tmp_path / "0").exists()


def test_what_is_there_is_not_done_again(tmp_path: Path) -> None:
    class RecordingExecutor:
        def run(self, tasks: Sequence[Task], on_done: Any) -> None:
            performed.extend(Path(task.output).name for task in tasks)
            for task in tasks:
                run_task(task)
                on_done()

    performed: list[str] = []
    progress: list[tuple[int, int]] = []
    (tmp_path / "1").touch()
    tasks = make_tasks("write_done", tmp_path, 3)
    run_plan(RecordingExecutor(), tasks, lambda done, total: progress.append((done, total)))
    assert performed == ["0", "2"]
    assert progress == [(1, 3), (2, 3), (3, 3)]


def test_a_file_that_is_seen_late_is_waited_for(tmp_path: Path) -> None:
    class LateExecutor:
        def run(self, tasks: Any, on_done: Any) -> None:
            threading.Timer(0.1, Path(tasks[0].output).touch).start()

    run_plan(LateExecutor(), [Task("x:y", {}, str(tmp_path / "late"))])
    assert (tmp_path / "late").exists()


def test_an_executor_that_leaves_something_out_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executors, "VISIBILITY_TIMEOUT", 0.3)

    class LazyExecutor:
        def run(self, tasks: Any, on_done: Any) -> None:
            """Does nothing."""

    with pytest.raises(TeeterError, match="1 of 1 output files are missing"):
        run_plan(LazyExecutor(), [Task("x:y", {}, str(tmp_path / "none"))])


def test_engines_and_workers_that_cannot_be_are_refused() -> None:
    with pytest.raises(InputError, match="No engine is called 'spark'"):
        make_executor("spark")
    with pytest.raises(InputError, match="Cannot run 0 workers: ask for 1 or more"):
        make_executor("local", 0)
