"""A worker process answers requests, and its parent survives whatever happens to it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator

import pytest

from echo_worker import make_echo_handler
from teeter.base.worker_process import WorkerDiedError, WorkerProcess, worker_context
from teeter.errors import InputError


@pytest.fixture
def worker() -> Iterator[WorkerProcess]:
    worker = WorkerProcess(make_echo_handler, name="echo", daemon=True)
    yield worker
    worker.close()


def test_requests_are_answered_by_one_process(worker: WorkerProcess) -> None:
    reports: list[str] = []
    assert worker.process_id is None

    first, first_process = worker.run("a", reports.append)
    second, second_process = worker.run("b", reports.append)

    assert (first, second) == ("a", "b")
    assert first_process == second_process == worker.process_id != os.getpid()
    assert reports == ["working on a", "working on b"]


def test_an_error_of_the_handler_is_raised_here_and_the_process_goes_on(
    worker: WorkerProcess,
) -> None:
    _, process = worker.run("a")

    with pytest.raises(InputError, match=r"^This request is bad\.$") as raised:
        worker.run("fail")
    assert "echo_worker.py" in str(raised.value.__cause__), "the traceback of the worker"

    with pytest.raises(RuntimeError, match="TwoArgumentsError: first"):
        worker.run("fail in an odd way")
    with pytest.raises(Exception, match="pickle"):
        worker.run("return a function")
    assert worker.run("b") == ("b", process)


def test_a_process_that_dies_at_work_is_reported_and_replaced(worker: WorkerProcess) -> None:
    _, process = worker.run("a")

    with pytest.raises(WorkerDiedError):
        worker.run("die")

    request, new_process = worker.run("b")
    assert request == "b"
    assert new_process != process


def test_a_process_that_was_killed_while_idle_is_replaced(worker: WorkerProcess) -> None:
    _, process = worker.run("a")

    os.kill(process, signal.SIGKILL)
    for child in multiprocessing.active_children():
        if child.pid == process:
            child.join(60)

    assert worker.run("b")[0] == "b"
    assert worker.process_id != process


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_death_is_noticed_although_a_child_of_the_worker_lives_on(worker: WorkerProcess) -> None:
    with pytest.raises(WorkerDiedError):
        worker.run("die, but leave a child")
    assert worker.run("b")[0] == "b"


def test_closing_ends_a_request_of_another_thread(worker: WorkerProcess) -> None:
    is_waiting = threading.Event()
    errors: list[BaseException] = []

    def run() -> None:
        try:
            worker.run("wait", lambda _: is_waiting.set())
        except WorkerDiedError as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    assert is_waiting.wait(60)
    worker.close()
    thread.join(60)

    assert len(errors) == 1
    assert not worker.is_alive()
    with pytest.raises(WorkerDiedError, match="closed"):
        worker.run("a")


def test_an_error_while_a_report_is_read_ends_the_process(worker: WorkerProcess) -> None:
    def fail(_: object) -> None:
        raise ValueError("cannot read this report")

    with pytest.raises(ValueError, match="cannot read"):
        worker.run("a", fail)

    assert worker.run("b")[0] == "b", "not the late reply to the first request"


def test_workers_are_spawned_where_forking_may_be_unsafe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert worker_context().get_start_method() == "spawn"
