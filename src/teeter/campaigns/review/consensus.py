"""One label from several answers: by majority, or weighted by how reliable annotators are.

``read_snapshot`` reads the answers and decisions of a campaign with the labels that follow.

The weighting follows Dawid and Skene (1979): expectation-maximisation over the classes of the items
and the confusion matrices of the annotators.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from teeter.base.array_types import Floats, Integers
from teeter.base.seeds import stream_seed
from teeter.campaigns.records import (
    Answer,
    AnswerKind,
    ConsensusLabel,
    ConsensusMethod,
    Decision,
    join_labels,
    split_labels,
)
from teeter.campaigns.settings import IMPORTED
from teeter.campaigns.store import Reading

PRIOR_RIGHT = 2.0
"""Right answers of each class that every annotator is assumed to have given at the start."""

PRIOR_WRONG = 0.5
"""Wrong answers of each class assumed at the start, spread over the other classes."""

Value = TypeVar("Value")


def majority_labels(answers: Iterable[Answer]) -> dict[str, str]:
    """Return the most frequent label of each item; of tied labels, the one given last.

    Args:
        answers: Answers in the order in which they were given.

    Returns:
        Labels by item id.
    """
    by_item = _labels_by_item(answers)
    return {item: _most_frequent(labels) for item, labels in by_item.items()}


def combine_answers(
    answers: Sequence[Answer],
    classes: Sequence[str],
    method: str,
    decided: Mapping[str, ConsensusLabel] | None = None,
    *,
    several: bool = False,
) -> dict[str, ConsensusLabel]:
    """Return the label of each item: the decision of a reviewer, or the consensus of the answers.

    The label is always one that an annotator or a reviewer gave. Only if items may have several
    labels, the set may be one that nobody gave.

    Args:
        answers: Answers in the order in which they were given.
        classes: All classes of the campaign.
        method: One of ``ConsensusMethod``.
        decided: Decisions for a class by item id. Items that were decided not to belong must be
            left out by the caller.
        several: Whether items may have several labels, each of which is agreed on by itself.

    Returns:
        Labels by item id.
    """
    consensus = {}
    if several:
        for item, sets in _labels_by_item(answers).items():
            consensus[item] = _majority_set(sets, classes)
    elif method == ConsensusMethod.DAWID_SKENE:
        consensus = _combine_by_dawid_skene(answers, classes)
    else:
        for item, labels in _labels_by_item(answers).items():
            label = _most_frequent(labels)
            share = labels.count(label) / len(labels)
            consensus[item] = ConsensusLabel(label, share, ConsensusMethod.MAJORITY.value)

    return consensus | dict(decided or {})


def _labels_by_item(answers: Iterable[Answer]) -> dict[str, list[str]]:
    labels: dict[str, list[str]] = {}
    for answer in answers:
        if answer.kind == AnswerKind.LABEL and answer.label is not None:
            labels.setdefault(answer.item, []).append(answer.label)

    return labels


def _majority_set(sets: Sequence[str], classes: Sequence[str]) -> ConsensusLabel:
    """Return the labels that most annotators gave; in a tie, the last of them says.

    The confidence is that of the label that they agree on least.
    """
    given = [set(split_labels(label)) for label in sets]
    names = []
    confidence = 1.0
    for name in classes:
        n_for = sum(name in labels for labels in given)
        share = n_for / len(given)
        is_tied_and_last = share == 0.5 and name in given[-1]
        if share > 0.5 or is_tied_and_last:
            names.append(name)
        confidence = min(confidence, max(share, 1 - share))
    return ConsensusLabel(join_labels(names), confidence, ConsensusMethod.MAJORITY.value)


def _most_frequent(labels: Sequence[str]) -> str:
    """Return the most frequent of labels; of tied ones, the last."""
    counts = Counter(labels)
    # max() returns the first maximum, so the search starts at the end.
    return max(reversed(labels), key=lambda label: counts[label])


def _combine_by_dawid_skene(
    answers: Sequence[Answer], classes: Sequence[str]
) -> dict[str, ConsensusLabel]:
    items, annotators, votes = index_labels(answers, classes)
    if not items:
        return {}

    sizes = (len(items), len(annotators), len(classes))
    probabilities, _, _ = dawid_skene(votes, sizes)

    # A class that no annotator gave may still be the most probable one. It is never the label.
    was_given = np.zeros(probabilities.shape, dtype=bool)
    rows, _, given_classes = votes.T
    was_given[rows, given_classes] = True
    of_given = np.where(was_given, probabilities, -1.0)
    best_classes = of_given.argmax(axis=1)

    consensus = {}
    for k, item in enumerate(items):
        best = best_classes[k]
        consensus[item] = ConsensusLabel(
            label=classes[best],
            confidence=float(probabilities[k, best]),
            by=ConsensusMethod.DAWID_SKENE.value,
        )
    return consensus


def index_labels(
    answers: Iterable[Answer], classes: Sequence[str]
) -> tuple[list[str], list[str], Integers]:
    """Return the items and the annotators of labels, and (V, 3) who gave which class to which item.

    The columns are the indices of the item, the annotator and the class of each label. Items are in
    the order of the answers, so that no result depends on a hash seed, and annotators are sorted,
    because sums over them in another order differ in their last digits.
    """
    class_index = {name: k for k, name in enumerate(classes)}
    labelled = [
        answer
        for answer in answers
        if answer.kind == AnswerKind.LABEL and answer.label in class_index
    ]
    items = list(dict.fromkeys(answer.item for answer in labelled))
    annotators = sorted({answer.annotator for answer in labelled})
    item_index = {item: k for k, item in enumerate(items)}
    annotator_index = {name: k for k, name in enumerate(annotators)}

    votes = np.zeros((len(labelled), 3), dtype=np.int64)
    for row, answer in enumerate(labelled):
        item = item_index[answer.item]
        annotator = annotator_index[answer.annotator]
        given_class = class_index[str(answer.label)]
        votes[row] = item, annotator, given_class
    return items, annotators, votes


def dawid_skene(
    votes: Integers,
    sizes: tuple[int, int, int],
    *,
    max_iterations: int = 200,
    tolerance: float = 1e-7,
) -> tuple[Floats, Floats, Floats]:
    """Estimate the classes of items and the errors of annotators by expectation-maximisation.

    Each annotator starts with ``PRIOR_RIGHT`` and ``PRIOR_WRONG`` answers of every class, so that
    a few answers do not make anyone seem perfect or useless.

    Args:
        votes: Shape (V, 3): item, annotator and class of each answer, as indices.
        sizes: The numbers of items N, annotators A and classes C.
        max_iterations: Iterations after which the estimate is returned in any case.
        tolerance: The largest change of a probability at which the iteration has converged.

    Returns:
        (N, C), the probability of each class for each item; (A, C, C), for each annotator the
        probability of each answer (last axis) by true class; and (C,), how frequent classes are.
    """
    n_items, n_annotators, n_classes = sizes
    items, annotators, answers = votes.T

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

        changes = np.abs(probabilities - previous)
        if changes.max(initial=0.0) < tolerance:
            break

    return probabilities, confusion, class_shares


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

    disagreements = {}
    for item, by_annotator in by_item.items():
        different = set(by_annotator.values())
        if len(different) > 1:
            disagreements[item] = by_annotator
    return disagreements


@dataclass(frozen=True)
class CampaignSnapshot:
    """All live answers and decisions of a campaign, and the labels that follow from them."""

    answers: list[Answer]
    decisions: dict[str, Decision]
    consensus: dict[str, ConsensusLabel]
    """By item id, the label that a reviewer decided on or that the annotators agreed on."""
    left_out: frozenset[str]
    """Items that do not belong: flagged without a reviewer's decision on a class, or withdrawn."""
    withdrawn: frozenset[str] = frozenset()
    in_view: frozenset[str] = frozenset()
    """Items that nobody answered blind. Their labels measure nothing: see ``AnswerOrigin``."""

    @property
    def labels(self) -> dict[str, str]:
        """The class of every labelled item, by item id."""
        return {item: consensus.label for item, consensus in self.consensus.items()}

    @property
    def measuring_labels(self) -> dict[str, str]:
        """The class of every item that was answered blind, by item id."""
        return _without(self.labels, self.in_view)

    def single_labels(self) -> set[str]:
        """Return the items that belong, and whose label people gave one by one and blind.

        Labels that came with the items are not among them.
        """
        items = set()
        for answer in answers_of_people(self.answers):
            if answer.kind == AnswerKind.LABEL and answer.origin.is_blind:
                items.add(answer.item)
        for item, decision in self.decisions.items():
            if decision.label is not None:
                items.add(item)
        return (items & self.consensus.keys()) - self.left_out

    def labelled_classes(self) -> set[str]:
        """Return the classes of the items that have a label and belong in the campaign."""
        belonging = _without(self.labels, self.left_out)
        return set(belonging.values())

    def disagreements(self) -> list[tuple[str, dict[str, str]]]:
        """Return items that need a decision, with the answers, the least certain first."""
        disagreements = find_disagreements(answers_of_people(self.answers))
        settled = self.decisions.keys() | self.withdrawn
        undecided = [item for item in disagreements if item not in settled]
        undecided.sort(key=self.confidence)
        return [(item, disagreements[item]) for item in undecided]

    def without_withdrawn(self) -> CampaignSnapshot:
        """Return the snapshot without withdrawn items, for statistics of the campaign."""
        if not self.withdrawn:
            return self

        withdrawn = self.withdrawn
        return replace(
            self,
            answers=[answer for answer in self.answers if answer.item not in withdrawn],
            decisions=_without(self.decisions, withdrawn),
            consensus=_without(self.consensus, withdrawn),
            left_out=self.left_out - withdrawn,
        )

    def confidence(self, item: str) -> float:
        """Return how sure the label of an item is, from 0 to 1; 0 for an item without a label."""
        if item in self.left_out or item not in self.consensus:
            return 0.0
        return self.consensus[item].confidence


def _without(values: Mapping[str, Value], items: Container[str]) -> dict[str, Value]:
    """Return values by item without those of some items."""
    return {item: value for item, value in values.items() if item not in items}


def read_snapshot(view: Reading) -> CampaignSnapshot:
    """Read the current state of a campaign."""
    answers = view.answers.live()
    decisions = view.decisions.live()
    classes = view.classes.names()

    # None as the label of a decision says that the item does not belong in the campaign.
    decided_labels = {}
    decided_out = set()
    for item, decision in decisions.items():
        if decision.label is None:
            decided_out.add(item)
        else:
            decided_labels[item] = ConsensusLabel(decision.label, 1.0, decision.reviewer)

    # A decision on a class overrules flags, and a decision that an item does not belong, labels.
    flagged = {answer.item for answer in answers if answer.kind == AnswerKind.FLAG}
    withdrawn = frozenset(view.items.withdrawn())
    in_view = _answered_in_view(answers) - decisions.keys()
    counted = [answer for answer in answers if answer.item not in withdrawn]
    counted = _without_overruled(counted, view)
    several = view.settings.several
    consensus = combine_answers(
        counted, classes, view.settings.consensus, decided_labels, several=several
    )
    if withdrawn:
        # A withdrawn item keeps a label, but its answers must not change the labels of other items,
        # as they would through the weights that Dawid-Skene gives to annotators.
        set_aside = [answer for answer in answers if answer.item in withdrawn]
        majority = combine_answers(set_aside, classes, ConsensusMethod.MAJORITY, several=several)
        consensus = majority | consensus

    left_out = (flagged - set(decided_labels)) | decided_out | withdrawn
    return CampaignSnapshot(
        answers, decisions, consensus, frozenset(left_out), withdrawn, frozenset(in_view)
    )


def _answered_in_view(answers: Iterable[Answer]) -> set[str]:
    """Return the items whose answers were all given with a prediction in view, or in bulk."""
    in_view: set[str] = set()
    blind: set[str] = set()
    for answer in answers:
        if answer.kind == AnswerKind.SKIP:
            continue
        if answer.origin.is_blind:
            blind.add(answer.item)
        else:
            in_view.add(answer.item)
    return in_view - blind


def _without_overruled(answers: Sequence[Answer], view: Reading) -> list[Answer]:
    """Leave out answers in bulk where a person looked at the item alone.

    Of items that were drawn to measure, all answers but the blind ones are left out.
    """
    if all(answer.origin.is_blind for answer in answers):
        return list(answers)

    labels = [answer for answer in answers if answer.kind == AnswerKind.LABEL]
    alone = {answer.item for answer in labels if answer.origin.is_single}
    blind = {answer.item for answer in labels if answer.origin.is_blind}
    blind &= view.picks.measuring_items()
    counted = []
    for answer in answers:
        looked_at_alone = answer.item in alone and not answer.origin.is_single
        answered_blind = answer.item in blind and not answer.origin.is_blind
        if not looked_at_alone and not answered_blind:
            counted.append(answer)
    return counted


_CHECKED = 20
"""One in so many items that were answered in bulk is asked again, blind."""


def bulk_checks(snapshot: CampaignSnapshot, seed: int) -> set[str]:
    """Return the items whose answers in bulk are to be checked by blind ones."""
    in_bulk = {answer.item for answer in snapshot.answers if not answer.origin.is_single}
    return {
        item
        for item in in_bulk & snapshot.in_view
        if stream_seed(seed, "bulk check", item) % _CHECKED == 0
    }


def answers_of_people(answers: Iterable[Answer]) -> list[Answer]:
    """Return the answers of people, without the labels that came with the items."""
    return [answer for answer in answers if answer.annotator != IMPORTED]
