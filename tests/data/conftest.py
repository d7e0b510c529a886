from __future__ import annotations

from pathlib import Path

import pytest

from small_shards import write_pool


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    """A folder of three Parquet files, of several row groups each; a head is beside it."""
    pytest.importorskip("pyarrow", reason="needs pyarrow")
    write_pool(tmp_path)
    return tmp_path / "pool"
