"""Read the sheets of spreadsheets: .xlsx, .xls and .ods.

A sheet is read by a process of its own. A file of one kilobyte may have a cell in the last row and
column, for which the library would take all memory, or end the process that asked for it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, time
from pathlib import Path
from typing import Any

from teeter.base.files import parse_errors, require_unpacked_size
from teeter.base.registry import did_you_mean
from teeter.errors import FileError, MissingExtraError, UnknownNameError

__all__ = [
    "WORKBOOK_SUFFIXES",
    "Sheet",
    "format_number",
    "format_sheet_cell",
    "open_sheet",
    "require_workbook_size",
    "split_sheet",
]

WORKBOOK_SUFFIXES = (".xlsx", ".xls", ".ods")
"""The suffixes of spreadsheets."""

_SHEET_NAME = re.compile(r"(.+?\.(?:xlsx|xls|ods))#(.+)", re.IGNORECASE | re.DOTALL)

_SMALLEST_CELL = 100
"""What a cell of a spreadsheet takes in memory at least."""

_READER_MEMORY = 1_000_000_000
_READER_EXPANSION = 10
"""The memory of the process that reads a sheet: this, and so often what the file unpacks to."""

_READER = "from teeter.data.workbooks import _print_sheet; _print_sheet()"


def split_sheet(path: Path) -> tuple[Path, str | None]:
    """Return the file and the sheet that ``book.xlsx#Sheet`` names; no sheet for another path.

    Example:
        >>> split_sheet(Path("book.xlsx#May"))
        (PosixPath('book.xlsx'), 'May')
    """
    named = _SHEET_NAME.fullmatch(str(path))
    # Unlike path.exists(), this has an answer for a name that is too long.
    if named is None or os.path.exists(path):
        return path, None
    return Path(named[1]), named[2]


def require_workbook_size(path: Path, limit: int | None = None) -> int:
    """Return the bytes that a spreadsheet unpacks to. All but .xls are archives.

    Args:
        path: the file.
        limit: the most bytes. By default half of the free memory.

    Raises:
        FileError: if the file unpacks to more, or is damaged.
    """
    with parse_errors(path, "spreadsheet"):
        size = path.stat().st_size
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                size = sum(part.file_size for part in archive.infolist())
            require_unpacked_size(path, size, limit)
    return size


@dataclass(frozen=True)
class Sheet:
    """A sheet of a spreadsheet."""

    name: str
    others: tuple[str, ...]
    """The names of the other sheets with cells."""
    rows: Iterator[list[str]]
    """The cells of each row, from the first one, as a CSV file would hold them."""
    merged_rows: frozenset[int]
    """The rows, from 0, that have cells over several columns. Unknown in .ods files."""


@contextmanager
def open_sheet(path: Path, name: str | None = None) -> Iterator[Sheet]:
    """Open a sheet of a spreadsheet for the length of the block: by default the first with cells.

    Raises:
        FileError: if the file cannot be read, takes too much memory or has no cells.
        MissingExtraError: if python-calamine is not installed.
        UnknownNameError: if there is no sheet of this name.
    """
    try:
        import python_calamine  # noqa: F401
    except ImportError:
        raise MissingExtraError(
            "Reading spreadsheets needs python-calamine: pip install 'teeter[label]'."
        ) from None

    memory = _READER_MEMORY + _READER_EXPANSION * require_workbook_size(path)
    with (
        parse_errors(path, "spreadsheet"),
        subprocess.Popen(
            [sys.executable, "-c", _READER, str(path), name or "", str(memory)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        ) as reader,
    ):
        try:
            messages = _read_messages(reader, path)
            names, filled = next(messages)
            if name is not None and name not in names:
                raise UnknownNameError(f"{path} has no sheet {name!r}. {did_you_mean(name, names)}")
            chosen = name or "".join(filled[:1])
            if chosen not in filled:
                raise FileError(
                    f"{path} has no cells: its formulas may never have been calculated."
                )
            cells, merged = next(messages)
            require_unpacked_size(path, cells * _SMALLEST_CELL)
            others = tuple(other for other in filled if other != chosen)
            yield Sheet(chosen, others, messages, frozenset(merged))
        finally:
            reader.kill()


def _read_messages(reader: subprocess.Popen[bytes], path: Path) -> Iterator[Any]:
    """Yield what ``_print_sheet`` prints: the sheets, the size of the chosen one, and its rows."""
    assert reader.stdout is not None
    for line in reader.stdout:
        message = json.loads(line)
        if message == "protected":
            raise FileError(f"{path} is protected by a password: save it without one.")
        yield message

    status = reader.wait()
    # A signal, by which a process ends that gets no memory.
    if status < 0:
        raise MemoryError
    if status:
        raise ValueError("The sheet cannot be read.")


def _print_sheet() -> None:
    """Print a sheet as lines of JSON. The arguments are the file, the sheet and the memory."""
    path, name, memory = sys.argv[1:]
    try:
        import resource

        limit = int(memory)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    except (ImportError, ValueError, OSError):
        pass  # Windows has no such limit, and macOS may refuse it.

    from python_calamine import CalamineWorkbook, PasswordError

    def print_message(message: Any) -> None:
        sys.stdout.write(json.dumps(message) + "\n")

    try:
        workbook = CalamineWorkbook.from_path(path)
    except PasswordError:
        print_message("protected")
        return
    names = workbook.sheet_names
    filled = []
    for sheet_name in names:
        sheet = workbook.get_sheet_by_name(sheet_name)
        if sheet.height > 0:
            filled.append(sheet_name)
    print_message([names, filled])
    chosen = name or "".join(filled[:1])
    if chosen not in filled:
        return

    sheet = workbook.get_sheet_by_name(chosen)
    ranges = sheet.merged_cell_ranges or []
    merged = set()
    for (first_row, first_column), (_, last_column) in ranges:
        if last_column > first_column:
            merged.add(first_row)
    print_message([sheet.total_height * sheet.total_width, sorted(merged)])
    for cells in sheet.iter_rows():
        print_message([format_sheet_cell(cell) for cell in cells])


def format_sheet_cell(value: Any) -> str:
    """Return a cell as a CSV file would hold it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return format_number(value)
    if isinstance(value, date | time):  # and datetimes, which are dates
        return value.isoformat()
    return str(value)


def format_number(value: float) -> str:
    """Return a number as a text, an integer without ``.0`` and a missing one as an empty text."""
    if value != value:  # NaN: the cell is missing.
        return ""

    # pandas turns a column of whole numbers into floats if one is missing: 7.0 was 7.
    if value.is_integer():
        return str(int(value))
    return repr(value)
