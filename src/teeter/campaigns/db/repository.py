"""What people say of a campaign's items, what is taken back, and the models that learnt from it.

Every function works inside the transaction of the connection it is given.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import Connection, Row, Select, and_, func, insert, or_, select, update

from teeter.campaigns.db import schema
from teeter.campaigns.db.picks_repository import NOBODY, Pick, Questions
from teeter.campaigns.enums import AnswerKind
from teeter.errors import UnknownNameError
from teeter.registry import did_you_mean

__all__ = [
    "Answer",
    "AnswerReceipt",
    "CampaignRepository",
    "Kind",
    "Pick",
    "UndoResult",
    "live_answers",
]

Kind = AnswerKind | Literal["label", "skip", "unsure", "bad"]
"""What people can say of an item."""


@dataclass(frozen=True)
class Answer:
    """What somebody says of an item."""

    item: str
    annotator: str
    kind: Kind
    label: str | None = None
    comment: str | None = None


@dataclass(frozen=True)
class AnswerReceipt:
    """An answer that is written."""

    number: int
    late: bool = False
    """Whether the question had gone back before it was answered; the answer counts all the same."""
    asked_now: tuple[str, ...] = ()
    """Of a late answer: who else is asked about the item now."""


@dataclass(frozen=True)
class UndoResult:
    """An answer that was taken back, and what holds instead."""

    answer: Answer
    before: Answer | None


class CampaignRepository(Questions):
    """All rows of one campaign."""

    def answer(
        self,
        connection: Connection,
        answer: Answer,
        *,
        asked: str | None = None,
        at: str | None = None,
    ) -> AnswerReceipt:
        """Write an answer; what the same annotator said of the item before stays written, and no longer holds.

        ``asked`` is in whose name the question went out, where that is not the annotator's; ``at`` when it was
        answered, where that is not now.
        """
        asked = asked or answer.annotator
        item = self.item(connection, answer.item)
        number = None
        if answer.kind == "label":
            number = self.class_number(connection, answer.label)
        mine = and_(
            schema.answers.c.item_id == item.id, schema.answers.c.annotator == answer.annotator
        )
        connection.execute(
            update(schema.answers).where(mine, schema.answers.c.live).values(live=False)
        )
        pick = self._own_pick(connection, item.id, asked)
        late = pick is not None and pick.state == "returned"
        values = {
            "item_id": item.id,
            "pick_id": None if pick is None else pick.id,
            "annotator": answer.annotator,
            "at": at or self.now(),
            "kind": answer.kind,
            "class_id": number,
            "comment": answer.comment,
            "live": True,
            "undone": False,
        }
        (written,) = connection.execute(
            insert(schema.answers).values(values)
        ).inserted_primary_key or (0,)
        if pick is not None:
            state = "skipped" if answer.kind == "skip" else "answered"
            connection.execute(
                update(schema.picks).where(schema.picks.c.id == pick.id).values(state=state)
            )
        detail = {
            "answer": written,
            "kind": answer.kind,
            "label": answer.label,
            "comment": answer.comment,
        }
        self.note(
            connection,
            answer.annotator,
            "answer",
            answer.item,
            detail | ({"late": True} if late else {}),
        )
        self._unready(connection, [item.id])
        self.renew(connection, asked)
        if item.people > 1:
            self.recount(connection, [item.id])
        others = self._others_asked(connection, item.id, asked) if late else []
        return AnswerReceipt(int(written), late, tuple(others))

    def class_number(self, connection: Connection, label: str | None) -> int:
        """Return the number of the class called so."""
        known = self.classes(connection)
        if label not in known:
            raise UnknownNameError(
                f"No class is called {label!r}. {did_you_mean(str(label), list(known))}"
            )
        return known[label]

    def _own_pick(self, connection: Connection, item: int, annotator: str) -> Any:
        """Return the question that an answer is to: the one that is open, or the last that went back."""
        rows = connection.execute(
            select(schema.picks.c.id, schema.picks.c.state)
            .join(schema.batches, schema.batches.c.id == schema.picks.c.batch_id)
            .where(
                schema.picks.c.item_id == item,
                schema.picks.c.state.in_(("open", "returned")),
                schema.batches.c.annotator == annotator,
            )
            .order_by(schema.picks.c.id)
        ).all()
        still_open = [row for row in rows if row.state == "open"]
        return still_open[0] if still_open else rows[-1] if rows else None

    def _others_asked(self, connection: Connection, item: int, annotator: str) -> list[str]:
        """Return who else has an open question about an item."""
        return list(
            connection.scalars(
                select(schema.batches.c.annotator)
                .join(schema.picks, schema.picks.c.batch_id == schema.batches.c.id)
                .where(
                    schema.picks.c.item_id == item,
                    schema.picks.c.state == "open",
                    schema.batches.c.annotator != annotator,
                )
                .order_by(schema.batches.c.annotator)
            )
        )

    def undo(self, connection: Connection, annotator: str) -> UndoResult | None:
        """Take back an annotator's last answer that was not taken back; None if there is none.

        What they said of the item before holds again, and if it was asked about, it is open again.
        """
        mine = and_(schema.answers.c.annotator == annotator, schema.answers.c.undone.is_(False))
        last = connection.execute(
            self._answers().where(mine).order_by(schema.answers.c.id.desc()).limit(1)
        ).first()
        if last is None:
            return None
        undone = self._taken_back(connection, last)
        if last.pick_id is not None:
            self._reopen(connection, last.pick_id, last.item_id)
        self.recount(connection, [last.item_id])
        return undone

    def withdraw(self, connection: Connection, number: int) -> UndoResult | None:
        """Take back an answer by its number, whatever was answered since; None if it was taken back before.

        It is asked again where nobody says anything else of the item, or several are to.
        """
        standing = and_(schema.answers.c.id == number, schema.answers.c.undone.is_(False))
        row = connection.execute(self._answers().where(standing)).first()
        if row is None:
            return None
        undone = self._taken_back(connection, row)
        said = [one for one in self.answers_of(connection, row.item_id) if one.kind != "skip"]
        if (
            row.pick_id is not None
            and row.live
            and (not said or self._is_shared(connection, row.item_id))
        ):
            self._reopen(connection, row.pick_id, row.item_id)
        self.recount(connection, [row.item_id])
        return undone

    def _taken_back(self, connection: Connection, row: Row[Any]) -> UndoResult:
        """Note that an answer no longer holds; the one before it does, if this one did."""
        same = schema.answers.c.id == row.id
        connection.execute(update(schema.answers).where(same).values(undone=True, live=False))
        mine = and_(
            schema.answers.c.annotator == row.annotator, schema.answers.c.item_id == row.item_id
        )
        standing = self._answers().where(mine, schema.answers.c.undone.is_(False))
        before = connection.execute(standing.order_by(schema.answers.c.id.desc()).limit(1)).first()
        if before is not None and row.live:
            connection.execute(
                update(schema.answers).where(schema.answers.c.id == before.id).values(live=True)
            )
        self.note(connection, row.annotator, "undo", row.key, {"answer": row.id})
        return UndoResult(_answer(row), None if before is None else _answer(before))

    def _is_shared(self, connection: Connection, item: int) -> bool:
        """Tell whether several people are to answer an item."""
        return bool(
            connection.scalar(select(schema.items.c.people).where(schema.items.c.id == item)) != 1
        )

    def _reopen(self, connection: Connection, pick: int, item: int) -> None:
        """Ask again what was taken back, unless somebody else is asked about it by now, and nobody besides."""
        of_pick = select(schema.batches.c.annotator).join(
            schema.picks, schema.picks.c.batch_id == schema.batches.c.id
        )
        holder = str(connection.scalar(of_pick.where(schema.picks.c.id == pick)))
        own = select(schema.batches.c.id).where(
            schema.batches.c.campaign_id == self.campaign, schema.batches.c.annotator == holder
        )
        again = and_(
            schema.picks.c.item_id == item,
            schema.picks.c.id != pick,
            schema.picks.c.state == "open",
            schema.picks.c.batch_id.in_(own),
        )
        connection.execute(
            update(schema.picks).where(again).values(state="returned")
        )  # one question an item is enough
        alone = not self._others_asked(connection, item, holder)
        state = "open" if alone or self._is_shared(connection, item) else "returned"
        connection.execute(
            update(schema.picks).where(schema.picks.c.id == pick).values(state=state)
        )
        self._unready(connection, [item])
        self.renew(connection, holder)

    def answers(self, connection: Connection) -> list[Answer]:
        """Return what holds now: the last answer of each annotator on each item, in the order of answering."""
        rows = connection.execute(
            self._answers().where(schema.answers.c.live).order_by(schema.answers.c.id)
        )
        return [_answer(row) for row in rows]

    def answers_of(self, connection: Connection, item: int) -> list[Answer]:
        """Return what holds of one item, by its number, in the order of answering."""
        of_item = and_(schema.answers.c.live, schema.answers.c.item_id == item)
        return [
            _answer(row)
            for row in connection.execute(
                self._answers().where(of_item).order_by(schema.answers.c.id)
            )
        ]

    def last_answers(self, connection: Connection, annotator: str, count: int) -> list[Answer]:
        """Return an annotator's last answers that hold, the newest first."""
        mine = and_(schema.answers.c.live, schema.answers.c.annotator == annotator)
        rows = connection.execute(
            self._answers().where(mine).order_by(schema.answers.c.id.desc()).limit(count)
        )
        return [_answer(row) for row in rows]

    def _answers(self) -> Select[Any]:
        return (
            select(schema.answers, schema.items.c.key, schema.classes.c.name.label("label"))
            .join(schema.items, schema.items.c.id == schema.answers.c.item_id)
            .join(schema.classes, schema.classes.c.id == schema.answers.c.class_id, isouter=True)
            .where(schema.items.c.campaign_id == self.campaign)
        )

    def write_model(
        self, connection: Connection, weights: bytes, facts: Mapping[str, Any], who: str
    ) -> int:
        """Write a trained model, and return its version."""
        version = self.newest_version(connection) + 1
        facts = {**facts, "answers": self._count_answers(connection)}
        values = {
            "campaign_id": self.campaign,
            "version": version,
            "trained": self.now(),
            "weights": weights,
            "facts": json.dumps(dict(facts)),
        }
        connection.execute(insert(schema.models).values(values))
        self.forget_picks_ahead(connection)
        self.note(connection, who, "trained", None, {"version": version, **facts})
        return version

    def model(self, connection: Connection) -> Row[Any] | None:
        """Return the newest model."""
        own = schema.models.c.campaign_id == self.campaign
        return connection.execute(
            select(schema.models).where(own).order_by(schema.models.c.version.desc()).limit(1)
        ).first()

    def models(self, connection: Connection) -> list[dict[str, Any]]:
        """Return what is known of every model, oldest first."""
        own = schema.models.c.campaign_id == self.campaign
        rows = connection.execute(
            select(schema.models.c.facts).where(own).order_by(schema.models.c.version)
        )
        return [json.loads(row.facts) for row in rows]

    def drawn_at_random(self, connection: Connection) -> set[str]:
        """Return the items that were asked about as random controls."""
        statement = (
            select(schema.items.c.key)
            .join(schema.picks, schema.picks.c.item_id == schema.items.c.id)
            .where(schema.items.c.campaign_id == self.campaign, schema.picks.c.arm == "control")
        )
        return set(connection.scalars(statement))

    def put_off(self, connection: Connection) -> set[str]:
        """Return the items that were skipped after the newest model was trained.

        Answers are counted, not timed: clocks go back, and two writers may have two.
        """
        columns = select(schema.models.c.facts, schema.models.c.trained)
        own = schema.models.c.campaign_id == self.campaign
        model = connection.execute(
            columns.where(own).order_by(schema.models.c.version.desc()).limit(1)
        ).first()
        facts = {} if model is None else json.loads(model.facts)
        newer = and_(schema.answers.c.live, schema.answers.c.kind == "skip")
        if "answers" in facts:
            first = connection.scalar(self._numbers().offset(facts["answers"]).limit(1))
            if first is None:
                return set()
            newer = and_(newer, schema.answers.c.id >= first)
        elif model is not None:  # of a version that did not count
            newer = and_(newer, schema.answers.c.at > model.trained)
        return {row.key for row in connection.execute(self._answers().where(newer))}

    def newer_answers(self, connection: Connection) -> int:
        """Return how many answers were given since the newest model was trained; 0 where it is not known."""
        facts = self.models(connection)[-1:]
        return (
            self._count_answers(connection) - facts[0]["answers"]
            if facts and "answers" in facts[0]
            else 0
        )

    def _numbers(self) -> Select[Any]:
        own = schema.items.c.campaign_id == self.campaign
        joined = schema.answers.join(schema.items, schema.items.c.id == schema.answers.c.item_id)
        return (
            select(schema.answers.c.id).select_from(joined).where(own).order_by(schema.answers.c.id)
        )

    def _count_answers(self, connection: Connection) -> int:
        """Return how many answers were ever given."""
        return int(
            connection.scalar(
                select(func.count()).select_from(self._numbers().order_by(None).subquery())
            )
            or 0
        )

    def count_batches(self, connection: Connection) -> int:
        """Return how many batches were asked for, or picked ahead; a turn to pick is none."""
        batches = schema.batches
        picked = or_(batches.c.annotator != NOBODY, batches.c.due.is_(None))
        own = and_(batches.c.campaign_id == self.campaign, picked)
        return int(connection.scalar(select(func.count()).select_from(batches).where(own)) or 0)

    def kept(self, connection: Connection) -> dict[str, str]:
        """Return the labels that were looked at again and kept, by item: as the history has it, in its own numbers."""
        undone = {
            (line["item"], line["who"], line["answer"]) for line in self.history(connection, "undo")
        }
        noted = self.history(connection, "kept")
        still = [
            line for line in noted if (line["item"], line["who"], line["answer"]) not in undone
        ]
        return {line["item"]: line["label"] for line in still}


def live_answers(history: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], Answer]:
    """Return what holds after a history, by item and annotator: the same as the answers written as live."""
    said: dict[tuple[str, str], list[tuple[int, Answer]]] = {}
    for line in history:
        place = (str(line["item"]), str(line["who"]))
        if line["what"] == "answer":
            answer = Answer(*place, line["kind"], line["label"], line["comment"])
            said.setdefault(place, []).append((line["answer"], answer))
        elif line["what"] == "undo":
            said[place] = [
                (number, answer) for number, answer in said[place] if number != line["answer"]
            ]
    return {place: answers[-1][1] for place, answers in said.items() if answers}


def _answer(row: Row[Any]) -> Answer:
    return Answer(row.key, row.annotator, row.kind, row.label, row.comment)
