"""Copy a campaign from one database to another: from a file to a server, and back."""

from __future__ import annotations

import json
from pathlib import Path

from teeter.campaigns.backup import atomic_file
from teeter.campaigns.db import Connection, Database, StoredCampaign
from teeter.campaigns.db.campaigns import add_campaign, list_campaigns
from teeter.campaigns.db.row_copies import copy_rows
from teeter.campaigns.location import is_url, split_location
from teeter.campaigns.settings import settings_from_json, settings_to_dict
from teeter.errors import FileError, InputError, UnknownNameError
from teeter.registry import did_you_mean

__all__ = ["copy_campaign", "copy_to_location"]


def copy_to_location(source: Database, name: str, location: str) -> tuple[str, dict[str, int]]:
    """Copy a campaign to a new file, or to a database by its URL.

    A file appears under its name only when it is complete, so a copy that failed can be repeated.

    Args:
        source: The database of the campaign.
        name: The campaign's name, which it keeps.
        location: The new file, or the URL of a database.

    Returns:
        Where the copy is, without a password, and the number of rows of each table.

    Raises:
        InputError: If the file or a campaign of this name already exists.
        FileError: If the file cannot be written.
        StoreError: If the database cannot be used.
    """
    if is_url(location):
        url, new_name = split_location(location)
        if new_name not in (None, name):
            raise InputError(
                f"A campaign keeps its name, and this one is called {name!r}: leave out "
                f"#{new_name}."
            )
        # A database is written in one transaction: a copy that fails leaves nothing behind.
        return _copy_to_database(source, name, url)

    path = Path(location).absolute()
    if path.exists():
        raise InputError(f"{location} already exists: name a new file.")
    if not path.parent.is_dir():
        raise FileError(f"Cannot create {path}: there is no folder {path.parent}.")

    with atomic_file(path) as part:
        _, counts = _copy_to_database(source, name, part)
    return str(path), counts


def _copy_to_database(
    source: Database, name: str, location: str | Path
) -> tuple[str, dict[str, int]]:
    target = Database(location, create=True)
    try:
        return target.display_url, copy_campaign(source, target, name)
    finally:
        target.close()


def copy_campaign(source: Database, target: Database, name: str) -> dict[str, int]:
    """Copy a campaign from one database to another, in one transaction.

    The source stays as it is. Row ids change if the target has campaigns already; item ids and
    everything else that people see stay the same.

    Args:
        source: The database of the campaign.
        target: The database to copy it to.
        name: The campaign's name.

    Returns:
        The number of rows of each table.

    Raises:
        UnknownNameError: If the source has no campaign of this name.
        InputError: If the target has one already.
    """
    with source.reading() as source_connection, target.writing() as target_connection:
        campaign = _require_copyable(source_connection, target_connection, name)

        stored_settings = campaign.settings
        settings = settings_from_json(stored_settings, source)
        # A folder of images is stored relative to the campaign's file, which is now another one.
        if settings.folder is not None:
            stored_settings = json.dumps(settings_to_dict(settings, target.path))

        campaign_id = add_campaign(target_connection, name, campaign.created, stored_settings)
        return copy_rows(source_connection, target_connection, campaign.row_id, campaign_id)


def _require_copyable(source: Connection, target: Connection, name: str) -> StoredCampaign:
    """Return the campaign to copy, if the target has none of the same name."""
    campaigns = list_campaigns(source)
    if name not in campaigns:
        raise UnknownNameError(
            f"No campaign is called {name!r}. {did_you_mean(name, list(campaigns))}"
        )
    # Checked inside the transaction, so that two copies at once cannot both succeed.
    if name in list_campaigns(target):
        raise InputError(f"The target already has a campaign called {name!r}: nothing was copied.")

    return campaigns[name]
