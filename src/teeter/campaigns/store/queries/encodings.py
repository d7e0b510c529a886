"""The features of a campaign's items, by the encoder that computed them.

An encoding holds one vector per item, all from one encoder. A campaign may have several encodings:
the current one, which models see, earlier ones to compare it with, and one that is still being
computed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sqlalchemy import Row, ScalarSelect, Select, and_, func, select

from teeter.base.array_types import Integers, Vectors
from teeter.campaigns.store import schema
from teeter.campaigns.store.queries import Queries, chunks
from teeter.campaigns.store.queries.items import StoredItem
from teeter.campaigns.store.schema import ENCODINGS, ITEMS, NEAR_COPIES, VECTORS
from teeter.errors import InputError, StoreError


@dataclass(frozen=True)
class StoredEncoding:
    """An encoder of a campaign, and what it has learned."""

    row_id: int
    encoder: str
    version: str
    checksum: str
    """Checksum of the pretrained weights; empty if there are none."""
    state: bytes | None
    """What the encoder learned; None if that was not stored."""
    fitted_on: int
    """Number of items that the encoder learned from."""
    is_current: bool
    revision: int
    """Changes whenever vectors are written."""


@dataclass(frozen=True, eq=False)
class ItemFeatures:
    """The features of items, in the order in which the items were added."""

    keys: list[str]
    """Item ids."""
    vectors: Vectors
    """(N, D)."""
    unreadable: dict[str, str]
    """By item id, why an item could not be read. Its vector is zero."""


@dataclass(frozen=True, eq=False)
class NearCopies:
    """The groups of items that are near copies of each other."""

    n_compared: int
    """So many items were compared: those that were added first."""
    group_of: dict[str, list[str]]
    """By item id, the ids of the item's group; nothing for an item without near copies."""

    def first_rows(self, keys: Sequence[str]) -> Integers:
        """Return for each of some items the row of the first item of its group."""
        row_of = {key: row for row, key in enumerate(keys)}
        firsts = np.arange(len(keys))
        for key, row in row_of.items():
            rows = [row_of[other] for other in self.group_of.get(key, ()) if other in row_of]
            firsts[row] = min(rows, default=row)
        return firsts


class EncodingQueries(Queries):
    """The encodings of a campaign."""

    def _current(self) -> Select[Any]:
        return self._own(schema.encodings).where(ENCODINGS.is_current)

    def _current_id(self) -> ScalarSelect[Any]:
        return self._current().with_only_columns(ENCODINGS.id).limit(1).scalar_subquery()

    # Encodings

    def current(self) -> StoredEncoding | None:
        """Return the encoding that models see, or None before the first."""
        row = self._execute(self._current()).first()
        if row is None:
            return None
        return _stored_encoding(row)

    def all(self) -> list[StoredEncoding]:
        """Return all encodings, oldest first."""
        query = self._own(schema.encodings).order_by(ENCODINGS.id)
        return [_stored_encoding(row) for row in self._execute(query)]

    def add(
        self,
        encoder: str,
        *,
        version: str = "",
        checksum: str = "",
        state: bytes | None = None,
        fitted_on: int = 0,
    ) -> StoredEncoding:
        """Add an encoding without vectors. It is not the current one yet."""
        row_id = self._insert(
            schema.encodings,
            encoder=encoder,
            version=version,
            checksum=checksum,
            state=state,
            fitted_on=fitted_on,
            started=self._transaction.now(),
            is_current=False,
            revision=0,
        )
        row = self._execute(select(schema.encodings).where(ENCODINGS.id == row_id)).one()
        return _stored_encoding(row)

    def make_current(self, row_id: int) -> None:
        """Let models see an encoding. The current one is kept for comparison."""
        in_campaign = ENCODINGS.campaign_id == self._campaign_id
        self._update(
            schema.encodings,
            in_campaign,
            is_current=False,
        )
        self._update(
            schema.encodings,
            ENCODINGS.id == row_id,
            is_current=True,
        )

    def remove(self, row_id: int) -> None:
        """Remove an encoding and its vectors."""
        # Vectors refer to their encoding, so they are deleted before it.
        self._delete(schema.vectors, VECTORS.encoding_id == row_id)
        self._delete(schema.text_vectors, schema.text_vectors.c.encoding_id == row_id)
        self._delete(schema.near_copies, NEAR_COPIES.encoding_id == row_id)
        self._delete(schema.encodings, ENCODINGS.id == row_id)

    def revision(self) -> tuple[int, int]:
        """Return a value that changes whenever the current features change."""
        query = self._current().with_only_columns(ENCODINGS.id, ENCODINGS.revision)
        row = self._execute(query).first()
        if row is None:
            return 0, 0
        return row.id, row.revision

    # Vectors

    def write(
        self,
        row_id: int,
        vectors: Mapping[str, Vectors],
        unreadable: Mapping[str, str] | None = None,
    ) -> None:
        """Store the vectors (D,) of items by item id, in place of any they have.

        Args:
            row_id: the encoding.
            vectors: by item id.
            unreadable: by item id, why an item could not be read.
        """
        unreadable = unreadable or {}
        items = self._transaction.items.by_id(list(vectors))

        rows = []
        for item_id, vector in vectors.items():
            values = np.ascontiguousarray(vector, dtype=np.float32)
            row = {
                "encoding_id": row_id,
                "item_id": items[item_id].row_id,
                "vector": values.tobytes(),
                "error": unreadable.get(item_id),
            }
            rows.append(row)
        if not rows:
            return

        # Deleted first: SQLite and PostgreSQL have no common statement to insert or replace.
        is_encoding = VECTORS.encoding_id == row_id
        for part in chunks(rows):
            item_rows = VECTORS.item_id.in_([row["item_id"] for row in part])
            if self._count(select(VECTORS.item_id).where(is_encoding, item_rows)):
                self._delete(schema.near_copies, NEAR_COPIES.encoding_id == row_id)
            self._delete(
                schema.vectors,
                is_encoding,
                item_rows,
            )
        self._insert_all(schema.vectors, rows)
        self._update(
            schema.encodings,
            ENCODINGS.id == row_id,
            revision=ENCODINGS.revision + 1,
        )

    def replace_item(self, item: StoredItem, row_id: int, vector: Vectors | None) -> None:
        """Replace the vector of an item whose content has changed.

        In the encoding that models see its row must stay, because models know items by their rows.
        Other encodings lose its vector, and compute it again before they are used.

        Args:
            item: the item.
            row_id: the current encoding.
            vector: the new features (D,); None if the item had none.
        """
        of_others = VECTORS.encoding_id != row_id
        self._delete(
            schema.vectors,
            VECTORS.item_id == item.row_id,
            of_others,
        )
        self._delete(schema.near_copies, NEAR_COPIES.campaign_id == self._campaign_id)
        if vector is not None:
            self.write(row_id, {item.item_id: vector})

    def missing_items(self, row_id: int) -> list[str]:
        """Return the ids of the items without a vector in an encoding."""
        query = self._select_missing(row_id).with_only_columns(ITEMS.key).order_by(ITEMS.id)
        return list(self._scalars(query))

    def count_missing(self, row_id: int) -> int:
        """Return the number of items without a vector in an encoding."""
        return self._count(self._select_missing(row_id))

    def has_vectors(self) -> bool:
        """Return whether any item has features."""
        query = select(VECTORS.item_id).where(VECTORS.encoding_id == self._current_id()).limit(1)
        return self._scalar(query) is not None

    def _select_missing(self, row_id: int) -> Select[Any]:
        has_vector = and_(VECTORS.item_id == ITEMS.id, VECTORS.encoding_id == row_id)
        return (
            select(ITEMS.id)
            .outerjoin(schema.vectors, has_vector)
            .where(ITEMS.campaign_id == self._campaign_id, VECTORS.item_id.is_(None))
        )

    def read(self, row_id: int | None = None, items: Sequence[str] | None = None) -> ItemFeatures:
        """Return the features of items in their order.

        Args:
            row_id: the encoding; None for the current one.
            items: the ids of the items; None for all that have a vector.

        Raises:
            StoreError: the vectors differ in length, so the database is damaged.
        """
        encoding_id: Any = row_id
        if row_id is None:
            encoding_id = self._current_id()
        query = (
            select(ITEMS.key, VECTORS.vector, VECTORS.error)
            .join(schema.vectors)
            .where(VECTORS.encoding_id == encoding_id)
            .order_by(ITEMS.id)
        )
        rows: list[Row[Any]]
        if items is None:
            rows = list(self._execute(query))
        else:
            rows = list(self._in_parts(query, ITEMS.key, list(items)))
        if not rows:
            return ItemFeatures([], np.zeros((0, 0), dtype=np.float32), {})

        # The bytes are joined and read as one array, without an array for each of 100,000 rows.
        lengths = {len(row.vector) for row in rows}
        if len(lengths) > 1 or lengths.pop() % np.float32().itemsize:
            raise StoreError(
                "The campaign is damaged: the features of its items differ in length. Restore a "
                "backup."
            )

        joined = np.frombuffer(b"".join(row.vector for row in rows), dtype=np.float32)
        return ItemFeatures(
            keys=[row.key for row in rows],
            vectors=joined.reshape(len(rows), -1),
            unreadable={row.key: row.error for row in rows if row.error is not None},
        )

    def vector_of(self, item_row_id: int) -> Vectors | None:
        """Return the current features (D,) of an item, or None if it has none."""
        query = select(VECTORS.vector).where(
            VECTORS.item_id == item_row_id, VECTORS.encoding_id == self._current_id()
        )
        vector = self._scalar(query)
        if vector is None:
            return None
        return np.frombuffer(vector, dtype=np.float32)

    def encoded_items(self) -> list[str]:
        """Return the ids of the items with features: item k is row k of a model's input."""
        query = (
            select(ITEMS.key)
            .join(schema.vectors)
            .where(VECTORS.encoding_id == self._current_id())
            .order_by(VECTORS.item_id)
        )
        return list(self._scalars(query))

    def encoded_row_ids(self) -> list[int]:
        """Return the row ids of the items with features, in the same order."""
        query = (
            select(VECTORS.item_id)
            .where(VECTORS.encoding_id == self._current_id())
            .order_by(VECTORS.item_id)
        )
        return list(self._scalars(query))

    # Near copies

    def _near_copies(self) -> Select[Any]:
        return self._own(schema.near_copies).where(
            NEAR_COPIES.encoding_id == self._current_id(),
            NEAR_COPIES.similarity == self._transaction.settings.copy_similarity,
        )

    def near_copies(self) -> NearCopies | None:
        """Return the groups of near copies as of the current features and settings.

        They are None until somebody has looked for them.
        """
        row = self._first(self._near_copies())
        if row is None:
            return None

        group_of = {}
        for group in json.loads(row.item_ids):
            group_of.update(dict.fromkeys(group, group))
        return NearCopies(row.compared, group_of)

    def near_copies_found(self) -> tuple[int, str] | None:
        """Return a value that changes whenever the near copies change."""
        query = self._near_copies().with_only_columns(NEAR_COPIES.compared, NEAR_COPIES.found)
        row = self._first(query)
        if row is None:
            return None
        return row.compared, row.found

    def write_near_copies(
        self, similarity: float, n_compared: int, groups: Sequence[Sequence[str]]
    ) -> None:
        """Store the groups of the current encoding, in place of any it has.

        Args:
            similarity: from which cosine on items count as near copies.
            n_compared: how many items were compared.
            groups: the ids of the items of each group.
        """
        encoding_id, _ = self.revision()
        self._delete(schema.near_copies, NEAR_COPIES.encoding_id == encoding_id)
        self._insert(
            schema.near_copies,
            encoding_id=encoding_id,
            found=self._transaction.now(),
            similarity=similarity,
            compared=n_compared,
            item_ids=json.dumps(groups),
        )

    def unreadable(self, item_row_ids: Sequence[int] | None = None) -> dict[str, str]:
        """Return the items of the current encoding that could not be read, and why.

        Args:
            item_row_ids: look only among these items, which is faster than among all.
        """
        query = (
            select(ITEMS.key, VECTORS.error)
            .join(schema.vectors)
            .where(VECTORS.encoding_id == self._current_id(), VECTORS.error.is_not(None))
            .order_by(ITEMS.id)
        )
        if item_row_ids is not None:
            query = query.where(VECTORS.item_id.in_(item_row_ids))
        return {row.key: row.error for row in self._execute(query)}

    def require_equal_lengths(self, row_id: int) -> None:
        """Refuse vectors of different lengths in an encoding.

        Raises:
            InputError: the items have features of different lengths.
        """
        # Compared in the database, so that no vector has to be read.
        length = func.length(VECTORS.vector)
        query = select(length).distinct().where(VECTORS.encoding_id == row_id)
        bytes_per_number = np.float32().itemsize
        sizes = sorted(size // bytes_per_number for size in self._scalars(query))

        if len(sizes) > 1:
            raise InputError(f"The items' features differ in length: {sizes}.")


def _stored_encoding(row: Row[Any]) -> StoredEncoding:
    return StoredEncoding(
        row_id=row.id,
        encoder=row.encoder,
        version=row.version,
        checksum=row.checksum,
        state=row.state,
        fitted_on=row.fitted_on,
        is_current=row.is_current,
        revision=row.revision,
    )
