"""The tables that items came from: their columns, and a row for every row of a file.

A file may hold the same text twice. It becomes one item with two rows, so that an export has as
many rows as the file.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, func, select

from teeter.campaigns.items.columns import (
    ImportedTable,
    TableRow,
    decode_cells,
    format_cell,
    merge_columns,
)
from teeter.campaigns.records import ColumnType, TableColumn
from teeter.campaigns.store import schema
from teeter.campaigns.store.queries import Queries
from teeter.campaigns.store.schema import IMPORTED_ROWS, IMPORTED_TABLES, ITEMS

_ROWS_AT_ONCE = 500
"""Rows that are in memory at once. A cell may have megabytes."""


# Not frozen: an export makes one for every row, which would take four times as long.
@dataclass(slots=True, eq=False)
class StoredRow:
    """A row of a table, as the database has it."""

    item_id: str
    key: str
    """The id that it came with. A duplicate has another id than the item."""
    table: ImportedTable
    cells: list[Any]

    def values(self) -> dict[str, Any]:
        """Return the cells by column."""
        return dict(zip(self.table.names, self.cells, strict=True))


class ImportedTableQueries(Queries):
    """The tables that the items of a campaign came from, and their rows."""

    def add(self, rows: Sequence[tuple[str, str, TableRow]]) -> None:
        """Store rows. A row that came before, with the same id and content, is replaced.

        So adding a file twice changes nothing, and adding it with more columns fills them in. Rows
        without ids of their own are distinguished by their order.

        Args:
            rows: The id of the item, which is stored already, the id that the row came with, and
                the row.
        """
        item_ids = list(dict.fromkeys(item_id for item_id, _, _ in rows))
        row_ids = select(ITEMS.key, ITEMS.id).where(self._in_campaign())
        item_row_ids = {}
        for item in self._in_parts(row_ids, ITEMS.key, item_ids):
            item_row_ids[item.key] = item.id

        # The rows that are stored already by item and id, each list in the order of the file.
        # Of their cells only a hash, to write those that differ: a file that grows has few of them.
        stored: defaultdict[tuple[int, str], list[tuple[int, int, int]]] = defaultdict(list)
        in_order = select(schema.imported_rows).order_by(IMPORTED_ROWS.id)
        distinct_ids = list(set(item_row_ids.values()))
        for old in self._in_parts(in_order, IMPORTED_ROWS.item_id, distinct_ids):
            old_values = (old.id, old.table_id, hash(old.cells))
            rows_of_id = stored[old.item_id, old.key]
            rows_of_id.append(old_values)
        table_ids: dict[int, int] = {}

        new_values = []
        for item_id, key, row in rows:
            # Tables have no equality of their own: rows of one file share one object.
            table_id = table_ids.get(id(row.table))
            if table_id is None:
                table_id = self._find_or_add_table(row.table)
                table_ids[id(row.table)] = table_id

            item_row_id = item_row_ids[item_id]
            values = {
                "table_id": table_id,
                "item_id": item_row_id,
                "key": key,
                "cells": row.cells,
            }
            previous = stored[item_row_id, key]
            if not previous:
                new_values.append(values)
                continue
            old_id, old_table_id, old_hash = previous.pop(0)
            if old_table_id != table_id or old_hash != hash(row.cells):
                self._update(schema.imported_rows, IMPORTED_ROWS.id == old_id, **values)

        for start in range(0, len(new_values), _ROWS_AT_ONCE):
            part = new_values[start : start + _ROWS_AT_ONCE]
            self._insert_all(schema.imported_rows, part)

    def _find_or_add_table(self, table: ImportedTable) -> int:
        """Return the row id of a table. Files with the same columns share one."""
        described: dict[str, Any] = {
            "columns": [[column.name, column.type] for column in table.columns],
            "id": table.id_column,
        }
        # Left out if there is none, as in campaigns from before it was stored.
        if table.text_column is not None:
            described["text"] = table.text_column
        # Escaped, because a name may have characters that PostgreSQL cannot store.
        columns = json.dumps(described)
        has_schema = IMPORTED_TABLES.arrow_schema.is_not_distinct_from(table.arrow_schema)
        has_columns = IMPORTED_TABLES.columns == columns
        alike = self._own(schema.imported_tables).where(has_columns, has_schema)
        table_id = self._scalar(alike.limit(1))
        if table_id is None:
            table_id = self._insert(
                schema.imported_tables,
                added=self._transaction.now(),
                columns=columns,
                arrow_schema=table.arrow_schema,
            )
        return int(table_id)

    def tables(self) -> dict[int, ImportedTable]:
        """Return the tables that still have rows, by row id and in the order of their import."""
        has_rows = IMPORTED_TABLES.id.in_(select(IMPORTED_ROWS.table_id))
        query = self._own(schema.imported_tables).where(has_rows)
        tables = {}
        for row in self._execute(query.order_by(IMPORTED_TABLES.id)):
            described = json.loads(row.columns)
            columns = []
            for name, kind in described["columns"]:
                column_type = ColumnType(kind)
                columns.append(TableColumn(name, column_type))
            text_column = described.get("text")
            tables[row.id] = ImportedTable(
                tuple(columns), row.arrow_schema, described["id"], text_column
            )
        return tables

    def columns(self) -> list[TableColumn]:
        """Return the columns of all tables together, in their order."""
        return merge_columns(list(self.tables().values()))

    def all_rows(self) -> Iterator[StoredRow]:
        """Yield all rows in the order of their files. Only a few are in memory at once."""
        tables = self.tables()
        query = self._select_rows().order_by(IMPORTED_ROWS.id)
        streamed = self._execute(query, execution_options={"yield_per": _ROWS_AT_ONCE})
        for stored_key, key, table_id, _, cells in streamed:
            yield StoredRow(stored_key, key, tables[table_id], decode_cells(cells))

    def for_items(self, item_row_ids: Sequence[int]) -> dict[int, StoredRow]:
        """Return the first row of each of the items that have one, by the item's row id."""
        rows: dict[int, StoredRow] = {}
        tables = self.tables()
        for row in self._rows_of(item_row_ids):
            if row.item_id not in rows:
                rows[row.item_id] = _stored_row(row, tables[row.table_id])
        return rows

    def rows_of_item(self, item_row_id: int) -> list[StoredRow]:
        """Return all rows of an item, in the order of their files."""
        tables = self.tables()
        rows = self._rows_of([item_row_id])
        return [_stored_row(row, tables[row.table_id]) for row in rows]

    def matching_items(
        self,
        item_row_ids: Sequence[int],
        filters: Sequence[tuple[str, str]],
    ) -> set[int]:
        """Return those of the items that have a row which all filters fit."""
        matches: set[int] = set()
        tables = self.tables()
        for row in self._rows_of(item_row_ids):
            values = _stored_row(row, tables[row.table_id]).values()
            texts = {name: format_cell(values[name]) for name, _ in filters if name in values}
            if all(texts.get(name) == value for name, value in filters):
                matches.add(row.item_id)
        return matches

    def _rows_of(self, item_row_ids: Sequence[int]) -> Iterator[Row[Any]]:
        in_order = self._select_rows().order_by(IMPORTED_ROWS.id)
        return self._in_parts(in_order, IMPORTED_ROWS.item_id, item_row_ids)

    def _select_rows(self) -> Select[Any]:
        rows = select(
            ITEMS.key.label("stored_key"),
            IMPORTED_ROWS.key,
            IMPORTED_ROWS.table_id,
            IMPORTED_ROWS.item_id,
            IMPORTED_ROWS.cells,
        )
        return rows.join(schema.items).where(self._in_campaign())


def items_with_text(connection: Connection, text: str, *, ignore_case: bool) -> Select[Any]:
    """Select the items with a row whose stored cells contain a text.

    It may select too many, never too few: the text is looked for in all cells at once, and in the
    punctuation between them.

    Args:
        connection: The connection, which decides how SQL says it.
        text: The text as people know it.
        ignore_case: Whether upper and lower case are the same.
    """
    escaped = json.dumps(text, ensure_ascii=False)[1:-1]
    is_in_cells: ColumnElement[bool]
    if ignore_case:
        is_in_cells = IMPORTED_ROWS.cells.icontains(escaped, autoescape=True)
    elif connection.dialect.name == "postgresql":
        is_in_cells = func.strpos(IMPORTED_ROWS.cells, escaped) > 0
    else:
        is_in_cells = func.instr(IMPORTED_ROWS.cells, escaped) > 0

    return select(IMPORTED_ROWS.item_id).where(is_in_cells)


def _stored_row(row: Row[Any], table: ImportedTable) -> StoredRow:
    return StoredRow(row.stored_key, row.key, table, decode_cells(row.cells))
