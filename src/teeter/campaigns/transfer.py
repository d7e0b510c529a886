"""A campaign moved from one database to another, whole: from a file to a server and back."""

from __future__ import annotations

import json
from pathlib import Path

from teeter.campaigns.backup import atomic_file
from teeter.campaigns.db import Connection, Database, StoredCampaign
from teeter.campaigns.db.campaigns import add_campaign, list_campaigns
from teeter.campaigns.db.copy_campaign import copy_rows
from teeter.campaigns.settings_store import settings_from_json, settings_to_dict
from teeter.errors import FileError, InputError, UnknownNameError
from teeter.registry import did_you_mean

__all__ = ["move_campaign", "move_to"]


def move_to(source: Database, name: str, to: str) -> tuple[str, dict[str, int]]:
    """Write a campaign to a new file, or to a database by its address; return where it is now, and how many rows.

    A file has its name only when all of it is there, so that a move that failed can be tried again.
    """
    if "://" in to:
        place, _, quote_id = to.partition("#")
        if quote_id not in ("", name):
            raise InputError(
                f"A campaign keeps its name where it goes, and this one is called {name!r}: give {place}."
            )
        return _moved(source, place, name)
    path = Path(to).absolute()
    if path.exists():
        raise InputError(f"{to} exists already: name a new file.")
    if not path.parent.is_dir():
        raise FileError(f"Cannot make {path}: there is no folder {path.parent}.")
    with atomic_file(path) as part:
        _, counts = _moved(source, part, name)
    return str(path), counts


def _moved(source: Database, to: str | Path, name: str) -> tuple[str, dict[str, int]]:
    target = Database(to, create=True)
    try:
        return target.display_url, move_campaign(source, target, name)
    finally:
        target.close()


def move_campaign(source: Database, target: Database, name: str) -> dict[str, int]:
    """Write a campaign of one database into another, and return how many rows of each table it has.

    All of it is there afterwards or nothing; the source is left as it was. Numbers of rows are given anew where the
    target has campaigns already; the ids that people know stay.
    """
    with source.reading() as old, target.writing() as new:
        campaign = _require_movable(old, new, name)
        stored_settings = campaign.settings
        settings = settings_from_json(stored_settings, source)
        if settings.folder is not None:
            stored_settings = json.dumps(settings_to_dict(settings, target.path))

        number = add_campaign(new, name, campaign.created, stored_settings)
        return copy_rows(old, new, campaign.row_id, number)


def _require_movable(old: Connection, new: Connection, name: str) -> StoredCampaign:
    campaigns = list_campaigns(old)
    if name not in campaigns:
        raise UnknownNameError(
            f"No campaign is called {name!r}. {did_you_mean(name, list(campaigns))}"
        )
    if name in list_campaigns(new):
        raise InputError(
            f"There is a campaign called {name!r} where this one is to go: nothing was moved."
        )
    return campaigns[name]
