"""Adding items: none is lost or added twice, no process waits, and a failure leaves nothing."""

from __future__ import annotations

import csv
import signal
import sqlite3
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from campaigns.killed_process import Report, kill_after, needs_fork
from campaigns.stores import shared_server
from teeter.campaigns.campaign import Campaign
from teeter.campaigns.items import change_items
from teeter.campaigns.settings import Settings
from teeter.campaigns.store import Database
from teeter.campaigns.store.copies import copy_campaign
from teeter.errors import InputError, StoreError, UnknownNameError

SETTINGS = Settings(kind="features", control=0.0)
FEATURES = np.random.default_rng(0).normal(size=(840, 4)).astype(np.float32)


def make_items(first: int, last: int) -> list[dict[str, Any]]:
    """Return the items i{first} to i{last - 1}."""
    return [{"id": f"i{k}", "features": FEATURES[k]} for k in range(first, last)]


def create_campaign(folder: Path, settings: Settings = SETTINGS, count: int = 30) -> Campaign:
    campaign = Campaign.make([], ("a", "b"), at=folder / "c.teeter", settings=settings)
    campaign.add(make_items(0, count))
    return campaign


def class_of(item: str) -> str:
    return "ab"[int(item[1:]) % 2]


def export_rows(campaign: Campaign, folder: Path) -> dict[str, dict[str, str]]:
    campaign.export(folder / "out.csv")
    with (folder / "out.csv").open() as file:
        return {row["id"]: row for row in csv.DictReader(file)}


def test_a_label_that_comes_with_a_known_item_counts_if_the_item_has_none(tmp_path: Path) -> None:
    campaign = Campaign.make([], ("a", "b"), at=tmp_path / "t.teeter")
    added = campaign.add(
        [
            ("1", "one x"),
            {"id": "2", "text": "one x", "label": "a"},
            ("3", "two x"),
            ("4", "three x"),
        ]
    )
    assert (added.new, added.labelled) == (3, 1)
    assert added.duplicate_items == (("2", "1"),)
    assert added.conflicting_items == ()

    campaign.tell("3", "b")
    added = campaign.add(
        [
            {"id": "1", "text": "one x", "label": "b"},
            {"id": "3", "text": "two x", "label": "a"},
            {"id": "4", "text": "three x", "label": "b"},
        ]
    )
    assert (added.new, added.labelled) == (0, 1)
    assert added.conflicting_items == (("1", "b", "a"), ("3", "a", "b"))
    labels = {item: consensus.label for item, consensus in campaign.labels().items()}
    assert labels == {"1": "a", "3": "b", "4": "b"}

    with pytest.raises(UnknownNameError, match="No class is called 'c'"):
        campaign.add([{"text": "four x", "label": "c"}])
    assert campaign.status().items == 3


def test_duplicates_are_exported_with_the_label_of_their_original(tmp_path: Path) -> None:
    campaign = Campaign.make([], ("a", "b"), at=tmp_path / "t.teeter")
    campaign.add([("1", "one x"), ("2", "two x"), ("1b", "one x")])
    campaign.add([("1c", "one x"), ("2", "two x")])
    campaign.tell("1", "a")

    rows = export_rows(campaign, tmp_path)

    labels = {item: row["label"] for item, row in rows.items()}
    assert labels == {"1": "a", "2": "", "1b": "a", "1c": "a"}
    aliases = []
    for line in campaign.history():
        if line["what"] == "added":
            aliases += line["same"]
    assert aliases == [["1b", "1"], ["1c", "1"]]


def test_equal_features_of_two_ids_are_two_items(tmp_path: Path) -> None:
    campaign = Campaign.make([], ("a", "b"), at=tmp_path / "c.teeter", settings=SETTINGS)
    items = [{"id": item, "features": [1.0, 2.0]} for item in ("x", "y")]
    assert campaign.add(items).new == 2

    added = campaign.add([*items, {"features": [1.0, 2.0]}, {"features": [1.0, 2.0]}])

    assert (added.new, added.duplicates) == (1, 3)
    with pytest.raises(InputError, match="Two different items have the id 'x'"):
        campaign.add([{"id": "x", "features": [1.0, 3.0]}])


def test_imported_labels_cost_nothing_and_are_not_undone(tmp_path: Path) -> None:
    settings = Settings(kind="features", cost=1.0, budget=20.0)
    campaign = Campaign.make([], ("a", "b"), at=tmp_path / "c.teeter", settings=settings)
    campaign.add([{**item, "label": "a"} for item in make_items(0, 10)])
    assert campaign.undo() is None

    campaign.tell("i0", "b", "ann")
    campaign.skip("i1", "ann")
    campaign.mark_unsure("i2", "ann")

    assert "17 of the budget of 20 is left." in campaign.status().advice, (
        "every answer costs, not every label"
    )


def test_another_process_can_add_items_while_a_campaign_is_open(tmp_path: Path) -> None:
    campaign = create_campaign(tmp_path, Settings(kind="features", holdout=8), 10)
    campaign.ask(2)
    other = Campaign.open(tmp_path / "c.teeter")

    other.add(make_items(10, 40))
    questions = campaign.ask(40)
    assert len(questions) == 40
    for question in questions:
        campaign.tell(question.item, class_of(question.item))
    assert campaign.train().labels > 10

    other.add(make_items(40, 50))
    assert len(export_rows(campaign, tmp_path)) == 50


def test_others_can_write_while_an_encoder_runs_and_it_runs_again_if_they_add_items(
    tmp_path: Path,
) -> None:
    campaign = Campaign.make([], ("a", "b"), at=tmp_path / "t.teeter")
    other = Campaign.open(tmp_path / "t.teeter")
    calls: list[list[str]] = []

    def encode(texts: list[str]) -> list[list[float]]:
        return [[len(text), 2.0] for text in texts]

    def encode_while_others_write(texts: list[str]) -> list[list[float]]:
        calls.append(list(texts))
        if len(calls) == 2:
            other.tell("1", "a", "ann")
        if len(calls) == 3:
            other.add([("3", "third x")], encoder=encode)
        return encode(texts)

    campaign.add([("1", "first x")], encoder=encode_while_others_write)
    campaign.add([("2", "second x")], encoder=encode_while_others_write)
    campaign.add([("4", "fourth x")], encoder=encode_while_others_write)

    assert calls[2:] == [
        ["first x", "second x", "fourth x"],
        ["first x", "second x", "third x", "fourth x"],
    ]
    assert campaign.status().items == 4
    assert len(campaign.ask(9)) == 3


def test_skipped_items_are_recognised_by_the_order_of_answers_not_by_the_clock(
    tmp_path: Path,
) -> None:
    times = iter([datetime(2030, 1, 1, tzinfo=UTC)] * 60)
    campaign = Campaign.make(
        [],
        ("a", "b"),
        at=tmp_path / "c.teeter",
        settings=SETTINGS,
        clock=lambda: next(times, datetime(2020, 1, 1, tzinfo=UTC)),
    )
    campaign.add(make_items(0, 12))
    for k in range(6):
        campaign.tell(f"i{k}", "ab"[k % 2])
    campaign.skip("i6")
    campaign.train()
    list(times)  # from now on it is 2020
    campaign.skip("i7")

    with campaign.reading() as view:
        assert view.answers.skipped_items() == {"i7"}
    assert {question.item for question in campaign.ask(5)} == {f"i{k}" for k in (6, 8, 9, 10, 11)}

    target = Database(tmp_path / "moved.teeter", create=True)
    Campaign.make([], ("a", "b"), at=f"sqlite:///{tmp_path}/moved.teeter#first", settings=SETTINGS)
    copy_campaign(campaign.database, target, "c")
    moved = Campaign.open(tmp_path / "moved.teeter", "c")
    with moved.reading() as view:
        assert view.answers.skipped_items() == {"i7"}


def test_skipped_items_are_asked_again_when_nothing_else_is_left(tmp_path: Path) -> None:
    campaign = create_campaign(tmp_path, SETTINGS, 5)
    for question in campaign.ask(5):
        campaign.skip(question.item)

    questions = campaign.ask(5)
    assert len(questions) == 5
    for question in questions[:2]:
        campaign.tell(question.item, "a")
    campaign.skip(questions[2].item)

    expected = [question.item for question in (*questions[3:], questions[2])]
    assert [question.item for question in campaign.ask(5)] == expected, "it comes last"


def test_a_single_item_is_not_a_list_of_items(tmp_path: Path) -> None:
    campaign = Campaign.make([], ("a", "b"), at=tmp_path / "t.teeter")

    for entry in ("hello", b"hello", {"text": "hello"}, tmp_path):
        with pytest.raises(InputError, match="give a list of items, even for a single item"):
            campaign.add(entry)

    assert campaign.status().items == 0


def test_the_history_has_every_item_and_every_pick(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("teeter.campaigns.store.queries.items._MOST_IDS_IN_LINE", 7)
    campaign = create_campaign(tmp_path, Settings(kind="features", seed=5), 30)

    added = []
    for line in campaign.history():
        if line["what"] == "added":
            added += line["ids"]
    assert added == [f"i{k}" for k in range(30)]

    for _ in range(2):
        questions = campaign.ask(10)
        line = [line for line in campaign.history() if line["what"] == "asked"][-1]
        noted = [
            (pick["item"], pick["arm"], pick["rank"], pick["reason"]) for pick in line["picks"]
        ]
        expected = [
            (question.item, question.arm, question.rank, question.reason) for question in questions
        ]
        assert noted == expected
        assert (line["seed"], line["strategy"]) == (5, "ldm-s")
        for question in questions:
            campaign.tell(question.item, class_of(question.item))
        campaign.train()


def holdout_items(campaign: Campaign) -> set[int]:
    with campaign.reading() as view:
        return {int(item[1:]) for item in view.items.holdout()}


@pytest.mark.slow
def test_items_added_later_enter_the_holdout_in_proportion(tmp_path: Path) -> None:
    campaign = create_campaign(tmp_path, replace(SETTINGS, holdout=50), 200)
    assert len(holdout_items(campaign)) == 50

    added = campaign.add(make_items(200, 800))
    assert added.holdout == len(holdout_items(campaign)) == 200
    assert len([k for k in holdout_items(campaign) if k >= 200]) == 150

    for k in range(800, 840):
        campaign.add(make_items(k, k + 1))
    n_later = len(holdout_items(campaign)) - 200
    assert 2 <= n_later <= 20, "one in four of those added one by one, too"


def test_a_full_holdout_stays_and_has_no_items_with_a_label(tmp_path: Path) -> None:
    campaign = Campaign.make(
        [], ("a", "b"), at=tmp_path / "c.teeter", settings=replace(SETTINGS, holdout=30)
    )
    items = make_items(0, 100)
    for item in items[:60]:
        item["label"] = "a"
    campaign.add(items)
    before = holdout_items(campaign)
    assert len(before) == 30
    assert min(before) >= 60

    campaign.add(items)

    assert holdout_items(campaign) == before


def test_a_holdout_grows_to_its_size_but_never_beyond_half_of_all_items(tmp_path: Path) -> None:
    campaign = create_campaign(tmp_path, replace(SETTINGS, holdout=20), 10)
    assert len(holdout_items(campaign)) == 5

    for count, expected in ((14, 7), (30, 15), (60, 20)):
        campaign.add(make_items(0, count))
        assert len(holdout_items(campaign)) == expected


def test_withdrawn_items_do_not_count_in_the_size_of_a_holdout(tmp_path: Path) -> None:
    campaign = create_campaign(tmp_path, replace(SETTINGS, holdout=20), 40)
    holdout = sorted(holdout_items(campaign))
    training_items = sorted(set(range(40)) - set(holdout))
    withdrawn = {*holdout[:8], *training_items[:2]}
    campaign.items.withdraw([f"i{k}" for k in withdrawn])

    added = campaign.add(make_items(40, 41))

    # Half of the 31 items that are in the campaign.
    measured = holdout_items(campaign) - withdrawn
    assert added.holdout == len(measured) == 15
    assert campaign.add(make_items(41, 72)).holdout == 30, "a set that was full grows in proportion"

    campaign.items.put_back([f"i{k}" for k in withdrawn])
    assert len(holdout_items(campaign)) == 38, "items that are put back are still in it"


def test_a_holdout_of_half_of_all_items_does_not_grow_after_a_withdrawal(tmp_path: Path) -> None:
    campaign = create_campaign(tmp_path, replace(SETTINGS, holdout=20), 40)
    training_items = sorted(set(range(40)) - holdout_items(campaign))
    campaign.items.withdraw([f"i{k}" for k in training_items[:10]])

    assert campaign.add(make_items(40, 50)).holdout == 20, "half of the 40 items that are left"
    assert campaign.add(make_items(50, 60)).holdout == 25


def test_a_campaign_is_created_with_all_its_items_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "c.teeter"
    assert Campaign.make(make_items(0, 5), ("a", "b"), at=path, settings=SETTINGS).imported.new == 5
    assert Campaign.open(path).name == "c"

    with pytest.raises(InputError, match="already exists"):
        Campaign.make(make_items(0, 5), ("a", "b"), at=path, settings=SETTINGS)
    with pytest.raises(InputError, match="differ in length"):
        Campaign.make(
            [*make_items(0, 5), {"id": "x", "features": [1.0]}],
            ("a", "b"),
            at=tmp_path / "d.teeter",
            settings=SETTINGS,
        )
    assert [file.name for file in tmp_path.iterdir() if "d.teeter" in file.name] == []


@needs_fork
def test_a_killed_creation_leaves_no_campaign_and_the_next_one_removes_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "c.teeter"

    def create(report: Report) -> None:
        def pause(*_: object) -> None:
            report("writing")
            signal.pause()

        monkeypatch.setattr(change_items, "_extend_holdout", pause)
        Campaign.make(make_items(0, 5), ("a", "b"), at=path, settings=SETTINGS).database.close()

    assert kill_after(create, 1) == ["writing"]
    assert not path.exists()
    assert list(tmp_path.iterdir()) != [], "the killed process could not clean up"

    campaign_file = tmp_path / "other.teeter"
    other = Campaign.make(make_items(0, 5), ("a", "b"), at=campaign_file, settings=SETTINGS)
    assert other.imported.new == 5
    other.database.close()
    assert list(tmp_path.iterdir()) == [campaign_file]

    made = Campaign.make(make_items(0, 5), ("a", "b"), at=path, settings=SETTINGS)
    assert made.imported.new == 5


def test_a_campaign_is_created_on_a_server_under_its_name(tmp_path: Path) -> None:
    url = shared_server().new_database()
    settings = replace(SETTINGS, holdout=4, seed=3)

    campaign = Campaign.make(make_items(0, 20), ("a", "b"), at=f"{url}#points", settings=settings)
    assert (campaign.imported.new, campaign.imported.holdout) == (20, 4)
    campaign.database.close()

    campaign = Campaign.open(f"{url}#points")
    assert campaign.settings == settings
    assert campaign.classes.names() == ("a", "b")
    on_disk = create_campaign(tmp_path, settings, 20)
    assert [question.item for question in campaign.ask(5)] == [
        question.item for question in on_disk.ask(5)
    ]
    campaign.tell("i0", "a")
    assert campaign.status().items == 20
    campaign.database.close()
    on_disk.database.close()

    with pytest.raises(InputError, match=r"already has a campaign called 'points'"):
        Campaign.make(make_items(0, 5), ("a", "b"), at=f"{url}#points", settings=settings)


def test_a_campaign_on_a_server_is_called_like_the_database_by_default() -> None:
    url = shared_server().new_database()

    Campaign.make(make_items(0, 5), ("a", "b"), at=url, settings=SETTINGS).database.close()

    campaign = Campaign.open(url)
    assert campaign.name == campaign.database.url.database
    campaign.database.close()


def test_a_creation_on_a_server_that_fails_leaves_no_campaign() -> None:
    url = shared_server().new_database()

    with pytest.raises(InputError, match="differ in length"):
        Campaign.make(
            [*make_items(0, 5), {"id": "x", "features": [1.0]}],
            ("a", "b"),
            at=f"{url}#points",
            settings=SETTINGS,
        )

    with pytest.raises(StoreError, match="There is no campaign in"):
        Campaign.open(f"{url}#points")


def test_a_folder_of_images_moves_with_the_campaign(tmp_path: Path) -> None:
    folder = tmp_path / "here" / "images"
    folder.mkdir(parents=True)
    campaign = Campaign.make(
        [],
        ("a", "b"),
        at=tmp_path / "here" / "c.teeter",
        settings=Settings(kind="image", folder=str(folder)),
    )
    assert campaign.settings.folder == str(folder)
    assert campaign.history()[0]["folder"] == "images"

    target = Database(tmp_path / "moved.teeter", create=True)
    copy_campaign(campaign.database, target, "c")
    target.close()
    assert Campaign.open(tmp_path / "moved.teeter").settings.folder == str(folder)

    campaign.database.close()
    (tmp_path / "here").rename(tmp_path / "there")
    moved = Campaign.open(tmp_path / "there" / "c.teeter")
    assert moved.settings.folder == str(tmp_path / "there" / "images")

    outside = Campaign.make(
        [],
        ("a", "b"),
        at=tmp_path / "there" / "d.teeter",
        settings=Settings(kind="image", folder=str(tmp_path)),
    )
    assert outside.history()[0]["folder"] == str(tmp_path)


@pytest.mark.parametrize(
    "damage",
    [
        "update campaigns set settings = '{bad'",
        "update campaigns set settings = '[1]'",
        "update campaigns set settings = cast(x'fffe' as text)",
        "update vectors set vector = x'0102' where item_id = 3",
        "update models set weights = x'0102'",
        "update models set facts = '{'",
        "update picks set reason = '{'",
        "drop table picks",
    ],
)
def test_a_damaged_database_is_reported_as_damaged(damage: str, tmp_path: Path) -> None:
    campaign = create_campaign(tmp_path)
    for question in campaign.ask(10):
        campaign.tell(question.item, class_of(question.item))
    campaign.train()
    campaign.ask(3)
    campaign.database.close()

    connection = sqlite3.connect(tmp_path / "c.teeter")
    connection.execute(damage)
    connection.commit()
    connection.close()

    with pytest.raises(StoreError, match="is damaged"):
        Campaign.open(tmp_path / "c.teeter").ask(5)


def test_former_names_of_classes_and_withdrawn_items_are_handled(tmp_path: Path) -> None:
    campaign = Campaign.make(
        [], ("spam", "ham"), at=tmp_path / "c.teeter", settings=Settings(lease=0)
    )
    campaign.add([{"id": f"t{n}", "text": f"word {n}"} for n in range(12)])
    campaign.tell("t1", "spam")
    campaign.classes.rename("spam", "ads")

    repeated = campaign.add([{"id": "t1", "text": "word 1", "label": "spam"}])
    assert repeated.conflicting_items == ()
    assert [campaign.tell("t3", "spam").recorded for _ in range(2)] == [True, False]

    item = campaign.ask(1, "ann")[0].item
    campaign.items.withdraw([item])
    with campaign.writing() as change:
        assert change.picks.release("ann", "me") == 1
        assert change.picks.count_open_by_annotator() == {}
    campaign.items.put_back([item])
    assert item in [question.item for question in campaign.ask(12, "bob")]
