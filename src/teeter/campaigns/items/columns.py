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
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from teeter.base.registry import require_known
from teeter.campaigns.records import ColumnType, TableColumn
from teeter.data.table_columns import ADDED_PREFIX
from teeter.data.table_files import is_number
from teeter.errors import InputError

if TYPE_CHECKING:
    from teeter.campaigns.items.item import Item
    from teeter.campaigns.store import Reading


MAX_SHOWN_CELL = 4_000
"""Characters of a cell that are shown. Long texts belong into the text of the item."""


class _Absence(Enum):
    """The type of ``ABSENT``. An enum member, so that no value of a file is equal to it."""

    ABSENT = "absent"

    def __repr__(self) -> str:
        return self.name


ABSENT: Final = _Absence.ABSENT
"""The cell of a JSONL line that does not have the field."""

_WRAPPER = "value"

MAX_DEPTH = 100
"""How deep lists and objects of a cell may be nested. Python itself stops below a thousand."""

_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,14}")
"""An integer. Longer ones, and those with a zero or plus before them, are names made of digits."""

_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")

_TIMESTAMP = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?"
)

_BOOLEANS = {"true": True, "false": False}

_INT64 = range(-(2**63), 2**63)

_EXACT_FLOATS = range(-(2**53), 2**53 + 1)
"""The integers that are all floats, too."""

_FRACTION_DIGITS = re.compile(r"\.[0-9]{6}[0-9]*[1-9]")
"""A time with digits that microseconds do not have."""


_PARSED_TYPES = frozenset(
    {
        ColumnType.INTEGER,
        ColumnType.NUMBER,
        ColumnType.BOOLEAN,
        ColumnType.DATE,
        ColumnType.TIMESTAMP,
    }
)
"""The types that a CSV file has as texts. An empty one is a missing value."""


LIMITED_TYPES = frozenset(
    {ColumnType.INTEGER, ColumnType.NUMBER, ColumnType.DATE, ColumnType.TIMESTAMP}
)
"""The types that do not hold every value. See ``fits_type``."""


ADDED_COLUMNS = {
    "id": "the id of the item, if it came with one that no column of yours has",
    "text": "what annotators read (image: the path of the image), if no column of yours has it",
    "label": "the label that annotators agreed on, a reviewer decided or a certified model gives",
    "source": "where the label comes from: a person, the consensus of several, an answer about a "
    "near copy, or a model under a certificate; or why there is none: left_out (flagged "
    "or withdrawn) or unreadable",
    "confidence": "the calibrated probability of the predicted class",
    "predicted": "the class that the newest model predicts",
    "who": "who gave the label: annotators, import (it came with the item), a reviewer or a model",
    "when": "when the label was given last, in UTC",
    "item": "the id of the item on the page and in Python, one for all rows with the same text",
    "answers": "what each annotator answered, in JSON",
    "annotators": "how many annotators answered",
    "agreement": "the share of annotators who gave the label, or its probability",
    "decided_by": "the reviewer who decided",
    "left_out": "whether the item was flagged or withdrawn",
    "certificate": "the id of the certificate, for a label from a model",
}
"""The columns that an export adds to those of a table, and what they mean."""

SHORT_COLUMNS = tuple(ADDED_COLUMNS)[:8]
"""Those of CSV files, spreadsheets and data frames: the id and the text, which few tables need, and
six that people read. The others are for programs.
"""


def find_added_columns(names: Iterable[str]) -> dict[str, str]:
    """Return the columns of a file that an export has added, by what they mean.

    A file has them if it has all six that people read. Those only for programs must be complete
    too: a table may well have a column ``answers`` of its own. The id and the text that an export
    adds are as good as columns of the user.

    Example:
        >>> list(find_added_columns("text when who label predicted source confidence".split()))
        ['label', 'source', 'confidence', 'predicted', 'who', 'when']
        >>> find_added_columns(["text", "label"])
        {}
    """
    # Of two with the same meaning, an export has added the one with more prefixes.
    added: dict[str, str] = {}
    for name in sorted(names, key=len):
        column = name
        while column.startswith(ADDED_PREFIX):
            column = column.removeprefix(ADDED_PREFIX)
        added[column] = name

    read_by_people = SHORT_COLUMNS[2:]
    for expected in (tuple(ADDED_COLUMNS)[2:], read_by_people):
        if all(column in added for column in expected):
            return {column: added[column] for column in expected}
    return {}


@dataclass(frozen=True, eq=False)
class ImportedTable:
    """The names, order and types of the columns of a table that items came from."""

    columns: tuple[TableColumn, ...]
    arrow_schema: bytes | None = None
    """The schema of a Parquet file, serialized by pyarrow. An export has exactly its types."""
    id_column: str | None = None
    """The column that the item ids come from, if they come from one."""
    text_column: str | None = None
    """The column whose cells are the texts of the items, if one column alone has them."""

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


def parse_column_filter(text: str) -> tuple[str, str]:
    """Return the column and the value that ``COLUMN=VALUE`` stands for.

    Raises:
        InputError: If there is no ``=``, or nothing before it.

    Example:
        >>> parse_column_filter("customer=ACME")
        ('customer', 'ACME')
    """
    column, separator, value = text.partition("=")
    if not column or not separator:
        raise InputError(f"{text[:80]!r} is not a filter: write COLUMN=VALUE.")

    return column, value


def require_columns(names: Iterable[str], columns: Iterable[str]) -> None:
    """Raise UnknownNameError if one of ``names`` is none of ``columns``."""
    column_names = list(columns)
    for name in names:
        require_known("column", name, column_names)


def encode_cells(cells: Sequence[Any]) -> str:
    """Return a row as it is stored.

    Args:
        cells: A JSON value for each column, or ``ABSENT``.

    Example:
        >>> encode_cells(["ACME", 12.5, {"zip": "1010"}, ABSENT])
        '["ACME",12.5,{"value":{"zip":"1010"}},{}]'
    """
    wrapped: list[Any] = []
    for cell in cells:
        if cell is ABSENT:
            wrapped.append({})
        elif isinstance(cell, Mapping):
            wrapped.append({_WRAPPER: cell})
        else:
            wrapped.append(cell)

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
        ['ACME', 12.5, {'zip': '1010'}, ABSENT]
    """
    values: list[Any] = json.loads(text)
    # Objects alone are wrapped, and a row without any brace has none.
    if "{" not in text:
        return values

    cells: list[Any] = []
    for cell in values:
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
        value: What a user passed: also a value of numpy or pandas.
        column: The name of the column, for the error message.

    Returns:
        The value, and None as the type of a missing value, which fits every column.

    Raises:
        InputError: If the value cannot be stored.

    Example:
        >>> normalize_cell(np.datetime64("2024-02-29"), "day")
        ('2024-02-29', <ColumnType.DATE: 'date'>)
    """
    return _normalize(value, column, 0)


def _normalize(value: Any, column: str, depth: int) -> tuple[Any, ColumnType | None]:
    if depth > MAX_DEPTH:
        raise InputError(
            f"The column {column!r} has lists or objects that are nested more than {MAX_DEPTH} "
            "deep: store them as a text."
        )

    # ``pandas.NA`` and ``pandas.NaT``, without loading pandas.
    pandas = sys.modules.get("pandas")
    if value is None:
        return None, None
    if pandas is not None and (value is pandas.NA or value is pandas.NaT):
        return None, None
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if isinstance(value, np.datetime64 | np.timedelta64):
        return _normalize_numpy_time(value)
    if isinstance(value, np.generic):
        value = value.item()

    if isinstance(value, bool):
        return value, ColumnType.BOOLEAN
    if isinstance(value, int):
        if value in _INT64:
            return value, ColumnType.INTEGER
        # Larger integers are stored as they are, but no table has a type for them.
        return value, ColumnType.JSON
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
        fields = {}
        for name, part in value.items():
            field, _ = _normalize(part, column, depth + 1)
            fields[str(name)] = field
        return fields, ColumnType.JSON
    if isinstance(value, list | tuple | np.ndarray):
        parts = [_normalize(part, column, depth + 1)[0] for part in value]
        return parts, ColumnType.JSON

    raise InputError(
        f"The column {column!r} has a value of type {type(value).__name__}, which cannot be "
        "stored: use a string, a number, a date, a list or a dict."
    )


def _normalize_numpy_time(
    value: np.datetime64 | np.timedelta64,
) -> tuple[str | None, ColumnType | None]:
    """Return a time of numpy as a text. Its own ``item`` returns an integer for nanoseconds."""
    if np.isnat(value):
        return None, None
    if isinstance(value, np.timedelta64):
        return str(value), ColumnType.TEXT

    unit, _ = np.datetime_data(value.dtype)
    if unit in ("Y", "M", "W", "D"):
        return str(value.astype("datetime64[D]")), ColumnType.DATE

    text = str(value)
    if unit == "h":
        text += ":00"
    # Most times have no nanoseconds: leave nothing that would keep them from being a timestamp.
    if "." in text and not _FRACTION_DIGITS.search(text):
        seconds, _, digits = text.partition(".")
        text = f"{seconds}.{digits[:6]}"
    return text, ColumnType.TIMESTAMP


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
            value: Any = ABSENT
            if name in mapping:
                value, value_type = normalize_cell(mapping[name], name)
                if value_type is not None:
                    types[name].add(value_type)
            cells.append(value)
        cells_by_row.append(encode_cells(cells))

    columns = [TableColumn(name, _common_type(types[name])) for name in names]
    table = ImportedTable(tuple(columns), id_column=id_column)
    return [TableRow(table, cells) for cells in cells_by_row]


def replace_cells(
    table: ImportedTable, cells: Sequence[Any], changes: Mapping[str, Any]
) -> tuple[ImportedTable, list[Any]]:
    """Return a row with some of its columns replaced, and columns that it lacks added.

    Args:
        table: The table that the row is in.
        cells: The cells of the row.
        changes: New values by column; None for a missing value.

    Returns:
        The table that has the types of the new values, the same one if they fit it, and the cells.

    Raises:
        InputError: If a value cannot be stored.

    Example:
        >>> table = ImportedTable((TableColumn("n", ColumnType.INTEGER),))
        >>> changed, cells = replace_cells(table, ["1"], {"n": 2})
        >>> changed is table, cells
        (True, [2])
    """
    columns = {column.name: column for column in table.columns}
    values = dict(zip(table.names, cells, strict=True))

    fits = True
    for name, given in changes.items():
        value, value_type = normalize_cell(given, name)
        values[name] = value
        if name not in columns:
            columns[name] = TableColumn(name, value_type or ColumnType.TEXT)
            fits = False
        elif not _fits_column(value, value_type, columns[name].type):
            columns[name] = TableColumn(name, _common_type({columns[name].type, value_type}))
            fits = False

    new_cells = list(values.values())
    if fits and table.arrow_schema is None:
        return table, new_cells
    # A Parquet file may have narrower types than ours, such as integers of eight bits: a row that
    # was changed is exported with the general ones.
    changed_table = ImportedTable(
        tuple(columns.values()), id_column=table.id_column, text_column=table.text_column
    )
    return changed_table, new_cells


def _fits_column(value: Any, value_type: ColumnType | None, column_type: ColumnType) -> bool:
    """Return whether a cell can stand in a column as it is."""
    if value_type is None or value_type is column_type:
        return True
    if column_type is ColumnType.JSON:
        return True
    if column_type is ColumnType.NUMBER:
        return value_type is ColumnType.INTEGER and fits_type(value, column_type)
    if column_type in (ColumnType.DATE, ColumnType.TIMESTAMP):
        return value_type is ColumnType.TEXT and fits_type(value, column_type)
    return False


def csv_column_type(cells: Iterable[str]) -> ColumnType:
    """Return what the cells of a CSV column stand for. Empty cells are missing values.

    A column holds numbers only if no digit is lost when they are read: postcodes such as ``01234``,
    phone numbers and long account numbers are texts.

    Example:
        >>> csv_column_type(["1", "", "20"]), csv_column_type(["007"])
        (<ColumnType.INTEGER: 'integer'>, <ColumnType.TEXT: 'text'>)
    """
    filled = [cell for cell in cells if cell]
    if not filled:
        return ColumnType.TEXT

    if all(_INTEGER.fullmatch(cell) for cell in filled):
        return ColumnType.INTEGER
    if all(_is_exact_number(cell) for cell in filled):
        return ColumnType.NUMBER
    if all(cell.lower() in _BOOLEANS for cell in filled):
        return ColumnType.BOOLEAN
    if all(_DATE.fullmatch(cell) and _is_time(cell) for cell in filled):
        return ColumnType.DATE
    if all(_TIMESTAMP.fullmatch(cell) and _is_time(cell) for cell in filled):
        return ColumnType.TIMESTAMP

    return ColumnType.TEXT


def _is_exact_number(text: str) -> bool:
    """Return whether a text is a number that a float holds with all its digits."""
    if not is_number(text):
        return False

    number = float(text)
    if not math.isfinite(number):
        return False
    return Decimal(text) == Decimal(repr(number))


def _is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _common_type(types: Collection[ColumnType | None]) -> ColumnType:
    """Return the type that values of several types have together. None is a missing value."""
    present = {column_type for column_type in types if column_type is not None}
    if not present:
        return ColumnType.TEXT
    if len(present) == 1:
        return present.pop()
    if present == {ColumnType.INTEGER, ColumnType.NUMBER}:
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

    columns = []
    for name, column_types in types.items():
        common = _common_type(column_types)
        columns.append(TableColumn(name, common))
    return columns


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

    if not cell and column_type in _PARSED_TYPES:
        return None
    if column_type is ColumnType.INTEGER:
        return int(cell)
    if column_type is ColumnType.NUMBER:
        # JSON has one type of numbers, in which 1 is not written as 1.0.
        if _INTEGER.fullmatch(cell):
            return int(cell)
        return float(cell)
    if column_type is ColumnType.BOOLEAN:
        return _BOOLEANS[cell.lower()]

    return cell


def typed_values(cells: Sequence[Any], column_type: ColumnType) -> list[Any]:
    """Return the values that the cells of a column stand for. See ``typed_value``."""
    if column_type in _PARSED_TYPES:
        return [typed_value(cell, column_type) for cell in cells]

    return [None if cell is ABSENT else cell for cell in cells]


def fits_type(value: Any, column_type: ColumnType) -> bool:
    """Return whether a typed value can stand in a column of a type without a loss.

    Example:
        >>> fits_type(2**53, ColumnType.NUMBER), fits_type(2**53 + 1, ColumnType.NUMBER)
        (True, False)
    """
    if value is None or column_type not in LIMITED_TYPES:
        return True
    if column_type is ColumnType.INTEGER:
        return isinstance(value, int) and value in _INT64
    if column_type is ColumnType.NUMBER:
        if isinstance(value, float):
            return True
        return isinstance(value, int) and value in _EXACT_FLOATS
    if column_type is ColumnType.DATE:
        return _is_time(value)

    if not _is_time(value):
        return False
    return not _FRACTION_DIGITS.search(value)


def map_json(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return a JSON value in which each text, number and name is what a function makes of it."""
    if isinstance(value, list):
        return [map_json(part, change) for part in value]
    if isinstance(value, dict):
        return {change(name): map_json(part, change) for name, part in value.items()}
    return change(value)


def drop_infinite(value: Any) -> Any:
    """Return a JSON value with None instead of numbers that are not finite."""

    def drop(part: Any) -> Any:
        if isinstance(part, float) and not math.isfinite(part):
            return None
        return part

    return map_json(value, drop)


def replace_surrogates(value: Any) -> Any:
    """Return a JSON value that UTF-8 can encode: with ``?`` instead of lone surrogates."""

    def encode(part: Any) -> Any:
        if isinstance(part, str):
            return part.encode("utf-8", "replace").decode()
        return part

    return map_json(value, encode)


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


def require_shown_columns(names: Sequence[str], items: Iterable[Item]) -> None:
    """Raise UnknownNameError if a column to show is none of the items' columns."""
    if not names:
        return

    columns: dict[str, None] = {}
    tables = {id(item.row.table): item.row.table for item in items if item.row is not None}
    for table in tables.values():
        columns |= dict.fromkeys(table.names)
    require_columns(names, columns)


def read_shown_columns(
    view: Reading,
    names: Sequence[str],
    row_ids: Sequence[int],
) -> dict[int, dict[str, str]]:
    """Return what annotators see of the columns of items.

    Args:
        names: The columns to show, in their order.
        row_ids: The row ids of the items.

    Returns:
        For each item with columns, by its row id, the cells that are not empty, as texts.
    """
    if not names:
        return {}

    shown: dict[int, dict[str, str]] = {}
    for row_id, row in view.tables.for_items(row_ids).items():
        values = row.values()
        shown[row_id] = {}
        for name in names:
            cell = format_cell(values.get(name))
            if cell.strip():
                shown[row_id][name] = _shorten(cell)
    return shown


def _shorten(cell: str) -> str:
    cell = replace_surrogates(cell)
    if len(cell) <= MAX_SHOWN_CELL:
        return cell
    return f"{cell[:MAX_SHOWN_CELL]}… ({len(cell):,} characters)"
