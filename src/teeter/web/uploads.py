"""Uploaded files: of known formats, under safe names, and not too large when unpacked."""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

from fastapi import UploadFile

from teeter.datasets.json_lines import JSONL_SUFFIXES
from teeter.datasets.table_files import TABLE_SUFFIXES
from teeter.errors import FileError, InputError

__all__ = ["save_upload"]

_SUFFIXES = (*TABLE_SUFFIXES, *JSONL_SUFFIXES)

_MAX_NAME = 80


def save_upload(file: UploadFile, folder: Path, limit: int) -> Path:
    """Write an uploaded file into a new folder inside ``folder``.

    Args:
        file: the upload. Of its name only letters, digits, dots and hyphens are used.
        folder: has one folder per upload.
        limit: the largest size in bytes, and number of cells, that a Parquet file may unpack to.
            A small file can hold a table that fills the memory.

    Returns:
        The path of the file. The caller removes its folder.

    Raises:
        InputError: the format is unknown, or the file unpacks to more than ``limit``.
        FileError: it is damaged.
    """
    name = Path(file.filename or "")
    suffix = name.suffix.lower()
    if suffix not in _SUFFIXES:
        formats = ", ".join(_SUFFIXES)
        kind = f"{suffix} files" if suffix else "a file without a suffix"
        raise InputError(f"Cannot read {kind}: upload {formats}.")

    # Separators become underscores, so that the name cannot lead out of the folder.
    safe_stem = re.sub(r"[^\w.-]", "_", name.stem)[:_MAX_NAME]
    upload_folder = Path(tempfile.mkdtemp(dir=folder))
    path = upload_folder / f"{safe_stem}{suffix}"

    try:
        with path.open("wb") as target:
            shutil.copyfileobj(file.file, target)
        if suffix == ".parquet":
            _require_unpacked_size(path, limit)
    # Also if the request is cancelled: an upload may be as large as the limit allows.
    except BaseException:
        shutil.rmtree(upload_folder, ignore_errors=True)
        raise
    return path


def _require_unpacked_size(path: Path, limit: int) -> None:
    """Raise ``InputError`` if a Parquet file says that it unpacks to too much. It is not read."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        return  # reading the file reports it

    try:
        metadata: Any = parquet.read_metadata(path)
        unpacked_bytes = _unpacked_bytes(metadata)
    except (pyarrow.ArrowException, OSError):
        raise FileError(f"{path.name} cannot be read as a Parquet file.") from None

    # Dictionary encoding stores a repeated value once, so the cells are counted too.
    cells = metadata.num_rows * metadata.num_columns
    if unpacked_bytes > limit or cells > limit:
        raise InputError(
            f"{path.name} is too large: it unpacks to {unpacked_bytes:,} bytes and {cells:,} "
            f"values, and the limit is {limit:,} for each."
        )


def _unpacked_bytes(metadata: Any) -> int:
    total = 0
    for group_index in range(metadata.num_row_groups):
        group = metadata.row_group(group_index)
        for column_index in range(group.num_columns):
            total += group.column(column_index).total_uncompressed_size
    return total
