"""What pages read of a campaign: counts, pages of items, single items and rounds, quick for 100,000 items too."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sqlalchemy import ColumnElement, Connection, Row, Select, and_, func, or_, select

from teeter.campaigns.db import schema
from teeter.campaigns.db.repository import Answer, CampaignRepository
from teeter.campaigns.settings import IMPORTED

__all__ = [
    "STATES",
    "ItemQuery",
    "answers_of",
    "count_labels",
    "counts",
    "is_blind",
    "item_numbers",
    "items_page",
    "last_answer",
    "newest_item",
    "newest_line",
    "picked_for",
    "rounds",
    "several_answered",
    "times_of_answers",
    "vector_of",
    "why_picked",
]

AT_RANDOM = ("control", "audit")
"""Arms that measure: what the model thinks of their items is not told, so that it leads nobody."""

STATES = ("all", "labelled", "unlabelled", "asked", "skipped", "unsure", "bad")
"""What the table of items can be narrowed to."""

_KINDS = {"labelled": "label", "skipped": "skip", "unsure": "unsure", "bad": "bad"}


@dataclass(frozen=True)
class ItemQuery:
    """Which items to list."""

    search: str = ""
    label: str | None = None
    """A class: items that somebody gave it, or that were decided to be of it."""
    state: str = "all"
    after: int | None = None
    """The number of the item that the page begins behind."""
    before: int | None = None
    """The number of the item that the page ends before."""
    count: int = 50


def items_page(
    repository: CampaignRepository, connection: Connection, wanted: ItemQuery
) -> list[Row[Any]]:
    """Return items in their order: so many behind one number, or before another."""
    items = schema.items
    statement = select(items).where(
        items.c.campaign_id == repository.campaign, *_narrowed(repository, connection, wanted)
    )
    if wanted.before is not None:
        statement = (
            statement.where(items.c.id < wanted.before)
            .order_by(items.c.id.desc())
            .limit(wanted.count)
        )
        return list(reversed(connection.execute(statement).all()))
    if wanted.after is not None:
        statement = statement.where(items.c.id > wanted.after)
    return list(connection.execute(statement.order_by(items.c.id).limit(wanted.count)).all())


def _narrowed(
    repository: CampaignRepository, connection: Connection, wanted: ItemQuery
) -> list[ColumnElement[bool]]:
    items, answers = schema.items, schema.answers
    terms: list[ColumnElement[bool]] = []
    if wanted.search:
        terms.append(
            or_(_holds(items.c.content, wanted.search), _holds(items.c.key, wanted.search))
        )
    if wanted.label is not None:
        number = repository.classes(connection).get(wanted.label, -1)
        said = select(answers.c.item_id).where(answers.c.live, answers.c.class_id == number)
        decided = select(schema.decisions.c.item_id).where(
            schema.decisions.c.live, schema.decisions.c.class_id == number
        )
        terms.append(or_(items.c.id.in_(said), items.c.id.in_(decided)))
    if wanted.state in _KINDS:
        said = select(answers.c.item_id).where(
            answers.c.live, answers.c.kind == _KINDS[wanted.state]
        )
        terms.append(items.c.id.in_(said))
    if wanted.state == "unlabelled":
        said = select(answers.c.item_id).where(answers.c.live, answers.c.kind == "label")
        terms.append(items.c.id.not_in(said))
    if wanted.state == "asked":
        terms.append(
            items.c.id.in_(select(schema.picks.c.item_id).where(schema.picks.c.state == "open"))
        )
    return terms


def _holds(column: Any, text: str) -> ColumnElement[bool]:
    found: ColumnElement[bool] = column.icontains(text, autoescape=True)
    return found


def answers_of(
    repository: CampaignRepository, connection: Connection, items: Sequence[int]
) -> dict[int, list[Answer]]:
    """Return what people say now of items, by their numbers."""
    found: dict[int, list[Answer]] = {number: [] for number in items}
    chosen = and_(schema.answers.c.item_id.in_(items), schema.answers.c.live)
    for row in connection.execute(_answers(repository).where(chosen).order_by(schema.answers.c.id)):
        found[row.item_id].append(Answer(row.key, row.annotator, row.kind, row.label, row.comment))
    return found


def _answers(repository: CampaignRepository) -> Select[Any]:
    answers, items, classes = schema.answers, schema.items, schema.classes
    return (
        select(answers, items.c.key, classes.c.name.label("label"))
        .join(items, items.c.id == answers.c.item_id)
        .join(classes, classes.c.id == answers.c.class_id, isouter=True)
        .where(items.c.campaign_id + 0 == repository.campaign)
    )


def _of_campaign(repository: CampaignRepository, *columns: Any) -> Select[Any]:
    """Return a selection from a campaign's answers."""
    joined = schema.answers.join(schema.items, schema.items.c.id == schema.answers.c.item_id)
    # + 0, so that SQLite does not begin with all items of the campaign, but with the answers, which are fewer.
    return (
        select(*columns)
        .select_from(joined)
        .where(schema.items.c.campaign_id + 0 == repository.campaign)
    )


def counts(repository: CampaignRepository, connection: Connection) -> dict[str, int]:
    """Return how many items have a label, and how many a last word of another kind."""
    one = func.count(func.distinct(schema.answers.c.item_id))
    rows = connection.execute(
        _of_campaign(repository, schema.answers.c.kind, one)
        .where(schema.answers.c.live)
        .group_by(schema.answers.c.kind)
    )
    said = {str(kind): int(count) for kind, count in rows}
    return {
        "labelled": said.get("label", 0),
        "skipped": said.get("skip", 0),
        "unsure": said.get("unsure", 0),
        "bad": said.get("bad", 0),
    }


def why_picked(arm: str, rank: int, reason: Mapping[str, Any]) -> dict[str, Any]:
    """Return how an item came to be asked about, as the page may tell it."""
    return {"arm": arm, "rank": rank, **({} if arm in AT_RANDOM else reason)}


def is_blind(question: Mapping[str, Any]) -> bool:
    """Tell whether a question must not say what the model thinks."""
    return question["arm"] in AT_RANDOM or bool(question.get("shared"))


def picked_for(
    repository: CampaignRepository, connection: Connection, annotator: str, items: Sequence[int]
) -> dict[int, dict[str, Any]]:
    """Return how items came to be asked of an annotator last, by their numbers; not those that never were."""
    picks, batches = schema.picks, schema.batches
    rows = connection.execute(
        select(picks.c.item_id, picks.c.arm, picks.c.rank, picks.c.reason)
        .join(batches, batches.c.id == picks.c.batch_id)
        .where(picks.c.item_id.in_(items), picks.c.state != "known")
        .where(batches.c.campaign_id == repository.campaign, batches.c.annotator == annotator)
        .order_by(picks.c.id)
    )
    return {row.item_id: why_picked(row.arm, row.rank, json.loads(row.reason)) for row in rows}


def newest_item(connection: Connection) -> int:
    """Return the number of the item that was added last, to any campaign of the database."""
    return int(connection.scalar(select(func.max(schema.items.c.id))) or 0)


def newest_line(repository: CampaignRepository, connection: Connection) -> int:
    """Return the number of the last line of the history: whatever is said or decided adds one."""
    history = schema.history
    own = history.c.campaign_id == repository.campaign
    return int(connection.scalar(select(func.max(history.c.id)).where(own)) or 0)


def count_labels(
    repository: CampaignRepository, connection: Connection, *, after: int = -1, since: str = ""
) -> int:
    """Return how many labels hold that were given after an answer's number, or since a time."""
    answers = schema.answers
    chosen = and_(
        answers.c.live, answers.c.kind == "label", answers.c.id > after, answers.c.at > since
    )
    return int(connection.scalar(_of_campaign(repository, func.count()).where(chosen)) or 0)


def last_answer(repository: CampaignRepository, connection: Connection) -> int:
    """Return the number of the newest answer; -1 if there is none."""
    found = connection.scalar(_of_campaign(repository, func.max(schema.answers.c.id)))
    return -1 if found is None else int(found)


def several_answered(repository: CampaignRepository, connection: Connection) -> bool:
    """Tell whether two people or more have answered."""
    names = connection.scalars(
        select(schema.answers.c.annotator).distinct()
    )  # by the index, of all campaigns
    if len(set(names) - {IMPORTED}) < 2:
        return False
    ours = connection.scalars(_of_campaign(repository, schema.answers.c.annotator).distinct())
    return len(set(ours) - {IMPORTED}) > 1


def times_of_answers(repository: CampaignRepository, connection: Connection) -> list[str]:
    """Return when each label that holds was given, oldest first."""
    chosen = and_(schema.answers.c.live, schema.answers.c.kind == "label")
    return list(
        connection.scalars(
            _of_campaign(repository, schema.answers.c.at).where(chosen).order_by("at")
        )
    )


def rounds(repository: CampaignRepository, connection: Connection) -> list[dict[str, Any]]:
    """Return what is known of each model, and when it was trained; oldest first."""
    models = schema.models
    rows = connection.execute(
        select(models.c.version, models.c.trained, models.c.facts)
        .where(models.c.campaign_id == repository.campaign)
        .order_by(models.c.version)
    )
    return [
        {"version": row.version, "trained": row.trained, **json.loads(row.facts)} for row in rows
    ]


def item_numbers(repository: CampaignRepository, connection: Connection) -> list[int]:
    """Return the numbers of the items that have features, in their order: those that a model knows by their place."""
    return list(
        connection.scalars(
            select(schema.items.c.id)
            .join(schema.features, schema.features.c.item_id == schema.items.c.id)
            .where(schema.items.c.campaign_id == repository.campaign)
            .order_by(schema.items.c.id)
        )
    )


def vector_of(connection: Connection, item: int) -> list[float] | None:
    """Return an item's features; None if it has none."""
    kept = connection.scalar(
        select(schema.features.c.vector).where(schema.features.c.item_id == item)
    )
    return (
        None
        if kept is None
        else [round(float(value), 5) for value in np.frombuffer(kept, dtype=np.float32)]
    )
