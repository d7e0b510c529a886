"""Batches: picks of the strategy, control items drawn from all items, and items of
the holdout.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from campaigns.history_replay import replay_repeats
from campaigns.random_campaigns import (
    SETTINGS,
    create_campaign,
    draw_features,
    item_number,
    label_batch,
)
from teeter.campaigns.asking import selection
from teeter.campaigns.asking.selection import choose_picks
from teeter.campaigns.campaign import Campaign
from teeter.campaigns.learning import training
from teeter.campaigns.learning.rounds import RoundSettings
from teeter.campaigns.learning.training import train_model
from teeter.campaigns.records import PickArm


def control_items(campaign: Campaign) -> set[str]:
    with campaign.reading() as view:
        return view.picks.control_items()


def holdout_items(campaign: Campaign) -> set[int]:
    with campaign.reading() as view:
        return {item_number(item) for item in view.items.holdout()}


@pytest.mark.parametrize(
    ("seeds", "lowest", "highest"), [(3, 11, 28), pytest.param(30, 15, 24, marks=pytest.mark.slow)]
)
def test_the_holdout_is_asked_in_random_order(
    seeds: int, lowest: float, highest: float, tmp_path: Path
) -> None:
    positions: list[int] = []
    for seed in range(seeds):
        settings = replace(SETTINGS, holdout=40, seed=seed)
        campaign = create_campaign(tmp_path, settings, draw_features(100, 2), f"c{seed}")
        asked = [question.item for question in campaign.ask(20) if question.arm == "holdout"]
        assert len(asked) == 5
        holdout = sorted(holdout_items(campaign))
        positions += [holdout.index(item_number(item)) for item in asked]
        campaign.database.close()

    assert lowest < np.mean(positions) < highest, "of 40 in random order, the mean is 19.5"


@pytest.mark.slow
def test_asked_one_by_one_every_fourth_item_is_of_the_holdout(tmp_path: Path) -> None:
    settings = replace(SETTINGS, holdout=50, strategy="random")
    campaign = create_campaign(tmp_path, settings, draw_features(200))

    arms = []
    for _ in range(40):
        arms += label_batch(campaign, np.zeros(200, np.int64), 1, train=False)

    assert 4 <= arms.count("holdout") <= 18


@pytest.mark.slow
def test_the_holdout_is_asked_if_nothing_else_is_left(tmp_path: Path) -> None:
    settings = replace(SETTINGS, holdout=20, strategy="random")
    campaign = create_campaign(tmp_path, settings, draw_features(40))

    count = 0
    for _ in range(14):
        count += len(label_batch(campaign, np.zeros(40, np.int64), 3, train=False))

    assert count == 40


@pytest.mark.slow
def test_control_items_are_drawn_from_all_items_and_asked_unless_they_were_answered_blind(
    tmp_path: Path,
) -> None:
    features = draw_features(300)
    labels = (features[:, 0] > 0).astype(np.int64)
    settings = replace(SETTINGS, control=0.25, strategy="margin")
    campaign = create_campaign(tmp_path, settings, features)

    arms = []
    for _ in range(6):
        arms += label_batch(campaign, labels, 40)

    history = campaign.history()
    not_asked = []
    for line in history:
        if line["what"] == "asked":
            not_asked += line["known"]
    repeats = replay_repeats(history)
    assert len(control_items(campaign)) == 60
    assert len(not_asked) == 60 - arms.count("control")
    assert len(not_asked) + len(repeats) > 10, "items with a label are drawn, too"
    assert set(not_asked) | set(repeats) <= control_items(campaign)
    with campaign.reading() as view:
        assert view.models.summaries()[-1].facts["control"][1] == 60, "all measure the model"


@pytest.mark.slow
def test_control_items_with_a_label_are_anywhere_in_the_order_of_the_draws(tmp_path: Path) -> None:
    settings = replace(SETTINGS, control=0.95, strategy="random")
    campaign = create_campaign(tmp_path, settings, draw_features(400))
    labelled = {f"i{k}" for k in range(200)}
    for item in sorted(labelled):
        campaign.tell(item, "a")

    campaign.ask(150)

    with campaign.reading() as view:
        drawn = view.picks.control_items_in_order()
    positions = [position for position, item in enumerate(drawn) if item in labelled]
    assert len(drawn) >= 142
    assert 55 < len(positions) < 90
    # Of 75 random positions, the mean has a standard deviation of 3.5.
    assert np.mean(positions) == pytest.approx(len(drawn) / 2, abs=14)


def test_a_batch_without_room_draws_no_control_items(tmp_path: Path) -> None:
    settings = replace(SETTINGS, control=0.95, strategy="random")
    campaign = create_campaign(tmp_path, settings, draw_features(40))
    for question in campaign.ask(20):
        campaign.skip(question.item)
    skipped = control_items(campaign)
    for item in sorted({f"i{k}" for k in range(40)} - skipped):
        campaign.tell(item, "a")

    # Items with a label need no room, but drawing those alone would not be random.
    asked = {question.item for question in campaign.ask(10)}
    assert asked < skipped
    assert control_items(campaign) == skipped


def test_a_skipped_control_item_comes_back_as_one(tmp_path: Path) -> None:
    features = draw_features(60)
    labels = (features[:, 0] > 0).astype(np.int64)
    settings = replace(SETTINGS, control=0.5, strategy="margin")
    campaign = create_campaign(tmp_path, settings, features)

    questions = campaign.ask(20)
    skipped = {question.item for question in questions if question.arm == "control"}
    assert len(skipped) == 10
    for question in questions:
        if question.item in skipped:
            campaign.skip(question.item)
        else:
            campaign.tell(question.item, "ab"[labels[item_number(question.item)]])
    campaign.train()

    arms = {question.item: question.arm for question in campaign.ask(40)}
    assert {arms[item] for item in skipped} == {"control"}


@pytest.mark.parametrize("seeds", [4, pytest.param(20, marks=pytest.mark.slow)])
def test_control_items_are_anywhere_in_a_batch(seeds: int, tmp_path: Path) -> None:
    ranks = []
    for seed in range(seeds):
        settings = replace(SETTINGS, control=0.3, seed=seed)
        campaign = create_campaign(tmp_path, settings, draw_features(60, 2), f"c{seed}")
        ranks += [question.rank for question in campaign.ask(20) if question.arm == "control"]
        campaign.database.close()

    assert 7 < np.mean(ranks) < 14, "of 20, the mean is 10.5"
    assert min(ranks) <= 3


def test_a_batch_can_be_larger_than_the_strategy_s_pool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "MAX_CANDIDATES", 10)
    campaign = create_campaign(tmp_path, SETTINGS, draw_features(60))

    assert len(campaign.ask(30)) == 30


def test_items_of_other_annotators_are_not_asked_even_if_they_are_picked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    campaign = create_campaign(tmp_path, SETTINGS, draw_features(30))
    items_of_bob = {question.item for question in campaign.ask(10, "bob")}
    choose_picks = selection.choose_picks

    def choose_taken_items_too(
        state: selection.RoundState, settings: selection.RoundSettings, n: int
    ) -> list[selection.Pick]:
        taken = [selection.Pick(item, 1, PickArm.PICKED, {}) for item in sorted(items_of_bob)]
        return [*taken, *choose_picks(state, settings, n)]

    monkeypatch.setattr(selection, "choose_picks", choose_taken_items_too)
    items_of_ann = [question.item for question in campaign.ask(10, "ann")]

    assert len(items_of_ann) == 10
    assert not items_of_bob & set(items_of_ann)


@pytest.mark.slow
@pytest.mark.parametrize(
    "strategy",
    [
        pytest.param("dbal", marks=pytest.mark.slow),
        pytest.param("batchbald", marks=pytest.mark.slow),
        "ensemble",
    ],
)
def test_strategies_that_need_a_network_pick_with_one(strategy: str, tmp_path: Path) -> None:
    features = draw_features(40)
    settings = replace(SETTINGS, strategy=strategy, head="mlp")
    campaign = create_campaign(tmp_path, settings, features)

    label_batch(campaign, (features[:, 0] > 0).astype(np.int64), 10)

    assert len(campaign.ask(3)) == 3


def test_an_item_that_lost_its_label_is_asked_again(tmp_path: Path) -> None:
    campaign = create_campaign(tmp_path, replace(SETTINGS, strategy="random"), draw_features(20))
    for k in range(20):
        campaign.tell(f"i{k}", "ab"[k % 2])
    campaign.train()

    campaign.undo()

    assert [question.item for question in campaign.ask(3)] == ["i19"]


def test_labels_of_control_items_do_not_change_what_is_picked(tmp_path: Path) -> None:
    features = draw_features(120, 6)
    truth = (features[:, 0] > 0).astype(np.int64)
    campaign = create_campaign(
        tmp_path, replace(SETTINGS, control=0.5, strategy="margin"), features
    )
    label_batch(campaign, truth, 40)
    state = campaign.load_state()
    campaign.database.close()
    settings = RoundSettings("margin", {}, "linear", 0.0, 0)

    picked = []
    for flip in (False, True):
        labels = dict(state.labels)
        if flip:
            for place in state.control:
                other = [name for name in state.classes if name != labels.get(place)]
                labels[place] = other[0]
        changed = replace(state, labels=labels, weights=None, version=0)
        weights, _ = train_model(changed, settings)
        picks = choose_picks(replace(changed, weights=weights, version=1), settings, 10)
        picked.append({pick.item for pick in picks})

    assert picked[0] == picked[1]


def test_herding_picks_ahead_are_unlike_those_that_wait(tmp_path: Path) -> None:
    """Eight tight groups: two batches of four cover all, although no answer is in between."""
    groups = np.arange(80) % 8
    features = np.eye(8, dtype=np.float32)[groups] * 10 + draw_features(80, 8)
    settings = replace(SETTINGS, strategy="herding-ldm-s")
    campaign = create_campaign(tmp_path, settings, features)

    asked = [*campaign.ask(4, "ann"), *campaign.ask(4, "bob")]
    places = [item_number(question.item) for question in asked]
    assert sorted(groups[places]) == list(range(8))
    assert sum(question.reason["covers"] for question in asked[:4]) == 80

    # One class only, so there is no model: the labelled items cover theirs, too.
    for question in asked[:4]:
        campaign.tell(question.item, "a", "ann")
    next_places = [item_number(question.item) for question in campaign.ask(4, "cat")]
    assert not set(next_places) & set(places)


def test_herding_becomes_ldm_s_at_eight_labels_per_class(tmp_path: Path) -> None:
    features = draw_features(120)
    labels = (features[:, 0] > 0).astype(np.int64)
    settings = replace(SETTINGS, control=0.2, strategy="herding-ldm-s")
    campaign = create_campaign(tmp_path, settings, features)

    label_batch(campaign, labels, 10)
    early = [question for question in campaign.ask(4, "ann") if question.arm == "picked"]
    assert all("covers" in question.reason for question in early)
    assert not any("ldm" in question.reason for question in early)

    label_batch(campaign, labels, 15)
    late = [question for question in campaign.ask(12, "bob") if question.arm == "picked"]
    assert late
    assert all("ldm" in question.reason for question in late)
