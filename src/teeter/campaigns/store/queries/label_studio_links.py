"""A campaign's projects in Label Studio, and which annotation became which answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import select

from teeter.campaigns.records import AnswerKind
from teeter.campaigns.store import schema
from teeter.campaigns.store.queries import Queries, chunks
from teeter.campaigns.store.schema import ANSWERS, CLASSES, LABEL_STUDIO, LABEL_STUDIO_ANSWERS


@dataclass(frozen=True)
class ProjectLink:
    """A campaign's project in Label Studio."""

    id: int
    """The link's row id."""
    url: str
    marker: str
    """Stands in the project's description, so that the project is found again after a crash."""
    project_id: int | None
    """The project's id; None if it was not created yet, or a crash lost the id."""


@dataclass(frozen=True)
class ImportedAnnotation:
    """What an annotation said when it was imported."""

    task: int
    kind: AnswerKind
    label: str | None
    """The name that its class has now."""
    at: str
    """When it was given or last changed, as times are stored."""
    gone: bool
    """Whether it was deleted in Label Studio, and its answers were withdrawn."""
    answers: tuple[int, ...]
    """The row ids of its answers, oldest first: one for each change of the annotation."""


class LabelStudioQueries(Queries):
    """The links of a campaign to projects in Label Studio. The newest is the current one."""

    def current_link(self) -> ProjectLink | None:
        """Return the current link, or None if the campaign was never synced."""
        # Older links stay, because imported annotations refer to them.
        newest_first = self._own(schema.label_studio).order_by(LABEL_STUDIO.id.desc())
        row = self._first(newest_first.limit(1))
        if row is None:
            return None
        return ProjectLink(row.id, row.url, row.marker, row.project_id)

    def add_link(self, url: str, marker: str) -> ProjectLink:
        """Store a link to a project that is yet to be created."""
        now = self._transaction.now()
        link_id = self._insert(
            schema.label_studio, url=url, marker=marker, project_id=None, created=now
        )
        return ProjectLink(link_id, url, marker, None)

    def set_project(self, link: ProjectLink, url: str, project_id: int) -> ProjectLink:
        """Store where the project of a link is, and return the link with it."""
        is_link = LABEL_STUDIO.id == link.id
        self._update(
            schema.label_studio,
            is_link,
            url=url,
            project_id=project_id,
        )
        return ProjectLink(link.id, url, link.marker, project_id)

    def imported_annotations(self, link: ProjectLink) -> dict[int, ImportedAnnotation]:
        """Return what was imported from a project, by the annotations' ids in Label Studio."""
        query = (
            select(schema.label_studio_answers, ANSWERS.kind, ANSWERS.at, CLASSES.name)
            .join(schema.answers, ANSWERS.id == LABEL_STUDIO_ANSWERS.answer_id)
            .join(schema.classes, isouter=True)
            .where(
                LABEL_STUDIO_ANSWERS.link_id == link.id,
                LABEL_STUDIO_ANSWERS.campaign_id == self._campaign_id,
            )
            .order_by(LABEL_STUDIO_ANSWERS.id)
        )

        # Later rows of an annotation are changes of it: the last one says what it says now.
        imported: dict[int, ImportedAnnotation] = {}
        for row in self._execute(query):
            answers: tuple[int, ...] = (row.answer_id,)
            if row.annotation in imported:
                answers = (*imported[row.annotation].answers, row.answer_id)
            imported[row.annotation] = ImportedAnnotation(
                task=row.task,
                kind=AnswerKind(row.kind),
                label=row.name,
                at=row.at,
                gone=row.gone,
                answers=answers,
            )

        return imported

    def add_import(
        self,
        link: ProjectLink,
        *,
        task: int,
        annotation: int,
        answer: int,
    ) -> None:
        """Note that an annotation became an answer.

        Args:
            link: the project.
            task: the task's id in Label Studio.
            annotation: the annotation's id in Label Studio.
            answer: the answer's row id.
        """
        self._insert(
            schema.label_studio_answers,
            link_id=link.id,
            task=task,
            annotation=annotation,
            answer_id=answer,
            gone=False,
        )

    def mark_deleted(self, link: ProjectLink, annotations: Sequence[int]) -> None:
        """Note that annotations were deleted in Label Studio, and their answers withdrawn."""
        # Marked, not deleted, like everything that the history refers to.
        for part in chunks(annotations):
            of_link = LABEL_STUDIO_ANSWERS.link_id == link.id
            is_deleted = LABEL_STUDIO_ANSWERS.annotation.in_(part)
            self._update(
                schema.label_studio_answers,
                of_link,
                is_deleted,
                gone=True,
            )
