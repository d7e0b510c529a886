"""Leases and overlap: an item is open with one annotator unless several are wanted, and none is
lost.
"""

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
from teeter.campaigns.campaign import Campaign
from teeter.campaigns.settings import Settings
from teeter.campaigns.store import LockName

VECTORS = np.random.default_rng(0).normal(size=(80, 3)).astype(np.float32)
MakeCampaign = Callable[..., Campaign]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(params=POSTGRESQL_SLOW)
def make_campaign(
    request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock
) -> Iterator[MakeCampaign]:
    campaigns: list[Campaign] = []

    def make(items: int = 80, **settings: object) -> Campaign:
        location = new_place(request.param, tmp_path)
        options = {"kind": "features", "strategy": "margin", "control": 0.2} | settings
        campaign = Campaign.make(
            [],
            ["left", "right"],
            at=location,
            name="points",
            settings=Settings(**options),
            clock=clock,
        )
        campaign.add({"id": f"p{k}", "features": row} for k, row in enumerate(VECTORS[:items]))
        campaigns.append(campaign)
        return campaign

    yield make
    for campaign in campaigns:
        campaign.database.close()


def true_class(item: str) -> str:
    return "right" if VECTORS[int(item[1:]), 0] > 0 else "left"


def ask_items(campaign: Campaign, n: int, annotator: str) -> list[str]:
    return [question.item for question in campaign.ask(n, annotator)]


def answer_items(campaign: Campaign, items: list[str], annotator: str) -> None:
    for item in items:
        campaign.tell(item, true_class(item), annotator)


def history_lines(campaign: Campaign, what: str) -> list[dict[str, object]]:
    return [line for line in campaign.history() if line["what"] == what]


def count_holders(campaign: Campaign) -> Counter[str]:
    """Return with how many annotators each item is open."""
    with campaign.reading() as view:
        return Counter(pick.item for pick in view.picks.open_picks())


def test_items_whose_lease_expired_go_to_the_next_annotator(
    make_campaign: MakeCampaign, clock: FakeClock
) -> None:
    campaign = make_campaign(lease=30)
    first = ask_items(campaign, 10, "ann")
    clock.wait(29)
    assert not set(first) & set(ask_items(campaign, 5, "bob"))
    clock.wait(2)
    assert set(first) <= set(ask_items(campaign, 40, "bob"))
    (line,) = history_lines(campaign, "returned")
    assert (line["who"], line["items"], line["by"]) == ("ann", first, "lease")
    assert max(count_holders(campaign).values()) == 1
    assert not set(ask_items(campaign, 10, "ann")) & set(first)


def test_each_answer_starts_the_leases_again(make_campaign: MakeCampaign, clock: FakeClock) -> None:
    campaign = make_campaign(lease=30)
    first = ask_items(campaign, 4, "ann")
    for item in first[:3]:
        clock.wait(20)
        campaign.tell(item, true_class(item), "ann")
    assert first[3] not in ask_items(campaign, 70, "bob")
    clock.wait(31)
    assert first[3] in ask_items(campaign, 80, "cem")


def test_an_annotator_who_asks_again_keeps_their_items(
    make_campaign: MakeCampaign, clock: FakeClock
) -> None:
    campaign = make_campaign(lease=30)
    first = ask_items(campaign, 6, "ann")
    clock.wait(300)
    assert ask_items(campaign, 6, "ann") == first
    clock.wait(20)
    assert not set(first) & set(ask_items(campaign, 5, "bob")), "the lease started again"
    assert ask_items(campaign, 8, "ann")[:6] == first
    assert not set(first) & set(ask_items(campaign, 60, "bob"))


def test_without_a_lease_items_stay_until_they_are_released(
    make_campaign: MakeCampaign, clock: FakeClock
) -> None:
    campaign = make_campaign(lease=0)
    first = ask_items(campaign, 6, "ann")
    clock.wait(10**6)
    assert not set(first) & set(ask_items(campaign, 80, "bob"))
    assert campaign.people.release("ann", who="owner").released == 6
    assert history_lines(campaign, "returned")[0]["by"] == "owner"
    assert set(first) <= set(ask_items(campaign, 80, "bob"))


def test_a_late_answer_counts_and_the_receipt_says_so(
    make_campaign: MakeCampaign, clock: FakeClock
) -> None:
    campaign = make_campaign(lease=30)
    first = ask_items(campaign, 3, "ann")
    clock.wait(31)
    assert set(first) <= set(ask_items(campaign, 6, "bob"))

    receipt = campaign.tell(first[0], true_class(first[0]), "ann")
    assert receipt.late
    assert campaign.status().labelled == 1
    assert history_lines(campaign, "answer")[-1]["late"] is True

    assert not campaign.tell(first[1], true_class(first[1]), "bob").late
    assert not campaign.tell(first[0], "left", "ann").late, "only the first answer is late"

    undone = [campaign.undo("ann"), campaign.undo("ann")]
    assert None not in undone
    assert max(count_holders(campaign).values()) == 1, "bob is asked, so ann is not"

    with campaign.reading() as view:
        answers = {(answer.item, answer.annotator): answer for answer in view.answers.live()}
    assert replay_answers(campaign.history()) == answers


def test_items_of_an_older_model_return_to_the_pool_and_control_items_stay_ready(
    make_campaign: MakeCampaign, clock: FakeClock
) -> None:
    campaign = make_campaign(lease=30, control=0.4)
    answer_items(campaign, ask_items(campaign, 10, "ann"), "ann")
    campaign.train()
    waiting = {question.item: question.arm for question in campaign.ask(20, "ann")}

    clock.wait(31)
    campaign.train()
    ask_items(campaign, 1, "bob")

    with campaign.reading() as view:
        ready = {pick.item: pick.arm for pick in view.picks.ready_picks()}
        ready |= {pick.item: pick.arm for pick in view.picks.open_picks("bob")}

    controls = {item for item, arm in waiting.items() if arm == "control"}
    assert len(controls) >= 6
    assert controls <= {item for item, arm in ready.items() if arm == "control"}


def test_items_are_picked_ahead_for_active_annotators_and_again_by_a_new_model(
    make_campaign: MakeCampaign,
) -> None:
    campaign = make_campaign()
    answer_items(campaign, ask_items(campaign, 10, "ann"), "ann")
    campaign.train()

    shown = [set(ask_items(campaign, 5, who)) for who in ("ann", "bob")]
    batches = len(history_lines(campaign, "asked"))
    assert sum(map(len, shown)) == len(set.union(*shown)) == 10

    with campaign.reading() as view:
        ready = {pick.item for pick in view.picks.ready_picks()}
    assert len(ready) == 10, "twice what bob asked for, since one other is at work"

    campaign.train()
    with campaign.reading() as view:
        left = {pick.item: pick.arm for pick in view.picks.ready_picks()}
    assert set(left.values()) <= {"control"}
    assert len(history_lines(campaign, "asked")) == batches

    assert len(ask_items(campaign, 40, "dan")) == 40
    assert max(count_holders(campaign).values()) == 1


def test_one_process_picks_at_a_time_and_its_lock_expires(
    make_campaign: MakeCampaign, clock: FakeClock
) -> None:
    campaign = make_campaign()
    with campaign.writing() as change:
        assert change.locks.acquire(LockName.PICKING, 10) is not None
        assert change.locks.acquire(LockName.PICKING, 10) is None

    clock.wait(1)
    assert len(ask_items(campaign, 5, "bob")) == 5, "the lock has expired"

    with campaign.writing() as change:
        holder = change.locks.acquire(LockName.PICKING, 10)
        assert holder is not None, "bob's picking has ended"
        clock.wait(-1440)
        message = "the clock was set back: the lock would last for a day"
        assert change.locks.acquire(LockName.PICKING, 10) is not None, message


def test_every_item_is_asked_about_once_until_none_is_left(make_campaign: MakeCampaign) -> None:
    campaign = make_campaign()
    annotators = ["ann", "bob", "cem"]
    seen: list[str] = []
    while True:
        batch = {who: ask_items(campaign, 7, who) for who in annotators}
        if not any(batch.values()):
            break
        for who, items in batch.items():
            seen += items
            answer_items(campaign, items, who)
    assert sorted(seen) == sorted(f"p{k}" for k in range(80)), "each item once"


@pytest.mark.slow
@pytest.mark.parametrize("people", [2, 3])
def test_every_item_gets_as_many_annotators_as_wanted_and_no_one_twice(
    make_campaign: MakeCampaign, people: int
) -> None:
    campaign = make_campaign(24, overlap=1.0, people=people)
    seen: list[tuple[str, str]] = []
    for _ in range(12):
        for who in ("ann", "bob", "cem", "dan"):
            items = ask_items(campaign, 5, who)
            seen += [(item, who) for item in items]
            answer_items(campaign, items, who)
    assert len(seen) == len(set(seen)) == 24 * people
    assert set(Counter(item for item, _ in seen).values()) == {people}


def test_shared_items_come_before_new_ones(make_campaign: MakeCampaign) -> None:
    campaign = make_campaign(overlap=0.3, holdout=10)
    first = {question.item: question.arm for question in campaign.ask(40, "ann")}
    second = {question.item: question.arm for question in campaign.ask(40, "bob")}

    both = set(first) & set(second)
    assert 5 <= len(both) <= 20
    assert all(first[item] == second[item] for item in both)
    assert list(second)[: len(both)] == [item for item in second if item in both]
    assert not both & set(ask_items(campaign, 40, "cem"))

    for who, items in (("ann", first), ("bob", second)):
        answer_items(campaign, list(items), who)
    assert campaign.status().labelled == len(set(first) | set(second))


def test_control_and_holdout_items_are_shared_too(make_campaign: MakeCampaign) -> None:
    campaign = make_campaign(overlap=1.0, holdout=16, control=0.3)
    first = campaign.ask(40, "ann")
    second = campaign.ask(40, "bob")
    assert {question.arm for question in second} == {"picked", "control", "holdout"}
    assert {question.item for question in first} == {question.item for question in second}


def test_a_skip_an_expired_lease_and_an_undo_keep_the_count_of_missing_annotators_right(
    make_campaign: MakeCampaign, clock: FakeClock
) -> None:
    campaign = make_campaign(overlap=1.0, lease=30)
    (item,) = ask_items(campaign, 1, "ann")
    answer_items(campaign, [item], "ann")

    assert ask_items(campaign, 1, "bob") == [item]
    campaign.skip(item, "bob")
    assert item not in ask_items(campaign, 5, "bob")
    assert item in ask_items(campaign, 20, "cem")

    clock.wait(31)
    assert item in ask_items(campaign, 20, "dan"), "cem's lease ended"
    answer_items(campaign, [item], "dan")
    assert item not in ask_items(campaign, 10, "eve")

    campaign.undo("dan")
    assert item not in ask_items(campaign, 20, "eve"), "dan is asked again"

    assert campaign.tell(item, "left", "cem").late
    campaign.flag(item, "ann")

    with campaign.reading() as view:
        assert view.items.get(item).annotators_missing == 0


@pytest.mark.slow
def test_annotators_at_work_at_once_share_the_items(tmp_path: Path) -> None:
    path = tmp_path / "points.teeter"
    campaign = Campaign.make(
        [],
        ["left", "right"],
        at=path,
        name="points",
        settings=Settings(kind="features", strategy="margin"),
    )
    campaign.add({"id": f"p{k}", "features": row} for k, row in enumerate(VECTORS[:40]))
    campaign.database.close()

    def label_until_nothing_is_left(who: str) -> list[str]:
        campaign = Campaign.open(path)
        answered: list[str] = []
        while items := ask_items(campaign, 4, who):
            answer_items(campaign, items, who)
            answered += items
        campaign.database.close()
        return answered

    names = ["ann", "bob", "cem", "dan"]
    with ThreadPoolExecutor(len(names)) as executor:
        answered = dict(zip(names, executor.map(label_until_nothing_is_left, names), strict=True))

    given = [(item, who) for who, items in answered.items() for item in items]
    assert max(Counter(item for item, _ in given).values()) == 1, "no item is given twice"
    campaign = Campaign.open(path)
    with campaign.reading() as view:
        written = [(answer.item, answer.annotator) for answer in view.answers.live()]
    campaign.database.close()
    assert sorted(written) == sorted(given)


def explain_queries(campaign: Campaign, work: Callable[[], object]) -> list[str]:
    """Return how SQLite carries out every statement of some work."""
    executed: list[tuple[str, object]] = []

    def record_statement(
        _: object, __: object, statement: str, parameters: object, *___: object
    ) -> None:
        executed.append((statement, parameters))

    event.listen(campaign.database.engine, "before_cursor_execute", record_statement)
    work()
    event.remove(campaign.database.engine, "before_cursor_execute", record_statement)

    queries = [
        (statement, parameters)
        for statement, parameters in executed
        if statement.startswith(("SELECT", "UPDATE", "DELETE"))
    ]
    with closing(sqlite3.connect(str(campaign.database.path))) as file:
        return [
            f"{line[3]}: {statement}"
            for statement, parameters in queries
            for line in file.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)
        ]


def test_asking_and_answering_scan_no_table(tmp_path: Path) -> None:
    settings = Settings(kind="features", strategy="margin", overlap=0.3)
    campaign = Campaign.make(
        [], ["left", "right"], at=tmp_path / "c.teeter", name="points", settings=settings
    )
    campaign.add({"id": f"p{k}", "features": row} for k, row in enumerate(VECTORS))

    for who in ("ann", "bob"):
        ask_items(campaign, 5, who)
    (first, *_) = ask_items(campaign, 5, "ann")

    actions = [
        lambda: campaign.ask(5, "ann"),
        lambda: campaign.ask(3, "cem"),
        lambda: campaign.tell(first, "left", "ann"),
        lambda: campaign.undo("ann"),
        lambda: campaign.people.find_by_token("none"),
    ]

    for action in actions:
        steps = explain_queries(campaign, action)
        assert steps

        scans = [
            line
            for line in steps
            if line.startswith(("SCAN items", "SCAN picks", "SCAN answers", "SCAN batches"))
        ]
        assert scans == []
        assert not any(line.startswith("SCAN history") for line in steps)
    campaign.database.close()
