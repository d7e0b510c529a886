"""Numbered changes of the database schema.

A database runs the migrations that it lacks, in order; a new one runs them all. The first creates
the tables of schema 9, whose SQL is frozen at the end of this file. So a change of the schema takes
two steps: change ``schema``, and append a migration that turns the tables of the previous version
into those, written in SQL or with tables of its own: ``schema`` goes on changing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

from sqlalchemy import (
    Column,
    Connection,
    Integer,
    MetaData,
    Table,
    Text,
    column,
    create_engine,
    func,
    inspect,
    select,
    table,
    text,
    true,
    update,
)

from teeter.errors import StoreError

# Not part of schema: this table must exist before any other is created or changed.
_applied = Table(
    "migrations",
    MetaData(),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("name", Text, nullable=False),
    Column("applied", Text, nullable=False),
)


@dataclass(frozen=True)
class Migration:
    """One change of the schema."""

    version: int
    name: str
    apply: Callable[[Connection], None]
    """Changes a database of the previous version, inside the transaction of a connection."""


_SQLITE_TYPES = {"SERIAL": "INTEGER", "BIGINT": "INTEGER", "BYTEA": "BLOB"}
"""The types that have other names in SQLite."""


def _create_tables(connection: Connection) -> None:
    statements = _SCHEMA_9
    if connection.dialect.name == "sqlite":
        for name, sqlite_name in _SQLITE_TYPES.items():
            statements = statements.replace(name, sqlite_name)

    for statement in statements.strip().split("\n\n"):
        connection.exec_driver_sql(statement)


def _drop_answered_requests(connection: Connection) -> None:
    # It had the answers of requests with an Idempotency-Key. Repeats are seen by their content.
    connection.exec_driver_sql("DROP TABLE answered_requests")


def _add_origins(connection: Connection) -> None:
    # Nothing is known of earlier answers: they count as they did.
    connection.exec_driver_sql(
        "ALTER TABLE answers ADD COLUMN origin TEXT DEFAULT 'single' NOT NULL"
    )
    connection.exec_driver_sql("ALTER TABLE answers ADD COLUMN bulk INTEGER")


def _add_near_copies(connection: Connection) -> None:
    numbers = "SERIAL" if connection.dialect.name == "postgresql" else "INTEGER"
    connection.exec_driver_sql(f"""
CREATE TABLE near_copies (
    id {numbers} NOT NULL,
    campaign_id INTEGER NOT NULL,
    encoding_id INTEGER NOT NULL,
    found TEXT NOT NULL,
    similarity FLOAT NOT NULL,
    compared INTEGER NOT NULL,
    item_ids TEXT NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (encoding_id),
    FOREIGN KEY(campaign_id) REFERENCES campaigns (id),
    FOREIGN KEY(encoding_id) REFERENCES encodings (id)
)""")


def _add_sets_of_labels(connection: Connection) -> None:
    connection.exec_driver_sql("ALTER TABLE classes ADD COLUMN members TEXT")


def _rename_audit_set(connection: Connection) -> None:
    """Call the items that measure and never train the holdout: an audit is about foreign labels."""
    for statement in (
        "ALTER TABLE items RENAME COLUMN audit TO holdout",
        "UPDATE picks SET arm = 'holdout' WHERE arm = 'audit'",
        "UPDATE history SET what = 'holdout' WHERE what = 'audit'",
    ):
        connection.exec_driver_sql(statement)

    lines = table("history", column("what"), column("detail"))
    renamed = func.replace(lines.c.detail, '"arm": "audit"', '"arm": "holdout"')
    connection.execute(update(lines).where(lines.c.what == "asked").values(detail=renamed))
    # Other lines may have names of users' columns.
    of_settings = text("what IN ('created', 'settings', 'trained')")
    for name, place, condition in (
        ("campaigns", "settings", true()),
        ("models", "facts", true()),
        ("history", "detail", of_settings),
    ):
        rows = table(name, column("id"), column(place))
        has_word = rows.c[place].contains('"audit":')
        chosen = select(rows.c.id, rows.c[place]).where(has_word, condition)
        for row_id, stored in connection.execute(chosen).all():
            values = json.loads(stored)
            if "audit" in values:
                values["holdout"] = values.pop("audit")
                changed = update(rows).where(rows.c.id == row_id)
                connection.execute(changed.values({place: json.dumps(values)}))


# Unreleased versions of teeter had eight more, so that their files list the versions 1 to 9.
MIGRATIONS: tuple[Migration, ...] = (
    Migration(9, "initial", _create_tables),
    Migration(10, "answered requests dropped", _drop_answered_requests),
    Migration(11, "origins of answers", _add_origins),
    Migration(12, "near copies", _add_near_copies),
    Migration(13, "sets of labels", _add_sets_of_labels),
    Migration(14, "holdout", _rename_audit_set),
)
"""All migrations, in the order of their versions."""


def migrate(connection: Connection, now: str) -> list[str]:
    """Bring a database up to date inside the transaction of a connection.

    Args:
        connection: a connection that may write. The caller commits: all changes or none.
        now: the current time as it is stored.

    Returns:
        The names of the migrations that the database lacked.

    Raises:
        StoreError: its version is too old or too new for this version of teeter.
    """
    _applied.create(connection, checkfirst=True)
    version = connection.scalar(select(func.max(_applied.c.version)))
    _require_known_version(version)

    missing = [
        migration for migration in MIGRATIONS if version is None or migration.version > version
    ]
    for migration in missing:
        migration.apply(connection)
        row = {
            "version": migration.version,
            "name": migration.name,
            "applied": now,
        }
        connection.execute(_applied.insert().values(row))

    return [migration.name for migration in missing]


def _require_known_version(version: int | None) -> None:
    """Refuse a database whose schema this version of teeter does not know.

    Args:
        version: the newest migration that was applied to a database; None for a new one.

    Raises:
        StoreError: it is too old or too new.
    """
    oldest = MIGRATIONS[0].version
    newest = MIGRATIONS[-1].version

    if version is not None and version < oldest:
        raise StoreError(
            "An unreleased version of teeter, from before 0.1, made this campaign: its schema has "
            f"version {version}, but this version of teeter reads only versions from {oldest} on. "
            "Export the labels with the version that made it, and import them into a new campaign."
        )

    if version is not None and version > newest:
        raise StoreError(
            "A newer version of teeter wrote this campaign: its schema has version "
            f"{version}, but this version of teeter supports only versions up to {newest}. "
            "Update teeter to open it."
        )


def require_own_schema(execute: Callable[[str], Iterable[Any]], location: str) -> None:
    """Refuse an SQLite file with a trigger, view, table or index that teeter did not make.

    Such objects act on their own: a trigger may delete every answer that was just acknowledged.

    Args:
        execute: executes a statement and returns its rows.
        location: the path of the file, as users may read it.

    Raises:
        StoreError: there is such an object, one of teeter is missing, or the version of the schema
            is too old or too new.
    """
    # SQLite parses whatever is stored as the SQL, even a blob. Indexes of constraints have none.
    objects = _read_objects(execute)

    # Only a table that is our own is read: a view of its name could run for ever.
    version = None
    if set(objects) & set(_known_objects(())):
        ((version,),) = execute(f"SELECT max(version) FROM {_applied.name}")
        _require_known_version(version)

    applied = [
        migration
        for migration in MIGRATIONS
        if version is not None and migration.version <= version
    ]
    known = _known_objects(tuple(applied))
    allowed = {*known, *_SQLITE_OBJECTS}
    foreign = [schema_object for schema_object in objects if schema_object not in allowed]
    if foreign:
        kind, name, _, _ = foreign[0]
        raise StoreError(
            f"{location} was not opened, because teeter did not make its {f'{kind} {name}'!r}, "
            "which could change or delete answers without a word. If you added it yourself, "
            "remove it; otherwise do not trust the file."
        )

    missing = [schema_object for schema_object in known if schema_object not in objects]
    if version is not None and missing:
        kind, name, _, _ = missing[0]
        raise StoreError(
            f"{location} is damaged: it has no {kind} {name!r}, without "
            "which answers could be lost or stored twice. Restore a backup."
        )

    ((shared,),) = execute(
        "SELECT count(*) - count(DISTINCT rootpage) FROM sqlite_master WHERE rootpage > 0"
    )
    if shared:
        raise StoreError(
            f"{location} is damaged: two of its tables or indexes are stored in the same place. "
            "Restore a backup."
        )


_SchemaObject: TypeAlias = tuple[str, str, str, str]
"""A row of SQLite's table of its schema: ``table``, ``index``, ``trigger`` or ``view``; its name,
its table and its SQL.
"""


_SQLITE_OBJECTS = frozenset(
    ("table", name, name, f"CREATE TABLE {name}({columns})")
    for name, columns in (
        ("sqlite_sequence", "name,seq"),
        ("sqlite_stat1", "tbl,idx,stat"),
        ("sqlite_stat4", "tbl,idx,neq,nlt,ndlt,sample"),
    )
)
"""What SQLite itself adds to the schema of a file: ANALYZE writes statistics."""


def _read_objects(execute: Callable[[str], Iterable[Any]]) -> tuple[_SchemaObject, ...]:
    query = (
        "SELECT type, name, tbl_name, CAST(sql AS TEXT) FROM sqlite_master WHERE sql IS NOT NULL"
    )
    return tuple(
        (str(kind), str(name), str(table), _join_lines(sql))
        for kind, name, table, sql in execute(query)
    )


@cache
def _known_objects(migrations: tuple[Migration, ...]) -> tuple[_SchemaObject, ...]:
    """Return the tables and indexes of an SQLite file after some migrations."""
    engine = create_engine("sqlite://")
    with engine.begin() as connection:
        _applied.create(connection)
        for migration in migrations:
            migration.apply(connection)

        objects = _read_objects(connection.exec_driver_sql)
    engine.dispose()
    return objects


def _join_lines(sql: str) -> str:
    """Return a statement on one line, because ALTER TABLE breaks lines elsewhere."""
    # Only what SQLite takes for white space: a no-break space is a letter of a name to it.
    return re.sub(r"[ \t\r\n\f]+", " ", sql).strip(" ")


def is_campaign_database(connection: Connection) -> bool:
    """Return whether a database belongs to teeter, even if its tables were never completed."""
    return bool(inspect(connection).has_table(_applied.name))


def is_up_to_date(connection: Connection) -> bool:
    """Return whether a database lacks no migration and has no unknown one. Writes nothing."""
    if not is_campaign_database(connection):
        return False

    version = connection.scalar(select(func.max(_applied.c.version)))
    return bool(version == MIGRATIONS[-1].version)


# The tables of schema 9, the first that was released. This text never changes: files that were made
# by it must still become what later migrations expect, whatever ``schema`` says by then.
_SCHEMA_9 = """
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
