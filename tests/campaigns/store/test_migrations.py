"""Migrations: each runs once and in order, all of them or none, and a newer database is refused."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import Connection, inspect, text

from campaigns.stores import POSTGRESQL_SLOW, begun, new_place
from teeter.campaigns.campaign import Campaign
from teeter.campaigns.store import Database, schema
from teeter.campaigns.store.backup import restore
from teeter.campaigns.store.copies import restore_to_database
from teeter.campaigns.store.migrations import MIGRATIONS, Migration
from teeter.errors import StoreError

Apply = Callable[[Connection], None]

NAMES = [migration.name for migration in MIGRATIONS]
NEWEST = MIGRATIONS[-1].version

DATA = Path(__file__).parents[1] / "data"

STORED_FILES = sorted(DATA.glob("schema_*.teeter"), key=lambda path: int(path.stem[7:]))
"""A campaign file of each version of the schema, with two campaigns: one with answers, a decision
and a promise, and one with a table, descriptions, suggestions and a webhook. Never changed."""


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
    monkeypatch.setattr("teeter.campaigns.store.migrations.MIGRATIONS", (*MIGRATIONS, *newer))


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


@pytest.mark.parametrize("kind", POSTGRESQL_SLOW)
def test_tables_made_by_migrations_equal_tables_made_new(kind: str, tmp_path: Path) -> None:
    database = Database(new_place(kind, tmp_path), create=True)
    with database.reading() as connection:
        by_migrations = describe_tables(connection)

    with database.writing() as connection:
        schema.metadata.drop_all(connection)
        schema.metadata.create_all(connection)
    with database.reading() as connection:
        assert describe_tables(connection) == by_migrations
    database.close()


def describe_tables(connection: Connection) -> dict[str, list[object]]:
    """Return what the database itself says of each table."""
    inspector = inspect(connection)

    descriptions = {}
    for table in inspector.get_table_names():
        columns = inspector.get_columns(table)
        for column in columns:
            column["type"] = str(column["type"])
        indexes = inspector.get_indexes(table)
        for index in indexes:
            options = index.pop("dialect_options", {})
            index["where"] = {name: str(option) for name, option in options.items()}

        descriptions[table] = [
            columns,
            inspector.get_pk_constraint(table),
            inspector.get_foreign_keys(table),
            inspector.get_unique_constraints(table),
            inspector.get_check_constraints(table),
            indexes,
        ]
    return descriptions


def test_the_versions_of_migrations_count_up() -> None:
    versions = [migration.version for migration in MIGRATIONS]
    assert versions == list(range(9, 9 + len(MIGRATIONS)))


def test_every_version_has_a_stored_file() -> None:
    versions = [int(path.stem.removeprefix("schema_")) for path in STORED_FILES]
    assert sorted(versions) == [migration.version for migration in MIGRATIONS]


@pytest.mark.parametrize("stored", STORED_FILES, ids=lambda path: path.stem)
def test_a_stored_file_opens_with_all_its_rows(stored: Path, tmp_path: Path) -> None:
    path = tmp_path / "campaign.teeter"
    shutil.copy(stored, path)
    before = count_rows(path)

    promised = Campaign.open(path, "small")
    assert promised.status().items == 149  # and one that was withdrawn
    assert promised.finish.look().is_started
    assert [certificate.id for certificate in promised.finish.certificates()] == [
        "8daf32924daee3fd"
    ]
    promised.database.close()
    described = Campaign.open(path, "letters")
    assert described.items.row("t3")["amount"] == 4.5
    assert described.suggestions.sources()[0].items == 16
    described.database.close()

    after = count_rows(path)
    del before["migrations"], after["migrations"]
    before.pop("answered_requests", None)  # the migration to version 10 dropped it
    before.setdefault("near_copies", 0)  # that to version 12 added it
    assert after == before
    assert {"answers": 136, "models": 2, "decisions": 1, "finishes": 1}.items() <= after.items()

    described = Campaign.open(path, "letters")
    described.tell(described.ask(1)[0].item, "card")
    assert described.train().version == 2
    described.database.close()


def test_the_audit_set_of_an_older_file_is_the_holdout(tmp_path: Path) -> None:
    path = tmp_path / "campaign.teeter"
    shutil.copy(DATA / "schema_13.teeter", path)
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            """
            UPDATE items SET audit = 1 WHERE id IN (SELECT item_id FROM picks LIMIT 5);
            UPDATE picks SET arm = 'audit' WHERE id IN (SELECT id FROM picks LIMIT 5);
            UPDATE campaigns SET settings = replace(settings, '"audit": 0', '"audit": 5');
            INSERT INTO history (campaign_id, at, who, what, detail)
                VALUES (1, '', 'me', 'audit', '{"items": ["n1"]}');
            UPDATE history SET detail = '{"picks": [{"item": "n1", "arm": "audit"}]}'
                WHERE id = (SELECT min(id) FROM history WHERE what = 'asked');
            INSERT INTO history (campaign_id, at, who, what, detail)
                VALUES (1, '', 'me', 'columns changed', '{"audit": "a column of the user"}');
            """
        )
        connection.commit()

    campaign = Campaign.open(path, "small")
    assert campaign.settings.holdout == 5
    with campaign.reading() as view:
        assert len(view.items.holdout()) == 5
        lines = view.history.lines()
        assert [model.facts["holdout"] for model in view.models.summaries()] == [[0, 0]]
    campaign.database.close()

    by_change = {line["what"]: line for line in lines}
    assert "audit" not in by_change
    assert by_change["holdout"]["items"] == ["n1"]
    assert by_change["columns changed"]["audit"] == "a column of the user"
    assert next(line for line in lines if line["what"] == "created")["holdout"] == 0
    asked = next(line for line in lines if line["what"] == "asked")
    assert asked["picks"] == [{"item": "n1", "arm": "holdout"}]
    with closing(sqlite3.connect(path)) as connection:
        arms = connection.execute("SELECT count(*) FROM picks WHERE arm = 'holdout'")
        assert arms.fetchone() == (5,)


def count_rows(path: Path) -> dict[str, int]:
    with closing(sqlite3.connect(path)) as connection:
        tables = connection.execute("select name from sqlite_master where type = 'table'")
        return {
            table: connection.execute(f"select count(*) from {table}").fetchone()[0]
            for (table,) in tables.fetchall()
        }


def test_a_file_of_an_unreleased_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "old.teeter"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript((DATA / "schema_1.sql").read_text())
    before = read_everything(path)

    message = (
        "An unreleased version of teeter, from before 0.1, made this campaign: its schema has "
        "version 1, but this version of teeter reads only versions from 9 on. Export the labels"
    )
    with pytest.raises(StoreError, match=message):
        Database(path)
    with pytest.raises(StoreError, match=message):
        restore(path, tmp_path / "new.teeter")

    assert read_everything(path) == before


FOREIGN_OBJECTS = {
    "trigger thief": "create trigger thief after insert on answers begin delete from answers; end",
    "view spy": "create view spy as select * from people",
    "table notes": "create table notes (text)",
    "index items_by_kind": "create index items_by_kind on items (kind)",
    "table locks": "alter table locks add column holder_2 text default (randomblob(1000000000))",
    "table history": "update sqlite_master set sql = replace(sql, 'who TEXT NOT NULL', "
    "'who TEXT NOT NULL CHECK (who <> ''ann'')') where name = 'history'",
    "table campaigns": "update sqlite_master set sql = cast(replace(sql, 'UNIQUE (name)', "
    "'UNIQUE (name), CHECK (id > 5)') as blob) where name = 'campaigns'",
    "table people": "update sqlite_master set sql = replace(sql, 'id INTEGER NOT NULL', "
    "'id INTEGER NOT' || char(160) || 'NULL') where name = 'people'",
    "table migrations": "update sqlite_master set sql = replace(sql, 'name TEXT', 'name BLOB') "
    "where name = 'migrations'",
}
"""What strangers may put into a file, by the type and name that the message names."""


@pytest.mark.parametrize("name", FOREIGN_OBJECTS)
def test_a_file_with_a_schema_that_teeter_did_not_make_is_refused(
    name: str, tmp_path: Path
) -> None:
    path = tmp_path / "campaign.teeter"
    shutil.copy(STORED_FILES[-1], path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("pragma writable_schema = on")
        connection.execute(FOREIGN_OBJECTS[name])
    content = path.read_bytes()

    message = f"campaign.teeter was not opened, because teeter did not make its '{name}'"
    with pytest.raises(StoreError, match=message):
        Campaign.open(path, "small")
    with pytest.raises(StoreError, match=message):
        restore(path, tmp_path / "new.teeter")
    with pytest.raises(StoreError, match=message):
        restore_to_database(path, f"sqlite:///{tmp_path / 'copy.teeter'}#small")

    # All but the mark of the write-ahead log, in the head of the file.
    assert path.read_bytes()[100:] == content[100:]


MISSING_OBJECTS = {
    "table 'webhooks'": "drop table webhooks",
    "index 'items_withdrawn'": "drop index items_withdrawn",
}
"""What a file may lack, by the type and name that the message names."""


@pytest.mark.parametrize("name", MISSING_OBJECTS)
def test_a_file_that_lacks_a_table_or_an_index_is_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "campaign.teeter"
    shutil.copy(STORED_FILES[-1], path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(MISSING_OBJECTS[name])

    message = f"campaign.teeter is damaged: it has no {name}.* Restore a backup"
    with pytest.raises(StoreError, match=message):
        Database(path)
    with pytest.raises(StoreError, match=message):
        restore(path, tmp_path / "new.teeter")


def test_a_table_in_the_place_of_another_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "campaign.teeter"
    shutil.copy(STORED_FILES[-1], path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("pragma writable_schema = on")
        connection.execute(
            "update sqlite_master set rootpage = "
            "(select rootpage from sqlite_master where name = 'campaigns') where name = 'items'"
        )

    with pytest.raises(StoreError, match="two of its tables or indexes are stored in the same"):
        Database(path)


def test_a_foreign_trigger_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "campaign.teeter"
    shutil.copy(STORED_FILES[-1], path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(FOREIGN_OBJECTS["trigger thief"])
        connection.execute("pragma writable_schema = on")
        connection.execute(
            "update sqlite_master set sql = cast(cast(sql || ' -- ' as blob) || x'ff' as text) "
            "where type = 'trigger'"
        )

    with pytest.raises(StoreError, match="is damaged"):
        Database(path)


def test_statistics_and_columns_that_were_added_are_no_foreign_objects(tmp_path: Path) -> None:
    path = tmp_path / "campaign.teeter"
    shutil.copy(STORED_FILES[-1], path)
    with closing(sqlite3.connect(path)) as connection, connection:
        # As unreleased versions added the column: SQLite breaks the lines elsewhere.
        connection.execute("drop index items_withdrawn")
        connection.execute("alter table items drop column withdrawn")
        connection.execute("alter table items add column withdrawn TEXT")
        connection.execute(
            "CREATE INDEX items_withdrawn ON items (campaign_id) WHERE withdrawn IS NOT NULL"
        )
        connection.execute("analyze")

    Database(path).close()
    restore(path, tmp_path / "new.teeter")


def test_an_older_database_is_upgraded_in_place_and_in_order(
    location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_migrations(monkeypatch, add_length_column, add_notes_table)

    database = Database(location)
    assert database.upgraded == [f"change {NEWEST + 1}", f"change {NEWEST + 2}"]
    database.close()

    assert read_column(location, "select note from notes") == ["length 6"] * 6
    versions = read_column(location, "select version from migrations order by version")
    assert versions == list(range(9, NEWEST + 3))

    reopened = Database(location)
    assert reopened.upgraded == [], "each migration runs once"
    reopened.close()


def test_a_new_database_runs_every_migration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_migrations(monkeypatch, add_length_column)
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
    assert versions == list(range(9, NEWEST + 1))
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
