"""The features of a few rows out of many: fetched here, or by the workers where much must be read or computed."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from teeter.datasets.shards import Shard, Shards
from teeter.distributed.executors import TRIES, Executor, Task, run_plan
from teeter.distributed.feature_source import FeatureSource, LoadedSource
from teeter.errors import TeeterError
from teeter.files import read_state, write_errors, write_state
from teeter.version import __version__

__all__ = ["features_at", "fetch_shard"]

READ, COMPUTED = 1 << 32, 1 << 26
"""Bytes of Parquet files that are read here, and bytes of rows that go through a model here; more is for workers."""
HELD = 1 << 26
"""Bytes of raw rows that are held here at once."""

Rows = npt.NDArray[np.int64]


def features_at(
    shards: Shards, rows: Rows, source: FeatureSource | None, *, executor: Executor, work: Path
) -> Tensor:
    """Return the features of rows of the pool, in any order: (k,) -> (k, D)."""
    if _is_much(shards, rows, source):
        return _by_workers(shards, rows, source, executor, work)
    if source is None or not source.is_model:
        return torch.from_numpy(shards.take(rows))
    opened = source.opened()
    order = np.argsort(rows, kind="stable")
    step = max(1, HELD // (4 * shards.width))
    pieces = [
        _computed(opened, shards, rows[order[k : k + step]]) for k in range(0, len(rows), step)
    ]
    found = torch.empty(len(rows), opened.weight.shape[1])
    found[torch.from_numpy(order)] = torch.cat(pieces)
    return found


def _computed(opened: LoadedSource, shards: Shards, rows: Rows) -> Tensor:
    return opened.features(shards.take(rows), lambda k: f"row {rows[k]} of the pool")


def _is_much(shards: Shards, rows: Rows, source: FeatureSource | None) -> bool:
    if source is not None and source.is_model and 4 * shards.width * len(rows) > COMPUTED:
        return True
    read = sum(shard.rows for shard, _ in shards.group_by_shard(rows) if shard.groups)
    return 4 * shards.width * read > READ


def _by_workers(
    shards: Shards, rows: Rows, source: FeatureSource | None, executor: Executor, work: Path
) -> Tensor:
    """Return what a task a shard fetches; its files are kept only until all are there."""
    parts = list(shards.group_by_shard(rows))
    facts = [__version__, source, [shard.key() for shard, _ in parts]]
    name = hashlib.blake2b(repr(facts).encode() + rows.tobytes(), digest_size=10).hexdigest()
    folder = (work / f"rows-{name}").resolve()
    orders = [places[np.argsort(rows[places], kind="stable")] for _, places in parts]
    tasks = [
        Task(
            "teeter.distributed.fetch:fetch_shard",
            {"source": source, "shard": shard, "rows": rows[order] - shard.first},
            str(folder / f"{k}.safetensors"),
        )
        for k, ((shard, _), order) in enumerate(zip(parts, orders, strict=True))
    ]
    pieces = _performed(tasks, executor, folder)
    found = torch.empty(len(rows), pieces[0].shape[1])
    found[torch.from_numpy(np.concatenate(orders))] = torch.cat(pieces)
    shutil.rmtree(folder, ignore_errors=True)
    return found


def _performed(tasks: Sequence[Task], executor: Executor, folder: Path) -> list[Tensor]:
    """Return what tasks fetched, which are done again where another process has just cleared the folder away."""
    for _ in range(TRIES):
        with write_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        try:
            run_plan(executor, tasks)
            return [
                read_state(Path(task.output), "a file of fetched rows")[1]["features"]
                for task in tasks
            ]
        except TeeterError:
            if folder.exists():
                raise
    raise TeeterError(
        f"{folder} is cleared away again and again: does another process use this folder?"
    )


def fetch_shard(output: Path, source: FeatureSource | None, shard: Shard, rows: Rows) -> None:
    """Write the features of some rows of a shard, counted from its first, in rising order."""
    stored = shard.take(rows)
    features = torch.from_numpy(stored)
    if source is not None:
        features = source.opened().features(stored, lambda k: shard.names(int(rows[k]))(0))
    write_state(output, {}, {"features": features})
