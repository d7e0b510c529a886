"""What the classes of a campaign mean, and the vectors of these texts.

All methods work inside the transaction of the connection they are given.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection, delete, insert, select

from teeter.campaigns.store import schema
from teeter.campaigns.store.queries.classes import ClassRepository
from teeter.campaigns.store.queries.history import HistoryRepository
from teeter.campaigns.store.schema import CLASS_DESCRIPTIONS, CLASSES, TEXT_VECTORS
from teeter.campaigns.store.scope import CampaignScope, chunks

__all__ = ["ClassDescription", "DescriptionRepository"]

Vectors = npt.NDArray[np.float32]


@dataclass(frozen=True)
class ClassDescription:
    """What a class means, for annotators and for models."""

    description: str = ""
    examples: tuple[str, ...] = ()
    """Texts that belong to the class. They need not be items."""


class DescriptionRepository:
    """The descriptions of a campaign's classes."""

    def __init__(
        self, scope: CampaignScope, classes: ClassRepository, history: HistoryRepository
    ) -> None:
        self._scope = scope
        self._classes = classes
        self._history = history

    def all(self, connection: Connection) -> dict[str, ClassDescription]:
        """Return the descriptions by class, in the order of the classes; only of described ones."""
        query = (
            select(CLASSES.name, CLASS_DESCRIPTIONS.description, CLASS_DESCRIPTIONS.examples)
            .join(schema.class_descriptions, CLASS_DESCRIPTIONS.class_id == CLASSES.id)
            .where(CLASSES.campaign_id == self._scope.campaign_id)
            .order_by(CLASSES.position)
        )
        descriptions = {}
        for row in connection.execute(query):
            examples = tuple(json.loads(row.examples))
            descriptions[row.name] = ClassDescription(row.description, examples)
        return descriptions

    def write(
        self, connection: Connection, descriptions: Mapping[str, ClassDescription], who: str
    ) -> None:
        """Replace the descriptions of some classes. An empty one removes what was there.

        Raises:
            UnknownNameError: there is no such class.
        """
        # All names are looked up first: an unknown one must not leave half of them written.
        row_ids = {name: self._classes.row_id(connection, name) for name in descriptions}

        for name, description in descriptions.items():
            of_class = CLASS_DESCRIPTIONS.class_id == row_ids[name]
            connection.execute(delete(schema.class_descriptions).where(of_class))

            if description.description or description.examples:
                values = {
                    "campaign_id": self._scope.campaign_id,
                    "class_id": row_ids[name],
                    "description": description.description,
                    "examples": json.dumps(list(description.examples), ensure_ascii=False),
                }
                connection.execute(insert(schema.class_descriptions).values(values))

            detail = {
                "name": name,
                "description": description.description,
                "examples": list(description.examples),
            }
            self._history.append(connection, who, "described", None, detail)

    # Vectors of texts that are no items

    def text_vectors(
        self, connection: Connection, encoding_id: int, digests: Sequence[str]
    ) -> dict[str, Vectors]:
        """Return the stored vectors (D,) of texts by digest, as an encoding sees them."""
        vectors = {}
        for part in chunks(digests):
            query = select(TEXT_VECTORS.digest, TEXT_VECTORS.vector).where(
                TEXT_VECTORS.encoding_id == encoding_id, TEXT_VECTORS.digest.in_(part)
            )
            for row in connection.execute(query):
                vectors[row.digest] = np.frombuffer(row.vector, dtype=np.float32)
        return vectors

    def write_text_vectors(
        self, connection: Connection, encoding_id: int, vectors: Mapping[str, Vectors]
    ) -> None:
        """Replace all stored vectors of an encoding by those of texts that are in use now.

        Args:
            connection: a connection that may write.
            encoding_id: the encoding.
            vectors: (D,) by digest of the text.
        """
        of_encoding = TEXT_VECTORS.encoding_id == encoding_id
        connection.execute(delete(schema.text_vectors).where(of_encoding))

        rows = []
        for digest, vector in vectors.items():
            row = {
                "campaign_id": self._scope.campaign_id,
                "encoding_id": encoding_id,
                "digest": digest,
                "vector": np.ascontiguousarray(vector, dtype=np.float32).tobytes(),
            }
            rows.append(row)
        if rows:
            connection.execute(insert(schema.text_vectors), rows)
