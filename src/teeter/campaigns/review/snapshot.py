"""A campaign at one moment: labels, progress, agreement, annotators, and the rows of an export."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import combinations
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from teeter.campaigns.enums import AnswerKind
from teeter.campaigns.learning.feature_quality import compare_encoders, describe_features
from teeter.campaigns.learning.stopping import (
    AccuracyEstimate,
    Progress,
    estimate_accuracy,
    give_advice,
)
from teeter.campaigns.results import Status
from teeter.campaigns.review.agreement import (
    AgreementScore,
    cohen_kappa,
    krippendorff_alpha,
    krippendorff_alpha_by_class,
    observed_agreement,
)
from teeter.campaigns.review.annotator_stats import (
    AnnotatorAccuracy,
    AnnotatorPace,
    accuracy_of_annotators,
    pace_of,
)
from teeter.campaigns.review.consensus import (
    ConsensusLabel,
    ConsensusMethod,
    Disagreement,
    combine_answers,
    find_disagreements,
)
from teeter.campaigns.settings import IMPORTED, Settings
from teeter.campaigns.store import Answer, CampaignRepository, Connection, Decision, StoredItem

if TYPE_CHECKING:
    pass

__all__ = [
    "Agreement",
    "AnnotatorStats",
    "CampaignSnapshot",
    "PairAgreement",
    "annotator_stats",
    "campaign_status",
    "count_unencoded",
    "describe_disagreements",
    "estimate_model_accuracy",
    "measure_agreement",
    "read_snapshot",
]

Value = TypeVar("Value")


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

    @property
    def labels(self) -> dict[str, str]:
        """The class of every labelled item, by item id."""
        return {item: consensus.label for item, consensus in self.consensus.items()}

    def labelled_classes(self) -> set[str]:
        """Return the classes of the items that have a label and belong in the campaign."""
        return {label for item, label in self.labels.items() if item not in self.left_out}

    def disagreements(self) -> list[tuple[str, dict[str, str]]]:
        """Return items that need a decision, with the answers, the least certain first."""
        disagreements = find_disagreements(_without_imports(self.answers))
        settled = self.decisions.keys() | self.withdrawn
        undecided = [item for item in disagreements if item not in settled]
        return [(item, disagreements[item]) for item in sorted(undecided, key=self.confidence)]

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


def read_snapshot(
    repository: CampaignRepository, connection: Connection, settings: Settings
) -> CampaignSnapshot:
    """Read the current state of a campaign."""
    answers = repository.answers.live(connection)
    decisions = repository.decisions.live(connection)
    classes = repository.classes.names(connection)

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
    withdrawn = frozenset(repository.items.withdrawn(connection))
    counted = [answer for answer in answers if answer.item not in withdrawn]
    consensus = combine_answers(counted, classes, settings.consensus, decided_labels)
    if withdrawn:
        # A withdrawn item keeps a label, but its answers must not change the labels of other items,
        # as they would through the weights that Dawid-Skene gives to annotators.
        set_aside = [answer for answer in answers if answer.item in withdrawn]
        consensus = combine_answers(set_aside, classes, ConsensusMethod.MAJORITY) | consensus

    left_out = (flagged - set(decided_labels)) | decided_out | withdrawn
    return CampaignSnapshot(answers, decisions, consensus, frozenset(left_out), withdrawn)


def describe_disagreements(
    snapshot: CampaignSnapshot, items: Mapping[str, StoredItem]
) -> list[Disagreement]:
    """Return the disagreements about the given items, least certain first."""
    labels = snapshot.labels
    disagreements = []
    for item, by_annotator in snapshot.disagreements():
        if item in items:
            disagreement = Disagreement(
                item=item,
                content=items[item].content,
                answers=by_annotator,
                label=labels.get(item),
                confidence=snapshot.confidence(item),
            )
            disagreements.append(disagreement)

    return disagreements


def campaign_status(
    repository: CampaignRepository, connection: Connection, settings: Settings
) -> Status:
    """Return the numbers of a campaign, with advice on whether to continue."""
    full_snapshot = read_snapshot(repository, connection, settings)
    snapshot = full_snapshot.without_withdrawn()
    models = repository.models.summaries(connection)

    by_class = dict.fromkeys(repository.classes.names(connection), 0)
    for label in snapshot.labels.values():
        by_class[label] += 1

    # Sets, because several annotators may have answered one item. An item can be in two of them.
    items_by_kind: dict[AnswerKind, set[str]] = {kind: set() for kind in AnswerKind}
    for answer in snapshot.answers:
        items_by_kind[answer.kind].add(answer.item)

    progress = _measure_progress(full_snapshot, [model.facts for model in models], settings)
    newest_facts = models[-1].facts if models else {}
    current = repository.encodings.current(connection)
    unreadable = repository.encodings.unreadable(connection).keys() - snapshot.withdrawn
    return Status(
        items=repository.items.count(connection) - len(snapshot.withdrawn),
        labelled=len(snapshot.consensus),
        by_class=by_class,
        skipped=len(items_by_kind[AnswerKind.SKIP]),
        unsure=len(items_by_kind[AnswerKind.UNSURE]),
        flagged=len(items_by_kind[AnswerKind.FLAG]),
        open=repository.picks.count_open(connection),
        version=len(models),
        accuracy=progress.accuracy,
        advice=(*give_advice(progress), *describe_features(newest_facts)),
        disagreements=len(snapshot.disagreements()),
        spent=progress.cost,
        encoder=None if current is None else current.encoder,
        unencoded=count_unencoded(repository, connection),
        unreadable=len(unreadable),
        comparison=compare_encoders(newest_facts),
        withdrawn=len(snapshot.withdrawn),
    )


def count_unencoded(repository: CampaignRepository, connection: Connection) -> int:
    """Return the number of items that the current encoder has not encoded yet."""
    current = repository.encodings.current(connection)
    if current is None:
        return repository.items.count(connection)
    return repository.encodings.count_missing(connection, current.row_id)


def _measure_progress(
    snapshot: CampaignSnapshot, model_facts: Sequence[Mapping[str, Any]], settings: Settings
) -> Progress:
    """Collect what the advice on stopping depends on."""
    # A model that was trained again on the same labels says nothing about whether more labels help.
    distinct: list[Mapping[str, Any]] = []
    for facts in model_facts:
        if not distinct or facts["labels"] != distinct[-1]["labels"]:
            distinct.append(facts)

    accuracies = [estimate_model_accuracy(facts) for facts in distinct]
    newest = distinct[-1] if distinct else {}

    cost = None
    if settings.cost is not None:
        # Labels that came with the items cost nothing. Those of withdrawn items were paid for.
        cost = settings.cost * len(_without_imports(snapshot.answers))

    return Progress(
        labels=len(snapshot.without_withdrawn().consensus),
        accuracy=accuracies[-1] if accuracies else None,
        accuracies=tuple(estimate for estimate in accuracies if estimate is not None),
        kappa=newest.get("kappa"),
        changed=newest.get("changed"),
        cost=cost,
        budget=settings.budget,
        measurable=settings.control > 0 or settings.audit > 0,
    )


def estimate_model_accuracy(facts: Mapping[str, Any]) -> AccuracyEstimate | None:
    """Estimate a model's accuracy on randomly chosen items.

    Args:
        facts: what is known of the model. ``audit`` and ``control`` hold the number of right
            predictions and of all predictions on these items; the larger set is used.
    """
    if facts["audit"][1] >= facts["control"][1]:
        # The audit set trains no model.
        return estimate_accuracy(*facts["audit"])

    right, total = facts["control"]
    return estimate_accuracy(right, total, share_judged=min(1.0, total / facts["labels"]))


@dataclass(frozen=True)
class PairAgreement:
    """How far two annotators agree."""

    first: str
    second: str
    items: int
    """Items that both labelled."""
    kappa: AgreementScore | None
    """Cohen's kappa; None if there are too few items."""


@dataclass(frozen=True)
class Agreement:
    """How far the annotators agree. None stands for what too few items can tell."""

    items: int
    """Items that two or more annotators labelled."""
    observed: AgreementScore | None
    alpha: AgreementScore | None
    by_class: dict[str, AgreementScore | None]
    pairs: tuple[PairAgreement, ...]


def measure_agreement(answers: Sequence[Answer], classes: Sequence[str]) -> Agreement:
    """Measure how far annotators agree. Labels that came with the items do not count."""
    annotators, ratings = _rating_matrix(_without_imports(answers), classes)
    # Items with one rating say nothing about agreement.
    is_rated = ratings >= 0
    several = ratings[is_rated.sum(axis=1) > 1]

    pairs = []
    for first, second in combinations(range(len(annotators)), 2):
        both = (several[:, first] >= 0) & (several[:, second] >= 0)
        if both.any():
            pair = PairAgreement(
                first=annotators[first],
                second=annotators[second],
                items=int(both.sum()),
                kappa=cohen_kappa(several[:, first], several[:, second]),
            )
            pairs.append(pair)

    alpha_by_class = krippendorff_alpha_by_class(several, len(classes))
    return Agreement(
        items=len(several),
        observed=observed_agreement(several),
        alpha=krippendorff_alpha(several),
        by_class=dict(zip(classes, alpha_by_class, strict=True)),
        pairs=tuple(pairs),
    )


def _without_imports(answers: Iterable[Answer]) -> list[Answer]:
    """Return the answers of people, without the labels that came with the items."""
    return [answer for answer in answers if answer.annotator != IMPORTED]


def _rating_matrix(
    answers: Sequence[Answer], classes: Sequence[str]
) -> tuple[list[str], npt.NDArray[np.int64]]:
    """Return the annotators by name, and the class that each gave each item.

    The matrix has the shape (items, annotators) and holds positions in ``classes``, or -1 for none.
    """
    labels = [answer for answer in answers if answer.kind == AnswerKind.LABEL]
    annotators = sorted({answer.annotator for answer in labels})
    # In the order of the answers, so that the result does not depend on a hash seed.
    items = list(dict.fromkeys(answer.item for answer in labels))

    row_of_item = {item: row for row, item in enumerate(items)}
    column_of_annotator = {name: column for column, name in enumerate(annotators)}
    position_of_class = {name: position for position, name in enumerate(classes)}

    # -1, not NaN: classes are integers, and the measures compare them exactly.
    ratings = np.full((len(items), len(annotators)), -1, dtype=np.int64)
    for answer in labels:
        row = row_of_item[answer.item]
        column = column_of_annotator[answer.annotator]
        ratings[row, column] = position_of_class[str(answer.label)]

    return annotators, ratings


@dataclass(frozen=True)
class AnnotatorStats:
    """How an annotator works."""

    name: str
    answers: int
    """Live answers."""
    speed: AnnotatorPace | None
    quality: AnnotatorAccuracy


def annotator_stats(
    repository: CampaignRepository, connection: Connection, settings: Settings
) -> list[AnnotatorStats]:
    """Return how fast and how accurate every annotator is, by name."""
    snapshot = read_snapshot(repository, connection, settings)
    measured = snapshot.without_withdrawn()
    decided = {item: decision.label for item, decision in measured.decisions.items()}

    random_items = repository.picks.control_items(connection)
    random_items |= repository.items.audit_set(connection)
    accuracies = accuracy_of_annotators(measured.answers, measured.labels, decided, random_items)

    times_by_annotator = repository.answers.times_by_annotator(connection)
    times_by_annotator.pop(IMPORTED, None)  # a file is no annotator
    # All of them: what an annotator did stays done when an item is withdrawn.
    live_counts = Counter(answer.annotator for answer in _without_imports(snapshot.answers))

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
