"""Rows are fetched by workers where much must be read, and again where they are cleared away."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from small_model_shards import (
    assert_same,
    select_from,
)
from small_shards import select_rows
from teeter.selection import executors, fetch
from teeter.selection.executors import LocalExecutor, Task


def test_features_are_fetched_by_workers_where_much_must_be_read(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = select_from(home, "features", n=60)
    performed: list[Task] = []
    monkeypatch.setattr(fetch, "MAX_LOCAL_READ", 0)
    monkeypatch.setattr(
        executors,
        "run_task",
        lambda task, really=executors.run_task: (performed.append(task), really(task)),
    )
    assert_same(select_from(home, "features", n=60, work=home / "other"), here)
    assert any("fetch_shard" in task.function for task in performed)


def test_rows_that_another_process_clears_away_are_fetched_again(
    pool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Clears(LocalExecutor):
        def run(self, tasks: Any, on_done: Any) -> None:
            LocalExecutor(1).run(tasks, on_done)
            if "rows-" in tasks[0].output and not cleared:
                cleared.append(Path(tasks[0].output).parent)
                shutil.rmtree(cleared[0])

    cleared: list[Path] = []
    expected = select_rows(pool)
    monkeypatch.setattr(fetch, "MAX_LOCAL_READ", 0)
    again = select_rows(pool, executor=Clears(1), work=pool.parent / "again")
    assert cleared
    assert np.array_equal(expected.rows, again.rows)
