"""Answers to many items at once, and answers with a prediction in view: they measure nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from campaigns.random_campaigns import SETTINGS, create_campaign, draw_features, item_number
from teeter.campaigns.asking.questions import open_questions
from teeter.campaigns.campaign import Campaign
from teeter.campaigns.finish.frozen_model import load_finish
from teeter.campaigns.records import Answer, AnswerKind, AnswerOrigin, PickArm, PickState
from teeter.campaigns.settings import settings_to_dict
from teeter.errors import InputError, UnknownNameError

FEATURES = draw_features(120)
TRUE_LABELS = ["ab"[int(row[0] > 0)] for row in FEATURES]


def make(folder: Path, **settings: object) -> Campaign:
    return create_campaign(folder, replace(SETTINGS, **settings), FEATURES)  # type: ignore[arg-type]


def true_label(item: str) -> str:
    return TRUE_LABELS[item_number(item)]


def answer_batch(campaign: Campaign, n: int) -> None:
    for question in campaign.ask(n):
        campaign.tell(question.item, true_label(question.item))


def items(first: int, last: int) -> list[str]:
    return [f"i{k}" for k in range(first, last)]


def draw_control(campaign: Campaign, count: int) -> list[str]:
    """Ask until so many control items are open, answering everything else, and return them."""
    control: list[str] = []
    while len(control) < count:
        for question in campaign.ask(10):
            if question.arm == PickArm.CONTROL:
                control.append(question.item)
            else:
                campaign.tell(question.item, true_label(question.item))
    return list(dict.fromkeys(control))


def test_one_key_answers_many_items_and_one_undo_takes_all_back(tmp_path: Path) -> None:
    campaign = make(tmp_path)
    campaign.tell("i3", "b")

    receipt = campaign.tell_all([*items(0, 10), "i0"], "a")
    assert (receipt.count, receipt.recorded) == (9, True)
    assert campaign.labels()["i3"].label == "b", "what was said of the item alone stays"
    assert len(campaign.labels()) == 10
    assert campaign.tell_all(items(0, 10), "a").count == 0, "sent again, it changes nothing"

    undone = campaign.undo(number=receipt.number)
    assert undone is not None
    assert undone.count == 9
    assert campaign.undo(number=receipt.number) == undone, "sent again, it is answered as before"
    assert list(campaign.labels()) == ["i3"]
    again = campaign.undo()
    assert again is not None
    assert (again.answer.item, again.count) == ("i3", 1)


def test_an_item_that_was_skipped_is_answered_in_bulk(tmp_path: Path) -> None:
    campaign = make(tmp_path)
    campaign.skip("i0")
    campaign.flag("i1")
    assert campaign.tell_all(items(0, 3), "a").count == 2
    assert sorted(campaign.labels()) == ["i0", "i2"]


def test_many_answers_at_once_are_one_key_press_in_the_pace(tmp_path: Path) -> None:
    campaign = make(tmp_path)
    for item in items(0, 4):
        campaign.tell(item, "a")
    campaign.tell_all(items(4, 100), "b")
    (stats,) = campaign.people.stats()
    assert stats.answers == 100
    assert stats.seconds is None, "four times between five key presses are too few for a pace"


def test_all_are_recorded_or_none(tmp_path: Path) -> None:
    campaign = make(tmp_path)
    with pytest.raises(UnknownNameError):
        campaign.tell_all([*items(0, 5), "no such item"], "a")
    with pytest.raises(UnknownNameError):
        campaign.tell_all(items(0, 5), "no such class")
    with pytest.raises(InputError, match="give 1 to 200"):
        campaign.tell_all([], "a")
    with pytest.raises(InputError, match="201 items cannot be answered at once"):
        campaign.tell_all(items(0, 201), "a")
    assert campaign.labels() == {}


def test_answers_in_bulk_never_outvote_a_person_who_looked_at_the_item(tmp_path: Path) -> None:
    campaign = make(tmp_path)
    campaign.tell_all(["i1"], "b", "bob")
    assert campaign.labels()["i1"].label == "b"
    campaign.tell("i1", "a", "ann")
    campaign.tell_all(["i1"], "b", "cem")
    assert campaign.labels()["i1"].label == "a"

    # The same person looks again: the answer in bulk gives way, though it says the same.
    campaign.tell_all(["i2"], "b", "bob")
    assert campaign.tell("i2", "b", "bob").recorded
    assert campaign.tell_all(["i2"], "a", "bob").count == 0
    assert campaign.labels()["i2"].label == "b"


def test_a_control_item_that_was_answered_in_bulk_is_asked_again_and_counts_only_then(
    tmp_path: Path,
) -> None:
    campaign = make(tmp_path, control=0.5)
    control = draw_control(campaign, 3)
    campaign.tell_all(control, "a")
    assert all(campaign.labels()[item].label == "a" for item in control)

    model = campaign.train()
    assert not set(control) & measured_items(campaign)
    assert model.control[1] == len(measured_items(campaign))

    waiting = [question.item for question in campaign.ask(10)]
    assert set(control) <= set(waiting), "still open, because nobody answered them blind"
    for item in control:
        campaign.tell(item, true_label(item))
    assert set(control) <= measured_items(campaign)
    assert {item: campaign.labels()[item].label for item in control} == {
        item: true_label(item) for item in control
    }


def measured_items(campaign: Campaign) -> set[str]:
    """Return the control items whose labels measure the model."""
    state = campaign.load_state()
    measuring = state.control & state.labels.keys() - state.in_view
    return {state.keys[place] for place in measuring}


def test_a_labelled_item_that_is_drawn_to_measure_is_asked_again_if_it_was_not_answered_blind(
    tmp_path: Path,
) -> None:
    campaign = make(tmp_path)
    answer_batch(campaign, 10)  # before the first model: nothing was in view
    blind = set(campaign.labels())
    campaign.train()
    answer_batch(campaign, 20)  # with predictions in view
    in_view = set(campaign.labels()) - blind
    campaign.tell_all([item for item in items(0, 120) if item not in campaign.labels()][:60], "a")
    state = campaign.load_state()
    assert {state.keys[place] for place in state.in_view} == set(campaign.labels()) - blind
    assert in_view

    set_control_share(campaign, 0.9)
    asked: set[str] = set()
    for _ in range(6):
        for question in campaign.ask(10):
            asked.add(question.item)
            campaign.tell(question.item, true_label(question.item))
    with campaign.reading() as view:
        known = {pick_item for pick_item in view.picks.control_items() if pick_item not in asked}
    assert known <= blind, "only what was answered blind is not asked again"
    assert asked & in_view


def set_control_share(campaign: Campaign, share: float) -> None:
    stored = settings_to_dict(replace(campaign.settings, control=share), None)
    with campaign.writing() as change:
        change.write_settings(stored)


def test_a_prediction_in_view_is_noted_once_there_is_a_model(tmp_path: Path) -> None:
    campaign = make(tmp_path, control=0.3)
    answer_batch(campaign, 20)
    assert origins(campaign) == {AnswerOrigin.SINGLE}
    campaign.train()
    answer_batch(campaign, 20)

    with campaign.reading() as view:
        control = view.picks.control_items()
        later = view.answers.live()[20:]
    assert {answer.origin for answer in later if answer.item in control} <= {AnswerOrigin.SINGLE}
    assert {answer.origin for answer in later if answer.item not in control} == {AnswerOrigin.SEEN}

    # Nothing is in view of a program that names the item itself, and the page of an item shows it.
    free = [item for item in items(0, 120) if item not in campaign.labels()]
    campaign.tell(free[0], "a")
    campaign.answer(Answer(free[1], "me", AnswerKind.LABEL, "a", origin=AnswerOrigin.SEEN))
    with campaign.reading() as view:
        found = {answer.item: answer.origin for answer in view.answers.live()}
    assert (found[free[0]], found[free[1]]) == (AnswerOrigin.SINGLE, AnswerOrigin.SEEN)


def origins(campaign: Campaign) -> set[AnswerOrigin]:
    with campaign.reading() as view:
        return {answer.origin for answer in view.answers.live()}


def test_confirming_a_blind_answer_leaves_it_blind(tmp_path: Path) -> None:
    campaign = make(tmp_path)
    campaign.tell("i1", "a")
    campaign.confirm_label("i1")
    campaign.answer(Answer("i1", "me", AnswerKind.LABEL, "a", origin=AnswerOrigin.SEEN))
    assert origins(campaign) == {AnswerOrigin.SINGLE}
    campaign.answer(Answer("i1", "me", AnswerKind.LABEL, "b", origin=AnswerOrigin.SEEN))
    assert origins(campaign) == {AnswerOrigin.SEEN}
    assert campaign.labels()["i1"].label == "b", "a correction counts, but measures nothing"


def test_a_correction_of_what_was_answered_in_view_is_in_view(tmp_path: Path) -> None:
    campaign = make(tmp_path)
    answer_batch(campaign, 20)
    campaign.train()
    (question,) = campaign.ask(1)
    campaign.tell(question.item, "a")
    campaign.tell(question.item, "b")
    campaign.tell_all(["i7" if question.item != "i7" else "i8"], "a")
    with campaign.reading() as view:
        corrected = [answer for answer in view.answers.live() if answer.item == question.item]
    assert [(answer.label, answer.origin) for answer in corrected] == [("b", AnswerOrigin.SEEN)]


def test_each_undo_that_is_sent_again_counts_its_own_answers(tmp_path: Path) -> None:
    campaign = make(tmp_path)
    numbers = [campaign.tell(item, "a").number for item in items(0, 3)]
    for number in reversed(numbers):
        undone = campaign.undo(number=number)
        assert undone is not None
        assert undone.count == 1
        assert campaign.undo(number=number) == undone


def test_every_pick_of_random_is_answered_blind(tmp_path: Path) -> None:
    campaign = make(tmp_path, strategy="random")
    answer_batch(campaign, 20)
    campaign.train()
    campaign.ask(10)
    shown = open_questions(campaign, "me", 10, {})
    assert all(question.pick.is_blind for question in shown)
    assert {question.pick.predicted for question in shown} == {None}
    waiting = {question.item for question in shown}
    for row in campaign.items.find():
        assert (row.predicted is None) == (row.item in waiting)
    answer_batch(campaign, 10)
    assert origins(campaign) == {AnswerOrigin.SINGLE}


def test_agreement_counts_blind_answers_alone(tmp_path: Path) -> None:
    campaign = make(tmp_path)
    for annotator in ("ann", "bob"):
        campaign.tell_all(items(0, 50), "a", annotator)
    assert campaign.review.agreement().items == 0
    for annotator in ("ann", "bob"):
        for item in items(0, 6):
            campaign.answer(Answer(item, annotator, AnswerKind.LABEL, "b"))
    assert origins(campaign) == {AnswerOrigin.BULK, AnswerOrigin.SEEN}
    for item in items(60, 100):
        campaign.tell(item, "a", "ann")
        campaign.tell(item, "b", "bob")
    agreement = campaign.review.agreement()
    assert agreement.items == 40
    assert agreement.observed is not None
    assert agreement.observed.value == 0


def test_a_shared_item_that_was_answered_in_bulk_still_needs_its_annotators(
    tmp_path: Path,
) -> None:
    campaign = make(tmp_path, overlap=1.0, people=2)
    (question,) = campaign.ask(1, "ann")
    campaign.tell_all([question.item], "a", "bob")
    assert question.item in [asked.item for asked in campaign.ask(5, "bob")]
    campaign.tell(question.item, "b", "bob")
    assert question.item not in [asked.item for asked in campaign.ask(5, "cem")]


def test_a_disagreement_shows_the_label_until_a_reviewer_decides(tmp_path: Path) -> None:
    campaign = make(tmp_path)
    campaign.tell_all(["i1"], "a", "ann")
    campaign.answer(Answer("i1", "bob", AnswerKind.LABEL, "b", origin=AnswerOrigin.SEEN))
    campaign.answer(Answer("i1", "cem", AnswerKind.LABEL, "a", origin=AnswerOrigin.SEEN))
    (disagreement,) = campaign.review.disagreements().disagreements
    assert disagreement.label == campaign.labels()["i1"].label


def test_one_in_twenty_answers_in_bulk_is_checked(tmp_path: Path) -> None:
    features = draw_features(600)
    campaign = create_campaign(tmp_path, SETTINGS, features)
    campaign.tell_all(items(0, 200), "a")
    campaign.tell_all(items(200, 400), "a")
    checks: list[str] = []
    for _ in range(30):
        for question in campaign.ask(10):
            if question.arm == PickArm.CHECK:
                checks.append(question.item)
            # Every second check says that the answer in bulk was wrong.
            campaign.tell(question.item, "ab"[len(checks) % 2])
        if campaign.status().labelled > 560:
            break

    assert 8 <= len(checks) <= 36, "20 of 400 are expected"
    assert len(set(checks)) == len(checks)
    agreement = campaign.status().bulk_agreement
    assert agreement is not None
    assert agreement.total == len(checks)
    assert agreement.right == len(checks) // 2
    labels = campaign.labels()
    assert [labels[item].label for item in checks[:2]] == ["b", "a"], "the blind answer wins"
    campaign.answer(Answer(checks[0], "me", AnswerKind.LABEL, "a", origin=AnswerOrigin.SEEN))
    assert campaign.status().bulk_agreement == agreement, "an answer in view checks nothing"


def test_a_promise_is_not_kept_by_answers_in_bulk(tmp_path: Path) -> None:
    campaign = make(tmp_path)
    answer_batch(campaign, 20)
    campaign.train()
    started = campaign.finish.start(error=0.2, draws=30)
    with campaign.reading() as view:
        frozen = load_finish(view)
    assert frozen is not None
    predicted = {item: "ab"[row] for item, row in zip(frozen.items, frozen.predicted, strict=True)}
    left = [item for item in items(0, 120) if item not in campaign.labels()]

    # One key accepts what the model says of everything: the promise has learned nothing.
    for name in "ab":
        campaign.tell_all([item for item in left if predicted[item] == name], name)
    after = campaign.finish.look()
    assert (after.draws, after.wrong, started.draws) == (0, 0, 0)
    assert after.covered == 0
    assert after.left == 0

    # All draws are asked, in their order, and only their blind answers count.
    with campaign.reading() as view:
        order = view.finishes.drawn_items()
    asked = [question.item for question in campaign.ask(30)]
    assert sorted(asked) == sorted(order)
    for item in asked:
        campaign.tell(item, true_label(item))
    looked = campaign.finish.look()
    assert looked.draws == 30
    assert looked.wrong == sum(predicted[item] != true_label(item) for item in order)
    with campaign.reading() as view:
        assert view.picks.count(PickState.OPEN) == 0


def test_labels_of_the_holdout_measure_only_if_they_are_blind(tmp_path: Path) -> None:
    campaign = make(tmp_path, holdout=30)
    with campaign.reading() as view:
        holdout = sorted(view.items.holdout())
    campaign.tell_all(holdout, "a")
    state = campaign.load_state()
    assert set(state.holdout.values()) == {None}

    asked: set[str] = set()
    for _ in range(12):
        for question in campaign.ask(20):
            asked.add(question.item)
            campaign.tell(question.item, true_label(question.item))
    assert set(holdout) <= asked
    state = campaign.load_state()
    assert {state.keys[place]: label for place, label in state.holdout.items()} == {
        item: true_label(item) for item in holdout
    }


def test_measuring_labels_leave_out_what_was_in_view(tmp_path: Path) -> None:
    campaign = make(tmp_path)
    campaign.tell("i1", "a")
    campaign.tell_all(["i2", "i3"], "b")
    campaign.review.decide("i3", "a", "rey")
    with campaign.reading() as view:
        snapshot = campaign.review.snapshot(view)
    assert snapshot.measuring_labels == {"i1": "a", "i3": "a"}
    assert snapshot.labels == {"i1": "a", "i2": "b", "i3": "a"}
    assert np.isclose(snapshot.confidence("i2"), 1.0)
