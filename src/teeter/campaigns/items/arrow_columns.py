"""Cells of Parquet files as JSON values, and back, without a loss.

``encode_arrow_column`` and ``decode_arrow_column`` walk along the type of a column. Lists, objects
and maps are taken apart until what is left is a number, a boolean or something that JSON lacks:

* Times, dates and durations are read as the integers that Arrow stores. numpy writes them in ISO
  8601 with all their digits; Python's own ``datetime`` would cut off nanoseconds.
* Decimals are texts of digits, bytes are base64, and half floats are floats.
* Categories (dictionaries) are their values, and an extension type is the type that it wraps.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from teeter.campaigns.items.columns import (
    ADDED_COLUMNS,
    SHORT_COLUMNS,
    ImportedTable,
    TableRow,
    encode_cells,
    find_added_columns,
)
from teeter.campaigns.records import ColumnType, TableColumn
from teeter.data.table_files import frame_of, read_parquet

_ROWS_AT_ONCE = 2_000
"""Rows that are in memory as Python objects while a table is encoded."""

_FRAME_METADATA = (b"pandas", b"polars")
"""The entries of a schema that say from which library it is, and tell pandas what its index is."""


def read_arrow_rows(table: Any, id_column: str | None) -> list[TableRow]:
    """Return the rows of a pyarrow table as they are stored.

    Args:
        table: The table.
        id_column: The column of the item ids, if there is one.
    """
    metadata = table.schema.metadata or {}
    kept = {key: value for key, value in metadata.items() if key in _FRAME_METADATA}
    schema = table.schema.remove_metadata().with_metadata(kept or None)

    columns = [TableColumn(field.name, _column_type(field.type)) for field in schema]
    imported = ImportedTable(tuple(columns), schema.serialize().to_pybytes(), id_column)

    rows: list[TableRow] = []
    for start in range(0, table.num_rows, _ROWS_AT_ONCE):
        part = table.slice(start, _ROWS_AT_ONCE)
        cells_by_column = [encode_arrow_column(column) for column in part.columns]
        cells_by_row = zip(*cells_by_column, strict=True)
        rows.extend(TableRow(imported, encode_cells(cells)) for cells in cells_by_row)
    return rows


def read_arrow_schema(serialized: bytes) -> Any:
    """Return the pyarrow schema of an imported table."""
    import pyarrow

    return pyarrow.ipc.read_schema(pyarrow.py_buffer(serialized))


def select_fields(serialized: bytes, positions: Sequence[int]) -> bytes:
    """Return the serialized schema of an imported table with some of its columns."""
    import pyarrow

    schema = read_arrow_schema(serialized)
    fields = [schema.field(position) for position in positions]
    selected: bytes = pyarrow.schema(fields, schema.metadata).serialize().to_pybytes()
    return selected


def frame_of_export(path: Path, kind: str | None = None) -> Any:
    """Return an exported Parquet file as a data frame, with the columns that people read.

    Args:
        path: The file.
        kind: See ``Campaign.to_frame``.
    """
    table = read_parquet(path)
    for_programs = set(ADDED_COLUMNS) - set(SHORT_COLUMNS)
    added = find_added_columns(table.column_names)
    return frame_of(table.drop_columns([added[column] for column in for_programs]), kind)


def _column_type(arrow_type: Any) -> ColumnType:
    """Return what the cells of an Arrow type stand for."""
    from pyarrow import types

    arrow_type = _stored_type(arrow_type)
    checks = (
        (types.is_boolean, ColumnType.BOOLEAN),
        (types.is_integer, ColumnType.INTEGER),
        (types.is_floating, ColumnType.NUMBER),
        (types.is_decimal, ColumnType.DECIMAL),
        (types.is_date32, ColumnType.DATE),
        (types.is_date64, ColumnType.TIMESTAMP),
        (types.is_timestamp, ColumnType.TIMESTAMP),
        (_is_binary, ColumnType.BINARY),
        (types.is_nested, ColumnType.JSON),
    )
    for is_of_type, column_type in checks:
        if is_of_type(arrow_type):
            return column_type
    return ColumnType.TEXT


def _stored_type(arrow_type: Any) -> Any:
    """Return the type that an extension type or a dictionary stores its values as."""
    from pyarrow import types

    arrow_type = getattr(arrow_type, "storage_type", arrow_type)
    if types.is_dictionary(arrow_type):
        return arrow_type.value_type
    return arrow_type


def _is_binary(arrow_type: Any) -> bool:
    from pyarrow import types

    return bool(
        types.is_binary(arrow_type)
        or types.is_large_binary(arrow_type)
        or types.is_fixed_size_binary(arrow_type)
        or types.is_binary_view(arrow_type)
    )


def _time_unit(arrow_type: Any) -> str | None:
    """Return the numpy unit of a time or date; None for other types."""
    from pyarrow import types

    if types.is_date32(arrow_type):
        return "D"
    if types.is_date64(arrow_type):
        return "ms"
    if types.is_timestamp(arrow_type) or types.is_time(arrow_type):
        return str(arrow_type.unit)
    return None


def _integer_type(arrow_type: Any) -> Any:
    """Return the integers that a time, date or duration is stored as."""
    import pyarrow

    if arrow_type.bit_width == 32:
        return pyarrow.int32()
    return pyarrow.int64()


def encode_arrow_column(column: Any) -> list[Any]:
    """Return the JSON values of a pyarrow array or chunked array."""
    import pyarrow
    from pyarrow import types

    if isinstance(column, pyarrow.ChunkedArray):
        return [value for chunk in column.chunks for value in encode_arrow_column(chunk)]

    if isinstance(column, pyarrow.ExtensionArray):
        return encode_arrow_column(column.storage)
    arrow_type = column.type
    if types.is_dictionary(arrow_type):
        return encode_arrow_column(column.dictionary_decode())
    if types.is_struct(arrow_type):
        return _encode_objects(column)
    if types.is_map(arrow_type):
        return _encode_lists(column, _encode_pairs)
    if _is_list(arrow_type):
        return _encode_lists(column, encode_arrow_column)

    if _time_unit(arrow_type) is not None:
        integers = column.cast(_integer_type(arrow_type)).to_pylist()
        return [None if value is None else _format_time(value, arrow_type) for value in integers]
    if types.is_duration(arrow_type):
        return list(column.cast(pyarrow.int64()).to_pylist())

    values: list[Any] = column.to_pylist()
    if types.is_decimal(arrow_type):
        return [None if value is None else str(value) for value in values]
    if _is_binary(arrow_type):
        return [None if value is None else base64.b64encode(value).decode() for value in values]
    return values


_DAY_OF_TIMES = "1970-01-01T"
"""What numpy, which knows no times without a day, writes before them."""


def _format_time(value: int, arrow_type: Any) -> str:
    from pyarrow import types

    unit: Any = _time_unit(arrow_type)
    text = str(np.datetime64(value, unit))
    if types.is_time(arrow_type):
        return text.removeprefix(_DAY_OF_TIMES)
    # Times with a time zone are stored in UTC. The zone itself is part of the type.
    if types.is_timestamp(arrow_type) and arrow_type.tz is not None:
        return text + "Z"
    return text


def _parse_time(text: str, arrow_type: Any) -> int:
    from pyarrow import types

    if types.is_time(arrow_type):
        text = _DAY_OF_TIMES + text
    unit: Any = _time_unit(arrow_type)
    moment = np.datetime64(text.removesuffix("Z"), unit)
    return int(moment.astype(np.int64))


def _is_list(arrow_type: Any) -> bool:
    from pyarrow import types

    return bool(
        types.is_list(arrow_type)
        or types.is_large_list(arrow_type)
        or types.is_fixed_size_list(arrow_type)
        or types.is_list_view(arrow_type)
        or types.is_large_list_view(arrow_type)
    )


def _encode_objects(column: Any) -> list[Any]:
    names = [field.name for field in column.type]
    # ``field`` ignores that an object may be missing as a whole, which ``is_valid`` knows.
    parts = []
    for position in range(len(names)):
        field = column.field(position)
        parts.append(encode_arrow_column(field))
    rows = zip(*parts, strict=True) if parts else ((),) * len(column)

    objects: list[Any] = []
    for is_valid, values in zip(column.is_valid().to_pylist(), rows, strict=True):
        fields = None
        if is_valid:
            fields = dict(zip(names, values, strict=True))
        objects.append(fields)
    return objects


def _encode_pairs(entries: Any) -> list[Any]:
    keys = encode_arrow_column(entries.field(0))
    values = encode_arrow_column(entries.field(1))
    return [list(pair) for pair in zip(keys, values, strict=True)]


def _encode_lists(column: Any, encode: Any) -> list[Any]:
    # One list at a time: the offsets of views, slices and lists of fixed size all differ.
    return [encode(scalar.values) if scalar.is_valid else None for scalar in column]


def decode_arrow_column(cells: Sequence[Any], arrow_type: Any) -> Any:
    """Return JSON values as a pyarrow array of a type: what ``encode_arrow_column`` was given."""
    import pyarrow
    from pyarrow import types

    if isinstance(arrow_type, pyarrow.BaseExtensionType):
        storage = decode_arrow_column(cells, arrow_type.storage_type)
        return pyarrow.ExtensionArray.from_storage(arrow_type, storage)
    if types.is_dictionary(arrow_type):
        values = decode_arrow_column(cells, arrow_type.value_type)
        return values.dictionary_encode().cast(arrow_type)

    if _time_unit(arrow_type) is not None:
        integers = [None if cell is None else _parse_time(cell, arrow_type) for cell in cells]
        return pyarrow.array(integers, _integer_type(arrow_type)).cast(arrow_type)
    if types.is_duration(arrow_type):
        return pyarrow.array(cells, pyarrow.int64()).cast(arrow_type)

    values = [_decode_cell(cell, arrow_type) for cell in cells]
    return pyarrow.array(values, arrow_type)


def _decode_cell(cell: Any, arrow_type: Any) -> Any:
    """Return the value that pyarrow makes an element of a type from."""
    from pyarrow import types

    if cell is None:
        return None
    arrow_type = _stored_type(arrow_type)

    if types.is_struct(arrow_type):
        return {field.name: _decode_cell(cell[field.name], field.type) for field in arrow_type}
    if types.is_map(arrow_type):
        key_type = arrow_type.key_type
        item_type = arrow_type.item_type
        return [(_decode_cell(key, key_type), _decode_cell(item, item_type)) for key, item in cell]
    if _is_list(arrow_type):
        return [_decode_cell(part, arrow_type.value_type) for part in cell]

    if _time_unit(arrow_type) is not None:
        return _parse_time(cell, arrow_type)
    if types.is_decimal(arrow_type):
        return Decimal(cell)
    if _is_binary(arrow_type):
        return base64.b64decode(cell)
    return cell


def arrow_type_of(column_type: ColumnType) -> Any:
    """Return the Arrow type for a column that did not come from a Parquet file."""
    import pyarrow

    arrow_types = {
        ColumnType.INTEGER: pyarrow.int64(),
        ColumnType.NUMBER: pyarrow.float64(),
        ColumnType.BOOLEAN: pyarrow.bool_(),
        ColumnType.DATE: pyarrow.date32(),
        ColumnType.TIMESTAMP: pyarrow.timestamp("us"),
    }
    return arrow_types.get(column_type, pyarrow.string())


def arrow_values(values: Sequence[Any], column_type: ColumnType) -> list[Any]:
    """Return typed values as values of ``arrow_type_of`` their type."""
    if column_type in (ColumnType.INTEGER, ColumnType.NUMBER, ColumnType.BOOLEAN):
        return list(values)
    return [_arrow_value(value, column_type) for value in values]


def _arrow_value(value: Any, column_type: ColumnType) -> Any:
    if value is None:
        return None
    if column_type is ColumnType.JSON:
        value = json.dumps(value, ensure_ascii=False)

    if column_type is ColumnType.DATE:
        return date.fromisoformat(value)
    if column_type is ColumnType.TIMESTAMP:
        moment = datetime.fromisoformat(value)
        # The column has no time zone, so that times with and without one can stand together.
        if moment.tzinfo is not None:
            moment = moment.astimezone(UTC).replace(tzinfo=None)
        return moment

    if isinstance(value, str) and not value.isascii():
        # Arrow takes UTF-8 only, which has no lone surrogates.
        return value.encode("utf-8", "replace").decode()
    return value
