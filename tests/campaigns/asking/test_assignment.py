"""Picking keeps ahead of people: annotators who poll always find items, and only counts decide how
many are picked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from campaigns.fake_clock import FakeClock
from campaigns.history_replay import replay_repeats
from campaigns.stores import POSTGRESQL_SLOW, new_place
from teeter.campaigns.asking.assignment import (
    MOST_READY,
    keep_ready,
    pick_ahead,
    ready_items_wanted,
)
from teeter.campaigns.campaign import Campaign
from teeter.campaigns.records import PickArm
from teeter.campaigns.settings import Settings
from teeter.campaigns.store import Writing

BATCH = 2
ANNOTATORS = [f"annotator {k}" for k in range(8)]
VECTORS = np.random.default_rng(0).normal(size=(200, 3)).astype(np.float32)
MakeCampaign = Callable[..., Campaign]


@pytest.fixture(params=POSTGRESQL_SLOW)
def make_campaign(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeCampaign]:
    campaigns: list[Campaign] = []

    def make(items: int = 200, **settings: object) -> Campaign:
        options = {"kind": "features", "strategy": "margin", "control": 0.2} | settings
        folder = tmp_path / str(len(campaigns))
        folder.mkdir()

        campaign = Campaign.make(
            [],
            ["left", "right"],
            at=new_place(request.param, folder),
            name="points",
            settings=Settings(**options),
            clock=FakeClock(),
        )

        campaign.add({"id": f"p{k}", "features": row} for k, row in enumerate(VECTORS[:items]))
        campaigns.append(campaign)
        return campaign

    yield make
    for campaign in campaigns:
        campaign.database.close()


def true_class(item: str) -> str:
    return "right" if VECTORS[int(item[1:]), 0] > 0 else "left"


def count_ready(campaign: Campaign) -> int:
    with campaign.reading() as view:
        return view.picks.count_ready()


def ready_items(campaign: Campaign, arm: PickArm | None = None) -> list[str]:
    with campaign.reading() as view:
        picks = view.picks.ready_picks()
    return [pick.item for pick in picks if arm is None or pick.arm is arm]


def poll(campaign: Campaign, annotator: str) -> list[str]:
    """Return what the page shows an annotator, who gets items that are ready but picks none."""
    with campaign.writing() as change:
        if not change.picks.open_picks(annotator, BATCH):
            change.picks.assign(annotator, BATCH)
        return [pick.item for pick in change.picks.open_picks(annotator, BATCH)]


def start_team(campaign: Campaign) -> None:
    """Give every annotator a batch and a lease, and train the first model on their answers."""
    for annotator in ANNOTATORS:
        for question in campaign.ask(BATCH, annotator):
            campaign.tell(question.item, true_class(question.item), annotator)
        campaign.ask(1, annotator)
    campaign.train()


def test_two_batches_are_wanted_for_each_active_annotator(make_campaign: MakeCampaign) -> None:
    campaign = make_campaign(lease=30)
    assert ready_items_wanted(campaign, BATCH) == 0
    campaign.ask(1, ANNOTATORS[0])
    assert ready_items_wanted(campaign, BATCH) == 0, "one annotator picks the next batch in time"
    for annotator in ANNOTATORS:
        campaign.ask(1, annotator)
    assert ready_items_wanted(campaign, BATCH) == 2 * BATCH * 8
    assert ready_items_wanted(campaign, 1000) == MOST_READY


def test_without_leases_an_annotator_with_open_items_is_active(make_campaign: MakeCampaign) -> None:
    campaign = make_campaign(lease=0)
    for annotator in ANNOTATORS[:3]:
        campaign.ask(1, annotator)
    assert ready_items_wanted(campaign, BATCH) == 2 * BATCH * 3

    (question,) = campaign.ask(1, ANNOTATORS[0])
    campaign.skip(question.item, ANNOTATORS[0])
    assert ready_items_wanted(campaign, BATCH) == 2 * BATCH * 2


@pytest.mark.slow
def test_items_are_picked_ahead_when_less_than_a_batch_for_each_is_ready(
    make_campaign: MakeCampaign,
) -> None:
    campaign = make_campaign()
    start_team(campaign)
    wanted = ready_items_wanted(campaign, BATCH)
    assert pick_ahead(campaign, wanted)
    assert count_ready(campaign) == wanted

    seen = []
    while count_ready(campaign) >= wanted // 2:
        assert keep_ready(campaign, BATCH)
        seen.append(count_ready(campaign))
        poll_items = poll(campaign, ANNOTATORS[len(seen) % 8])
        for item in poll_items:
            campaign.tell(item, true_class(item), ANNOTATORS[len(seen) % 8])
    assert max(seen) == wanted, "nothing was picked before"
    assert len(seen) > 4

    assert keep_ready(campaign, BATCH)
    assert count_ready(campaign) == wanted


def test_a_new_model_replaces_the_items_of_the_old_one_in_the_same_moment(
    make_campaign: MakeCampaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    campaign = make_campaign()
    start_team(campaign)
    keep_ready(campaign, BATCH)
    wanted = ready_items_wanted(campaign, BATCH)
    old_items = ready_items(campaign)
    seen_by_others = []

    save_model = Writing.save_model

    def save_model_and_look(change: Writing, *arguments: Any) -> int:
        version = save_model(change, *arguments)
        # In a thread of its own, as another process would look.
        with ThreadPoolExecutor() as pool:
            seen_by_others.append(pool.submit(ready_items, campaign).result())
        return version

    monkeypatch.setattr(Writing, "save_model", save_model_and_look)
    campaign.train(pick_ahead=wanted)

    assert seen_by_others == [old_items], "until the new ones are there"
    assert count_ready(campaign) >= wanted
    old_picks = set(old_items) - set(ready_items(campaign, PickArm.CONTROL))
    new_picks = set(ready_items(campaign, PickArm.PICKED))
    assert new_picks != old_picks


def play_team(campaign: Campaign, rounds: int) -> tuple[int, list[str]]:
    """Let eight annotators poll and answer while items are picked and models trained beside them.

    Returns:
        How many polls found nothing, and the items in the order in which they were answered.
    """
    start_team(campaign)
    keep_ready(campaign, BATCH)
    empty_polls = 0
    answered = []
    for turn in range(rounds):
        # While one picking or training runs, every annotator uses up to a batch.
        for annotator in ANNOTATORS:
            items = poll(campaign, annotator)
            empty_polls += not items
            for item in items:
                campaign.tell(item, true_class(item), annotator)
            answered += items

        state = campaign.load_state()
        if turn % 2:
            campaign.train(state=state, pick_ahead=ready_items_wanted(campaign, BATCH))
        else:
            keep_ready(campaign, BATCH, state=state)
    return empty_polls, answered


@pytest.mark.slow
def test_eight_annotators_who_poll_always_find_items(make_campaign: MakeCampaign) -> None:
    campaign = make_campaign()
    empty_polls, answered = play_team(campaign, rounds=6)
    assert empty_polls == 0
    assert Counter(answered) - Counter(set(answered)) == Counter(replay_repeats(campaign.history()))
    assert len(answered) > 6 * 8


@pytest.mark.slow
def test_the_same_events_lead_to_the_same_items(make_campaign: MakeCampaign) -> None:
    first, second = (play_team(make_campaign(seed=3), rounds=3) for _ in range(2))
    assert first == second


def test_nothing_left_to_pick_is_reported(make_campaign: MakeCampaign) -> None:
    campaign = make_campaign(items=32)
    start_team(campaign)
    assert pick_ahead(campaign, 10), "eight items are left"
    assert not pick_ahead(campaign, 10)
