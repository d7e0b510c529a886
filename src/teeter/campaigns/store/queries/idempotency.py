"""Requests that came with a key, so that one that is sent twice is done once.

A request is noted before it is done. Its key is unique, and only one connection writes at a time,
so of two equal requests at the same moment one is done, on every database and with any number of
servers. What became of a request whose server was killed is not known: it is not done again. The
same holds for one that got no answer for half an hour, because another machine may be dead unseen,
and for one whose database went away after the change.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy import ColumnElement, Connection, and_, delete, insert, select, update

from teeter.campaigns.store import schema
from teeter.campaigns.store.locks import has_crashed
from teeter.campaigns.store.schema import ANSWERED_REQUESTS
from teeter.campaigns.store.scope import CampaignScope

__all__ = ["IdempotencyRepository", "RequestState", "StoredRequest"]

_HOURS_KEPT = 48

_LONGEST_ANSWER_SECONDS = 1800.0
"""A request that was noted before and has no answer is no longer being answered."""

_NO_HOLDER = ""
"""The holder of a request that is no longer being answered, and has no answer."""


class RequestState(StrEnum):
    """How far a request is."""

    RUNNING = "running"
    INTERRUPTED = "interrupted"
    """The process that answered it was killed, or could not say how it ended."""
    ANSWERED = "answered"


@dataclass(frozen=True)
class StoredRequest:
    """A request that came with a key."""

    fingerprint: str
    """A hash of what was asked."""
    state: RequestState
    response: str | None
    """JSON; None unless it was answered."""


class IdempotencyRepository:
    """The requests of a campaign that came with a key."""

    def __init__(self, scope: CampaignScope) -> None:
        self._scope = scope

    def find(self, connection: Connection, key: str) -> StoredRequest | None:
        """Return the request that came with a key, or None."""
        query = select(schema.answered_requests).where(self._matches(key))
        row = connection.execute(query).first()
        if row is None:
            return None

        state = RequestState.ANSWERED
        if row.response is None:
            is_overdue = row.at < self._scope.time_after(-_LONGEST_ANSWER_SECONDS)
            is_interrupted = is_overdue or row.holder == _NO_HOLDER or has_crashed(row.holder)
            state = RequestState.INTERRUPTED if is_interrupted else RequestState.RUNNING
        return StoredRequest(row.fingerprint, state, row.response)

    def start(
        self, connection: Connection, key: str, fingerprint: str, holder: str
    ) -> StoredRequest | None:
        """Note that a request is being answered, and forget those that are older than two days.

        Args:
            connection: A connection that may write.
            key: The key of the request.
            fingerprint: A hash of what is asked.
            holder: Who answers it, from ``new_holder``.

        Returns:
            The request that came with this key before, and nothing is noted; None if it is new.
        """
        before = self.find(connection, key)
        if before is not None:
            return before

        oldest = self._scope.time_after(-_HOURS_KEPT * 3600)
        is_outdated = and_(
            ANSWERED_REQUESTS.campaign_id == self._scope.campaign_id,
            ANSWERED_REQUESTS.at < oldest,
        )
        connection.execute(delete(schema.answered_requests).where(is_outdated))

        values = {
            "campaign_id": self._scope.campaign_id,
            "key": key,
            "fingerprint": fingerprint,
            "holder": holder,
            "response": None,
            "at": self._scope.now(),
        }
        connection.execute(insert(schema.answered_requests).values(values))
        return None

    def finish(self, connection: Connection, key: str, holder: str, response: str) -> None:
        """Remember how a request was answered."""
        statement = update(schema.answered_requests).where(self._is_held(key, holder))
        connection.execute(statement.values(response=response))

    def interrupt(self, connection: Connection, key: str, holder: str) -> None:
        """Remember that a request has no answer, and that it may have been done."""
        statement = update(schema.answered_requests).where(self._is_held(key, holder))
        connection.execute(statement.values(holder=_NO_HOLDER))

    def forget(self, connection: Connection, key: str, holder: str) -> None:
        """Forget a request that failed, so that it can be sent again."""
        connection.execute(delete(schema.answered_requests).where(self._is_held(key, holder)))

    def _is_held(self, key: str, holder: str) -> ColumnElement[bool]:
        # The same request may have been sent again meanwhile, and has another holder then.
        return and_(self._matches(key), ANSWERED_REQUESTS.holder == holder)

    def _matches(self, key: str) -> ColumnElement[bool]:
        return and_(
            ANSWERED_REQUESTS.campaign_id == self._scope.campaign_id,
            ANSWERED_REQUESTS.key == key,
        )
