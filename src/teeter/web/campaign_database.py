"""A database whose campaigns the server serves, and in which it creates new ones."""

from __future__ import annotations

from pathlib import Path

from teeter.campaigns.campaign import Campaign
from teeter.campaigns.store import Database
from teeter.campaigns.store.copies import copy_campaign
from teeter.campaigns.store.location import split_location
from teeter.campaigns.store.queries.campaigns import list_campaigns
from teeter.errors import InputError

__all__ = ["CampaignDatabase"]


class CampaignDatabase:
    """All campaigns of a database, including those that are created later.

    Args:
        url: the URL of the database. Its tables are created if it is empty.

    Raises:
        InputError: the URL names a single campaign.
        StoreError: the database cannot be used.
    """

    def __init__(self, url: str) -> None:
        place, name = split_location(url)
        if name is not None or "://" not in url:
            raise InputError(
                "--database takes the URL of a whole database, such as "
                "postgresql://teeter@db.example.org/campaigns."
            )
        self.url = str(place)
        self._database = Database(self.url, create=True)

    def names(self) -> list[str]:
        """Return the names of its campaigns.

        Raises:
            StoreError: the database does not answer.
        """
        with self._database.reading() as connection:
            return sorted(list_campaigns(connection))

    def location(self, name: str) -> str:
        """Return the location of one of its campaigns."""
        return f"{self.url}#{name}"

    def move_in(self, file: Path) -> str:
        """Move a campaign from a file into the database, and return its new location.

        Raises:
            InputError: there is a campaign of this name.
            StoreError: the database does not answer. The file stays.
        """
        campaign = Campaign.open(file)
        try:
            copy_campaign(campaign.database, self._database, campaign.name)
        finally:
            campaign.database.close()

        file.unlink()
        return self.location(campaign.name)

    def close(self) -> None:
        """Close the connections."""
        self._database.close()
