"""When features count as poor, and how two encoders are compared."""

from __future__ import annotations

from typing import Any

import pytest

from teeter.campaigns.status import compare_encoders, describe_features


def make_facts(right: int, total: int, most_frequent: int, recall: float, **more: Any) -> Any:
    classes = [f"c{k}" for k in range(more.pop("classes", 10))]
    return {
        "labels": total,
        "classes": classes,
        "out_of_fold": [right, total],
        "most_frequent": most_frequent,
        "mean_recall": recall,
        "encoder": "pixels",
        **more,
    }


@pytest.mark.parametrize(
    ("facts", "is_poor"),
    [
        (make_facts(28, 100, 15, 0.26), True),  # CIFAR-10 by pixels
        (make_facts(76, 100, 15, 0.75), False),
        (make_facts(20, 99, 15, 0.20), False),  # too few labels to tell
        (make_facts(30, 150, 5, 0.20, classes=77), False),  # two labels per class
        (make_facts(94, 100, 95, 0.80, classes=2), False),  # a rare class is found
        (make_facts(95, 100, 95, 0.50, classes=2), True),  # it is never found
    ],
)
def test_features_are_poor_if_models_hardly_beat_guessing(facts: Any, is_poor: bool) -> None:
    sentences = describe_features(facts)

    assert bool(sentences) is is_poor
    if is_poor:
        assert "The features of pixels hardly tell the classes apart" in sentences[0]
        assert "teeter campaign encode" in sentences[0]


def test_models_of_earlier_versions_say_nothing_about_features() -> None:
    assert describe_features({"labels": 200, "classes": ["a", "b"]}) == []
    assert describe_features({}) == []


def test_two_encoders_are_compared_on_the_same_labels() -> None:
    facts = make_facts(82, 100, 15, 0.8, previous_encoder="tfidf", previous_right=61)

    comparison = compare_encoders(facts)

    assert comparison is not None
    assert (comparison.right, comparison.previous_right, comparison.labels) == (82, 61, 100)
    assert describe_features(facts) == [
        "With pixels, models correctly predict 82% of 100 labels that they were not trained on; "
        "with tfidf, 61%."
    ]
