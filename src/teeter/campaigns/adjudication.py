"""Items that annotators disagree about, which reviewers decide."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from teeter.campaigns.enums import AnswerKind
from teeter.campaigns.store.queries.answers import Answer

__all__ = ["Disagreement", "find_disagreements"]


@dataclass(frozen=True)
class Disagreement:
    """An item that annotators disagree about."""

    item: str
    content: str | None
    answers: dict[str, str]
    """By annotator, the class that they gave, or that they flagged the item."""
    label: str | None
    """The item's label until a reviewer decides."""
    confidence: float


def find_disagreements(answers: Iterable[Answer]) -> dict[str, dict[str, str]]:
    """Find the items that two annotators gave different classes, or that one of them flagged.

    Args:
        answers: the live answers of annotators.

    Returns:
        By item id, what each annotator says: a class, or the kind of answer.
    """
    by_item: dict[str, dict[str, str]] = {}
    for answer in answers:
        # Skips and doubts contradict nothing.
        if answer.kind in (AnswerKind.LABEL, AnswerKind.FLAG):
            by_annotator = by_item.setdefault(answer.item, {})
            by_annotator[answer.annotator] = answer.label or answer.kind

    return {
        item: by_annotator
        for item, by_annotator in by_item.items()
        if len(set(by_annotator.values())) > 1
    }
