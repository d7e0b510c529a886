"""Consensus: by majority, or by Dawid and Skene as their formulas say, and better if it matters."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.consensus import dawid_skene as reference_dawid_skene
from teeter.campaigns.records import Answer, ConsensusLabel
from teeter.campaigns.review.consensus import (
    PRIOR_RIGHT,
    PRIOR_WRONG,
    combine_answers,
    dawid_skene,
    majority_labels,
)

CLASSES = ("red", "green", "blue")


def make_answers(votes: np.ndarray) -> list[Answer]:
    """Return answers to items i0, i1, ... by annotators p0, p1, ..."""
    return [Answer(f"i{i}", f"p{a}", "label", CLASSES[k]) for i, a, k in votes]


def simulate_votes(
    seed: int, n_items: int, confusions: list[np.ndarray], answers_per_item: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the true classes of items, and votes of annotators with these confusion matrices."""
    generator = np.random.default_rng(seed)
    n_classes = len(confusions[0])
    truth = generator.integers(n_classes, size=n_items)

    votes = []
    for item in range(n_items):
        annotators = generator.choice(len(confusions), size=answers_per_item, replace=False)
        for annotator in annotators:
            answer = generator.choice(n_classes, p=confusions[annotator][truth[item]])
            votes.append((item, annotator, answer))
    return truth, np.array(votes)


def confusion_matrix(p_right: float, n_classes: int = 3) -> np.ndarray:
    """Return the matrix of an annotator who confuses all classes equally."""
    p_wrong = (1 - p_right) / (n_classes - 1)
    return np.full((n_classes, n_classes), p_wrong) + np.eye(n_classes) * (p_right - p_wrong)


VOTES = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 3), st.integers(0, 2)), min_size=1, max_size=30
)


@given(VOTES)
def test_dawid_skene_matches_the_paper(votes: list[tuple[int, int, int]]) -> None:
    result = dawid_skene(np.array(votes), (6, 4, 3), max_iterations=7, tolerance=0.0)
    estimated, estimated_confusion, estimated_shares = result

    probabilities, confusion, class_shares = reference_dawid_skene(
        votes, (6, 4, 3), right=PRIOR_RIGHT, wrong=PRIOR_WRONG, rounds=7
    )
    answered = sorted({item for item, _, _ in votes})
    np.testing.assert_allclose(estimated[answered], np.array(probabilities)[answered], atol=1e-9)
    if len(answered) == 6:
        np.testing.assert_allclose(estimated_confusion, confusion, atol=1e-9)
        np.testing.assert_allclose(estimated_shares, class_shares, atol=1e-9)


@pytest.mark.slow
def test_dawid_skene_beats_the_majority_if_annotators_differ() -> None:
    confusions = [confusion_matrix(p) for p in (0.95, 0.9, 0.4, 0.4, 0.4)]

    gains = []
    for seed in range(5):
        truth, votes = simulate_votes(seed, 400, confusions, answers_per_item=4)
        answers = make_answers(votes)
        accuracy = {}
        for method in ("majority", "dawid-skene"):
            labels = combine_answers(answers, CLASSES, method)
            right = [labels[f"i{i}"].label == CLASSES[truth[i]] for i in range(400)]
            accuracy[method] = np.mean(right)
        gains.append(accuracy["dawid-skene"] - accuracy["majority"])

    assert min(gains) > 0.05
    assert np.mean(gains) > 0.1


def test_dawid_skene_estimates_confusion_matrices_and_calibrated_probabilities() -> None:
    confused = np.array([[0.9, 0.05, 0.05], [0.05, 0.9, 0.05], [0.6, 0.05, 0.35]])
    confusions = [confusion_matrix(0.9), confusion_matrix(0.85), confused]
    truth, votes = simulate_votes(0, 1500, confusions, answers_per_item=3)

    probabilities, confusion, _ = dawid_skene(votes, (1500, 3, 3))

    accuracy = np.mean(probabilities.argmax(axis=1) == truth)
    assert np.abs(confusion - np.array(confusions)).max() < 0.08
    assert accuracy > 0.93
    assert probabilities.max(axis=1).mean() == pytest.approx(accuracy, abs=0.03)


def test_thousands_of_answers_to_one_item_do_not_underflow() -> None:
    votes = np.array([(0, a, 0) for a in range(3000)] + [(1, a, 1) for a in range(3000)])

    probabilities, _, _ = dawid_skene(votes, (2, 3000, 2))

    assert np.isfinite(probabilities).all()
    assert probabilities.argmax(axis=1).tolist() == [0, 1]


def test_the_label_does_not_depend_on_the_order_and_is_one_that_was_given() -> None:
    _, votes = simulate_votes(3, 60, [confusion_matrix(0.5)] * 4, answers_per_item=2)
    answers = make_answers(votes)

    labels = combine_answers(answers, CLASSES, "dawid-skene")
    reversed_labels = combine_answers(list(reversed(answers)), CLASSES, "dawid-skene")

    for item, consensus in labels.items():
        assert consensus.label == reversed_labels[item].label
        assert consensus.label in {answer.label for answer in answers if answer.item == item}
        assert 0 < consensus.confidence <= 1
    assert set(labels) == set(reversed_labels)


def test_the_majority_decides_and_of_tied_labels_the_last() -> None:
    answers = [
        Answer("a", "p", "label", "red"),
        Answer("a", "q", "label", "blue"),
        Answer("a", "r", "label", "red"),
        Answer("b", "p", "label", "red"),
        Answer("b", "q", "label", "blue"),
        Answer("c", "p", "skip"),
    ]

    labels = combine_answers(answers, CLASSES, "majority")

    assert labels["a"] == ConsensusLabel("red", pytest.approx(2 / 3), "majority")
    assert labels["b"] == ConsensusLabel("blue", 0.5, "majority")
    assert "c" not in labels
    assert majority_labels(answers) == {"a": "red", "b": "blue"}


@pytest.mark.parametrize("method", ["majority", "dawid-skene"])
def test_a_decision_overrides_the_answers(method: str) -> None:
    answers = [Answer("a", annotator, "label", "red") for annotator in "pqrs"]
    decided = {"a": ConsensusLabel("blue", 1.0, "eve")}

    assert combine_answers(answers, CLASSES, method, decided)["a"].label == "blue"
    assert combine_answers(answers, CLASSES, method)["a"].label == "red"
    assert combine_answers([], CLASSES, method) == {}
