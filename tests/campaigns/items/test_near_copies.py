"""Near copies: their groups are exact, and one answer can be given to all of a group."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from campaigns.random_campaigns import SETTINGS, create_campaign, draw_features, item_number
from reference import near_copies as literal
from teeter.base.array_types import Vectors
from teeter.campaigns.campaign import Campaign
from teeter.campaigns.items import near_copies
from teeter.campaigns.items.near_copies import group_near_copies
from teeter.campaigns.learning.training import group_by_answer
from teeter.campaigns.records import Answer, AnswerKind, AnswerOrigin, PickArm
from teeter.campaigns.settings import Settings
from teeter.errors import InputError

COPYING = replace(SETTINGS, copies=0.95)


def draw_copies(count: int, width: int, seed: int) -> Vectors:
    """Return rows of which about half are near copies of others, some in chains, and one zero."""
    generator = np.random.default_rng(seed)
    rows = draw_features(count, width, seed)
    rows[count // 2 :] = rows[generator.integers(count // 2, size=count - count // 2)]
    rows += generator.normal(scale=0.12, size=rows.shape).astype(np.float32)
    rows[generator.integers(count)] = 0
    scales = generator.uniform(0.1, 10, size=(count, 1))
    return (rows * scales).astype(np.float32)


@given(
    count=st.integers(2, 60),
    width=st.integers(1, 50),
    seed=st.integers(0, 1000),
    similarity=st.sampled_from([0.3, 0.8, 0.95, 0.99]),
    block=st.integers(1, 20),
)
@settings(max_examples=25, deadline=None)
def test_groups_equal_those_of_every_pair(
    count: int, width: int, seed: int, similarity: float, block: int
) -> None:
    features = draw_copies(count, width, seed)
    expected = literal.group_near_copies(features, similarity)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(near_copies, "_BLOCK", block)
        patch.setattr(near_copies, "_PART", 3)
        assert np.array_equal(group_near_copies(features, similarity), expected)

        # In two steps, as when items are added.
        known = group_near_copies(features[: count // 2], similarity)
        assert np.array_equal(group_near_copies(features, similarity, known), expected)


def test_the_bound_rules_pairs_out_in_wide_features() -> None:
    features = draw_copies(300, 120, seed=3)
    assert np.array_equal(
        group_near_copies(features, 0.95), literal.group_near_copies(features, 0.95)
    )
    assert len(np.unique(group_near_copies(features, 0.95))) < 290


def grouped_features(groups: int, size: int, seed: int = 0) -> Vectors:
    """Return groups of near copies, one after the other; all groups are apart."""
    centres = draw_features(groups, 40, seed)
    rows = np.repeat(centres, size, axis=0)
    noise = np.random.default_rng(seed).normal(scale=0.02, size=rows.shape)
    return (rows + noise).astype(np.float32)


def items(first: int, last: int) -> list[str]:
    return [f"i{k}" for k in range(first, last)]


def origins(campaign: Campaign) -> dict[str, AnswerOrigin]:
    with campaign.reading() as view:
        return {answer.item: answer.origin for answer in view.answers.live()}


def test_one_answer_is_given_to_the_copies_and_one_undo_takes_all_back(tmp_path: Path) -> None:
    campaign = create_campaign(tmp_path, COPYING, grouped_features(5, 4))
    assert campaign.items.get("i1").copies == ["i0", "i2", "i3"]

    campaign.tell("i2", "b", "bob")  # somebody has looked at this one
    receipt = campaign.tell("i1", "a", copies=True)
    assert receipt.count == 3
    assert origins(campaign) == {
        "i2": AnswerOrigin.SINGLE,
        "i1": AnswerOrigin.SINGLE,
        "i0": AnswerOrigin.COPY,
        "i3": AnswerOrigin.COPY,
    }
    assert {item: label.label for item, label in campaign.labels().items()} == {
        "i0": "a",
        "i1": "a",
        "i2": "b",
        "i3": "a",
    }
    assert campaign.tell("i1", "a", copies=True).recorded is False, "sent again, it changes nothing"

    undone = campaign.undo(number=receipt.number)
    assert undone is not None
    assert (undone.answer.item, undone.count) == ("i1", 3)
    assert campaign.undo(number=receipt.number) == undone, "sent again, it is answered as before"
    assert list(campaign.labels()) == ["i2"]


def test_copies_of_an_item_that_was_answered_before_are_answered_later(tmp_path: Path) -> None:
    campaign = create_campaign(tmp_path, COPYING, grouped_features(5, 4))
    campaign.tell("i1", "a")
    assert campaign.tell("i1", "a", copies=True).count == 4
    campaign.tell("i1", "b", copies=True)
    assert {label.label for label in campaign.labels().values()} == {"b"}
    campaign.undo()
    assert {label.label for label in campaign.labels().values()} == {"a"}
    campaign.undo()
    assert list(campaign.labels()) == ["i1"]


def test_an_export_tells_labels_of_copies_from_those_of_people(tmp_path: Path) -> None:
    campaign = create_campaign(tmp_path, COPYING, grouped_features(5, 4))
    campaign.tell("i1", "a", copies=True)
    campaign.tell("i2", "a", "bob")
    campaign.export(tmp_path / "labels.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "labels.jsonl").read_text().splitlines()]
    sources = {row["id"]: row["source"] for row in rows[:4]}
    assert sources == {"i0": "copy", "i1": "person", "i2": "consensus", "i3": "copy"}


def test_withdrawn_decided_and_unlike_items_get_no_answer_of_others(tmp_path: Path) -> None:
    campaign = create_campaign(tmp_path, COPYING, grouped_features(5, 4))
    campaign.items.withdraw(["i0"])
    campaign.review.decide("i2", "b", "rey")
    campaign.skip("i3", "bob")  # a skip says nothing
    campaign.tell("i1", "a", copies=True)
    assert {item: label.label for item, label in campaign.labels().items()} == {
        "i1": "a",
        "i2": "b",
        "i3": "a",
    }
    assert campaign.tell("i4", "a").count == 1
    # Only a class is given to copies.
    flag = Answer("i8", "me", AnswerKind.FLAG)
    assert campaign.answer(flag, copies=True).count == 1


def test_at_most_200_items_are_answered_by_one_key(tmp_path: Path) -> None:
    campaign = create_campaign(tmp_path, COPYING, grouped_features(1, 250))
    assert campaign.tell("i0", "a", copies=True).count == 200
    assert campaign.tell("i0", "a", copies=True).count == 51, "the source is given again"


def test_one_of_each_group_is_asked(tmp_path: Path) -> None:
    campaign = create_campaign(tmp_path, COPYING, grouped_features(30, 4))
    asked: list[str] = []
    for _ in range(3):
        batch = [question.item for question in campaign.ask(10)]
        for item in batch:
            campaign.tell(item, "ab"[item_number(item) // 4 % 2])
        campaign.train()
        asked += batch
    assert sorted(item_number(item) // 4 for item in asked) == list(range(30))

    # Nothing else is left: then the copies are asked, too.
    rest = campaign.ask(100)
    assert len(rest) == 90


def test_what_is_open_with_one_annotator_is_not_asked_of_another(tmp_path: Path) -> None:
    campaign = create_campaign(tmp_path, COPYING, grouped_features(30, 4))
    ann = {item_number(question.item) // 4 for question in campaign.ask(10, "ann")}
    bob = {item_number(question.item) // 4 for question in campaign.ask(10, "bob")}
    assert len(ann | bob) == 20


def test_no_near_copies_are_looked_for_if_the_setting_says_so(tmp_path: Path) -> None:
    campaign = create_campaign(tmp_path, SETTINGS, grouped_features(5, 4))
    assert campaign.items.get("i1").copies == []
    assert campaign.tell("i1", "a", copies=True).count == 1

    campaign.change_settings(copies=0.9)
    assert campaign.items.get("i1").copies == ["i0", "i2", "i3"]
    campaign.add([{"id": "new", "features": grouped_features(5, 4)[2]}])
    assert campaign.items.get("i1").copies == ["i0", "i2", "i3", "new"]
    campaign.items.change("i0", features=[1.0] * 40)
    campaign.add([{"id": "other", "features": [2.0] * 40}])
    assert campaign.items.get("i1").copies == ["i2", "i3", "new"]
    assert campaign.items.get("i0").copies == ["other"]
    campaign.change_settings(copies=0)
    assert campaign.items.get("i1").copies == []
    with pytest.raises(InputError, match="similarity of near copies must be from 0 to 1"):
        campaign.change_settings(copies=1.1)


def test_texts_have_near_copies_and_other_items_only_on_request() -> None:
    assert Settings().copy_similarity == 0.95
    assert Settings(kind="image").copy_similarity == 0
    assert Settings(kind="features").copy_similarity == 0
    assert Settings(rows=True).copy_similarity == 0
    assert Settings(kind="image", copies=0.97).copy_similarity == 0.97


def test_the_copies_of_a_judged_item_are_held_out_with_it(tmp_path: Path) -> None:
    campaign = create_campaign(tmp_path, COPYING, grouped_features(10, 4))
    campaign.tell("i1", "a", copies=True)
    campaign.tell("i5", "b")
    campaign.tell("i6", "b")
    state = campaign.load_state()
    places = np.array(sorted(state.labels))
    assert places.tolist() == [0, 1, 2, 3, 5, 6]
    assert group_by_answer(state, places).tolist() == [0, 0, 0, 0, 5, 6]
    near = group_by_answer(state, places, with_near_copies=True)
    assert near.tolist() == [0, 0, 0, 0, 4, 4]


def test_an_answer_that_was_given_as_a_copy_never_measures(tmp_path: Path) -> None:
    campaign = create_campaign(
        tmp_path, replace(COPYING, control=0.5, holdout=20), grouped_features(30, 4)
    )
    blind: set[str] = set()
    for _ in range(6):
        for question in campaign.ask(10):
            blind.add(question.item)
            campaign.tell(question.item, "ab"[item_number(question.item) // 4 % 2], copies=True)
        model = campaign.train()
        state = campaign.load_state()
        copied = {item for item, origin in origins(campaign).items() if origin == "copy"}
        assert copied
        assert not copied & blind, "what was asked was answered, whatever was given to it before"
        measured = {state.keys[place] for place in state.control & state.labels.keys()}
        measured -= {state.keys[place] for place in state.in_view}
        assert measured <= blind
        assert model.control[1] == len(measured)
        held_out = {
            state.keys[place] for place, label in state.holdout.items() if label is not None
        }
        assert held_out <= blind
        assert model.holdout[1] == len(held_out)


@pytest.mark.parametrize("seeds", [6, pytest.param(300, marks=pytest.mark.slow)])
def test_control_items_are_uniform_among_groups(seeds: int, tmp_path: Path) -> None:
    # 20 items in groups of 5 and 20 alone, and everybody accepts copies.
    features = np.concatenate([grouped_features(4, 5, seed=1), draw_features(20, 40, seed=2)])
    in_groups = 0
    total = 0
    for seed in range(seeds):
        campaign = create_campaign(
            tmp_path, replace(COPYING, control=0.4, seed=seed), features, f"c{seed}"
        )
        for _ in range(2):
            for question in campaign.ask(5):
                campaign.tell(question.item, "ab"[item_number(question.item) % 2], copies=True)
        with campaign.reading() as view:
            control = {item_number(item) for item in view.picks.control_items()}
        in_groups += len([number for number in control if number < 20])
        total += len(control)
        campaign.database.close()

    # Half of all items are in groups. 4 standard errors.
    assert abs(in_groups / total - 0.5) < 4 * 0.5 / np.sqrt(total)


def test_picks_of_random_are_no_sample_once_others_were_answered_in_bulk(tmp_path: Path) -> None:
    campaign = create_campaign(
        tmp_path, replace(COPYING, strategy="random"), grouped_features(30, 4)
    )
    for question in campaign.ask(20):
        campaign.tell(question.item, "ab"[item_number(question.item) // 4 % 2])
    assert campaign.train().control[1] == 20
    campaign.tell_all([item for item in items(0, 120) if item not in campaign.labels()][:5], "a")
    for question in campaign.ask(20):
        assert question.arm == PickArm.PICKED
        campaign.tell(question.item, "ab"[item_number(question.item) // 4 % 2])
    assert campaign.train().control[1] == 0
