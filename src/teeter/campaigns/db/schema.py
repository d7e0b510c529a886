"""The tables of a campaign's database, as they are today; migrations lead here from every older version."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
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
    text,
)

__all__ = [
    "answers",
    "batches",
    "campaigns",
    "classes",
    "decisions",
    "features",
    "history",
    "items",
    "label_studio",
    "label_studio_answers",
    "metadata",
    "models",
    "people",
    "picks",
]

metadata = MetaData()


def _of_campaign() -> Column[int]:
    return Column("campaign_id", Integer, ForeignKey("campaigns.id"), nullable=False)


campaigns = Table(
    "campaigns",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("created", Text, nullable=False),
    Column("settings", Text, nullable=False),  # JSON
)

classes = Table(
    "classes",
    metadata,
    Column("id", Integer, primary_key=True),
    _of_campaign(),
    Column("position", Integer, nullable=False),
    Column("name", Text, nullable=False),
    UniqueConstraint("campaign_id", "name"),
)

items = Table(
    "items",
    metadata,
    Column("id", Integer, primary_key=True),
    _of_campaign(),
    Column("key", Text, nullable=False),  # the id that people know it by
    Column("kind", Text, nullable=False),  # text, image or features
    Column("content", Text),  # the text, or the path inside the campaign's folder
    Column("digest", Text, nullable=False),
    Column(
        "audit", Boolean, nullable=False, default=False
    ),  # kept apart to measure with, never to train on
    Column("added", Text, nullable=False),
    Column(
        "people", Integer, nullable=False, server_default=text("1")
    ),  # how many are to answer it
    Column(
        "missing", Integer, nullable=False, server_default=text("0")
    ),  # how many more are to be asked
    UniqueConstraint("campaign_id", "key"),
    Index("items_by_digest", "campaign_id", "digest"),
    Index("items_by_missing", "campaign_id", "missing"),
)

features = Table(
    "features",
    metadata,
    Column("item_id", Integer, ForeignKey("items.id"), primary_key=True),
    Column("vector", LargeBinary, nullable=False),  # float32
)

models = Table(
    "models",
    metadata,
    Column("id", Integer, primary_key=True),
    _of_campaign(),
    Column("version", Integer, nullable=False),
    Column("trained", Text, nullable=False),
    Column("weights", LargeBinary, nullable=False),  # safetensors
    Column("facts", Text, nullable=False),  # JSON
    UniqueConstraint("campaign_id", "version"),
)

batches = Table(
    "batches",
    metadata,
    Column("id", Integer, primary_key=True),
    _of_campaign(),
    Column("annotator", Text, nullable=False),  # empty: picked ahead, for whoever asks next
    Column("asked", Text, nullable=False),
    Column("strategy", Text, nullable=False),
    Column("seed", BigInteger().with_variant(Integer, "sqlite"), nullable=False),
    Column("model_version", Integer, nullable=False),  # 0 before there is a model
    Column("due", Text),  # when the lease ends; empty: never
    Index("batches_by_due", "campaign_id", "due"),
    Index("batches_by_annotator", "campaign_id", "annotator"),
)

picks = Table(
    "picks",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("batch_id", Integer, ForeignKey("batches.id"), nullable=False),
    Column("item_id", Integer, ForeignKey("items.id"), nullable=False),
    Column("rank", Integer, nullable=False),
    Column("arm", Text, nullable=False),  # picked, control, audit or second look
    Column("reason", Text, nullable=False),  # JSON
    Column("state", Text, nullable=False),  # ready, open, answered, skipped, returned or known
    Index("picks_by_item", "item_id"),
    Index("picks_by_state", "state", "batch_id"),
)

answers = Table(
    "answers",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("item_id", Integer, ForeignKey("items.id"), nullable=False),
    Column("pick_id", Integer, ForeignKey("picks.id")),
    Column("annotator", Text, nullable=False),
    Column("at", Text, nullable=False),
    Column("kind", Text, nullable=False),  # label, skip, unsure or bad
    Column("class_id", Integer, ForeignKey("classes.id")),
    Column("comment", Text),
    Column("live", Boolean, nullable=False),  # what this annotator says of the item now
    Column("undone", Boolean, nullable=False, default=False),
    Index("answers_by_item", "item_id", "annotator"),
    Index("answers_by_annotator", "annotator", "id"),
)

decisions = Table(
    "decisions",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("item_id", Integer, ForeignKey("items.id"), nullable=False),
    Column("reviewer", Text, nullable=False),
    Column("at", Text, nullable=False),
    Column("class_id", Integer, ForeignKey("classes.id")),  # empty: the item does not belong
    Column("comment", Text),
    Column("live", Boolean, nullable=False),
    Column("undone", Boolean, nullable=False),
    Index("decisions_by_item", "item_id"),
)

people = Table(
    "people",
    metadata,
    Column("id", Integer, primary_key=True),
    _of_campaign(),
    Column("name", Text, nullable=False),
    Column("role", Text, nullable=False),  # annotator, reviewer or owner
    Column("token", Text),  # its hash; empty: none, or taken away
    Column("added", Text, nullable=False),
    Column("removed", Text),
    UniqueConstraint("campaign_id", "name"),
    Index("people_by_token", "token"),
)

label_studio = Table(
    "label_studio",
    metadata,
    Column("id", Integer, primary_key=True),
    _of_campaign(),
    Column("url", Text, nullable=False),
    Column("mark", Text, nullable=False),  # stands in the project's description
    Column("project", Integer),  # its number there; empty: not made yet, or nobody noted it
    Column("made", Text, nullable=False),
    Column("busy", Text),  # until when somebody is at it; empty: nobody is
    Index("label_studio_by_campaign", "campaign_id"),
)

label_studio_answers = Table(
    "label_studio_answers",
    metadata,
    Column("id", Integer, primary_key=True),
    _of_campaign(),
    Column("link_id", Integer, ForeignKey("label_studio.id"), nullable=False),
    Column("task", Integer, nullable=False),
    Column("annotation", Integer, nullable=False),
    Column("answer_id", Integer, ForeignKey("answers.id"), nullable=False),
    Column("gone", Boolean, nullable=False),  # deleted there, and taken back here
    Index("label_studio_answers_by_annotation", "link_id", "annotation"),
)

history = Table(
    "history",
    metadata,
    Column("id", Integer, primary_key=True),
    _of_campaign(),
    Column("at", Text, nullable=False),
    Column("who", Text, nullable=False),
    Column("what", Text, nullable=False),
    Column("item", Text),
    Column("detail", Text, nullable=False),  # JSON
)
