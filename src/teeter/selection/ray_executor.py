"""Run tasks on a Ray cluster. All machines must see the same files under the same paths."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from teeter.errors import MissingExtraError, TeeterError
from teeter.selection.executors import (
    MAX_ATTEMPTS,
    Task,
    limit_to_one_thread,
    pending_tasks,
    run_task,
)

__all__ = ["RayExecutor"]


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
            self._connect(workers, starts_cluster)

    def _connect(self, workers: int | None, starts_cluster: bool) -> None:
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
            cores = max(1, int(ray.cluster_resources().get("CPU", 1)))
            limit = self.max_running or 2 * cores

            while waiting and len(running) < limit:
                task = waiting.pop()
                running[remote_function.remote(task)] = task

            finished, _ = ray.wait(list(running), num_returns=1)
            for reference in finished:
                task = running.pop(reference)
                self._check_result(reference, task)
                on_done()

    def _check_result(self, reference: Any, task: Task) -> None:
        """Raise what a task raised; ignore a lost worker if the output file exists."""
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


def _run_in_one_thread(task: Task) -> None:
    limit_to_one_thread()
    run_task(task)
