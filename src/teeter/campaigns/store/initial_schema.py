"""The tables of schema 9, the first that was released, as SQL. This text never changes.

A later version of teeter changes the tables by another migration. Files that were made by this text
must still become what that migration expects, whatever ``schema`` says by then.
"""

from __future__ import annotations

_SQLITE_TYPES = {"SERIAL": "INTEGER", "BIGINT": "INTEGER", "BYTEA": "BLOB"}
"""The types that have other names in SQLite."""


def initial_statements(dialect: str) -> list[str]:
    """Return the statements that create the tables and their indexes.

    Args:
        dialect: "sqlite" or "postgresql".
    """
    statements = _POSTGRESQL
    if dialect == "sqlite":
        for name, sqlite_name in _SQLITE_TYPES.items():
            statements = statements.replace(name, sqlite_name)

    return statements.strip().split("\n\n")


_POSTGRESQL = """
CREATE TABLE campaigns (
    id SERIAL NOT NULL,
    name TEXT NOT NULL,
    created TEXT NOT NULL,
    settings TEXT NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (name)
)

CREATE TABLE answered_requests (
    campaign_id INTEGER NOT NULL,
    "key" TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    holder TEXT NOT NULL,
    response TEXT,
    at TEXT NOT NULL,
    PRIMARY KEY (campaign_id, "key"),
    FOREIGN KEY(campaign_id) REFERENCES campaigns (id)
)

CREATE TABLE batches (
    id SERIAL NOT NULL,
    campaign_id INTEGER NOT NULL,
    annotator TEXT,
    asked TEXT NOT NULL,
    strategy TEXT NOT NULL,
    seed BIGINT NOT NULL,
    model_version INTEGER NOT NULL,
    lease_end TEXT,
    PRIMARY KEY (id),
    FOREIGN KEY(campaign_id) REFERENCES campaigns (id)
)

CREATE INDEX batches_by_annotator ON batches (campaign_id, annotator)

CREATE INDEX batches_by_lease_end ON batches (campaign_id, lease_end)

CREATE TABLE classes (
    id SERIAL NOT NULL,
    campaign_id INTEGER NOT NULL,
    position INTEGER NOT NULL,
    name TEXT NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (campaign_id, name),
    FOREIGN KEY(campaign_id) REFERENCES campaigns (id)
)

CREATE TABLE encodings (
    id SERIAL NOT NULL,
    campaign_id INTEGER NOT NULL,
    encoder TEXT NOT NULL,
    version TEXT NOT NULL,
    checksum TEXT NOT NULL,
    state BYTEA,
    fitted_on INTEGER NOT NULL,
    started TEXT NOT NULL,
    is_current BOOLEAN NOT NULL,
    revision INTEGER NOT NULL,
    PRIMARY KEY (id),
    FOREIGN KEY(campaign_id) REFERENCES campaigns (id)
)

CREATE INDEX encodings_by_campaign ON encodings (campaign_id, is_current)

CREATE TABLE finishes (
    id SERIAL NOT NULL,
    campaign_id INTEGER NOT NULL,
    number INTEGER NOT NULL,
    started TEXT NOT NULL,
    started_by TEXT NOT NULL,
    model_version INTEGER NOT NULL,
    checksum TEXT NOT NULL,
    terms TEXT NOT NULL,
    item_ids TEXT NOT NULL,
    frozen BYTEA NOT NULL,
    asked_draws INTEGER NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (campaign_id, number),
    FOREIGN KEY(campaign_id) REFERENCES campaigns (id)
)

CREATE TABLE history (
    id SERIAL NOT NULL,
    campaign_id INTEGER NOT NULL,
    at TEXT NOT NULL,
    who TEXT NOT NULL,
    what TEXT NOT NULL,
    item TEXT,
    detail TEXT NOT NULL,
    PRIMARY KEY (id),
    FOREIGN KEY(campaign_id) REFERENCES campaigns (id)
)

CREATE TABLE imported_tables (
    id SERIAL NOT NULL,
    campaign_id INTEGER NOT NULL,
    added TEXT NOT NULL,
    columns TEXT NOT NULL,
    arrow_schema BYTEA,
    PRIMARY KEY (id),
    FOREIGN KEY(campaign_id) REFERENCES campaigns (id)
)

CREATE INDEX imported_tables_by_campaign ON imported_tables (campaign_id)

CREATE TABLE items (
    id SERIAL NOT NULL,
    campaign_id INTEGER NOT NULL,
    "key" TEXT NOT NULL,
    kind TEXT NOT NULL,
    content TEXT,
    digest TEXT NOT NULL,
    audit BOOLEAN NOT NULL,
    added TEXT NOT NULL,
    annotators_needed INTEGER DEFAULT 1 NOT NULL,
    annotators_missing INTEGER DEFAULT 0 NOT NULL,
    withdrawn TEXT,
    PRIMARY KEY (id),
    UNIQUE (campaign_id, "key"),
    FOREIGN KEY(campaign_id) REFERENCES campaigns (id)
)

CREATE INDEX items_by_annotators_missing ON items (campaign_id, annotators_missing)

CREATE INDEX items_by_digest ON items (campaign_id, digest)

CREATE INDEX items_withdrawn ON items (campaign_id) WHERE withdrawn IS NOT NULL

CREATE TABLE label_studio (
    id SERIAL NOT NULL,
    campaign_id INTEGER NOT NULL,
    url TEXT NOT NULL,
    marker TEXT NOT NULL,
    project_id INTEGER,
    created TEXT NOT NULL,
    PRIMARY KEY (id),
    FOREIGN KEY(campaign_id) REFERENCES campaigns (id)
)

CREATE INDEX label_studio_by_campaign ON label_studio (campaign_id)

CREATE TABLE locks (
    campaign_id INTEGER NOT NULL,
    name TEXT NOT NULL,
    holder TEXT NOT NULL,
    expires TEXT NOT NULL,
    PRIMARY KEY (campaign_id, name),
    FOREIGN KEY(campaign_id) REFERENCES campaigns (id)
)

CREATE TABLE models (
    id SERIAL NOT NULL,
    campaign_id INTEGER NOT NULL,
    version INTEGER NOT NULL,
    trained TEXT NOT NULL,
    weights BYTEA NOT NULL,
    facts TEXT NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (campaign_id, version),
    FOREIGN KEY(campaign_id) REFERENCES campaigns (id)
)

CREATE TABLE people (
    id SERIAL NOT NULL,
    campaign_id INTEGER NOT NULL,
    name TEXT NOT NULL,
    role TEXT NOT NULL,
    token TEXT,
    added TEXT NOT NULL,
    removed TEXT,
    PRIMARY KEY (id),
    UNIQUE (campaign_id, name),
    FOREIGN KEY(campaign_id) REFERENCES campaigns (id)
)

CREATE INDEX people_by_token ON people (token)

CREATE TABLE sources (
    id SERIAL NOT NULL,
    campaign_id INTEGER NOT NULL,
    name TEXT NOT NULL,
    kind TEXT NOT NULL,
    detail TEXT NOT NULL,
    added TEXT NOT NULL,
    revision INTEGER NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (campaign_id, name),
    FOREIGN KEY(campaign_id) REFERENCES campaigns (id)
)

CREATE TABLE webhooks (
    id SERIAL NOT NULL,
    campaign_id INTEGER NOT NULL,
    url TEXT NOT NULL,
    secret TEXT NOT NULL,
    events TEXT NOT NULL,
    allow_private BOOLEAN NOT NULL,
    created TEXT NOT NULL,
    removed TEXT,
    history_id INTEGER NOT NULL,
    PRIMARY KEY (id),
    FOREIGN KEY(campaign_id) REFERENCES campaigns (id)
)

CREATE INDEX webhooks_by_campaign ON webhooks (campaign_id)

CREATE TABLE certificates (
    id SERIAL NOT NULL,
    campaign_id INTEGER NOT NULL,
    finish_id INTEGER NOT NULL,
    code TEXT NOT NULL,
    issued TEXT NOT NULL,
    content TEXT NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (campaign_id, code),
    FOREIGN KEY(campaign_id) REFERENCES campaigns (id),
    FOREIGN KEY(finish_id) REFERENCES finishes (id)
)

CREATE TABLE class_descriptions (
    id SERIAL NOT NULL,
    campaign_id INTEGER NOT NULL,
    class_id INTEGER NOT NULL,
    description TEXT NOT NULL,
    examples TEXT NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (class_id),
    FOREIGN KEY(campaign_id) REFERENCES campaigns (id),
    FOREIGN KEY(class_id) REFERENCES classes (id)
)

CREATE TABLE decisions (
    id SERIAL NOT NULL,
    item_id INTEGER NOT NULL,
    reviewer TEXT NOT NULL,
    at TEXT NOT NULL,
    class_id INTEGER,
    comment TEXT,
    live BOOLEAN NOT NULL,
    undone BOOLEAN NOT NULL,
    PRIMARY KEY (id),
    FOREIGN KEY(item_id) REFERENCES items (id),
    FOREIGN KEY(class_id) REFERENCES classes (id)
)

CREATE INDEX decisions_by_item ON decisions (item_id)

CREATE TABLE imported_rows (
    id SERIAL NOT NULL,
    table_id INTEGER NOT NULL,
    item_id INTEGER NOT NULL,
    "key" TEXT NOT NULL,
    cells TEXT NOT NULL,
    PRIMARY KEY (id),
    FOREIGN KEY(table_id) REFERENCES imported_tables (id),
    FOREIGN KEY(item_id) REFERENCES items (id)
)

CREATE INDEX imported_rows_by_item ON imported_rows (item_id)

CREATE INDEX imported_rows_by_table ON imported_rows (table_id)

CREATE TABLE model_replies (
    id SERIAL NOT NULL,
    campaign_id INTEGER NOT NULL,
    digest TEXT NOT NULL,
    class_id INTEGER,
    source_id INTEGER NOT NULL,
    input_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    cost FLOAT NOT NULL,
    at TEXT NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (campaign_id, digest),
    FOREIGN KEY(campaign_id) REFERENCES campaigns (id),
    FOREIGN KEY(class_id) REFERENCES classes (id),
    FOREIGN KEY(source_id) REFERENCES sources (id)
)

CREATE TABLE picks (
    id SERIAL NOT NULL,
    batch_id INTEGER NOT NULL,
    item_id INTEGER NOT NULL,
    rank INTEGER NOT NULL,
    arm TEXT NOT NULL,
    reason TEXT NOT NULL,
    state TEXT NOT NULL,
    PRIMARY KEY (id),
    FOREIGN KEY(batch_id) REFERENCES batches (id),
    FOREIGN KEY(item_id) REFERENCES items (id)
)

CREATE INDEX picks_by_item ON picks (item_id)

CREATE INDEX picks_by_state ON picks (state, batch_id)

CREATE TABLE suggestions (
    id SERIAL NOT NULL,
    campaign_id INTEGER NOT NULL,
    source_id INTEGER NOT NULL,
    item_id INTEGER NOT NULL,
    class_id INTEGER NOT NULL,
    probability FLOAT,
    at TEXT NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (source_id, item_id),
    FOREIGN KEY(campaign_id) REFERENCES campaigns (id),
    FOREIGN KEY(source_id) REFERENCES sources (id),
    FOREIGN KEY(item_id) REFERENCES items (id),
    FOREIGN KEY(class_id) REFERENCES classes (id)
)

CREATE INDEX suggestions_by_item ON suggestions (item_id)

CREATE TABLE text_vectors (
    id SERIAL NOT NULL,
    campaign_id INTEGER NOT NULL,
    encoding_id INTEGER NOT NULL,
    digest TEXT NOT NULL,
    vector BYTEA NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (encoding_id, digest),
    FOREIGN KEY(campaign_id) REFERENCES campaigns (id),
    FOREIGN KEY(encoding_id) REFERENCES encodings (id)
)

CREATE TABLE vectors (
    encoding_id INTEGER NOT NULL,
    item_id INTEGER NOT NULL,
    vector BYTEA NOT NULL,
    error TEXT,
    PRIMARY KEY (encoding_id, item_id),
    FOREIGN KEY(encoding_id) REFERENCES encodings (id),
    FOREIGN KEY(item_id) REFERENCES items (id)
)

CREATE TABLE webhook_deliveries (
    id SERIAL NOT NULL,
    campaign_id INTEGER NOT NULL,
    webhook_id INTEGER NOT NULL,
    history_id INTEGER NOT NULL,
    event TEXT NOT NULL,
    payload TEXT NOT NULL,
    created TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    next_attempt TEXT NOT NULL,
    delivered TEXT,
    given_up TEXT,
    status INTEGER,
    error TEXT,
    PRIMARY KEY (id),
    FOREIGN KEY(campaign_id) REFERENCES campaigns (id),
    FOREIGN KEY(webhook_id) REFERENCES webhooks (id)
)

CREATE INDEX webhook_deliveries_by_next_attempt
    ON webhook_deliveries (campaign_id, delivered, next_attempt)

CREATE TABLE answers (
    id SERIAL NOT NULL,
    item_id INTEGER NOT NULL,
    pick_id INTEGER,
    annotator TEXT NOT NULL,
    at TEXT NOT NULL,
    kind TEXT NOT NULL,
    class_id INTEGER,
    comment TEXT,
    live BOOLEAN NOT NULL,
    undone BOOLEAN NOT NULL,
    PRIMARY KEY (id),
    FOREIGN KEY(item_id) REFERENCES items (id),
    FOREIGN KEY(pick_id) REFERENCES picks (id),
    FOREIGN KEY(class_id) REFERENCES classes (id)
)

CREATE INDEX answers_by_annotator ON answers (annotator, id)

CREATE INDEX answers_by_item ON answers (item_id, annotator)

CREATE TABLE label_studio_answers (
    id SERIAL NOT NULL,
    campaign_id INTEGER NOT NULL,
    link_id INTEGER NOT NULL,
    task INTEGER NOT NULL,
    annotation INTEGER NOT NULL,
    answer_id INTEGER NOT NULL,
    gone BOOLEAN NOT NULL,
    PRIMARY KEY (id),
    FOREIGN KEY(campaign_id) REFERENCES campaigns (id),
    FOREIGN KEY(link_id) REFERENCES label_studio (id),
    FOREIGN KEY(answer_id) REFERENCES answers (id)
)

CREATE INDEX label_studio_answers_by_annotation ON label_studio_answers (link_id, annotation)

CREATE TABLE shown_suggestions (
    id SERIAL NOT NULL,
    campaign_id INTEGER NOT NULL,
    answer_id INTEGER NOT NULL,
    source_id INTEGER NOT NULL,
    class_id INTEGER NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (answer_id),
    FOREIGN KEY(campaign_id) REFERENCES campaigns (id),
    FOREIGN KEY(answer_id) REFERENCES answers (id),
    FOREIGN KEY(source_id) REFERENCES sources (id),
    FOREIGN KEY(class_id) REFERENCES classes (id)
)
"""
