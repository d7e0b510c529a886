"""The people of all campaigns that are served: their tokens let them in, beside those of the server."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from teeter.errors import StoreError
from teeter.web.service import CampaignService

__all__ = ["CampaignTokens"]

_LOOKED = 1.0
"""Seconds before it is looked again whether a campaign names people by now."""

_REMEMBERED = 10_000
"""Tokens of which it is remembered in which campaign they were found."""


class CampaignTokens:
    """Who may come in by a campaign's token. Whoever was named, revoked or removed is so with the next request."""

    def __init__(self, desks: Mapping[str, CampaignService]) -> None:
        self._desks = desks
        self._needed = False
        self._looked = float("-inf")
        self._found: dict[str, str] = {}
        self._without: set[str] = set()
        """Campaigns that named nobody when they were last read."""

    def is_needed(self) -> bool:
        """Tell whether a campaign names people: then nobody comes in without a token, also if all are removed."""
        if not self._needed and time.monotonic() - self._looked > _LOOKED:
            self._needed = any(self._names_people(desk) for desk in self._there())
            self._looked = time.monotonic()
        return self._needed

    def _names_people(self, desk: CampaignService) -> bool:
        """Tell whether a campaign names people; one that cannot be read now is as it was, and holds up no other."""
        try:
            named = bool(desk.campaign.people.list())
        except StoreError:
            if desk.slug not in self._without:
                raise
            return False
        (self._without.discard if named else self._without.add)(desk.slug)
        return named

    def look_again(self) -> None:
        """Look with the next request, for somebody was named."""
        self._looked = float("-inf")

    def has_tokens(self) -> bool:
        """Tell whether anybody could come in."""
        return any(one.has_token for desk in self._there() for one in desk.campaign.people.list())

    def name_of(self, token: str) -> str | None:
        """Return whose token it is, in any campaign."""
        trouble: StoreError | None = None
        for desk in self._there():
            try:
                found = desk.campaign.people.find_by_token(token)
            except StoreError as error:
                trouble = error
                continue
            if found is not None:
                return found.name
        if trouble is not None:
            raise trouble  # it may be known where nobody answers now
        return None

    def has(self, name: str, mark: str) -> bool:
        """Tell whether somebody still has the token of a mark, in any campaign."""
        if not mark:
            return False
        trouble: StoreError | None = None
        for desk in self._there(self._found.get(mark)):
            try:
                found = desk.campaign.people.find_by_token_prefix(name, mark)
            except StoreError as error:
                trouble = error
                continue
            if found is not None:
                if len(self._found) > _REMEMBERED:
                    self._found.clear()
                self._found[mark] = desk.slug
                return True
        if trouble is not None:
            raise trouble
        return False

    def _there(self, first: str | None = None) -> Iterator[CampaignService]:
        """Return the campaigns whose files are there, the one of an address first."""
        desks = [desk for desk in list(self._desks.values()) if desk.is_there()]
        yield from sorted(desks, key=lambda desk: desk.slug != first)
