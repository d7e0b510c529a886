"""The pace and the accuracy of annotators."""

from __future__ import annotations

from teeter.campaigns.records import Answer
from teeter.campaigns.review.annotators import accuracy_of_annotators, pace_of


def test_breaks_do_not_count_as_work() -> None:
    pace = pace_of([0, 10, 20, 30, 4000, 4010, 4020, 4030])

    assert pace is not None
    assert (pace.seconds, pace.per_hour) == (10, 360)


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
    assert ann.with_consensus is not None
    assert (ann.with_consensus.right, ann.with_consensus.total) == (1, 2)
    assert ann.with_decisions is not None
    assert (ann.with_decisions.right, ann.with_decisions.total) == (0, 2)
    assert ann.at_random is not None
    assert (ann.at_random.right, ann.at_random.total) == (0, 1)

    cem = accuracies["cem"]
    assert cem.with_consensus is not None
    assert (cem.with_consensus.right, cem.with_consensus.total) == (0, 1)
    assert cem.with_decisions is None
    assert cem.at_random is None
