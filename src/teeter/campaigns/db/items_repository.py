"""The rows of a campaign that answers are about: classes, items, features, and the history of everything."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection, Row, and_, func, insert, select, update

from teeter.campaigns.clock import Clock, utc, written
from teeter.campaigns.db import schema
from teeter.campaigns.items import Item, quote_id
from teeter.errors import InputError, StoreError, UnknownItemError

__all__ = ["Deduplicated", "Rows", "deduplicate"]

Vectors = npt.NDArray[np.float32]

_LOOKED_THROUGH = 2000
"""Ids that are searched for one like a wrong one."""

_SOME = 500
"""Values in one statement; databases have a limit."""

_NOTED = 1000
"""Ids in one line of the history."""


@dataclass(frozen=True, eq=False)
class Deduplicated:
    """Things looked through for what is new."""

    new: list[Item]
    duplicates: list[tuple[str, str]]
    """The id that a thing came with, and that of the item it is the same as."""
    all: list[tuple[str, Item]]
    """Every thing, with the id it goes by from now on."""


def deduplicate(items: Sequence[Item], there: Iterable[Any]) -> Deduplicated:
    """Return which things are new: by their content, and vectors, which may well be equal, by their ids as well."""
    digests = {_content_of(row): row.key for row in there}
    keys = set(digests.values())
    found = Deduplicated([], [], [])
    for item in items:
        content = _content_of(item)
        if content in digests:
            found.duplicates.append((item.key, digests[content]))
        elif item.key in keys:
            raise InputError(
                f"Two items are called {quote_id(item.key)}, and they differ: give each an id of its own."
            )
        else:
            found.new.append(item)
            digests[content] = item.key
            keys.add(item.key)
        found.all.append((digests[content], item))
    return found


def _content_of(one: Any) -> tuple[str, str]:
    return one.digest, one.key if one.kind == "features" else ""


class Rows:
    """The rows of one campaign."""

    def __init__(self, campaign: int, clock: Clock = utc) -> None:
        self.campaign, self.clock = campaign, clock

    def now(self) -> str:
        """Return the time, as it is written down."""
        return written(self.clock())

    def classes(self, connection: Connection) -> dict[str, int]:
        """Return the numbers of the classes by name, in their order."""
        own = schema.classes.c.campaign_id == self.campaign
        rows = connection.execute(
            select(schema.classes).where(own).order_by(schema.classes.c.position)
        )
        return {row.name: row.id for row in rows}

    def add_class(self, connection: Connection, name: str, who: str) -> None:
        """Add a class after the others."""
        known = self.classes(connection)
        name = name.strip()
        if not name or name in known:
            raise InputError(
                f"Cannot add a class {name!r}: give a name that is not one of {', '.join(known)}."
            )
        values = {"campaign_id": self.campaign, "position": len(known), "name": name}
        connection.execute(insert(schema.classes).values(values))
        self.note(connection, who, "class", None, {"name": name})

    def items(self, connection: Connection) -> Sequence[Row[Any]]:
        """Return all items in the order in which they were added."""
        own = schema.items.c.campaign_id == self.campaign
        return connection.execute(select(schema.items).where(own).order_by(schema.items.c.id)).all()

    def audit_items(self, connection: Connection) -> set[str]:
        """Return the items that are set apart to measure with."""
        own = and_(schema.items.c.campaign_id == self.campaign, schema.items.c.audit)
        return set(connection.scalars(select(schema.items.c.key).where(own)))

    def count_items(self, connection: Connection) -> int:
        """Return how many items there are."""
        own = schema.items.c.campaign_id == self.campaign
        return int(
            connection.scalar(select(func.count()).select_from(schema.items).where(own)) or 0
        )

    def item(self, connection: Connection, key: str) -> Row[Any]:
        """Return the item called ``key``."""
        own = and_(schema.items.c.campaign_id == self.campaign, schema.items.c.key == key)
        row = connection.execute(select(schema.items).where(own)).first()
        if row is None:
            mine = select(schema.items.c.key).where(schema.items.c.campaign_id == self.campaign)
            near = get_close_matches(
                key, connection.scalars(mine.limit(_LOOKED_THROUGH)).all(), n=1
            )
            meant = f" Did you mean {quote_id(near[0])}?" if near else ""
            raise UnknownItemError(f"No item is called {quote_id(key)}.{meant}")
        return row

    def some_items(self, connection: Connection, keys: Sequence[str]) -> dict[str, Row[Any]]:
        """Return the items that are called so, by id."""
        found: dict[str, Row[Any]] = {}
        for start in range(0, len(keys), _SOME):
            named = schema.items.c.key.in_(keys[start : start + _SOME])
            rows = connection.execute(
                select(schema.items).where(schema.items.c.campaign_id == self.campaign, named)
            )
            found |= {row.key: row for row in rows}
        return found

    def add_items(
        self, connection: Connection, items: Iterable[Item], who: str
    ) -> tuple[list[Item], list[tuple[str, str]]]:
        """Write items, and return the new ones; and those whose content is there already, with the id that has it."""
        found = deduplicate(list(items), self.items(connection))
        new, duplicates = found.new, found.duplicates
        at = self.now()
        rows = [
            {
                "campaign_id": self.campaign,
                "key": item.key,
                "kind": item.kind,
                "content": item.content,
                "digest": item.digest,
                "audit": False,
                "added": at,
            }
            for item in new
        ]
        if rows:
            connection.execute(insert(schema.items), rows)
        self._note_added(connection, who, [item.key for item in new], duplicates)
        given = {item.key: item.features for item in new if item.features is not None}
        if given:
            rows_of = self.some_items(connection, list(given))
            self.write_vectors(connection, [rows_of[key].id for key in given], list(given.values()))
        return new, duplicates

    def _note_added(
        self,
        connection: Connection,
        who: str,
        keys: Sequence[str],
        duplicates: Sequence[tuple[str, str]],
    ) -> None:
        """Note which items came, and which ids stand for items that were there; in several lines if they are many."""
        same = [pair for pair in duplicates if pair[0] != pair[1]]
        for start in range(0, max(len(keys), len(same)), _NOTED):
            ids, pairs = keys[start : start + _NOTED], same[start : start + _NOTED]
            detail = {
                "items": len(ids),
                "duplicates": len(pairs),
                "ids": list(ids),
                "same": list(map(list, pairs)),
            }
            self.note(connection, who, "added", None, detail)

    def same_as(self, connection: Connection) -> dict[str, str]:
        """Return, for ids of things that were there already, the id of the item that they are."""
        noted = self.history(connection, "added")
        return {ours: theirs for line in noted for ours, theirs in line.get("same", ())}

    def newest_item(self, connection: Connection) -> int:
        """Return a number that is another after items were added."""
        return int(connection.scalar(select(func.max(schema.items.c.id))) or 0)

    def keep_for_audit(self, connection: Connection, keys: Sequence[str], who: str) -> None:
        """Set items apart, to measure with and never to train on."""
        for start in range(0, len(keys), _SOME):
            some = keys[start : start + _SOME]
            own = and_(schema.items.c.campaign_id == self.campaign, schema.items.c.key.in_(some))
            connection.execute(update(schema.items).where(own).values(audit=True))
        self.note(connection, who, "audit", None, {"items": list(keys)})

    def write_vectors(
        self, connection: Connection, items: Sequence[int], vectors: Iterable[Vectors]
    ) -> None:
        """Give items, by number, their features, in the place of any they had."""
        for start in range(0, len(items), _SOME):
            some = items[start : start + _SOME]
            connection.execute(schema.features.delete().where(schema.features.c.item_id.in_(some)))
        rows = [
            {"item_id": item, "vector": np.ascontiguousarray(vector, dtype=np.float32).tobytes()}
            for item, vector in zip(items, vectors, strict=True)
        ]
        if rows:
            connection.execute(insert(schema.features), rows)

    def keyed_vectors(self, connection: Connection) -> tuple[list[str], Vectors]:
        """Return the ids of the items that have features, in their order, and the features (N, D)."""
        numbers, vectors = self.vectors(connection)
        own = schema.items.c.campaign_id == self.campaign
        keys = {
            row.id: row.key
            for row in connection.execute(select(schema.items.c.id, schema.items.c.key).where(own))
        }
        return [keys[number] for number in numbers], vectors

    def vectors(self, connection: Connection) -> tuple[list[int], Vectors]:
        """Return the numbers of the items that have features, in their order, and the features (N, D)."""
        rows = connection.execute(
            select(schema.items.c.id, schema.features.c.vector)
            .join(schema.features, schema.features.c.item_id == schema.items.c.id)
            .where(schema.items.c.campaign_id == self.campaign)
            .order_by(schema.items.c.id)
        ).all()
        if len({len(row.vector) for row in rows}) > 1 or any(
            len(row.vector) % 4 for row in rows[:1]
        ):
            raise StoreError(
                "The campaign is damaged: items' features differ in length. Use a backup of it."
            )
        if not rows:
            return [], np.zeros((0, 0), dtype=np.float32)
        joined = np.frombuffer(b"".join(row.vector for row in rows), dtype=np.float32)
        return [row.id for row in rows], joined.reshape(len(rows), -1)

    def with_vectors(self, connection: Connection) -> set[int]:
        """Return the numbers of the items that have features, all of one length."""
        rows = connection.execute(
            select(schema.items.c.id, func.length(schema.features.c.vector).label("bytes"))
            .join(schema.features, schema.features.c.item_id == schema.items.c.id)
            .where(schema.items.c.campaign_id == self.campaign)
        ).all()
        _require_one_width({row.bytes for row in rows})
        return {row.id for row in rows}

    def note(
        self,
        connection: Connection,
        who: str,
        what: str,
        item: str | None,
        detail: Mapping[str, Any],
    ) -> None:
        """Append a line to the history."""
        values = {
            "campaign_id": self.campaign,
            "at": self.now(),
            "who": who,
            "what": what,
            "item": item,
            "detail": json.dumps(dict(detail)),
        }
        connection.execute(insert(schema.history).values(values))

    def encoded_by(self, connection: Connection) -> str | None:
        """Return where the items' features came from last; None if nobody noted it."""
        noted = self.history(connection, "encoded")
        return str(noted[-1]["by"]) if noted else None

    def history(self, connection: Connection, what: str | None = None) -> list[dict[str, Any]]:
        """Return everything that happened, or all of one sort, oldest first."""
        own = schema.history.c.campaign_id == self.campaign
        if what is not None:
            own = and_(own, schema.history.c.what == what)
        rows = connection.execute(select(schema.history).where(own).order_by(schema.history.c.id))
        return [
            {
                "at": row.at,
                "who": row.who,
                "what": row.what,
                "item": row.item,
                **json.loads(row.detail),
            }
            for row in rows
        ]


def _require_one_width(widths: set[int]) -> None:
    if len(widths) > 1:
        raise InputError(
            f"The items' features differ in length: {sorted(width // 4 for width in widths)}."
        )
