"""Numbered changes of the database, each made once and recorded by its name; older files are brought up in place."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sqlalchemy import Column, Connection, MetaData, Table, Text, inspect, select, text

from teeter.campaigns.db import tables_0001, tables_0003, tables_0004
from teeter.errors import StoreError

__all__ = ["MIGRATIONS", "is_campaign_database", "is_up_to_date", "migrate", "require_known"]

_done = Table(
    "migrations",
    MetaData(),
    Column("name", Text, primary_key=True),
    Column("made", Text, nullable=False),
)


def _0001_tables(connection: Connection) -> None:
    tables_0001.metadata.create_all(connection)


def _0002_wide_seeds(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":  # SQLite's whole numbers have 64 bits anyway
        connection.execute(text("alter table batches alter column seed type bigint"))


def _0003_teams(connection: Connection) -> None:
    for statement in tables_0003.CHANGES:
        connection.execute(text(statement))
    tables_0003.metadata.create_all(connection)


def _0004_label_studio(connection: Connection) -> None:
    tables_0004.metadata.create_all(connection)


MIGRATIONS: tuple[tuple[str, Callable[[Connection], None]], ...] = (
    ("0001_tables", _0001_tables),
    ("0002_wide_seeds", _0002_wide_seeds),
    ("0003_teams", _0003_teams),
    ("0004_label_studio", _0004_label_studio),
)


def migrate(connection: Connection, now: str) -> list[str]:
    """Make the changes that a database lacks, and return their names; one from the future is refused."""
    _done.create(connection, checkfirst=True)
    made = set(connection.scalars(select(_done.c.name)))
    require_known(made)
    missing = [(name, change) for name, change in MIGRATIONS if name not in made]
    for name, change in missing:
        change(connection)
        connection.execute(_done.insert().values(name=name, made=now))
    return [name for name, _ in missing]


def require_known(made: Iterable[str]) -> None:
    """Refuse changes that only a newer teeter makes."""
    unknown = sorted(set(made) - {name for name, _ in MIGRATIONS})
    if unknown:
        raise StoreError(
            f"This campaign was written by a newer teeter ({unknown[-1]}): update teeter to open it."
        )


def is_campaign_database(connection: Connection) -> bool:
    """Tell whether a database is, or was to become, a campaign's."""
    return bool(inspect(connection).has_table("migrations"))


def is_up_to_date(connection: Connection) -> bool:
    """Tell without writing whether there is nothing to bring up."""
    if not is_campaign_database(connection):
        return False
    made = set(connection.scalars(text("select name from migrations")))
    return made == {name for name, _ in MIGRATIONS}
