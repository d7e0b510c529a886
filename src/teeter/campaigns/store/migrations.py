"""Numbered changes of the database schema.

A database runs the migrations that it lacks, in order; a new one runs them all. The first creates
the tables of schema 9, whose SQL is frozen in ``initial_schema``. So a change of the schema takes
two steps: change ``schema``, and append a migration that turns the tables of the previous version
into those, written in SQL or with tables of its own: ``schema`` goes on changing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

from sqlalchemy import (
    Column,
    Connection,
    Integer,
    MetaData,
    Table,
    Text,
    create_engine,
    func,
    inspect,
    select,
)

from teeter.campaigns.store.initial_schema import initial_statements
from teeter.errors import StoreError

# Not part of schema: this table must exist before any other is created or changed.
_applied = Table(
    "migrations",
    MetaData(),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("name", Text, nullable=False),
    Column("applied", Text, nullable=False),
)


@dataclass(frozen=True)
class Migration:
    """One change of the schema."""

    version: int
    name: str
    apply: Callable[[Connection], None]
    """Changes a database of the previous version, inside the transaction of a connection."""


def _create_tables(connection: Connection) -> None:
    for statement in initial_statements(connection.dialect.name):
        connection.exec_driver_sql(statement)


def _drop_answered_requests(connection: Connection) -> None:
    # It had the answers of requests with an Idempotency-Key. Repeats are seen by their content.
    connection.exec_driver_sql("DROP TABLE answered_requests")


# Unreleased versions of teeter had eight more, so that their files list the versions 1 to 9.
MIGRATIONS: tuple[Migration, ...] = (
    Migration(9, "initial", _create_tables),
    Migration(10, "answered requests dropped", _drop_answered_requests),
)
"""All migrations, in the order of their versions."""


def migrate(connection: Connection, now: str) -> list[str]:
    """Bring a database up to date inside the transaction of a connection.

    Args:
        connection: a connection that may write. The caller commits: all changes or none.
        now: the current time as it is stored.

    Returns:
        The names of the migrations that the database lacked.

    Raises:
        StoreError: its version is too old or too new for this version of teeter.
    """
    _applied.create(connection, checkfirst=True)
    version = connection.scalar(select(func.max(_applied.c.version)))
    _require_known_version(version)

    missing = [
        migration for migration in MIGRATIONS if version is None or migration.version > version
    ]
    for migration in missing:
        migration.apply(connection)
        row = {
            "version": migration.version,
            "name": migration.name,
            "applied": now,
        }
        connection.execute(_applied.insert().values(row))

    return [migration.name for migration in missing]


def _require_known_version(version: int | None) -> None:
    """Refuse a database whose schema this version of teeter does not know.

    Args:
        version: the newest migration that was applied to a database; None for a new one.

    Raises:
        StoreError: it is too old or too new.
    """
    oldest = MIGRATIONS[0].version
    newest = MIGRATIONS[-1].version

    if version is not None and version < oldest:
        raise StoreError(
            "An unreleased version of teeter, from before 0.1, made this campaign: its schema has "
            f"version {version}, but this version of teeter reads only versions from {oldest} on. "
            "Export the labels with the version that made it, and import them into a new campaign."
        )

    if version is not None and version > newest:
        raise StoreError(
            "A newer version of teeter wrote this campaign: its schema has version "
            f"{version}, but this version of teeter supports only versions up to {newest}. "
            "Update teeter to open it."
        )


def require_own_schema(execute: Callable[[str], Iterable[Any]], location: str) -> None:
    """Refuse an SQLite file with a trigger, view, table or index that teeter did not make.

    Such objects act on their own: a trigger may delete every answer that was just acknowledged.

    Args:
        execute: executes a statement and returns its rows.
        location: the path of the file, as users may read it.

    Raises:
        StoreError: there is such an object, one of teeter is missing, or the version of the schema
            is too old or too new.
    """
    # SQLite parses whatever is stored as the SQL, even a blob. Indexes of constraints have none.
    objects = _read_objects(execute)

    # Only a table that is our own is read: a view of its name could run for ever.
    version = None
    if set(objects) & set(_known_objects(())):
        ((version,),) = execute(f"SELECT max(version) FROM {_applied.name}")
        _require_known_version(version)

    applied = [
        migration
        for migration in MIGRATIONS
        if version is not None and migration.version <= version
    ]
    known = _known_objects(tuple(applied))
    allowed = {*known, *_SQLITE_OBJECTS}
    foreign = [schema_object for schema_object in objects if schema_object not in allowed]
    if foreign:
        kind, name, _, _ = foreign[0]
        raise StoreError(
            f"{location} was not opened, because teeter did not make its {f'{kind} {name}'!r}, "
            "which could change or delete answers without a word. If you added it yourself, "
            "remove it; otherwise do not trust the file."
        )

    missing = [schema_object for schema_object in known if schema_object not in objects]
    if version is not None and missing:
        kind, name, _, _ = missing[0]
        raise StoreError(
            f"{location} is damaged: it has no {kind} {name!r}, without "
            "which answers could be lost or stored twice. Restore a backup."
        )

    ((shared,),) = execute(
        "SELECT count(*) - count(DISTINCT rootpage) FROM sqlite_master WHERE rootpage > 0"
    )
    if shared:
        raise StoreError(
            f"{location} is damaged: two of its tables or indexes are stored in the same place. "
            "Restore a backup."
        )


_SchemaObject: TypeAlias = tuple[str, str, str, str]
"""A row of SQLite's table of its schema: ``table``, ``index``, ``trigger`` or ``view``; its name,
its table and its SQL.
"""


_SQLITE_OBJECTS = frozenset(
    ("table", name, name, f"CREATE TABLE {name}({columns})")
    for name, columns in (
        ("sqlite_sequence", "name,seq"),
        ("sqlite_stat1", "tbl,idx,stat"),
        ("sqlite_stat4", "tbl,idx,neq,nlt,ndlt,sample"),
    )
)
"""What SQLite itself adds to the schema of a file: ANALYZE writes statistics."""


def _read_objects(execute: Callable[[str], Iterable[Any]]) -> tuple[_SchemaObject, ...]:
    query = (
        "SELECT type, name, tbl_name, CAST(sql AS TEXT) FROM sqlite_master WHERE sql IS NOT NULL"
    )
    return tuple(
        (str(kind), str(name), str(table), _join_lines(sql))
        for kind, name, table, sql in execute(query)
    )


@cache
def _known_objects(migrations: tuple[Migration, ...]) -> tuple[_SchemaObject, ...]:
    """Return the tables and indexes of an SQLite file after some migrations."""
    engine = create_engine("sqlite://")
    with engine.begin() as connection:
        _applied.create(connection)
        for migration in migrations:
            migration.apply(connection)

        objects = _read_objects(connection.exec_driver_sql)
    engine.dispose()
    return objects


def _join_lines(sql: str) -> str:
    """Return a statement on one line, because ALTER TABLE breaks lines elsewhere."""
    # Only what SQLite takes for white space: a no-break space is a letter of a name to it.
    return re.sub(r"[ \t\r\n\f]+", " ", sql).strip(" ")


def is_campaign_database(connection: Connection) -> bool:
    """Return whether a database belongs to teeter, even if its tables were never completed."""
    return bool(inspect(connection).has_table(_applied.name))


def is_up_to_date(connection: Connection) -> bool:
    """Return whether a database lacks no migration and has no unknown one. Writes nothing."""
    if not is_campaign_database(connection):
        return False

    version = connection.scalar(select(func.max(_applied.c.version)))
    return bool(version == MIGRATIONS[-1].version)
