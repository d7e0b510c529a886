"""The link between a campaign and its project in Label Studio, as the campaign's database stores it.

Three things are stored: which project belongs to the campaign, which annotation became which answer,
and a lock, so that only one sync at a time creates a project or tasks.

A function that takes a connection works inside the connection's transaction.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
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
    "current_link",
    "hold_sync_lock",
    "imported_annotations",
    "mark_deleted",
    "open_link",
    "record_answer",
    "save_project",
]

LOCK_SECONDS = 45.0
"""How long a sync keeps the lock without extending it: longer than a request may take to fail."""

LOCK_POLL_SECONDS = 0.5
"""Time between two attempts to acquire the lock."""


@dataclass(frozen=True)
class ProjectLink:
    """The link of a campaign to a project in Label Studio."""

    id: int
    url: str
    marker: str
    """Random text in the project's description, by which teeter recognises the project."""
    project_id: int | None
    """None if the project was not created yet, or a sync was killed before it stored the id."""


@dataclass(frozen=True)
class ImportedAnnotation:
    """An annotation as it was when it was last imported."""

    task_id: int
    kind: Kind
    label: str | None
    is_deleted: bool
    answer_ids: tuple[int, ...]
    """The answers it became, oldest first: one for the annotation and one for each change."""


def current_link(campaign: Campaign, connection: Connection) -> ProjectLink | None:
    """Return the newest link of a campaign, which is the valid one."""
    of_campaign = schema.label_studio.c.campaign_id == campaign.repository.campaign
    row = connection.execute(
        select(schema.label_studio)
        .where(of_campaign)
        .order_by(schema.label_studio.c.id.desc())
        .limit(1)
    ).first()

    if row is None:
        return None
    return ProjectLink(row.id, row.url, row.mark, row.project)


def open_link(campaign: Campaign, url: str, *, replace_project: bool = False) -> ProjectLink:
    """Return the link of a campaign, and create it if it is missing.

    Args:
        campaign: The campaign.
        url: URL of the Label Studio, for a new link.
        replace_project: Create another link even if there is one. A link whose project was not
            created yet is used nevertheless, so that a killed sync can be repeated.
    """
    # Read and inserted in one transaction, so that two syncs do not create two links.
    with campaign.database.writing() as connection:
        link = current_link(campaign, connection)
        if link is not None and (link.project_id is None or not replace_project):
            return link

        # Random: the id of a project may be used again, by another server or after a restore.
        marker = f"teeter:{secrets.token_hex(8)}"
        values = {
            "campaign_id": campaign.repository.campaign,
            "url": url,
            "mark": marker,
            "project": None,
            "made": campaign.repository.now(),
            "busy": None,
        }
        (link_id,) = connection.execute(
            insert(schema.label_studio).values(values)
        ).inserted_primary_key or (0,)

    return ProjectLink(int(link_id), url, marker, None)


def save_project(
    campaign: Campaign, link: ProjectLink, url: str, project_id: int, *, was_created: bool
) -> ProjectLink:
    """Store which project a link leads to.

    Args:
        campaign: The campaign.
        link: The link to change.
        url: URL of the Label Studio, which may have moved.
        project_id: The project.
        was_created: Whether this sync created the project; noted in the campaign's history.

    Returns:
        The changed link.
    """
    with campaign.database.writing() as connection:
        _update_link(connection, link, url=url, project=project_id)
        detail = {"url": url, "project": project_id, "made": was_created}
        campaign.repository.note(connection, "label-studio", "linked", None, detail)

    return replace(link, url=url, project_id=project_id)


def _update_link(connection: Connection, link: ProjectLink, **values: object) -> None:
    connection.execute(
        update(schema.label_studio).where(schema.label_studio.c.id == link.id).values(values)
    )


def imported_annotations(
    campaign: Campaign, connection: Connection, link: ProjectLink
) -> dict[int, ImportedAnnotation]:
    """Return the annotations that were imported, by their ids in Label Studio."""
    noted, answers = schema.label_studio_answers, schema.answers
    rows = connection.execute(
        select(noted, answers.c.kind, schema.classes.c.name)
        .join(answers, answers.c.id == noted.c.answer_id)
        .join(schema.classes, schema.classes.c.id == answers.c.class_id, isouter=True)
        .where(noted.c.link_id == link.id, noted.c.campaign_id == campaign.repository.campaign)
        .order_by(noted.c.id)
    )

    # Oldest row first, so the last row of an annotation says what it was like when last imported.
    annotations: dict[int, ImportedAnnotation] = {}
    for row in rows:
        earlier_answers: tuple[int, ...] = ()
        if row.annotation in annotations:
            earlier_answers = annotations[row.annotation].answer_ids

        annotations[row.annotation] = ImportedAnnotation(
            task_id=row.task,
            kind=row.kind,
            label=row.name,
            is_deleted=row.gone,
            answer_ids=(*earlier_answers, row.answer_id),
        )

    return annotations


def record_answer(
    campaign: Campaign,
    connection: Connection,
    link: ProjectLink,
    *,
    task_id: int,
    annotation_id: int,
    answer_id: int,
) -> None:
    """Store that an annotation became an answer, so that it is not imported again."""
    values = {
        "campaign_id": campaign.repository.campaign,
        "link_id": link.id,
        "task": task_id,
        "annotation": annotation_id,
        "answer_id": answer_id,
        "gone": False,
    }
    connection.execute(insert(schema.label_studio_answers).values(values))


def mark_deleted(connection: Connection, link: ProjectLink, annotation_ids: Sequence[int]) -> None:
    """Store that annotations were deleted in Label Studio and their answers withdrawn."""
    noted = schema.label_studio_answers
    for annotation_id in annotation_ids:
        same = and_(noted.c.link_id == link.id, noted.c.annotation == annotation_id)
        connection.execute(update(noted).where(same).values(gone=True))


@contextmanager
def hold_sync_lock(
    campaign: Campaign, link: ProjectLink, sleep: Callable[[float], None] = time.sleep
) -> Iterator[Callable[[], None]]:
    """Wait for the lock of a link, and hold it for the length of the block.

    The lock expires after ``LOCK_SECONDS``, so a sync that was killed does not block others for
    longer than that.

    Args:
        campaign: The campaign.
        link: Its link.
        sleep: Waits for a number of seconds.

    Yields:
        A function that extends the lock. Call it at least once within ``LOCK_SECONDS``.

    Raises:
        StoreError: another sync holds the lock for too long.
    """
    waited = 0.0
    while not _acquire_lock(campaign, link):
        if waited > 2 * LOCK_SECONDS:
            raise StoreError(
                "Another sync of this campaign is still running. Wait until it has finished."
            )
        sleep(LOCK_POLL_SECONDS)
        waited += LOCK_POLL_SECONDS

    last_extension = campaign.repository.clock()

    def extend_lock() -> None:
        nonlocal last_extension
        now = campaign.repository.clock()
        # Not at every call, which would write to the database before each request. The clock may
        # have been set back, so the difference can be negative.
        if abs(now - last_extension) > timedelta(seconds=LOCK_SECONDS / 3):
            last_extension = now
            _write_lock(campaign, link, expires_at=_lock_expiry(campaign))

    try:
        yield extend_lock
    finally:
        # After an error too: otherwise the next sync would wait until the lock expires.
        _write_lock(campaign, link, expires_at=None)


def _acquire_lock(campaign: Campaign, link: ProjectLink) -> bool:
    """Return whether the lock was free and is now held."""
    table = schema.label_studio
    with campaign.database.writing() as connection:
        expires_at = connection.scalar(select(table.c.busy).where(table.c.id == link.id))

        # An expiry far in the future was written before the clock was set back: it is stale.
        # Times are stored as text in one format and time zone, so comparing texts compares times.
        latest_expiry = _lock_expiry(campaign, 2 * LOCK_SECONDS)
        now = campaign.repository.now()
        if expires_at is not None and now < expires_at <= latest_expiry:
            return False

        _update_link(connection, link, busy=_lock_expiry(campaign))

    return True


def _write_lock(campaign: Campaign, link: ProjectLink, *, expires_at: str | None) -> None:
    with campaign.database.writing() as connection:
        _update_link(connection, link, busy=expires_at)


def _lock_expiry(campaign: Campaign, seconds: float = LOCK_SECONDS) -> str:
    return written(campaign.repository.clock() + timedelta(seconds=seconds))
