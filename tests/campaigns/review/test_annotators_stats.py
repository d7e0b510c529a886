"""The pace and the accuracy of annotators."""

from __future__ import annotations

from teeter.campaigns.records import Answer
from teeter.campaigns.review.annotators import accuracy_of_annotators, pace_of


def test_breaks_do_not_count_as_work() -> None:
    pace = pace_of([0, 10, 20, 30, 4000, 4010, 4020, 4030])

    assert pace == (10, 360)


def test_too_few_times_between_answers_give_no_pace() -> None:
    assert pace_of([0, 1000, 2000, 3000, 4000, 5000, 6000]) is None
    assert pace_of([0, 10, 20, 30, 40]) is None


def test_annotators_are_compared_with_the_consensus_with_decisions_and_on_random_items() -> None:
    labels = {
        "clear": {"ann": "red", "bob": "red", "cem": "blue"},
        "tied": {"ann": "red", "bob": "blue", "cem": "green"},
        "decided": {"ann": "red"},
        "tied, then decided": {"ann": "red", "bob": "blue"},
    }
    answers = []
    for item, label_of in labels.items():
        for annotator, label in label_of.items():
            answers.append(Answer(item, annotator, "label", label))
    answers.append(Answer("clear", "dan", "skip"))

    consensus = {"clear": "red", "tied": "green", "decided": "blue", "tied, then decided": "blue"}
    decided = {"decided": "blue", "tied": None, "tied, then decided": "blue"}
    accuracies = accuracy_of_annotators(answers, consensus, decided, {"decided"})

    assert set(accuracies) == {"ann", "bob", "cem"}
    ann = accuracies["ann"]
    estimate = ann["matches_consensus"]
    assert estimate is not None
    assert (estimate.right, estimate.total) == (1, 2)
    estimate = ann["matches_decisions"]
    assert estimate is not None
    assert (estimate.right, estimate.total) == (0, 2)
    estimate = ann["matches_at_random"]
    assert estimate is not None
    assert (estimate.right, estimate.total) == (0, 1)

    cem = accuracies["cem"]
    estimate = cem["matches_consensus"]
    assert estimate is not None
    assert (estimate.right, estimate.total) == (0, 1)
    assert set(cem) == {"matches_consensus"}
