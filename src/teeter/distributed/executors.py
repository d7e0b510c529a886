"""A plan is a list of tasks, each of which writes one file; a file that is there is done, whoever wrote it and when."""

from __future__ import annotations

import importlib
import logging
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import Any, Protocol

from teeter.errors import InputError, TeeterError

__all__ = ["Executor", "LocalExecutor", "Task", "make_executor", "pending_tasks", "run_task"]

logger = logging.getLogger(__name__)

Progress = Callable[[int, int], None]

TRIES = 5
"""How often a task whose worker was lost is tried before it is given up."""

SETTLING = 60.0
"""Seconds that a file which another machine wrote may take to be seen here: folders on a network remember what was not
there."""


@dataclass(frozen=True)
class Task:
    """A function by its name, what it is called with, and the file it writes: to another name first, then renamed."""

    function: str
    """``module:name``; called with ``output`` and the arguments."""
    arguments: dict[str, Any]
    output: str


class Executor(Protocol):
    """Who performs tasks. All that it needs to know of them is here."""

    def run(self, tasks: Sequence[Task], on_done: Callable[[], None]) -> None:
        """Perform tasks, in any order, and tell of each that is done; raise what a task raises."""


def run_task(task: Task) -> None:
    """Perform one task here."""
    module, name = task.function.split(":")
    getattr(importlib.import_module(module), name)(Path(task.output), **task.arguments)


def pending_tasks(tasks: Sequence[Task]) -> list[Task]:
    """Return the tasks whose file is not there."""
    return [task for task in tasks if not Path(task.output).exists()]


def run_plan(
    executor: Executor, tasks: Sequence[Task], on_progress: Progress = lambda done, whole: None
) -> None:
    """Perform what is missing of a plan."""
    left = pending_tasks(tasks)
    done = len(tasks) - len(left)
    on_progress(done, len(tasks))

    def one_more() -> None:
        nonlocal done
        done += 1
        on_progress(done, len(tasks))

    executor.run(left, one_more)
    if lost := _settled(tasks):
        raise TeeterError(
            f"{len(lost)} of {len(tasks)} shards are still not there, {lost[0].output} among them."
        )


def _settled(tasks: Sequence[Task]) -> list[Task]:
    """Return the tasks whose file is not there, and does not appear soon either."""
    until, lost = time.monotonic() + SETTLING, pending_tasks(tasks)
    while lost and time.monotonic() < until and Path(lost[0].output).parent.exists():
        time.sleep(0.2)
        lost = pending_tasks(lost)
    return lost


def make_executor(engine: str, workers: int | None = None) -> Executor:
    """Return who performs tasks: ``local`` processes, or ``ray``."""
    if workers is not None and workers < 1:
        raise InputError(f"Cannot work with {workers} workers: give 1 or more.")
    if engine == "local":
        return LocalExecutor(workers or max(1, os.cpu_count() or 1))
    if engine == "ray":
        from teeter.distributed.ray_executor import RayExecutor

        return RayExecutor(workers)
    raise InputError(f"No engine is called {engine!r}: choose local or ray.")


@dataclass(frozen=True)
class LocalExecutor:
    """Processes of this machine, one thread each; a process that is killed is replaced, and its task done again."""

    workers: int

    def run(self, tasks: Sequence[Task], on_done: Callable[[], None]) -> None:
        """Perform tasks in processes; one worker is this process itself."""
        if self.workers == 1 or len(tasks) <= 1:
            for task in tasks:
                run_task(task)
                on_done()
            return
        left = list(tasks)
        for attempt in range(TRIES):
            left = self._round(left, on_done)
            if not left:
                return
            logger.warning(
                "A worker was lost; %d shards are left to do again (try %d).",
                len(left),
                attempt + 2,
            )
        raise TeeterError(
            f"Workers were lost {TRIES} times, by {left[0].output} at last: is there enough memory?"
        )

    def _round(self, tasks: Sequence[Task], on_done: Callable[[], None]) -> list[Task]:
        """Perform tasks until all are done or a worker is lost, and return those left."""
        left = {task.output: task for task in tasks}
        pool = ProcessPoolExecutor(
            self.workers,
            mp_context=worker_context(),
            initializer=prepare_worker,
            initargs=(dict(os.environ),),
        )
        try:
            running: dict[Future[None], Task] = {
                pool.submit(run_task, task): task for task in tasks
            }
            while running:
                ready, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in ready:
                    future.result()
                    del left[running.pop(future).output]
                    on_done()
        except BrokenProcessPool:  # submitting raises it too, where a worker is lost early
            return self._after_loss(list(left.values()), on_done)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
        return []

    @staticmethod
    def _after_loss(tasks: Sequence[Task], on_done: Callable[[], None]) -> list[Task]:
        left = pending_tasks(tasks)
        for _ in range(len(tasks) - len(left)):  # done, but the news of it was lost with the pool
            on_done()
        return left


def worker_context() -> BaseContext:
    """Return how workers are started.

    On Linux a fork server imports torch once and every worker is a fork of it. A worker that imports torch itself
    takes 3 s of CPU time longer to start. Elsewhere it may not be safe to fork once torch is imported.
    """
    if sys.platform != "linux":
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch"])
    return context


def prepare_worker(environment: dict[str, str]) -> None:
    """Give a worker the environment of now, where a fork server has that of its own start, and one thread."""
    os.environ.clear()
    os.environ.update(environment)
    one_thread()


def one_thread() -> None:
    """Keep a worker to one thread: there are as many workers as cores."""
    import torch

    torch.set_num_threads(1)
