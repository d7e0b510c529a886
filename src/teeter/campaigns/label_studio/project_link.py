"""Which project in Label Studio is a campaign's, which annotations became which answers, and who is at it now.

Every function that takes a connection works inside its transaction.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import Connection, and_, insert, select, update

from teeter.campaigns.campaign import Campaign
from teeter.campaigns.clock import written
from teeter.campaigns.db import schema
from teeter.campaigns.db.repository import Kind
from teeter.errors import StoreError

__all__ = [
    "ImportedAnnotation",
    "ProjectLink",
    "annotations_of",
    "begin",
    "current",
    "note_answer",
    "note_gone",
    "turn",
    "write_project",
]

_LASTS = 45.0
"""Seconds after the last sign of life from which on another may begin; more than a server may take to answer."""

_LOOK = 0.5
"""Seconds between two looks whether another is done."""


@dataclass(frozen=True)
class ProjectLink:
    """A campaign's project in Label Studio."""

    number: int
    url: str
    mark: str
    project: int | None
    """None: it is not made yet, or nobody came to note it."""


@dataclass(frozen=True)
class ImportedAnnotation:
    """What an annotation said when it was taken in."""

    task: int
    kind: Kind
    label: str | None
    gone: bool
    answers: tuple[int, ...]
    """The numbers of its answers, oldest first: one for every change."""


def current(campaign: Campaign, connection: Connection) -> ProjectLink | None:
    """Return the link that holds: the newest."""
    own = schema.label_studio.c.campaign_id == campaign.repository.campaign
    row = connection.execute(
        select(schema.label_studio).where(own).order_by(schema.label_studio.c.id.desc()).limit(1)
    ).first()
    return None if row is None else ProjectLink(row.id, row.url, row.mark, row.project)


def begin(campaign: Campaign, url: str, *, anew: bool) -> ProjectLink:
    """Return the link that holds; one is made where there is none, or ``anew``."""
    with campaign.database.writing() as connection:
        link = current(campaign, connection)
        if link is not None and (not anew or link.project is None):
            return link
        values = {
            "campaign_id": campaign.repository.campaign,
            "url": url,
            "mark": f"teeter:{secrets.token_hex(8)}",
            "project": None,
            "made": campaign.repository.now(),
            "busy": None,
        }
        (number,) = connection.execute(
            insert(schema.label_studio).values(values)
        ).inserted_primary_key or (0,)
        return ProjectLink(int(number), url, str(values["mark"]), None)


def write_project(
    campaign: Campaign, link: ProjectLink, url: str, project: int, *, made: bool
) -> ProjectLink:
    """Note where a campaign's project is."""
    with campaign.database.writing() as connection:
        _change(connection, link, url=url, project=project)
        detail = {"url": url, "project": project, "made": made}
        campaign.repository.note(connection, "label-studio", "linked", None, detail)
    return ProjectLink(link.number, url, link.mark, project)


def _change(connection: Connection, link: ProjectLink, **values: object) -> None:
    connection.execute(
        update(schema.label_studio).where(schema.label_studio.c.id == link.number).values(values)
    )


def annotations_of(
    campaign: Campaign, connection: Connection, link: ProjectLink
) -> dict[int, ImportedAnnotation]:
    """Return what was taken in, by the annotations' numbers."""
    noted, answers = schema.label_studio_answers, schema.answers
    rows = connection.execute(
        select(noted, answers.c.kind, schema.classes.c.name)
        .join(answers, answers.c.id == noted.c.answer_id)
        .join(schema.classes, schema.classes.c.id == answers.c.class_id, isouter=True)
        .where(noted.c.link_id == link.number, noted.c.campaign_id == campaign.repository.campaign)
        .order_by(noted.c.id)
    )
    found: dict[int, ImportedAnnotation] = {}
    for row in rows:
        before = found[row.annotation].answers if row.annotation in found else ()
        found[row.annotation] = ImportedAnnotation(
            row.task, row.kind, row.name, row.gone, (*before, row.answer_id)
        )
    return found


def note_answer(
    campaign: Campaign,
    connection: Connection,
    link: ProjectLink,
    *,
    task: int,
    annotation: int,
    answer: int,
) -> None:
    """Note that an annotation became an answer."""
    values = {
        "campaign_id": campaign.repository.campaign,
        "link_id": link.number,
        "task": task,
        "annotation": annotation,
        "answer_id": answer,
        "gone": False,
    }
    connection.execute(insert(schema.label_studio_answers).values(values))


def note_gone(connection: Connection, link: ProjectLink, annotations: Sequence[int]) -> None:
    """Note that annotations are deleted, and their answers taken back."""
    noted = schema.label_studio_answers
    for one in annotations:
        same = and_(noted.c.link_id == link.number, noted.c.annotation == one)
        connection.execute(update(noted).where(same).values(gone=True))


@contextmanager
def turn(
    campaign: Campaign, link: ProjectLink, sleep: Callable[[float], None] = time.sleep
) -> Iterator[Callable[[], None]]:
    """Wait until no other is at it, and keep others waiting; yields what must be called now and then to go on.

    Whoever is killed keeps others waiting no longer than its last sign of life lasts.
    """
    waited = 0.0
    while not _take(campaign, link):
        if waited > 2 * _LASTS:
            raise StoreError("Another sync of this campaign goes on: wait until it is done.")
        sleep(_LOOK)
        waited += _LOOK
    last = campaign.repository.clock()

    def alive() -> None:
        nonlocal last
        if abs(campaign.repository.clock() - last) > timedelta(
            seconds=_LASTS / 3
        ):  # it may have been set back
            last = campaign.repository.clock()
            _be_busy(campaign, link, busy=True)

    try:
        yield alive
    finally:
        _be_busy(campaign, link, busy=False)


def _take(campaign: Campaign, link: ProjectLink) -> bool:
    table = schema.label_studio
    with campaign.database.writing() as connection:
        until = connection.scalar(select(table.c.busy).where(table.c.id == link.number))
        # What ends long from now was left before the clock was set back.
        if until is not None and campaign.repository.now() < until <= _end(campaign, 2 * _LASTS):
            return False
        _change(connection, link, busy=_end(campaign))
    return True


def _be_busy(campaign: Campaign, link: ProjectLink, *, busy: bool) -> None:
    with campaign.database.writing() as connection:
        _change(connection, link, busy=_end(campaign) if busy else None)


def _end(campaign: Campaign, seconds: float = _LASTS) -> str:
    return written(campaign.repository.clock() + timedelta(seconds=seconds))
