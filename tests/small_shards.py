"""A small pool in three Parquet files, its head, and picks from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from teeter.distributed.executors import LocalExecutor
from teeter.selection.from_shards import ShardSelection, select_from_shards

ROWS, WIDTH, CLASSES = 1200, 6, 4
RNG = np.random.default_rng(0)
FEATURES = RNG.standard_normal((ROWS, WIDTH)).astype(np.float32)
HEAD = {"weight": RNG.standard_normal((CLASSES, WIDTH)).astype(np.float32), "bias": np.zeros(CLASSES, np.float32)}


def lists(features: np.ndarray) -> Any:
    import pyarrow as pa

    return pa.FixedSizeListArray.from_arrays(pa.array(features.ravel()), features.shape[1])


def chosen(pool: Path | str, n: int = 30, **options: Any) -> ShardSelection:
    home = Path(pool).parent
    return select_from_shards(
        pool,
        n,
        **{
            "head": home / "head.npz",
            "executor": LocalExecutor(1),
            "work": home / "work",
            "reference": 400,
            "rays": 32,
            **options,
        },
    )
