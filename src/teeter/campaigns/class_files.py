"""Read the names of classes from a file: one per line, or a column of a CSV file."""

from __future__ import annotations

import csv
from pathlib import Path

from teeter.datasets.file_checks import parse_errors
from teeter.errors import FileError

__all__ = ["CLASS_FILE_SUFFIXES", "read_class_file"]

CLASS_FILE_SUFFIXES = (".txt", ".csv", ".tsv")
"""The suffixes of files that ``read_class_file`` reads."""

_NAME_COLUMNS = ("name", "class", "label")
"""What the column of the names may be called, in the order of preference."""


def read_class_file(path: Path) -> list[str]:
    """Return the class names in a file, in their order.

    A .txt file has one name per line. So may a .csv or .tsv file. If its first line names a column
    ``name``, ``class`` or ``label``, the names are in that column, and other columns, such as a
    description, are ignored. Blank lines are skipped.

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
    rows = [row for row in csv.reader(text.splitlines(), delimiter=delimiter) if any(row)]
    if not rows:
        return []

    header = [cell.strip().lower() for cell in rows[0]]
    for column_name in _NAME_COLUMNS:
        if column_name in header:
            position = header.index(column_name)
            cells = [row[position].strip() for row in rows[1:] if len(row) > position]
            return [cell for cell in cells if cell]

    if max(len(row) for row in rows) > 1:
        raise FileError(
            f"{path} has the columns {', '.join(rows[0])}: rename the column of class names to "
            "'name'."
        )
    return [row[0].strip() for row in rows]
