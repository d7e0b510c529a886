"""Leases and overlap: no item is with two people unless told, what nobody answers goes back, and nothing is lost."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import event

from campaigns.fake_clock import FakeClock
from campaigns.history_replay import replay_answers
from campaigns.stores import POSTGRESQL_SLOW, new_place
from teeter.campaigns.campaign import Campaign, Settings
from teeter.campaigns.db import LockName

VECTORS = np.random.default_rng(0).normal(size=(80, 3)).astype(np.float32)
Made = Callable[..., Campaign]


@pytest.fixture
def watch() -> FakeClock:
    return FakeClock()


@pytest.fixture(params=POSTGRESQL_SLOW)
def made(request: pytest.FixtureRequest, tmp_path: Path, watch: FakeClock) -> Iterator[Made]:
    opened: list[Campaign] = []

    def make(items: int = 80, **settings: object) -> Campaign:
        where = new_place(request.param, tmp_path)
        own = Settings(**{"kind": "features", "strategy": "margin", "control": 0.2, **settings})
        campaign = Campaign.create(where, "points", ["left", "right"], own, clock=watch)
        campaign.add({"id": f"p{k}", "features": row} for k, row in enumerate(VECTORS[:items]))
        opened.append(campaign)
        return campaign

    yield make
    for one in opened:
        one.database.close()


def truth(item: str) -> str:
    return "right" if VECTORS[int(item[1:]), 0] > 0 else "left"


def asked(campaign: Campaign, n: int, who: str) -> list[str]:
    return [one.item for one in campaign.ask(n, who)]


def answer(campaign: Campaign, items: list[str], who: str) -> None:
    for item in items:
        campaign.tell(item, truth(item), who)


def told(campaign: Campaign, what: str) -> list[dict[str, object]]:
    return [line for line in campaign.history() if line["what"] == what]


def held(campaign: Campaign) -> Counter[str]:
    """How many people have each item open."""
    with campaign.database.reading() as connection:
        return Counter(pick.item for pick in campaign.repository.picks.open_picks(connection))


def test_what_nobody_answers_goes_to_the_next_who_asks(made: Made, watch: FakeClock) -> None:
    campaign = made(lease=30)
    first = asked(campaign, 10, "ann")
    watch.wait(29)
    assert not set(first) & set(asked(campaign, 5, "bob"))
    watch.wait(2)
    assert set(first) <= set(asked(campaign, 40, "bob"))
    (line,) = told(campaign, "returned")
    assert (line["who"], line["items"], line["by"]) == ("ann", first, "lease")
    assert max(held(campaign).values()) == 1
    assert not set(asked(campaign, 10, "ann")) & set(first)


def test_each_answer_begins_the_leases_anew(made: Made, watch: FakeClock) -> None:
    campaign = made(lease=30)
    first = asked(campaign, 4, "ann")
    for item in first[:3]:
        watch.wait(20)
        campaign.tell(item, truth(item), "ann")
    assert first[3] not in asked(campaign, 70, "bob")
    watch.wait(31)
    assert first[3] in asked(campaign, 80, "cem")


def test_whoever_asks_again_keeps_their_own_questions(made: Made, watch: FakeClock) -> None:
    campaign = made(lease=30)
    first = asked(campaign, 6, "ann")
    watch.wait(300)
    assert asked(campaign, 6, "ann") == first
    watch.wait(20)
    assert not set(first) & set(asked(campaign, 5, "bob")), "the lease began anew"
    assert asked(campaign, 8, "ann")[:6] == first
    assert not set(first) & set(asked(campaign, 60, "bob"))


def test_without_a_lease_questions_stay(made: Made, watch: FakeClock) -> None:
    campaign = made(lease=0)
    first = asked(campaign, 6, "ann")
    watch.wait(10**6)
    assert not set(first) & set(asked(campaign, 80, "bob"))
    assert campaign.release_items("ann", who="owner") == 6
    assert told(campaign, "returned")[0]["by"] == "owner"
    assert set(first) <= set(asked(campaign, 80, "bob"))


def test_a_late_answer_counts_and_is_told(made: Made, watch: FakeClock) -> None:
    campaign = made(lease=30)
    first = asked(campaign, 3, "ann")
    watch.wait(31)
    assert set(first) <= set(asked(campaign, 6, "bob"))
    late = campaign.tell(first[0], truth(first[0]), "ann")
    assert late.late
    assert late.asked_now == ("bob",)
    assert campaign.status().labelled == 1
    assert told(campaign, "answer")[-1]["late"] is True
    assert not campaign.tell(first[1], truth(first[1]), "bob").late
    assert not campaign.tell(first[0], "left", "ann").late, "it is told once"
    undone = [campaign.undo("ann"), campaign.undo("ann")]
    assert None not in undone
    assert max(held(campaign).values()) == 1, "bob is asked, so ann is not"
    with campaign.database.reading() as connection:
        now = {
            (one.item, one.annotator): one for one in campaign.repository.answers.live(connection)
        }
    assert replay_answers(campaign.history()) == now


def test_what_an_older_model_picked_goes_back_to_the_pool_and_controls_are_asked_again(
    made: Made, watch: FakeClock
) -> None:
    campaign = made(lease=30, control=0.4)
    answer(campaign, asked(campaign, 10, "ann"), "ann")
    campaign.train()
    waiting = {one.item: one.arm for one in campaign.ask(20, "ann")}
    watch.wait(31)
    campaign.train()
    asked(campaign, 1, "bob")
    with campaign.database.reading() as connection:
        ready = {pick.item: pick.arm for pick in campaign.repository.picks.ready_picks(connection)}
        ready |= {
            pick.item: pick.arm for pick in campaign.repository.picks.open_picks(connection, "bob")
        }
    controls = {item for item, arm in waiting.items() if arm == "control"}
    assert len(controls) >= 6
    assert controls <= {item for item, arm in ready.items() if arm == "control"}


def test_for_those_at_work_it_is_picked_ahead_and_a_new_model_picks_anew(made: Made) -> None:
    campaign = made()
    answer(campaign, asked(campaign, 10, "ann"), "ann")
    campaign.train()
    shown = [set(asked(campaign, 5, who)) for who in ("ann", "bob")]
    batches = len(told(campaign, "asked"))
    assert sum(map(len, shown)) == len(set.union(*shown)) == 10
    with campaign.database.reading() as connection:
        ready = campaign.repository.picks.open_or_ready_items(connection) - set(held(campaign))
    assert len(ready) == 10, "twice what bob asked for, since one other is at work"
    campaign.train()
    with campaign.database.reading() as connection:
        left = {pick.item: pick.arm for pick in campaign.repository.picks.ready_picks(connection)}
    assert set(left.values()) <= {"control"}
    assert len(told(campaign, "asked")) == batches
    assert len(asked(campaign, 40, "dan")) == 40
    assert max(held(campaign).values()) == 1


def test_one_picks_at_a_time_and_the_dead_keep_nobody_waiting_for_long(
    made: Made, watch: FakeClock
) -> None:
    campaign = made()
    locks = campaign.repository.locks
    with campaign.database.writing() as connection:
        assert locks.acquire(connection, LockName.PICKING, 10) is not None
        assert locks.acquire(connection, LockName.PICKING, 10) is None
    watch.wait(1)
    assert len(asked(campaign, 5, "bob")) == 5, "the lock has expired"
    with campaign.database.writing() as connection:
        holder = locks.acquire(connection, LockName.PICKING, 10)
        assert holder is not None, "bob's picking has ended"
        watch.wait(-1440)
        message = "the clock was set back: the lock would last for a day"
        assert locks.acquire(connection, LockName.PICKING, 10) is not None, message


def test_until_nothing_is_left(made: Made) -> None:
    campaign = made()
    people = ["ann", "bob", "cem"]
    seen: list[str] = []
    while True:
        batch = {who: asked(campaign, 7, who) for who in people}
        if not any(batch.values()):
            break
        for who, items in batch.items():
            seen += items
            answer(campaign, items, who)
    assert sorted(seen) == sorted(f"p{k}" for k in range(80)), "each item once"


@pytest.mark.parametrize("people", [2, 3])
def test_all_are_answered_by_as_many_as_told_and_by_nobody_twice(made: Made, people: int) -> None:
    campaign = made(24, overlap=1.0, people=people)
    seen: list[tuple[str, str]] = []
    for _ in range(12):
        for who in ("ann", "bob", "cem", "dan"):
            items = asked(campaign, 5, who)
            seen += [(item, who) for item in items]
            answer(campaign, items, who)
    assert len(seen) == len(set(seen)) == 24 * people
    assert set(Counter(item for item, _ in seen).values()) == {people}


def test_a_share_is_asked_of_a_second_before_anything_new(made: Made) -> None:
    campaign = made(overlap=0.3, audit=10)
    first = {one.item: one.arm for one in campaign.ask(40, "ann")}
    second = {one.item: one.arm for one in campaign.ask(40, "bob")}
    both = set(first) & set(second)
    assert 5 <= len(both) <= 20
    assert all(first[item] == second[item] for item in both)
    assert list(second)[: len(both)] == [item for item in second if item in both]
    assert not both & set(asked(campaign, 40, "cem"))
    for who, items in (("ann", first), ("bob", second)):
        answer(campaign, list(items), who)
    assert campaign.status().labelled == len(set(first) | set(second))


def test_controls_and_audits_are_among_what_several_answer(made: Made) -> None:
    campaign = made(overlap=1.0, audit=16, control=0.3)
    first = campaign.ask(40, "ann")
    second = campaign.ask(40, "bob")
    assert {one.arm for one in second} == {"picked", "control", "audit"}
    assert {one.item for one in first} == {one.item for one in second}


def test_a_skip_a_lease_that_ends_and_an_undo_leave_nobody_missing(
    made: Made, watch: FakeClock
) -> None:
    campaign = made(overlap=1.0, lease=30)
    (item,) = asked(campaign, 1, "ann")
    answer(campaign, [item], "ann")
    assert asked(campaign, 1, "bob") == [item]
    campaign.skip(item, "bob")
    assert item not in asked(campaign, 5, "bob")
    assert item in asked(campaign, 20, "cem")
    watch.wait(31)
    assert item in asked(campaign, 20, "dan"), "cem's lease ended"
    answer(campaign, [item], "dan")
    assert item not in asked(campaign, 10, "eve")
    campaign.undo("dan")
    assert item not in asked(campaign, 20, "eve"), "dan is asked again"
    assert campaign.tell(item, "left", "cem").late
    campaign.flag(item, "ann")
    with campaign.database.reading() as connection:
        assert campaign.repository.items.get(connection, item).annotators_missing == 0


def test_several_at_once_share_the_items(tmp_path: Path) -> None:
    path = tmp_path / "points.teeter"
    campaign = Campaign.create(
        path, "points", ["left", "right"], Settings(kind="features", strategy="margin")
    )
    campaign.add({"id": f"p{k}", "features": row} for k, row in enumerate(VECTORS[:40]))
    campaign.database.close()

    def label_until_nothing_is_left(who: str) -> list[str]:
        own = Campaign.open(path)
        answered: list[str] = []
        while items := asked(own, 4, who):
            answer(own, items, who)
            answered += items
        own.database.close()
        return answered

    names = ["ann", "bob", "cem", "dan"]
    with ThreadPoolExecutor(len(names)) as people:
        answered = dict(zip(names, people.map(label_until_nothing_is_left, names), strict=True))

    given = [(item, who) for who, items in answered.items() for item in items]
    assert max(Counter(item for item, _ in given).values()) == 1, "nobody is asked what another has"
    campaign = Campaign.open(path)
    with campaign.database.reading() as connection:
        written = [
            (one.item, one.annotator) for one in campaign.repository.answers.live(connection)
        ]
    campaign.database.close()
    assert sorted(written) == sorted(given)


def plans(campaign: Campaign, work: Callable[[], object]) -> list[str]:
    """How SQLite goes about every statement of some work."""
    seen: list[tuple[str, object]] = []

    def see(_: object, __: object, statement: str, parameters: object, *___: object) -> None:
        seen.append((statement, parameters))

    event.listen(campaign.database.engine, "before_cursor_execute", see)
    work()
    event.remove(campaign.database.engine, "before_cursor_execute", see)
    with closing(sqlite3.connect(str(campaign.database.path))) as file:
        told = [
            (one, values) for one, values in seen if one.startswith(("SELECT", "UPDATE", "DELETE"))
        ]
        return [
            f"{line[3]}: {one}"
            for one, values in told
            for line in file.execute(f"EXPLAIN QUERY PLAN {one}", values)
        ]


def test_no_table_is_read_from_end_to_end_to_ask_or_to_answer(tmp_path: Path) -> None:
    settings = Settings(kind="features", strategy="margin", overlap=0.3)
    campaign = Campaign.create(tmp_path / "c.teeter", "points", ["left", "right"], settings)
    campaign.add({"id": f"p{k}", "features": row} for k, row in enumerate(VECTORS))
    for who in ("ann", "bob"):
        asked(campaign, 5, who)
    (first, *_) = asked(campaign, 5, "ann")
    work = [
        lambda: campaign.ask(5, "ann"),
        lambda: campaign.ask(3, "cem"),
        lambda: campaign.tell(first, "left", "ann"),
        lambda: campaign.undo("ann"),
        lambda: campaign.people.find_by_token("none"),
    ]
    for one in work:
        found = plans(campaign, one)
        assert found
        scans = [
            line
            for line in found
            if line.startswith(("SCAN items", "SCAN picks", "SCAN answers", "SCAN batches"))
        ]
        assert scans == []
        assert not any(line.startswith("SCAN history") for line in found)
    campaign.database.close()
