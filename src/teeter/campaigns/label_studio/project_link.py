"""The link between a campaign and its project in Label Studio, and the lock that syncs share.

The campaign's database stores which project belongs to the campaign, and which annotation became
which answer. The lock lets only one sync at a time create a project or tasks.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from teeter.campaigns.campaign import Campaign
from teeter.campaigns.store import LockName, ProjectLink
from teeter.errors import StoreError

__all__ = ["hold_sync_lock", "open_link", "save_project"]

LOCK_SECONDS = 45.0
"""How long a sync keeps the lock without extending it: longer than a request may take to fail."""

LOCK_POLL_SECONDS = 0.5
"""Time between two attempts to acquire the lock."""


def open_link(campaign: Campaign, url: str, *, replace_project: bool = False) -> ProjectLink:
    """Return the link of a campaign, and create it if it is missing.

    Args:
        campaign: The campaign.
        url: URL of the Label Studio, for a new link.
        replace_project: Create another link even if there is one. A link whose project was not
            created yet is used nevertheless, so that a killed sync can be repeated.
    """
    links = campaign.repository.label_studio

    # Read and inserted in one transaction, so that two syncs do not create two links.
    with campaign.database.writing() as connection:
        link = links.current_link(connection)
        if link is not None and (link.project_id is None or not replace_project):
            return link

        # Random: the id of a project may be used again, by another server or after a restore.
        marker = f"teeter:{secrets.token_hex(8)}"
        return links.add_link(connection, url, marker)


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
    repository = campaign.repository
    detail = {
        "url": url,
        "project": project_id,
        "created": was_created,
    }

    # In one transaction, so that the link and the history cannot disagree.
    with campaign.database.writing() as connection:
        # The history outlives the link: it says where annotations came from after a new project.
        repository.history.append(connection, "label-studio", "linked", None, detail)
        return repository.label_studio.set_project(connection, link, url, project_id)


@contextmanager
def hold_sync_lock(
    campaign: Campaign, sleep: Callable[[float], None] = time.sleep
) -> Iterator[Callable[[], None]]:
    """Wait for the lock of a campaign's syncs, and hold it for the length of the block.

    The lock expires after ``LOCK_SECONDS``, so a sync that was killed does not block others for
    longer than that.

    Args:
        campaign: The campaign.
        sleep: Waits for a number of seconds.

    Yields:
        A function that extends the lock. Call it at least once within ``LOCK_SECONDS``.

    Raises:
        StoreError: another sync holds the lock for too long.
    """
    waited = 0.0
    # Polled, because SQLite cannot wake a process that waits.
    while (holder := _acquire_lock(campaign)) is None:
        if waited > 2 * LOCK_SECONDS:
            raise StoreError(
                "Another sync of this campaign is still running. Wait until it has finished."
            )
        sleep(LOCK_POLL_SECONDS)
        waited += LOCK_POLL_SECONDS

    locks = campaign.repository.locks
    clock = campaign.repository.scope.clock
    last_extension = clock()

    def extend_lock() -> None:
        nonlocal last_extension
        now = clock()
        # Not at every call, which would write to the database before each request. The clock may
        # have been set back, so the difference can be negative.
        if abs(now - last_extension) > timedelta(seconds=LOCK_SECONDS / 3):
            last_extension = now
            with campaign.database.writing() as connection:
                locks.extend(connection, LockName.LABEL_STUDIO, holder, LOCK_SECONDS)

    try:
        yield extend_lock
    finally:
        # After an error too: otherwise the next sync would wait until the lock expires.
        with campaign.database.writing() as connection:
            locks.release(connection, LockName.LABEL_STUDIO, holder)


def _acquire_lock(campaign: Campaign) -> str | None:
    """Return the holder of the lock, which is now this sync, or None if another sync holds it."""
    with campaign.database.writing() as connection:
        return campaign.repository.locks.acquire(connection, LockName.LABEL_STUDIO, LOCK_SECONDS)
