"""Copy a campaign from one database to another: from a file to a server, and back."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from teeter.base.registry import did_you_mean
from teeter.campaigns.backup import atomic_file, copy_intact_backup
from teeter.campaigns.db import Connection, Database, StoredCampaign
from teeter.campaigns.db.campaigns import add_campaign, list_campaigns
from teeter.campaigns.db.row_copies import copy_rows, delete_rows
from teeter.campaigns.location import find_campaign, is_url, split_location
from teeter.campaigns.settings import settings_from_json, settings_to_dict
from teeter.campaigns.trust import carry_trust, is_trusted_folder, trust_folder
from teeter.errors import FileError, InputError, UnknownNameError

__all__ = ["copy_campaign", "copy_to_location", "restore_to_database"]


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
                f"A copy keeps the name of the campaign ({name!r}): leave out #{new_name}."
            )
        # A database is written in one transaction: a copy that fails leaves nothing behind.
        return _copy_to_database(source, name, url)

    path = Path(location).absolute()
    if path.exists():
        raise InputError(f"{location} already exists: choose another file.")
    if not path.parent.is_dir():
        raise FileError(f"Cannot create {path}: there is no folder {path.parent}.")

    with atomic_file(path) as part:
        _, counts = _copy_to_database(source, name, part)
    carry_trust(part, path)
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
    # The reader sees one state throughout, so people may go on labelling meanwhile.
    with source.reading() as source_connection, target.writing() as target_connection:
        campaign = _require_copyable(source_connection, target_connection, name)
        settings = _copy_settings(campaign.settings, source, target)
        campaign_id = add_campaign(target_connection, name, campaign.created, settings)
        return copy_rows(source_connection, target_connection, campaign.row_id, campaign_id)


def _copy_settings(
    stored_settings: str, source: Database, target: Database, folder: Path | None = None
) -> str:
    """Return the settings of a campaign as they are stored in another database.

    Args:
        stored_settings: The settings as JSON.
        source: The database that they are stored in.
        target: The database to store them in.
        folder: Where the file of the source belongs, if it is a temporary copy.
    """
    settings = settings_from_json(stored_settings, source)
    if settings.folder is None:
        return stored_settings

    # A folder of images is stored relative to the campaign's file, which is now another one.
    images = Path(settings.folder)
    if folder is not None and source.path is not None and images.is_relative_to(source.path.parent):
        images = folder.resolve() / images.relative_to(source.path.parent)
    moved = replace(settings, folder=str(images))
    if is_trusted_folder(source, settings.folder):
        trust_folder(target, moved.folder)
    return json.dumps(settings_to_dict(moved, target.path))


def restore_to_database(backup: Path, location: str, *, overwrite: bool = False) -> None:
    """Copy a campaign from a backup to a database, if the backup is intact.

    Stop the server of the campaign first: it would not notice that its campaign was replaced.

    Args:
        backup: A campaign's file.
        location: The URL of the database, with ``#NAME`` if the backup has several campaigns.
        overwrite: Whether a campaign of this name may be replaced, in the same transaction.

    Raises:
        FileError: If the backup is missing or cannot be read.
        InputError: If the campaign exists and may not be replaced.
        UnknownNameError: If the backup has no campaign of this name.
        StoreError: If the backup is damaged, or the database cannot be used.
    """
    url, name = split_location(location)

    with copy_intact_backup(backup) as copy:
        source = Database(copy)
        try:
            campaign = find_campaign(source, name)
            target = Database(url, create=True)
            try:
                _replace_campaign(
                    source, target, campaign.name, overwrite=overwrite, folder=backup.parent
                )
            finally:
                target.close()
        finally:
            source.close()


def _replace_campaign(
    source: Database, target: Database, name: str, *, overwrite: bool, folder: Path
) -> None:
    """Copy a campaign in one transaction, after removing one of the same name.

    Args:
        source: A temporary copy of a backup.
        target: The database to copy it to.
        name: The campaign's name.
        overwrite: Whether a campaign of this name may be replaced.
        folder: Where the backup is. A folder of images is relative to it.
    """
    with source.reading() as source_connection, target.writing() as target_connection:
        existing = list_campaigns(target_connection).get(name)
        if existing is not None and not overwrite:
            raise InputError(
                f"{target.display_url} already has a campaign called {name!r}: allow overwriting "
                "it, or restore it to another database."
            )
        if existing is not None:
            delete_rows(target_connection, existing.row_id)

        campaign = _require_copyable(source_connection, target_connection, name)
        settings = _copy_settings(campaign.settings, source, target, folder)
        campaign_id = add_campaign(target_connection, name, campaign.created, settings)
        copy_rows(source_connection, target_connection, campaign.row_id, campaign_id)


def _require_copyable(source: Connection, target: Connection, name: str) -> StoredCampaign:
    """Return the campaign to copy, if the target has none of the same name."""
    campaigns = list_campaigns(source)
    if name not in campaigns:
        raise UnknownNameError(
            f"No campaign is called {name!r}. {did_you_mean(name, list(campaigns))}"
        )
    # Checked inside the transaction, so that two copies at once cannot both succeed.
    if name in list_campaigns(target):
        raise InputError(
            f"Nothing was copied, because the target already has a campaign called {name!r}."
        )

    return campaigns[name]
