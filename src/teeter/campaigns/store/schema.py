"""The tables of a campaign's database. The initial migration creates them; later ones change them.

Times are texts as ``database.format_time`` writes them. States, kinds and roles are the values of
the enums in ``campaigns.records``.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.schema import SchemaItem

MAX_ROW_ID = 2**31 - 1
"""The largest row id. PostgreSQL's integers have 32 bits, and it refuses larger ones in a query."""

metadata = MetaData()


def _text(name: str) -> Column[str]:
    return Column(name, Text, nullable=False)


def _integer(name: str) -> Column[int]:
    return Column(name, Integer, nullable=False)


def _boolean(name: str) -> Column[bool]:
    return Column(name, Boolean, nullable=False)


def _row_of(table: str, name: str) -> Column[int]:
    """Return a column of row ids of another table."""
    return Column(name, Integer, ForeignKey(f"{table}.id"), nullable=False)


def _table(name: str, *parts: SchemaItem) -> Table:
    """Return a table with row ids."""
    return Table(name, metadata, Column("id", Integer, primary_key=True), *parts)


def _own_table(name: str, *parts: SchemaItem) -> Table:
    """Return a table with row ids, whose rows belong to a campaign."""
    return _table(name, _row_of("campaigns", "campaign_id"), *parts)


campaigns = _table(
    "campaigns",
    Column("name", Text, nullable=False, unique=True),
    _text("created"),
    _text("settings"),  # JSON
)

classes = _own_table(
    "classes",
    _integer("position"),
    _text("name"),
    # The positions of the classes in a set of labels, JSON; NULL: a class. See ClassQueries.find.
    Column("members", Text),
    UniqueConstraint("campaign_id", "name"),
)

items = _own_table(
    "items",
    _text("key"),  # the item id that people know
    _text("kind"),  # ItemKind
    Column("content", Text),  # the text, or the image's path inside the campaign's folder
    _text("digest"),
    Column("holdout", Boolean, nullable=False, default=False),  # in the holdout, never trained on
    _text("added"),
    # How many annotators are to answer the item, and how many of them have not been asked yet.
    Column("annotators_needed", Integer, nullable=False, server_default=text("1")),
    Column("annotators_missing", Integer, nullable=False, server_default=text("0")),
    Column("withdrawn", Text),  # when it was taken out of the campaign; NULL: it is in
    UniqueConstraint("campaign_id", "key"),
    Index("items_by_digest", "campaign_id", "digest"),
    Index("items_by_annotators_missing", "campaign_id", "annotators_missing"),
    # Partial, because few items are withdrawn and every look at the labels asks for them.
    Index(
        "items_withdrawn",
        "campaign_id",
        sqlite_where=text("withdrawn IS NOT NULL"),
        postgresql_where=text("withdrawn IS NOT NULL"),
    ),
)

imported_tables = _own_table(
    "imported_tables",
    _text("added"),
    _text("columns"),  # JSON: names and types, in the order of the file
    Column("arrow_schema", LargeBinary),  # of a Parquet file; NULL for other files
    Index("imported_tables_by_campaign", "campaign_id"),
)

imported_rows = _table(
    "imported_rows",
    _row_of("imported_tables", "table_id"),
    _row_of("items", "item_id"),
    _text("key"),  # the id it came with, which a duplicate has of its own
    _text("cells"),  # a JSON array; see campaigns.columns
    Index("imported_rows_by_item", "item_id"),
    Index("imported_rows_by_table", "table_id"),
)

encodings = _own_table(
    "encodings",
    _text("encoder"),  # its name
    _text("version"),
    _text("checksum"),  # of pretrained weights; empty without any
    Column("state", LargeBinary),  # what it learned, safetensors; NULL: it cannot be continued
    _integer("fitted_on"),  # the number of items it learned from
    _text("started"),
    _boolean("is_current"),  # models see the vectors of this one
    _integer("revision"),  # changes whenever vectors are written
    Index("encodings_by_campaign", "campaign_id", "is_current"),
)

vectors = Table(
    "vectors",
    metadata,
    _row_of("encodings", "encoding_id"),
    _row_of("items", "item_id"),
    Column("vector", LargeBinary, nullable=False),  # float32
    Column("error", Text),  # why the item could not be read; its vector is then zero
    PrimaryKeyConstraint("encoding_id", "item_id"),
)

near_copies = _own_table(
    "near_copies",
    _row_of("encodings", "encoding_id"),
    _text("found"),
    Column("similarity", Float, nullable=False),  # the cosine from which on items are near copies
    _integer("compared"),  # so many items were compared: those that were added first
    _text("item_ids"),  # JSON: for each group the ids of its items
    UniqueConstraint("encoding_id"),
)

models = _own_table(
    "models",
    _integer("version"),
    _text("trained"),
    Column("weights", LargeBinary, nullable=False),  # safetensors
    _text("facts"),  # JSON
    UniqueConstraint("campaign_id", "version"),
)

batches = _own_table(
    "batches",
    Column("annotator", Text),  # NULL: picked ahead, for the next annotator who asks
    _text("asked"),
    _text("strategy"),
    Column(
        "seed",
        BigInteger().with_variant(Integer, "sqlite"),
        nullable=False,
    ),
    _integer("model_version"),  # 0 before there is a model
    Column("lease_end", Text),  # NULL: never
    Index("batches_by_lease_end", "campaign_id", "lease_end"),
    Index("batches_by_annotator", "campaign_id", "annotator"),
)

picks = _table(
    "picks",
    _row_of("batches", "batch_id"),
    _row_of("items", "item_id"),
    _integer("rank"),
    _text("arm"),  # PickArm
    _text("reason"),  # JSON
    _text("state"),  # PickState
    Index("picks_by_item", "item_id"),
    Index("picks_by_state", "state", "batch_id"),
)

answers = _table(
    "answers",
    _row_of("items", "item_id"),
    Column("pick_id", Integer, ForeignKey("picks.id")),
    _text("annotator"),
    _text("at"),
    _text("kind"),  # AnswerKind
    Column("class_id", Integer, ForeignKey("classes.id")),
    Column("comment", Text),
    _boolean("live"),  # the annotator's current answer about the item
    Column("undone", Boolean, nullable=False, default=False),
    Column("origin", Text, nullable=False, server_default=text("'single'")),  # AnswerOrigin
    Column("bulk", Integer),  # the first answer of the same key press; NULL: it was the only one
    Index("answers_by_item", "item_id", "annotator"),
    Index("answers_by_annotator", "annotator", "id"),
)

decisions = _table(
    "decisions",
    _row_of("items", "item_id"),
    _text("reviewer"),
    _text("at"),
    Column("class_id", Integer, ForeignKey("classes.id")),  # NULL: the item does not belong
    Column("comment", Text),
    _boolean("live"),
    _boolean("undone"),
    Index("decisions_by_item", "item_id"),
)

people = _own_table(
    "people",
    _text("name"),
    _text("role"),  # Role
    Column("token", Text),  # its hash; NULL: there is no token, or it was revoked
    _text("added"),
    Column("removed", Text),
    UniqueConstraint("campaign_id", "name"),
    Index("people_by_token", "token"),
)

locks = Table(
    "locks",
    metadata,
    _row_of("campaigns", "campaign_id"),
    _text("name"),  # LockName
    _text("holder"),
    _text("expires"),
    PrimaryKeyConstraint("campaign_id", "name"),
)

label_studio = _own_table(
    "label_studio",
    _text("url"),
    _text("marker"),  # stands in the project's description
    Column("project_id", Integer),  # its id there; NULL: not created yet, or a crash lost the id
    _text("created"),
    Index("label_studio_by_campaign", "campaign_id"),
)

label_studio_answers = _own_table(
    "label_studio_answers",
    _row_of("label_studio", "link_id"),
    _integer("task"),
    _integer("annotation"),
    _row_of("answers", "answer_id"),
    _boolean("gone"),  # deleted there, and withdrawn here
    Index("label_studio_answers_by_annotation", "link_id", "annotation"),
)

class_descriptions = _own_table(
    "class_descriptions",
    _row_of("classes", "class_id"),
    _text("description"),
    _text("examples"),  # JSON list of texts
    UniqueConstraint("class_id"),
)

# A cache: texts that are no items, such as class names, as an encoder sees them.
text_vectors = _own_table(
    "text_vectors",
    _row_of("encodings", "encoding_id"),
    _text("digest"),  # of the text
    Column("vector", LargeBinary, nullable=False),  # float32
    UniqueConstraint("encoding_id", "digest"),
)

sources = _own_table(
    "sources",
    _text("name"),
    _text("kind"),  # SourceKind
    _text("detail"),  # JSON
    _text("added"),
    _integer("revision"),  # changes whenever suggestions are written
    UniqueConstraint("campaign_id", "name"),
)

suggestions = _own_table(
    "suggestions",
    _row_of("sources", "source_id"),
    _row_of("items", "item_id"),
    _row_of("classes", "class_id"),
    Column("probability", Float),  # NULL: the source gave none
    _text("at"),
    UniqueConstraint("source_id", "item_id"),
    Index("suggestions_by_item", "item_id"),
)

# What a language model replied, by content: nothing is paid for twice.
model_replies = _own_table(
    "model_replies",
    _text("digest"),  # of the model, the prompt and the text
    Column("class_id", Integer, ForeignKey("classes.id")),  # NULL: the reply named no class
    _row_of("sources", "source_id"),
    _integer("input_tokens"),
    _integer("output_tokens"),
    Column("cost", Float, nullable=False),
    _text("at"),
    UniqueConstraint("campaign_id", "digest"),
)

# Which suggestion stood on the page when an answer was given.
shown_suggestions = _own_table(
    "shown_suggestions",
    _row_of("answers", "answer_id"),
    _row_of("sources", "source_id"),
    _row_of("classes", "class_id"),
    UniqueConstraint("answer_id"),
)

finishes = _own_table(
    "finishes",
    _integer("number"),  # the attempt, from 1
    _text("started"),
    _text("started_by"),
    _integer("model_version"),
    _text("checksum"),  # of the model
    _text("terms"),  # JSON: what is promised, and the steps
    _text("item_ids"),  # JSON: the item ids in the order of the draws
    Column("frozen", LargeBinary, nullable=False),  # safetensors: what the model says of them
    _integer("asked_draws"),  # so many draws are asked before picks
    UniqueConstraint("campaign_id", "number"),
)

certificates = _own_table(
    "certificates",
    _row_of("finishes", "finish_id"),
    _text("code"),  # the id that people know
    _text("issued"),
    _text("content"),  # JSON
    UniqueConstraint("campaign_id", "code"),
)

history = _own_table(
    "history",
    _text("at"),
    _text("who"),
    _text("what"),
    Column("item", Text),
    _text("detail"),  # JSON
)

webhooks = _own_table(
    "webhooks",
    _text("url"),
    _text("secret"),  # JSON: when each ends. They sign payloads, so they cannot be hashes
    _text("events"),  # JSON: WebhookEvent
    _boolean("allow_private"),
    _text("created"),
    Column("removed", Text),
    _integer("history_id"),  # the last line that was turned into events
    Index("webhooks_by_campaign", "campaign_id"),
)

webhook_deliveries = _own_table(
    "webhook_deliveries",
    _row_of("webhooks", "webhook_id"),
    _integer("history_id"),
    _text("event"),  # WebhookEvent
    _text("payload"),  # JSON
    _text("created"),
    _integer("attempts"),
    _text("next_attempt"),
    Column("delivered", Text),
    Column("given_up", Text),
    Column("status", Integer),  # of the last answer
    Column("error", Text),
    Index("webhook_deliveries_by_next_attempt", "campaign_id", "delivered", "next_attempt"),
)

# The columns of the tables, for queries: ITEMS.key instead of items.c.key.
ANSWERS = answers.c
BATCHES = batches.c
CAMPAIGNS = campaigns.c
CERTIFICATES = certificates.c
CLASSES = classes.c
CLASS_DESCRIPTIONS = class_descriptions.c
DECISIONS = decisions.c
ENCODINGS = encodings.c
FINISHES = finishes.c
HISTORY = history.c
IMPORTED_ROWS = imported_rows.c
IMPORTED_TABLES = imported_tables.c
ITEMS = items.c
LABEL_STUDIO = label_studio.c
LABEL_STUDIO_ANSWERS = label_studio_answers.c
LOCKS = locks.c
MODELS = models.c
MODEL_REPLIES = model_replies.c
NEAR_COPIES = near_copies.c
PEOPLE = people.c
PICKS = picks.c
SHOWN_SUGGESTIONS = shown_suggestions.c
SOURCES = sources.c
SUGGESTIONS = suggestions.c
TEXT_VECTORS = text_vectors.c
VECTORS = vectors.c
WEBHOOKS = webhooks.c
WEBHOOK_DELIVERIES = webhook_deliveries.c
