"""Tables from CSV and Parquet files: named columns, each an array."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO, TypeAlias

import numpy as np
import numpy.typing as npt

from teeter.datasets.file_checks import parse_errors, require_file
from teeter.errors import FileError, InputError, MissingExtraError, UnknownNameError
from teeter.registry import did_you_mean

__all__ = ["TABLES", "Column", "Table", "is_missing", "read_table", "require_ids"]

TABLES = (".csv", ".tsv", ".txt", ".parquet")
"""The suffixes of tables."""

MISSING = frozenset({"", "na", "nan", "null", "none", "n/a"})

_LONGEST_CELL = 1 << 30
_DECIMAL_COMMA = re.compile(r"[+-]?[0-9]+(,[0-9]+)?([eE][+-]?[0-9]+)?")

Column: TypeAlias = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Table:
    """The columns of a file: (N,) texts as they stand in it, (N,) numbers, or (N, K) numbers from lists."""

    path: Path
    columns: dict[str, Column]
    nested: tuple[str, ...] = ()
    """Columns of other lists and of structures, which are not read."""

    def __len__(self) -> int:
        """Return N."""
        return len(next(iter(self.columns.values())))

    def require(self, name: str) -> None:
        """Refuse a name that no column has."""
        known = [*self.columns, *self.nested]
        if name not in known:
            raise UnknownNameError(
                f"No column of {self.path} is called {name!r}. {did_you_mean(name, known)}"
            )

    def texts(self, name: str) -> list[str]:
        """Return a column as texts, whole numbers without a point, and '' for a number that is missing."""
        column = self.columns[name]
        if column.dtype.kind != "f":
            return [str(value) for value in column.tolist()]
        return ["" if value != value else _number_text(value) for value in column.tolist()]

    def ids(self, name: str) -> list[str]:
        """Return a column of ids, refusing blanks and duplicates."""
        self.require(name)
        if name in self.nested or self.columns[name].ndim > 1:
            raise InputError(
                f"Column {name!r} of {self.path} holds lists: an id is a text or a number."
            )
        return require_ids(self.texts(name), f"column {name!r} of {self.path}")


def is_missing(text: str) -> bool:
    """Tell whether a cell stands for a missing value: blank, NA, N/A, NaN, null or None."""
    return text.strip().lower() in MISSING


def require_ids(ids: list[str], where: str) -> list[str]:
    """Return the ids if every row has one of its own."""
    seen: dict[str, int] = {}
    for row, text in enumerate(ids):
        if not text.strip():
            raise InputError(f"The id of row {row} in {where} is blank: every row needs one.")
        if seen.setdefault(text, row) != row:
            raise InputError(
                f"The id {text!r} in {where} stands in rows {seen[text]} and {row}: ids must differ."
            )
    return ids


def read_table(path: str | Path) -> Table:
    """Return the table in a CSV file (comma, semicolon or tab) or a Parquet file."""
    path = require_file(path, TABLES, "a table")
    table = _read_parquet(path) if path.suffix.lower() == ".parquet" else _read_csv(path)
    if not table.columns:
        raise FileError(
            f"No column of {path} can be read: {', '.join(table.nested)} hold structures, or lists with gaps or of "
            "different lengths."
        )
    return table


def _read_csv(path: Path) -> Table:
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            names, rows, delimiter = _records(stream, path)
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise FileError(
            f"{path} is not UTF-8 text (it holds the byte 0x{byte:02x}): save it as UTF-8."
        ) from None
    except OSError as error:
        raise FileError(f"Cannot read {path}: {error.strerror}.") from None
    _require_names(names, path)
    if not rows:
        raise FileError(f"{path} has a header of {len(names)} columns and no rows.")
    columns = dict(zip(names, zip(*rows, strict=True), strict=True))
    pointed = _with_points if delimiter == ";" else list
    return Table(
        path, {name: _objects(pointed(values)) for name, values in columns.items() if name}
    )


def _with_points(values: Sequence[str]) -> Sequence[str]:
    """Return a column with decimal points for commas, if all of it are numbers then; for files parted by semicolons."""
    numbers = [value.strip() for value in values if not is_missing(value)]
    if not any("," in number for number in numbers) or not all(
        map(_DECIMAL_COMMA.fullmatch, numbers)
    ):
        return values
    return [value.replace(",", ".") for value in values]


def _records(stream: TextIO, path: Path) -> tuple[list[str], list[list[str]], str]:
    csv.field_size_limit(_LONGEST_CELL)
    header = next((line for line in stream if line.strip()), "")
    stream.seek(0)
    delimiter = _delimiter(header)
    reader = csv.reader(stream, delimiter=delimiter, strict=True)
    rows: list[list[str]] = []
    try:
        names = next((fields for fields in reader if fields), [])
        for fields in reader:
            if len(fields) == len(names):
                rows.append(fields)
            elif fields:
                raise FileError(
                    f"Line {reader.line_num} of {path} has {len(fields)} fields and the header has {len(names)}: "
                    "they must agree."
                )
    except csv.Error as error:
        raise FileError(
            f"Line {reader.line_num} of {path} cannot be read ({error}): check its quotes."
        ) from None
    return [name.strip() for name in names], rows, delimiter


def _delimiter(header: str) -> str:
    bare = re.sub(r'"[^"]*"', "", header)
    return max(",;\t", key=bare.count)


def _require_names(names: Sequence[str], path: Path) -> None:
    if not any(names):
        raise FileError(f"{path} has no header: its first line must name the columns.")
    twice = next((name for name, count in Counter(names).items() if name and count > 1), None)
    if twice is not None:
        raise FileError(
            f"{path} has {names.count(twice)} columns called {twice!r}: names must differ."
        )


def _objects(values: Iterable[object]) -> Column:
    values = list(values)
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column


def _read_parquet(path: Path) -> Table:
    try:
        from pyarrow import parquet
    except ImportError:
        raise MissingExtraError(
            "Reading Parquet needs pyarrow: pip install 'teeter[parquet]'."
        ) from None
    with parse_errors(path, "Parquet"), parquet.ParquetFile(path) as file:
        table = file.read()
        _require_names(table.column_names, path)
        if not table.num_rows:
            raise FileError(f"{path} has {table.num_columns} columns and no rows.")
        names = [name for name in table.column_names if not name.startswith("__index_level_")]
        arrays = {name: _column_of(table.column(name)) for name in names}
    columns = {name: array for name, array in arrays.items() if array is not None}
    return Table(path, columns, tuple(name for name, array in arrays.items() if array is None))


def _column_of(column: Any) -> Column | None:
    """Return a pyarrow column as an array, or None for one that is nested."""
    from pyarrow import types

    kind = column.type
    if types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if types.is_decimal(kind):
        column = column.cast("float64")
    elif types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return _vectors_of(column)
    elif types.is_nested(kind):
        return None
    elif not (types.is_integer(kind) or types.is_floating(kind)):
        return _objects(column.cast("string").fill_null("").to_pylist())
    numbers: Column = column.to_numpy()
    return numbers


def _vectors_of(column: Any) -> Column | None:
    """Return a column of lists as (N, K) numbers, or None where their lengths differ or they hold no numbers."""
    from pyarrow import compute, types

    kind = column.type.value_type
    if column.null_count or not (types.is_integer(kind) or types.is_floating(kind)):
        return None
    lengths = compute.min_max(compute.list_value_length(column)).as_py()
    if lengths["min"] != lengths["max"] or not lengths["max"]:
        return None
    values: Column = compute.list_flatten(column).to_numpy()
    return values.reshape(len(column), -1)


def _number_text(value: float) -> str:
    return str(int(value)) if value.is_integer() else repr(value)
