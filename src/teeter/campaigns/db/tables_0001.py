"""The tables as the first version made them. They stay so: what changes is added as another migration."""

from __future__ import annotations

from sqlalchemy import (
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
)

__all__ = ["metadata"]

metadata = MetaData()


def _of_campaign() -> Column[int]:
    return Column("campaign_id", Integer, ForeignKey("campaigns.id"), nullable=False)


Table(
    "campaigns",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("created", Text, nullable=False),
    Column("settings", Text, nullable=False),
)

Table(
    "classes",
    metadata,
    Column("id", Integer, primary_key=True),
    _of_campaign(),
    Column("position", Integer, nullable=False),
    Column("name", Text, nullable=False),
    UniqueConstraint("campaign_id", "name"),
)

Table(
    "items",
    metadata,
    Column("id", Integer, primary_key=True),
    _of_campaign(),
    Column("key", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("content", Text),
    Column("digest", Text, nullable=False),
    Column("audit", Boolean, nullable=False, default=False),
    Column("added", Text, nullable=False),
    UniqueConstraint("campaign_id", "key"),
    Index("items_by_digest", "campaign_id", "digest"),
)

Table(
    "features",
    metadata,
    Column("item_id", Integer, ForeignKey("items.id"), primary_key=True),
    Column("vector", LargeBinary, nullable=False),
)

Table(
    "models",
    metadata,
    Column("id", Integer, primary_key=True),
    _of_campaign(),
    Column("version", Integer, nullable=False),
    Column("trained", Text, nullable=False),
    Column("weights", LargeBinary, nullable=False),
    Column("facts", Text, nullable=False),
    UniqueConstraint("campaign_id", "version"),
)

Table(
    "batches",
    metadata,
    Column("id", Integer, primary_key=True),
    _of_campaign(),
    Column("annotator", Text, nullable=False),
    Column("asked", Text, nullable=False),
    Column("strategy", Text, nullable=False),
    Column("seed", Integer, nullable=False),
    Column("model_version", Integer, nullable=False),
)

Table(
    "picks",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("batch_id", Integer, ForeignKey("batches.id"), nullable=False),
    Column("item_id", Integer, ForeignKey("items.id"), nullable=False),
    Column("rank", Integer, nullable=False),
    Column("arm", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("state", Text, nullable=False),
    Index("picks_by_item", "item_id"),
)

Table(
    "answers",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("item_id", Integer, ForeignKey("items.id"), nullable=False),
    Column("pick_id", Integer, ForeignKey("picks.id")),
    Column("annotator", Text, nullable=False),
    Column("at", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("class_id", Integer, ForeignKey("classes.id")),
    Column("comment", Text),
    Column("live", Boolean, nullable=False),
    Column("undone", Boolean, nullable=False, default=False),
    Index("answers_by_item", "item_id", "annotator"),
)

Table(
    "history",
    metadata,
    Column("id", Integer, primary_key=True),
    _of_campaign(),
    Column("at", Text, nullable=False),
    Column("who", Text, nullable=False),
    Column("what", Text, nullable=False),
    Column("item", Text),
    Column("detail", Text, nullable=False),
)
