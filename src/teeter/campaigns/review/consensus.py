"""One label from several answers: by majority, or weighted by how reliable annotators are.

The weighting follows Dawid and Skene (1979): expectation-maximisation over the classes of the items
and the confusion matrices of the annotators.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from teeter.campaigns.enums import AnswerKind
from teeter.campaigns.store import Answer

__all__ = [
    "ConsensusLabel",
    "ConsensusMethod",
    "DawidSkeneResult",
    "Disagreement",
    "combine_answers",
    "dawid_skene",
    "find_disagreements",
    "majority_labels",
]


Integers: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]

PRIOR_RIGHT = 2.0
"""Right answers of each class that every annotator is assumed to have given at the start."""

PRIOR_WRONG = 0.5
"""Wrong answers of each class assumed at the start, spread over the other classes."""


class ConsensusMethod(StrEnum):
    """How several answers to an item become one label."""

    MAJORITY = "majority"
    DAWID_SKENE = "dawid-skene"


@dataclass(frozen=True)
class ConsensusLabel:
    """The label of an item, from all answers to it."""

    label: str
    confidence: float
    """The share of annotators who gave the label, or its probability; 1 for a decision."""
    by: str
    """The consensus method, or the name of the reviewer who decided."""


@dataclass(frozen=True, eq=False)
class DawidSkeneResult:
    """What the answers say about items and annotators."""

    probabilities: Floats
    """(N, C): the probability of each class for each item."""
    confusion: Floats
    """(A, C, C): for each annotator, the probability of each answer (last axis) by true class."""
    class_shares: Floats
    """(C,): how frequent the classes are."""


def majority_labels(answers: Iterable[Answer]) -> dict[str, str]:
    """Return the most frequent label of each item; of tied labels, the one given last.

    Args:
        answers: Answers in the order in which they were given.

    Returns:
        Labels by item id.
    """
    return {item: _most_frequent(labels) for item, labels in _labels_by_item(answers).items()}


def combine_answers(
    answers: Sequence[Answer],
    classes: Sequence[str],
    method: str,
    decided: Mapping[str, ConsensusLabel] | None = None,
) -> dict[str, ConsensusLabel]:
    """Return the label of each item: the decision of a reviewer, or the consensus of the answers.

    The label is always one that an annotator or a reviewer gave.

    Args:
        answers: Answers in the order in which they were given.
        classes: All classes of the campaign.
        method: One of ``ConsensusMethod``.
        decided: Decisions for a class by item id. Items that were decided not to belong must be
            left out by the caller.

    Returns:
        Labels by item id.
    """
    if method == ConsensusMethod.DAWID_SKENE:
        labels = _combine_by_dawid_skene(answers, classes)
    else:
        labels = _combine_by_majority(answers)

    return labels | dict(decided or {})


def _labels_by_item(answers: Iterable[Answer]) -> dict[str, list[str]]:
    labels: dict[str, list[str]] = {}
    for answer in answers:
        if answer.kind == AnswerKind.LABEL and answer.label is not None:
            labels.setdefault(answer.item, []).append(answer.label)

    return labels


def _most_frequent(labels: Sequence[str]) -> str:
    """Return the most frequent of labels; of tied ones, the last."""
    counts = Counter(labels)
    # max() returns the first maximum, so the search starts at the end.
    return max(reversed(labels), key=lambda label: counts[label])


def _combine_by_majority(answers: Sequence[Answer]) -> dict[str, ConsensusLabel]:
    consensus = {}
    for item, labels in _labels_by_item(answers).items():
        label = _most_frequent(labels)
        share = labels.count(label) / len(labels)
        consensus[item] = ConsensusLabel(label, share, ConsensusMethod.MAJORITY.value)

    return consensus


def _combine_by_dawid_skene(
    answers: Sequence[Answer], classes: Sequence[str]
) -> dict[str, ConsensusLabel]:
    class_index = {name: k for k, name in enumerate(classes)}
    labelled = [
        answer
        for answer in answers
        if answer.kind == AnswerKind.LABEL and answer.label in class_index
    ]
    if not labelled:
        return {}

    items = list(dict.fromkeys(answer.item for answer in labelled))
    # Sorted, because sums over annotators in another order differ in their last digits.
    annotators = sorted({answer.annotator for answer in labelled})
    item_index = {item: k for k, item in enumerate(items)}
    annotator_index = {name: k for k, name in enumerate(annotators)}

    votes = np.zeros((len(labelled), 3), dtype=np.int64)
    for row, answer in enumerate(labelled):
        votes[row, 0] = item_index[answer.item]
        votes[row, 1] = annotator_index[answer.annotator]
        votes[row, 2] = class_index[str(answer.label)]

    sizes = (len(items), len(annotators), len(classes))
    probabilities = dawid_skene(votes, sizes).probabilities

    # A class that no annotator gave may still be the most probable one. It is never the label.
    was_given = np.zeros(probabilities.shape, dtype=bool)
    was_given[votes[:, 0], votes[:, 2]] = True
    best_classes = np.where(was_given, probabilities, -1.0).argmax(axis=1)

    consensus = {}
    for k, item in enumerate(items):
        best = best_classes[k]
        consensus[item] = ConsensusLabel(
            label=classes[best],
            confidence=float(probabilities[k, best]),
            by=ConsensusMethod.DAWID_SKENE.value,
        )
    return consensus


def dawid_skene(
    votes: Integers,
    sizes: tuple[int, int, int],
    *,
    max_iterations: int = 200,
    tolerance: float = 1e-7,
) -> DawidSkeneResult:
    """Estimate the classes of items and the errors of annotators by expectation-maximisation.

    Each annotator starts with ``PRIOR_RIGHT`` and ``PRIOR_WRONG`` answers of every class, so that
    a few answers do not make anyone seem perfect or useless.

    Args:
        votes: Shape (V, 3): item, annotator and class of each answer, as indices.
        sizes: The numbers of items N, annotators A and classes C.
        max_iterations: Iterations after which the estimate is returned in any case.
        tolerance: The largest change of a probability at which the iteration has converged.
    """
    n_items, n_annotators, n_classes = sizes
    items = votes[:, 0]
    annotators = votes[:, 1]
    answers = votes[:, 2]

    wrong_per_class = PRIOR_WRONG / max(1, n_classes - 1)
    prior = np.full((n_classes, n_classes), wrong_per_class)  # (true class, answer)
    np.fill_diagonal(prior, PRIOR_RIGHT)

    # Start with the share of each class among the answers to an item.
    probabilities = np.zeros((n_items, n_classes))
    np.add.at(probabilities, (items, answers), 1.0)
    n_answers = probabilities.sum(axis=1, keepdims=True)
    probabilities /= np.maximum(n_answers, 1.0)  # an item may have no answer

    for _ in range(max_iterations):
        # Maximisation: how frequent classes are, and how annotators err (equations 2.3 and 2.4).
        class_sums = probabilities.sum(axis=0)
        class_shares = (class_sums + 1.0) / (probabilities.sum() + n_classes)
        counts = np.zeros((n_annotators, n_classes, n_classes))
        np.add.at(counts, (annotators, answers), probabilities[items])  # (A, answer, true class)
        confusion = counts.transpose(0, 2, 1) + prior
        confusion /= confusion.sum(axis=2, keepdims=True)

        # Expectation: the class of each item (equation 2.5), as logarithms, since the product over
        # thousands of answers would underflow.
        logits = np.tile(np.log(class_shares), (n_items, 1))
        log_confusion = np.log(confusion)
        np.add.at(logits, items, log_confusion[annotators, :, answers])
        logits -= logits.max(axis=1, keepdims=True)
        previous = probabilities
        probabilities = np.exp(logits)
        probabilities /= probabilities.sum(axis=1, keepdims=True)

        if np.abs(probabilities - previous).max(initial=0.0) < tolerance:
            break

    return DawidSkeneResult(probabilities, confusion, class_shares)


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
