"""The columns of the tables that items came from: their types, and how their cells are stored.

A row of a table is stored as one JSON array, with a cell for each column in the order of the table.
The names and types stand once per table. A cell holds the value as the file had it:

* Cells of a CSV file are texts, whatever their column's type, so that ``007`` and ``1.50`` come
  back as they were. The type says what they stand for in formats that have types.
* Cells of a JSONL file are the values themselves. A field that a line does not have is ``{}``, and
  an object is wrapped as ``{"value": ...}``, so that the two differ.
* Cells of a Parquet file are numbers, texts, lists and objects. What JSON lacks is a text: times
  are in ISO 8601, decimals in digits and bytes in base64 (``arrow_columns`` has the details).

JSON escapes NUL characters and lone surrogates, so every text can be stored in every database.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import StrEnum
from pathlib import PurePath
from typing import Any

import numpy as np

from teeter.errors import InputError, UnknownNameError
from teeter.registry import did_you_mean

__all__ = [
    "ABSENT",
    "ColumnFilter",
    "ColumnType",
    "ImportedTable",
    "TableColumn",
    "TableRow",
    "csv_column_type",
    "decode_cells",
    "encode_cells",
    "format_cell",
    "json_value",
    "merge_columns",
    "normalize_cell",
    "parse_column_filter",
    "replace_surrogates",
    "require_columns",
    "rows_from_mappings",
    "typed_value",
]

ABSENT: dict[str, Any] = {}
"""The cell of a JSONL line that does not have the field."""

_WRAPPER = "value"

_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIMESTAMP = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?"
)
_BOOLEANS = {"true": True, "false": False}

_INT64 = range(-(2**63), 2**63)


class ColumnType(StrEnum):
    """What the cells of a column stand for."""

    TEXT = "text"
    INTEGER = "integer"
    NUMBER = "number"
    DECIMAL = "decimal"
    BOOLEAN = "boolean"
    DATE = "date"
    TIMESTAMP = "timestamp"
    BINARY = "binary"
    JSON = "json"
    """Lists, objects, or values of several types."""


@dataclass(frozen=True)
class TableColumn:
    """A column of a table."""

    name: str
    type: ColumnType = ColumnType.TEXT


@dataclass(frozen=True, eq=False)
class ImportedTable:
    """The names, order and types of the columns of a table that items came from."""

    columns: tuple[TableColumn, ...]
    arrow_schema: bytes | None = None
    """The schema of a Parquet file, serialized by pyarrow. An export has exactly its types."""
    id_column: str | None = None
    """The column that the item ids come from, if they come from one."""

    @property
    def names(self) -> list[str]:
        """The names of the columns, in their order."""
        return [column.name for column in self.columns]


@dataclass(frozen=True, eq=False)
class TableRow:
    """A row of a table, as a database stores it."""

    table: ImportedTable
    cells: str
    """JSON; see ``encode_cells``."""


@dataclass(frozen=True)
class ColumnFilter:
    """A column, and the text that its cell must be equal to."""

    column: str
    value: str


def parse_column_filter(text: str) -> ColumnFilter:
    """Return the filter that ``COLUMN=VALUE`` stands for.

    Raises:
        InputError: If there is no ``=``, or nothing before it.

    Example:
        >>> parse_column_filter("customer=ACME")
        ColumnFilter(column='customer', value='ACME')
    """
    column, separator, value = text.partition("=")
    if not column or not separator:
        raise InputError(f"{text[:80]!r} is not a filter: write COLUMN=VALUE.")

    return ColumnFilter(column, value)


def require_columns(names: Iterable[str], columns: Iterable[str]) -> None:
    """Raise UnknownNameError if one of ``names`` is none of ``columns``."""
    column_names = list(columns)
    for name in names:
        if name not in column_names:
            hint = did_you_mean(name, column_names)
            raise UnknownNameError(f"No column is called {name!r}. {hint}")


# Storing cells


def encode_cells(cells: Sequence[Any]) -> str:
    """Return a row as it is stored.

    Args:
        cells: A JSON value for each column, or ``ABSENT``.

    Example:
        >>> encode_cells(["ACME", 12.5, {"zip": "1010"}, ABSENT])
        '["ACME",12.5,{"value":{"zip":"1010"}},{}]'
    """
    wrapped = []
    for cell in cells:
        is_object = isinstance(cell, Mapping) and cell is not ABSENT
        wrapped.append({_WRAPPER: cell} if is_object else cell)

    text = json.dumps(wrapped, ensure_ascii=False, separators=(",", ":"))
    try:
        text.encode()
    except UnicodeEncodeError:
        # UTF-8 has no lone surrogates. JSON can write them, at the price of longer texts.
        text = json.dumps(wrapped, separators=(",", ":"))

    return text


def decode_cells(text: str) -> list[Any]:
    """Return the cells of a stored row. ``ABSENT`` stands for a field that a line did not have.

    Example:
        >>> decode_cells('["ACME",12.5,{"value":{"zip":"1010"}},{}]')
        ['ACME', 12.5, {'zip': '1010'}, {}]
    """
    cells: list[Any] = []
    for cell in json.loads(text):
        if not isinstance(cell, dict):
            cells.append(cell)
        elif _WRAPPER in cell:
            cells.append(cell[_WRAPPER])
        else:
            cells.append(ABSENT)

    return cells


def normalize_cell(value: Any, column: str) -> tuple[Any, ColumnType | None]:
    """Return a Python value as a JSON value, and its type.

    Args:
        value: What a user passed.
        column: The name of the column, for the error message.

    Returns:
        The value, and None as the type of None, which fits every column.

    Raises:
        InputError: If the value cannot be stored.
    """
    if isinstance(value, np.generic):
        value = value.item()

    if value is None:
        return None, None
    if isinstance(value, bool):
        return value, ColumnType.BOOLEAN
    if isinstance(value, int):
        # Larger integers are stored as they are, but no table has a type for them.
        return value, ColumnType.INTEGER if value in _INT64 else ColumnType.JSON
    if isinstance(value, float):
        return value, ColumnType.NUMBER
    if isinstance(value, str):
        return str(value), ColumnType.TEXT
    if isinstance(value, datetime):
        return value.isoformat(), ColumnType.TIMESTAMP
    if isinstance(value, date):
        return value.isoformat(), ColumnType.DATE
    if isinstance(value, time | timedelta | PurePath):
        return str(value), ColumnType.TEXT
    if isinstance(value, Decimal):
        return str(value), ColumnType.DECIMAL
    if isinstance(value, bytes):
        return base64.b64encode(value).decode(), ColumnType.BINARY

    if isinstance(value, Mapping):
        fields = {str(name): normalize_cell(part, column)[0] for name, part in value.items()}
        return fields, ColumnType.JSON
    if isinstance(value, list | tuple | np.ndarray):
        return [normalize_cell(part, column)[0] for part in value], ColumnType.JSON

    raise InputError(
        f"The column {column!r} has a value of type {type(value).__name__}, which cannot be "
        "stored: use a string, a number, a date, a list or a dict."
    )


def rows_from_mappings(
    mappings: Sequence[Mapping[str, Any]], id_column: str | None = None
) -> list[TableRow]:
    """Return mappings as the rows of one table, whose columns are in the order of first sight.

    Args:
        mappings: The values of each row by column.
        id_column: The column of the item ids, if there is one.

    Raises:
        InputError: If a value cannot be stored.

    Example:
        >>> rows = rows_from_mappings([{"a": 1}, {"b": "x"}])
        >>> rows[0].table.names, [row.cells for row in rows]
        (['a', 'b'], ['[1,{}]', '[{},"x"]'])
    """
    names = list(dict.fromkeys(name for mapping in mappings for name in mapping))
    types: dict[str, set[ColumnType]] = {name: set() for name in names}

    cells_by_row = []
    for mapping in mappings:
        cells: list[Any] = []
        for name in names:
            value = ABSENT
            if name in mapping:
                value, value_type = normalize_cell(mapping[name], name)
                if value_type is not None:
                    types[name].add(value_type)
            cells.append(value)
        cells_by_row.append(encode_cells(cells))

    columns = [TableColumn(name, _common_type(types[name])) for name in names]
    table = ImportedTable(tuple(columns), id_column=id_column)
    return [TableRow(table, cells) for cells in cells_by_row]


# Types


def csv_column_type(cells: Iterable[str]) -> ColumnType:
    """Return what the cells of a CSV column stand for. Empty cells are missing values.

    Example:
        >>> csv_column_type(["1", "", "20"]), csv_column_type(["007"])
        (<ColumnType.INTEGER: 'integer'>, <ColumnType.NUMBER: 'number'>)
    """
    filled = [cell for cell in cells if cell]
    if not filled:
        return ColumnType.TEXT

    if all(_INTEGER.fullmatch(cell) for cell in filled):
        return ColumnType.INTEGER
    if all(_NUMBER.fullmatch(cell) for cell in filled):
        return ColumnType.NUMBER
    if all(cell.lower() in _BOOLEANS for cell in filled):
        return ColumnType.BOOLEAN
    if all(_DATE.fullmatch(cell) and _is_time(cell) for cell in filled):
        return ColumnType.DATE
    if all(_TIMESTAMP.fullmatch(cell) and _is_time(cell) for cell in filled):
        return ColumnType.TIMESTAMP

    return ColumnType.TEXT


def _is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _common_type(types: Collection[ColumnType]) -> ColumnType:
    """Return the type that values of several types have together."""
    if not types:
        return ColumnType.TEXT
    if len(set(types)) == 1:
        return next(iter(types))
    if set(types) == {ColumnType.INTEGER, ColumnType.NUMBER}:
        return ColumnType.NUMBER

    return ColumnType.JSON


def merge_columns(tables: Sequence[ImportedTable]) -> list[TableColumn]:
    """Return the columns of several tables: those of the first one, then what the others add.

    A column whose types differ becomes one of JSON values, but integers and numbers are numbers.
    """
    types: dict[str, list[ColumnType]] = {}
    for table in tables:
        for column in table.columns:
            types.setdefault(column.name, []).append(column.type)

    return [TableColumn(name, _common_type(column_types)) for name, column_types in types.items()]


# Reading cells


def typed_value(cell: Any, column_type: ColumnType) -> Any:
    """Return the value that a cell stands for: the text of a CSV file as a number, if it is one.

    Example:
        >>> typed_value("1.50", ColumnType.NUMBER), typed_value("", ColumnType.INTEGER)
        (1.5, None)
    """
    if cell is ABSENT:
        return None
    if not isinstance(cell, str) or column_type is ColumnType.TEXT:
        return cell

    is_json = column_type is ColumnType.JSON
    if not cell and not is_json:
        return None
    if column_type is ColumnType.INTEGER:
        return int(cell)
    if column_type is ColumnType.NUMBER:
        return float(cell)
    if column_type is ColumnType.BOOLEAN:
        return _BOOLEANS[cell.lower()]

    return cell


def json_value(cell: Any, column_type: ColumnType) -> Any:
    """Return a cell for a JSON file, in which a number that is not finite is missing."""
    return _drop_infinite(typed_value(cell, column_type))


def _drop_infinite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, list):
        return [_drop_infinite(part) for part in value]
    if isinstance(value, dict):
        return {name: _drop_infinite(part) for name, part in value.items()}
    return value


def replace_surrogates(value: Any) -> Any:
    """Return a JSON value that UTF-8 can encode: with ``?`` instead of lone surrogates."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, list):
        return [replace_surrogates(part) for part in value]
    if isinstance(value, dict):
        return {replace_surrogates(name): replace_surrogates(part) for name, part in value.items()}
    return value


def format_cell(cell: Any) -> str:
    """Return a cell as a CSV file has it, and as people read it.

    Example:
        >>> format_cell(None), format_cell(True), format_cell(["a", 1]), format_cell("1.50")
        ('', 'true', '["a", 1]', '1.50')
    """
    if cell is None or cell is ABSENT:
        return ""
    if isinstance(cell, str):
        return cell
    # A number that is missing in a table is a NaN.
    if isinstance(cell, float) and math.isnan(cell):
        return ""

    return json.dumps(cell, ensure_ascii=False)
