"""A campaign as its pages and REST need it, with values that are kept until it changes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from unicodedata import combining, normalize

from teeter.campaigns.campaign import Campaign

_WRITE_TIMEOUT = 10
"""Seconds that an answer waits for another process that writes. The page waits 20 for us."""

_TEAM_CHECK_SECONDS = 5.0
"""How long it may take until a second annotator is noticed."""


def make_slug(name: str, taken: Iterable[str]) -> str:
    """Return a name for addresses: lower-case letters, digits and hyphens.

    Args:
        taken: names that the new one must differ from.

    Example:
        >>> make_slug("Straße 1", taken=[]), make_slug("Spam!", taken=["spam"])
        ('strasse-1', 'spam-2')
    """
    # NFKD splits letters from their accents.
    decomposed = normalize("NFKD", name.casefold())
    letters = "".join(character for character in decomposed if not combining(character))
    stem = re.sub(r"[^a-z0-9]+", "-", letters).strip("-") or "campaign"

    taken = set(taken)
    slug = stem
    number = 2
    while slug in taken:
        slug = f"{stem}-{number}"
        number += 1
    return slug


class CampaignService:
    """One campaign that is open to be labelled.

    Args:
        location: the campaign's file or database URL.
        slug: its name in addresses.
    """

    def __init__(self, location: str | Path, slug: str) -> None:
        self.location = str(location)
        self.slug = slug
        self.campaign = Campaign.open(location)
        # Shorter than the default: people should see at once that an answer is not saved.
        self.campaign.database.write_timeout = _WRITE_TIMEOUT
