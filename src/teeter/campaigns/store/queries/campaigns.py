"""The campaigns of a database."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, select, update

from teeter.campaigns.store import schema
from teeter.campaigns.store.schema import CAMPAIGNS
from teeter.campaigns.store.scope import insert_row

__all__ = ["StoredCampaign", "add_campaign", "list_campaigns", "read_campaign", "write_settings"]


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


def read_campaign(connection: Connection, campaign_id: int) -> StoredCampaign:
    """Return a campaign by its row id."""
    query = select(schema.campaigns).where(CAMPAIGNS.id == campaign_id)
    row = connection.execute(query).one()
    return StoredCampaign(row.id, row.name, row.created, row.settings)


def add_campaign(connection: Connection, name: str, created: str, settings: str) -> int:
    """Store a campaign and return its row id. The caller checks that the name is free."""
    values = {
        "name": name,
        "created": created,
        "settings": settings,
    }
    return insert_row(connection, schema.campaigns, values)


def write_settings(connection: Connection, campaign_id: int, settings: str) -> None:
    """Replace the settings of a campaign.

    Args:
        connection: a connection that may write.
        campaign_id: the campaign's row id.
        settings: the new settings as JSON.
    """
    row = CAMPAIGNS.id == campaign_id
    statement = update(schema.campaigns).where(row).values(settings=settings)
    connection.execute(statement)
