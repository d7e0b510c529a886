"""The campaigns of a database."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, select

from teeter.base.registry import did_you_mean
from teeter.campaigns.items.item import require_valid_unicode
from teeter.campaigns.store import schema
from teeter.campaigns.store.database import Database
from teeter.campaigns.store.scope import insert_row
from teeter.errors import InputError, StoreError, UnknownNameError

__all__ = [
    "StoredCampaign",
    "add_campaign",
    "campaign_names",
    "find_campaign",
    "list_campaigns",
    "validate_name",
]


@dataclass(frozen=True)
class StoredCampaign:
    """A campaign of a database."""

    row_id: int
    name: str
    created: str
    settings: str
    """JSON."""


def list_campaigns(connection: Connection) -> dict[str, StoredCampaign]:
    """Return all campaigns of a database by name."""
    rows = connection.execute(select(schema.campaigns))
    return {row.name: StoredCampaign(row.id, row.name, row.created, row.settings) for row in rows}


def campaign_names(database: Database) -> list[str]:
    """Return the names of all campaigns of a database, sorted."""
    with database.reading() as connection:
        return sorted(list_campaigns(connection))


def add_campaign(connection: Connection, name: str, created: str, settings: str) -> int:
    """Store a campaign and return its row id. The caller checks that the name is free."""
    values = {
        "name": name,
        "created": created,
        "settings": settings,
    }
    return insert_row(connection, schema.campaigns, values)


def find_campaign(database: Database, name: str | None) -> StoredCampaign:
    """Return a campaign of a database.

    Args:
        database: The database.
        name: The campaign's name, or None if the database has only one.

    Raises:
        StoreError: If the database has no campaign.
        InputError: If it has several and none is named.
        UnknownNameError: If it has none of that name.
    """
    with database.reading() as connection:
        campaigns = list_campaigns(connection)

    if not campaigns:
        raise StoreError(
            f"There is no campaign in {database.display_url}: create one with teeter campaign new."
        )

    if name is None:
        if len(campaigns) > 1:
            raise InputError(
                f"{database.display_url} has several campaigns: name one of "
                f"{', '.join(sorted(campaigns))}, as in {database.display_url}#NAME."
            )
        (name,) = campaigns

    if name not in campaigns:
        raise UnknownNameError(
            f"No campaign is called {name!r}. {did_you_mean(name, list(campaigns))}"
        )
    return campaigns[name]


def validate_name(name: str) -> None:
    """Raise InputError if a campaign cannot have this name."""
    if not name.strip():
        raise InputError("A campaign needs a name.")

    require_valid_unicode(name, "campaign's name")
