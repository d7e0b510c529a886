"""What only the person who runs teeter may decide, and no campaign's file.

A file may come from a stranger. If its word were enough, it could let a server show the images of
the whole disk, or send every answer to the stranger and requests into the server's network. A
folder of images that is not beside the file, and every webhook, therefore need the word of a
person: they create them here, or start ``teeter serve`` once with ``--trust``.

The word is kept in ``trusted.json`` beside the server's tokens: for each campaign, by the path of
its file or the URL of its database, the folders and addresses that it may use.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock

from teeter.base.files import write_private
from teeter.campaigns.settings import resolve_folder
from teeter.campaigns.store import Database
from teeter.errors import FileError, InputError

if TYPE_CHECKING:
    from teeter.campaigns.campaign import Campaign


def home() -> Path:
    """Return the folder with the server's secrets, which only its owner may read.

    ``TEETER_HOME`` if it is set, else the configuration folder of the system.
    """
    if os.environ.get("TEETER_HOME"):
        return Path(os.environ["TEETER_HOME"])

    if os.name == "nt":
        # Not the roaming profile, which Windows copies to other machines.
        local_data = os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")
        return Path(local_data) / "teeter"

    config_folder = Path.home() / ".config"
    if os.environ.get("XDG_CONFIG_HOME"):
        config_folder = Path(os.environ["XDG_CONFIG_HOME"])
    return config_folder / "teeter"


def trust(database: Database, place: str) -> None:
    """Let the campaigns of a database use an address or a folder, now and later.

    Raises:
        FileError: ``trusted.json`` cannot be written.
    """
    _add(_location(database), [place])


def is_trusted(database: Database, place: str) -> bool:
    """Return whether the campaigns of a database may use an address or a folder."""
    return place in _read().get(_location(database), [])


def trust_webhook(database: Database, url: str, *, allow_private: bool) -> None:
    """Let the campaigns of a database send events to an address, now and later.

    Args:
        database: The database of the campaigns.
        url: The address.
        allow_private: Whether it may also lead into the server's own network.
    """
    place = url if allow_private else _PUBLIC + url
    trust(database, place)


def is_trusted_webhook(database: Database, url: str, *, allow_private: bool) -> bool:
    """Return whether the campaigns of a database may send events to an address."""
    if is_trusted(database, url):
        return True
    if allow_private:
        return False
    return is_trusted(database, _PUBLIC + url)


_PUBLIC = "public: "
"""Before an address that events may be sent to as long as it is in no private network."""


def trust_folder(database: Database, folder: str | None) -> None:
    """Let the campaigns of a database read images in a folder; None for no folder."""
    if folder is not None and not is_trusted_folder(database, folder):
        trust(database, str(resolve_folder(folder)))


def is_trusted_folder(database: Database, folder: str) -> bool:
    """Return whether the campaigns of a database may read images in a folder.

    They may in the folder of their file, and in those inside it.
    """
    resolved = resolve_folder(folder)
    if database.path is not None:
        own_folder = database.path.resolve().parent
        if resolved.is_relative_to(own_folder):
            return True
    return is_trusted(database, str(resolved))


def require_trusted_folder(database: Database, folder: str | None) -> Path | None:
    """Return the folder of a campaign's images; None if it has none.

    Raises:
        InputError: only the campaign's file says that images may be read there, or it cannot be a
            folder.
    """
    if folder is None:
        return None
    if not is_trusted_folder(database, folder):
        raise InputError(
            f"The campaign names {folder} as the folder of its images. It was not created here, "
            f"and the folder is not beside its file, so no image is read. If you trust the "
            f"campaign, give teeter serve the option --trust {shlex.quote(folder)} once."
        )
    return Path(folder)


def find_untrusted(campaign: Campaign, places: Sequence[str] = ()) -> list[str]:
    """Return why some parts of a campaign do not work, a sentence for each.

    Args:
        campaign: The campaign.
        places: The user's word: folders, which stand for those inside them too, and addresses.
            What they allow is trusted from now on.
    """
    database = campaign.database
    with campaign.reading() as view:
        webhooks = view.webhooks.all()

    folder = campaign.settings.folder
    sentences = []
    try:
        if folder is not None:
            resolved = resolve_folder(folder)
            allowed = [Path(place).resolve() for place in places]
            if any(resolved.is_relative_to(place) for place in allowed):
                trust_folder(database, folder)
        require_trusted_folder(database, folder)
    except InputError as error:
        sentences.append(str(error))

    addresses = {(webhook.url, webhook.allow_private) for webhook in webhooks}
    for url, allow_private in sorted(addresses):
        if url in places:
            trust_webhook(database, url, allow_private=allow_private)
        elif not is_trusted_webhook(database, url, allow_private=allow_private):
            sentences.append(untrusted_webhook_sentence(url, allow_private=allow_private))
    return sentences


def untrusted_webhook_sentence(url: str, *, allow_private: bool) -> str:
    """Return why events are not sent to an address."""
    reason = "was not added here"
    if allow_private:
        reason = "may lead into your own network and was not added here"
    return (
        f"The webhook {url} {reason}, so it gets no event. If you trust the campaign, give teeter "
        f"serve the option --trust {shlex.quote(url)} once."
    )


def carry_trust(source: Path, target: Path) -> None:
    """Let a campaign's file that was renamed use what it may under its earlier name."""
    places = _read().get(str(source.resolve()), [])
    if places:
        _add(str(target.resolve()), places)


def _location(database: Database) -> str:
    """Return what ``trusted.json`` calls a campaign's file or database."""
    if database.path is None:
        return database.display_url
    return str(database.path.resolve())


def _file() -> Path:
    return home() / "trusted.json"


def _read() -> dict[str, list[str]]:
    """Return the trusted folders and addresses by the location of a campaign."""
    path = _file()
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return {str(location): list(map(str, places)) for location, places in content.items()}
    except FileNotFoundError:
        return {}
    except (ValueError, AttributeError, TypeError, OSError):
        raise FileError(
            f"{path} cannot be read, so no campaign is trusted: remove it, and trust the campaigns "
            f"again."
        ) from None


def _add(location: str, places: Sequence[str]) -> None:
    path = _file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Another process may write at the same time.
        with FileLock(path.with_name(path.name + ".lock")):
            trusted = _read()
            earlier = trusted.get(location, [])
            trusted[location] = sorted({*earlier, *places})
            # A later file of the same path may come from someone else.
            kept = {
                name: names
                for name, names in trusted.items()
                if name == location or "://" in name or Path(name).exists()
            }
            write_private(path, json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
    except OSError as error:
        raise FileError(f"Cannot write {path}: {error.strerror or error}.") from None
