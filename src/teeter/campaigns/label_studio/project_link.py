"""Which project in Label Studio is a campaign's, which annotations became which answers, and who is at it now.

Every function that takes a connection works inside its transaction.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

from teeter.campaigns.campaign import Campaign
from teeter.campaigns.db import Connection, ImportedAnnotation, LockName, ProjectLink
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


def current(campaign: Campaign, connection: Connection) -> ProjectLink | None:
    """Return the link that holds: the newest."""
    return campaign.repository.label_studio.current_link(connection)


def begin(campaign: Campaign, url: str, *, anew: bool) -> ProjectLink:
    """Return the link that holds; one is made where there is none, or ``anew``."""
    with campaign.database.writing() as connection:
        link = current(campaign, connection)
        if link is not None and (not anew or link.project is None):
            return link
        mark = f"teeter:{secrets.token_hex(8)}"
        return campaign.repository.label_studio.add_link(connection, url, mark)


def write_project(
    campaign: Campaign, link: ProjectLink, url: str, project: int, *, made: bool
) -> ProjectLink:
    """Note where a campaign's project is."""
    repository = campaign.repository
    with campaign.database.writing() as connection:
        detail = {"url": url, "project": project, "made": made}
        repository.history.append(connection, "label-studio", "linked", None, detail)
        return repository.label_studio.set_project(connection, link, url, project)


def annotations_of(
    campaign: Campaign, connection: Connection, link: ProjectLink
) -> dict[int, ImportedAnnotation]:
    """Return what was taken in, by the annotations' numbers."""
    return campaign.repository.label_studio.imported_annotations(connection, link)


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
    campaign.repository.label_studio.add_import(
        connection, link, task=task, annotation=annotation, answer=answer
    )


def note_gone(
    campaign: Campaign, connection: Connection, link: ProjectLink, annotations: Sequence[int]
) -> None:
    """Note that annotations are deleted, and their answers taken back."""
    campaign.repository.label_studio.mark_deleted(connection, link, annotations)


@contextmanager
def turn(
    campaign: Campaign, sleep: Callable[[float], None] = time.sleep
) -> Iterator[Callable[[], None]]:
    """Wait until no other is at it, and keep others waiting; yields what must be called now and then to go on.

    Whoever is killed keeps others waiting no longer than its last sign of life lasts.
    """
    waited = 0.0
    while (holder := _acquire(campaign)) is None:
        if waited > 2 * _LASTS:
            raise StoreError("Another sync of this campaign goes on: wait until it is done.")
        sleep(_LOOK)
        waited += _LOOK
    clock = campaign.repository.scope.clock
    last = clock()

    def alive() -> None:
        nonlocal last
        if abs(clock() - last) > timedelta(seconds=_LASTS / 3):  # it may have been set back
            last = clock()
            with campaign.database.writing() as connection:
                campaign.repository.locks.extend(connection, LockName.LABEL_STUDIO, holder, _LASTS)

    try:
        yield alive
    finally:
        with campaign.database.writing() as connection:
            campaign.repository.locks.release(connection, LockName.LABEL_STUDIO, holder)


def _acquire(campaign: Campaign) -> str | None:
    """Take the lock, and return its holder; None if it is taken."""
    with campaign.database.writing() as connection:
        return campaign.repository.locks.acquire(connection, LockName.LABEL_STUDIO, _LASTS)
