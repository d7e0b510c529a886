"""Rounds: what is measured is measured on items drawn at random, by a head that did not learn from them."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from sqlalchemy import select, update

from teeter.campaigns import campaign as campaigns
from teeter.campaigns import rounds
from teeter.campaigns.campaign import Campaign, Settings
from teeter.campaigns.classifiers import out_of_fold
from teeter.campaigns.db import schema
from teeter.errors import InputError

PLAIN = Settings(kind="features", control=0.0)


def made(
    path: Path, settings: Settings, vectors: npt.NDArray[np.float32], name: str = "c"
) -> Campaign:
    campaign = Campaign.create(path / f"{name}.teeter", name, ("a", "b"), settings)
    campaign.add({"id": f"i{k}", "features": vectors[k]} for k in range(len(vectors)))
    return campaign


def drawn(count: int, width: int = 5, seed: int = 0) -> npt.NDArray[np.float32]:
    return np.random.default_rng(seed).normal(size=(count, width)).astype(np.float32)


def place(item: str) -> int:
    return int(item[1:])


def go_on(
    campaign: Campaign, labels: npt.NDArray[np.int64], n: int, *, train: bool = True
) -> list[str]:
    asked = campaign.ask(n)
    for question in asked:
        campaign.tell(question.item, "ab"[labels[place(question.item)]])
    if train:
        campaign.train()
    return [question.arm for question in asked]


def controls(campaign: Campaign) -> set[str]:
    with campaign.database.reading() as connection:
        return campaign.repository.picks.control_items(connection)


def audit(campaign: Campaign) -> set[int]:
    with campaign.database.reading() as connection:
        return {place(item) for item in campaign.repository.items.audit_set(connection)}


@pytest.mark.parametrize(
    ("seeds", "lowest", "highest"), [(3, 11, 28), pytest.param(30, 15, 24, marks=pytest.mark.slow)]
)
def test_the_audit_is_asked_in_random_order(
    seeds: int, lowest: float, highest: float, tmp_path: Path
) -> None:
    first: list[int] = []
    for seed in range(seeds):
        campaign = made(tmp_path, replace(PLAIN, audit=40, seed=seed), drawn(100, 2), f"c{seed}")
        asked = [question.item for question in campaign.ask(20) if question.arm == "audit"]
        assert len(asked) == 5
        first += [sorted(audit(campaign)).index(place(item)) for item in asked]
        campaign.database.close()
    assert lowest < np.mean(first) < highest, "of 40 in random order, the middle is 19.5"


def test_one_question_at_a_time_asks_about_the_audit_one_time_in_four(tmp_path: Path) -> None:
    campaign = made(tmp_path, replace(PLAIN, audit=50, strategy="random"), drawn(200))
    arms = [go_on(campaign, np.zeros(200, np.int64), 1, train=False)[0] for _ in range(40)]
    assert 4 <= arms.count("audit") <= 18


def test_an_audit_that_is_all_that_is_left_is_asked_about(tmp_path: Path) -> None:
    campaign = made(tmp_path, replace(PLAIN, audit=20, strategy="random"), drawn(40))
    labels = np.zeros(40, np.int64)
    assert sum(len(go_on(campaign, labels, 3, train=False)) for _ in range(14)) == 40


def test_items_added_later_enter_the_audit_in_proportion(tmp_path: Path) -> None:
    vectors = drawn(800)
    campaign = made(tmp_path, replace(PLAIN, audit=50), vectors[:200])
    assert len(audit(campaign)) == 50
    added = campaign.add({"id": f"i{k}", "features": vectors[k]} for k in range(200, 800))
    assert added.audit == len(audit(campaign)) == 200
    assert len([k for k in audit(campaign) if k >= 200]) == 150
    for k in range(800, 840):
        campaign.add([{"id": f"i{k}", "features": drawn(1, 5, k)[0]}])
    assert 2 <= len(audit(campaign)) - 200 <= 20, "one by one as well, one time in four"


def test_a_whole_audit_is_not_drawn_again_nor_from_what_has_a_label(tmp_path: Path) -> None:
    campaign = Campaign.create(tmp_path / "c.teeter", "c", ("a", "b"), replace(PLAIN, audit=30))
    vectors = drawn(100)
    things = [
        {"id": f"i{k}", "features": vectors[k], "label": "a" if k < 60 else None}
        for k in range(100)
    ]
    campaign.add(things)
    before = audit(campaign)
    assert len(before) == 30
    assert min(before) >= 60
    campaign.add(things)
    assert audit(campaign) == before


def test_an_audit_that_was_cut_is_filled_up_to_half_of_all(tmp_path: Path) -> None:
    vectors = drawn(60)
    campaign = made(tmp_path, replace(PLAIN, audit=20), vectors[:10])
    assert len(audit(campaign)) == 5
    for last, whole in ((14, 7), (30, 15), (60, 20)):
        campaign.add({"id": f"i{k}", "features": vectors[k]} for k in range(last))
        assert len(audit(campaign)) == whole


def test_controls_are_of_all_items_and_those_with_a_label_are_not_asked(tmp_path: Path) -> None:
    vectors = drawn(300)
    labels = (vectors[:, 0] > 0).astype(np.int64)
    campaign = made(tmp_path, replace(PLAIN, control=0.25, strategy="margin"), vectors)
    asked = [arm for _ in range(6) for arm in go_on(campaign, labels, 40)]
    known = [
        item for line in campaign.history() if line["what"] == "asked" for item in line["known"]
    ]
    assert len(controls(campaign)) == 60
    assert len(known) == 60 - asked.count("control") > 10
    assert set(known) <= controls(campaign)
    with campaign.database.reading() as connection:
        assert campaign.repository.models.summaries(connection)[-1].facts["control"][1] > 50


@pytest.mark.slow
def test_accuracy_is_told_without_the_bias_of_what_was_picked(tmp_path: Path) -> None:
    told, true = [], []
    for seed in range(8):
        drawn_at = np.random.default_rng(seed)
        vectors = drawn_at.normal(size=(200, 5)).astype(np.float32)
        labels = (vectors[:, 0] + drawn_at.normal(size=200) * 0.6 > 0).astype(np.int64)
        settings = replace(PLAIN, control=0.4, strategy="margin", seed=seed)
        campaign = made(tmp_path, settings, vectors, f"c{seed}")
        for _ in range(4):
            go_on(campaign, labels, 40)
        found = campaign.status().accuracy
        assert found is not None
        told.append(found.share)
        guesses = out_of_fold(vectors, labels).argmax(axis=1)
        true.append(float((guesses == labels).mean()))
        campaign.database.close()
    assert abs(np.mean(told) - np.mean(true)) < 0.035, (
        "controls drawn from what is left tell 0.05 too much"
    )


def test_labels_at_random_are_told_to_be_half_right_however_wide_the_features(
    tmp_path: Path,
) -> None:
    campaign = made(tmp_path, replace(PLAIN, control=0.9), drawn(300, 400))
    labels = np.random.default_rng(1).integers(2, size=300)
    go_on(campaign, labels, 200)
    found = campaign.status().accuracy
    assert found is not None
    assert found.total > 150
    assert 0.35 < found.share < 0.65


def test_a_control_that_was_skipped_comes_back_as_one(tmp_path: Path) -> None:
    vectors = drawn(60)
    labels = (vectors[:, 0] > 0).astype(np.int64)
    campaign = made(tmp_path, replace(PLAIN, control=0.5, strategy="margin"), vectors)
    asked = campaign.ask(20)
    skipped = {question.item for question in asked if question.arm == "control"}
    assert len(skipped) == 10
    for question in asked:
        if question.item in skipped:
            campaign.skip(question.item)
        else:
            campaign.tell(question.item, "ab"[labels[place(question.item)]])
    campaign.train()
    again = {question.item: question.arm for question in campaign.ask(40)}
    assert {again[item] for item in skipped} == {"control"}


@pytest.mark.parametrize("seeds", [4, pytest.param(20, marks=pytest.mark.slow)])
def test_controls_stand_anywhere_in_a_batch(seeds: int, tmp_path: Path) -> None:
    ranks = []
    for seed in range(seeds):
        campaign = made(tmp_path, replace(PLAIN, control=0.3, seed=seed), drawn(60, 2), f"c{seed}")
        ranks += [question.rank for question in campaign.ask(20) if question.arm == "control"]
        campaign.database.close()
    assert 7 < np.mean(ranks) < 14, "of 20, the middle is 10.5"
    assert min(ranks) <= 3


@pytest.mark.slow
def test_a_network_is_measured_as_a_network(tmp_path: Path) -> None:
    vectors = np.random.default_rng(0).uniform(-1, 1, size=(300, 2)).astype(np.float32)
    labels = (vectors[:, 0] * vectors[:, 1] > 0).astype(np.int64)
    campaign = made(tmp_path, replace(PLAIN, head="mlp", control=0.5), vectors)
    go_on(campaign, labels, 200)
    found = campaign.status().accuracy
    assert found is not None
    assert found.share > 0.8, "a linear head is half right here"
    assert len(campaign.suspects(200)) < 40


@pytest.mark.parametrize("head", ["linear", pytest.param("mlp", marks=pytest.mark.slow)])
def test_a_rare_class_counts_as_much(head: str, tmp_path: Path) -> None:
    vectors = drawn(220, 2)
    labels = np.zeros(220, np.int64)
    labels[:20] = 1
    vectors[:20, 0] += 1.5
    campaign = Campaign.create(tmp_path / "c.teeter", "c", ("a", "b"), replace(PLAIN, head=head))
    campaign.add(
        {"id": f"i{k}", "features": vectors[k], "label": "ab"[labels[k]]} for k in range(220)
    )
    campaign.train()
    campaign.export(tmp_path / "out.csv")
    with (tmp_path / "out.csv").open() as file:
        predicted = [row["predicted"] for row in csv.DictReader(file)]
    assert predicted[:20].count("b") >= 12, "unweighted, a model calls a few of these b"


@pytest.mark.parametrize("head", ["linear", "mlp"])
def test_a_kept_model_is_loaded_and_not_trained_again(
    head: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors = drawn(60)
    labels = (vectors[:, 0] > 0).astype(np.int64)
    campaign = made(tmp_path, replace(PLAIN, head=head), vectors)
    go_on(campaign, labels, 20)
    campaign.export(tmp_path / "before.csv")
    campaign.database.close()

    def refused(*_: object) -> None:
        raise AssertionError("trained again")

    monkeypatch.setattr(rounds.Learner, "fit", refused)
    again = Campaign.open(tmp_path / "c.teeter")
    again.export(tmp_path / "after.csv")
    assert (tmp_path / "after.csv").read_text() == (tmp_path / "before.csv").read_text()
    again.add_class("later")
    again.add({"id": f"n{k}", "features": drawn(1, 5, k)[0] + 3} for k in range(90))
    again.export(tmp_path / "later.csv")
    assert len(again.ask(5)) == 5
    before, later = (
        (tmp_path / f"{name}.csv").read_text().splitlines() for name in ("before", "later")
    )
    told = [[line.split(",")[4] for line in lines[1:61]] for lines in (before, later)]
    assert told[0] == told[1], (
        "neither a class nor items that came later change what the model says"
    )
    sure = [[float(line.split(",")[5]) for line in lines[1:61]] for lines in (before, later)]
    assert sure[0] == pytest.approx(sure[1], abs=1e-3)


def test_a_model_of_other_features_is_trained_again_and_that_is_told(tmp_path: Path) -> None:
    campaign = Campaign.create(tmp_path / "t.teeter", "t", ("a", "b"), Settings(control=0))
    campaign.add([f"apple {k} pear" for k in range(10)] + [f"saw {k} nail" for k in range(10)])
    for question in campaign.ask(12):
        campaign.tell(question.item, "a" if "apple" in (question.content or "") else "b")
    campaign.train()
    assert campaign.prediction_note() is None
    campaign.add(["a plum and an apple", "a drill and a saw"])
    assert "features changed since" in (campaign.prediction_note() or "")
    assert len(campaign.ask(3)) == 3


def test_more_can_be_asked_for_than_a_strategy_looks_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "CANDIDATES", 10)
    campaign = made(tmp_path, PLAIN, drawn(60))
    assert len(campaign.ask(30)) == 30


def test_what_others_hold_or_have_answered_is_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a round picks, even what is taken."""
    campaign = made(tmp_path, PLAIN, drawn(30))
    theirs = {question.item for question in campaign.ask(10, "bob")}
    picks = rounds.picks_for

    def careless(state: rounds.RoundState, plan: rounds.RoundSettings, n: int) -> list[rounds.Pick]:
        taken = [rounds.Pick(item, 1, "picked", {}) for item in sorted(theirs)]
        return [*taken, *picks(state, plan, n)]

    monkeypatch.setattr(campaigns, "picks_for", careless)
    mine = [question.item for question in campaign.ask(10, "ann")]
    assert len(mine) == 10
    assert not theirs & set(mine)


@pytest.mark.parametrize("strategy", ["dbal", "batchbald", "ensemble"])
def test_a_strategy_that_the_head_cannot_serve_is_refused(strategy: str, tmp_path: Path) -> None:
    with pytest.raises(
        InputError,
        match=f"{strategy} needs .*, which the head linear does not give: choose the head mlp",
    ):
        Campaign.create(
            tmp_path / "refused.teeter", "refused", ["a", "b"], Settings(strategy=strategy)
        )
    assert not (tmp_path / "refused.teeter").exists()
    vectors = drawn(40)
    campaign = made(tmp_path, replace(PLAIN, strategy=strategy, head="mlp"), vectors)
    go_on(campaign, (vectors[:, 0] > 0).astype(np.int64), 10)
    assert len(campaign.ask(3)) == 3


def test_a_campaign_with_such_a_strategy_from_before_can_still_be_read(tmp_path: Path) -> None:
    campaign = made(tmp_path, replace(PLAIN, strategy="random"), drawn(20))
    with campaign.database.writing() as connection:
        told = json.loads(connection.scalar(select(schema.campaigns.c.settings)) or "")
        connection.execute(
            update(schema.campaigns).values(settings=json.dumps({**told, "strategy": "dbal"}))
        )
    assert campaign.database.path is not None
    again = Campaign.open(campaign.database.path)
    assert again.export(tmp_path / "labels.csv") == 0


def test_an_item_that_lost_its_label_is_asked_about_again(tmp_path: Path) -> None:
    vectors = drawn(20)
    campaign = made(tmp_path, replace(PLAIN, strategy="random"), vectors)
    for k in range(20):
        campaign.tell(f"i{k}", "ab"[k % 2])
    campaign.train()
    campaign.undo()
    assert [question.item for question in campaign.ask(3)] == ["i19"]
