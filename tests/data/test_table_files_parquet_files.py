"""Small Parquet files that would fill the memory are refused before they are read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from teeter.base import arrays
from teeter.data.table_files import read_parquet, require_parquet_size
from teeter.errors import FileError

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


def write_column(folder: Path, values: Any) -> Path:
    path = folder / "file.parquet"
    parquet.write_table(pyarrow.table({"column": values}), path, compression="zstd")
    return path


def repeat(value: str, count: int) -> Any:
    """Return a column of equal texts that is stored once."""
    indices = pyarrow.array([0] * count, pyarrow.int32())
    return pyarrow.DictionaryArray.from_arrays(indices, pyarrow.array([value]))


LONG_TEXT = "x" * 10_000

LARGE_COLUMNS = {
    "rows": repeat("x", 10_000),
    "long texts": repeat(LONG_TEXT, 200),
    "long bytes": pyarrow.array([LONG_TEXT.encode()] * 200),
    "lists of texts": pyarrow.array([[LONG_TEXT]] * 200),
    "maps of texts": pyarrow.array(
        [[("name", LONG_TEXT)]] * 200, pyarrow.map_(pyarrow.string(), pyarrow.string())
    ),
    "structures of texts": pyarrow.array([{"name": LONG_TEXT}] * 200),
    "values of fixed length": pyarrow.array([LONG_TEXT.encode()] * 200, pyarrow.binary(10_000)),
}
"""Columns that take 2 MB, and less than 2 kB in a file."""


@pytest.mark.parametrize("name", LARGE_COLUMNS)
def test_a_small_file_that_unpacks_to_more_than_a_limit_is_refused(
    name: str, tmp_path: Path
) -> None:
    path = write_column(tmp_path, LARGE_COLUMNS[name])
    assert path.stat().st_size < 2000

    message = "file.parquet unpacks to 2 MB in memory, but the limit is 1 MB: split it into smaller"
    with pytest.raises(FileError, match=message):
        require_parquet_size(path, 1_000_000)


def test_half_of_the_free_memory_may_be_filled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_column(tmp_path, repeat("x", 600_000))
    monkeypatch.setattr(arrays, "available_memory", lambda device: 260_000_000)
    assert len(read_parquet(path)) == 600_000

    monkeypatch.setattr(arrays, "available_memory", lambda device: 220_000_000)
    message = "unpacks to 125 MB in memory, but the limit is 110 MB, half of the free memory: split"
    with pytest.raises(FileError, match=message):
        read_parquet(path)


@pytest.mark.parametrize(
    "values",
    [
        [f"text {k}" for k in range(500)],
        list(range(500)),
        [["a", None], None] * 250,
        [{"bytes": b"x", "path": None}, None] * 250,
        [None] * 500,
    ],
)
def test_ordinary_columns_are_read(values: list[Any], tmp_path: Path) -> None:
    path = write_column(tmp_path, pyarrow.array(values))
    require_parquet_size(path, 200_000)
    assert read_parquet(path).column(0).to_pylist() == values
