"""The columns of an export: those of the imported tables in their order, then what teeter adds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, Self

from teeter.campaigns.arrow_columns import (
    arrow_type_of,
    arrow_values,
    decode_arrow_column,
    read_arrow_schema,
)
from teeter.campaigns.columns import (
    ABSENT,
    ColumnType,
    ImportedTable,
    format_cell,
    json_value,
    merge_columns,
    typed_value,
)
from teeter.campaigns.db.imported_tables import StoredRow
from teeter.errors import MissingExtraError

__all__ = ["ExportColumns", "ParquetRows"]

_PREFIX = "teeter_"
"""What an added column begins with if an imported one has its name."""

_ID = "id"

_ROWS_AT_ONCE = 5_000
_CHARACTERS_AT_ONCE = 20_000_000
"""Rows, and about so many characters of them, that are in memory before they are written."""


class ExportColumns:
    """The imported columns of an export, and the names of the added ones beside them.

    Args:
        tables: The tables that the items came from; empty if they came without columns.
        added: The columns that teeter adds, such as ``label``.
    """

    def __init__(self, tables: Sequence[ImportedTable], added: Sequence[str]) -> None:
        self._tables = list(tables)
        self.imported = merge_columns(self._tables)
        """The columns of all tables together."""
        imported_names = {column.name for column in self.imported}

        # The ids need no second column if the first one has them all.
        self._has_ids = _ID in imported_names and all(
            table.id_column == _ID for table in self._tables if _ID in table.names
        )
        self.name_of: dict[str, str] = {}
        """The name under which each added column is written."""
        for column in added:
            if column == _ID and self._has_ids:
                continue
            name = column
            while name in imported_names:
                name = _PREFIX + name
            self.name_of[column] = name

    @property
    def names(self) -> list[str]:
        """The names of all columns, in their order."""
        return [*(column.name for column in self.imported), *self.name_of.values()]

    def rename_added(self, cells: Mapping[str, Any]) -> dict[str, Any]:
        """Return the added cells of a row under the names that they are written with."""
        return {name: cells[column] for column, name in self.name_of.items()}

    def text_cells(self, row: StoredRow | None, item_id: str) -> dict[str, str]:
        """Return the imported cells of a row for a CSV file."""
        cells = {column.name: "" for column in self.imported}
        for name, cell in self._values(row, item_id).items():
            cells[name] = format_cell(cell)
        return cells

    def json_cells(self, row: StoredRow | None, item_id: str) -> dict[str, Any]:
        """Return the imported cells of a row for a JSON file, but for those it does not have."""
        types = _types_of(row)
        values = self._values(row, item_id)

        cells = {}
        for column in self.imported:
            cell = values.get(column.name, ABSENT)
            if cell is not ABSENT:
                cells[column.name] = json_value(cell, types.get(column.name, ColumnType.TEXT))
        return cells

    def _values(self, row: StoredRow | None, item_id: str) -> dict[str, Any]:
        if row is not None:
            return row.values()
        # An item without a row is known by its id all the same.
        return {_ID: item_id} if self._has_ids else {}

    # Parquet

    def arrow_fields(self) -> list[Any]:
        """Return the fields of the imported columns: of their own types, if they had any."""
        import pyarrow

        fields = []
        for column in self.imported:
            field = self._original_field(column.name)
            fields.append(field or pyarrow.field(column.name, arrow_type_of(column.type)))
        return fields

    def arrow_metadata(self) -> dict[bytes, bytes] | None:
        """Return what a Parquet file said about its columns, if all items came from one."""
        if len(self._tables) != 1 or self._tables[0].arrow_schema is None:
            return None

        metadata: dict[bytes, bytes] | None = read_arrow_schema(
            self._tables[0].arrow_schema
        ).metadata
        return metadata

    def arrow_columns(self, rows: Sequence[tuple[StoredRow | None, str]]) -> Iterator[Any]:
        """Yield the imported columns of some rows as pyarrow arrays.

        Args:
            rows: Each row, or None, with the id of its item.
        """
        values_of_rows = [self._values(row, item_id) for row, item_id in rows]
        types_of_rows = [_types_of(row) for row, _ in rows]

        for column in self.imported:
            cells = [values.get(column.name, ABSENT) for values in values_of_rows]
            field = self._original_field(column.name)
            if field is not None:
                stored = [None if cell is ABSENT else cell for cell in cells]
                yield decode_arrow_column(stored, field.type)
                continue

            typed = []
            for cell, types in zip(cells, types_of_rows, strict=True):
                typed.append(typed_value(cell, types.get(column.name, ColumnType.TEXT)))
            yield _make_array(arrow_values(typed, column.type), column.type)

    def _original_field(self, name: str) -> Any | None:
        """Return the field of the files that the column came from, if all had the same."""
        fields: list[Any] = list(_fields_called(name, self._tables))
        if any(field is None for field in fields):
            return None

        is_same = all(field.type == fields[0].type for field in fields)
        return fields[0] if is_same else None


def _fields_called(name: str, tables: Iterable[ImportedTable]) -> Iterator[Any | None]:
    """Yield the field of each table with a column; None for a table without Arrow types."""
    for table in tables:
        if name not in table.names:
            continue
        if table.arrow_schema is None:
            yield None
        else:
            yield read_arrow_schema(table.arrow_schema).field(name)


def _types_of(row: StoredRow | None) -> dict[str, ColumnType]:
    if row is None:
        return {}
    return {column.name: column.type for column in row.table.columns}


def _make_array(values: Sequence[Any], column_type: ColumnType) -> Any:
    import pyarrow

    return pyarrow.array(values, arrow_type_of(column_type))


class ParquetRows:
    """A Parquet file that is written row by row, a few thousand at a time.

    Args:
        file: The file, open for writing.
        columns: The columns of the export.
        added_types: The Arrow types of the added columns that are no texts, by name.

    Raises:
        MissingExtraError: If pyarrow is not installed.
    """

    def __init__(
        self, file: BinaryIO, columns: ExportColumns, added_types: Mapping[str, str]
    ) -> None:
        try:
            import pyarrow
            from pyarrow import parquet
        except ImportError:
            raise MissingExtraError(
                "Writing Parquet needs pyarrow: pip install 'teeter[parquet]'."
            ) from None

        self._columns = columns
        added_fields = []
        for column, name in columns.name_of.items():
            arrow_type = pyarrow.type_for_alias(added_types.get(column, "string"))
            added_fields.append(pyarrow.field(name, arrow_type))

        self._added_fields = added_fields
        self._schema = pyarrow.schema(
            [*columns.arrow_fields(), *added_fields], metadata=columns.arrow_metadata()
        )
        self._writer = parquet.ParquetWriter(file, self._schema)
        self._rows: list[tuple[StoredRow | None, str]] = []
        self._added: list[dict[str, Any]] = []
        self._characters = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        try:
            if error_type is None:
                self._flush()
        finally:
            self._writer.close()

    def write(self, row: StoredRow | None, item_id: str, added: Mapping[str, Any]) -> None:
        """Write a row with its imported cells and the added ones."""
        self._rows.append((row, item_id))
        self._added.append(self._columns.rename_added(added))

        cells = [] if row is None else row.cells
        texts = [cell for cell in [*cells, *added.values()] if isinstance(cell, str)]
        self._characters += sum(map(len, texts))
        if len(self._rows) >= _ROWS_AT_ONCE or self._characters >= _CHARACTERS_AT_ONCE:
            self._flush()

    def _flush(self) -> None:
        import pyarrow

        arrays = list(self._columns.arrow_columns(self._rows))
        for field in self._added_fields:
            values = [cells[field.name] for cells in self._added]
            arrays.append(pyarrow.array(values, field.type))

        self._writer.write_table(pyarrow.table(arrays, schema=self._schema))
        self._rows.clear()
        self._added.clear()
        self._characters = 0
