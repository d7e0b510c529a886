"""What the third version added: leases, items asked of several, decisions and people. It stays so."""

from __future__ import annotations

from sqlalchemy import (
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
)

__all__ = ["CHANGES", "metadata"]

CHANGES = (
    "alter table items add column people integer default 1 not null",
    "alter table items add column missing integer default 0 not null",
    "create index items_by_missing on items (campaign_id, missing)",
    "alter table batches add column due text",
    "create index batches_by_due on batches (campaign_id, due)",
    "create index batches_by_annotator on batches (campaign_id, annotator)",
    "create index picks_by_state on picks (state, batch_id)",
    "create index answers_by_annotator on answers (annotator, id)",
)
"""Statements that SQLite and PostgreSQL both take."""

metadata = MetaData()

for _name in ("campaigns", "items", "classes"):  # what is there already, to be pointed to
    Table(_name, metadata, Column("id", Integer, primary_key=True))

Table(
    "decisions",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("item_id", Integer, ForeignKey("items.id"), nullable=False),
    Column("reviewer", Text, nullable=False),
    Column("at", Text, nullable=False),
    Column("class_id", Integer, ForeignKey("classes.id")),
    Column("comment", Text),
    Column("live", Boolean, nullable=False),
    Column("undone", Boolean, nullable=False),
    Index("decisions_by_item", "item_id"),
)

Table(
    "people",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("campaign_id", Integer, ForeignKey("campaigns.id"), nullable=False),
    Column("name", Text, nullable=False),
    Column("role", Text, nullable=False),
    Column("token", Text),
    Column("added", Text, nullable=False),
    Column("removed", Text),
    UniqueConstraint("campaign_id", "name"),
    Index("people_by_token", "token"),
)
