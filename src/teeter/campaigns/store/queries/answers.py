"""The answers of annotators, and the decisions of reviewers, which settle what an item is.

Both are recorded, taken back and counted. None is ever deleted or overwritten.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any

from sqlalchemy import ColumnElement, Row, Select, and_, bindparam, func, select, update

from teeter.campaigns.records import (
    MOST_AT_ONCE,
    Answer,
    AnswerKind,
    AnswerOrigin,
    AnswerReceipt,
    Decision,
    PickArm,
    PickState,
    ShownSuggestion,
    UndoResult,
)
from teeter.campaigns.settings import IMPORTED, RANDOM_STRATEGY
from teeter.campaigns.store import schema
from teeter.campaigns.store.queries import Queries
from teeter.campaigns.store.schema import ANSWERS, CLASSES, DECISIONS, ITEMS, PICKS
from teeter.errors import PermissionDeniedError, UnknownResourceError

_ANSWERS = (
    select(schema.answers, ITEMS.key, CLASSES.name.label("label"))
    .join(schema.items)
    .join(schema.classes, isouter=True)
)

_IS_CURRENT = and_(
    ANSWERS.item_id == bindparam("item"),
    ANSWERS.annotator == bindparam("by"),
    ANSWERS.live,
)

_LIVE_ANSWER = _ANSWERS.where(_IS_CURRENT)

_REPLACE_ANSWER = update(schema.answers).where(_IS_CURRENT).values(live=False)


class AnswerQueries(Queries):
    """The answers of a campaign.

    An annotator's last answer about an item is live. Earlier ones stay stored and do not count.
    """

    # Recording

    def record(
        self,
        answer: Answer,
        *,
        asked_of: str | None = None,
        at: str | None = None,
        shown: ShownSuggestion | None = None,
        allow_repeat: bool = False,
        bulk: int | None = None,
    ) -> AnswerReceipt:
        """Store an answer and close the pick that it answers.

        Every answer passes here: one at a time, with an import, or from Label Studio.

        Args:
            answer: the answer. Its class may have the name that it had before: a page that was
                opened before it was renamed sends that.
            asked_of: the annotator in whose name the item is open, if it is not the answer's.
            at: when it was given, as times are stored, if that is not now.
            shown: the suggestion that the annotator saw, if any.
            allow_repeat: store the answer even if the annotator's current one says the same.
            bulk: the first answer of the same key press, if this is a later one.

        Raises:
            UnknownNameError: there is no such item or class.
        """
        asked_of = asked_of or answer.annotator
        item = self._transaction.items.get(answer.item)
        class_id = None
        if answer.kind == AnswerKind.LABEL:
            class_id, name = self._transaction.classes.find(answer.label)
            answer = replace(answer, label=name)
        before = self._live(item.row_id, answer.annotator)
        was_seen = False
        if before is not None:
            was_blind = AnswerOrigin(before.origin).is_blind
            says_the_same = before.kind == answer.kind and before.label == answer.label
            # Whoever repeats what they said blind before says it blind again.
            if says_the_same and was_blind:
                answer = replace(answer, origin=AnswerOrigin.SINGLE)
            # Who corrects an answer that they gave with a prediction in view has seen it.
            was_seen = not was_blind
        if not allow_repeat:
            repeated = self.find_repeat(answer, item.row_id)
            if repeated is not None:
                return AnswerReceipt(repeated, recorded=False)

        # At most one answer of an annotator about an item is live, so the earlier one goes first.
        self._execute(_REPLACE_ANSWER, {"item": item.row_id, "by": answer.annotator})

        # An answer may come without a pick, from the item's page or an import: it closes none.
        pick = self._transaction.picks.pick_to_answer(item.row_id, asked_of)
        pick_id = None
        pick_state = None
        is_asked_blind = False
        if pick is not None:
            pick_id, pick_state, arm, strategy = pick
            if arm.is_random and not answer.origin.is_blind:
                pick_id = None  # it must still be answered blind
            # Who answers a pick of the strategy sees what the newest model says of it.
            was_seen |= shown is not None or self._transaction.models.newest_version() > 0
            is_picked = arm is PickArm.PICKED and strategy != RANDOM_STRATEGY
            is_asked_blind = not is_picked or item.annotators_needed > 1
            if self._transaction.settings.goal and shown is None:
                is_asked_blind = True
        if answer.origin.is_blind and was_seen and not is_asked_blind:
            answer = replace(answer, origin=AnswerOrigin.SEEN)
        number = self._insert(
            schema.answers,
            item_id=item.row_id,
            pick_id=pick_id,
            annotator=answer.annotator,
            at=at or self._transaction.now(),
            kind=answer.kind,
            class_id=class_id,
            comment=answer.comment,
            live=True,
            undone=False,
            origin=answer.origin,
            bulk=bulk,
        )

        if pick_id is not None:
            closed = PickState.ANSWERED
            if answer.kind == AnswerKind.SKIP:
                closed = PickState.SKIPPED
            self._transaction.picks.set_state([pick_id], closed)

        late = pick_state == PickState.RETURNED
        detail: dict[str, Any] = {
            "answer": number,
            "kind": answer.kind,
            "label": answer.label,
            "comment": answer.comment,
        }
        if late:
            detail["late"] = True
        if not answer.origin.is_single:
            detail["origin"] = answer.origin
        self._note(answer.annotator, "answer", detail, answer.item)
        if shown is not None:
            self._transaction.suggestions.record_shown(number, shown)

        # The item may be answered without having been asked about, from its page or by a file.
        self._transaction.picks.remove_ready([item.row_id], is_blind=answer.origin.is_blind)
        self._transaction.picks.extend_leases(asked_of)
        if item.annotators_needed > 1:
            self._transaction.picks.update_missing([item.row_id])

        return AnswerReceipt(number, late)

    def record_all(
        self, answers: Sequence[Answer], *, shown: ShownSuggestion | None = None
    ) -> AnswerReceipt:
        """Store answers that an annotator gave by one key press; return the receipt of the first.

        Args:
            answers: the answers, of which 200 are stored. Of the first, the annotator may have
                seen a suggestion.
            shown: that suggestion, if any.
        """
        first, *others = answers
        # What was there before is left out, so that the first that is recorded stands for all.
        new: list[Answer] = []
        for other in others:
            if len(new) == MOST_AT_ONCE - 1:
                break
            item = self._transaction.items.get(other.item)
            if self.find_repeat(other, item.row_id) is None:
                new.append(other)
        is_source = any(other.origin is AnswerOrigin.COPY for other in new)
        receipt = self.record(first, shown=shown, allow_repeat=is_source)
        count = int(receipt.recorded)
        for other in new:
            if count:
                later = self.record(other, bulk=receipt.number)
                count += int(later.recorded)
            else:
                receipt = self.record(other)
                count = int(receipt.recorded)
        return replace(receipt, count=count)

    def undo(self, annotator: str, number: int | None = None) -> UndoResult | None:
        """Take back the last answer of an annotator that was not taken back yet.

        Their earlier answer about the item holds again, and the item's pick is open again.

        Answers of the same key press are taken back together.

        Args:
            annotator: the annotator.
            number: take back this answer, unless the annotator has answered since. Of several of a
                key press, it is the first or the last.

        Returns:
            The first answer of the key press; None if the annotator has none, or has answered
            since.

        Raises:
            UnknownResourceError: there is no answer of this number.
            PermissionDeniedError: another annotator gave it.
        """
        last = self._last(annotator)
        if number is not None and (last is None or number not in (last.id, last.bulk)):
            return self._find_undone(annotator, number)
        if last is None:
            return None

        undone = self._take_back_and_reopen(last)
        if last.bulk is None:
            return undone

        others = self._same_key_press(last, undone=False)
        for row in others:
            undone = self._take_back_and_reopen(row)
        return replace(undone, count=1 + len(others))

    def _same_key_press(self, row: Row[Any], *, undone: bool) -> Sequence[Row[Any]]:
        """Return the other answers that were given with one, the first of them last."""
        first = row.bulk or row.id
        query = self._select().where(
            ANSWERS.annotator == row.annotator,
            (ANSWERS.bulk == first) | (ANSWERS.id == first),
            ANSWERS.id != row.id,
            ANSWERS.undone.is_(undone),
        )
        return self._execute(query.order_by(ANSWERS.id.desc())).all()

    def _take_back_and_reopen(self, row: Row[Any]) -> UndoResult:
        undone = self._take_back(row)
        if row.pick_id is not None:
            self._transaction.picks.reopen(row.pick_id, row.item_id)
        self._transaction.picks.update_missing([row.item_id])
        return undone

    def _find_undone(self, annotator: str, number: int) -> UndoResult | None:
        """Return an answer that was taken back, if the annotator has not answered since.

        So an undo that is sent again, after a lost reply, is answered as before.
        """
        row = self._first(self._select().where(ANSWERS.id == number))
        if row is None:
            raise UnknownResourceError(f"There is no answer {number}.")
        if row.annotator != annotator:
            raise PermissionDeniedError(
                f"Answer {number} is not by {annotator}: only who gave an answer can take it back."
            )

        last = self._last(annotator)
        if not row.undone or (last is not None and last.id > number):
            return None

        others = self._same_key_press(row, undone=True)
        # Of the first answer, as when it was taken back.
        first = row
        if row.bulk is not None and others:
            first = others[-1]
        before = self._last(annotator, first.item_id)
        return _undo_result(first, before, 1 + len(others))

    def withdraw(self, number: int) -> UndoResult | None:
        """Take back an answer by its row id, whatever was answered since.

        The item's pick is open again if no one else answered it, or if it needs several
        annotators.

        Returns:
            The answer, or None if it was taken back before.
        """
        query = self._select().where(
            ANSWERS.id == number,
            ANSWERS.undone.is_(False),
        )
        row = self._first(query)
        if row is None:
            return None

        undone = self._take_back(row)

        # An answer that was replaced since changes nothing: its pick stays closed.
        if row.pick_id is not None and row.live:
            current = self.for_item(row.item_id)
            is_answered = any(answer.kind != AnswerKind.SKIP for answer in current)
            if not is_answered or self._transaction.picks.needs_several(row.item_id):
                self._transaction.picks.reopen(row.pick_id, row.item_id)

        self._transaction.picks.update_missing([row.item_id])
        return undone

    def _take_back(self, row: Row[Any]) -> UndoResult:
        """Mark an answer as undone. If it was live, the one before it is live again."""
        # Never deleted: the history refers to the row.
        self._update(
            schema.answers,
            ANSWERS.id == row.id,
            undone=True,
            live=False,
        )

        before = self._last(row.annotator, row.item_id)
        # If the answer was replaced before it was undone, the replacement stays live.
        if before is not None and row.live:
            self._update(
                schema.answers,
                ANSWERS.id == before.id,
                live=True,
            )

        self._note(row.annotator, "undo", {"answer": row.id}, row.key)
        return _undo_result(row, before)

    def _live(self, item_row_id: int, annotator: str) -> Row[Any] | None:
        """Return the current answer of an annotator about an item."""
        return self._first(_LIVE_ANSWER, {"item": item_row_id, "by": annotator})

    def find_repeat(self, answer: Answer, item_row_id: int) -> int | None:
        """Return the row id of a live answer that says the same, as if it was sent twice.

        An answer to an open pick is not a repeat: it closes the pick.

        Returns:
            The row id, or None if the answer is new.
        """
        row = self._live(item_row_id, answer.annotator)
        if row is None:
            return None
        # What a person said of the item alone stays, whatever they say of many at once. A skip
        # says nothing.
        was_single = AnswerOrigin(row.origin).is_single
        if was_single and not answer.origin.is_single and row.kind != AnswerKind.SKIP:
            return int(row.id)
        if _answer(row) != answer or was_single != answer.origin.is_single:
            return None
        # Asked again and answered the same way: not a repeat, or the item would stay open for ever.
        if answer.annotator in self._transaction.picks.holders(item_row_id):
            return None
        return int(row.id)

    # Reading

    def _in_campaign(self) -> ColumnElement[bool]:
        # Adding 0 keeps SQLite from reading all items of the campaign by their index first: the
        # answers are fewer.
        return ITEMS.campaign_id + 0 == self._campaign_id

    def _select(self) -> Select[Any]:
        """Select answers with the ids of their items and the names of their classes."""
        return _ANSWERS.where(self._in_campaign())

    def _select_columns(self, *columns: Any) -> Select[Any]:
        """Select columns of the campaign's answers, or functions of them."""
        joined = schema.answers.join(schema.items)
        return select(*columns).select_from(joined).where(self._in_campaign())

    def live(self) -> list[Answer]:
        """Return all live answers, in the order in which they were given."""
        query = self._select().where(ANSWERS.live).order_by(ANSWERS.id)
        return [_answer(row) for row in self._execute(query)]

    def for_item(self, row_id: int) -> list[Answer]:
        """Return the live answers about an item, in the order in which they were given."""
        return self.for_items([row_id])[row_id]

    def for_items(self, row_ids: Sequence[int]) -> dict[int, list[Answer]]:
        """Return the live answers about each item by the items' row ids, oldest first."""
        by_item: dict[int, list[Answer]] = {row_id: [] for row_id in row_ids}

        query = self._select().where(ANSWERS.live).order_by(ANSWERS.id)
        for row in self._in_parts(query, ANSWERS.item_id, row_ids):
            answers = by_item[row.item_id]
            answers.append(_answer(row))

        return by_item

    def recent(self, annotator: str, count: int) -> list[Answer]:
        """Return the last live answers of an annotator, newest first."""
        by_annotator = self._select().where(ANSWERS.live, ANSWERS.annotator == annotator)
        by_annotator = by_annotator.where(ANSWERS.bulk.is_(None))  # of a key press the first
        query = by_annotator.order_by(ANSWERS.id.desc()).limit(count)
        return [_answer(row) for row in self._execute(query)]

    def _last(self, annotator: str, item_row_id: int | None = None) -> Row[Any] | None:
        """Return the last answer of an annotator, or their last one about an item."""
        is_theirs = ANSWERS.annotator == annotator
        query = self._select().where(is_theirs, ANSWERS.undone.is_(False))
        if item_row_id is not None:
            query = query.where(ANSWERS.item_id == item_row_id)
        last_first = query.order_by(ANSWERS.id.desc())
        return self._first(last_first.limit(1))

    def confirmed_labels(self) -> dict[str, str]:
        """Return the labels that an annotator checked and confirmed, by item id."""
        # Undoing the answer that confirmed a label takes back the confirmation.
        about = itemgetter("item", "who", "answer")
        history = self._transaction.history
        undone = {about(line) for line in history.lines("undo")}
        names = self._transaction.classes.former_names()
        labels = {}
        for line in history.lines("kept"):
            if about(line) not in undone:
                label = line["label"]
                labels[line["item"]] = names.get(label, label)
        return labels

    def bulk_checks(self) -> list[tuple[str, str]]:
        """Return the classes that items got in bulk and then blind, where that was checked."""
        checked = select(PICKS.item_id).where(PICKS.arm == PickArm.CHECK)
        is_checked = ANSWERS.item_id.in_(checked)
        query = self._select().where(is_checked, ANSWERS.undone.is_(False))
        in_bulk: dict[str, str] = {}
        blind: dict[str, str] = {}
        for row in self._execute(query.order_by(ANSWERS.id)):
            origin = AnswerOrigin(row.origin)
            if row.kind != AnswerKind.LABEL or origin is AnswerOrigin.SEEN:
                continue
            if origin.is_blind:
                blind[row.key] = row.label
            else:
                in_bulk[row.key] = row.label
        items = in_bulk.keys() & blind.keys()
        return [(in_bulk[item], blind[item]) for item in items]

    def copied_items(self) -> list[tuple[str, str]]:
        """Return the items that were answered as copies, each with the item that was looked at."""
        about_source = schema.answers.alias()
        source = schema.items.alias()
        is_same_key_press = about_source.c.id == ANSWERS.bulk
        is_looked_at = source.c.id == about_source.c.item_id
        copies = self._select_columns(ITEMS.key, source.c.key.label("source"))
        query = (
            copies.join(about_source, is_same_key_press)
            .join(source, is_looked_at)
            .where(ANSWERS.live, ANSWERS.origin == AnswerOrigin.COPY)
        )
        return [(row.key, row.source) for row in self._execute(query)]

    def are_all_blind(self) -> bool:
        """Return whether every answer was given about one item alone, blind."""
        query = self._select_columns(ANSWERS.id).where(
            ANSWERS.undone.is_(False), ANSWERS.origin != AnswerOrigin.SINGLE
        )
        return self._scalar(query.limit(1)) is None

    def skipped_items(self) -> set[str]:
        """Return the ids of the items that were skipped since the newest model was trained."""
        skips = self._select().where(ANSWERS.live, ANSWERS.kind == AnswerKind.SKIP)
        model = self._transaction.models.newest_summary()
        if model is not None:
            # Models note how many answers there were, not the time: clocks may be set back.
            row_ids = self._select_columns(ANSWERS.id).order_by(ANSWERS.id)
            newer = row_ids.offset(model.facts["answers"])
            first_newer = self._scalar(newer.limit(1))
            if first_newer is None:
                return set()
            skips = skips.where(ANSWERS.id >= first_newer)

        return {row.key for row in self._execute(skips)}

    # Counting

    def count(self) -> int:
        """Return how many answers were ever given, live or not."""
        return self._count(self._select_columns(ANSWERS.id))

    def items_answered_first(self, count: int) -> set[str]:
        """Return the ids of the items that the first ``count`` answers were about, but for skips.

        A skip leaves an item as it was.
        """
        in_order = self._select_columns(ITEMS.key, ANSWERS.kind).order_by(ANSWERS.id)
        rows = self._execute(in_order.limit(count))
        return {row.key for row in rows if row.kind != AnswerKind.SKIP}

    def count_since_newest_model(self) -> int:
        """Return how many answers the newest model does not know; 0 without a model."""
        model = self._transaction.models.newest_summary()
        if model is None:
            return 0
        return self.count() - int(model.facts["answers"])

    def count_items_by_kind(self) -> dict[AnswerKind, int]:
        """Return how many items have a live answer of each kind, without withdrawn items."""
        query = (
            self._select_columns(ANSWERS.kind, func.count(ANSWERS.item_id.distinct()))
            .where(ANSWERS.live, ITEMS.withdrawn.is_(None))
            .group_by(ANSWERS.kind)
        )
        counts = dict.fromkeys(AnswerKind, 0)
        for kind, count in self._execute(query):
            counts[AnswerKind(kind)] = count

        return counts

    def newest_row_id(self) -> int:
        """Return the row id of the newest answer; 0 before the first."""
        query = self._select_columns(func.max(ANSWERS.id))
        return int(self._scalar(query) or 0)

    def count_labels_after(self, *, row_id: int | None = None, time: str | None = None) -> int:
        """Return how many live labels were given after an answer, or after a time as stored."""
        if row_id is None:
            is_later = ANSWERS.at > time
        else:
            is_later = ANSWERS.id > row_id
        is_label = ANSWERS.kind == AnswerKind.LABEL
        query = self._select_columns(ANSWERS.id).where(ANSWERS.live, is_label, is_later)
        return self._count(query)

    def has_several_annotators(self) -> bool:
        """Return whether two or more annotators have answered; a file is no annotator."""
        # The index gives the names in all campaigns of the database at once. That is often enough.
        everywhere = self._scalars(select(ANSWERS.annotator).distinct())
        if len(set(everywhere) - {IMPORTED}) < 2:
            return False

        in_campaign = self._select_columns(ANSWERS.annotator)
        here = self._scalars(in_campaign.distinct())
        return len(set(here) - {IMPORTED}) > 1

    def label_times(self) -> list[str]:
        """Return when each live label was given, oldest first."""
        is_label = ANSWERS.kind == AnswerKind.LABEL
        query = self._select_columns(ANSWERS.at).where(ANSWERS.live, is_label)
        return list(self._scalars(query.order_by(ANSWERS.at)))

    def times_by_annotator(self) -> dict[str, list[str]]:
        """Return when each annotator gave their answers, in the order in which they were stored.

        Answers in bulk have the time of their key press once.
        """
        answers = self._select_columns(ANSWERS.annotator, ANSWERS.at)
        query = answers.where(ANSWERS.bulk.is_(None)).order_by(ANSWERS.id)

        times: dict[str, list[str]] = {}
        for row in self._execute(query):
            times.setdefault(row.annotator, []).append(row.at)

        return times


def _undo_result(row: Row[Any], before: Row[Any] | None, count: int = 1) -> UndoResult:
    earlier = None
    if before is not None:
        earlier = _answer(before)
    return UndoResult(_answer(row), earlier, count)


def _answer(row: Row[Any]) -> Answer:
    kind = AnswerKind(row.kind)
    return Answer(
        row.key,
        row.annotator,
        kind,
        row.label,
        row.comment,
        row.id,
        row.at,
        AnswerOrigin(row.origin),
    )


class DecisionQueries(Queries):
    """The decisions of a campaign. The last one about an item is live."""

    def record(self, decision: Decision) -> int:
        """Store a decision, which replaces any earlier one, and return its row id.

        Raises:
            UnknownNameError: there is no such item or class.
        """
        item = self._transaction.items.get(decision.item)
        class_id = None
        if decision.label is not None:
            class_id = self._transaction.classes.row_id(decision.label)

        # At most one decision about an item is live, no matter who made it.
        earlier = DECISIONS.item_id == item.row_id
        self._update(
            schema.decisions,
            earlier,
            DECISIONS.live,
            live=False,
        )

        number = self._insert(
            schema.decisions,
            item_id=item.row_id,
            reviewer=decision.reviewer,
            at=self._transaction.now(),
            class_id=class_id,
            comment=decision.comment,
            live=True,
            undone=False,
        )
        detail = {
            "decision": number,
            "label": decision.label,
            "comment": decision.comment,
        }
        self._note(decision.reviewer, "decided", detail, decision.item)
        self._transaction.picks.update_missing([item.row_id])
        return number

    def undo(self, reviewer: str, number: int | None = None) -> Decision | None:
        """Take back the last decision of a reviewer, so that the one before it holds again.

        Args:
            reviewer: the reviewer.
            number: take back this decision, unless the reviewer has decided since.

        Returns:
            The decision; None if the reviewer has none, or has decided since.

        Raises:
            UnknownResourceError: there is no decision of this number.
            PermissionDeniedError: another reviewer made it.
        """
        by_reviewer = self._last_first().where(DECISIONS.reviewer == reviewer)
        last = self._first(by_reviewer.limit(1))
        is_last = last is not None and last.id == number
        if number is not None and not is_last:
            newest = 0
            if last is not None:
                newest = last.id
            return self._find_undone(reviewer, number, newest)
        if last is None:
            return None

        self._update(
            schema.decisions,
            DECISIONS.id == last.id,
            undone=True,
            live=False,
        )

        # A decision that was replaced since leaves the later one live.
        if last.live:
            about_item = self._last_first().where(DECISIONS.item_id == last.item_id)
            before = self._first(about_item.limit(1))
            if before is not None:
                self._update(
                    schema.decisions,
                    DECISIONS.id == before.id,
                    live=True,
                )

        detail = {"decision": last.id}
        self._note(reviewer, "decision undone", detail, last.key)
        self._transaction.picks.update_missing([last.item_id])
        return _decision(last)

    def _find_undone(self, reviewer: str, number: int, newest: int) -> Decision | None:
        """Return a decision that was taken back, if the reviewer's newest one is not later.

        So an undo that is sent again, after a lost reply, is answered as before.
        """
        row = self._first(self._select().where(DECISIONS.id == number))
        if row is None:
            raise UnknownResourceError(f"There is no decision {number}.")
        if row.reviewer != reviewer:
            raise PermissionDeniedError(
                f"Decision {number} is not by {reviewer}: only who decided can take it back."
            )
        if not row.undone or newest >= number:
            return None
        return _decision(row)

    def live(self) -> dict[str, Decision]:
        """Return all live decisions by item id."""
        # At most one decision about an item is live, as with answers.
        query = self._select().where(DECISIONS.live).order_by(DECISIONS.id)
        return {row.key: _decision(row) for row in self._execute(query)}

    def items_decided_until(self, time: str) -> set[str]:
        """Return the ids of the items that a reviewer had decided about at a time."""
        earlier = self._select().where(DECISIONS.at <= time)
        return set(self._scalars(earlier.with_only_columns(ITEMS.key)))

    def for_item(self, item_id: str) -> Decision | None:
        """Return the live decision about an item, or None.

        Raises:
            UnknownItemError: there is no such item.
        """
        item = self._transaction.items.get(item_id)
        is_about_item = DECISIONS.item_id == item.row_id
        row = self._first(self._select().where(DECISIONS.live, is_about_item))
        if row is None:
            return None
        return _decision(row)

    def recent(self, reviewer: str, count: int) -> list[Decision]:
        """Return the last decisions of a reviewer that were not taken back, newest first."""
        by_reviewer = self._last_first().where(DECISIONS.reviewer == reviewer)
        rows = self._execute(by_reviewer.limit(count))
        return [_decision(row) for row in rows]

    def _last_first(self) -> Select[Any]:
        holding = self._select().where(DECISIONS.undone.is_(False))
        return holding.order_by(DECISIONS.id.desc())

    def _select(self) -> Select[Any]:
        """Select decisions with the ids of their items and the names of their classes."""
        return (
            select(schema.decisions, ITEMS.key, CLASSES.name.label("label"))
            .join(schema.items)
            .join(schema.classes, isouter=True)
            .where(self._in_campaign())
        )


def _decision(row: Row[Any]) -> Decision:
    return Decision(row.key, row.label, row.reviewer, row.comment, row.id, row.at)
