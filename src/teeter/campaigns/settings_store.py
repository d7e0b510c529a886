"""Where a campaign is, what it is called and how it is set up, as its database has it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from teeter.campaigns.db import CampaignRepository, Database, StoredCampaign
from teeter.campaigns.db.campaigns import list_campaigns
from teeter.campaigns.items import require_printable, require_valid_unicode
from teeter.campaigns.settings import Settings
from teeter.errors import InputError, StoreError, UnknownNameError
from teeter.registry import did_you_mean

__all__ = [
    "campaign_row",
    "change_consensus",
    "checked_names",
    "settings_from_json",
    "settings_to_dict",
    "split_location",
]


def checked_names(name: str, classes: Sequence[str]) -> list[str]:
    """Return the classes' names as they are kept, if they and the campaign's name can be."""
    names = [str(one).strip() for one in classes]
    if len(names) < 2 or not all(names) or len(set(names)) < len(names):
        raise InputError(f"The classes are {names}: give two or more different names.")
    for one in names:
        require_printable(one, "class")
    if not name.strip():
        raise InputError("A campaign needs a name.")
    require_valid_unicode(name, "campaign's name")
    return names


def split_location(where: str | Path) -> tuple[str | Path, str | None]:
    """Return where a campaign is, and its name where it follows after #; a file's name may have that sign itself."""
    place, sign, name = str(where).rpartition("#") if isinstance(where, str) else ("", "", "")
    if not sign or ("://" not in place and Path(str(where)).exists()):
        return where, None
    return place, name or None


def campaign_row(store: Database, name: str | None) -> StoredCampaign:
    """Return the row of the campaign called so, or of the only one."""
    with store.reading() as connection:
        by_name = list_campaigns(connection)
    if not by_name:
        raise StoreError(
            f"There is no campaign in {store.display_url}: make one with teeter campaign new."
        )
    if name is None and len(by_name) > 1:
        raise InputError(
            f"{store.display_url} has several campaigns: say which of "
            f"{', '.join(sorted(by_name))}, as in {store.display_url}#NAME."
        )
    chosen = next(iter(by_name)) if name is None else name
    if chosen not in by_name:
        raise UnknownNameError(
            f"No campaign is called {chosen!r}. {did_you_mean(chosen, list(by_name))}"
        )
    return by_name[chosen]


def settings_to_dict(settings: Settings, file: Path | None) -> dict[str, Any]:
    """Return settings as they are kept: a folder below the campaign's file goes by its path from there."""
    if settings.folder is not None:
        folder = Path(settings.folder).resolve()
        around = None if file is None else file.resolve().parent
        near = around is not None and folder.is_relative_to(around)
        settings = replace(
            settings, folder=str(folder.relative_to(around or "")) if near else str(folder)
        )
    return asdict(settings)


def settings_from_json(text: str, store: Database) -> Settings:
    """Return the settings that were kept in a store."""
    damaged = StoreError(
        f"{store.display_url} is damaged: its settings cannot be read. Use a backup of it."
    )
    try:
        told = json.loads(text)
    except (ValueError, TypeError):
        raise damaged from None
    if not isinstance(told, dict):
        raise damaged
    strange = sorted(set(told) - {one.name for one in fields(Settings)})
    if strange:
        raise StoreError(
            f"{store.display_url} has a setting of a newer teeter ({strange[0]}): update teeter to open it."
        )
    try:
        settings = Settings(**told)
    except TypeError:
        raise damaged from None
    if settings.folder is None or store.path is None:
        return settings
    return replace(settings, folder=str(store.path.resolve().parent / settings.folder))


def change_consensus(
    store: Database, repository: CampaignRepository, settings: Settings, way: str, *, who: str
) -> Settings:
    """Say how several answers become one label from now on, and return the settings as they are then."""
    changed = replace(settings, consensus=way)
    with store.writing() as connection:
        stored = json.loads(repository.campaign(connection).settings)
        repository.write_settings(connection, json.dumps({**stored, "consensus": way}))
        repository.history.append(connection, who, "consensus", None, {"way": way})
    return changed
