"""One label from what several people say: by most of them, or weighed by how right each is [Dawid and Skene 1979]."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from teeter.campaigns.db import Answer

__all__ = ["WAYS", "ConsensusLabel", "DawidSkeneResult", "dawid_skene", "labels_of", "verdicts"]

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

WAYS = ("majority", "dawid-skene")
"""How several answers become one."""

RIGHT = 2.0
"""Answers of each class that everybody is taken to have given rightly before anything is known."""

WRONG = 0.5
"""Answers of each class that everybody is taken to have given wrongly, spread over the other classes."""


@dataclass(frozen=True)
class ConsensusLabel:
    """What an item is, after everything that was said of it."""

    label: str
    confidence: float
    """The share of people who say so, or its probability; 1 for a decision."""
    by: str
    """majority, dawid-skene, or the name of the reviewer who decided."""


@dataclass(frozen=True, eq=False)
class DawidSkeneResult:
    """What answers tell of items and of people."""

    chances: Floats
    """(N, C): of each item, the probability of each class."""
    confusion: Floats
    """(A, C, C): of each annotator, how often each class (second axis) is called which (third)."""
    shares: Floats
    """(C,): how frequent the classes are."""


def labels_of(answers: Iterable[Answer]) -> dict[str, str]:
    """Return what items are by most annotators; of as many, by the one who answered last."""
    return {item: _most_said(said) for item, said in _said(answers).items()}


def _said(answers: Iterable[Answer]) -> dict[str, list[str]]:
    votes: dict[str, list[str]] = {}
    for answer in answers:
        if answer.kind == "label" and answer.label is not None:
            votes.setdefault(answer.item, []).append(answer.label)
    return votes


def _most_said(said: list[str]) -> str:
    counts = Counter(said)
    return max(reversed(said), key=lambda label: counts[label])


def verdicts(
    answers: Sequence[Answer],
    classes: Sequence[str],
    way: str,
    decided: Mapping[str, ConsensusLabel] | None = None,
) -> dict[str, ConsensusLabel]:
    """Return what items are: as it was decided, or by those who answered. A label that nobody gave is never the answer.

    ``decided`` holds only decisions for a class; items that were decided not to belong are the caller's to leave out.
    """
    found = _weighed(answers, classes) if way == "dawid-skene" else _by_most(answers)
    return found | dict(decided or {})


def _by_most(answers: Sequence[Answer]) -> dict[str, ConsensusLabel]:
    votes = _said(answers)
    labels = {item: _most_said(said) for item, said in votes.items()}
    return {
        item: ConsensusLabel(label, votes[item].count(label) / len(votes[item]), "majority")
        for item, label in labels.items()
    }


def _weighed(answers: Sequence[Answer], classes: Sequence[str]) -> dict[str, ConsensusLabel]:
    number = {name: k for k, name in enumerate(classes)}
    labelled = [one for one in answers if one.kind == "label" and one.label in number]
    if not labelled:
        return {}
    items = {item: k for k, item in enumerate(dict.fromkeys(one.item for one in labelled))}
    people = {name: k for k, name in enumerate(sorted({one.annotator for one in labelled}))}
    votes = np.array(
        [(items[one.item], people[one.annotator], number[str(one.label)]) for one in labelled]
    )
    chances = dawid_skene(votes, (len(items), len(people), len(classes))).chances
    said = np.zeros(chances.shape, dtype=bool)
    said[votes[:, 0], votes[:, 2]] = True
    best = np.where(said, chances, -1.0).argmax(axis=1)
    return {
        item: ConsensusLabel(classes[best[k]], float(chances[k, best[k]]), "dawid-skene")
        for item, k in items.items()
    }


def dawid_skene(
    votes: Integers, sizes: tuple[int, int, int], *, rounds: int = 200, tolerance: float = 1e-7
) -> DawidSkeneResult:
    """Return items' classes and people's confusion, as likely as can be, by expectation and maximisation.

    votes: (V, 3) item, annotator and class of each answer; sizes: N, A, C. Counts that everybody is taken to begin with
    keep a person of few answers from being trusted, or distrusted, too much.
    """
    n_items, n_people, n_classes = sizes
    items, people, said = votes[:, 0], votes[:, 1], votes[:, 2]
    begun = np.full((n_classes, n_classes), WRONG / max(1, n_classes - 1))
    np.fill_diagonal(begun, RIGHT)
    chances = np.zeros((n_items, n_classes))
    np.add.at(chances, (items, said), 1.0)
    chances /= np.maximum(chances.sum(axis=1, keepdims=True), 1.0)
    for _ in range(rounds):
        shares = (chances.sum(axis=0) + 1.0) / (chances.sum() + n_classes)
        counts = np.zeros((n_people, n_classes, n_classes))
        np.add.at(counts, (people, said), chances[items])  # (A, said, true)
        confusion = counts.transpose(0, 2, 1) + begun
        confusion /= confusion.sum(axis=2, keepdims=True)
        logs = np.tile(np.log(shares), (n_items, 1))
        np.add.at(logs, items, np.log(confusion)[people, :, said])
        logs -= logs.max(axis=1, keepdims=True)
        before, chances = chances, np.exp(logs)
        chances /= chances.sum(axis=1, keepdims=True)
        if np.abs(chances - before).max(initial=0.0) < tolerance:
            break
    return DawidSkeneResult(chances, confusion, shares)
