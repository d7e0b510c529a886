"""Consensus: by most, or weighed by how right people are; as the paper's formulas, and better where it counts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.consensus import dawid_skene as transcribed
from teeter.campaigns.consensus import (
    RIGHT,
    WRONG,
    ConsensusLabel,
    dawid_skene,
    labels_of,
    verdicts,
)
from teeter.campaigns.db import Answer

CLASSES = ("red", "green", "blue")


def said(votes: np.ndarray, classes: tuple[str, ...] = CLASSES) -> list[Answer]:
    return [Answer(f"i{i}", f"p{a}", "label", classes[k]) for i, a, k in votes]


def simulated(
    seed: int, items: int, confusions: list[np.ndarray], each: int
) -> tuple[np.ndarray, np.ndarray]:
    """Items' true classes, and the answers of ``each`` people to each, who err as they do."""
    source = np.random.default_rng(seed)
    classes = len(confusions[0])
    truth = source.integers(classes, size=items)
    votes = [
        (i, a, source.choice(classes, p=confusions[a][truth[i]]))
        for i in range(items)
        for a in source.choice(len(confusions), size=each, replace=False)
    ]
    return truth, np.array(votes)


def erring(right: float, classes: int = 3) -> np.ndarray:
    return np.full((classes, classes), (1 - right) / (classes - 1)) + np.eye(classes) * (
        right - (1 - right) / (classes - 1)
    )


VOTES = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 3), st.integers(0, 2)), min_size=1, max_size=30
)


@given(VOTES)
def test_it_is_what_the_paper_writes(votes: list[tuple[int, int, int]]) -> None:
    found = dawid_skene(np.array(votes), (6, 4, 3), rounds=7, tolerance=0.0)
    chances, confusion, shares = transcribed(votes, (6, 4, 3), right=RIGHT, wrong=WRONG, rounds=7)
    answered = sorted({item for item, _, _ in votes})
    np.testing.assert_allclose(found.chances[answered], np.array(chances)[answered], atol=1e-9)
    if len(answered) == 6:
        np.testing.assert_allclose(found.confusion, confusion, atol=1e-9)
        np.testing.assert_allclose(found.shares, shares, atol=1e-9)


def test_it_beats_the_majority_where_people_differ() -> None:
    people = [erring(0.95), erring(0.9), erring(0.4), erring(0.4), erring(0.4)]
    gains = []
    for seed in range(5):
        truth, votes = simulated(seed, 400, people, each=4)
        found = [verdicts(said(votes), CLASSES, way) for way in ("majority", "dawid-skene")]
        by_most, weighed = (
            np.mean([one[f"i{i}"].label == CLASSES[truth[i]] for i in range(400)]) for one in found
        )
        gains.append(weighed - by_most)
    assert min(gains) > 0.05
    assert np.mean(gains) > 0.1


def test_it_finds_how_people_err() -> None:
    confused = np.array([[0.9, 0.05, 0.05], [0.05, 0.9, 0.05], [0.6, 0.05, 0.35]])
    people = [erring(0.9), erring(0.85), confused]
    truth, votes = simulated(0, 1500, people, each=3)
    found = dawid_skene(votes, (1500, 3, 3))
    assert np.abs(found.confusion - np.array(people)).max() < 0.08
    assert np.mean(found.chances.argmax(axis=1) == truth) > 0.93
    assert found.chances.max(axis=1).mean() == pytest.approx(
        np.mean(found.chances.argmax(axis=1) == truth), abs=0.03
    )


def test_thousands_of_answers_to_one_item_are_no_trouble() -> None:
    votes = np.array([(0, a, 0) for a in range(3000)] + [(1, a, 1) for a in range(3000)])
    found = dawid_skene(votes, (2, 3000, 2))
    assert np.isfinite(found.chances).all()
    assert found.chances.argmax(axis=1).tolist() == [0, 1]


def test_the_order_of_answers_changes_nothing_and_a_label_that_nobody_gave_is_never_the_answer() -> (
    None
):
    _, votes = simulated(3, 60, [erring(0.5)] * 4, each=2)
    answers = said(votes)
    first = verdicts(answers, CLASSES, "dawid-skene")
    again = verdicts(list(reversed(answers)), CLASSES, "dawid-skene")
    assert {item: one.label for item, one in first.items()} == {
        item: one.label for item, one in again.items()
    }
    for item, one in first.items():
        assert one.label in {answer.label for answer in answers if answer.item == item}
        assert 0 < one.confidence <= 1


def test_most_decide_and_of_as_many_the_last() -> None:
    answers = [
        Answer("a", who, "label", label)
        for who, label in (("p", "red"), ("q", "blue"), ("r", "red"))
    ]
    answers += [
        Answer("b", "p", "label", "red"),
        Answer("b", "q", "label", "blue"),
        Answer("c", "p", "skip"),
    ]
    found = verdicts(answers, CLASSES, "majority")
    assert found["a"] == ConsensusLabel("red", pytest.approx(2 / 3), "majority")
    assert found["b"] == ConsensusLabel("blue", 0.5, "majority")
    assert "c" not in found
    assert labels_of(answers) == {"a": "red", "b": "blue"}


@pytest.mark.parametrize("way", ["majority", "dawid-skene"])
def test_a_decision_wins(way: str) -> None:
    answers = [Answer("a", who, "label", "red") for who in "pqrs"]
    assert (
        verdicts(answers, CLASSES, way, {"a": ConsensusLabel("blue", 1.0, "eve")})["a"].label
        == "blue"
    )
    assert verdicts([], CLASSES, way) == {}
    assert verdicts(answers, CLASSES, way)["a"].label == "red"
