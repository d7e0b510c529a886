"""Who is asked about what: batches on lease, picks made ahead, and items that several people answer.

A pick is ``ready`` for whoever asks next, ``open`` with the annotator of its batch, then ``answered``, ``skipped`` or,
because the lease ended, ``returned``. Every function works inside the transaction of the connection it is given.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    and_,
    delete,
    exists,
    func,
    insert,
    select,
    update,
)

from teeter.campaigns.clock import Clock, utc, written
from teeter.campaigns.db import schema
from teeter.campaigns.db.items_repository import Rows

__all__ = ["NOBODY", "Pick", "Questions"]

NOBODY = ""
"""Whose batches hold what was picked ahead."""

_SOME = 500
"""Values in one statement; databases have a limit."""


@dataclass(frozen=True)
class Pick:
    """An item that was picked to be asked about, and why."""

    item: str
    rank: int
    arm: str
    reason: Mapping[str, Any]
    asked: bool = True
    """Whether it is asked about; a random control that has its answer already, or waits for it, is not."""


class Questions(Rows):
    """The batches and picks of one campaign."""

    def __init__(self, campaign: int, clock: Clock = utc, lease: float = 0) -> None:
        """Give batches a lease of so many minutes; 0: until they are answered."""
        super().__init__(campaign, clock)
        self.lease = timedelta(minutes=lease)

    def write_batch(
        self,
        connection: Connection,
        annotator: str,
        picks: Sequence[Pick],
        *,
        strategy: str,
        seed: int,
        version: int,
    ) -> int:
        """Write what was picked for an annotator, and why; or ahead, for ``NOBODY`` yet."""
        batch = self._batch(connection, annotator, strategy, seed, version)
        picked = self.some_items(connection, [pick.item for pick in picks])
        rows = [
            {
                "batch_id": batch,
                "item_id": picked[pick.item].id,
                "rank": pick.rank,
                "arm": pick.arm,
                "reason": json.dumps(dict(pick.reason)),
                "state": "known" if not pick.asked else "ready" if annotator == NOBODY else "open",
            }
            for pick in picks
        ]
        if rows:
            connection.execute(insert(schema.picks), rows)
        if annotator != NOBODY:
            self.recount(connection, [row.id for row in picked.values() if row.people > 1])
            self._note_asked(connection, annotator, batch)
        return batch

    def _batch(
        self, connection: Connection, annotator: str, strategy: str, seed: int, version: int
    ) -> int:
        values = {
            "campaign_id": self.campaign,
            "annotator": annotator,
            "asked": self.now(),
            "strategy": strategy,
            "seed": seed,
            "model_version": version,
            "due": None if annotator == NOBODY else self._due(),
        }
        (number,) = connection.execute(
            insert(schema.batches).values(values)
        ).inserted_primary_key or (0,)
        return int(number)

    def _due(self) -> str | None:
        return written(self.clock() + self.lease) if self.lease else None

    def _note_asked(self, connection: Connection, annotator: str, batch: int) -> None:
        """Note a batch with everything that is known of its picks; ``known`` are controls that are not asked about."""
        row = connection.execute(select(schema.batches).where(schema.batches.c.id == batch)).one()
        statement = select(schema.picks, schema.items.c.key).join(schema.items)
        mine = and_(
            schema.picks.c.state.in_(("open", "known")), schema.picks.c.batch_id == batch
        )  # by the index
        own = statement.where(mine).order_by(schema.picks.c.rank, schema.picks.c.id)
        picks = connection.execute(own).all()
        detail = {
            "batch": batch,
            "strategy": row.strategy,
            "seed": row.seed,
            "version": row.model_version,
            "items": [pick.key for pick in picks if pick.state != "known"],
            "picks": [
                {
                    "item": pick.key,
                    "rank": pick.rank,
                    "arm": pick.arm,
                    "reason": json.loads(pick.reason),
                }
                for pick in picks
                if pick.state != "known"
            ],
            "known": [pick.key for pick in picks if pick.state == "known"],
        }
        self.note(connection, annotator, "asked", None, detail)

    def open_picks(
        self, connection: Connection, annotator: str | None = None, most: int | None = None
    ) -> list[Pick]:
        """Return what is asked about and not answered, oldest batch first: of an annotator, or of everybody."""
        statement = (
            self._picks("open").order_by(schema.picks.c.batch_id, schema.picks.c.rank).limit(most)
        )
        if annotator is not None:
            statement = statement.where(schema.batches.c.annotator == annotator)
        rows = connection.execute(statement)
        return [Pick(row.key, row.rank, row.arm, json.loads(row.reason)) for row in rows]

    def count_open(self, connection: Connection) -> int:
        """Return how many questions are open."""
        return int(
            connection.scalar(select(func.count()).select_from(self._picks("open").subquery())) or 0
        )

    def count_ready(self, connection: Connection) -> int:
        """Return how many items are picked ahead."""
        return int(
            connection.scalar(select(func.count()).select_from(self._picks("ready").subquery()))
            or 0
        )

    def has_some_to_give(self, connection: Connection) -> bool:
        """Tell whether somebody could be asked about something without picking."""
        shared = exists().where(
            schema.items.c.campaign_id == self.campaign, schema.items.c.missing > 0
        )
        ready = self._picks("ready").with_only_columns(schema.picks.c.id).limit(1)
        return connection.scalar(ready) is not None or bool(connection.scalar(select(shared)))

    def asked_items(self, connection: Connection) -> set[str]:
        """Return the items that are asked about now, or picked ahead."""
        return {
            row.key for state in ("open", "ready") for row in connection.execute(self._picks(state))
        }

    def _picks(self, state: str) -> Select[Any]:
        picks, batches = schema.picks, schema.batches
        return (
            select(picks, schema.items.c.key, batches.c.annotator)
            .join(batches, batches.c.id == picks.c.batch_id)
            .join(schema.items, schema.items.c.id == picks.c.item_id)
            .where(batches.c.campaign_id == self.campaign, picks.c.state == state)
        )

    def free(self, connection: Connection, picks: Sequence[Pick]) -> list[Pick]:
        """Return those picks that nobody is asked about, and nobody has answered otherwise than by skipping."""
        rows = self.some_items(connection, [pick.item for pick in picks])
        numbers = [row.id for row in rows.values()]
        taken: set[int] = set()
        for start in range(0, len(numbers), _SOME):
            some = numbers[start : start + _SOME]
            open_or_ready = schema.picks.c.state.in_(("open", "ready"))
            taken.update(
                connection.scalars(
                    select(schema.picks.c.item_id).where(
                        schema.picks.c.item_id.in_(some), open_or_ready
                    )
                )
            )
            answered = and_(
                schema.answers.c.item_id.in_(some),
                schema.answers.c.live,
                schema.answers.c.kind != "skip",
            )
            taken.update(connection.scalars(select(schema.answers.c.item_id).where(answered)))
        return [pick for pick in picks if rows[pick.item].id not in taken]

    def give(self, connection: Connection, annotator: str, n: int) -> int:
        """Ask an annotator about up to n items that need no picking, and return how many there were.

        What ended leases gave back is offered again. Items that several are to answer come first, then what was
        picked ahead.
        """
        self.renew(connection, annotator)
        self.take_back(connection, annotator)
        given = self._give_shared(connection, annotator, n)
        return given + (self._give_ready(connection, annotator, n - given) if given < n else 0)

    def _give_shared(self, connection: Connection, annotator: str, n: int) -> int:
        """Ask an annotator about items that others are asked about too, never about one they have seen."""
        items, picks = schema.items, schema.picks
        own = and_(schema.answers.c.item_id == items.c.id, schema.answers.c.annotator == annotator)
        wanted = (
            select(items.c.id, items.c.key)
            .where(items.c.campaign_id == self.campaign, items.c.missing > 0)
            .where(
                ~exists().where(own, schema.answers.c.live),
                ~exists().where(*_open_with(items.c.id, annotator)),
            )
            .order_by(items.c.id)
            .limit(n)
        )
        rows = connection.execute(wanted).all()
        if not rows:
            return 0
        last = select(func.max(picks.c.id)).where(picks.c.item_id.in_([row.id for row in rows]))
        before = connection.execute(
            select(picks, schema.batches)
            .join(schema.batches, schema.batches.c.id == picks.c.batch_id)
            .where(picks.c.id.in_(last.group_by(picks.c.item_id)))
        )
        first = {row.item_id: row for row in before}
        again = [
            Pick(row.key, rank, first[row.id].arm, json.loads(first[row.id].reason))
            if row.id in first
            else Pick(row.key, rank, "picked", {})
            for rank, row in enumerate(rows, start=1)
        ]
        newest = max(first.values(), key=lambda row: int(row.model_version), default=None)
        told = (
            (newest.strategy, newest.seed, newest.model_version)
            if newest is not None
            else ("again", 0, 0)
        )
        self._unready(connection, [row.id for row in rows])
        self.write_batch(
            connection, annotator, again, strategy=told[0], seed=told[1], version=told[2]
        )
        return len(rows)

    def _give_ready(self, connection: Connection, annotator: str, n: int) -> int:
        """Ask an annotator about items that were picked ahead."""
        picks, batches = schema.picks, schema.batches
        put_off = and_(
            schema.answers.c.item_id == picks.c.item_id,
            schema.answers.c.annotator == annotator,
            schema.answers.c.live,
        )
        rows = connection.execute(
            self._picks("ready")
            .add_columns(
                batches.c.strategy, batches.c.seed, batches.c.model_version, schema.items.c.people
            )
            .where(~exists().where(put_off))
            .order_by(picks.c.batch_id, picks.c.rank)
            .limit(n)
        ).all()
        if rows:
            newest = max(rows, key=lambda row: int(row.model_version))
            batch = self._batch(
                connection, annotator, newest.strategy, newest.seed, newest.model_version
            )
            numbers = [row.id for row in rows]
            for start in range(0, len(numbers), _SOME):
                some = picks.c.id.in_(numbers[start : start + _SOME])
                connection.execute(update(picks).where(some).values(batch_id=batch, state="open"))
            self.recount(connection, [row.item_id for row in rows if row.people > 1])
            self._note_asked(connection, annotator, batch)
        return len(rows)

    def _unready(self, connection: Connection, items: Sequence[int]) -> None:
        """Forget that items were picked ahead: they are asked about, or answered. Random controls stay drawn."""
        for start in range(0, len(items), _SOME):
            some = and_(
                schema.picks.c.item_id.in_(items[start : start + _SOME]),
                schema.picks.c.state == "ready",
            )
            connection.execute(
                update(schema.picks)
                .where(some, schema.picks.c.arm == "control")
                .values(state="known")
            )
            connection.execute(delete(schema.picks).where(some))

    def forget_picks_ahead(self, connection: Connection) -> None:
        """Forget what an older model picked ahead; what was drawn at random stays drawn."""
        own = select(schema.batches.c.id).where(
            schema.batches.c.campaign_id == self.campaign, schema.batches.c.annotator == NOBODY
        )
        picked = and_(schema.picks.c.state == "ready", schema.picks.c.arm == "picked")
        connection.execute(delete(schema.picks).where(picked, schema.picks.c.batch_id.in_(own)))

    def renew(self, connection: Connection, annotator: str) -> None:
        """Let an annotator's leases begin anew: they are at work."""
        if not self.lease:
            return
        still_open = select(schema.picks.c.batch_id).where(schema.picks.c.state == "open")
        mine = and_(
            schema.batches.c.campaign_id == self.campaign, schema.batches.c.annotator == annotator
        )
        connection.execute(
            update(schema.batches)
            .where(mine, schema.batches.c.id.in_(still_open))
            .values(due=self._due())
        )

    def is_half_over(self, connection: Connection, annotator: str) -> bool:
        """Tell whether half of a lease of an annotator's open questions has passed."""
        mine = self._picks("open").where(schema.batches.c.annotator == annotator)
        due = connection.scalar(mine.with_only_columns(func.min(schema.batches.c.due)))
        return due is not None and str(due) < written(self.clock() + self.lease / 2)

    def take_back(self, connection: Connection, asking: str | None = None) -> int:
        """Return questions whose lease has ended, but for those of whoever is asking; tell how many there were."""
        ended = and_(
            schema.batches.c.due <= self.now(), schema.batches.c.annotator != (asking or NOBODY)
        )
        return self._returned(connection, ended, None)

    def release_items(self, connection: Connection, annotator: str, who: str) -> int:
        """Return all open questions of an annotator, as if the leases had ended; tell how many there were."""
        return self._returned(connection, schema.batches.c.annotator == annotator, who)

    def _returned(self, connection: Connection, which: ColumnElement[bool], who: str | None) -> int:
        batches, picks = schema.batches, schema.picks
        rows = connection.execute(
            self._picks("open")
            .add_columns(batches.c.strategy, batches.c.seed, batches.c.model_version)
            .where(which)
            .order_by(picks.c.batch_id, picks.c.rank)
        ).all()
        by_batch: dict[int, list[Row[Any]]] = {}
        for row in rows:
            by_batch.setdefault(row.batch_id, []).append(row)
        version = self.newest_version(connection) if rows else 0
        for batch, some in by_batch.items():
            gone = and_(picks.c.batch_id == batch, picks.c.state == "open")
            connection.execute(update(picks).where(gone).values(state="returned"))
            detail = {"batch": batch, "items": [row.key for row in some], "by": who or "lease"}
            self.note(connection, some[0].annotator, "returned", None, detail)
            self._offer_again(connection, some, version)
        self.recount(connection, [row.item_id for row in rows])
        return len(rows)

    def _offer_again(self, connection: Connection, rows: Sequence[Row[Any]], version: int) -> None:
        """Keep for the next who asks what was drawn at random, and what the newest model picked."""
        again = [
            Pick(row.key, row.rank, row.arm, json.loads(row.reason))
            for row in rows
            if row.arm != "picked" or row.model_version == version
        ]
        again = self.free(connection, again)
        if again:
            told = {
                "strategy": rows[0].strategy,
                "seed": rows[0].seed,
                "version": rows[0].model_version,
            }
            self.write_batch(connection, NOBODY, again, **told)

    def newest_version(self, connection: Connection) -> int:
        """Return the number of the newest model; 0 before there is one."""
        own = schema.models.c.campaign_id == self.campaign
        return int(connection.scalar(select(func.max(schema.models.c.version)).where(own)) or 0)

    def others_at_work(self, connection: Connection, annotator: str) -> int:
        """Return how many others have a lease that has not ended."""
        batches = schema.batches
        at_work = and_(batches.c.due > self.now(), batches.c.annotator.not_in((annotator, NOBODY)))
        others = and_(batches.c.campaign_id == self.campaign, at_work)
        return int(
            connection.scalar(select(func.count(func.distinct(batches.c.annotator))).where(others))
            or 0
        )

    def share(self, connection: Connection, items: Sequence[str], people: int) -> None:
        """Say that so many people are to answer items."""
        numbers = [row.id for row in self.some_items(connection, items).values()]
        for start in range(0, len(numbers), _SOME):
            some = schema.items.c.id.in_(numbers[start : start + _SOME])
            connection.execute(update(schema.items).where(some).values(people=people))

    def recount(self, connection: Connection, items: Iterable[int]) -> None:
        """Count anew how many more people are to be asked about items; none where all is decided, or it is bad."""
        for item in items:
            row = connection.execute(
                select(schema.items.c.people, schema.items.c.missing).where(
                    schema.items.c.id == item
                )
            ).one()
            if row.people == 1:
                continue
            said = connection.execute(
                select(schema.answers.c.annotator, schema.answers.c.kind).where(
                    schema.answers.c.item_id == item,
                    schema.answers.c.live,
                    schema.answers.c.kind != "skip",
                )
            ).all()
            decided = exists().where(schema.decisions.c.item_id == item, schema.decisions.c.live)
            settled = any(one.kind == "bad" for one in said) or bool(
                connection.scalar(select(decided))
            )
            asked = {one.annotator for one in said} | set(connection.scalars(_holders(item)))
            missing = 0 if settled else max(0, row.people - len(asked))
            if missing != row.missing:
                connection.execute(
                    update(schema.items).where(schema.items.c.id == item).values(missing=missing)
                )


def _holders(item: int) -> Select[Any]:
    """Return what selects who has an open question about an item."""
    return (
        select(schema.batches.c.annotator)
        .join(schema.picks, schema.picks.c.batch_id == schema.batches.c.id)
        .where(schema.picks.c.item_id == item, schema.picks.c.state == "open")
    )


def _open_with(item: ColumnElement[int], annotator: str) -> tuple[ColumnElement[bool], ...]:
    return (
        schema.picks.c.item_id == item,
        schema.picks.c.state == "open",
        schema.picks.c.batch_id == schema.batches.c.id,
        schema.batches.c.annotator == annotator,
    )
