"""A small pool of features in three Parquet files, its head, and picks from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from teeter.selection import Selection, select_from_shards
from teeter.selection.executors import LocalExecutor

ROWS, WIDTH, CLASSES = 1200, 6, 4
RNG = np.random.default_rng(0)
FEATURES = RNG.standard_normal((ROWS, WIDTH)).astype(np.float32)
HEAD = {
    "weight": RNG.standard_normal((CLASSES, WIDTH)).astype(np.float32),
    "bias": np.zeros(CLASSES, np.float32),
}


def as_lists(rows: np.ndarray) -> Any:
    """Return rows of any shape as a column of flat lists."""
    import pyarrow as pa

    return pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), int(np.prod(rows.shape[1:])))


def write_shards(folder: Path, rows: np.ndarray, *, rows_per_file: int) -> None:
    """Write rows and their ids into Parquet files of several row groups each."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir()
    for number, start in enumerate(range(0, len(rows), rows_per_file)):
        part = rows[start : start + rows_per_file]
        ids = [f"item {start + k}" for k in range(len(part))]
        table = pa.table({"id": ids, "features": as_lists(part)})
        pq.write_table(table, folder / f"{number}.parquet", row_group_size=128)


def write_pool(home: Path) -> None:
    """Write the pool into the folder ``pool``, and its head beside it."""
    write_shards(home / "pool", FEATURES, rows_per_file=500)
    np.savez(home / "head.npz", **HEAD)


def ldm_values(selection: Selection) -> np.ndarray:
    """Return the LDM of each pick."""
    return np.array([pick.ldm for pick in selection.picks], dtype=np.float32)


def select_rows(pool: Path | str, n: int = 30, **options: Any) -> Selection:
    """Select from a pool in this process, with the head beside the pool."""
    home = Path(pool).parent
    defaults = {
        "head": home / "head.npz",
        "executor": LocalExecutor(1),
        "work": home / "work",
        "reference": 400,
        "rays": 32,
    }

    return select_from_shards(pool, n, **{**defaults, **options})
