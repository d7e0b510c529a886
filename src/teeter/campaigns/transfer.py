"""A campaign moved from one database to another, whole: from a file to a server and back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Select, Table, func, insert, select, text

from teeter.campaigns.backup import atomic_file
from teeter.campaigns.db import schema
from teeter.campaigns.db.database import Database
from teeter.campaigns.settings import settings_from_json, settings_to_dict
from teeter.errors import FileError, InputError, UnknownNameError
from teeter.registry import did_you_mean

__all__ = ["move_campaign", "move_to"]

_IN_ORDER = (
    schema.classes,
    schema.items,
    schema.features,
    schema.models,
    schema.batches,
    schema.picks,
    schema.answers,
    schema.decisions,
    schema.people,
    schema.label_studio,
    schema.label_studio_answers,
    schema.history,
)
"""Every table of a campaign; those that others point to come first."""

_SOME = 2000
"""Rows that are in memory at once."""

_NUMBERED = {"answer": "answers", "decision": "decisions", "batch": "batches"}
"""What lines of the history name by number, and in which table it is."""

Numbers = dict[str, dict[int, int]]
"""The new number of every old one, by table."""


def move_to(source: Database, name: str, to: str) -> tuple[str, dict[str, int]]:
    """Write a campaign to a new file, or to a database by its address; return where it is now, and how many rows.

    A file has its name only when all of it is there, so that a move that failed can be tried again.
    """
    if "://" in to:
        place, _, quote_id = to.partition("#")
        if quote_id not in ("", name):
            raise InputError(
                f"A campaign keeps its name where it goes, and this one is called {name!r}: give {place}."
            )
        return _moved(source, place, name)
    path = Path(to).absolute()
    if path.exists():
        raise InputError(f"{to} exists already: name a new file.")
    if not path.parent.is_dir():
        raise FileError(f"Cannot make {path}: there is no folder {path.parent}.")
    with atomic_file(path) as part:
        _, counts = _moved(source, part, name)
    return str(path), counts


def _moved(source: Database, to: str | Path, name: str) -> tuple[str, dict[str, int]]:
    target = Database(to, create=True)
    try:
        return target.said, move_campaign(source, target, name)
    finally:
        target.close()


def move_campaign(source: Database, target: Database, name: str) -> dict[str, int]:
    """Write a campaign of one database into another, and return how many rows of each table it has.

    All of it is there afterwards or nothing; the source is left as it was. Numbers of rows are given anew where the
    target has campaigns already; the ids that people know stay.
    """
    with source.reading() as old, target.writing() as new:
        campaign = _require_movable(old, new, name)
        values = {column: value for column, value in campaign.items() if column != "id"}
        settings = settings_from_json(campaign["settings"], source)
        if settings.folder is not None:
            values["settings"] = json.dumps(settings_to_dict(settings, target.path))
        (number,) = new.execute(insert(schema.campaigns).values(values)).inserted_primary_key or (
            0,
        )
        numbers: Numbers = {"campaigns": {campaign["id"]: int(number)}}
        counts = {
            table.name: _copy(old, new, table, campaign["id"], numbers) for table in _IN_ORDER
        }
        if new.dialect.name == "postgresql":
            _go_on_counting(new)
    return counts


def _require_movable(old: Connection, new: Connection, name: str) -> dict[str, Any]:
    found = {row.name: dict(row._mapping) for row in old.execute(select(schema.campaigns))}
    if name not in found:
        raise UnknownNameError(f"No campaign is called {name!r}. {did_you_mean(name, list(found))}")
    if new.scalar(select(schema.campaigns.c.id).where(schema.campaigns.c.name == name)) is not None:
        raise InputError(
            f"There is a campaign called {name!r} where this one is to go: nothing was moved."
        )
    return found[name]


def _copy(old: Connection, new: Connection, table: Table, campaign: int, numbers: Numbers) -> int:
    own = "id" in table.c
    following = (
        int(new.scalar(select(func.coalesce(func.max(table.c.id), 0))) or 0) + 1 if own else 0
    )
    mine = numbers.setdefault(table.name, {})
    count = 0
    for rows in _rows(old, _of_campaign(table, campaign)):
        for row in rows:
            for column in table.c:
                for pointer in column.foreign_keys:
                    if row[column.name] is not None:
                        row[column.name] = numbers[pointer.column.table.name][row[column.name]]
            if table is schema.history:
                row["detail"] = _renumbered(row["detail"], numbers)
            if own:
                mine[row["id"]] = following
                row["id"], following = following, following + 1
        new.execute(insert(table), rows)
        count += len(rows)
    return count


def _renumbered(detail: str, numbers: Numbers) -> str:
    """Return a line of the history with the numbers that its answer, decision or batch has now."""
    told = json.loads(detail)
    for name, table in _NUMBERED.items():
        if isinstance(told.get(name), int):
            told[name] = numbers[table].get(told[name], told[name])
    return json.dumps(told)


def _of_campaign(table: Table, campaign: int) -> Select[Any]:
    """Return what selects a campaign's rows of a table, in the order in which they were written."""
    if "campaign_id" in table.c:
        return select(table).where(table.c.campaign_id == campaign).order_by(table.c.id)
    parent = schema.batches if table is schema.picks else schema.items
    pointer = table.c.batch_id if table is schema.picks else table.c.item_id
    order = table.c.id if "id" in table.c else pointer
    return (
        select(table)
        .join(parent, parent.c.id == pointer)
        .where(parent.c.campaign_id == campaign)
        .order_by(order)
    )


def _rows(old: Connection, wanted: Select[Any]) -> Iterator[list[dict[str, Any]]]:
    for part in old.execution_options(yield_per=_SOME).execute(wanted).partitions(_SOME):
        yield [dict(row._mapping) for row in part]


def _go_on_counting(new: Connection) -> None:
    """Let PostgreSQL's own counters go on after the numbers that were written."""
    for table in _IN_ORDER:
        if "id" in table.c:
            new.execute(
                text(
                    f"select setval(pg_get_serial_sequence('{table.name}', 'id'), "
                    f"(select coalesce(max(id), 0) + 1 from {table.name}), false)"
                )
            )
