"""Tokens that campaigns give to their annotators, over all campaigns of the server."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TypeVar

from teeter.errors import StoreError
from teeter.web.service import CampaignService

__all__ = ["CampaignTokens"]

REFRESH_SECONDS = 1.0
"""How long it may take until a campaign that names its first annotators is noticed."""

_MAX_REMEMBERED = 10_000
"""Tokens whose campaign is remembered."""

T = TypeVar("T")


class CampaignTokens:
    """The tokens of all open campaigns. Changes hold from the next request on.

    Args:
        campaigns: the server's campaigns by slug. The mapping may change later.
    """

    def __init__(self, campaigns: Mapping[str, CampaignService]) -> None:
        self._campaigns = campaigns
        self._is_required = False
        self._checked_at = float("-inf")
        self._campaign_of_prefix: dict[str, str] = {}
        self._without_annotators: set[str] = set()
        """Slugs of campaigns that named no annotators when they were last read."""

    def is_required(self) -> bool:
        """Return whether any campaign names annotators, so that everybody needs a token.

        Once true it stays true until the server ends: removing the last annotator must not open
        the server to everybody.

        Raises:
            StoreError: a campaign that may name annotators cannot be read now.
        """
        is_stale = time.monotonic() - self._checked_at > REFRESH_SECONDS
        if not self._is_required and is_stale:
            self._is_required = any(
                self._names_annotators(service) for service in self._open_campaigns()
            )
            self._checked_at = time.monotonic()
        return self._is_required

    def refresh(self) -> None:
        """Check again with the next request, because a campaign was opened or named annotators."""
        self._checked_at = float("-inf")

    def has_tokens(self) -> bool:
        """Return whether any annotator has a token."""
        for service in self._open_campaigns():
            if any(person.has_token for person in service.campaign.people.list()):
                return True
        return False

    def find_annotator(self, token: str) -> str | None:
        """Return the annotator who has a token in any campaign, or None.

        Raises:
            StoreError: the token is not found, and some campaign cannot be read now.
        """

        def find(service: CampaignService) -> str | None:
            person = service.campaign.people.find_by_token(token)
            return None if person is None else person.name

        return _first_result(find, self._open_campaigns())

    def is_valid(self, annotator: str, prefix: str) -> bool:
        """Return whether an annotator still has the token whose hash starts with a prefix.

        Raises:
            StoreError: the token is not found, and some campaign cannot be read now.
        """
        if not prefix:
            return False

        def find(service: CampaignService) -> str | None:
            person = service.campaign.people.find_by_token_prefix(annotator, prefix)
            return None if person is None else service.slug

        # Most requests need one query only: that of the campaign the token was found in before.
        last_slug = self._campaign_of_prefix.get(prefix)
        campaigns = sorted(self._open_campaigns(), key=lambda service: service.slug != last_slug)

        slug = _first_result(find, campaigns)
        if slug is None:
            return False

        if len(self._campaign_of_prefix) > _MAX_REMEMBERED:
            self._campaign_of_prefix.clear()
        self._campaign_of_prefix[prefix] = slug
        return True

    def _names_annotators(self, service: CampaignService) -> bool:
        try:
            is_naming = bool(service.campaign.people.list())
        except StoreError:
            # One database that is away must not stop campaigns without annotators. A campaign that
            # was never read may have some, so the request fails.
            if service.slug in self._without_annotators:
                return False
            raise

        if is_naming:
            self._without_annotators.discard(service.slug)
        else:
            self._without_annotators.add(service.slug)
        return is_naming

    def _open_campaigns(self) -> list[CampaignService]:
        # A copy: other threads open and close campaigns meanwhile.
        return [service for service in list(self._campaigns.values()) if service.is_in_place()]


def _first_result(
    find: Callable[[CampaignService], T | None], campaigns: list[CampaignService]
) -> T | None:
    """Return what is found in the first campaign that has it.

    Raises:
        StoreError: nothing was found, but it might be in a campaign that cannot be read now.
    """
    failure: StoreError | None = None
    for service in campaigns:
        try:
            result = find(service)
        except StoreError as error:
            failure = error
            continue

        if result is not None:
            return result

    if failure is not None:
        raise failure
    return None
