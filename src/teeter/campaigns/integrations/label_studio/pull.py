"""Import annotations from Label Studio as answers of a campaign.

Each annotation becomes an answer once. A changed annotation becomes a correction, and a deleted one
withdraws its answers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from teeter.base.wording import list_some, pluralize
from teeter.campaigns.campaign import Campaign
from teeter.campaigns.integrations.label_studio.payloads import (
    Annotation,
    LabelStudioTask,
    chosen_class,
)
from teeter.campaigns.people import require_name
from teeter.campaigns.records import Answer, AnswerKind
from teeter.campaigns.store import ImportedAnnotation, ProjectLink, Writing
from teeter.campaigns.store.database import format_time
from teeter.errors import InputError

LABEL_STUDIO_ANNOTATOR = "label-studio"
"""The annotator who picks for Label Studio are assigned to. Answers are credited to the annotators'
e-mail addresses, and to this name only if there is no usable address."""

_MAX_NAMED_CLASSES = 9


@dataclass
class PullSummary:
    """What was imported, and what was not."""

    labels: int = 0
    """New annotations with a class."""
    skips: int = 0
    """New annotations that skip the task."""
    corrected: int = 0
    """Annotations that changed since they were imported."""
    withdrawn: int = 0
    """Annotations that were deleted since they were imported."""
    foreign_tasks: int = 0
    """Tasks that do not belong to the campaign."""
    ambiguous_annotations: int = 0
    """Annotations that choose no class, or several."""
    unknown_labels: Counter[str] = field(default_factory=Counter)
    """Chosen labels that are not classes of the campaign, with the number of annotations."""
    outside_annotators: set[str] = field(default_factory=set)
    """Annotators who are not members of the campaign, if it has a list of members."""

    def notes(self, classes: Sequence[str]) -> list[str]:
        """Return a sentence for everything that a user may want to fix."""
        notes = []

        if self.foreign_tasks:
            tasks = pluralize(self.foreign_tasks, "task")
            notes.append(f"Ignored {tasks} that teeter did not create for this campaign.")

        named_classes = list_some(classes, _MAX_NAMED_CLASSES)
        for label, count in sorted(self.unknown_labels.items()):
            notes.append(
                f"Ignored {pluralize(count, 'annotation')} with the label {label!r}, which is not "
                f"a class of this campaign ({named_classes}). Add the class to the campaign, or "
                "change the label in Label Studio."
            )

        if self.ambiguous_annotations:
            annotations = pluralize(self.ambiguous_annotations, "annotation")
            notes.append(
                f"Ignored {annotations} with no class or several classes. Choose exactly one "
                "class in Label Studio."
            )

        if self.outside_annotators:
            names = ", ".join(sorted(self.outside_annotators))
            notes.append(f"Imported answers from annotators who are not members: {names}.")

        return notes


def import_annotations(
    campaign: Campaign,
    link: ProjectLink,
    tasks: Iterable[LabelStudioTask],
    emails: Mapping[int, str],
) -> PullSummary:
    """Import all annotations that are new, changed or deleted, in one transaction.

    Args:
        tasks: Tasks of the project, with their annotations.
        emails: E-mail addresses of Label Studio's users, by user id.

    Returns:
        What was imported, and what was ignored.
    """
    tasks = list(tasks)
    members = {person.name for person in campaign.people.list()}
    summary = PullSummary()

    with campaign.writing() as change:
        item_ids = {task.item_id for task in tasks if task.item_id is not None}
        items = change.items.by_id(sorted(item_ids))
        own_tasks = [task for task in tasks if task.item_id in items]
        summary.foreign_tasks = len(tasks) - len(own_tasks)

        imported = change.label_studio.imported_annotations(link)
        # The project may still have names that classes had before.
        names = {name: name for name in change.classes.names()}
        names |= change.classes.former_names()
        past_names = change.classes.past_names()

        # If an annotator labelled an item twice, the later answer is the valid one.
        annotations = [(task, entry) for task in own_tasks for entry in task.annotations]
        annotations.sort(key=lambda pair: (pair[1].changed_at, pair[1].id))

        for task, annotation in annotations:
            choice = _read_choice(annotation, names, summary)
            previous = imported.get(annotation.id)
            if choice is None:
                continue
            if previous is not None:
                # An annotation that was deleted and restored is imported again.
                is_same = (previous.kind, previous.label) == choice
                if is_same and not previous.gone:
                    continue
                if _names_another_class(previous, annotation, past_names):
                    continue

            annotator = _annotator_name(annotation, emails)
            # A campaign without a list of members is open to everybody.
            if members and annotator not in members:
                summary.outside_annotators.add(annotator)

            kind, label = choice
            # Two annotations that say the same are two answers: either may be deleted later.
            receipt = change.answers.record(
                Answer(
                    str(task.item_id),
                    annotator,
                    kind,
                    label,
                ),
                asked_of=LABEL_STUDIO_ANNOTATOR,
                at=format_time(annotation.changed_at),
                shown=task.suggestion,
                allow_repeat=True,
            )

            # In the transaction of the answer, so that no annotation is imported twice.
            change.label_studio.add_import(
                link,
                task=task.id,
                annotation=annotation.id,
                answer=receipt.number,
            )
            if previous is not None:
                summary.corrected += 1
            elif kind is AnswerKind.SKIP:
                summary.skips += 1
            else:
                summary.labels += 1

        summary.withdrawn = _withdraw_deleted(change, link, imported, own_tasks)

    return summary


def _read_choice(
    annotation: Annotation, names: Mapping[str, str], summary: PullSummary
) -> tuple[AnswerKind, str | None] | None:
    """Return the kind and class that an annotation gives, or count it as ignored and return None.

    Args:
        names: The names of the classes by all names that they have or had.
        summary: Counts what is ignored.
    """
    if annotation.was_cancelled:
        return AnswerKind.SKIP, None

    label = chosen_class(annotation.result or [])
    if label is not None and label in names:
        return AnswerKind.LABEL, names[label]

    # An ignored annotation is read again by every sync, so it is enough to add the class later.
    if label is None:
        summary.ambiguous_annotations += 1
    else:
        summary.unknown_labels[label] += 1
    return None


def _names_another_class(
    previous: ImportedAnnotation, annotation: Annotation, past_names: Mapping[str, set[str]]
) -> bool:
    """Return whether an imported annotation has a name that was given to another class since.

    The annotator meant the class that had the name then, unless they chose it again later.
    """
    if previous.gone or previous.label is None:
        return False
    chosen = chosen_class(annotation.result or [])
    if chosen not in past_names.get(previous.label, set()):
        return False
    return format_time(annotation.changed_at) <= previous.at


def _annotator_name(annotation: Annotation, emails: Mapping[int, str]) -> str:
    """Return the e-mail address of an annotator, if it is a name that a campaign accepts."""
    if annotation.completed_by is None:
        return LABEL_STUDIO_ANNOTATOR

    email = emails.get(annotation.completed_by, "").strip()
    try:
        require_name(email)
    except InputError:
        return LABEL_STUDIO_ANNOTATOR
    return email


def _withdraw_deleted(
    change: Writing,
    link: ProjectLink,
    imported: Mapping[int, ImportedAnnotation],
    tasks: Sequence[LabelStudioTask],
) -> int:
    """Withdraw the answers of annotations that were deleted, and return how many annotations.

    If a whole task was deleted, its answers stay: people delete tasks to tidy up a project.
    """
    task_ids = {task.id for task in tasks}
    present_ids = {annotation.id for task in tasks for annotation in task.annotations}

    deleted_ids = []
    for annotation_id, annotation in imported.items():
        is_missing = annotation_id not in present_ids and annotation.task in task_ids
        if is_missing and not annotation.gone:
            deleted_ids.append(annotation_id)

    for annotation_id in deleted_ids:
        # Newest first: only the oldest answer belongs to a pick, and withdrawing it while it is the
        # valid answer opens the pick again.
        for answer_id in reversed(imported[annotation_id].answers):
            change.answers.withdraw(answer_id)

    change.label_studio.mark_deleted(link, deleted_ids)
    return len(deleted_ids)
