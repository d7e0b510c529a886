"""Where a campaign is, and what it may be called.

A location is a file, or the URL of a database. ``FILE#NAME`` and ``URL#NAME`` name one of several
campaigns in it.
"""

from __future__ import annotations

from pathlib import Path

from teeter.base.registry import did_you_mean
from teeter.campaigns.items.item import require_valid_unicode
from teeter.campaigns.store import Database, StoredCampaign
from teeter.campaigns.store.repository import list_campaigns
from teeter.errors import InputError, StoreError, UnknownNameError

__all__ = [
    "find_campaign",
    "is_url",
    "split_location",
    "validate_name",
]


def is_url(location: str | Path) -> bool:
    """Return whether a location is the URL of a database, not a file."""
    # A Path is never a URL: it turns :// into :/.
    return isinstance(location, str) and "://" in location


def split_location(location: str | Path) -> tuple[str | Path, str | None]:
    """Split a location into the file or URL and the campaign's name after ``#``.

    Returns:
        The file or URL, and the name; None if the location has no name.

    Example:
        >>> split_location("reviews.teeter#first")
        ('reviews.teeter', 'first')
        >>> split_location("postgresql://host/reviews")
        ('postgresql://host/reviews', None)
    """
    if not isinstance(location, str):
        return location, None

    place, separator, name = location.rpartition("#")
    if not separator:
        return location, None
    # A file may have the character in its own name.
    if not is_url(place) and Path(location).exists():
        return location, None

    return place, name or None


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
