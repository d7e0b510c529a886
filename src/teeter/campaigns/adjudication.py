"""Items on which people disagree, and the reviewers' decisions that settle them.

Every function works inside the transaction of the connection it is given.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, Select, insert, select, update

from teeter.campaigns.db import schema
from teeter.campaigns.db.repository import Answer, CampaignRepository

__all__ = ["Decision", "Disagreement", "contested", "decisions", "undo_decision", "write_decision"]


@dataclass(frozen=True)
class Decision:
    """What a reviewer says that an item is."""

    item: str
    label: str | None
    """None: it does not belong in the campaign."""
    reviewer: str
    comment: str | None = None


@dataclass(frozen=True)
class Disagreement:
    """An item of which people say different things."""

    item: str
    content: str | None
    said: dict[str, str]
    """By annotator: a class, or bad."""
    label: str | None
    """What it counts as until somebody decides."""
    confidence: float


def contested(answers: Iterable[Answer]) -> dict[str, dict[str, str]]:
    """Return who says what of the items on which two people differ: on the class, or on whether they belong."""
    said: dict[str, dict[str, str]] = {}
    for one in answers:
        if one.kind in ("label", "bad"):
            said.setdefault(one.item, {})[one.annotator] = one.label or one.kind
    return {item: by for item, by in said.items() if len(set(by.values())) > 1}


def write_decision(
    repository: CampaignRepository, connection: Connection, decision: Decision
) -> int:
    """Write a decision, in the place of any before it, and return its number."""
    item = repository.item(connection, decision.item)
    number = None if decision.label is None else repository.class_number(connection, decision.label)
    of_item = schema.decisions.c.item_id == item.id
    connection.execute(
        update(schema.decisions).where(of_item, schema.decisions.c.live).values(live=False)
    )
    values = {
        "item_id": item.id,
        "reviewer": decision.reviewer,
        "at": repository.now(),
        "class_id": number,
        "comment": decision.comment,
        "live": True,
        "undone": False,
    }
    (written,) = connection.execute(
        insert(schema.decisions).values(values)
    ).inserted_primary_key or (0,)
    detail = {"decision": written, "label": decision.label, "comment": decision.comment}
    repository.note(connection, decision.reviewer, "decided", decision.item, detail)
    repository.recount(connection, [item.id])
    return int(written)


def undo_decision(
    repository: CampaignRepository, connection: Connection, reviewer: str
) -> Decision | None:
    """Take back a reviewer's last decision, so that the one before it holds again; None if there is none."""
    table = schema.decisions
    standing = (
        _decisions(repository).where(table.c.undone.is_(False)).order_by(table.c.id.desc()).limit(1)
    )
    last = connection.execute(standing.where(table.c.reviewer == reviewer)).first()
    if last is None:
        return None
    connection.execute(update(table).where(table.c.id == last.id).values(undone=True, live=False))
    if last.live:
        before = connection.execute(standing.where(table.c.item_id == last.item_id)).first()
        if before is not None:
            connection.execute(update(table).where(table.c.id == before.id).values(live=True))
    repository.note(connection, reviewer, "decision undone", last.key, {"decision": last.id})
    repository.recount(connection, [last.item_id])
    return _decision(last)


def decisions(repository: CampaignRepository, connection: Connection) -> dict[str, Decision]:
    """Return the decisions that hold, by item."""
    rows = connection.execute(
        _decisions(repository).where(schema.decisions.c.live).order_by(schema.decisions.c.id)
    )
    return {row.key: _decision(row) for row in rows}


def _decisions(repository: CampaignRepository) -> Select[Any]:
    return (
        select(schema.decisions, schema.items.c.key, schema.classes.c.name.label("label"))
        .join(schema.items, schema.items.c.id == schema.decisions.c.item_id)
        .join(schema.classes, schema.classes.c.id == schema.decisions.c.class_id, isouter=True)
        .where(schema.items.c.campaign_id == repository.campaign)
    )


def _decision(row: Row[Any]) -> Decision:
    return Decision(row.key, row.label, row.reviewer, row.comment)
