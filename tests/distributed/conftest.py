from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from small_shards import FEATURES, HEAD, ROWS, lists


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    """Three files, of several row groups each, and a head."""
    pa = pytest.importorskip("pyarrow", reason="needs pyarrow")
    pq = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow")
    folder = tmp_path / "pool"
    folder.mkdir()
    for k, start in enumerate(range(0, ROWS, 500)):
        part = FEATURES[start : start + 500]
        ids = [f"item {start + i}" for i in range(len(part))]
        pq.write_table(pa.table({"id": ids, "features": lists(part)}), folder / f"{k}.parquet", row_group_size=128)
    np.savez(tmp_path / "head.npz", **HEAD)
    return folder
