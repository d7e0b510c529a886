"""Numbered changes of the database schema.

A new database gets the tables of ``schema`` at once, and every migration is recorded as applied. An
older database runs the migrations it lacks, in order. So a change of the schema takes two steps:
change ``schema``, and append a migration that turns the tables of the previous version into those.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from sqlalchemy import (
    Column,
    Connection,
    Dialect,
    Integer,
    MetaData,
    Table,
    Text,
    insert,
    inspect,
    literal,
    select,
)
from sqlalchemy.schema import CreateIndex, CreateTable

from teeter.campaigns.db import schema
from teeter.campaigns.db.statements import insert_row
from teeter.errors import StoreError

__all__ = [
    "MIGRATIONS",
    "Migration",
    "is_campaign_database",
    "is_up_to_date",
    "migrate",
    "require_known_versions",
]

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


def _create_tables(connection: Connection) -> None:
    dialect = connection.dialect
    if dialect.name not in _schema_statements:
        _schema_statements[dialect.name] = _compile_schema(dialect)

    for statement in _schema_statements[dialect.name]:
        connection.exec_driver_sql(statement)


_schema_statements: dict[str, list[str]] = {}
"""The SQL statements that create all tables, by the name of the dialect."""


def _compile_schema(dialect: Dialect) -> list[str]:
    """Return the SQL statements that create all tables and their indexes."""
    statements: list[CreateTable | CreateIndex] = []
    for table in schema.metadata.sorted_tables:
        indexes = sorted(table.indexes, key=lambda index: str(index.name))
        statements += [CreateTable(table), *map(CreateIndex, indexes)]

    return [str(statement.compile(dialect=dialect)) for statement in statements]


def _add_encodings(connection: Connection) -> None:
    """Move the features of all items into an encoding of each campaign.

    Schema 1 did not store the state of encoders. Only an encoder's name is known, from the history,
    so all items are encoded again when items are added.
    """
    schema.encodings.create(connection)
    schema.vectors.create(connection)

    old_features = Table("features", MetaData(), autoload_with=connection)
    with_features = (
        select(schema.ITEMS.campaign_id)
        .join(old_features, old_features.c.item_id == schema.ITEMS.id)
        .distinct()
    )
    # All ids are fetched first, because the loop writes on the same connection.
    for campaign_id in connection.scalars(with_features).all():
        encoding_id = _add_old_encoding(connection, campaign_id)
        rows = (
            select(literal(encoding_id), old_features.c.item_id, old_features.c.vector)
            .join(schema.items, schema.ITEMS.id == old_features.c.item_id)
            .where(schema.ITEMS.campaign_id == campaign_id)
        )
        columns = ["encoding_id", "item_id", "vector"]
        connection.execute(insert(schema.vectors).from_select(columns, rows))

    old_features.drop(connection)


def _add_old_encoding(connection: Connection, campaign_id: int) -> int:
    """Add the encoding of a campaign whose features were stored without one."""
    history = schema.HISTORY
    query = (
        select(history.at, history.detail)
        .where(history.campaign_id == campaign_id, history.what == "encoded")
        .order_by(history.id.desc())
        .limit(1)
    )
    line = connection.execute(query).first()
    encoder = "you"
    if line is not None:
        encoder = json.loads(line.detail).get("by", encoder)

    kind = connection.scalar(
        select(schema.ITEMS.kind).where(schema.ITEMS.campaign_id == campaign_id).limit(1)
    )
    # The history of schema 1 has one name for both of these encoders.
    if encoder == "built-in":
        encoder = "pixels" if kind == "image" else "tfidf"

    values = {
        "campaign_id": campaign_id,
        "encoder": encoder,
        "version": "1",
        "checksum": "",
        "state": None,
        "fitted_on": 0,
        "started": "" if line is None else line.at,
        "is_current": True,
        "revision": 1,
    }
    return insert_row(connection, schema.encodings, values)


def _add_imported_tables(connection: Connection) -> None:
    schema.imported_tables.create(connection)
    schema.imported_rows.create(connection)


def _add_webhooks(connection: Connection) -> None:
    schema.webhooks.create(connection)
    schema.webhook_deliveries.create(connection)


def _add_answered_requests(connection: Connection) -> None:
    schema.answered_requests.create(connection)


def _note_running_requests(connection: Connection) -> None:
    """Add what says that a request is being answered. The answers of two days may be forgotten."""
    schema.answered_requests.drop(connection)
    schema.answered_requests.create(connection)


def _add_withdrawals(connection: Connection) -> None:
    connection.exec_driver_sql("ALTER TABLE items ADD COLUMN withdrawn TEXT")
    index = next(index for index in schema.items.indexes if index.name == "items_withdrawn")
    index.create(connection)


def _add_finishes(connection: Connection) -> None:
    schema.finishes.create(connection)
    schema.certificates.create(connection)


def _add_suggestions(connection: Connection) -> None:
    """Add the tables of class descriptions and suggestions, which start empty."""
    new_tables = (
        schema.class_descriptions,
        schema.text_vectors,
        schema.sources,
        schema.suggestions,
        schema.model_replies,
        schema.shown_suggestions,
    )
    for table in new_tables:
        table.create(connection)


MIGRATIONS: tuple[Migration, ...] = (
    Migration(1, "initial", _create_tables),
    Migration(2, "encodings", _add_encodings),
    Migration(3, "finishes", _add_finishes),
    Migration(4, "suggestions", _add_suggestions),
    Migration(5, "imported tables", _add_imported_tables),
    Migration(6, "webhooks", _add_webhooks),
    Migration(7, "answered requests", _add_answered_requests),
    Migration(8, "running requests", _note_running_requests),
    Migration(9, "withdrawals", _add_withdrawals),
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
        StoreError: a newer version of teeter wrote the database.
    """
    _applied.create(connection, checkfirst=True)
    versions = set(connection.scalars(select(_applied.c.version)))
    require_known_versions(versions)

    missing = [migration for migration in MIGRATIONS if migration.version not in versions]

    # A new database has today's tables at once: migrations change the tables of older ones.
    if not versions:
        _create_tables(connection)
    else:
        for migration in missing:
            migration.apply(connection)

    for migration in missing:
        row = {
            "version": migration.version,
            "name": migration.name,
            "applied": now,
        }
        connection.execute(_applied.insert().values(row))

    return [migration.name for migration in missing]


def require_known_versions(versions: Iterable[int]) -> None:
    """Refuse a database with migrations that this version of teeter does not have.

    Args:
        versions: the versions of the migrations that were applied to a database.

    Raises:
        StoreError: one of them is unknown.
    """
    unknown = set(versions) - {migration.version for migration in MIGRATIONS}

    if unknown:
        newest = MIGRATIONS[-1].version
        raise StoreError(
            "A newer version of teeter wrote this campaign: its schema has version "
            f"{max(unknown)}, but this version of teeter supports only versions up to {newest}. "
            "Update teeter to open it."
        )


def is_campaign_database(connection: Connection) -> bool:
    """Return whether a database belongs to teeter, even if its tables were never completed."""
    return bool(inspect(connection).has_table(_applied.name))


def is_up_to_date(connection: Connection) -> bool:
    """Return whether a database lacks no migration and has no unknown one. Writes nothing."""
    if not is_campaign_database(connection):
        return False

    versions = set(connection.scalars(select(_applied.c.version)))
    return versions == {migration.version for migration in MIGRATIONS}
