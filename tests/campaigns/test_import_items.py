"""Things that come in: none is lost, none twice, nobody waits, and what stops half-way leaves nothing."""

from __future__ import annotations

import csv
import signal
import sqlite3
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from campaigns.killed_process import Report, kill_after, needs_fork
from teeter.campaigns import import_items
from teeter.campaigns.campaign import Campaign, Settings
from teeter.campaigns.db import Database
from teeter.campaigns.transfer import move_campaign
from teeter.errors import InputError, StoreError, UnknownNameError

PLAIN = Settings(kind="features", control=0.0)
VECTORS = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)


def vectors(first: int, last: int) -> list[dict[str, Any]]:
    return [{"id": f"i{k}", "features": VECTORS[k]} for k in range(first, last)]


def made(path: Path, settings: Settings = PLAIN, last: int = 30) -> Campaign:
    campaign = Campaign.create(path / "c.teeter", "c", ("a", "b"), settings)
    campaign.add(vectors(0, last))
    return campaign


def exported(campaign: Campaign, path: Path) -> dict[str, dict[str, str]]:
    campaign.export(path / "out.csv")
    with (path / "out.csv").open() as file:
        return {row["id"]: row for row in csv.DictReader(file)}


def test_a_label_for_what_is_there_is_its_label_if_it_has_none(tmp_path: Path) -> None:
    campaign = Campaign.create(tmp_path / "t.teeter", "t", ("a", "b"))
    added = campaign.add(
        [
            ("1", "one x"),
            {"id": "2", "text": "one x", "label": "a"},
            ("3", "two x"),
            ("4", "three x"),
        ]
    )
    assert (added.new, added.labelled, added.duplicates, added.conflicts) == (
        3,
        1,
        (("2", "1"),),
        (),
    )
    campaign.tell("3", "b")
    labels = {"1": "b", "3": "a", "4": "b"}
    texts = {"1": "one x", "3": "two x", "4": "three x"}
    added = campaign.add(
        [{"id": key, "text": texts[key], "label": label} for key, label in labels.items()]
    )
    assert (added.new, added.labelled) == (0, 1)
    assert added.conflicts == (("1", "b", "a"), ("3", "a", "b"))
    assert {key: one.label for key, one in campaign.labels().items()} == {
        "1": "a",
        "3": "b",
        "4": "b",
    }
    with pytest.raises(UnknownNameError, match="No class is called 'c'"):
        campaign.add([{"text": "four x", "label": "c"}])
    assert campaign.status().items == 3


def test_duplicates_go_out_with_the_label_of_their_original(tmp_path: Path) -> None:
    campaign = Campaign.create(tmp_path / "t.teeter", "t", ("a", "b"))
    campaign.add([("1", "one x"), ("2", "two x"), ("1b", "one x")])
    campaign.add([("1c", "one x"), ("2", "two x")])
    campaign.tell("1", "a")
    rows = exported(campaign, tmp_path)
    assert {key: row["label"] for key, row in rows.items()} == {
        "1": "a",
        "2": "",
        "1b": "a",
        "1c": "a",
    }
    noted = [
        pair for line in campaign.history() if line["what"] == "added" for pair in line["same"]
    ]
    assert noted == [["1b", "1"], ["1c", "1"]]


def test_equal_vectors_of_two_ids_are_two_items(tmp_path: Path) -> None:
    campaign = Campaign.create(tmp_path / "c.teeter", "c", ("a", "b"), PLAIN)
    given = [{"id": key, "features": [1.0, 2.0]} for key in ("x", "y")]
    assert campaign.add(given).new == 2
    added = campaign.add([*given, {"features": [1.0, 2.0]}, {"features": [1.0, 2.0]}])
    assert (added.new, len(added.duplicates)) == (1, 3)
    with pytest.raises(InputError, match="Two different items have the id 'x'"):
        campaign.add([{"id": "x", "features": [1.0, 3.0]}])


def test_labels_that_came_along_are_nobody_s_to_undo_and_to_pay(tmp_path: Path) -> None:
    settings = Settings(kind="features", cost=1.0, budget=20.0)
    campaign = Campaign.create(tmp_path / "c.teeter", "c", ("a", "b"), settings)
    campaign.add([{**one, "label": "a"} for one in vectors(0, 10)])
    assert campaign.undo() is None
    campaign.tell("i0", "b", "ann")
    campaign.skip("i1", "ann")
    campaign.mark_unsure("i2", "ann")
    assert "17 of the budget is left: 3 of 20." in campaign.status().advice, (
        "every answer is paid, not every label"
    )


def test_another_process_may_add_while_a_campaign_is_open(tmp_path: Path) -> None:
    campaign = made(tmp_path, Settings(kind="features", audit=8), 10)
    campaign.ask(2)
    other = Campaign.open(tmp_path / "c.teeter")
    other.add(vectors(10, 40))
    assert len(campaign.ask(40)) == 40
    for question in campaign.ask(40):
        campaign.tell(question.item, "ab"[int(question.item[1:]) % 2])
    assert campaign.train().labels > 10
    other.add(vectors(40, 50))
    assert len(exported(campaign, tmp_path)) == 50


def test_others_may_write_while_an_encoder_runs_and_it_runs_again_if_they_added(
    tmp_path: Path,
) -> None:
    campaign = Campaign.create(tmp_path / "t.teeter", "t", ("a", "b"))
    other = Campaign.open(tmp_path / "t.teeter")
    seen: list[list[str]] = []

    def encoder(texts: list[str]) -> list[list[float]]:
        seen.append(list(texts))
        if len(seen) == 2:
            other.tell("1", "a", "ann")
        if len(seen) == 3:
            other.add(
                [("3", "third x")], encoder=lambda texts: [[len(text), 2.0] for text in texts]
            )
        return [[len(text), 2.0] for text in texts]

    campaign.add([("1", "first x")], encoder=encoder)
    campaign.add([("2", "second x")], encoder=encoder)
    campaign.add([("4", "fourth x")], encoder=encoder)
    assert seen[2:] == [
        ["first x", "second x", "fourth x"],
        ["first x", "second x", "third x", "fourth x"],
    ]
    assert campaign.status().items == 4
    assert len(campaign.ask(9)) == 3


def test_what_is_skipped_is_told_by_counting_not_by_the_clock(tmp_path: Path) -> None:
    times = iter([datetime(2030, 1, 1, tzinfo=UTC)] * 60)
    campaign = Campaign.create(
        tmp_path / "c.teeter",
        "c",
        ("a", "b"),
        PLAIN,
        clock=lambda: next(times, datetime(2020, 1, 1, tzinfo=UTC)),
    )
    campaign.add(vectors(0, 12))
    for k in range(6):
        campaign.tell(f"i{k}", "ab"[k % 2])
    campaign.skip("i6")
    campaign.train()
    list(times)
    campaign.skip("i7")
    with campaign.database.reading() as connection:
        assert campaign.repository.answers.skipped_items(connection) == {"i7"}
    assert {question.item for question in campaign.ask(5)} == {f"i{k}" for k in (6, 8, 9, 10, 11)}
    target = Database(tmp_path / "moved.teeter", create=True)
    Campaign.create(tmp_path / "moved.teeter", "first", ("a", "b"), PLAIN)
    move_campaign(campaign.database, target, "c")
    moved = Campaign.open(tmp_path / "moved.teeter", "c")
    with moved.database.reading() as connection:
        assert moved.repository.answers.skipped_items(connection) == {"i7"}


def test_what_was_skipped_is_asked_again_when_nothing_else_is_left(tmp_path: Path) -> None:
    campaign = made(tmp_path, PLAIN, 5)
    for question in campaign.ask(5):
        campaign.skip(question.item)
    again = campaign.ask(5)
    assert len(again) == 5
    for question in again[:2]:
        campaign.tell(question.item, "a")
    campaign.skip(again[2].item)
    assert [question.item for question in campaign.ask(5)] == [
        one.item for one in (*again[3:], again[2])
    ], "it comes last"


def test_a_single_string_is_no_list_of_things(tmp_path: Path) -> None:
    campaign = Campaign.create(tmp_path / "t.teeter", "t", ("a", "b"))
    for thing in ("hello", b"hello", {"text": "hello"}, tmp_path):
        with pytest.raises(InputError, match="give a list of things"):
            campaign.add(thing)
    assert campaign.status().items == 0


def test_the_history_tells_everything_of_a_batch_and_of_what_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("teeter.campaigns.db.items._MOST_IDS_IN_LINE", 7)
    campaign = made(tmp_path, Settings(kind="features", seed=5), 30)
    came = [item for line in campaign.history() if line["what"] == "added" for item in line["ids"]]
    assert came == [f"i{k}" for k in range(30)]
    for _ in range(2):
        questions = campaign.ask(10)
        (*_, line) = (line for line in campaign.history() if line["what"] == "asked")
        told = [(one["item"], one["arm"], one["rank"], one["reason"]) for one in line["picks"]]
        assert told == [(one.item, one.arm, one.rank, one.reason) for one in questions]
        assert (line["seed"], line["strategy"]) == (5, "ldm-s")
        for question in questions:
            campaign.tell(question.item, "ab"[int(question.item[1:]) % 2])
        campaign.train()


def test_a_campaign_is_made_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "c.teeter"
    assert Campaign.make(path, ("a", "b"), vectors(0, 5), PLAIN).new == 5
    assert Campaign.open(path).name == "c"
    with pytest.raises(InputError, match="exists already"):
        Campaign.make(path, ("a", "b"), vectors(0, 5), PLAIN)
    with pytest.raises(InputError, match="differ in length"):
        Campaign.make(
            tmp_path / "d.teeter",
            ("a", "b"),
            [*vectors(0, 5), {"id": "x", "features": [1.0]}],
            PLAIN,
        )
    assert [one.name for one in tmp_path.iterdir() if "d.teeter" in one.name] == []


@needs_fork
def test_killed_while_it_is_made_a_campaign_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make(report: Report) -> None:
        monkeypatch.setattr(import_items, "_set_apart", lambda *_: (report("now"), signal.pause()))
        Campaign.make(tmp_path / "c.teeter", ("a", "b"), vectors(0, 5), PLAIN)

    assert kill_after(make, 1) == ["now"]
    assert not (tmp_path / "c.teeter").exists()
    assert Campaign.make(tmp_path / "c.teeter", ("a", "b"), vectors(0, 5), PLAIN).new == 5


def test_a_folder_of_images_goes_where_the_campaign_goes(tmp_path: Path) -> None:
    (tmp_path / "here" / "images").mkdir(parents=True)
    file, folder = tmp_path / "here" / "c.teeter", tmp_path / "here" / "images"
    campaign = Campaign.create(file, "c", ("a", "b"), Settings(kind="image", folder=str(folder)))
    assert campaign.settings.folder == str(folder)
    assert campaign.history()[0]["folder"] == "images"
    target = Database(tmp_path / "moved.teeter", create=True)
    move_campaign(campaign.database, target, "c")
    target.close()
    assert Campaign.open(tmp_path / "moved.teeter").settings.folder == str(folder)
    campaign.database.close()
    (tmp_path / "here").rename(tmp_path / "there")
    assert Campaign.open(tmp_path / "there" / "c.teeter").settings.folder == str(
        tmp_path / "there" / "images"
    )
    outside = Campaign.create(
        tmp_path / "there" / "d.teeter",
        "d",
        ("a", "b"),
        Settings(kind="image", folder=str(tmp_path)),
    )
    assert outside.history()[0]["folder"] == str(tmp_path)


@pytest.mark.parametrize(
    "damage",
    [
        "update campaigns set settings = '{bad'",
        "update campaigns set settings = '[1]'",
        "update campaigns set settings = cast(x'fffe' as text)",
        "update features set vector = x'0102' where item_id = 3",
        "update models set weights = x'0102'",
        "update models set facts = '{'",
        "update picks set reason = '{'",
        "drop table picks",
    ],
)
def test_a_database_that_is_not_as_it_was_written_is_told_to_be_damaged(
    damage: str, tmp_path: Path
) -> None:
    campaign = made(tmp_path)
    for question in campaign.ask(10):
        campaign.tell(question.item, "ab"[int(question.item[1:]) % 2])
    campaign.train()
    campaign.ask(3)
    campaign.database.close()
    connection = sqlite3.connect(tmp_path / "c.teeter")
    connection.execute(damage)
    connection.commit()
    connection.close()
    with pytest.raises(StoreError, match="is damaged"):
        Campaign.open(tmp_path / "c.teeter").ask(5)
