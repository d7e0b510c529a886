"""Small Parquet files that would fill the memory are refused before they are read."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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


@contextmanager
def peak_of_pyarrow() -> Iterator[Callable[[], int]]:
    """Count what pyarrow allocates in the block. The function yielded returns the most so far."""
    default = pyarrow.default_memory_pool()
    pool = pyarrow.proxy_memory_pool(default)
    pyarrow.set_memory_pool(pool)
    try:
        yield pool.max_memory
    finally:
        pyarrow.set_memory_pool(default)


DELTA_ENCODINGS = ("DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY")


def write_encoded(
    folder: Path, values: Any, encoding: str, name: str = "column", **options: Any
) -> Path:
    path = folder / "file.parquet"
    table = pyarrow.table({"column": values})
    encodings = {name: encoding}
    parquet.write_table(
        table, path, compression="zstd", use_dictionary=False, column_encoding=encodings, **options
    )
    return path


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("encoding", DELTA_ENCODINGS)
def test_texts_encoded_by_their_differences_are_read(
    encoding: str, version: str, tmp_path: Path
) -> None:
    values = [f"text {k}" for k in range(20_000)]
    path = write_encoded(
        tmp_path,
        values,
        encoding,
        data_page_version=version,
        data_page_size=5000,
        row_group_size=7000,
    )
    require_parquet_size(path, 5_000_000)
    assert read_parquet(path).column(0).to_pylist() == values


def test_lists_of_texts_encoded_by_their_differences_are_read(tmp_path: Path) -> None:
    values = [["a", "ab"], ["abc"], None]
    name = "column.list.element"
    path = write_encoded(tmp_path, pyarrow.array(values), "DELTA_BYTE_ARRAY", name)
    assert read_parquet(path).column(0).to_pylist() == values


def test_one_column_may_have_a_dictionary_and_another_differences(tmp_path: Path) -> None:
    path = tmp_path / "file.parquet"
    table = pyarrow.table({"a": ["x", "y", "x"], "b": ["x", "xy", "xyz"]})
    encodings = {"b": "DELTA_BYTE_ARRAY"}
    parquet.write_table(table, path, use_dictionary=["a"], column_encoding=encodings)
    require_parquet_size(path, 100_000)
    assert read_parquet(path) == table


@pytest.mark.parametrize(
    "name", ["column", pytest.param("column.list.element", marks=pytest.mark.slow)]
)
def test_equal_texts_encoded_by_their_differences_are_refused_in_little_memory(
    name: str, tmp_path: Path
) -> None:
    text = "x" * 1_000_000
    values = pyarrow.array([text] * 300)
    if name != "column":
        values = pyarrow.array([[text] * 300])
    path = write_encoded(tmp_path, values, "DELTA_BYTE_ARRAY", name, write_statistics=False)
    assert path.stat().st_size < 2000

    message = "unpacks to [0-9]+ MB in memory, but the limit is 10 MB"
    with peak_of_pyarrow() as peak, pytest.raises(FileError, match=message):
        require_parquet_size(path, 10_000_000)
    assert peak() < 150_000_000


def test_a_footer_that_states_too_small_a_size_is_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "file.parquet"
    values = pyarrow.array(["a" * 50_000_000])
    table = pyarrow.table({"column": values})
    parquet.write_table(
        table, path, compression="zstd", use_dictionary=False, write_statistics=False
    )
    size = parquet.read_metadata(path).row_group(0).column(0).total_uncompressed_size
    patch_footer(path, size, 1000)
    assert parquet.read_metadata(path).row_group(0).column(0).total_uncompressed_size == 1000

    message = "unpacks to 50 MB in memory, but the limit is 1 MB"
    with peak_of_pyarrow() as peak, pytest.raises(FileError, match=message):
        require_parquet_size(path, 1_000_000)
    assert peak() < 1_000_000


def patch_footer(path: Path, old: int, new: int) -> None:
    """Replace a number in the footer of a file, with as many bytes."""
    content = path.read_bytes()
    (length,) = struct.unpack("<I", content[-8:-4])
    footer = content[-8 - length : -8]

    old_bytes = encode_number(old)
    new_bytes = bytearray(encode_number(new, len(old_bytes)))
    assert old_bytes in footer
    patched = footer.replace(old_bytes, bytes(new_bytes))
    path.write_bytes(content[: -8 - length] + patched + content[-8:])


def encode_number(number: int, length: int = 0) -> bytes:
    """Return a number as Thrift's compact protocol writes it, in at least ``length`` bytes."""
    number <<= 1
    groups = []
    while number or len(groups) < length or not groups:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    groups[-1] &= 0x7F
    return bytes(groups)
