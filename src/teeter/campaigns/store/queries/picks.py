"""Batches and picks: which items are open with which annotator, and for how long.

A batch belongs to an annotator and has a lease. Its picks are open until they are answered; when
the lease expires they return, and the next annotator who asks may get them. Picks made ahead are
ready in batches without an annotator. Some items need several annotators, and an item never goes to
the same one twice.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Row,
    Select,
    and_,
    bindparam,
    delete,
    exists,
    func,
    or_,
    select,
    update,
)

from teeter.base.seeds import stream_seed
from teeter.campaigns.records import AnswerKind, AnswerOrigin, PickArm, PickState
from teeter.campaigns.settings import RANDOM_STRATEGY
from teeter.campaigns.store import schema
from teeter.campaigns.store.queries import Queries, chunks
from teeter.campaigns.store.schema import ANSWERS, BATCHES, DECISIONS, ITEMS, PICKS

# Statements that every answer executes are built once: building one takes longer than executing it.

_PICKS_TO_ANSWER = (
    select(PICKS.id, PICKS.state, PICKS.arm, BATCHES.strategy)
    .join(schema.batches)
    .where(
        PICKS.item_id == bindparam("item"),
        PICKS.state.in_((PickState.OPEN, PickState.RETURNED)),
        BATCHES.annotator == bindparam("annotator"),
    )
    .order_by(PICKS.id)
)

_READY_PICKS = select(PICKS.id, PICKS.arm).where(
    PICKS.item_id.in_(bindparam("items", expanding=True)),
    PICKS.state == PickState.READY,
)

_IS_GIVEN = PICKS.id.in_(bindparam("picks", expanding=True))

_SET_STATE = update(schema.picks).where(_IS_GIVEN).values(state=bindparam("new_state"))

_DELETE_PICKS = delete(schema.picks).where(_IS_GIVEN)

_BATCHES_WITH_OPEN_PICKS = select(PICKS.batch_id).where(PICKS.state == PickState.OPEN)

# Answered batches keep their lease: until it ends, the annotator counts as active.
_EXTEND_LEASES = (
    update(schema.batches)
    .where(
        BATCHES.campaign_id == bindparam("campaign"),
        BATCHES.annotator == bindparam("holder"),
        BATCHES.id.in_(_BATCHES_WITH_OPEN_PICKS),
    )
    .values(lease_end=bindparam("new_end"))
)


@dataclass(frozen=True)
class Pick:
    """An item that was picked, and why."""

    item: str
    rank: int
    arm: PickArm
    reason: Mapping[str, Any]
    asked: bool = True
    """Whether it needs an answer. A control item that is answered, or open already, does not."""


@dataclass(frozen=True)
class BatchOrigin:
    """How the picks of a batch were made."""

    strategy: str
    seed: int
    model_version: int
    """0 before there is a model."""


class PickQueries(Queries):
    """The batches and picks of a campaign."""

    # Writing batches

    def add_batch(
        self,
        annotator: str | None,
        picks: Sequence[Pick],
        origin: BatchOrigin,
    ) -> int:
        """Store a batch of picks and return its row id.

        Args:
            annotator: whom the picks are open with; None to make them ready for anyone.
            picks: the picks, with their ranks.
            origin: how they were made.
        """
        batch_id = self._insert_batch(annotator, origin)
        # Control items count as random draws in the order of their rows. In the order in which they
        # are shown, those with a label would come last, and the first ones would be no sample.
        picks = sorted(picks, key=lambda pick: stream_seed(batch_id, "rows", pick.item))
        items = self._transaction.items.by_id([pick.item for pick in picks])

        rows = []
        for pick in picks:
            if not pick.asked:
                # Drawn as a control item, but labelled already: it counts, and no one is asked.
                state = PickState.KNOWN
            elif annotator is None:
                # Ready picks belong to no one yet: the next to ask gets them without waiting.
                state = PickState.READY
            else:
                state = PickState.OPEN
            row = {
                "batch_id": batch_id,
                "item_id": items[pick.item].row_id,
                "rank": pick.rank,
                "arm": pick.arm,
                "reason": json.dumps(dict(pick.reason)),
                "state": state,
            }
            rows.append(row)
        self._insert_all(schema.picks, rows)

        # Picks made ahead are asked of no one yet, so they are neither counted nor noted.
        if annotator is not None:
            shared = [item.row_id for item in items.values() if item.annotators_needed > 1]
            self.update_missing(shared)
            self._note_batch(annotator, batch_id, origin)

        return batch_id

    def _insert_batch(self, annotator: str | None, origin: BatchOrigin) -> int:
        lease_end = None
        if annotator is not None:
            # A lease begins when someone gets the items, not when they are picked ahead.
            lease_end = self._transaction.lease_end()
        return self._insert(
            schema.batches,
            annotator=annotator,
            asked=self._transaction.now(),
            strategy=origin.strategy,
            seed=origin.seed,
            model_version=origin.model_version,
            lease_end=lease_end,
        )

    def _note_batch(self, annotator: str, batch_id: int, origin: BatchOrigin) -> None:
        """Note a batch and all its picks in the history."""
        # Read back from the table: picks made ahead come with reasons that only the table has.
        states = (PickState.OPEN, PickState.KNOWN)
        query = (
            select(schema.picks, ITEMS.key)
            .join(schema.items)
            # The state comes first so that SQLite uses the index picks_by_state.
            .where(PICKS.state.in_(states), PICKS.batch_id == batch_id)
            .order_by(PICKS.rank, PICKS.id)
        )

        asked = []
        not_asked = []
        for row in self._execute(query):
            if row.state == PickState.KNOWN:
                not_asked.append(row.key)
            else:
                reason = json.loads(row.reason)
                pick = {
                    "item": row.key,
                    "rank": row.rank,
                    "arm": row.arm,
                    "reason": reason,
                }
                asked.append(pick)

        detail = {
            "batch": batch_id,
            "strategy": origin.strategy,
            "seed": origin.seed,
            "version": origin.model_version,
            "items": [pick["item"] for pick in asked],
            "picks": asked,
            "known": not_asked,
        }
        self._note(annotator, "asked", detail)

    def count_batches(self) -> int:
        """Return the number of batches so far, for annotators or ahead."""
        return self._count(self._own(schema.batches))

    # Reading picks

    def _select(self, state: PickState, *, with_withdrawn: bool = False) -> Select[Any]:
        """Select the picks in a state, with the item's id and the batch's annotator and origin."""
        query = (
            select(
                schema.picks,
                ITEMS.key,
                ITEMS.annotators_needed,
                BATCHES.annotator,
                BATCHES.strategy,
                BATCHES.seed,
                BATCHES.model_version,
            )
            .join(schema.batches)
            .join(schema.items)
            .where(BATCHES.campaign_id == self._campaign_id, PICKS.state == state)
            .order_by(PICKS.batch_id, PICKS.rank)
        )
        if with_withdrawn:
            return query
        # The picks of a withdrawn item stay as they are, and count again when it is put back.
        return query.where(ITEMS.withdrawn.is_(None))

    def open_picks(self, annotator: str | None = None, limit: int | None = None) -> list[Pick]:
        """Return the open picks of an annotator, or of all, oldest batch first."""
        query = self._select(PickState.OPEN).limit(limit)
        if annotator is not None:
            query = query.where(BATCHES.annotator == annotator)

        return [_pick(row) for row in self._execute(query)]

    def ready_picks(self) -> list[Pick]:
        """Return the picks made ahead, oldest batch first."""
        rows = self._execute(self._select(PickState.READY))
        return [_pick(row) for row in rows]

    def open_or_ready_items(self) -> set[str]:
        """Return the ids of the items that are open with an annotator or picked ahead."""
        item_ids: set[str] = set()
        for state in (PickState.OPEN, PickState.READY):
            rows = self._execute(self._select(state))
            item_ids.update(row.key for row in rows)

        return item_ids

    def count_ready(self) -> int:
        """Return the number of picks made ahead."""
        return self.count(PickState.READY)

    def count(self, state: PickState) -> int:
        """Return the number of picks in a state, of all annotators."""
        row_ids = self._select(state).with_only_columns(PICKS.id)
        # A count would sort the rows in vain.
        return self._count(row_ids.order_by(None))

    def count_open_by_annotator(self) -> dict[str, int]:
        """Return the number of open picks of each annotator who has any."""
        columns = (BATCHES.annotator, func.count(PICKS.id).label("open_count"))
        open_picks = self._select(PickState.OPEN).with_only_columns(*columns)
        by_annotator = open_picks.order_by(None).group_by(BATCHES.annotator)
        return {row.annotator: row.open_count for row in self._execute(by_annotator)}

    def last_picks(self, annotator: str, row_ids: Sequence[int]) -> dict[int, Pick]:
        """Return the last pick of each item that an annotator got, by the item's row id."""
        query = (
            select(schema.picks, ITEMS.key)
            .join(schema.batches)
            .join(schema.items)
            .where(
                PICKS.item_id.in_(row_ids),
                PICKS.state != PickState.KNOWN,
                BATCHES.campaign_id == self._campaign_id,
                BATCHES.annotator == annotator,
            )
            .order_by(PICKS.id)
        )
        # Later picks of an item replace earlier ones.
        rows = self._execute(query)
        return {row.item_id: _pick(row) for row in rows}

    def control_items(self) -> set[str]:
        """Return the ids of the items that were drawn as control items."""
        return self.items_of_arm(PickArm.CONTROL)

    def items_of_arm(self, arm: PickArm) -> set[str]:
        """Return the ids of the items that came to be picked in one way."""
        return set(self._scalars(self._select_items(arm)))

    def _select_items(self, arm: PickArm) -> Select[Any]:
        drawn = select(ITEMS.key).join(schema.picks)
        return drawn.where(self._in_campaign(), PICKS.arm == arm)

    def control_items_in_order(self) -> list[str]:
        """Return the ids of the control items in the order in which they were drawn.

        Within a batch, the order is random and does not depend on which of them had a label.
        """
        by_item = self._select_items(PickArm.CONTROL).group_by(ITEMS.key)
        # An item that came back has several picks. The first one drew it.
        first_pick = func.min(PICKS.id)
        return list(self._scalars(by_item.order_by(first_pick)))

    def measuring_items(self) -> set[str]:
        """Return the ids of the items that were drawn to measure something."""
        is_measuring = or_(PICKS.arm != PickArm.PICKED, ITEMS.holdout)
        items = select(ITEMS.key).join(schema.picks, isouter=True)
        drawn = items.where(self._in_campaign(), is_measuring)
        return set(self._scalars(drawn))

    def newest_row_id(self) -> int:
        """Return the largest row id of a pick; it changes whenever items are picked."""
        newest = self._scalar(select(func.max(PICKS.id)))
        return int(newest or 0)

    def open_items(self) -> set[int]:
        """Return the row ids of the items that are open with an annotator."""
        # Ready picks are not open: no annotator has seen them yet.
        is_open = PICKS.state == PickState.OPEN
        return set(self._scalars(select(PICKS.item_id).where(is_open)))

    def waiting_to_be_answered_blind(self) -> set[int]:
        """Return the row ids of the items whose predictions nobody should see before they answer.

        They measure something, or several annotators are to answer them, or all is random.
        """
        items = select(ITEMS.id).where(self._in_campaign())
        picked = items.join(schema.picks)
        held_out = items.where(ITEMS.holdout)
        drawn = picked.where(PICKS.arm != PickArm.PICKED)
        measuring = {*self._scalars(held_out), *self._scalars(drawn)}

        is_blind = ANSWERS.origin == AnswerOrigin.SINGLE
        is_no_skip = ANSWERS.kind != AnswerKind.SKIP
        blind = select(ANSWERS.item_id).where(ANSWERS.live, is_blind, is_no_skip)
        rows = self._in_parts(blind, ANSWERS.item_id, list(measuring))
        waiting = measuring - {row.item_id for row in rows}

        is_waiting = PICKS.state.in_((PickState.OPEN, PickState.READY))
        to_answer = picked.where(is_waiting)
        if self._transaction.settings.strategy != RANDOM_STRATEGY:
            to_answer = to_answer.where(ITEMS.annotators_needed > 1)
        waiting.update(self._scalars(to_answer))
        # Who is still to be asked may look for it before.
        lacking = items.where(ITEMS.annotators_missing > 0)
        waiting.update(self._scalars(lacking))
        return waiting

    def random_items(self) -> set[str]:
        """Return the ids of the items that are a random sample of all.

        These are the control items, and all picks if the strategy has always been ``random``. Picks
        of ``random`` after another strategy would be a sample of what that strategy left over, and
        picks after answers in bulk one of what those left over.
        """
        control = self.control_items()
        batches = self._own(schema.batches).with_only_columns(BATCHES.strategy)
        strategies = set(self._scalars(batches.distinct()))
        if strategies != {RANDOM_STRATEGY} or not self._transaction.answers.are_all_blind():
            return control
        return control | self.items_of_arm(PickArm.PICKED)

    def unassigned(self, picks: Sequence[Pick]) -> list[Pick]:
        """Return the picks of items that are neither open, nor ready, answered or withdrawn.

        A skip is no answer: the item may be picked again. An item that measures something may be
        picked as long as nobody has answered it blind.
        """
        # The caller holds the write lock, so no one can take an item between this and the insert.
        items = self._transaction.items.by_id([pick.item for pick in picks])
        row_ids = [item.row_id for item in items.values()]
        is_assigned = PICKS.state.in_((PickState.OPEN, PickState.READY))
        assigned = select(PICKS.item_id).where(is_assigned)
        is_no_skip = ANSWERS.kind != AnswerKind.SKIP
        answered = select(ANSWERS.item_id, ANSWERS.origin).where(ANSWERS.live, is_no_skip)

        taken = {item.row_id for item in items.values() if item.withdrawn is not None}
        for row in self._in_parts(assigned, PICKS.item_id, row_ids):
            taken.add(row.item_id)
        in_view: set[int] = set()
        for row in self._in_parts(answered, ANSWERS.item_id, row_ids):
            if AnswerOrigin(row.origin).is_blind:
                taken.add(row.item_id)
            else:
                in_view.add(row.item_id)

        free = []
        for pick in picks:
            row_id = items[pick.item].row_id
            may_repeat = pick.arm.is_random and row_id not in taken
            if may_repeat or row_id not in taken | in_view:
                free.append(pick)
        return free

    # Assigning without picking

    def has_assignable(self) -> bool:
        """Return whether an annotator could get an item without picking a new one."""
        row_ids = self._select(PickState.READY).with_only_columns(PICKS.id)
        any_ready = row_ids.order_by(None).limit(1)
        if self._scalar(any_ready) is not None:
            return True

        # Shared items that lack an annotator. The one who asks may have answered them before, which
        # ``assign`` finds out: this check must be cheap enough for every poll of the page.
        missing = exists().where(
            self._in_campaign(),
            ITEMS.annotators_missing > 0,
            ITEMS.withdrawn.is_(None),
        )
        return bool(self._scalar(select(missing)))

    def assign(self, annotator: str, count: int) -> int:
        """Open items with an annotator that need no picking.

        First come items that still need annotators, then picks made ahead. Picks whose lease
        expired are among them.

        Args:
            annotator: the annotator who asks. Their own leases start again.
            count: how many items to assign at most.

        Returns:
            How many items were assigned.
        """
        # In this order, so that the annotator who asks keeps items whose lease has just expired.
        self.extend_leases(annotator)
        expired = BATCHES.lease_end <= self._transaction.now()
        self._return_picks(and_(expired, BATCHES.annotator != annotator), by="lease")

        # Shared items first: the sooner all annotators answered, the sooner disagreements show.
        shared = self._assign_shared(annotator, count)
        if shared == count:
            return shared

        return shared + self._assign_ready(annotator, count - shared)

    def _assign_shared(self, annotator: str, count: int) -> int:
        """Assign items that need more annotators, but none that this annotator has seen."""
        answered_by = and_(
            ANSWERS.item_id == ITEMS.id,
            ANSWERS.annotator == annotator,
            ANSWERS.origin.not_in((AnswerOrigin.BULK, AnswerOrigin.COPY)),
        )
        open_with = and_(
            PICKS.item_id == ITEMS.id,
            PICKS.state == PickState.OPEN,
            PICKS.batch_id == BATCHES.id,
            BATCHES.annotator == annotator,
        )
        query = (
            select(ITEMS.id, ITEMS.key)
            .where(
                self._in_campaign(),
                ITEMS.annotators_missing > 0,
                ITEMS.withdrawn.is_(None),
                ~exists().where(answered_by, ANSWERS.live),
                ~exists().where(open_with),
            )
            .order_by(ITEMS.id)
            .limit(count)
        )
        wanted = self._execute(query).all()
        if not wanted:
            return 0

        # The last pick of each item, with the origin of its batch.
        wanted_ids = [row.id for row in wanted]
        last_ids = select(func.max(PICKS.id)).where(PICKS.item_id.in_(wanted_ids))
        last_picks = (
            select(
                schema.picks,
                BATCHES.strategy,
                BATCHES.seed,
                BATCHES.model_version,
            )
            .join(schema.batches)
            .where(PICKS.id.in_(last_ids.group_by(PICKS.item_id)))
        )
        earlier = {row.item_id: row for row in self._execute(last_picks)}

        # The annotator gets each item for the reason that the first one got it. Control items stay
        # control items, or agreement on them could not be told from agreement on hard ones.
        picks = []
        for rank, row in enumerate(wanted, start=1):
            pick = earlier.get(row.id)
            arm = PickArm.PICKED
            reason: dict[str, Any] = {}
            if pick is not None:
                arm = PickArm(pick.arm)
                reason = json.loads(pick.reason)
            picks.append(Pick(row.key, rank, arm, reason))

        origin = BatchOrigin("again", 0, 0)
        if earlier:
            origin = _newest_origin(list(earlier.values()))

        self.remove_ready(wanted_ids)
        self.add_batch(annotator, picks, origin)
        return len(picks)

    def _assign_ready(self, annotator: str, count: int) -> int:
        """Assign picks made ahead, but none of an item that this annotator skipped."""
        # Skipping leaves an item to others: the annotator does not get it back this way.
        skipped = exists().where(
            ANSWERS.item_id == PICKS.item_id,
            ANSWERS.annotator == annotator,
            ANSWERS.live,
            ANSWERS.kind == AnswerKind.SKIP,
        )
        ready = self._select(PickState.READY).where(~skipped)
        rows = self._execute(ready.limit(count)).all()
        if not rows:
            return 0

        # The picks move into a batch of the annotator, so that a lease covers them.
        origin = _newest_origin(rows)
        batch_id = self._insert_batch(annotator, origin)
        for part in chunks([row.id for row in rows]):
            is_moved = PICKS.id.in_(part)
            self._update(
                schema.picks,
                is_moved,
                batch_id=batch_id,
                state=PickState.OPEN,
            )

        shared = [row.item_id for row in rows if row.annotators_needed > 1]
        self.update_missing(shared)
        self._note_batch(annotator, batch_id, origin)
        return len(rows)

    # Picks made ahead

    def remove_ready(self, row_ids: Sequence[int], *, is_blind: bool = True) -> None:
        """Remove the picks made ahead of items that are open or answered now.

        Control items stay drawn, so that they can be counted.

        Args:
            row_ids: the items.
            is_blind: whether they were answered blind. If not, those drawn to measure stay ready.
        """
        for part in chunks(row_ids):
            ready = self._execute(_READY_PICKS, {"items": part}).all()
            if not is_blind:
                ready = [row for row in ready if not PickArm(row.arm).is_random]

            control = [row.id for row in ready if row.arm == PickArm.CONTROL]
            self.set_state(control, PickState.KNOWN)

            others = [row.id for row in ready if row.arm != PickArm.CONTROL]
            if others:
                self._execute(_DELETE_PICKS, {"picks": others})

    def remove_outdated(self) -> None:
        """Remove what an older model picked ahead. Items drawn at random stay ready."""
        # Only batches that no annotator has: items must not vanish from a page that shows them.
        ahead = self._own(schema.batches).where(BATCHES.annotator.is_(None))
        self._delete(
            schema.picks,
            PICKS.state == PickState.READY,
            PICKS.arm == PickArm.PICKED,
            PICKS.batch_id.in_(ahead.with_only_columns(BATCHES.id)),
        )

    def remove_all_ready(self) -> None:
        """Remove all picks made ahead, those drawn at random too: they are drawn no more."""
        ahead = self._own(schema.batches).where(BATCHES.annotator.is_(None))
        self._delete(
            schema.picks,
            PICKS.state == PickState.READY,
            PICKS.batch_id.in_(ahead.with_only_columns(BATCHES.id)),
        )

    # Leases

    def extend_leases(self, annotator: str) -> None:
        """Start the leases of an annotator's open picks again."""
        if not self._transaction.lease_seconds:
            return

        values = {
            "campaign": self._campaign_id,
            "holder": annotator,
            "new_end": self._transaction.lease_end(),
        }
        self._execute(_EXTEND_LEASES, values)

    def is_lease_half_over(self, annotator: str) -> bool:
        """Return whether half of the lease of one of an annotator's open picks has passed."""
        query = (
            self._select(PickState.OPEN)
            .where(BATCHES.annotator == annotator)
            .with_only_columns(func.min(BATCHES.lease_end))
            .order_by(None)
        )
        first_end = self._scalar(query)

        if first_end is None:
            return False
        # Stored times sort as text, because all are in UTC with the same number of digits.
        half = self._transaction.lease_seconds / 2
        return str(first_end) < self._transaction.time_after(half)

    def release(self, annotator: str, who: str) -> int:
        """Return all open picks of an annotator to the pool, and return how many there were."""
        return self._return_picks(BATCHES.annotator == annotator, by=who)

    def _return_picks(self, condition: ColumnElement[bool], by: str) -> int:
        """Return the open picks of the batches that meet a condition to the pool.

        Args:
            condition: on the columns of ``batches``.
            by: who did it, for the history; "lease" if the lease expired.
        """
        # Withdrawn items too: when they are put back, nobody else would get them.
        query = self._select(PickState.OPEN, with_withdrawn=True).where(condition)
        rows = self._execute(query).all()
        if not rows:
            return 0

        rows_by_batch: dict[int, list[Row[Any]]] = {}
        for row in rows:
            rows_by_batch.setdefault(row.batch_id, []).append(row)

        # A batch at a time, because each gets its own line in the history.
        newest_version = self._transaction.models.newest_version()
        for batch_id, batch in rows_by_batch.items():
            self.set_state([row.id for row in batch], PickState.RETURNED)
            detail = {
                "batch": batch_id,
                "items": [row.key for row in batch],
                "by": by,
            }
            self._note(batch[0].annotator, "returned", detail)

            # Ready again, except those that an older model chose.
            current = []
            for row in batch:
                is_outdated = row.arm == PickArm.PICKED and row.model_version != newest_version
                if not is_outdated:
                    current.append(_pick(row))
            picks = self.unassigned(current)
            if picks:
                self.add_batch(None, picks, _newest_origin(batch))

        # After all batches: an item may have been open with several annotators.
        self.update_missing([row.item_id for row in rows])
        return len(rows)

    def count_active_annotators(self, except_for: str | None = None) -> int:
        """Return how many annotators are at work: they have a lease that has not expired.

        Args:
            except_for: an annotator who does not count.
        """
        # In a campaign without leases, an annotator is active who has open picks.
        still_open = select(PICKS.batch_id).where(PICKS.state == PickState.OPEN)
        without_lease = and_(
            BATCHES.lease_end.is_(None),
            BATCHES.id.in_(still_open),
        )
        with_lease = BATCHES.lease_end > self._transaction.now()

        query = select(func.count(BATCHES.annotator.distinct())).where(
            BATCHES.campaign_id == self._campaign_id, or_(with_lease, without_lease)
        )
        if except_for is not None:
            query = query.where(BATCHES.annotator != except_for)

        return int(self._scalar(query) or 0)

    # Answers to picks

    def pick_to_answer(
        self, row_id: int, annotator: str
    ) -> tuple[int, PickState, PickArm, str] | None:
        """Return the pick that an annotator's answer about an item belongs to.

        It is the open one, or else the last one that was returned; None if there is neither.

        Returns:
            Its row id, its state, how it came to be picked, and the strategy of its batch.
        """
        values = {"item": row_id, "annotator": annotator}
        rows = self._execute(_PICKS_TO_ANSWER, values).all()
        if not rows:
            return None

        # An open pick must be closed, whichever picks of the item were returned before.
        row = rows[-1]
        open_rows = [row for row in rows if row.state == PickState.OPEN]
        if open_rows:
            row = open_rows[0]
        return row.id, PickState(row.state), PickArm(row.arm), row.strategy

    def holders(self, row_id: int) -> list[str]:
        """Return the annotators with whom an item is open, by name."""
        query = (
            select(BATCHES.annotator)
            .join(schema.picks)
            .where(PICKS.item_id == row_id, PICKS.state == PickState.OPEN)
            .order_by(BATCHES.annotator)
        )
        return list(self._scalars(query))

    def set_state(self, pick_ids: Sequence[int], state: PickState) -> None:
        """Change the state of picks."""
        for part in chunks(pick_ids):
            self._execute(_SET_STATE, {"picks": part, "new_state": state})

    def rename_class(self, name: str, new_name: str | None) -> None:
        """Let picks predict a class by its new name, whatever their state; None for no class.

        An answered pick may be opened again. The history has the name of its day.
        """
        for state in PickState:
            picks = self._select(state, with_withdrawn=True)
            for row in self._execute(picks).all():
                reason = json.loads(row.reason)
                if reason.get("predicted") != name:
                    continue
                reason["predicted"] = new_name
                if new_name is None:
                    reason["probability"] = None
                self._update(
                    schema.picks,
                    PICKS.id == row.id,
                    reason=json.dumps(reason),
                )

    def reopen(self, pick_id: int, row_id: int) -> None:
        """Open a pick again after its answer was taken back.

        It stays returned if the item is open with another annotator by now, and needs only one.

        Args:
            pick_id: the pick.
            row_id: its item.
        """
        # Read from the batch: the answer may have been given in the name of another annotator.
        batches = select(BATCHES.annotator).join(schema.picks)
        annotator = self._execute(batches.where(PICKS.id == pick_id)).scalar_one()

        # The annotator may have got the item a second time since. One open pick is enough.
        own_batches = self._own(schema.batches).where(BATCHES.annotator == annotator)
        self._update(
            schema.picks,
            PICKS.item_id == row_id,
            PICKS.id != pick_id,
            PICKS.state == PickState.OPEN,
            PICKS.batch_id.in_(own_batches.with_only_columns(BATCHES.id)),
            state=PickState.RETURNED,
        )

        state = PickState.RETURNED
        is_free = all(holder == annotator for holder in self.holders(row_id))
        if is_free or self.needs_several(row_id):
            state = PickState.OPEN
        self.set_state([pick_id], state)

        self.remove_ready([row_id])
        self.extend_leases(annotator)

    def needs_several(self, row_id: int) -> bool:
        """Return whether an item is to be answered by several annotators."""
        query = select(ITEMS.annotators_needed).where(ITEMS.id == row_id)
        return bool(self._scalar(query) != 1)

    def update_missing(self, row_ids: Iterable[int]) -> None:
        """Count again how many annotators items still need.

        An annotator counts who answered or has the item open. None are missing once an annotator
        flags the item or a reviewer decides on it.
        """
        for row_id in row_ids:
            query = select(ITEMS.annotators_needed, ITEMS.annotators_missing)
            item = self._execute(query.where(ITEMS.id == row_id)).one()
            if item.annotators_needed == 1:
                continue  # most items: nothing to count

            # Skips do not count.
            is_no_skip = ANSWERS.kind != AnswerKind.SKIP
            # Who answered it in bulk has not looked at it alone yet.
            is_bulk = ANSWERS.origin.in_((AnswerOrigin.BULK, AnswerOrigin.COPY))
            kinds = select(ANSWERS.annotator, ANSWERS.kind).where(
                ANSWERS.item_id == row_id, ANSWERS.live, is_no_skip, ~is_bulk
            )
            answered = {row.annotator: row.kind for row in self._execute(kinds)}
            # Who has the item open counts as well, or a third annotator would be asked meanwhile.
            asked = set(answered) | set(self.holders(row_id))
            missing = max(0, item.annotators_needed - len(asked))
            is_about_item = DECISIONS.item_id == row_id
            decided = select(exists().where(is_about_item, DECISIONS.live))
            if AnswerKind.FLAG in answered.values() or self._scalar(decided):
                missing = 0

            if missing != item.annotators_missing:
                self._update(
                    schema.items,
                    ITEMS.id == row_id,
                    annotators_missing=missing,
                )


def _newest_origin(rows: Sequence[Row[Any]]) -> BatchOrigin:
    """Return the origin of the picks that the newest of their models made."""
    newest = max(rows, key=lambda row: int(row.model_version))
    return BatchOrigin(newest.strategy, newest.seed, newest.model_version)


def _pick(row: Row[Any]) -> Pick:
    return Pick(
        row.key,
        row.rank,
        PickArm(row.arm),
        json.loads(row.reason),
    )
