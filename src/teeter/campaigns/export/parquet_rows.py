"""Write an export as Parquet, with types that hold the values of all rows.

Rows may come from several tables, and from none, so the type of a column may not hold all values.
That is rare: rows are written as they are read. If a value does not fit, the rest is only checked,
and all rows are read again and written with types that hold them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from operator import attrgetter
from typing import Any, BinaryIO, Self

from teeter.campaigns.export.rows import (
    ADDED_CELLS,
    ADDED_TYPES,
    LABEL_CELLS,
    ExportColumns,
    ExportRow,
)
from teeter.campaigns.items.arrow_columns import (
    arrow_type_of,
    arrow_values,
    decode_arrow_column,
    encode_arrow_column,
    read_arrow_schema,
)
from teeter.campaigns.items.columns import (
    LIMITED_TYPES,
    ImportedTable,
    csv_column_type,
    fits_type,
    typed_value,
    typed_values,
)
from teeter.campaigns.records import ColumnType
from teeter.errors import MissingExtraError

_ROWS_AT_ONCE = 5_000
_CHARACTERS_AT_ONCE = 20_000_000
"""Rows, and about so many characters of them, that are in memory before they are written."""

_ROWS_IN_OBJECTS = 100
"""Rows that are moved into columns together. The garbage collector looks at every row that lives
on, again and again, but not at texts and numbers.
"""

_NUMBERS = (ColumnType.INTEGER, ColumnType.NUMBER)


def require_pyarrow() -> None:
    """Raise MissingExtraError if pyarrow is not installed."""
    if find_spec("pyarrow") is None:
        raise MissingExtraError("Writing Parquet needs pyarrow: pip install 'teeter[parquet]'.")


def write_parquet(
    files: Sequence[BinaryIO],
    rows: Iterable[ExportRow],
    columns: ExportColumns,
    *,
    choose_file: Callable[[ExportRow], int | None],
) -> None:
    """Write rows to Parquet files, which have the same types.

    Args:
        files: The files, empty and open for writing.
        rows: All rows. They may be read twice.
        columns: The columns of the export.
        choose_file: Returns the position of the file for a row, or None to leave the row out.

    Raises:
        MissingExtraError: If pyarrow is not installed.
    """
    if isinstance(rows, Iterator):
        rows = list(rows)
    arrow_columns = ArrowColumns(columns)

    def write_rows() -> bool:
        """Write all rows, and return whether the types held them all."""
        with ExitStack() as stack:
            writers = []
            for file in files:
                file.seek(0)
                file.truncate()
                writer = ParquetRows(file, columns, arrow_columns)
                writers.append(stack.enter_context(writer))

            unread_rows = iter(rows)
            for row in unread_rows:
                if not arrow_columns.check(row):
                    break
                position = choose_file(row)
                if position is not None:
                    writers[position].write(row)
            else:
                return True

            for row in unread_rows:
                arrow_columns.check(row)
            for writer in writers:
                writer.discard()
        return False

    if not write_rows():
        write_rows()


class ArrowColumns:
    """The imported columns of an export as Arrow has them.

    A column of Parquet files has the type that it had there. Others have the type of their values.

    Args:
        columns: The columns of the export.

    Raises:
        MissingExtraError: If pyarrow is not installed.
    """

    def __init__(self, columns: ExportColumns) -> None:
        require_pyarrow()
        self._columns = columns
        self._types = {column.name: column.type for column in columns.imported}
        self._original_fields: dict[str, Any] = {}
        # The columns that may not hold a value of their rows, and those that must have one.
        self._checked: list[tuple[int, str]] = []
        self._required: list[tuple[int, str]] = []
        for position, (name, column_type) in enumerate(self._types.items()):
            field = _original_field(name, columns.tables)
            if field is not None:
                self._original_fields[name] = field
                if not field.nullable:
                    self._required.append((position, name))
            elif column_type in LIMITED_TYPES:
                self._checked.append((position, name))

        self._id_column = ""
        if columns.id_position is not None:
            self._id_column = columns.imported[columns.id_position].name
        self._has_text_ids = False

    def check(self, row: ExportRow) -> bool:
        """Choose other types for the columns that cannot hold the values of a row.

        Returns:
            Whether the types hold them as they are.
        """
        cells = self._columns.cells(row.row)
        missing = self._columns.missing_cells(row, cells)
        fits = True
        if self._columns.id_position in missing and not self._has_text_ids:
            fits = self._fits_id(row.id)
            self._has_text_ids = not fits

        types = self._columns.types(row.row)
        for position, name in self._checked:
            if position in missing:
                continue
            cell = cells[position]
            # A column of texts is one of numbers only if no digit is lost: see csv_column_type.
            if isinstance(cell, str) and self._types[name] in _NUMBERS:
                continue
            value = typed_value(cell, types[position])
            if not fits_type(value, self._types[name]):
                # Times are stored as texts already. As JSON they would have quotes.
                if self._types[name] in (ColumnType.DATE, ColumnType.TIMESTAMP):
                    self._types[name] = ColumnType.TEXT
                else:
                    self._types[name] = ColumnType.JSON
                fits = False

        for position, name in self._required:
            if position in missing:
                continue
            field = self._original_fields[name]
            value = typed_value(cells[position], types[position])
            if value is None and not field.nullable:
                self._original_fields[name] = field.with_nullable(True)
                fits = False

        return fits

    def _fits_id(self, item_id: str) -> bool:
        """Return whether the id of an item that came without one fits into the column of ids."""
        column_type = self._types[self._id_column]
        if column_type not in (ColumnType.TEXT, ColumnType.INTEGER):
            return False

        value: Any = item_id
        if column_type is ColumnType.INTEGER:
            if csv_column_type([item_id]) is not ColumnType.INTEGER:
                return False
            value = int(item_id)

        field = self._original_fields.get(self._id_column)
        return field is None or _fits_arrow_type(value, field.type)

    def fields(self) -> list[Any]:
        """Return the fields of a schema."""
        import pyarrow

        fields = []
        for name, column_type in self._types.items():
            field = self._original_fields.get(name)
            if name == self._id_column and self._has_text_ids:
                field = pyarrow.field(name, pyarrow.string())
            elif field is None:
                field = pyarrow.field(name, arrow_type_of(column_type))
            fields.append(field)
        return fields

    def metadata(self) -> dict[bytes, bytes] | None:
        """Return what a Parquet file or a data frame said about its columns.

        Of columns that did not all come from one, only that they came from polars.
        """
        tables = self._columns.tables
        if not tables or tables[0].arrow_schema is None:
            return None

        metadata: dict[bytes, bytes] = read_arrow_schema(tables[0].arrow_schema).metadata or {}
        if len(tables) > 1 or self._has_text_ids:
            metadata = {name: value for name, value in metadata.items() if name == b"polars"}
        return metadata or None

    def values(self, rows: Sequence[ExportRow]) -> list[list[Any]]:
        """Return the values of some rows by column."""
        columns = self._columns.typed_columns(rows)
        if self._has_text_ids:
            position = list(self._types).index(self._id_column)
            columns[position] = [row.id for row in rows]
        return columns

    def arrays(self, columns: Sequence[Sequence[Any]]) -> Iterator[Any]:
        """Yield columns that ``values`` has returned as pyarrow arrays."""
        for (name, column_type), values in zip(self._types.items(), columns, strict=True):
            if name == self._id_column and self._has_text_ids:
                yield _make_array(values, ColumnType.TEXT)
                continue

            # The id of an item that came without one is a text, which was checked to fit.
            stored = typed_values(values, column_type)
            field = self._original_fields.get(name)
            if field is None:
                yield _make_array(stored, column_type)
            else:
                yield decode_arrow_column(stored, field.type)


def _fits_arrow_type(value: Any, arrow_type: Any) -> bool:
    import pyarrow

    try:
        array = decode_arrow_column([value], arrow_type)
    except (pyarrow.ArrowException, ValueError, TypeError, OverflowError):
        return False
    return encode_arrow_column(array) == [value]


def _original_field(name: str, tables: Iterable[ImportedTable]) -> Any | None:
    """Return the field of the files that a column came from, if all had the same type."""
    field: Any | None = None
    for table in tables:
        if name not in table.names:
            continue
        if table.arrow_schema is None:
            return None

        field_of_table = read_arrow_schema(table.arrow_schema).field(name)
        if field is not None and field.type != field_of_table.type:
            return None
        if field is None or field_of_table.nullable:
            field = field_of_table
    return field


def _make_array(values: Sequence[Any], column_type: ColumnType) -> Any:
    import pyarrow

    return pyarrow.array(arrow_values(values, column_type), arrow_type_of(column_type))


class ParquetRows:
    """A Parquet file that is written row by row, a few thousand at a time.

    Args:
        file: The file, open for writing.
        columns: The columns of the export.
        arrow_columns: The imported ones among them, with types that hold the values of all rows.
    """

    def __init__(self, file: BinaryIO, columns: ExportColumns, arrow_columns: ArrowColumns) -> None:
        import pyarrow
        from pyarrow import parquet

        self._arrow_columns = arrow_columns
        self._columns = columns
        added_fields = {}
        for column, name in columns.name_of.items():
            arrow_type = pyarrow.type_for_alias(ADDED_TYPES.get(column, "string"))
            if columns.labels and ADDED_CELLS[column] in LABEL_CELLS:
                arrow_type = pyarrow.list_(pyarrow.string())
            added_fields[ADDED_CELLS[column]] = pyarrow.field(name, arrow_type)

        self._added_fields = added_fields
        self._schema = pyarrow.schema(
            [*arrow_columns.fields(), *added_fields.values()], metadata=arrow_columns.metadata()
        )
        self._writer = parquet.ParquetWriter(file, self._schema)
        self._rows: list[ExportRow] = []
        self._imported_values: list[list[Any]] = [[] for _ in columns.imported]
        self._added_values: list[list[Any]] = [[] for _ in added_fields]
        self._row_count = 0
        self._characters = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        try:
            if error_type is None:
                self._flush()
        finally:
            self._writer.close()

    def write(self, row: ExportRow) -> None:
        """Write a row with its imported cells and the added ones."""
        self._rows.append(row)
        self._row_count += 1

        cells = []
        if row.row is not None:
            cells = row.row.cells
        for cell in (row.content, *cells):
            if isinstance(cell, str):
                self._characters += len(cell)
        if self._row_count >= _ROWS_AT_ONCE or self._characters >= _CHARACTERS_AT_ONCE:
            self._flush()
        elif len(self._rows) >= _ROWS_IN_OBJECTS:
            self._gather()

    def _gather(self) -> None:
        """Move the rows into columns."""
        imported = self._arrow_columns.values(self._rows)
        for values, new_values in zip(self._imported_values, imported, strict=True):
            values += new_values
        for values, attribute in zip(self._added_values, self._added_fields, strict=True):
            added = map(attrgetter(attribute), self._rows)
            if self._columns.labels and attribute in LABEL_CELLS:
                added = map(self._columns.label_value, added)
            values += added
        self._rows.clear()

    def _flush(self) -> None:
        import pyarrow

        self._gather()
        arrays = list(self._arrow_columns.arrays(self._imported_values))
        for values, field in zip(self._added_values, self._added_fields.values(), strict=True):
            arrays.append(pyarrow.array(values, field.type))

        self._writer.write_table(pyarrow.table(arrays, schema=self._schema))
        self.discard()

    def discard(self) -> None:
        """Forget the rows that are not in the file yet."""
        self._rows.clear()
        for values in (*self._imported_values, *self._added_values):
            values.clear()
        self._row_count = 0
        self._characters = 0
