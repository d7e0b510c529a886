"""Copying a campaign from one database to another, and removing it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from sqlalchemy import Column, Connection, Select, Table, delete, func, insert, select, text

from teeter.campaigns.db import schema
from teeter.campaigns.items import quote_id
from teeter.errors import InputError

__all__ = ["copy_rows", "delete_rows"]

_TABLES = (
    schema.classes,
    schema.items,
    schema.imported_tables,
    schema.imported_rows,
    schema.encodings,
    schema.vectors,
    schema.models,
    schema.batches,
    schema.picks,
    schema.answers,
    schema.decisions,
    schema.people,
    schema.label_studio,
    schema.label_studio_answers,
    schema.finishes,
    schema.certificates,
    schema.class_descriptions,
    schema.text_vectors,
    schema.sources,
    schema.suggestions,
    schema.model_replies,
    schema.shown_suggestions,
    schema.history,
)
"""The tables to copy, each after those that its foreign keys point to. Locks and answered
requests stay behind, and so do webhooks: two campaigns must not tell a receiver the same."""

_MOST_ROWS = 2000
"""Rows that are in memory at once."""

_TABLE_OF_DETAIL = {
    "answer": "answers",
    "decision": "decisions",
    "batch": "batches",
}
"""The entries of the history that hold a row id, and the table that it is in."""

NewIds = dict[str, dict[int, int]]
"""The new row id of every old one, by table."""


def copy_rows(
    source: Connection, target: Connection, campaign_id: int, new_campaign_id: int
) -> dict[str, int]:
    """Copy all rows of a campaign but the one in ``campaigns``.

    Row ids are given again, because the target may have campaigns already.

    Args:
        source: a connection to the campaign's database.
        target: a connection that may write.
        campaign_id: the campaign's row id in the source.
        new_campaign_id: its row id in the target.

    Returns:
        The number of rows by table.

    Raises:
        InputError: a text cannot be stored in the target.
    """
    # Filled table by table: the rows of a table are renumbered before others point to them.
    new_ids: NewIds = {"campaigns": {campaign_id: new_campaign_id}}
    counts = {}
    for table in _TABLES:
        counts[table.name] = _copy_table(source, target, table, campaign_id, new_ids)

    # SQLite takes the largest row id as the last one, PostgreSQL counts by itself.
    if target.dialect.name == "postgresql":
        _advance_sequences(target)

    return counts


def delete_rows(connection: Connection, campaign_id: int) -> None:
    """Delete a campaign and all its rows.

    Args:
        connection: a connection that may write.
        campaign_id: the campaign's row id.
    """
    # Those with foreign keys go before those that the keys point to.
    own_tables = (
        schema.locks,
        schema.answered_requests,
        schema.webhook_deliveries,
        schema.webhooks,
    )
    for table in (*own_tables, *reversed(_TABLES)):
        if "campaign_id" in table.c:
            is_of_campaign = table.c.campaign_id == campaign_id
        else:
            parent, foreign_key = _parent(table)
            parent_ids = select(parent.c.id).where(parent.c.campaign_id == campaign_id)
            is_of_campaign = foreign_key.in_(parent_ids)
        connection.execute(delete(table).where(is_of_campaign))

    connection.execute(delete(schema.campaigns).where(schema.campaigns.c.id == campaign_id))


def _copy_table(
    source: Connection, target: Connection, table: Table, campaign_id: int, new_ids: NewIds
) -> int:
    # Filled while the table is copied, so that rows of later tables find the new ids.
    ids_of_table = new_ids.setdefault(table.name, {})
    has_id = "id" in table.c
    next_id = _first_free_id(target, table) if has_id else 0
    count = 0

    for rows in _read_in_parts(source, _select_rows(table, campaign_id)):
        for row in rows:
            if target.dialect.name == "postgresql":
                _require_no_nul(source, row, table)
            _renumber_foreign_keys(row, table, new_ids)
            if table is schema.history:
                row["detail"] = _renumber_detail(row["detail"], new_ids)
            # After the foreign keys: a row never points to its own table.
            if has_id:
                ids_of_table[row["id"]] = next_id
                row["id"] = next_id
                next_id += 1

        target.execute(insert(table), rows)
        count += len(rows)

    return count


def _require_no_nul(source: Connection, row: Mapping[str, Any], table: Table) -> None:
    """Refuse a text with a NUL character, which only SQLite can store.

    Raises:
        InputError: names the item and the field, before the row is renumbered.
    """
    for column, value in row.items():
        if not isinstance(value, str) or "\0" not in value:
            continue

        item_id = row.get("key") or row.get("item")
        if "item_id" in row:
            query = select(schema.items.c.key).where(schema.items.c.id == row["item_id"])
            item_id = source.scalar(query)

        owner = "the campaign" if item_id is None else f"the item {quote_id(item_id)}"
        raise InputError(
            f"Cannot copy to PostgreSQL: {owner} has a NUL character in {table.name}.{column}, "
            "which PostgreSQL cannot store. Keep the campaign in a file, or create it again "
            "without that character."
        )


def _first_free_id(target: Connection, table: Table) -> int:
    return int(target.scalar(select(func.max(table.c.id))) or 0) + 1


def _renumber_foreign_keys(row: dict[str, Any], table: Table, new_ids: NewIds) -> None:
    for column in table.c:
        for foreign_key in column.foreign_keys:
            old_id = row[column.name]
            if old_id is not None:
                row[column.name] = new_ids[foreign_key.column.table.name][old_id]


def _renumber_detail(detail: str, new_ids: NewIds) -> str:
    """Return the detail of a line of the history with the new row ids."""
    entries = json.loads(detail)
    for name, table in _TABLE_OF_DETAIL.items():
        old_id = entries.get(name)
        if isinstance(old_id, int):
            # A number without a row stays as it is: the line is still true.
            entries[name] = new_ids[table].get(old_id, old_id)

    return json.dumps(entries)


def _select_rows(table: Table, campaign_id: int) -> Select[Any]:
    """Select a campaign's rows of a table, in the order in which they were written."""
    if "campaign_id" in table.c:
        return select(table).where(table.c.campaign_id == campaign_id).order_by(table.c.id)

    parent, foreign_key = _parent(table)
    order = [table.c.id] if "id" in table.c else list(table.primary_key)
    return (
        select(table)
        .join(parent, parent.c.id == foreign_key)
        .where(parent.c.campaign_id == campaign_id)
        .order_by(*order)
    )


def _parent(table: Table) -> tuple[Table, Column[Any]]:
    """Return the table that says whose row it is, and the column that points to that table."""
    if table is schema.picks:
        return schema.batches, table.c.batch_id
    # Not the items: no index begins with the item, so each would scan all vectors.
    if table is schema.vectors:
        return schema.encodings, table.c.encoding_id
    return schema.items, table.c.item_id


def _read_in_parts(source: Connection, query: Select[Any]) -> Iterator[list[dict[str, Any]]]:
    streamed = source.execution_options(yield_per=_MOST_ROWS).execute(query)
    for part in streamed.partitions(_MOST_ROWS):
        yield [dict(row._mapping) for row in part]


def _advance_sequences(target: Connection) -> None:
    """Let PostgreSQL's sequences continue after the row ids that were written."""
    for table in _TABLES:
        if "id" in table.c:
            # ``false``: the number is the next to be given, so that an empty table begins with 1.
            newest = f"(select coalesce(max(id), 0) + 1 from {table.name})"
            sequence = f"pg_get_serial_sequence('{table.name}', 'id')"
            target.execute(text(f"select setval({sequence}, {newest}, false)"))
