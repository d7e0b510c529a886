"""Migrations: each runs once and in order, all of them or none, and a newer database is refused."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import Connection, inspect, text

from campaigns.stores import POSTGRESQL_SLOW, begun, new_place
from teeter.campaigns.db import Database, schema
from teeter.campaigns.db.migrations import MIGRATIONS, Migration
from teeter.errors import StoreError

Apply = Callable[[Connection], None]

NAMES = [migration.name for migration in MIGRATIONS]
NEWEST = MIGRATIONS[-1].version


@pytest.fixture(params=POSTGRESQL_SLOW)
def location(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The location of a database of today's version, with a campaign of six items."""
    location = new_place(request.param, tmp_path)
    database = Database(location, create=True)
    begun(database)
    database.close()
    return location


def add_migrations(monkeypatch: pytest.MonkeyPatch, *changes: Apply) -> None:
    """Append made-up migrations, as a later version of teeter would have them."""
    newer = [
        Migration(version, f"change {version}", apply)
        for version, apply in enumerate(changes, start=NEWEST + 1)
    ]
    monkeypatch.setattr("teeter.campaigns.db.migrations.MIGRATIONS", (*MIGRATIONS, *newer))


def add_length_column(connection: Connection) -> None:
    """Give items a new column, filled from what is known of them."""
    connection.execute(text("alter table items add column length integer default 0 not null"))
    connection.execute(text("update items set length = length(content)"))


def add_notes_table(connection: Connection) -> None:
    """Add a table with a row for each item. It needs the column of the migration before."""
    connection.execute(
        text("create table notes (item_id integer primary key references items (id), note text)")
    )
    connection.execute(text("insert into notes select id, 'length ' || length from items"))


def read_column(location: str, query: str) -> list[object]:
    database = Database(location)
    with database.reading() as connection:
        values = list(connection.scalars(text(query)))
    database.close()
    return values


def read_everything(path: Path) -> list[str]:
    """Return the content of an SQLite file as SQL."""
    with closing(sqlite3.connect(path)) as connection:
        return list(connection.iterdump())


def test_a_new_database_has_every_table_and_every_migration_recorded(tmp_path: Path) -> None:
    database = Database(tmp_path / "campaign.teeter", create=True)
    with database.reading() as connection:
        tables = set(inspect(connection).get_table_names())
        recorded = connection.execute(text("select version, name from migrations")).all()
    database.close()

    assert tables == {"migrations", *schema.metadata.tables}
    assert recorded == [(migration.version, migration.name) for migration in MIGRATIONS]
    assert database.upgraded == NAMES


def test_versions_count_up_from_one() -> None:
    versions = [migration.version for migration in MIGRATIONS]
    assert versions == list(range(1, len(MIGRATIONS) + 1))


def test_an_older_database_is_upgraded_in_place_and_in_order(
    location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_migrations(monkeypatch, add_length_column, add_notes_table)

    database = Database(location)
    assert database.upgraded == [f"change {NEWEST + 1}", f"change {NEWEST + 2}"]
    database.close()

    assert read_column(location, "select note from notes") == ["length 6"] * 6
    versions = read_column(location, "select version from migrations order by version")
    assert versions == list(range(1, NEWEST + 3))

    reopened = Database(location)
    assert reopened.upgraded == [], "each migration runs once"
    reopened.close()


def test_a_new_database_does_not_run_the_migrations_of_old_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Connection) -> None:
        raise AssertionError("a new database has today's tables already")

    add_migrations(monkeypatch, fail)
    database = Database(tmp_path / "campaign.teeter", create=True)
    assert database.upgraded == [*NAMES, f"change {NEWEST + 1}"]
    database.close()


def test_a_newer_database_is_refused(location: str, monkeypatch: pytest.MonkeyPatch) -> None:
    add_migrations(monkeypatch, add_length_column)
    Database(location).close()
    monkeypatch.undo()

    message = (
        f"its schema has version {NEWEST + 1}, but this version of teeter supports only versions "
        f"up to {NEWEST}."
    )
    with pytest.raises(StoreError, match=message):
        Database(location)


def test_a_migration_that_fails_leaves_the_database_as_it_was(
    location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_in_the_middle(connection: Connection) -> None:
        connection.execute(text("delete from history"))
        connection.execute(text("insert into no_such_table values (1)"))

    add_migrations(monkeypatch, add_length_column, break_in_the_middle)
    with pytest.raises(StoreError, match="is damaged or is not a campaign"):
        Database(location)
    monkeypatch.undo()

    versions = read_column(location, "select version from migrations order by version")
    assert versions == list(range(1, NEWEST + 1))
    assert len(read_column(location, "select id from history")) == 3
    database = Database(location)
    with database.reading() as connection:
        columns = {column["name"] for column in inspect(connection).get_columns("items")}
    database.close()
    assert "length" not in columns


def test_a_migration_that_fails_leaves_every_row_of_a_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "campaign.teeter"
    database = Database(path, create=True)
    begun(database)
    database.close()
    before = read_everything(path)

    def break_at_the_end(connection: Connection) -> None:
        connection.execute(text("delete from answers"))
        connection.execute(text("insert into no_such_table values (1)"))

    add_migrations(monkeypatch, add_length_column, break_at_the_end)
    with pytest.raises(StoreError, match="is damaged"):
        Database(path)
    assert read_everything(path) == before
