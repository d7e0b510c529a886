"""Where a campaign is, and what it and its classes may be called.

A location is a file, or the URL of a database. ``FILE#NAME`` and ``URL#NAME`` name one of several
campaigns in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from teeter.base.registry import did_you_mean
from teeter.campaigns.items.item import require_printable, require_valid_unicode
from teeter.campaigns.store import Database, StoredCampaign
from teeter.campaigns.store.queries.classes import require_distinct_names
from teeter.campaigns.store.repository import list_campaigns
from teeter.errors import InputError, StoreError, UnknownNameError

__all__ = [
    "as_class_name",
    "find_campaign",
    "is_url",
    "split_location",
    "validate_classes",
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


def validate_classes(classes: Sequence[Any]) -> list[str]:
    """Return the names of classes as they are stored: as texts, without blanks around them.

    Raises:
        InputError: If there are fewer than two, if two are the same but for case and spaces, or if
            one is blank or cannot be shown.

    Example:
        >>> validate_classes([0, 1])
        ['0', '1']
    """
    # A text is a sequence too, and each of its letters would become a class.
    if isinstance(classes, str):
        raise InputError(f"The classes are the string {classes!r}: give a list of names.")
    # A data frame would give the names of its columns.
    if hasattr(classes, "columns"):
        raise InputError(f"The classes are a {type(classes).__name__}: give a list of names.")

    names = [as_class_name(name).strip() for name in classes]
    has_blank = "" in names
    has_duplicate = len(set(names)) < len(names)
    if len(names) < 2 or has_blank or has_duplicate:
        raise InputError(f"The classes are {names}: give two or more different names.")
    require_distinct_names(names)

    for name in names:
        require_printable(name, "class")
    return names


def as_class_name(value: Any) -> str:
    """Return the name of a class as text. Classes may be given as numbers or booleans.

    Raises:
        InputError: If it is something else.

    Example:
        >>> as_class_name(3), as_class_name(True), as_class_name("spam")
        ('3', 'True', 'spam')
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bool | int | float | np.bool_ | np.number):
        return str(value)
    raise InputError(
        f"{value!r} cannot be the name of a class: give a string or a number, not a "
        f"{type(value).__name__}."
    )
