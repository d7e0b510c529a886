"""Annotations that come in: each becomes an answer once, a change of it a correction, a deletion takes it back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from teeter.campaigns.campaign import Campaign
from teeter.campaigns.clock import format_time
from teeter.campaigns.db import Answer, Connection
from teeter.campaigns.enums import AnswerKind
from teeter.campaigns.items import require_printable
from teeter.campaigns.label_studio.project_link import (
    ImportedAnnotation,
    ProjectLink,
    annotations_of,
    note_answer,
    note_gone,
)
from teeter.campaigns.label_studio.tasks import Annotation, Task
from teeter.campaigns.settings import IMPORTED
from teeter.errors import InputError

__all__ = ["HOLDER", "PullSummary", "import_annotations", "notes_of"]

HOLDER = "label-studio"
"""In whose name questions go out, and whose an answer is that nobody is named for."""


@dataclass
class PullSummary:
    """What came in."""

    labels: int = 0
    skips: int = 0
    corrected: int = 0
    """Annotations that say something else than before."""
    withdrawn: int = 0
    """Annotations that were deleted, and whose answers are taken back."""
    strange: int = 0
    """Tasks that are not the campaign's."""
    without: int = 0
    """Annotations that choose no class, or several."""
    unknown: Counter[str] = field(default_factory=Counter)
    """Labels that are no classes of the campaign, and how many annotations have them."""
    unnamed: set[str] = field(default_factory=set)
    """Annotators who are none of the campaign's people, where it names some."""


def import_annotations(
    campaign: Campaign, link: ProjectLink, tasks: Iterable[Task], emails: Mapping[int, str]
) -> PullSummary:
    """Write what annotations say that was not written before, all of it or nothing."""
    named = {person.name for person in campaign.people.list()}
    found, tasks = PullSummary(), list(tasks)
    with campaign.database.writing() as connection:
        items = campaign.repository.items.by_id(
            connection, sorted({task.item for task in tasks if task.item is not None})
        )
        known = annotations_of(campaign, connection, link)
        classes = frozenset(campaign.repository.classes.names(connection))
        ours = [task for task in tasks if task.item in items]
        found.strange = len(tasks) - len(ours)
        given = sorted(
            (one for task in ours for one in task.annotations), key=lambda one: (one.at, one.number)
        )
        by_task = {task.number: items[str(task.item)] for task in ours}
        for one in given:
            said = _said(one, classes, found)
            if said is None or _is_known(known.get(one.number), said):
                continue
            who = _annotator(one, emails)
            if named and who not in named:
                found.unnamed.add(who)
            _write(campaign, connection, link, one, Answer(by_task[one.task].item_id, who, *said))
            _count(found, said[0], changed=one.number in known)
        found.withdrawn = _withdraw(campaign, connection, link, known, ours)
    return found


def _said(
    one: Annotation, classes: frozenset[str], found: PullSummary
) -> tuple[AnswerKind, str | None] | None:
    """Return what an annotation says; None where it says nothing that the campaign knows, which is counted."""
    if one.skipped:
        return AnswerKind.SKIP, None
    if one.chosen in classes:
        return AnswerKind.LABEL, one.chosen
    if one.chosen is None:
        found.without += 1
    else:
        found.unknown[one.chosen] += 1
    return None


def _is_known(taken: ImportedAnnotation | None, said: tuple[AnswerKind, str | None]) -> bool:
    return taken is not None and not taken.gone and (taken.kind, taken.label) == said


def _annotator(one: Annotation, emails: Mapping[int, str]) -> str:
    """Return whose answer it is: an e-mail address; Label Studio's own where there is none that can be shown."""
    name = emails.get(one.by or 0, "").strip()
    try:
        require_printable(name, "name")
    except InputError:
        return HOLDER
    return name if name and name != IMPORTED else HOLDER


def _write(
    campaign: Campaign, connection: Connection, link: ProjectLink, one: Annotation, answer: Answer
) -> None:
    # Two annotations that say the same are two answers: either may be deleted later.
    recorded = campaign.answer(
        answer,
        asked_of=HOLDER,
        at=format_time(one.at),
        allow_repeat=True,
        connection=connection,
    )
    note_answer(
        campaign, connection, link, task=one.task, annotation=one.number, answer=recorded.number
    )


def _count(found: PullSummary, kind: str, *, changed: bool) -> None:
    if changed:
        found.corrected += 1
    elif kind == AnswerKind.SKIP:
        found.skips += 1
    else:
        found.labels += 1


def _withdraw(
    campaign: Campaign,
    connection: Connection,
    link: ProjectLink,
    known: Mapping[int, ImportedAnnotation],
    ours: Sequence[Task],
) -> int:
    """Take back the answers of annotations that are deleted; where a whole task is, its answers stay."""
    there = {one.number for task in ours for one in task.annotations}
    read = {task.number for task in ours}
    gone = [
        number
        for number, one in known.items()
        if not one.gone and number not in there and one.task in read
    ]
    for number in gone:
        for answer in reversed(known[number].answers):
            campaign.repository.answers.withdraw(connection, answer)
    note_gone(campaign, connection, link, gone)
    return len(gone)


def notes_of(found: PullSummary, classes: Sequence[str]) -> list[str]:
    """Return a sentence for everything that was left where it is."""
    notes = []
    if found.strange:
        notes.append(
            f"Not of this campaign, and left alone: {_counted(found.strange, 'task')} of the project."
        )
    notes += [
        f"No class is called {label!r}, as {_counted(count, 'annotation')} would have it (there are "
        f"{', '.join(classes[:9])}{', …' if len(classes) > 9 else ''}): kept in Label Studio until "
        "teeter campaign add-class adds it, or somebody chooses another."
        for label, count in sorted(found.unknown.items())
    ]
    if found.without:
        told = _counted(found.without, "annotation")
        notes.append(
            f"No class, or several: {told}, kept in Label Studio until somebody chooses one."
        )
    if found.unnamed:
        notes.append(
            f"Not among the campaign's people, and counted all the same: {', '.join(sorted(found.unnamed))}."
        )
    return notes


def _counted(count: int, thing: str) -> str:
    return f"{count:,} {thing}{'' if count == 1 else 's'}"
