"""Read files of items once: for texts, ids and labels, and for the columns to store beside them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from teeter.campaigns.items.arrow_columns import read_arrow_rows
from teeter.campaigns.items.columns import (
    ImportedTable,
    TableColumn,
    TableRow,
    csv_column_type,
    encode_cells,
)
from teeter.data.table_files import (
    CsvRows,
    Table,
    convert_arrow_table,
    convert_csv_rows,
    read_arrow_table,
    read_csv_rows,
)

__all__ = ["SourceTable", "read_source_table"]


@dataclass(frozen=True, eq=False)
class SourceTable(ABC):
    """A file of items."""

    table: Table
    """Its columns of texts, numbers and vectors."""

    @abstractmethod
    def rows(self, id_column: str | None) -> list[TableRow]:
        """Return all rows with all columns, as they are stored.

        Args:
            id_column: The column of the item ids, if there is one.
        """


def read_source_table(path: Path) -> SourceTable:
    """Read a CSV or Parquet file once, for the items and for their columns.

    Raises:
        FileError: If the file cannot be read or has no usable column.
        MissingExtraError: If it is a Parquet file and pyarrow is not installed.
    """
    if path.suffix.lower() == ".parquet":
        arrow_table = read_arrow_table(path)
        return _ParquetSource(convert_arrow_table(arrow_table, path), arrow_table)

    content = read_csv_rows(path)
    return _CsvSource(convert_csv_rows(content, path), content)


@dataclass(frozen=True, eq=False)
class _ParquetSource(SourceTable):
    arrow_table: Any

    def rows(self, id_column: str | None) -> list[TableRow]:
        return read_arrow_rows(self.arrow_table, id_column)


@dataclass(frozen=True, eq=False)
class _CsvSource(SourceTable):
    content: CsvRows

    def rows(self, id_column: str | None) -> list[TableRow]:
        positions = self._filled_positions()
        columns = []
        for position in positions:
            name = self.content.names[position]
            cells = (row[position] for row in self.content.rows)
            columns.append(TableColumn(name, csv_column_type(cells)))

        table = ImportedTable(tuple(columns), id_column=id_column)
        rows = []
        for row in self.content.rows:
            cells_of_row = [row[position] for position in positions]
            rows.append(TableRow(table, encode_cells(cells_of_row)))
        return rows

    def _filled_positions(self) -> list[int]:
        """Return the positions of the columns that have a name, or at least a value.

        A file may have one column without a name, such as the index that pandas writes. Spreadsheet
        programs leave further ones behind, at the end of every line and without a value.
        """
        positions = []
        has_unnamed = False
        for position, name in enumerate(self.content.names):
            if not name:
                is_filled = any(row[position] for row in self.content.rows)
                if has_unnamed or not is_filled:
                    continue
                has_unnamed = True
            positions.append(position)
        return positions
