"""Campaigns moved from a file to a server and back: the same in all that people know, and they go on."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import Connection, Table, func, select
from sqlalchemy.exc import OperationalError

from campaigns.history_replay import replay_answers
from campaigns.stores import POSTGRESQL_SLOW, begun, shared_server
from teeter.campaigns.campaign import Campaign, Settings
from teeter.campaigns.db import Answer, Database, copy_campaign, schema
from teeter.campaigns.db.campaigns import list_campaigns
from teeter.campaigns.enums import AnswerKind
from teeter.campaigns.transfer import move_campaign, move_to
from teeter.errors import FileError, InputError, StoreError, UnknownNameError

Place = Callable[[str], str]

NUMBERS = ("answer", "batch", "decision")
"""What lines of the history name by the numbers of rows."""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Return a place for a store of a kind."""
    numbers = iter(range(100))
    return lambda kind: (
        str(tmp_path / f"{next(numbers)}.teeter")
        if kind == "sqlite"
        else shared_server().new_database()
    )


def lived(where: str) -> Campaign:
    """A campaign with everything in it: labels changed and taken back, batches, models, an audit sample."""
    rows = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
    settings = Settings(kind="features", audit=5, seed=7)
    campaign = Campaign.create(where, "points", ["left", "right"], settings)
    campaign.add({"id": f"p{k}", "features": row} for k, row in enumerate(rows))
    for question in campaign.ask(12, "ann"):
        campaign.tell(
            question.item, "right" if rows[int(question.item[1:]), 0] > 0 else "left", "ann"
        )
    campaign.train()
    waiting = campaign.ask(4, "bob")
    campaign.skip(waiting[0].item, "bob", comment="later")
    campaign.tell(waiting[1].item, "left", "bob")
    campaign.tell(waiting[1].item, "right", "bob")
    campaign.undo("bob")
    return campaign


def known(campaign: Campaign) -> dict[str, object]:
    """What people know of a campaign, without the numbers of rows."""
    with campaign.database.reading() as connection:
        repository = campaign.repository
        _, vectors = repository.items.features(connection)
        model = repository.models.newest(connection)
        return {
            "settings": campaign.settings,
            "classes": campaign.classes,
            "items": [
                (item.item_id, item.content, item.audit, item.added)
                for item in repository.items.all(connection)
            ],
            "features": vectors.tobytes(),
            "answers": repository.answers.live(connection),
            "open": repository.picks.open_picks(connection),
            "model": None if model is None else (model.version, model.weights, model.facts),
            "history": [
                {k: v for k, v in line.items() if k not in NUMBERS}
                for line in repository.history.lines(connection)
            ],
            "status": campaign.status(),
        }


@pytest.mark.parametrize(
    ("here", "there"),
    [
        ("sqlite", "postgresql"),
        ("postgresql", "sqlite"),
        pytest.param("sqlite", "sqlite", marks=pytest.mark.slow),
        pytest.param("postgresql", "postgresql", marks=pytest.mark.slow),
    ],
)
def test_it_is_the_same_there_and_goes_on(here: str, there: str, place: Place) -> None:
    campaign, target = lived(place(here)), place(there)
    before = known(campaign)
    store = Database(target, create=True)
    begun(store)  # another campaign is there already, so that rows get other numbers
    counts = move_campaign(campaign.database, store, "points")
    assert counts["items"] == 60
    moved = Campaign.open(target, "points")
    assert known(moved) == before == known(campaign)
    assert [one.item for one in moved.ask(6, "eve")] == [one.item for one in campaign.ask(6, "eve")]
    moved.tell(moved.ask(1, "eve")[0].item, "left", "eve")
    moved.train()
    assert moved.status().version == 2
    other = Campaign.open(target, "reviews")
    assert other.status().items == 6
    for one in (campaign.database, store, moved.database, other.database):
        one.close()


def test_what_cannot_be_moved_is_told_and_nothing_is_written(place: Place) -> None:
    campaign, store = lived(place("sqlite")), Database(place("sqlite"), create=True)
    with pytest.raises(
        UnknownNameError, match=r"No campaign is called 'point'. Did you mean 'points'\?"
    ):
        move_campaign(campaign.database, store, "point")
    move_campaign(campaign.database, store, "points")
    with pytest.raises(
        InputError, match="There is a campaign called 'points' where this one is to go"
    ):
        move_campaign(campaign.database, store, "points")
    campaign.database.close()
    store.close()


@pytest.mark.parametrize("kind", POSTGRESQL_SLOW)
def test_the_history_has_the_numbers_that_rows_have_after_a_move(
    kind: str, place: Place, tmp_path: Path
) -> None:
    before = Campaign.create(
        tmp_path / "before.teeter", "before", ["left", "right"], Settings(kind="features")
    )
    before.add([{"id": "q0", "features": np.ones(3, dtype=np.float32)}])
    before.ask(1, "zoe")
    before.database.close()
    source = lived(str(tmp_path / "before.teeter"))
    item, other = (one.item for one in source.ask(2, "cem"))
    for one in (item, other):
        source.tell(one, "left", "cem")
        source.confirm_label(one, "cem")
    source.undo("cem")  # what was kept last
    source.decide(item, "right", "rey")
    target = Database(place(kind), create=True)
    begun(target)
    for _ in range(2):  # numbers that another campaign of the target has given out
        elsewhere = Campaign.open(target.url.render_as_string(hide_password=False), "reviews")
        elsewhere.tell("a1", "good", "ann")
        elsewhere.undo("ann")
        elsewhere.decide("a1", "good", "zoe")
        elsewhere.database.close()
    move_campaign(source.database, target, "points")
    moved = Campaign.open(target.url.render_as_string(hide_password=False), "points")
    with source.database.reading() as old, moved.database.reading() as new:
        assert (
            source.repository.answers.confirmed_labels(old)
            == moved.repository.answers.confirmed_labels(new)
            == {item: "left"}
        )
        answers = {(one.item, one.annotator): one for one in moved.repository.answers.live(new)}
        of_item = select(schema.items.c.key).join_from(schema.items, schema.answers)
        for line in moved.history():
            if "answer" in line:
                assert (
                    new.scalar(of_item.where(schema.answers.c.id == line["answer"])) == line["item"]
                )
            if "batch" in line:
                name = select(schema.batches.c.annotator).where(
                    schema.batches.c.id == line["batch"]
                )
                assert new.scalar(name) == line["who"]
        (decided,) = (line["decision"] for line in moved.history() if "decision" in line)
        assert decided == new.scalar(select(func.max(schema.decisions.c.id)))
    assert replay_answers(moved.history()) == answers
    moved.confirm_label(other, "cem")
    moved.undo("cem")
    with moved.database.reading() as new:
        assert moved.repository.answers.confirmed_labels(new) == {item: "left"}
    assert replay_answers(moved.history()) == answers
    moved.database.close()
    source.database.close()
    target.close()


def test_a_move_to_a_file_that_failed_leaves_nothing_and_can_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = lived(str(tmp_path / "own.teeter"))
    whole = copy_campaign._copy_table

    def full(
        old: Connection, new: Connection, table: Table, campaign: int, ids: copy_campaign.NewIds
    ) -> int:
        if table is schema.answers:
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise OperationalError("insert", {}, error)
        return whole(old, new, table, campaign, ids)

    monkeypatch.setattr(copy_campaign, "_copy_table", full)
    with pytest.raises(StoreError, match=r"The disk of \S+/there\.teeter is full"):
        move_to(source.database, "points", str(tmp_path / "there.teeter"))
    assert [one.name for one in tmp_path.iterdir() if "there" in one.name] == []
    monkeypatch.undo()
    where, counts = move_to(source.database, "points", str(tmp_path / "there.teeter"))
    assert (where, counts["items"]) == (str(tmp_path / "there.teeter"), 60)
    moved = Campaign.open(where)
    assert known(moved) == known(source)
    moved.database.close()
    with pytest.raises(InputError, match="exists already: name a new file"):
        move_to(source.database, "points", where)
    with pytest.raises(FileError, match="there is no folder"):
        move_to(source.database, "points", str(tmp_path / "nowhere" / "there.teeter"))
    source.database.close()


def test_a_campaign_keeps_its_name_where_it_goes(tmp_path: Path) -> None:
    source = lived(str(tmp_path / "own.teeter"))
    url = shared_server().new_database()
    with pytest.raises(
        InputError,
        match=r"keeps its name where it goes, and this one is called 'points': give \S+\.",
    ):
        move_to(source.database, "points", f"{url}#others")
    move_to(source.database, "points", f"{url}#points")
    moved = Campaign.open(f"{url}#points")
    assert known(moved) == known(source)
    for one in (moved, source):
        one.database.close()


@pytest.mark.parametrize(
    ("statement", "place"),
    [
        ("update items set content = 'a' || char(0) where key = 'a3'", "items.content"),
        ("update answers set comment = 'a' || char(0)", "answers.comment"),
    ],
)
def test_a_nul_character_that_a_server_cannot_store_is_named_with_its_item(
    statement: str, place: str, tmp_path: Path
) -> None:
    path = tmp_path / "own.teeter"
    source = Database(path, create=True)
    repository = begun(source)
    with source.writing() as connection:
        answer = Answer("a3", "ann", AnswerKind.LABEL, "good", "seen")
        repository.answers.record(connection, answer)
        connection.exec_driver_sql(statement)

    target = Database(shared_server().new_database(), create=True)
    message = f"the item 'a3' has a NUL character in {place}, which PostgreSQL cannot store"
    with pytest.raises(InputError, match=message):
        move_campaign(source, target, "reviews")
    with target.reading() as connection:
        assert list_campaigns(connection) == {}

    elsewhere = Database(tmp_path / "other.teeter", create=True)
    assert move_campaign(source, elsewhere, "reviews")["items"] == 6
    for database in (source, target, elsewhere):
        database.close()
