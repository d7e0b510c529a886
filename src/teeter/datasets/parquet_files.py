"""Open Parquet files with pyarrow, which is an optional dependency."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from teeter.datasets.file_checks import parse_errors
from teeter.errors import MissingExtraError

__all__ = ["is_list_type", "open_parquet"]


@contextmanager
def open_parquet(path: Path) -> Iterator[Any]:
    """Open a Parquet file as a ``pyarrow.parquet.ParquetFile`` for the length of the block.

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

    with parse_errors(path, "Parquet file"), parquet.ParquetFile(path) as file:
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
