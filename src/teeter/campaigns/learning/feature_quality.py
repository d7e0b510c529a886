"""Judge the features: compare two encoders, and warn about features that do not tell classes apart.

Features are judged by how many labels models predict that were not trained on these labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from teeter.campaigns.results import EncoderComparison

__all__ = ["compare_encoders", "describe_comparison", "describe_features"]

MIN_LABELS = 100
"""With fewer labels, features are not judged."""

MIN_LABELS_PER_CLASS = 4
"""With fewer labels per class, even good features would look poor."""

POOR_SKILL = 0.2
"""Features are poor if models achieve less than this share of the possible gain over guessing."""


def compare_encoders(facts: Mapping[str, Any]) -> EncoderComparison | None:
    """Return how two encoders compare on the labels of a model; None if there was only one."""
    if "previous_encoder" not in facts:
        return None

    return EncoderComparison(
        encoder=facts["encoder"],
        right=facts["out_of_fold"][0],
        previous=facts["previous_encoder"],
        previous_right=facts["previous_right"],
        labels=facts["out_of_fold"][1],
    )


def describe_comparison(comparison: EncoderComparison) -> str:
    """Return how two encoders compare, in one sentence.

    Example:
        >>> describe_comparison(EncoderComparison("minilm", 82, "tfidf", 61, labels=100))
        'With minilm, models correctly predict 82% of 100 labels that they were not trained on; \
with tfidf, 61%.'
    """
    share = comparison.right / comparison.labels
    previous_share = comparison.previous_right / comparison.labels
    return (
        f"With {comparison.encoder}, models correctly predict {share:.0%} of "
        f"{comparison.labels:,} labels that they were not trained on; with {comparison.previous}, "
        f"{previous_share:.0%}."
    )


def describe_features(facts: Mapping[str, Any]) -> list[str]:
    """Return sentences about the features that a model was trained on.

    Args:
        facts: what is known of the model; see ``ModelFacts``.

    Example:
        >>> facts = {"labels": 120, "classes": ["a", "b"], "out_of_fold": [66, 120],
        ...          "most_frequent": 63, "mean_recall": 0.54, "encoder": "pixels"}
        >>> for sentence in describe_features(facts):
        ...     print(sentence)
        The features of pixels hardly tell the classes apart: models correctly predict 55% of 120 \
labels that they were not trained on, and always guessing the most frequent class would be right \
for 52%. Try another encoder (teeter campaign encode), or check that annotators can tell the \
classes apart.
    """
    sentences = []

    comparison = compare_encoders(facts)
    if comparison is not None:
        sentences.append(describe_comparison(comparison))

    if _are_poor(facts):
        right, total = facts["out_of_fold"]
        of_encoder = f" of {facts['encoder']}" if "encoder" in facts else ""
        guessed = facts["most_frequent"] / total
        sentences.append(
            f"The features{of_encoder} hardly tell the classes apart: models correctly predict "
            f"{right / total:.0%} of {total:,} labels that they were not trained on, and always "
            f"guessing the most frequent class would be right for {guessed:.0%}. Try another "
            "encoder (teeter campaign encode), or check that annotators can tell the classes apart."
        )

    return sentences


def _are_poor(facts: Mapping[str, Any]) -> bool:
    """Return whether models hardly do better than guessing.

    Two measures must agree. If one class is very frequent, even good features gain little accuracy
    over always guessing it, but they raise the mean recall of the classes.
    """
    if "out_of_fold" not in facts:
        return False  # an earlier version of teeter trained the model

    right, total = facts["out_of_fold"]
    n_classes = len(facts["classes"])
    if total < max(MIN_LABELS, MIN_LABELS_PER_CLASS * n_classes):
        return False

    accuracy_skill = _skill(right / total, facts["most_frequent"] / total)
    # Always guessing one class has a recall of 1 for that class and of 0 for all others.
    recall_skill = _skill(facts["mean_recall"], 1 / n_classes)
    return max(accuracy_skill, recall_skill) < POOR_SKILL


def _skill(value: float, guess: float) -> float:
    """Return the share of the possible gain over guessing: 0 for guessing, 1 for perfect."""
    if guess >= 1:
        return 1.0  # there is a single class
    return (value - guess) / (1 - guess)
