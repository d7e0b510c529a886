"""Files that are uploaded: of kinds that are read, under plain names, and no larger inside than outside."""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

from fastapi import UploadFile

from teeter.campaigns.import_export import JSONL_SUFFIXES
from teeter.datasets.table_files import TABLE_SUFFIXES
from teeter.errors import FileError, InputError

__all__ = ["save_upload"]

_KINDS = (*TABLE_SUFFIXES, *JSONL_SUFFIXES)


def save_upload(file: UploadFile, folder: Path, limit: int) -> Path:
    """Write an uploaded file into a folder of its own inside ``folder``, and return where it is.

    A Parquet file that says it would unpack to more than ``limit`` bytes, or cells, is refused before it is read.
    """
    ending = Path(file.filename or "").suffix.lower()
    if ending not in _KINDS:
        raise InputError(f"{ending or 'A file without ending'} is none of {', '.join(_KINDS)}.")
    plain = re.sub(r"[^\w.-]", "_", Path(file.filename or "").stem)[:80]
    own = Path(tempfile.mkdtemp(dir=folder))
    path = own / f"{plain}{ending}"
    try:
        with path.open("wb") as out:
            shutil.copyfileobj(file.file, out)
        if ending == ".parquet":
            _require_modest(path, limit)
    except BaseException:
        shutil.rmtree(own, ignore_errors=True)
        raise
    return path


def _require_modest(path: Path, limit: int) -> None:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        return  # that it is missing is told where the file is read
    try:
        told: Any = parquet.read_metadata(path)
        groups = [told.row_group(k) for k in range(told.num_row_groups)]
        size = sum(
            group.column(k).total_uncompressed_size
            for group in groups
            for k in range(group.num_columns)
        )
    except (pyarrow.ArrowException, OSError):
        raise FileError(f"{path.name} is not a Parquet file that can be read.") from None
    if size > limit or told.num_rows * told.num_columns > limit:
        raise InputError(
            f"{path.name} unpacks to {size:,} bytes, in {told.num_rows:,} rows: {limit:,} is what this server takes."
        )
