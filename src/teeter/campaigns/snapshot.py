"""How a campaign stands: what its items are, how far it is, how its people agree and work, and what goes out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection, Row, select

from teeter.campaigns.adjudication import Decision, Disagreement, contested, decisions
from teeter.campaigns.agreement import (
    AgreementScore,
    cohen_kappa,
    krippendorff_alpha,
    krippendorff_alpha_by_class,
    observed_agreement,
)
from teeter.campaigns.annotator_stats import (
    AnnotatorAccuracy,
    AnnotatorPace,
    accuracy_of_annotators,
    pace_of,
)
from teeter.campaigns.consensus import ConsensusLabel, combine_answers
from teeter.campaigns.db import schema
from teeter.campaigns.db.repository import Answer, CampaignRepository
from teeter.campaigns.import_export import ExportRow
from teeter.campaigns.results import Status
from teeter.campaigns.settings import IMPORTED, Settings
from teeter.campaigns.stopping import AccuracyEstimate, Progress, estimate_accuracy, give_advice

__all__ = [
    "Agreement",
    "AnnotatorStats",
    "CampaignSnapshot",
    "PairAgreement",
    "accuracy_of",
    "agreement_of",
    "disagreements_of",
    "export_rows",
    "read_standing",
    "status_of",
    "team_of",
]


@dataclass(frozen=True)
class CampaignSnapshot:
    """Everything that was said, and what it comes to."""

    answers: list[Answer]
    decisions: dict[str, Decision]
    verdicts: dict[str, ConsensusLabel]
    """What items are, as decided or by consensus."""
    left_out: frozenset[str]
    """Items that do not belong: somebody says so, and nobody decided otherwise."""

    @property
    def labels(self) -> dict[str, str]:
        """What items are, by id."""
        return {item: verdict.label for item, verdict in self.verdicts.items()}

    def disagreements(self) -> list[tuple[str, dict[str, str]]]:
        """Return the items that wait for a decision and who says what of them, those that are least clear first."""
        said_of = contested(_of_people(self.answers))
        waiting = [(item, said) for item, said in said_of.items() if item not in self.decisions]
        return sorted(waiting, key=lambda one: self.confidence(one[0]))

    def confidence(self, item: str) -> float:
        """Return how clear it is what an item is."""
        return (
            self.verdicts[item].confidence
            if item in self.verdicts and item not in self.left_out
            else 0.0
        )


def read_standing(
    repository: CampaignRepository, connection: Connection, settings: Settings
) -> CampaignSnapshot:
    """Return how a campaign stands now."""
    answers, decided = repository.answers(connection), decisions(repository, connection)
    settled = {
        item: ConsensusLabel(one.label, 1.0, one.reviewer)
        for item, one in decided.items()
        if one.label is not None
    }
    found = combine_answers(
        answers, list(repository.classes(connection)), settings.consensus, settled
    )
    bad = {one.item for one in answers if one.kind == "bad"} - set(settled)
    return CampaignSnapshot(
        answers, decided, found, frozenset(bad | {item for item in decided if item not in settled})
    )


def disagreements_of(
    standing: CampaignSnapshot, rows: Mapping[str, Row[Any]]
) -> list[Disagreement]:
    """Return what waits for a decision, of the items in ``rows``."""
    return [
        Disagreement(
            item, rows[item].content, said, standing.labels.get(item), standing.confidence(item)
        )
        for item, said in standing.disagreements()
        if item in rows
    ]


def status_of(repository: CampaignRepository, connection: Connection, settings: Settings) -> Status:
    """Return the numbers of a campaign, and what speaks for going on."""
    standing = read_standing(repository, connection, settings)
    answers, labels, facts = standing.answers, standing.labels, repository.models(connection)
    kinds = {
        kind: len({one.item for one in answers if one.kind == kind})
        for kind in ("skip", "unsure", "bad")
    }
    by_class = dict.fromkeys(repository.classes(connection), 0)
    for label in labels.values():
        by_class[label] += 1
    measured = [accuracy_of(one) for one in facts]
    last = facts[-1] if facts else {}
    progress = Progress(
        labels=len(labels),
        accuracy=measured[-1] if measured else None,
        accuracies=tuple(one.share for one in measured if one is not None),
        kappa=last.get("kappa"),
        changed=last.get("changed"),
        cost=None
        if settings.cost is None
        else settings.cost * sum(one.annotator != IMPORTED for one in answers),
        budget=settings.budget,
        measurable=settings.control > 0 or settings.audit > 0,
    )
    return Status(
        items=repository.count_items(connection),
        labelled=len(labels),
        by_class=by_class,
        skipped=kinds["skip"],
        unsure=kinds["unsure"],
        bad=kinds["bad"],
        open=repository.count_open(connection),
        version=len(facts),
        accuracy=progress.accuracy,
        advice=tuple(give_advice(progress)),
        disagreements=len(standing.disagreements()),
        spent=progress.cost,
    )


def accuracy_of(facts: Mapping[str, Any]) -> AccuracyEstimate | None:
    """Return how right a model is on random items: those of the audit sample, or controls while they are more."""
    right, total = max(facts["audit"], facts["control"], key=lambda one: int(one[1]))
    return estimate_accuracy(int(right), int(total))


def export_rows(
    items: Sequence[Row[Any]], standing: CampaignSnapshot, guesses: Mapping[str, tuple[str, float]]
) -> list[ExportRow]:
    """Return items as they go out: what each person says, what it comes to, and what the model guesses."""
    said: dict[str, dict[str, str]] = {}
    for one in standing.answers:
        said.setdefault(one.item, {})[one.annotator] = one.label or one.kind
    rows = []
    for row in items:
        verdict, decided = standing.verdicts.get(row.key), standing.decisions.get(row.key)
        guess = guesses.get(row.key)
        rows.append(
            ExportRow(
                id=row.key,
                kind=row.kind,
                content=row.content,
                label=None if verdict is None else verdict.label,
                annotators=len(said.get(row.key, ())),
                predicted=None if guess is None else guess[0],
                confidence=None if guess is None else round(guess[1], 6),
                left_out=row.key in standing.left_out,
                agreement=None if verdict is None else round(verdict.confidence, 6),
                decided_by=None if decided is None else decided.reviewer,
                answers=said.get(row.key, {}),
            )
        )
    return rows


@dataclass(frozen=True)
class PairAgreement:
    """How two people agree."""

    first: str
    second: str
    items: int
    """Items that both labelled."""
    kappa: AgreementScore | None
    """None: not yet known."""


@dataclass(frozen=True)
class Agreement:
    """How people agree; None stands for what is not yet known."""

    items: int
    """Items that two or more labelled."""
    observed: AgreementScore | None
    alpha: AgreementScore | None
    by_class: dict[str, AgreementScore | None]
    pairs: tuple[PairAgreement, ...]


def agreement_of(answers: Sequence[Answer], classes: Sequence[str]) -> Agreement:
    """Return how people agree on what items are; labels that came with the items are nobody's."""
    people, ratings = _ratings(_of_people(answers), classes)
    shared = ratings[(ratings >= 0).sum(axis=1) > 1]
    pairs = []
    for one, other in combinations(range(len(people)), 2):
        both = int(((shared[:, one] >= 0) & (shared[:, other] >= 0)).sum())
        if both:
            pairs.append(
                PairAgreement(
                    people[one], people[other], both, cohen_kappa(shared[:, one], shared[:, other])
                )
            )
    by_class = dict(zip(classes, krippendorff_alpha_by_class(shared, len(classes)), strict=True))
    return Agreement(
        len(shared),
        observed_agreement(shared),
        krippendorff_alpha(shared),
        by_class,
        tuple(pairs),
    )


def _of_people(answers: Sequence[Answer]) -> list[Answer]:
    return [one for one in answers if one.annotator != IMPORTED]


def _ratings(
    answers: Sequence[Answer], classes: Sequence[str]
) -> tuple[list[str], npt.NDArray[np.int64]]:
    """Return the names of those who label, and the class that each gave each item; -1 for none."""
    labelled = [one for one in answers if one.kind == "label"]
    people = sorted({one.annotator for one in labelled})
    items = {item: k for k, item in enumerate(dict.fromkeys(one.item for one in labelled))}
    columns, numbers = ({name: k for k, name in enumerate(names)} for names in (people, classes))
    ratings = np.full((len(items), len(people)), -1, dtype=np.int64)
    for one in labelled:
        ratings[items[one.item], columns[one.annotator]] = numbers[str(one.label)]
    return people, ratings


@dataclass(frozen=True)
class AnnotatorStats:
    """How somebody works."""

    name: str
    answers: int
    """That hold."""
    speed: AnnotatorPace | None
    quality: AnnotatorAccuracy


def team_of(
    repository: CampaignRepository, connection: Connection, settings: Settings
) -> list[AnnotatorStats]:
    """Return how everybody who answered works, by name."""
    standing = read_standing(repository, connection, settings)
    said = _of_people(standing.answers)
    decided = {item: one.label for item, one in standing.decisions.items()}
    drawn = repository.drawn_at_random(connection) | repository.audit_items(connection)
    found = accuracy_of_annotators(said, decided, drawn)
    times: dict[str, list[float]] = {}
    answers = schema.answers
    rows = connection.execute(
        select(answers.c.annotator, answers.c.at)
        .join(schema.items, schema.items.c.id == answers.c.item_id)
        .where(schema.items.c.campaign_id == repository.campaign, answers.c.annotator != IMPORTED)
        .order_by(answers.c.id)
    )
    for row in rows:
        times.setdefault(row.annotator, []).append(datetime.fromisoformat(row.at).timestamp())
    counts = Counter(one.annotator for one in said)
    nothing = AnnotatorAccuracy(None, None, None)
    return [
        AnnotatorStats(name, counts[name], pace_of(sorted(times[name])), found.get(name, nothing))
        for name in sorted(times)
    ]
