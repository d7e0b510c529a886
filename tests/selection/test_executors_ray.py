"""The executor on Ray, without Ray: the error for a cluster that is away, and how much it asks
for at once.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from teeter.errors import TeeterError
from teeter.selection.executors import Task, make_executor


def test_a_cluster_that_is_away_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    class Away:
        @staticmethod
        def is_initialized() -> bool:
            return False

        @staticmethod
        def init(**options: Any) -> None:
            raise ConnectionError("No cluster is there.\nMany lines follow.")

    monkeypatch.setitem(sys.modules, "ray", Away)
    monkeypatch.setenv("RAY_ADDRESS", "cluster.invalid:6379")
    with pytest.raises(TeeterError, match=r"^Ray cannot be reached: No cluster is there\.$"):
        make_executor("ray")


def test_a_cluster_is_asked_for_no_more_at_once_than_workers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    at_once: list[int] = []

    class Cluster:
        """As much of Ray as the executor uses, where everything that runs is done."""

        @staticmethod
        def is_initialized() -> bool:
            return True

        @staticmethod
        def remote(**options: Any) -> Any:
            return lambda function: SimpleNamespace(remote=lambda task: task.output)

        @staticmethod
        def cluster_resources() -> dict[str, float]:
            return {"CPU": 8.0}

        @staticmethod
        def wait(running: list[Any], num_returns: int) -> tuple[list[Any], list[Any]]:
            at_once.append(len(running))
            return running[:1], running[1:]

        @staticmethod
        def get(reference: Any) -> None:
            """Nothing to get."""

    monkeypatch.setitem(sys.modules, "ray", Cluster)
    tasks = [Task("x:y", {}, str(tmp_path / f"{k}")) for k in range(20)]
    for workers, most in ((3, 3), (None, 16)):
        at_once.clear()
        make_executor("ray", workers).run(tasks, lambda: None)
        assert max(at_once) == most
