"""Open Parquet files with pyarrow, which is an optional dependency."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from teeter.datasets.file_checks import parse_errors, require_unpacked_size
from teeter.errors import MissingExtraError

__all__ = ["is_list_type", "open_parquet", "read_parquet", "require_parquet_size"]

_BYTES_PER_ROW = 200
_BYTES_PER_VALUE = 8
"""What a row, and a value in it, take in memory at least. Encoded, a million may take no byte."""


def read_parquet(path: Path) -> Any:
    """Read a whole Parquet file as a ``pyarrow.Table``, if it fits in memory.

    Raises:
        MissingExtraError: if pyarrow is not installed.
        FileError: if the file cannot be read, or unpacks to more than half of the free memory.
    """
    require_parquet_size(path)
    with open_parquet(path) as file:
        return file.read()


def require_parquet_size(path: Path, limit: int | None = None) -> None:
    """Refuse a Parquet file that takes too much memory. A few hundred bytes may fill all of it.

    The footer states the size without compression. A text that is repeated is stored once even so:
    only its length and the number of its uses tell what the rows take.

    Args:
        path: the file.
        limit: the most bytes. By default half of the free memory.

    Raises:
        MissingExtraError: if pyarrow is not installed.
        FileError: if the file takes more, or is damaged.
    """
    with open_parquet(path) as file:
        metadata = file.metadata

    size = metadata.num_rows * _BYTES_PER_ROW
    text_size = 0
    text_columns = []
    for index in range(metadata.num_columns):
        column = metadata.schema.column(index)
        chunks = [
            metadata.row_group(group).column(index) for group in range(metadata.num_row_groups)
        ]
        # Values of fixed length say their length; it is 0 for all others.
        value_size = max(_BYTES_PER_VALUE, column.length)
        column_size = sum(
            max(chunk.total_uncompressed_size, chunk.num_values * value_size) for chunk in chunks
        )
        if column.physical_type == "BYTE_ARRAY":
            text_columns.append(column.path)
            text_size += column_size
        else:
            size += column_size
    require_unpacked_size(path, size + text_size, limit)

    if not text_columns:
        return
    unpacked = 0
    with open_parquet(path, dictionary_columns=text_columns) as file:
        for group in range(file.num_row_groups):
            for column in file.read_row_group(group, columns=text_columns).columns:
                unpacked += sum(_unpacked_size(chunk) for chunk in column.chunks)
            require_unpacked_size(path, size + max(text_size, unpacked), limit)


def _unpacked_size(array: Any) -> int:
    """Return the bytes of an array when each text in it is stored as often as it is used."""
    from pyarrow import compute, types

    if types.is_dictionary(array.type):
        lengths = compute.binary_length(array.dictionary).cast("int64")
        return int(compute.sum(lengths.take(array.indices)).as_py() or 0)
    if types.is_struct(array.type):
        return sum(_unpacked_size(field) for field in array.flatten())
    if types.is_map(array.type):
        return _unpacked_size(array.keys) + _unpacked_size(array.items)
    if is_list_type(array.type):
        return _unpacked_size(array.flatten())
    return int(array.nbytes)


@contextmanager
def open_parquet(path: Path, *, dictionary_columns: Sequence[str] = ()) -> Iterator[Any]:
    """Open a Parquet file as a ``pyarrow.parquet.ParquetFile`` for the length of the block.

    Args:
        path: the file.
        dictionary_columns: columns of texts that are read as dictionaries of their values.

    Raises:
        MissingExtraError: if pyarrow is not installed.
        FileError: if opening the file, or anything else in the block, fails.
    """
    try:
        from pyarrow import parquet
    except ImportError:
        raise MissingExtraError(
            "Reading Parquet needs pyarrow: pip install 'teeter[parquet]'."
        ) from None

    with (
        parse_errors(path, "Parquet file"),
        parquet.ParquetFile(path, read_dictionary=list(dictionary_columns)) as file,
    ):
        yield file


def is_list_type(arrow_type: Any) -> bool:
    """Return whether a pyarrow type is a list of any kind, or a tensor of fixed shape."""
    from pyarrow import types

    # An extension type, such as a tensor of fixed shape, wraps the type that is stored.
    arrow_type = getattr(arrow_type, "storage_type", arrow_type)
    return bool(
        types.is_list(arrow_type)
        or types.is_large_list(arrow_type)
        or types.is_fixed_size_list(arrow_type)
    )
