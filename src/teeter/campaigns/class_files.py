"""Read the names of classes from a file: one per line, or a column of a CSV file."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from teeter.data.file_checks import parse_errors
from teeter.errors import FileError

__all__ = ["CLASS_FILE_SUFFIXES", "is_class_file", "name_column", "read_class_file"]

CLASS_FILE_SUFFIXES = (".txt", ".csv", ".tsv")
"""The suffixes of files that ``read_class_file`` reads."""

_NAME_COLUMNS = ("name", "class", "label")
"""What the column of the names may be called, in the order of preference."""


def is_class_file(classes: str) -> bool:
    """Return whether the value of ``--classes`` names a file rather than the classes.

    A list of two or more names has a comma, which a file's name could have too.
    """
    path = Path(classes)
    has_suffix = path.suffix.lower() in CLASS_FILE_SUFFIXES
    return has_suffix and ("," not in classes or path.is_file())


def read_class_file(path: Path) -> list[str]:
    """Return the class names in a file, in their order.

    A .txt file has one name per line. So may a .csv or .tsv file. If its first line names a column
    ``name``, ``class`` or ``label``, the names are in that column. ``descriptions`` reads other
    columns, such as a description. Blank lines are skipped.

    Raises:
        FileError: If there is no such file, if it cannot be read, or if it has several columns and
            none of them is called ``name``.
    """
    if not path.is_file():
        raise FileError(f"There is no file {path} to read the class names from.")

    with parse_errors(path, "file of class names"):
        # Spreadsheet programs write a byte order mark.
        text = path.read_text(encoding="utf-8-sig")
        names = _parse_lines(text, path)

    if not names:
        raise FileError(f"{path} has no class names: write one name per line.")
    return names


def _parse_lines(text: str, path: Path) -> list[str]:
    suffix = path.suffix.lower()
    if suffix not in (".csv", ".tsv"):
        return [line.strip() for line in text.splitlines() if line.strip()]

    delimiter = "\t" if suffix == ".tsv" else ","
    # With their line ends: a description in quotes may have several lines.
    rows = [
        row for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter) if any(row)
    ]
    if not rows:
        return []

    position = name_column([cell.strip().lower() for cell in rows[0]])
    if position is not None:
        cells = [row[position].strip() for row in rows[1:] if len(row) > position]
        return [cell for cell in cells if cell]

    if max(len(row) for row in rows) > 1:
        raise FileError(
            f"{path} has the columns {', '.join(rows[0])}: rename the column of class names to "
            "'name'."
        )
    return [row[0].strip() for row in rows]


def name_column(header: Sequence[str]) -> int | None:
    """Return the position of the column of class names, or None if it is missing.

    Args:
        header: the names of the columns in lower case.
    """
    for column_name in _NAME_COLUMNS:
        if column_name in header:
            return header.index(column_name)
    return None
