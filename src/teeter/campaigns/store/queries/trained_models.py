"""The models that were trained in a campaign."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, func, insert, select

from teeter.campaigns.store import schema
from teeter.campaigns.store.schema import MODELS
from teeter.campaigns.store.scope import CampaignScope

__all__ = ["ModelRepository", "ModelSummary", "StoredModel"]


@dataclass(frozen=True)
class ModelSummary:
    """What is known of a trained model."""

    version: int
    trained: str
    """When it was trained."""
    facts: dict[str, Any]
    """Its training data and how well it does; ``answers`` is how many were given until then."""


@dataclass(frozen=True)
class StoredModel:
    """A trained model with its weights."""

    version: int
    trained: str
    facts: dict[str, Any]
    weights: bytes
    """A safetensors file."""


class ModelRepository:
    """The models of a campaign, by versions that count up from 1."""

    def __init__(self, scope: CampaignScope) -> None:
        self._scope = scope

    def add(self, connection: Connection, weights: bytes, facts: Mapping[str, Any]) -> int:
        """Store a model and return its version."""
        # Only one connection writes at a time, so no other model can get the same version.
        version = self.newest_version(connection) + 1
        values = {
            "campaign_id": self._scope.campaign_id,
            "version": version,
            "trained": self._scope.now(),
            "weights": weights,
            "facts": json.dumps(dict(facts)),
        }
        statement = insert(schema.models).values(values)
        connection.execute(statement)
        return version

    def newest(self, connection: Connection) -> StoredModel | None:
        """Return the newest model, or None before the first."""
        return self.get(connection, self.newest_version(connection))

    def get(self, connection: Connection, version: int) -> StoredModel | None:
        """Return a model by its version, or None if there is no such model."""
        query = select(schema.models).where(
            MODELS.campaign_id == self._scope.campaign_id, MODELS.version == version
        )
        row = connection.execute(query).first()

        if row is None:
            return None
        return StoredModel(
            row.version,
            row.trained,
            json.loads(row.facts),
            row.weights,
        )

    def newest_summary(self, connection: Connection) -> ModelSummary | None:
        """Return what is known of the newest model, or None. Does not read its weights."""
        summaries = self.summaries(connection, newest=1)
        return summaries[0] if summaries else None

    def newest_version(self, connection: Connection) -> int:
        """Return the version of the newest model; 0 before there is one."""
        query = select(func.max(MODELS.version)).where(
            MODELS.campaign_id == self._scope.campaign_id
        )
        return int(connection.scalar(query) or 0)

    def newest_weights(self, connection: Connection, count: int) -> list[bytes]:
        """Return the weights of the newest models, newest first."""
        query = (
            select(MODELS.weights)
            .where(MODELS.campaign_id == self._scope.campaign_id)
            .order_by(MODELS.version.desc())
            .limit(count)
        )
        return list(connection.scalars(query))

    def summaries(self, connection: Connection, *, newest: int | None = None) -> list[ModelSummary]:
        """Return what is known of all models, or of the ``newest`` ones, oldest first."""
        query = (
            select(MODELS.version, MODELS.trained, MODELS.facts)
            .where(MODELS.campaign_id == self._scope.campaign_id)
            .order_by(MODELS.version.desc())
            .limit(newest)
        )
        # Selected newest first for the limit, returned oldest first.
        rows = connection.execute(query).all()
        return [
            ModelSummary(
                row.version,
                row.trained,
                json.loads(row.facts),
            )
            for row in reversed(rows)
        ]
