"""What the fourth version added: the project in Label Studio, and which answers came from it. It stays so."""

from __future__ import annotations

from sqlalchemy import Boolean, Column, ForeignKey, Index, Integer, MetaData, Table, Text

__all__ = ["metadata"]

metadata = MetaData()

for _name in ("campaigns", "answers"):  # what is there already, to be pointed to
    Table(_name, metadata, Column("id", Integer, primary_key=True))

Table(
    "label_studio",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("campaign_id", Integer, ForeignKey("campaigns.id"), nullable=False),
    Column("url", Text, nullable=False),
    Column("mark", Text, nullable=False),
    Column("project", Integer),
    Column("made", Text, nullable=False),
    Column("busy", Text),
    Index("label_studio_by_campaign", "campaign_id"),
)

Table(
    "label_studio_answers",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("campaign_id", Integer, ForeignKey("campaigns.id"), nullable=False),
    Column("link_id", Integer, ForeignKey("label_studio.id"), nullable=False),
    Column("task", Integer, nullable=False),
    Column("annotation", Integer, nullable=False),
    Column("answer_id", Integer, ForeignKey("answers.id"), nullable=False),
    Column("gone", Boolean, nullable=False),
    Index("label_studio_answers_by_annotation", "link_id", "annotation"),
)
