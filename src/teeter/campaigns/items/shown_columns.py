"""The columns of an item that annotators see beside it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from teeter.campaigns.items.columns import format_cell, replace_surrogates, require_columns
from teeter.campaigns.items.item import Item
from teeter.campaigns.store import CampaignRepository, Connection

__all__ = ["MAX_SHOWN_CELL", "read_shown_columns", "require_shown_columns"]

MAX_SHOWN_CELL = 4_000
"""Characters of a cell that are shown. Long texts belong into the text of the item."""


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
    repository: CampaignRepository,
    connection: Connection,
    names: Sequence[str],
    row_ids: Sequence[int],
) -> dict[int, dict[str, str]]:
    """Return what annotators see of the columns of items.

    Args:
        repository: The campaign's rows.
        connection: An open connection.
        names: The columns to show, in their order.
        row_ids: The row ids of the items.

    Returns:
        For each item with columns, by its row id, the cells that are not empty, as texts.
    """
    if not names:
        return {}

    shown = {}
    for row_id, row in repository.tables.for_items(connection, row_ids).items():
        values = row.values()
        cells = {name: format_cell(values.get(name)) for name in names}
        shown[row_id] = {name: _shorten(cell) for name, cell in cells.items() if cell.strip()}
    return shown


def _shorten(cell: str) -> str:
    cell = replace_surrogates(cell)
    if len(cell) <= MAX_SHOWN_CELL:
        return cell
    return f"{cell[:MAX_SHOWN_CELL]}… ({len(cell):,} characters)"
