"""Numbered changes of the database schema.

A database runs the migrations that it lacks, in order; a new one runs them all. The first creates
the tables of schema 9, whose SQL is frozen in ``initial_schema``. So a change of the schema takes
two steps: change ``schema``, and append a migration that turns the tables of the previous version
into those, written in SQL or with tables of its own: ``schema`` goes on changing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import Column, Connection, Integer, MetaData, Table, Text, func, inspect, select

from teeter.campaigns.db.initial_schema import initial_statements
from teeter.errors import StoreError

__all__ = [
    "MIGRATIONS",
    "Migration",
    "is_campaign_database",
    "is_up_to_date",
    "migrate",
    "require_known_version",
]

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


# Unreleased versions of teeter had eight more, so that their files list the versions 1 to 9.
MIGRATIONS: tuple[Migration, ...] = (Migration(9, "initial", _create_tables),)
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
    require_known_version(version)

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


def require_known_version(version: int | None) -> None:
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


def is_campaign_database(connection: Connection) -> bool:
    """Return whether a database belongs to teeter, even if its tables were never completed."""
    return bool(inspect(connection).has_table(_applied.name))


def is_up_to_date(connection: Connection) -> bool:
    """Return whether a database lacks no migration and has no unknown one. Writes nothing."""
    if not is_campaign_database(connection):
        return False

    version = connection.scalar(select(func.max(_applied.c.version)))
    return bool(version == MIGRATIONS[-1].version)
