"""Run tasks that each write one file, in local processes or on a Ray cluster.

A task whose output file exists is done, whichever process or machine wrote it. No other state is
kept: a plan that was interrupted is resumed by running it again.

All machines of a Ray cluster must see the same files under the same paths. Ray itself is imported
when an executor for it is made.
"""

from __future__ import annotations

import importlib
import logging
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Protocol

from teeter.base.worker_process import Handler, WorkerDiedError, WorkerProcess
from teeter.errors import InputError, MissingExtraError, TeeterError

__all__ = [
    "MAX_ATTEMPTS",
    "VISIBILITY_TIMEOUT",
    "Executor",
    "LocalExecutor",
    "Progress",
    "RayExecutor",
    "Task",
    "limit_to_one_thread",
    "make_executor",
    "make_task_handler",
    "pending_tasks",
    "run_plan",
    "run_task",
]

logger = logging.getLogger(__name__)

Progress = Callable[[int, int], None]

MAX_ATTEMPTS = 5
"""How often a task is started before it is given up because its workers died."""

VISIBILITY_TIMEOUT = 60.0
"""Seconds to wait for a file that another machine wrote: network file systems cache directory
listings, so a new file may be invisible here for a while."""


@dataclass(frozen=True)
class Task:
    """A function call that writes one file.

    The function must write atomically (to a temporary name, then rename), because a file that
    exists counts as complete.
    """

    function: str
    """``module:name``; called with ``output`` and then ``arguments`` as keywords."""
    arguments: dict[str, Any]
    output: str
    """Path of the file that the function writes."""


class Executor(Protocol):
    """Runs tasks somewhere."""

    def run(self, tasks: Sequence[Task], on_done: Callable[[], None]) -> None:
        """Run tasks in any order.

        Args:
            tasks: the tasks to run.
            on_done: called in this process after each finished task.

        Raises:
            Exception: what a task raised.
        """


def run_task(task: Task) -> None:
    """Run one task in this process."""
    module_name, function_name = task.function.split(":")
    function = getattr(importlib.import_module(module_name), function_name)
    function(Path(task.output), **task.arguments)


def pending_tasks(tasks: Sequence[Task]) -> list[Task]:
    """Return the tasks whose output file does not exist."""
    return [task for task in tasks if not Path(task.output).exists()]


def run_plan(
    executor: Executor, tasks: Sequence[Task], on_progress: Progress = lambda done, total: None
) -> None:
    """Run the pending tasks of a plan.

    Args:
        executor: runs the tasks.
        tasks: the whole plan, including tasks that are done.
        on_progress: called with the number of finished tasks and the size of the plan.

    Raises:
        TeeterError: an output file is missing although the executor reported no error.
    """
    pending = pending_tasks(tasks)
    done = len(tasks) - len(pending)
    on_progress(done, len(tasks))

    def count_task() -> None:
        nonlocal done
        done += 1
        on_progress(done, len(tasks))

    executor.run(pending, count_task)

    # Trust files, not executors: only what can be read here is done.
    deadline = time.monotonic() + VISIBILITY_TIMEOUT
    missing = pending_tasks(tasks)

    while missing and time.monotonic() < deadline:
        # A folder that was removed will not fill up again: do not wait for it.
        folder = Path(missing[0].output).parent
        if not folder.exists():
            break

        time.sleep(0.2)
        missing = pending_tasks(missing)
    if missing:
        raise TeeterError(
            f"{len(missing)} of {len(tasks)} output files are missing after all tasks ran, "
            f"{missing[0].output} among them: check that all workers share this folder."
        )


def make_executor(engine: str, workers: int | None = None) -> Executor:
    """Return an executor by the name of its engine.

    Args:
        engine: ``"local"`` for processes of this machine, ``"ray"`` for a Ray cluster.
        workers: number of workers; all cores if None.

    Raises:
        InputError: the engine is unknown or ``workers`` is less than 1.
        MissingExtraError: the engine is ``"ray"`` and Ray is not installed.

    Example:
        >>> make_executor("local", workers=2)
        LocalExecutor(workers=2)
    """
    if workers is not None and workers < 1:
        raise InputError(f"Cannot run {workers} workers: ask for 1 or more.")

    if engine == "local":
        cores = os.cpu_count() or 1  # None where the system does not tell
        return LocalExecutor(workers or cores)

    if engine == "ray":
        return RayExecutor(workers)

    raise InputError(f"No engine is called {engine!r}: choose 'local' or 'ray'.")


@dataclass(frozen=True)
class LocalExecutor:
    """Processes of this machine with one thread each; a killed process is replaced."""

    workers: int
    """Number of processes. A single worker is this process itself."""

    def run(self, tasks: Sequence[Task], on_done: Callable[[], None]) -> None:
        """Run tasks, and run those of a killed worker again.

        Args:
            tasks: the tasks to run.
            on_done: called in this thread after each finished task.

        Raises:
            TeeterError: the workers of one task were killed in ``MAX_ATTEMPTS`` attempts.
            Exception: what a task raised, after the tasks that were running have finished.
        """
        # A single task is not worth starting processes.
        if self.workers == 1 or len(tasks) <= 1:
            for task in tasks:
                run_task(task)
                on_done()
            return

        workers = [
            WorkerProcess(make_task_handler, name=f"teeter worker {number}")
            for number in range(min(self.workers, len(tasks)))
        ]
        idle_workers: SimpleQueue[WorkerProcess] = SimpleQueue()
        for worker in workers:
            idle_workers.put(worker)

        # Each thread waits for one worker process; the work itself is done there.
        threads = ThreadPoolExecutor(len(workers))
        try:
            futures = [threads.submit(_run_in_worker, task, idle_workers) for task in tasks]
            for future in as_completed(futures):
                future.result()
                on_done()

        except KeyboardInterrupt:
            # Do not wait for running tasks: they are run again when the plan is resumed.
            for worker in workers:
                worker.close()
            raise

        finally:
            threads.shutdown(wait=True, cancel_futures=True)
            for worker in workers:
                worker.close()


def _run_in_worker(task: Task, idle_workers: SimpleQueue[WorkerProcess]) -> None:
    """Run a task in the next idle worker, again if the worker is killed."""
    worker = idle_workers.get()
    try:
        for attempt in range(1, MAX_ATTEMPTS + 1):
            try:
                worker.run(task)
                return
            except WorkerDiedError:
                # The worker may have been killed between writing the file and saying so.
                if worker.is_closed or not pending_tasks([task]):
                    return

                logger.warning(
                    "A worker was killed while writing %s (attempt %d of %d).",
                    task.output,
                    attempt,
                    MAX_ATTEMPTS,
                )
    finally:
        idle_workers.put(worker)

    raise TeeterError(
        f"Workers were killed in {MAX_ATTEMPTS} attempts while writing {task.output}: if memory "
        f"ran out, use fewer workers."
    )


def make_task_handler() -> Handler:
    """Set up a new worker process, and return what runs its tasks."""
    limit_to_one_thread()
    return lambda task, report: run_task(task)


def limit_to_one_thread() -> None:
    """Let torch use one thread in this process: there are as many workers as cores."""
    import torch

    torch.set_num_threads(1)


class RayExecutor:
    """Ray tasks that run again if their worker or its machine is lost."""

    def __init__(self, workers: int | None = None) -> None:
        """Connect to the cluster in ``RAY_ADDRESS``, or start one on this machine.

        Args:
            workers: number of tasks at a time; as many as the cluster has cores if None.

        Raises:
            MissingExtraError: Ray is not installed.
            TeeterError: the cluster cannot be reached or started.
        """
        try:
            import ray
        except ImportError:
            raise MissingExtraError(
                "The engine 'ray' needs Ray: pip install 'teeter[ray]'."
            ) from None

        # Ray has no usable type hints.
        self.ray: Any = ray
        has_address = bool(os.environ.get("RAY_ADDRESS"))
        starts_cluster = not ray.is_initialized() and not has_address

        # A cluster of our own has as many cores as workers, which limits the tasks already.
        self.max_running = workers
        if starts_cluster:
            self.max_running = None

        if not ray.is_initialized():
            options: dict[str, Any] = {}
            if starts_cluster:
                options = {
                    "address": "local",
                    "num_cpus": workers,
                    "include_dashboard": False,
                }

            try:
                self.ray.init(log_to_driver=False, **options)
            except (OSError, RuntimeError, ValueError) as error:
                action = "started" if starts_cluster else "reached"
                lines = str(error).splitlines() or ["no reason was given"]
                raise TeeterError(f"Ray cannot be {action}: {lines[0]}") from None

    def run(self, tasks: Sequence[Task], on_done: Callable[[], None]) -> None:
        """Run tasks on the cluster, submitting two per core at a time.

        Raises:
            TeeterError: a task raised it, or its workers were lost too often.
        """
        ray = self.ray
        make_remote = ray.remote(num_cpus=1, max_retries=MAX_ATTEMPTS)
        remote_function = make_remote(_run_in_one_thread)
        waiting = list(reversed(tasks))  # reversed, because pop() takes from the end
        running: dict[Any, Task] = {}

        while waiting or running:
            # Machines join and leave, so the number of cores is read each time.
            resources = ray.cluster_resources()
            cores = max(1, int(resources.get("CPU", 1)))
            limit = self.max_running or 2 * cores

            while waiting and len(running) < limit:
                task = waiting.pop()
                running[remote_function.remote(task)] = task

            finished, _ = ray.wait(list(running), num_returns=1)
            for reference in finished:
                task = running.pop(reference)
                try:
                    self.ray.get(reference)
                except self.ray.exceptions.RayTaskError as error:
                    if isinstance(error.cause, TeeterError):
                        raise error.cause from None
                    raise
                except self.ray.exceptions.RayError as error:
                    # The worker may have died after it wrote the file.
                    if pending_tasks([task]):
                        raise TeeterError(f"{task.output} could not be written: {error}") from None
                on_done()


def _run_in_one_thread(task: Task) -> None:
    limit_to_one_thread()
    run_task(task)
