"""Locks that processes take for longer than a transaction.

A lock has a holder and expires, so that a holder that crashed blocks the others only for a while.
Each acquisition makes a new holder, so that two threads or processes that work for the same
annotator exclude each other as well.
"""

from __future__ import annotations

import os
import socket
import uuid
from enum import StrEnum

from sqlalchemy import ColumnElement, and_, select

from teeter.campaigns.store import schema
from teeter.campaigns.store.queries import Queries
from teeter.campaigns.store.schema import LOCKS


class LockName(StrEnum):
    """What a lock protects."""

    PICKING = "picking"
    """Selecting items: one process selects, the others wait and use its picks."""
    ENCODING = "encoding"
    """Computing the features of items: one process encodes, the others wait for it."""
    LABEL_STUDIO = "label_studio"
    """Creating the campaign's project in Label Studio, and sending tasks to it."""
    WEBHOOKS = "webhooks"
    """Sending events to webhooks: one process sends."""


class LockQueries(Queries):
    """The locks of a campaign."""

    def acquire(self, name: LockName, seconds: float) -> str | None:
        """Take a lock if it is free.

        Args:
            name: the lock.
            seconds: when it expires unless it is released or extended before.

        Returns:
            The holder, to release or extend the lock with; None if it is taken.
        """
        if self.is_taken(name, seconds):
            return None

        # The host and process let others see that the holder crashed, the rest tells threads apart.
        holder = f"{socket.gethostname()}/{os.getpid()}/{uuid.uuid4().hex}"
        lock = {
            "name": name,
            "holder": holder,
            "expires": self._transaction.time_after(seconds),
        }
        # An expired lock may still be there.
        self._delete(schema.locks, self._matches(name))
        self._insert_all(schema.locks, [lock])
        return holder

    def is_taken(self, name: LockName, seconds: float) -> bool:
        """Return whether a lock is held, by a process that may still be running.

        Args:
            name: the lock.
            seconds: for how long such a lock is taken. One that expires later than twice that from
                now was taken before the clock was set back, and does not count.
        """
        row = self._first(select(schema.locks).where(self._matches(name)))

        if row is None or row.expires <= self._transaction.now():
            return False

        if row.expires > self._transaction.time_after(2 * seconds):
            return False

        return not has_crashed(row.holder)

    def extend(self, name: LockName, holder: str, seconds: float) -> None:
        """Let a lock expire in so many seconds from now, if the holder still has it."""
        expires = self._transaction.time_after(seconds)
        # The lock may have expired meanwhile, and another process may have taken it.
        self._update(
            schema.locks,
            self._matches(name),
            LOCKS.holder == holder,
            expires=expires,
        )

    def release(self, name: LockName, holder: str) -> None:
        """Release a lock, if the holder still has it."""
        self._delete(
            schema.locks,
            self._matches(name),
            LOCKS.holder == holder,
        )

    def _matches(self, name: LockName) -> ColumnElement[bool]:
        return and_(
            LOCKS.campaign_id == self._campaign_id,
            LOCKS.name == name,
        )


def has_crashed(holder: str) -> bool:
    """Return whether a holder was a process of this machine that no longer runs.

    It spares a process that is restarted after a crash the wait for its own lock to expire. A
    process of another machine, or one whose id was reused, counts as running.
    """
    host, process_id, _ = holder.rsplit("/", 2)

    # On Windows os.kill would end the process instead of asking for it.
    if os.name != "posix" or host != socket.gethostname():
        return False

    try:
        os.kill(int(process_id), 0)  # signal 0 checks that the process exists
    except ProcessLookupError:
        return True
    except PermissionError:
        return False  # it runs, for another user

    return False
