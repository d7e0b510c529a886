"""The decisions of reviewers, which settle what an item is.

All methods work inside the transaction of the connection they are given.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, Select, select, update

from teeter.campaigns.store import schema
from teeter.campaigns.store.queries.classes import ClassRepository
from teeter.campaigns.store.queries.history import HistoryRepository
from teeter.campaigns.store.queries.items import ItemRepository
from teeter.campaigns.store.queries.picks import PickRepository
from teeter.campaigns.store.schema import CLASSES, DECISIONS, ITEMS
from teeter.campaigns.store.scope import CampaignScope, insert_row

__all__ = ["Decision", "DecisionRepository"]


@dataclass(frozen=True)
class Decision:
    """What a reviewer decides that an item is."""

    item: str
    label: str | None
    """None: the item does not belong in the campaign."""
    reviewer: str
    comment: str | None = None


class DecisionRepository:
    """The decisions of a campaign. The last one about an item is live."""

    def __init__(
        self,
        scope: CampaignScope,
        *,
        items: ItemRepository,
        classes: ClassRepository,
        picks: PickRepository,
        history: HistoryRepository,
    ) -> None:
        self._scope = scope
        self._items = items
        self._classes = classes
        self._picks = picks
        self._history = history

    def record(self, connection: Connection, decision: Decision) -> int:
        """Store a decision, which replaces any earlier one, and return its row id.

        Raises:
            UnknownNameError: there is no such item or class.
        """
        item = self._items.get(connection, decision.item)
        class_id = None
        if decision.label is not None:
            class_id = self._classes.row_id(connection, decision.label)

        # At most one decision about an item is live, no matter who made it.
        earlier = DECISIONS.item_id == item.row_id
        connection.execute(
            update(schema.decisions).where(earlier, DECISIONS.live).values(live=False)
        )

        values = {
            "item_id": item.row_id,
            "reviewer": decision.reviewer,
            "at": self._scope.now(),
            "class_id": class_id,
            "comment": decision.comment,
            "live": True,
            "undone": False,
        }
        number = insert_row(connection, schema.decisions, values)

        detail = {
            "decision": number,
            "label": decision.label,
            "comment": decision.comment,
        }
        self._history.append(connection, decision.reviewer, "decided", decision.item, detail)
        self._picks.update_missing(connection, [item.row_id])
        return number

    def undo(self, connection: Connection, reviewer: str) -> Decision | None:
        """Take back the last decision of a reviewer, so that the one before it holds again.

        Returns:
            The decision, or None if the reviewer has none.
        """
        last_first = self._select().where(DECISIONS.undone.is_(False)).order_by(DECISIONS.id.desc())
        by_reviewer = last_first.where(DECISIONS.reviewer == reviewer).limit(1)
        last = connection.execute(by_reviewer).first()
        if last is None:
            return None

        undone = {"undone": True, "live": False}
        statement = update(schema.decisions).where(DECISIONS.id == last.id).values(undone)
        connection.execute(statement)

        # A decision that was replaced since leaves the later one live.
        if last.live:
            about_item = last_first.where(DECISIONS.item_id == last.item_id).limit(1)
            before = connection.execute(about_item).first()
            if before is not None:
                row = DECISIONS.id == before.id
                statement = update(schema.decisions).where(row).values(live=True)
                connection.execute(statement)

        detail = {"decision": last.id}
        self._history.append(connection, reviewer, "decision undone", last.key, detail)
        self._picks.update_missing(connection, [last.item_id])
        return _decision(last)

    def live(self, connection: Connection) -> dict[str, Decision]:
        """Return all live decisions by item id."""
        # At most one decision about an item is live, as with answers.
        query = self._select().where(DECISIONS.live).order_by(DECISIONS.id)
        rows = connection.execute(query)
        return {row.key: _decision(row) for row in rows}

    def items_decided_until(self, connection: Connection, time: str) -> set[str]:
        """Return the ids of the items that a reviewer had decided about at a time."""
        query = self._select().with_only_columns(ITEMS.key).where(DECISIONS.at <= time)
        return set(connection.scalars(query))

    def for_item(self, connection: Connection, item_id: str) -> Decision | None:
        """Return the live decision about an item, or None.

        Raises:
            UnknownItemError: there is no such item.
        """
        item = self._items.get(connection, item_id)
        query = self._select().where(
            DECISIONS.live,
            DECISIONS.item_id == item.row_id,
        )
        row = connection.execute(query).first()
        return None if row is None else _decision(row)

    def recent(self, connection: Connection, reviewer: str, count: int) -> list[Decision]:
        """Return the last decisions of a reviewer that were not taken back, newest first."""
        query = (
            self._select()
            .where(DECISIONS.reviewer == reviewer)
            .where(DECISIONS.undone.is_(False))
            .order_by(DECISIONS.id.desc())
            .limit(count)
        )
        rows = connection.execute(query)
        return [_decision(row) for row in rows]

    def _select(self) -> Select[Any]:
        """Select decisions with the ids of their items and the names of their classes."""
        return (
            select(schema.decisions, ITEMS.key, CLASSES.name.label("label"))
            .join(schema.items, ITEMS.id == DECISIONS.item_id)
            .join(schema.classes, CLASSES.id == DECISIONS.class_id, isouter=True)
            .where(ITEMS.campaign_id == self._scope.campaign_id)
        )


def _decision(row: Row[Any]) -> Decision:
    return Decision(row.key, row.label, row.reviewer, row.comment)
