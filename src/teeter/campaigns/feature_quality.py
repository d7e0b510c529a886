"""How good the features are: compare two encoders, and warn if they tell the classes apart badly.

Both are judged by models that were not trained on the labels they predict.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from teeter.campaigns.results import EncoderComparison

__all__ = ["compare_encoders", "describe_comparison", "describe_features"]

MIN_LABELS = 100
"""Labels from which on features are judged."""

MIN_LABELS_PER_CLASS = 4
"""With fewer labels per class on average, any features would look poor."""

POOR_SKILL = 0.2
"""Features are poor if models gain less than this share of what could be gained over guessing."""


def compare_encoders(facts: Mapping[str, Any]) -> EncoderComparison | None:
    """Return how two encoders do on the labels of a model; None if there was only one."""
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
        'From features by minilm models predict 82% of 100 labels that they were not trained on, \
from those by tfidf 61%.'
    """
    share = comparison.right / comparison.labels
    previous_share = comparison.previous_right / comparison.labels
    return (
        f"From features by {comparison.encoder} models predict {share:.0%} of "
        f"{comparison.labels:,} labels that they were not trained on, from those by "
        f"{comparison.previous} {previous_share:.0%}."
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
        The features by pixels tell the classes apart badly: models predict 55% of 120 labels, and \
always guessing the most frequent class 52%. Try another encoder with teeter campaign encode, or \
check whether the classes can be told apart.
    """
    sentences = []
    comparison = compare_encoders(facts)
    if comparison is not None:
        sentences.append(describe_comparison(comparison))
    if _are_poor(facts):
        right, total = facts["out_of_fold"]
        by_encoder = f" by {facts['encoder']}" if "encoder" in facts else ""
        sentences.append(
            f"The features{by_encoder} tell the classes apart badly: models predict "
            f"{right / total:.0%} of {total:,} labels, and always guessing the most frequent "
            f"class {facts['most_frequent'] / total:.0%}. Try another encoder with teeter "
            "campaign encode, or check whether the classes can be told apart."
        )
    return sentences


def _are_poor(facts: Mapping[str, Any]) -> bool:
    """Return whether models hardly do better than guessing.

    Two measures must agree. If one class is frequent, accuracy is hardly above its share even for
    good features; then the mean recall of the classes is.
    """
    if "out_of_fold" not in facts:
        return False  # an earlier version of teeter trained the model

    right, total = facts["out_of_fold"]
    n_classes = len(facts["classes"])
    if total < max(MIN_LABELS, MIN_LABELS_PER_CLASS * n_classes):
        return False

    accuracy_skill = _skill(right / total, facts["most_frequent"] / total)
    recall_skill = _skill(facts["mean_recall"], 1 / n_classes)
    return max(accuracy_skill, recall_skill) < POOR_SKILL


def _skill(value: float, guess: float) -> float:
    """Return the share of the possible gain over guessing: 0 for guessing, 1 for perfect."""
    if guess >= 1:
        return 1.0  # there is a single class
    return (value - guess) / (1 - guess)
