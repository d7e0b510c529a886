"""Fetch the features of a few rows of a sharded pool, here or by the workers."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from teeter.base.files import read_state, write_errors, write_state
from teeter.base.version import __version__
from teeter.data.shards import Shard, Shards
from teeter.errors import TeeterError
from teeter.selection.executors import MAX_ATTEMPTS, Executor, Task, run_plan
from teeter.selection.feature_source import FeatureSource

__all__ = ["fetch_features", "fetch_shard"]

MAX_LOCAL_READ = 1 << 32
"""Bytes of Parquet row groups that this process reads itself; workers read more."""
MAX_LOCAL_INPUTS = 1 << 26
"""Bytes of raw rows that this process runs through a model itself; workers run more."""
MODEL_CHUNK = 1 << 26
"""Bytes of raw rows that are held at once while a model computes their features."""

_FLOAT_BYTES = 4

Rows = npt.NDArray[np.int64]


def fetch_features(
    shards: Shards,
    rows: Rows,
    source: FeatureSource | None,
    *,
    executor: Executor,
    work: Path,
) -> Tensor:
    """Return the features of some rows of the pool.

    Args:
        shards: the pool.
        rows: (k,) row numbers, in any order.
        source: the head or model; None if the pool stores features and there is no head.
        executor: runs one task per shard if there is much to read or compute.
        work: folder for the files of these tasks, which are removed afterwards.

    Returns:
        (k, D), in the order of ``rows``.
    """
    if _is_work_for_executor(shards, rows, source):
        return _fetch_by_workers(shards, rows, source, executor, work)

    if source is None or not source.is_model:
        return torch.from_numpy(shards.take(rows))

    # In the order of the files, a chunk at a time: raw rows may be much larger than features.
    loaded = source.load()
    order = np.argsort(rows, kind="stable")
    step = max(1, MODEL_CHUNK // (_FLOAT_BYTES * shards.width))
    feature_width = loaded.weight.shape[1]
    features = torch.empty(len(rows), feature_width)

    for start in range(0, len(rows), step):
        positions = order[start : start + step]
        chunk = rows[positions]

        # The default binds this chunk; a closure would see the chunk of the next iteration.
        def describe_row(k: int, chunk: Rows = chunk) -> str:
            return f"row {chunk[k]} of the pool"

        computed = loaded.features(shards.take(chunk), describe_row)
        features[torch.from_numpy(positions)] = computed

    return features


def _is_work_for_executor(shards: Shards, rows: Rows, source: FeatureSource | None) -> bool:
    """Return whether the rows are too much for this process to compute or to read."""
    row_bytes = _FLOAT_BYTES * shards.width

    # Running a model costs much more than reading its inputs.
    is_computed = source is not None and source.is_model
    if is_computed and row_bytes * len(rows) > MAX_LOCAL_INPUTS:
        return True

    # Parquet row groups are read whole, also for a single row. Arrays are memory-mapped.
    rows_read = 0
    for shard, _ in shards.group_by_shard(rows):
        if shard.groups:
            rows_read += shard.rows
    return row_bytes * rows_read > MAX_LOCAL_READ


def _fetch_by_workers(
    shards: Shards, rows: Rows, source: FeatureSource | None, executor: Executor, work: Path
) -> Tensor:
    """Run one task per shard, and remove the files when all were read."""
    parts = list(shards.group_by_shard(rows))

    # Named by everything that the features depend on, so that files of another request never fit.
    shard_keys = [shard.key() for shard, _ in parts]
    parameters = [__version__, source, shard_keys]
    content = repr(parameters).encode() + rows.tobytes()
    name = hashlib.blake2b(content, digest_size=10).hexdigest()
    folder = (work / f"rows-{name}").resolve()

    tasks = []
    orders = []
    for number, (shard, positions) in enumerate(parts):
        # Shard.take wants rising row numbers.
        rising = np.argsort(rows[positions], kind="stable")
        order = positions[rising]
        task = Task(
            function="teeter.selection.fetch:fetch_shard",
            arguments={
                "source": source,
                "shard": shard,
                "rows": rows[order] - shard.first,
            },
            output=str(folder / f"{number}.safetensors"),
        )
        tasks.append(task)
        orders.append(order)

    # Shard by shard, in rising order: put every row back where the caller asked for it.
    pieces = _run_fetch_tasks(tasks, executor, folder)
    fetched = torch.cat(pieces)
    all_positions = torch.from_numpy(np.concatenate(orders))
    features = torch.empty(len(rows), fetched.shape[1])
    features[all_positions] = fetched

    shutil.rmtree(folder, ignore_errors=True)  # another process may have removed it
    return features


def _run_fetch_tasks(tasks: Sequence[Task], executor: Executor, folder: Path) -> list[Tensor]:
    """Run tasks and read their files, again if another process removed the folder meanwhile.

    Two processes that make the same selection share the folder, and the first to finish removes it.
    """
    for _ in range(MAX_ATTEMPTS):
        with write_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)

        try:
            run_plan(executor, tasks)

            pieces = []
            for task in tasks:
                _, tensors = read_state(Path(task.output), "a file of fetched rows")
                pieces.append(tensors["features"])
            return pieces

        except TeeterError:
            # The folder is still there: this is a real error, not a removed file.
            if folder.exists():
                raise

    raise TeeterError(
        f"{folder} was removed {MAX_ATTEMPTS} times while its rows were fetched: "
        "give each process its own work folder."
    )


def fetch_shard(output: Path, source: FeatureSource | None, shard: Shard, rows: Rows) -> None:
    """Write the features of some rows of a shard.

    Args:
        output: the file to write.
        source: the head or model of the pool, if there is one.
        shard: the shard that holds the rows.
        rows: row numbers within the shard, rising.
    """
    stored = shard.take(rows)
    features = torch.from_numpy(stored)

    if source is not None:

        def describe_row(k: int) -> str:
            return shard.names(int(rows[k]))(0)

        features = source.load().features(stored, describe_row)

    write_state(output, {}, {"features": features})
