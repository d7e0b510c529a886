"""How fast annotators answer, and how often their labels are right.

An annotator's label counts as right if it agrees with the consensus, or with the decision of a
reviewer. On items drawn at random the result does not depend on how hard the picks were.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise

from teeter.campaigns.learning.stopping import estimate_accuracy
from teeter.campaigns.records import AccuracyEstimate, AnswerKind
from teeter.campaigns.review.consensus import answers_of_people, read_snapshot
from teeter.campaigns.settings import IMPORTED
from teeter.campaigns.store import Answer, Reading

__all__ = [
    "BREAK_SECONDS",
    "AnnotatorAccuracy",
    "AnnotatorPace",
    "AnnotatorStats",
    "accuracy_of_annotators",
    "annotator_stats",
    "pace_of",
]

BREAK_SECONDS = 300.0
"""A longer time between two answers is a break, not work."""

_MIN_WAITS = 5
"""Times between answers that a pace needs."""


@dataclass(frozen=True)
class AnnotatorPace:
    """How fast an annotator answers, without breaks."""

    seconds: float
    """The median time from one answer to the next."""
    per_hour: float
    """Answers in an hour of work."""


@dataclass(frozen=True)
class AnnotatorAccuracy:
    """How often an annotator's labels are right; None if there is nothing to compare with."""

    with_consensus: AccuracyEstimate | None
    """Compared with the consensus, on items that two or more annotators labelled."""
    with_decisions: AccuracyEstimate | None
    """Compared with the decisions of reviewers."""
    at_random: AccuracyEstimate | None
    """Compared with the decision or else the consensus, on items drawn at random only."""


def pace_of(times: Sequence[float]) -> AnnotatorPace | None:
    """Return the pace of an annotator.

    Args:
        times: When the annotator answered, in seconds, in ascending order.

    Returns:
        The pace, or None if there are too few answers.

    Example:
        >>> pace_of([0, 10, 20, 30, 4000, 4010, 4020, 4030])
        AnnotatorPace(seconds=10.0, per_hour=360.0)
    """
    waits = [later - earlier for earlier, later in pairwise(times)]
    working_waits = [wait for wait in waits if wait <= BREAK_SECONDS]
    total = sum(working_waits)
    # Answers imported at one moment have no time between them.
    if len(working_waits) < _MIN_WAITS or total <= 0:
        return None

    # The median is what an annotator feels, the mean is what an hour holds.
    median = statistics.median(working_waits)
    return AnnotatorPace(
        seconds=median,
        per_hour=3600 * len(working_waits) / total,
    )


@dataclass
class _Tally:
    """How many labels were compared with a reference, and how many agree with it."""

    right: int = 0
    total: int = 0

    def compare(self, label: str, reference: str | None) -> None:
        """Count a label, unless there is no reference."""
        if reference is None:
            return

        self.total += 1
        self.right += label == reference

    def estimate(self) -> AccuracyEstimate | None:
        return estimate_accuracy(self.right, self.total)


@dataclass
class _Comparison:
    """The tallies of one annotator."""

    consensus: _Tally = field(default_factory=_Tally)
    decisions: _Tally = field(default_factory=_Tally)
    random: _Tally = field(default_factory=_Tally)


def accuracy_of_annotators(
    answers: Iterable[Answer],
    consensus: Mapping[str, str],
    decided: Mapping[str, str | None],
    random_items: Collection[str],
) -> dict[str, AnnotatorAccuracy]:
    """Return how often the labels of each annotator are right.

    A tie that no reviewer decided counts for nobody: its consensus is the label that was given
    last, which says nothing about who is right.

    Args:
        answers: The current answers of all annotators, and the labels that came with the items.
        consensus: The labels of the items by item id.
        decided: The decisions of reviewers by item id; None for an item that does not belong.
        random_items: The ids of items that were drawn at random.

    Returns:
        The accuracies by annotator.
    """
    labels_by_item: dict[str, dict[str, str]] = {}
    for answer in answers:
        if answer.kind == AnswerKind.LABEL and answer.label is not None:
            labels_by_item.setdefault(answer.item, {})[answer.annotator] = answer.label

    comparisons: dict[str, _Comparison] = {}
    for item, labels in labels_by_item.items():
        # None if there is no decision, or if it is that the item does not belong.
        decision = decided.get(item)
        annotators = [name for name in labels if name != IMPORTED]

        agreed_label = None
        if len(annotators) > 1 and (decision is not None or not _is_tied(labels.values())):
            agreed_label = consensus.get(item)

        for annotator in annotators:
            label = labels[annotator]
            comparison = comparisons.setdefault(annotator, _Comparison())
            comparison.consensus.compare(label, agreed_label)
            comparison.decisions.compare(label, decision)
            if item in random_items:
                comparison.random.compare(label, decision or agreed_label)

    accuracies = {}
    for annotator, comparison in comparisons.items():
        accuracies[annotator] = AnnotatorAccuracy(
            with_consensus=comparison.consensus.estimate(),
            with_decisions=comparison.decisions.estimate(),
            at_random=comparison.random.estimate(),
        )
    return accuracies


def _is_tied(labels: Iterable[str]) -> bool:
    """Return whether the two most frequent of the labels are equally frequent."""
    counts = [count for _, count in Counter(labels).most_common(2)]
    return len(counts) == 2 and counts[0] == counts[1]


@dataclass(frozen=True)
class AnnotatorStats:
    """How an annotator works."""

    name: str
    answers: int
    """Live answers."""
    speed: AnnotatorPace | None
    quality: AnnotatorAccuracy


def annotator_stats(view: Reading) -> list[AnnotatorStats]:
    """Return how fast and how accurate every annotator is, by name."""
    snapshot = read_snapshot(view)
    measured = snapshot.without_withdrawn()
    decided = {item: decision.label for item, decision in measured.decisions.items()}

    random_items = view.picks.control_items()
    random_items |= view.items.audit_set()
    accuracies = accuracy_of_annotators(measured.answers, measured.labels, decided, random_items)

    times_by_annotator = view.answers.times_by_annotator()
    times_by_annotator.pop(IMPORTED, None)  # a file is no annotator
    # All of them: what an annotator did stays done when an item is withdrawn.
    live_counts = Counter(answer.annotator for answer in answers_of_people(snapshot.answers))

    stats = []
    for name in sorted(times_by_annotator):
        # Sorted, because imported annotations come with times of their own.
        times = [datetime.fromisoformat(time).timestamp() for time in times_by_annotator[name]]
        accuracy = accuracies.get(name, AnnotatorAccuracy(None, None, None))
        stats.append(
            AnnotatorStats(
                name,
                live_counts[name],
                pace_of(sorted(times)),
                accuracy,
            )
        )

    return stats
