"""Requests that were answered already, so that one that is sent twice is done once."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, delete, insert, select

from teeter.campaigns.db import schema
from teeter.campaigns.db.schema import ANSWERED_REQUESTS
from teeter.campaigns.db.scope import CampaignScope

__all__ = ["AnsweredRequest", "IdempotencyRepository"]

_HOURS_KEPT = 48


@dataclass(frozen=True)
class AnsweredRequest:
    """A request with a key, and how it was answered."""

    fingerprint: str
    """A hash of what was asked."""
    response: str
    """JSON."""


class IdempotencyRepository:
    """The requests of a campaign that came with a key."""

    def __init__(self, scope: CampaignScope) -> None:
        self._scope = scope

    def find(self, connection: Connection, key: str) -> AnsweredRequest | None:
        """Return the request that came with a key, or None."""
        query = select(schema.answered_requests).where(
            ANSWERED_REQUESTS.campaign_id == self._scope.campaign_id,
            ANSWERED_REQUESTS.key == key,
        )
        row = connection.execute(query).first()
        return None if row is None else AnsweredRequest(row.fingerprint, row.response)

    def add(self, connection: Connection, key: str, answered: AnsweredRequest) -> None:
        """Remember a request, and forget those that are older than two days."""
        oldest = self._scope.time_after(-_HOURS_KEPT * 3600)
        outdated = ANSWERED_REQUESTS.at < oldest
        connection.execute(delete(schema.answered_requests).where(outdated))

        values = {
            "campaign_id": self._scope.campaign_id,
            "key": key,
            "fingerprint": answered.fingerprint,
            "response": answered.response,
            "at": self._scope.now(),
        }
        connection.execute(insert(schema.answered_requests).values(values))
