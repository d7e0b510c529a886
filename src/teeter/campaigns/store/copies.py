"""Copying a campaign from one database to another, and removing it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from sqlalchemy import Column, Connection, Select, Table, delete, func, insert, select, text

from teeter.base.registry import require_known
from teeter.campaigns.items.item import quote_id
from teeter.campaigns.settings import resolve_folder, settings_from_json, settings_to_dict
from teeter.campaigns.store import Database, schema
from teeter.campaigns.store.backup import atomic_file, copy_intact_backup
from teeter.campaigns.store.database import is_url, split_location
from teeter.campaigns.store.transaction import add_campaign, find_campaign, list_campaigns
from teeter.campaigns.trust import carry_trust, is_trusted_folder, trust_folder
from teeter.errors import FileError, InputError

_NOT_COPIED = (
    schema.campaigns,
    schema.locks,
    schema.webhooks,
    schema.webhook_deliveries,
    schema.history,
)

_TABLES = (
    *(table for table in schema.metadata.sorted_tables if table not in _NOT_COPIED),
    schema.history,
)
"""The tables to copy, each after those that its foreign keys point to, and the history after all
whose row ids it names. Locks stay behind, and so do webhooks: two campaigns must not tell a
receiver the same.
"""

_MOST_ROWS = 2000
"""Rows that are in memory at once."""

_TABLE_OF_DETAIL = {
    "answer": "answers",
    "decision": "decisions",
    "batch": "batches",
}
"""The entries of the history that hold a row id, and the table that it is in."""

_LINES_OF_SETTINGS = ("created", "settings")
"""Lines of the history whose entries are settings, of which one is called ``batch``, too."""

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
        # Let PostgreSQL's sequences continue after the row ids that were written.
        for counted in _TABLES:
            if "id" in counted.c:
                # ``false``: the number is the next to be given, so that an empty table begins
                # with 1.
                newest = f"(select coalesce(max(id), 0) + 1 from {counted.name})"
                sequence = f"pg_get_serial_sequence('{counted.name}', 'id')"
                target.execute(text(f"select setval({sequence}, {newest}, false)"))

    return counts


def delete_rows(connection: Connection, campaign_id: int) -> None:
    """Delete a campaign and all its rows.

    Args:
        campaign_id: the campaign's row id.
    """
    # Those with foreign keys go before those that the keys point to.
    own_tables = (
        schema.locks,
        schema.webhook_deliveries,
        schema.webhooks,
    )
    for table in (*own_tables, *reversed(_TABLES)):
        if "campaign_id" in table.c:
            is_of_campaign = table.c.campaign_id == campaign_id
        else:
            parent, foreign_key = _parent(table)
            has_parent = parent.c.campaign_id == campaign_id
            is_of_campaign = foreign_key.in_(select(parent.c.id).where(has_parent))
        connection.execute(delete(table).where(is_of_campaign))

    is_campaign = schema.campaigns.c.id == campaign_id
    connection.execute(delete(schema.campaigns).where(is_campaign))


def _copy_table(
    source: Connection, target: Connection, table: Table, campaign_id: int, new_ids: NewIds
) -> int:
    # Filled while the table is copied, so that rows of later tables find the new ids.
    ids_of_table = new_ids.setdefault(table.name, {})
    has_id = "id" in table.c
    next_id = 0
    if has_id:
        newest_id = target.scalar(select(func.max(table.c.id)))
        next_id = int(newest_id or 0) + 1
    count = 0

    streamed = source.execution_options(yield_per=_MOST_ROWS).execute(
        _select_rows(table, campaign_id)
    )
    for part in streamed.partitions(_MOST_ROWS):
        rows = [dict(row._mapping) for row in part]
        for row in rows:
            if target.dialect.name == "postgresql":
                _require_no_nul(source, row, table)
            for column in table.c:
                for foreign_key in column.foreign_keys:
                    old_id = row[column.name]
                    if old_id is not None:
                        parent = foreign_key.column.table
                        row[column.name] = new_ids[parent.name][old_id]
            if table is schema.answers and row["bulk"] is not None:
                row["bulk"] = ids_of_table[row["bulk"]]  # an earlier answer
            if table is schema.history and row["what"] not in _LINES_OF_SETTINGS:
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
            is_its_item = schema.items.c.id == row["item_id"]
            query = select(schema.items.c.key).where(is_its_item)
            item_id = source.scalar(query)

        owner = "the campaign"
        if item_id is not None:
            owner = f"the item {quote_id(item_id)}"
        raise InputError(
            f"Cannot copy to PostgreSQL: {owner} has a NUL character in {table.name}.{column}, "
            "which PostgreSQL cannot store. Keep the campaign in a file, or create it again "
            "without that character."
        )


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
        own = select(table).where(table.c.campaign_id == campaign_id)
        return own.order_by(table.c.id)

    parent, foreign_key = _parent(table)
    order = list(table.primary_key)
    if "id" in table.c:
        order = [table.c.id]
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


def copy_to_location(source: Database, name: str, location: str) -> tuple[str, dict[str, int]]:
    """Copy a campaign to a new file, or to a database by its URL.

    A file appears under its name only when it is complete, so a copy that failed can be repeated.

    Args:
        source: The database of the campaign.
        name: The campaign's name, which it keeps.
        location: The new file, or the URL of a database.

    Returns:
        Where the copy is, without a password, and the number of rows of each table.

    Raises:
        InputError: If the file or a campaign of this name already exists.
        FileError: If the file cannot be written.
        StoreError: If the database cannot be used.
    """
    if is_url(location):
        url, new_name = split_location(location)
        if new_name not in (None, name):
            raise InputError(
                f"A copy keeps the name of the campaign ({name!r}): leave out #{new_name}."
            )
        # A database is written in one transaction: a copy that fails leaves nothing behind.
        return _copy_to_database(source, name, url)

    path = Path(location).absolute()
    if path.exists():
        raise InputError(f"{location} already exists: choose another file.")
    if not path.parent.is_dir():
        raise FileError(f"Cannot create {path}: there is no folder {path.parent}.")

    with atomic_file(path) as part:
        _, counts = _copy_to_database(source, name, part)
    carry_trust(part, path)
    return str(path), counts


def _copy_to_database(
    source: Database, name: str, location: str | Path
) -> tuple[str, dict[str, int]]:
    with closing(Database(location, create=True)) as target:
        return target.display_url, copy_campaign(source, target, name)


def copy_campaign(
    source: Database,
    target: Database,
    name: str,
    *,
    overwrite: bool = False,
    folder: Path | None = None,
) -> dict[str, int]:
    """Copy a campaign from one database to another, in one transaction.

    The source stays as it is. Row ids change if the target has campaigns already; item ids and
    everything else that people see stay the same.

    Args:
        source: The database of the campaign.
        target: The database to copy it to.
        name: The campaign's name.
        overwrite: Whether a campaign of this name may be replaced.
        folder: Where the file of the source belongs, if it is a temporary copy of a backup.

    Returns:
        The number of rows of each table.

    Raises:
        UnknownNameError: If the source has no campaign of this name.
        InputError: If the target has one already.
    """
    # The reader sees one state throughout, so people may go on labelling meanwhile.
    with source.reading() as source_connection, target.writing() as target_connection:
        campaigns = list_campaigns(source_connection)
        require_known("campaign", name, campaigns)

        # Checked inside the transaction, so that two copies at once cannot both succeed.
        existing = list_campaigns(target_connection).get(name)
        if existing is not None and not overwrite:
            if folder is None:
                raise InputError(
                    f"Nothing was copied, because the target already has a campaign called "
                    f"{name!r}."
                )
            raise InputError(
                f"{target.display_url} already has a campaign called {name!r}: allow overwriting "
                "it, or restore it to another database."
            )
        if existing is not None:
            delete_rows(target_connection, existing.row_id)

        campaign = campaigns[name]
        settings = _copy_settings(campaign.settings, source, target, folder)
        campaign_id = add_campaign(target_connection, name, campaign.created, settings)
        return copy_rows(source_connection, target_connection, campaign.row_id, campaign_id)


def _copy_settings(
    stored_settings: str, source: Database, target: Database, folder: Path | None
) -> str:
    """Return the settings of a campaign as they are stored in another database.

    Args:
        stored_settings: The settings as JSON.
        source: The database that they are stored in.
        target: The database to store them in.
        folder: Where the file of the source belongs, if it is a temporary copy.
    """
    settings = settings_from_json(stored_settings, file=source.path, location=source.display_url)
    if settings.folder is None:
        return stored_settings

    # A folder of images is stored relative to the campaign's file, which is now another one.
    images = Path(settings.folder)
    if folder is not None and source.path is not None:
        copy_folder = source.path.resolve().parent
        if images.is_relative_to(copy_folder):
            images = folder.resolve() / images.relative_to(copy_folder)
    moved = replace(settings, folder=str(images))

    # Links are beside the backup, not beside its copy: only the real place says where they lead.
    if folder is None:
        may_use_images = is_trusted_folder(source, settings.folder)
    else:
        may_use_images = resolve_folder(str(images)).is_relative_to(folder.resolve())
    if may_use_images:
        trust_folder(target, moved.folder)
    return json.dumps(settings_to_dict(moved, target.path))


def restore_to_database(backup: Path, location: str, *, overwrite: bool = False) -> None:
    """Copy a campaign from a backup to a database, if the backup is intact.

    Stop the server of the campaign first: it would not notice that its campaign was replaced.

    Args:
        backup: A campaign's file.
        location: The URL of the database, with ``#NAME`` if the backup has several campaigns.
        overwrite: Whether a campaign of this name may be replaced, in the same transaction.

    Raises:
        FileError: If the backup is missing or cannot be read.
        InputError: If the campaign exists and may not be replaced.
        UnknownNameError: If the backup has no campaign of this name.
        StoreError: If the backup is damaged, or the database cannot be used.
    """
    url, name = split_location(location)

    with copy_intact_backup(backup) as copy, closing(Database(copy)) as source:
        campaign = find_campaign(source, name)
        with closing(Database(url, create=True)) as target:
            copy_campaign(source, target, campaign.name, overwrite=overwrite, folder=backup.parent)
