"""Campaigns copied from a file to a server and back: the same for people, and ready to continue."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import Connection, Table, event, func, select
from sqlalchemy.exc import OperationalError

from campaigns.history_replay import replay_answers
from campaigns.stores import POSTGRESQL_SLOW, begun, shared_server
from teeter.campaigns.campaign import Campaign
from teeter.campaigns.records import Answer, AnswerKind
from teeter.campaigns.settings import Settings
from teeter.campaigns.store import Database, copies, schema
from teeter.campaigns.store.copies import copy_campaign, copy_to_location
from teeter.campaigns.store.transaction import list_campaigns
from teeter.errors import FileError, InputError, StoreError, UnknownNameError

Location = Callable[[str], str]

ROW_IDS = ("answer", "batch", "decision")
"""Entries of the history that hold the id of a row, which a copy may change."""


@pytest.fixture
def new_location(tmp_path: Path) -> Location:
    """A function that returns an unused location in a kind of database."""
    numbers = itertools.count()

    def make_location(kind: str) -> str:
        if kind == "sqlite":
            return str(tmp_path / f"{next(numbers)}.teeter")
        return shared_server().new_database()

    return make_location


def create_used_campaign(location: str) -> Campaign:
    """Create a campaign with answers changed and undone, batches, a model and a holdout."""
    rows = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
    settings = Settings(kind="features", holdout=5, seed=7)
    campaign = Campaign.make([], ["left", "right"], at=location, name="points", settings=settings)
    campaign.add({"id": f"p{k}", "features": row} for k, row in enumerate(rows))

    for question in campaign.ask(12, "ann"):
        is_right = rows[int(question.item[1:]), 0] > 0
        campaign.tell(question.item, "right" if is_right else "left", "ann")
    campaign.train()

    first, second, *_ = campaign.ask(4, "bob")
    campaign.skip(first.item, "bob", comment="later")
    campaign.tell(second.item, "left", "bob")
    campaign.tell(second.item, "right", "bob")
    campaign.undo("bob")
    return campaign


def ask_items(campaign: Campaign, n: int, annotator: str) -> list[str]:
    return [question.item for question in campaign.ask(n, annotator)]


def describe(campaign: Campaign) -> dict[str, object]:
    """Return everything that people see of a campaign, without row ids."""
    status = campaign.status()
    with campaign.reading() as view:
        vectors = view.encodings.read().vectors
        model = view.models.newest()

        return {
            "settings": view.settings,
            "classes": view.classes.names(),
            "items": [
                (item.item_id, item.content, item.holdout, item.added) for item in view.items.all()
            ],
            "features": vectors.tobytes(),
            "answers": view.answers.live(),
            "open": view.picks.open_picks(),
            "model": None if model is None else (model.version, model.weights, model.facts),
            "history": [
                {k: v for k, v in line.items() if k not in ROW_IDS} for line in view.history.lines()
            ],
            "status": status,
        }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source_kind", "target_kind"),
    [
        ("sqlite", "postgresql"),
        pytest.param("postgresql", "sqlite", marks=pytest.mark.slow),
        pytest.param("sqlite", "sqlite", marks=pytest.mark.slow),
        pytest.param("postgresql", "postgresql", marks=pytest.mark.slow),
    ],
)
def test_a_copy_is_the_same_and_can_be_continued(
    source_kind: str, target_kind: str, new_location: Location
) -> None:
    campaign = create_used_campaign(new_location(source_kind))
    before = describe(campaign)
    location = new_location(target_kind)
    target = Database(location, create=True)
    begun(target)  # another campaign, so that the copy gets other row ids

    counts = copy_campaign(campaign.database, target, "points")

    assert counts["items"] == 60
    copy = Campaign.open(location, "points")
    assert describe(copy) == before == describe(campaign)
    assert ask_items(copy, 6, "eve") == ask_items(campaign, 6, "eve")
    copy.tell(ask_items(copy, 1, "eve")[0], "left", "eve")
    copy.train()
    assert copy.status().version == 2
    other = Campaign.open(location, "reviews")
    assert other.status().items == 6
    for database in (campaign.database, target, copy.database, other.database):
        database.close()


def test_an_unknown_name_and_a_taken_name_are_refused(new_location: Location) -> None:
    campaign = create_used_campaign(new_location("sqlite"))
    target = Database(new_location("sqlite"), create=True)

    with pytest.raises(
        UnknownNameError, match=r"No campaign is called 'point'. Did you mean 'points'\?"
    ):
        copy_campaign(campaign.database, target, "point")

    copy_campaign(campaign.database, target, "points")
    with pytest.raises(InputError, match="the target already has a campaign called 'points'"):
        copy_campaign(campaign.database, target, "points")

    campaign.database.close()
    target.close()


@pytest.mark.parametrize("kind", POSTGRESQL_SLOW)
def test_answers_of_one_key_press_stay_together_in_a_copy(
    kind: str, new_location: Location, tmp_path: Path
) -> None:
    settings = Settings(kind="features", copies=0.9)
    source = Campaign.make([], ["left", "right"], at=tmp_path / "source.teeter", settings=settings)
    source.add([{"id": f"p{k}", "features": [1.0, k / 50, 0.0]} for k in range(4)])
    source.add([{"id": f"q{k}", "features": [0.0, k / 50, 1.0]} for k in range(3)])
    source.tell("p1", "left", copies=True)
    source.tell_all(["q0", "q1", "q2"], "right")

    target = Database(new_location(kind), create=True)
    begun(target)
    elsewhere = Campaign.open(target.url.render_as_string(hide_password=False), "reviews")
    elsewhere.tell("a1", "good", "ann")
    elsewhere.database.close()
    copy_campaign(source.database, target, "source")
    copy = Campaign.open(target.url.render_as_string(hide_password=False), "source")

    assert copy.items.get("p0").copies == ["p1", "p2", "p3"]
    with copy.reading() as view:
        assert view.answers.copied_items() == [("p0", "p1"), ("p2", "p1"), ("p3", "p1")]
    for count in (3, 4):
        undone = copy.undo()
        assert undone is not None
        assert undone.count == count
    assert copy.labels() == {}
    for database in (copy.database, source.database, target):
        database.close()


@pytest.mark.parametrize("kind", POSTGRESQL_SLOW)
def test_the_history_of_a_copy_has_the_new_row_ids(
    kind: str, new_location: Location, tmp_path: Path
) -> None:
    earlier = Campaign.make(
        [], ["left", "right"], at=tmp_path / "before.teeter", settings=Settings(kind="features")
    )
    earlier.add([{"id": "q0", "features": np.ones(3, dtype=np.float32)}])
    earlier.ask(1, "zoe")
    earlier.database.close()

    source = create_used_campaign(f"sqlite:///{tmp_path}/before.teeter")
    first, second = ask_items(source, 2, "cem")
    for item in (first, second):
        source.tell(item, "left", "cem")
        source.confirm_label(item, "cem")
    source.undo("cem")  # the last confirmation
    source.review.decide(first, "right", "rey")

    target = Database(new_location(kind), create=True)
    begun(target)
    for _ in range(2):  # numbers that another campaign of the target has given out
        elsewhere = Campaign.open(target.url.render_as_string(hide_password=False), "reviews")
        elsewhere.tell("a1", "good", "ann")
        elsewhere.undo("ann")
        elsewhere.review.decide("a1", "good", "zoe")
        elsewhere.database.close()

    copy_campaign(source.database, target, "points")
    copy = Campaign.open(target.url.render_as_string(hide_password=False), "points")

    history = copy.history()
    with source.reading() as old, copy.reading() as view:
        assert old.answers.confirmed_labels() == view.answers.confirmed_labels() == {first: "left"}
        new = view.connection

        answers = {(answer.item, answer.annotator): answer for answer in view.answers.live()}
        of_item = select(schema.items.c.key).join_from(schema.items, schema.answers)
        for line in history:
            if "answer" in line:
                assert (
                    new.scalar(of_item.where(schema.answers.c.id == line["answer"])) == line["item"]
                )
            if "batch" in line and line["what"] != "created":
                name = select(schema.batches.c.annotator).where(
                    schema.batches.c.id == line["batch"]
                )
                assert new.scalar(name) == line["who"]

        (decided,) = (line["decision"] for line in history if "decision" in line)
        assert decided == new.scalar(select(func.max(schema.decisions.c.id)))

    assert replay_answers(copy.history()) == answers
    copy.confirm_label(second, "cem")
    copy.undo("cem")

    with copy.reading() as view:
        assert view.answers.confirmed_labels() == {first: "left"}
    assert replay_answers(copy.history()) == answers

    copy.database.close()
    source.database.close()
    target.close()


def test_a_failed_copy_to_a_file_leaves_nothing_and_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = create_used_campaign(str(tmp_path / "own.teeter"))
    copy_table = copies._copy_table

    def copy_until_the_disk_is_full(
        old: Connection, new: Connection, table: Table, campaign: int, ids: copies.NewIds
    ) -> int:
        if table is schema.answers:
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise OperationalError("insert", {}, error)
        return copy_table(old, new, table, campaign, ids)

    monkeypatch.setattr(copies, "_copy_table", copy_until_the_disk_is_full)
    with pytest.raises(StoreError, match=r"The disk of \S+/there\.teeter is full"):
        copy_to_location(source.database, "points", str(tmp_path / "there.teeter"))
    assert [path.name for path in tmp_path.iterdir() if "there" in path.name] == []
    monkeypatch.undo()
    location, counts = copy_to_location(source.database, "points", str(tmp_path / "there.teeter"))
    assert (location, counts["items"]) == (str(tmp_path / "there.teeter"), 60)
    copy = Campaign.open(location)
    assert describe(copy) == describe(source)
    copy.database.close()
    with pytest.raises(InputError, match="already exists: choose another file"):
        copy_to_location(source.database, "points", location)
    with pytest.raises(FileError, match="there is no folder"):
        copy_to_location(source.database, "points", str(tmp_path / "nowhere" / "there.teeter"))
    source.database.close()


@pytest.mark.slow
def test_a_copy_keeps_the_name_of_the_campaign(tmp_path: Path) -> None:
    source = create_used_campaign(str(tmp_path / "own.teeter"))
    url = shared_server().new_database()

    with pytest.raises(
        InputError,
        match=r"keeps the name of the campaign \('points'\): leave out #others",
    ):
        copy_to_location(source.database, "points", f"{url}#others")

    copy_to_location(source.database, "points", f"{url}#points")
    moved = Campaign.open(f"{url}#points")
    assert describe(moved) == describe(source)
    for campaign in (moved, source):
        campaign.database.close()


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
    with begun(source).writing() as change:
        change.answers.record(Answer("a3", "ann", AnswerKind.LABEL, "good", "seen"))
        change.connection.exec_driver_sql(statement)

    target = Database(shared_server().new_database(), create=True)
    message = f"the item 'a3' has a NUL character in {place}, which PostgreSQL cannot store"
    with pytest.raises(InputError, match=message):
        copy_campaign(source, target, "reviews")
    with target.reading() as connection:
        assert list_campaigns(connection) == {}

    elsewhere = Database(tmp_path / "other.teeter", create=True)
    assert copy_campaign(source, elsewhere, "reviews")["items"] == 6
    for database in (source, target, elsewhere):
        database.close()


def count_steps_of_copy(items: int, folder: Path) -> int:
    """Copy a campaign to a file, and return how many hundred steps SQLite took to read it."""
    settings = Settings(kind="features")
    source = Campaign.make(
        [], ["left", "right"], at=folder / f"{items}.teeter", name="points", settings=settings
    )
    source.add({"id": str(k), "features": [float(k)]} for k in range(items))
    for question in source.ask(10):
        source.tell(question.item, "left")
    source.database.close()

    steps = 0

    def count_step() -> None:
        nonlocal steps
        steps += 1

    def count_steps(connection: sqlite3.Connection, _: object) -> None:
        connection.set_progress_handler(count_step, 100)

    opened = Database(folder / f"{items}.teeter")
    event.listen(opened.engine, "connect", count_steps)
    opened.engine.dispose()
    _, counts = copy_to_location(opened, "points", str(folder / f"{items}_copy.teeter"))
    opened.close()
    assert counts["items"] == counts["vectors"] == items
    return steps


def test_the_work_of_a_copy_grows_with_the_number_of_items(tmp_path: Path) -> None:
    few = count_steps_of_copy(200, tmp_path)
    many = count_steps_of_copy(2000, tmp_path)
    assert many < 1.5 * 10 * few
