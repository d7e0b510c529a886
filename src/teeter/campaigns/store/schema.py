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

MAX_ROW_ID = 2**31 - 1
"""The largest row id. PostgreSQL's integers have 32 bits, and it refuses larger ones in a query."""

metadata = MetaData()


def _campaign_id() -> Column[int]:
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
    _campaign_id(),
    Column("position", Integer, nullable=False),
    Column("name", Text, nullable=False),
    UniqueConstraint("campaign_id", "name"),
)

items = Table(
    "items",
    metadata,
    Column("id", Integer, primary_key=True),
    _campaign_id(),
    Column("key", Text, nullable=False),  # the item id that people know
    Column("kind", Text, nullable=False),  # ItemKind
    Column("content", Text),  # the text, or the image's path inside the campaign's folder
    Column("digest", Text, nullable=False),
    Column("audit", Boolean, nullable=False, default=False),  # in the audit set, never trained on
    Column("added", Text, nullable=False),
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

imported_tables = Table(
    "imported_tables",
    metadata,
    Column("id", Integer, primary_key=True),
    _campaign_id(),
    Column("added", Text, nullable=False),
    Column("columns", Text, nullable=False),  # JSON: names and types, in the order of the file
    Column("arrow_schema", LargeBinary),  # of a Parquet file; NULL for other files
    Index("imported_tables_by_campaign", "campaign_id"),
)

imported_rows = Table(
    "imported_rows",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("table_id", Integer, ForeignKey("imported_tables.id"), nullable=False),
    Column("item_id", Integer, ForeignKey("items.id"), nullable=False),
    Column("key", Text, nullable=False),  # the id it came with, which a duplicate has of its own
    Column("cells", Text, nullable=False),  # a JSON array; see campaigns.columns
    Index("imported_rows_by_item", "item_id"),
    Index("imported_rows_by_table", "table_id"),
)

encodings = Table(
    "encodings",
    metadata,
    Column("id", Integer, primary_key=True),
    _campaign_id(),
    Column("encoder", Text, nullable=False),  # its name
    Column("version", Text, nullable=False),
    Column("checksum", Text, nullable=False),  # of pretrained weights; empty without any
    Column("state", LargeBinary),  # what it learned, safetensors; NULL: it cannot be continued
    Column("fitted_on", Integer, nullable=False),  # the number of items it learned from
    Column("started", Text, nullable=False),
    Column("is_current", Boolean, nullable=False),  # models see the vectors of this one
    Column("revision", Integer, nullable=False),  # changes whenever vectors are written
    Index("encodings_by_campaign", "campaign_id", "is_current"),
)

vectors = Table(
    "vectors",
    metadata,
    Column("encoding_id", Integer, ForeignKey("encodings.id"), nullable=False),
    Column("item_id", Integer, ForeignKey("items.id"), nullable=False),
    Column("vector", LargeBinary, nullable=False),  # float32
    Column("error", Text),  # why the item could not be read; its vector is then zero
    PrimaryKeyConstraint("encoding_id", "item_id"),
)

models = Table(
    "models",
    metadata,
    Column("id", Integer, primary_key=True),
    _campaign_id(),
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
    _campaign_id(),
    Column("annotator", Text),  # NULL: picked ahead, for the next annotator who asks
    Column("asked", Text, nullable=False),
    Column("strategy", Text, nullable=False),
    Column(
        "seed",
        BigInteger().with_variant(Integer, "sqlite"),
        nullable=False,
    ),
    Column("model_version", Integer, nullable=False),  # 0 before there is a model
    Column("lease_end", Text),  # NULL: never
    Index("batches_by_lease_end", "campaign_id", "lease_end"),
    Index("batches_by_annotator", "campaign_id", "annotator"),
)

picks = Table(
    "picks",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("batch_id", Integer, ForeignKey("batches.id"), nullable=False),
    Column("item_id", Integer, ForeignKey("items.id"), nullable=False),
    Column("rank", Integer, nullable=False),
    Column("arm", Text, nullable=False),  # PickArm
    Column("reason", Text, nullable=False),  # JSON
    Column("state", Text, nullable=False),  # PickState
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
    Column("kind", Text, nullable=False),  # AnswerKind
    Column("class_id", Integer, ForeignKey("classes.id")),
    Column("comment", Text),
    Column("live", Boolean, nullable=False),  # the annotator's current answer about the item
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
    Column("class_id", Integer, ForeignKey("classes.id")),  # NULL: the item does not belong
    Column("comment", Text),
    Column("live", Boolean, nullable=False),
    Column("undone", Boolean, nullable=False),
    Index("decisions_by_item", "item_id"),
)

people = Table(
    "people",
    metadata,
    Column("id", Integer, primary_key=True),
    _campaign_id(),
    Column("name", Text, nullable=False),
    Column("role", Text, nullable=False),  # Role
    Column("token", Text),  # its hash; NULL: there is no token, or it was revoked
    Column("added", Text, nullable=False),
    Column("removed", Text),
    UniqueConstraint("campaign_id", "name"),
    Index("people_by_token", "token"),
)

locks = Table(
    "locks",
    metadata,
    _campaign_id(),
    Column("name", Text, nullable=False),  # LockName
    Column("holder", Text, nullable=False),
    Column("expires", Text, nullable=False),
    PrimaryKeyConstraint("campaign_id", "name"),
)

label_studio = Table(
    "label_studio",
    metadata,
    Column("id", Integer, primary_key=True),
    _campaign_id(),
    Column("url", Text, nullable=False),
    Column("marker", Text, nullable=False),  # stands in the project's description
    Column("project_id", Integer),  # its id there; NULL: not created yet, or a crash lost the id
    Column("created", Text, nullable=False),
    Index("label_studio_by_campaign", "campaign_id"),
)

label_studio_answers = Table(
    "label_studio_answers",
    metadata,
    Column("id", Integer, primary_key=True),
    _campaign_id(),
    Column("link_id", Integer, ForeignKey("label_studio.id"), nullable=False),
    Column("task", Integer, nullable=False),
    Column("annotation", Integer, nullable=False),
    Column("answer_id", Integer, ForeignKey("answers.id"), nullable=False),
    Column("gone", Boolean, nullable=False),  # deleted there, and withdrawn here
    Index("label_studio_answers_by_annotation", "link_id", "annotation"),
)

class_descriptions = Table(
    "class_descriptions",
    metadata,
    Column("id", Integer, primary_key=True),
    _campaign_id(),
    Column("class_id", Integer, ForeignKey("classes.id"), nullable=False),
    Column("description", Text, nullable=False),
    Column("examples", Text, nullable=False),  # JSON list of texts
    UniqueConstraint("class_id"),
)

# A cache: texts that are no items, such as class names, as an encoder sees them.
text_vectors = Table(
    "text_vectors",
    metadata,
    Column("id", Integer, primary_key=True),
    _campaign_id(),
    Column("encoding_id", Integer, ForeignKey("encodings.id"), nullable=False),
    Column("digest", Text, nullable=False),  # of the text
    Column("vector", LargeBinary, nullable=False),  # float32
    UniqueConstraint("encoding_id", "digest"),
)

sources = Table(
    "sources",
    metadata,
    Column("id", Integer, primary_key=True),
    _campaign_id(),
    Column("name", Text, nullable=False),
    Column("kind", Text, nullable=False),  # SourceKind
    Column("detail", Text, nullable=False),  # JSON
    Column("added", Text, nullable=False),
    Column("revision", Integer, nullable=False),  # changes whenever suggestions are written
    UniqueConstraint("campaign_id", "name"),
)

suggestions = Table(
    "suggestions",
    metadata,
    Column("id", Integer, primary_key=True),
    _campaign_id(),
    Column("source_id", Integer, ForeignKey("sources.id"), nullable=False),
    Column("item_id", Integer, ForeignKey("items.id"), nullable=False),
    Column("class_id", Integer, ForeignKey("classes.id"), nullable=False),
    Column("probability", Float),  # NULL: the source gave none
    Column("at", Text, nullable=False),
    UniqueConstraint("source_id", "item_id"),
    Index("suggestions_by_item", "item_id"),
)

# What a language model replied, by content: nothing is paid for twice.
model_replies = Table(
    "model_replies",
    metadata,
    Column("id", Integer, primary_key=True),
    _campaign_id(),
    Column("digest", Text, nullable=False),  # of the model, the prompt and the text
    Column("class_id", Integer, ForeignKey("classes.id")),  # NULL: the reply named no class
    Column("source_id", Integer, ForeignKey("sources.id"), nullable=False),
    Column("input_tokens", Integer, nullable=False),
    Column("output_tokens", Integer, nullable=False),
    Column("cost", Float, nullable=False),
    Column("at", Text, nullable=False),
    UniqueConstraint("campaign_id", "digest"),
)

# Which suggestion stood on the page when an answer was given.
shown_suggestions = Table(
    "shown_suggestions",
    metadata,
    Column("id", Integer, primary_key=True),
    _campaign_id(),
    Column("answer_id", Integer, ForeignKey("answers.id"), nullable=False),
    Column("source_id", Integer, ForeignKey("sources.id"), nullable=False),
    Column("class_id", Integer, ForeignKey("classes.id"), nullable=False),
    UniqueConstraint("answer_id"),
)

finishes = Table(
    "finishes",
    metadata,
    Column("id", Integer, primary_key=True),
    _campaign_id(),
    Column("number", Integer, nullable=False),  # the attempt, from 1
    Column("started", Text, nullable=False),
    Column("started_by", Text, nullable=False),
    Column("model_version", Integer, nullable=False),
    Column("checksum", Text, nullable=False),  # of the model
    Column("terms", Text, nullable=False),  # JSON: what is promised, and the steps
    Column("item_ids", Text, nullable=False),  # JSON: the item ids in the order of the draws
    Column("frozen", LargeBinary, nullable=False),  # safetensors: what the model says of them
    Column("asked_draws", Integer, nullable=False),  # so many draws are asked before picks
    UniqueConstraint("campaign_id", "number"),
)

certificates = Table(
    "certificates",
    metadata,
    Column("id", Integer, primary_key=True),
    _campaign_id(),
    Column("finish_id", Integer, ForeignKey("finishes.id"), nullable=False),
    Column("code", Text, nullable=False),  # the id that people know
    Column("issued", Text, nullable=False),
    Column("content", Text, nullable=False),  # JSON
    UniqueConstraint("campaign_id", "code"),
)

history = Table(
    "history",
    metadata,
    Column("id", Integer, primary_key=True),
    _campaign_id(),
    Column("at", Text, nullable=False),
    Column("who", Text, nullable=False),
    Column("what", Text, nullable=False),
    Column("item", Text),
    Column("detail", Text, nullable=False),  # JSON
)

webhooks = Table(
    "webhooks",
    metadata,
    Column("id", Integer, primary_key=True),
    _campaign_id(),
    Column("url", Text, nullable=False),
    Column("secret", Text, nullable=False),  # signs payloads, so it cannot be a hash
    Column("events", Text, nullable=False),  # JSON: WebhookEvent
    Column("allow_private", Boolean, nullable=False),
    Column("created", Text, nullable=False),
    Column("removed", Text),
    Column("history_id", Integer, nullable=False),  # the last line that was turned into events
    Index("webhooks_by_campaign", "campaign_id"),
)

webhook_deliveries = Table(
    "webhook_deliveries",
    metadata,
    Column("id", Integer, primary_key=True),
    _campaign_id(),
    Column("webhook_id", Integer, ForeignKey("webhooks.id"), nullable=False),
    Column("history_id", Integer, nullable=False),
    Column("event", Text, nullable=False),  # WebhookEvent
    Column("payload", Text, nullable=False),  # JSON
    Column("created", Text, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("next_attempt", Text, nullable=False),
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
PEOPLE = people.c
PICKS = picks.c
SHOWN_SUGGESTIONS = shown_suggestions.c
SOURCES = sources.c
SUGGESTIONS = suggestions.c
TEXT_VECTORS = text_vectors.c
VECTORS = vectors.c
WEBHOOKS = webhooks.c
WEBHOOK_DELIVERIES = webhook_deliveries.c
