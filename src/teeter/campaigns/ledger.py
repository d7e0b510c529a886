"""What a campaign writes down and reads back: items, features, answers, batches, models, and the history of it all.

Every function works inside the transaction of the connection it is given.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection, Row, Select, and_, func, insert, select, update

from teeter.campaigns import tables
from teeter.campaigns.items import Item
from teeter.campaigns.store import now
from teeter.errors import InputError, UnknownNameError
from teeter.registry import did_you_mean

__all__ = ["Answer", "Kind", "Ledger", "Pick", "Undone", "live_answers"]

Vectors = npt.NDArray[np.float32]
Kind = Literal["label", "skip", "unsure", "bad"]
"""What people can say of an item."""

_LOOKED_THROUGH = 2000
"""Ids that are searched for one like a wrong one."""

_SOME = 500
"""Values in one statement; databases have a limit."""


@dataclass(frozen=True)
class Answer:
    """What somebody says of an item."""

    item: str
    annotator: str
    kind: Kind
    label: str | None = None
    comment: str | None = None


@dataclass(frozen=True)
class Pick:
    """An item that was picked to be asked about, and why."""

    item: str
    rank: int
    arm: str
    reason: Mapping[str, Any]


@dataclass(frozen=True)
class Undone:
    """An answer that was taken back, and what holds instead."""

    answer: Answer
    before: Answer | None


class Ledger:
    """The rows of one campaign."""

    def __init__(self, campaign: int) -> None:
        self.campaign = campaign

    def classes(self, connection: Connection) -> dict[str, int]:
        """Return the numbers of the classes by name, in their order."""
        own = tables.classes.c.campaign_id == self.campaign
        rows = connection.execute(select(tables.classes).where(own).order_by(tables.classes.c.position))
        return {row.name: row.id for row in rows}

    def add_class(self, connection: Connection, name: str, who: str) -> None:
        """Add a class after the others."""
        known = self.classes(connection)
        name = name.strip()
        if not name or name in known:
            raise InputError(f"Cannot add a class {name!r}: give a name that is not one of {', '.join(known)}.")
        values = {"campaign_id": self.campaign, "position": len(known), "name": name}
        connection.execute(insert(tables.classes).values(values))
        self.note(connection, who, "class", None, {"name": name})

    def items(self, connection: Connection) -> Sequence[Row[Any]]:
        """Return all items in the order in which they were added."""
        own = tables.items.c.campaign_id == self.campaign
        return connection.execute(select(tables.items).where(own).order_by(tables.items.c.id)).all()

    def count_items(self, connection: Connection) -> int:
        """Return how many items there are."""
        own = tables.items.c.campaign_id == self.campaign
        return int(connection.scalar(select(func.count()).select_from(tables.items).where(own)) or 0)

    def item(self, connection: Connection, key: str) -> Row[Any]:
        """Return the item called ``key``."""
        own = and_(tables.items.c.campaign_id == self.campaign, tables.items.c.key == key)
        row = connection.execute(select(tables.items).where(own)).first()
        if row is None:
            mine = select(tables.items.c.key).where(tables.items.c.campaign_id == self.campaign)
            near = get_close_matches(key, connection.scalars(mine.limit(_LOOKED_THROUGH)).all(), n=1)
            raise UnknownNameError(f"No item is called {key!r}." + (f" Did you mean {near[0]!r}?" if near else ""))
        return row

    def some_items(self, connection: Connection, keys: Sequence[str]) -> dict[str, Row[Any]]:
        """Return the items that are called so, by id."""
        found: dict[str, Row[Any]] = {}
        for start in range(0, len(keys), _SOME):
            named = tables.items.c.key.in_(keys[start : start + _SOME])
            rows = connection.execute(select(tables.items).where(tables.items.c.campaign_id == self.campaign, named))
            found |= {row.key: row for row in rows}
        return found

    def add_items(
        self, connection: Connection, items: Iterable[Item], who: str
    ) -> tuple[list[Item], list[tuple[str, str]]]:
        """Write items, and return the new ones; and those whose content is there already, with the id that has it."""
        digests = {row.digest: row.key for row in self.items(connection)}
        keys = set(digests.values())
        new: list[Item] = []
        duplicates: list[tuple[str, str]] = []
        for item in items:
            if item.digest in digests:
                duplicates.append((item.key, digests[item.digest]))
            elif item.key in keys:
                raise InputError(f"Two items are called {item.key!r}, and they differ: give each an id of its own.")
            else:
                new.append(item)
                digests[item.digest] = item.key
                keys.add(item.key)
        at = now()
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
            connection.execute(insert(tables.items), rows)
            self.note(connection, who, "added", None, {"items": len(new), "duplicates": len(duplicates)})
        given = {item.key: item.features for item in new if item.features is not None}
        if given:
            rows_of = self.some_items(connection, list(given))
            self.write_vectors(connection, [rows_of[key].id for key in given], list(given.values()))
        return new, duplicates

    def keep_for_audit(self, connection: Connection, keys: Sequence[str], who: str) -> None:
        """Set items apart, to measure with and never to train on."""
        for start in range(0, len(keys), _SOME):
            some = keys[start : start + _SOME]
            own = and_(tables.items.c.campaign_id == self.campaign, tables.items.c.key.in_(some))
            connection.execute(update(tables.items).where(own).values(audit=True))
        self.note(connection, who, "audit", None, {"items": list(keys)})

    def write_vectors(self, connection: Connection, items: Sequence[int], vectors: Iterable[Vectors]) -> None:
        """Give items, by number, their features, in the place of any they had."""
        for start in range(0, len(items), _SOME):
            some = items[start : start + _SOME]
            connection.execute(tables.features.delete().where(tables.features.c.item_id.in_(some)))
        rows = [
            {"item_id": item, "vector": np.ascontiguousarray(vector, dtype=np.float32).tobytes()}
            for item, vector in zip(items, vectors, strict=True)
        ]
        if rows:
            connection.execute(insert(tables.features), rows)

    def vectors(self, connection: Connection) -> tuple[list[int], Vectors]:
        """Return the numbers of the items that have features, in their order, and the features (N, D)."""
        rows = connection.execute(
            select(tables.items.c.id, tables.features.c.vector)
            .join(tables.features, tables.features.c.item_id == tables.items.c.id)
            .where(tables.items.c.campaign_id == self.campaign)
            .order_by(tables.items.c.id)
        ).all()
        _require_one_width({len(row.vector) for row in rows})
        if not rows:
            return [], np.zeros((0, 0), dtype=np.float32)
        joined = np.frombuffer(b"".join(row.vector for row in rows), dtype=np.float32)
        return [row.id for row in rows], joined.reshape(len(rows), -1)

    def with_vectors(self, connection: Connection) -> set[int]:
        """Return the numbers of the items that have features, all of one length."""
        rows = connection.execute(
            select(tables.items.c.id, func.length(tables.features.c.vector).label("bytes"))
            .join(tables.features, tables.features.c.item_id == tables.items.c.id)
            .where(tables.items.c.campaign_id == self.campaign)
        ).all()
        _require_one_width({row.bytes for row in rows})
        return {row.id for row in rows}

    def answer(self, connection: Connection, answer: Answer) -> int:
        """Write an answer; what the same annotator said of the item before stays written, and no longer holds."""
        item = self.item(connection, answer.item)
        number = None
        if answer.kind == "label":
            number = self._class_number(connection, answer.label)
        mine = and_(tables.answers.c.item_id == item.id, tables.answers.c.annotator == answer.annotator)
        connection.execute(update(tables.answers).where(mine, tables.answers.c.live).values(live=False))
        pick = self._open_pick(connection, item.id, answer.annotator)
        values = {
            "item_id": item.id,
            "pick_id": None if pick is None else pick.id,
            "annotator": answer.annotator,
            "at": now(),
            "kind": answer.kind,
            "class_id": number,
            "comment": answer.comment,
            "live": True,
            "undone": False,
        }
        (written,) = connection.execute(insert(tables.answers).values(values)).inserted_primary_key or (0,)
        if pick is not None:
            state = "skipped" if answer.kind == "skip" else "answered"
            connection.execute(update(tables.picks).where(tables.picks.c.id == pick.id).values(state=state))
        detail = {"answer": written, "kind": answer.kind, "label": answer.label, "comment": answer.comment}
        self.note(connection, answer.annotator, "answer", answer.item, detail)
        return int(written)

    def _class_number(self, connection: Connection, label: str | None) -> int:
        known = self.classes(connection)
        if label not in known:
            raise UnknownNameError(f"No class is called {label!r}. {did_you_mean(str(label), list(known))}")
        return known[label]

    def _open_pick(self, connection: Connection, item: int, annotator: str) -> Row[Any] | None:
        return connection.execute(
            select(tables.picks.c.id)
            .join(tables.batches, tables.batches.c.id == tables.picks.c.batch_id)
            .where(
                tables.picks.c.item_id == item,
                tables.picks.c.state == "open",
                tables.batches.c.annotator == annotator,
            )
            .order_by(tables.picks.c.id)
        ).first()

    def undo(self, connection: Connection, annotator: str) -> Undone | None:
        """Take back an annotator's last answer that was not taken back; None if there is none.

        What they said of the item before holds again, and if it was asked about, it is open again.
        """
        mine = and_(tables.answers.c.annotator == annotator, tables.answers.c.undone.is_(False))
        last = connection.execute(self._answers().where(mine).order_by(tables.answers.c.id.desc()).limit(1)).first()
        if last is None:
            return None
        same = tables.answers.c.id == last.id
        connection.execute(update(tables.answers).where(same).values(undone=True, live=False))
        of_item = and_(mine, tables.answers.c.item_id == last.item_id)
        before = connection.execute(
            self._answers().where(of_item).order_by(tables.answers.c.id.desc()).limit(1)
        ).first()
        if before is not None:
            connection.execute(update(tables.answers).where(tables.answers.c.id == before.id).values(live=True))
        if last.pick_id is not None:
            connection.execute(update(tables.picks).where(tables.picks.c.id == last.pick_id).values(state="open"))
        self.note(connection, annotator, "undo", last.key, {"answer": last.id})
        return Undone(_answer(last), None if before is None else _answer(before))

    def answers(self, connection: Connection) -> list[Answer]:
        """Return what holds now: the last answer of each annotator on each item, in the order of answering."""
        rows = connection.execute(self._answers().where(tables.answers.c.live).order_by(tables.answers.c.id))
        return [_answer(row) for row in rows]

    def last_answers(self, connection: Connection, annotator: str, count: int) -> list[Answer]:
        """Return an annotator's last answers that hold, the newest first."""
        mine = and_(tables.answers.c.live, tables.answers.c.annotator == annotator)
        rows = connection.execute(self._answers().where(mine).order_by(tables.answers.c.id.desc()).limit(count))
        return [_answer(row) for row in rows]

    def _answers(self) -> Select[Any]:
        return (
            select(tables.answers, tables.items.c.key, tables.classes.c.name.label("label"))
            .join(tables.items, tables.items.c.id == tables.answers.c.item_id)
            .join(tables.classes, tables.classes.c.id == tables.answers.c.class_id, isouter=True)
            .where(tables.items.c.campaign_id == self.campaign)
        )

    def write_batch(
        self, connection: Connection, annotator: str, picks: Sequence[Pick], *, strategy: str, seed: int, version: int
    ) -> int:
        """Write what was picked for an annotator, and why."""
        values = {
            "campaign_id": self.campaign,
            "annotator": annotator,
            "asked": now(),
            "strategy": strategy,
            "seed": seed,
            "model_version": version,
        }
        (batch,) = connection.execute(insert(tables.batches).values(values)).inserted_primary_key or (0,)
        picked = self.some_items(connection, [pick.item for pick in picks])
        rows = [
            {
                "batch_id": batch,
                "item_id": picked[pick.item].id,
                "rank": pick.rank,
                "arm": pick.arm,
                "reason": json.dumps(dict(pick.reason)),
                "state": "open",
            }
            for pick in picks
        ]
        if rows:
            connection.execute(insert(tables.picks), rows)
        detail = {"batch": batch, "strategy": strategy, "version": version, "items": [pick.item for pick in picks]}
        self.note(connection, annotator, "asked", None, detail)
        return int(batch)

    def open_picks(self, connection: Connection, annotator: str | None = None) -> list[Pick]:
        """Return what is picked and not answered, oldest batch first: an annotator's, or everybody's."""
        statement = (
            select(tables.picks, tables.items.c.key)
            .join(tables.batches, tables.batches.c.id == tables.picks.c.batch_id)
            .join(tables.items, tables.items.c.id == tables.picks.c.item_id)
            .where(tables.batches.c.campaign_id == self.campaign, tables.picks.c.state == "open")
            .order_by(tables.picks.c.batch_id, tables.picks.c.rank)
        )
        if annotator is not None:
            statement = statement.where(tables.batches.c.annotator == annotator)
        rows = connection.execute(statement)
        return [Pick(row.key, row.rank, row.arm, json.loads(row.reason)) for row in rows]

    def write_model(self, connection: Connection, weights: bytes, facts: Mapping[str, Any], who: str) -> int:
        """Write a trained model, and return its version."""
        own = tables.models.c.campaign_id == self.campaign
        version = int(connection.scalar(select(func.max(tables.models.c.version)).where(own)) or 0) + 1
        values = {
            "campaign_id": self.campaign,
            "version": version,
            "trained": now(),
            "weights": weights,
            "facts": json.dumps(dict(facts)),
        }
        connection.execute(insert(tables.models).values(values))
        self.note(connection, who, "trained", None, {"version": version, **facts})
        return version

    def model(self, connection: Connection) -> Row[Any] | None:
        """Return the newest model."""
        own = tables.models.c.campaign_id == self.campaign
        return connection.execute(
            select(tables.models).where(own).order_by(tables.models.c.version.desc()).limit(1)
        ).first()

    def models(self, connection: Connection) -> list[dict[str, Any]]:
        """Return what is known of every model, oldest first."""
        own = tables.models.c.campaign_id == self.campaign
        rows = connection.execute(select(tables.models.c.facts).where(own).order_by(tables.models.c.version))
        return [json.loads(row.facts) for row in rows]

    def drawn_at_random(self, connection: Connection) -> set[str]:
        """Return the items that were asked about as random controls."""
        statement = (
            select(tables.items.c.key)
            .join(tables.picks, tables.picks.c.item_id == tables.items.c.id)
            .where(tables.items.c.campaign_id == self.campaign, tables.picks.c.arm == "control")
        )
        return set(connection.scalars(statement))

    def put_off(self, connection: Connection) -> set[str]:
        """Return the items that were skipped after the newest model was trained."""
        model = self.model(connection)
        since = "" if model is None else model.trained
        skips = and_(tables.answers.c.live, tables.answers.c.kind == "skip", tables.answers.c.at > since)
        return {row.key for row in connection.execute(self._answers().where(skips))}

    def count_batches(self, connection: Connection) -> int:
        """Return how many batches were asked for."""
        own = tables.batches.c.campaign_id == self.campaign
        return int(connection.scalar(select(func.count()).select_from(tables.batches).where(own)) or 0)

    def note(self, connection: Connection, who: str, what: str, item: str | None, detail: Mapping[str, Any]) -> None:
        """Append a line to the history."""
        values = {
            "campaign_id": self.campaign,
            "at": now(),
            "who": who,
            "what": what,
            "item": item,
            "detail": json.dumps(dict(detail)),
        }
        connection.execute(insert(tables.history).values(values))

    def encoded_by(self, connection: Connection) -> str | None:
        """Return where the items' features came from last; None if nobody noted it."""
        noted = self.history(connection, "encoded")
        return str(noted[-1]["by"]) if noted else None

    def kept(self, connection: Connection) -> dict[str, str]:
        """Return the labels that were looked at again and kept, by item."""
        undone = set(connection.scalars(select(tables.answers.c.id).where(tables.answers.c.undone)))
        noted = self.history(connection, "kept")
        return {line["item"]: line["label"] for line in noted if line["answer"] not in undone}

    def history(self, connection: Connection, what: str | None = None) -> list[dict[str, Any]]:
        """Return everything that happened, or all of one sort, oldest first."""
        own = tables.history.c.campaign_id == self.campaign
        if what is not None:
            own = and_(own, tables.history.c.what == what)
        rows = connection.execute(select(tables.history).where(own).order_by(tables.history.c.id))
        return [
            {"at": row.at, "who": row.who, "what": row.what, "item": row.item, **json.loads(row.detail)} for row in rows
        ]


def live_answers(history: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], Answer]:
    """Return what holds after a history, by item and annotator: the same as the answers written as live."""
    said: dict[tuple[str, str], list[tuple[int, Answer]]] = {}
    for line in history:
        place = (str(line["item"]), str(line["who"]))
        if line["what"] == "answer":
            answer = Answer(*place, line["kind"], line["label"], line["comment"])
            said.setdefault(place, []).append((line["answer"], answer))
        elif line["what"] == "undo":
            said[place] = [(number, answer) for number, answer in said[place] if number != line["answer"]]
    return {place: answers[-1][1] for place, answers in said.items() if answers}


def _require_one_width(widths: set[int]) -> None:
    if len(widths) > 1:
        raise InputError(f"The items' features differ in length: {sorted(width // 4 for width in widths)}.")


def _answer(row: Row[Any]) -> Answer:
    return Answer(row.key, row.annotator, row.kind, row.label, row.comment)
