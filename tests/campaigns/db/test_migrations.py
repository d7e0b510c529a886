"""Files of the first version: opened by today's code with everything in them, and brought up whole or not at all."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import Connection, create_engine

from teeter.campaigns.campaign import Campaign
from teeter.campaigns.db import migrations
from teeter.campaigns.db import schema as db_schema
from teeter.campaigns.db.database import Database
from teeter.campaigns.db.repository import live_answers
from teeter.errors import StoreError

DUMP = Path(__file__).with_name("first_version.sql")
"""What the first version wrote: 24 items, labels that came along, answers of all kinds, one changed, one taken back, a
batch and a model. It is never made anew."""


@pytest.fixture
def first(tmp_path: Path) -> Path:
    path = tmp_path / "first.teeter"
    connection = sqlite3.connect(path)
    connection.executescript(DUMP.read_text(encoding="utf-8"))
    connection.close()
    return path


def content(path: Path) -> list[str]:
    connection = sqlite3.connect(path)
    lines = list(connection.iterdump())
    connection.close()
    return lines


def schema(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """The columns and indexes of every table, as SQLite tells them."""
    connection = sqlite3.connect(path)
    names = [
        name
        for (name,) in connection.execute("select name from sqlite_master where type = 'table'")
    ]
    told = {
        name: sorted(connection.execute(f"pragma table_info({name})"))
        + sorted(connection.execute(f"pragma foreign_key_list({name})"))
        + sorted(
            connection.execute(
                f'select name, unique_, origin from (select name, "unique" as unique_, origin '
                f"from pragma_index_list('{name}'))"
            )
        )
        for name in names
        if name != "migrations"
    }
    connection.close()
    return told


def test_everything_of_the_first_version_is_there(first: Path) -> None:
    campaign = Campaign.open(first)
    assert (campaign.name, campaign.classes, campaign.settings.audit) == (
        "colours",
        ("dark", "light"),
        3,
    )
    assert campaign.settings.instructions == "Is it dark?"
    status = campaign.status()
    assert (status.items, status.labelled, status.version, status.open) == (24, 8, 1, 3)
    assert status.by_class == {"dark": 3, "light": 5}
    assert (status.skipped, status.unsure, status.bad) == (1, 1, 1)
    assert [(one.item, one.arm) for one in campaign.ask(3, "ann")] == [
        ("v16", "picked"),
        ("v12", "audit"),
        ("v6", "picked"),
    ]
    history = campaign.history()
    assert [line["what"] for line in history].count("answer") == 13
    with campaign.database.reading() as connection:
        held = {(one.item, one.annotator): one for one in campaign.repository.answers(connection)}
    assert live_answers(history) == held
    assert held["v4", "ann"].comment == "seen twice"


def test_a_campaign_of_the_first_version_goes_on(first: Path) -> None:
    campaign = Campaign.open(first)
    for question in campaign.ask(8, "ann"):
        campaign.tell(question.item, "dark", "ann")
    assert campaign.train().version == 2
    assert "kappa" in campaign.history()[-1]
    campaign.confirm_label("v4", "ann")
    assert campaign.undo("ann") is not None


def test_what_was_asked_before_there_were_leases_stays_with_whom_it_was_asked_of(
    first: Path,
) -> None:
    campaign = Campaign.open(first)
    assert "0003_teams" in campaign.database.upgraded
    with campaign.database.reading() as connection:
        assert connection.exec_driver_sql("select distinct due from batches").fetchall() == [
            (None,)
        ]
        assert connection.exec_driver_sql(
            "select distinct people, missing from items"
        ).fetchall() == [(1, 0)]
    mine = {one.item for one in campaign.ask(3, "ann")}
    assert not mine & {one.item for one in campaign.ask(20, "bob")}
    assert campaign.settings.lease == 60
    assert campaign.agreement().alpha is None
    assert campaign.people.list() == []
    campaign.decide("v4", "dark", "rey")
    assert campaign.labels()["v4"].by == "rey"


def test_the_first_version_is_frozen(first: Path, tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'made.teeter'}")
    with engine.begin() as connection:
        migrations._0001_tables(connection)
    engine.dispose()
    assert schema(tmp_path / "made.teeter") == schema(first)


def test_the_migrations_lead_to_the_tables_of_today(tmp_path: Path) -> None:
    Database(tmp_path / "made.teeter", create=True).close()
    engine = create_engine(f"sqlite:///{tmp_path / 'today.teeter'}")
    db_schema.metadata.create_all(engine)
    engine.dispose()
    assert schema(tmp_path / "made.teeter") == schema(tmp_path / "today.teeter")


def with_second(monkeypatch: pytest.MonkeyPatch, change: Callable[[Connection], None]) -> None:
    monkeypatch.setattr(migrations, "MIGRATIONS", (*migrations.MIGRATIONS, ("0002_second", change)))


def rebuilt(connection: Connection) -> None:
    """Give items a column and a table of notes beside them, with what is known of each."""
    connection.exec_driver_sql("alter table items add column length integer not null default 0")
    connection.exec_driver_sql("update items set length = length(key)")
    connection.exec_driver_sql(
        "create table notes (item_id integer primary key references items (id), note text)"
    )
    connection.exec_driver_sql("insert into notes select id, 'from ' || added from items")


def test_a_second_version_takes_the_place_of_the_first(
    first: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = Campaign.open(first)
    told = (before.status(), before.history())
    before.database.close()
    with_second(monkeypatch, rebuilt)
    campaign = Campaign.open(first)
    assert campaign.database.upgraded == ["0002_second"]
    with campaign.database.reading() as connection:
        assert (
            connection.exec_driver_sql(
                "select count(*) from notes where note like 'from 20%'"
            ).scalar()
            == 24
        )
        assert (
            connection.exec_driver_sql("select sum(length) from items").scalar() == 10 * 2 + 14 * 3
        )
    assert (campaign.status(), campaign.history()) == told
    campaign.database.close()
    assert Campaign.open(first).database.upgraded == []
    monkeypatch.undo()
    with pytest.raises(StoreError, match=r"newer teeter \(0002_second\)"):
        Campaign.open(first)


def test_a_change_that_fails_in_the_middle_leaves_every_row_as_it_was(
    first: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Database(first).close()
    before = content(first)

    def fails(connection: Connection) -> None:
        rebuilt(connection)
        connection.exec_driver_sql("delete from answers")
        connection.exec_driver_sql("insert into no_such_table values (1)")

    with_second(monkeypatch, fails)
    with pytest.raises(StoreError, match="is damaged"):
        Database(first)
    assert content(first) == before
    monkeypatch.undo()
    assert Campaign.open(first).status().labelled == 8
