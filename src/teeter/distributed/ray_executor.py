"""Tasks on a Ray cluster: the same plan on more machines, which must see the same files."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from teeter.distributed.executors import TRIES, Task, one_thread, pending_tasks, run_task
from teeter.errors import MissingExtraError, TeeterError

__all__ = ["RayExecutor"]


class RayExecutor:
    """Ray tasks that are tried again when their worker or its machine is lost."""

    def __init__(self, workers: int | None = None) -> None:
        """Join the cluster that ``RAY_ADDRESS`` names, or start one on this machine, for so many tasks at once."""
        try:
            import ray
        except ImportError:
            raise MissingExtraError(
                "The engine ray needs Ray: pip install 'teeter[ray]'."
            ) from None
        self.ray: Any = ray
        alone = not ray.is_initialized() and not os.environ.get("RAY_ADDRESS")
        self.at_most = None if alone else workers
        if not ray.is_initialized():
            here = (
                {"address": "local", "num_cpus": workers, "include_dashboard": False}
                if alone
                else {}
            )
            try:
                ray.init(log_to_driver=False, **here)
            except (OSError, RuntimeError, ValueError) as error:
                told = next(iter(str(error).splitlines()), "it does not say why")
                raise TeeterError(
                    f"Ray cannot be {'started' if alone else 'reached'}: {told}"
                ) from None

    def run(self, tasks: Sequence[Task], on_done: Callable[[], None]) -> None:
        """Perform tasks on the cluster, a few for each core at a time."""
        ray = self.ray
        remote = ray.remote(num_cpus=1, max_retries=TRIES)(_performed)
        waiting = list(reversed(tasks))
        running: dict[Any, Task] = {}
        while waiting or running:
            room = self.at_most or 2 * max(1, int(ray.cluster_resources().get("CPU", 1)))
            while waiting and len(running) < room:
                task = waiting.pop()
                running[remote.remote(task)] = task
            ready, _ = ray.wait(list(running), num_returns=1)
            for one in ready:
                task = running.pop(one)
                self._settle(one, task)
                on_done()

    def _settle(self, one: Any, task: Task) -> None:
        try:
            self.ray.get(one)
        except self.ray.exceptions.RayTaskError as error:
            raise error.cause if isinstance(error.cause, TeeterError) else error from None
        except self.ray.exceptions.RayError as error:
            if pending_tasks([task]):
                raise TeeterError(f"{task.output} could not be made: {error}") from None


def _performed(task: Task) -> None:
    one_thread()
    run_task(task)
