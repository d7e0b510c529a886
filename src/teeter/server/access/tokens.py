"""Tokens of the server: one per annotator, shown once when made, stored as hashes."""

from __future__ import annotations

import hmac
import json
import logging
import secrets
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from teeter.base.files import write_private
from teeter.campaigns.campaign import Campaign
from teeter.campaigns.people import hash_token
from teeter.errors import FileError, InputError, StoreError, UnknownNameError

logger = logging.getLogger(__name__)

_MIN_LENGTH = 16
"""Characters that a token chosen by a person must have."""

_PREFIX_LENGTH = 16
"""Hexadecimal digits of a token's hash that identify it in a session: 64 bits."""

_TOKEN_BYTES = 32


class Tokens:
    """Annotators by the hashes of their tokens.

    Args:
        annotator_by_hash: tokens that exist only in this process.
        path: a file of ``make_token``. It is read again whenever it changes, so that tokens are
            added and removed while the server runs.
    """

    def __init__(
        self, annotator_by_hash: Mapping[str, str] | None = None, path: Path | None = None
    ) -> None:
        self._given = dict(annotator_by_hash or {})
        self._path = path
        # None, so that the first look reads the file.
        self._file_version: tuple[int, int, int] | None = None
        self._from_file: dict[str, str] = {}

    @classmethod
    def read(cls, path: Path) -> Tokens:
        """Return the tokens of a file that ``make_token`` wrote; none if the file does not exist.

        Raises:
            FileError: it is not a file of tokens.
        """
        _read_hashes(path)  # report a damaged file when the server starts
        return cls(path=path)

    def add(self, name: str, token: str) -> None:
        """Accept a token of an annotator, in this process only.

        Raises:
            InputError: the name cannot be printed, or the token is short enough to be guessed.
        """
        annotator = _require_name(name)
        if len(token) < _MIN_LENGTH:
            raise InputError(
                f"The token of {annotator} has {len(token)} characters: give {_MIN_LENGTH} or "
                "more, or use teeter serve --make-token."
            )
        self._given[hash_token(token)] = annotator

    def __len__(self) -> int:
        return len(self._annotator_by_hash())

    def find_annotator(self, token: str) -> str | None:
        """Return the annotator who has a token, or None."""
        digest = hash_token(token).encode()
        annotator = None

        # Every hash is compared to its end, so that the time taken says nothing about the token.
        for known_digest, name in self._annotator_by_hash().items():
            if hmac.compare_digest(known_digest.encode(), digest):
                annotator = name

        return annotator

    def is_valid(self, annotator: str, prefix: str) -> bool:
        """Return whether an annotator still has the token whose hash starts with a prefix."""
        for digest, name in self._annotator_by_hash().items():
            if name == annotator and digest[:_PREFIX_LENGTH] == prefix:
                return True
        return False

    def _annotator_by_hash(self) -> dict[str, str]:
        if self._path is None:
            return self._given

        version = _file_version(self._path)
        if version != self._file_version:
            self._from_file = self._read_file(self._path)
            self._file_version = version

        # A token of the command line wins over a stored one of the same hash.
        return {**self._from_file, **self._given}

    def _read_file(self, path: Path) -> dict[str, str]:
        try:
            hashes = _read_hashes(path)
        except FileError as error:
            # Fail closed: no token of a damaged file is valid.
            logger.warning("None of the tokens in the file can be used: %s", error)
            return {}
        return {digest: annotator for annotator, digest in hashes.items()}


def token_prefix(token: str) -> str:
    """Return the start of a token's hash, which identifies the token in a session."""
    return hash_token(token)[:_PREFIX_LENGTH]


def make_token(path: Path, name: str) -> str:
    """Make a token for an annotator, replacing an earlier one.

    Args:
        path: the file of hashes to write.

    Returns:
        The token. It cannot be read again: the file has only its hash.

    Raises:
        InputError: the name is empty or cannot be printed.
        FileError: the file cannot be written, or is not a file of tokens.
    """
    annotator = _require_name(name)
    token = secrets.token_urlsafe(_TOKEN_BYTES)

    hashes = _read_hashes(path)
    # One token per annotator: a new one ends the sessions of the old one.
    hashes[annotator] = hash_token(token)
    write_private(path, json.dumps(hashes, indent=1) + "\n")
    return token


def remove_token(path: Path, name: str) -> None:
    """Remove an annotator's token from a file, which ends their sessions.

    Raises:
        UnknownNameError: the file has no token of this annotator.
    """
    annotator = name.strip()
    hashes = _read_hashes(path)

    if annotator not in hashes:
        holders = ", ".join(sorted(hashes)) or "no annotator"
        raise UnknownNameError(
            f"{path} has no token for {annotator[:100]!r}: it has tokens for {holders}."
        )

    del hashes[annotator]
    write_private(path, json.dumps(hashes, indent=1) + "\n")


def server_secret(path: Path) -> bytes:
    """Return the secret that signs session cookies.

    It is made once and stored in a file, so that sessions outlive a restart.

    Raises:
        FileError: the file cannot be written, or holds no secret.
    """
    if not path.exists():
        write_private(path, secrets.token_hex(_TOKEN_BYTES))

    try:
        return bytes.fromhex(path.read_text(encoding="utf-8").strip())
    except (ValueError, OSError):
        raise FileError(
            f"{path} does not contain the secret that signs cookies: remove the file to create a "
            f"new secret."
        ) from None


def _require_name(name: str) -> str:
    annotator = name.strip()
    if not annotator or not annotator.isprintable():
        raise InputError("The name of an annotator must consist of printable characters.")
    return annotator


def _file_version(path: Path) -> tuple[int, int, int] | None:
    """Return what changes whenever a file is replaced or written; None if it cannot be read."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _read_hashes(path: Path) -> dict[str, str]:
    """Return the hashes in a file by annotator; none if there is no file."""
    if not path.exists():
        return {}

    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return {str(annotator): str(digest) for annotator, digest in content.items()}
    except (ValueError, AttributeError, OSError):
        raise FileError(
            f"{path} is not a token file: create one with teeter serve --make-token NAME."
        ) from None


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

    def __init__(self, campaigns: Mapping[str, Campaign]) -> None:
        self._campaigns = campaigns
        self._is_required = False
        self._checked_at = float("-inf")
        self._campaign_of_prefix: dict[str, str] = {}
        self._without_annotators: set[str] = set()
        """Locations of campaigns that named no annotators when they were last read."""

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
                self._names_annotators(campaign) for campaign in self._open_campaigns()
            )
            self._checked_at = time.monotonic()
        return self._is_required

    def refresh(self) -> None:
        """Check again with the next request, because a campaign was opened or named annotators."""
        self._checked_at = float("-inf")

    def has_tokens(self) -> bool:
        """Return whether any annotator has a token."""
        for campaign in self._open_campaigns():
            if any(person.has_token for person in campaign.people.list()):
                return True
        return False

    def find_annotator(self, token: str) -> str | None:
        """Return the annotator who has a token in any campaign, or None.

        Raises:
            StoreError: the token is not found, and some campaign cannot be read now.
        """

        def find(campaign: Campaign) -> str | None:
            person = campaign.people.find_by_token(token)
            if person is None:
                return None
            return person.name

        return _first_result(find, self._open_campaigns())

    def is_valid(self, annotator: str, prefix: str) -> bool:
        """Return whether an annotator still has the token whose hash starts with a prefix.

        Raises:
            StoreError: the token is not found, and some campaign cannot be read now.
        """
        if not prefix:
            return False

        def find(campaign: Campaign) -> str | None:
            person = campaign.people.find_by_token_prefix(annotator, prefix)
            if person is None:
                return None
            return campaign.location

        # Most requests need one query only: that of the campaign the token was found in before.
        last_location = self._campaign_of_prefix.get(prefix)
        campaigns = sorted(
            self._open_campaigns(), key=lambda campaign: campaign.location != last_location
        )

        location = _first_result(find, campaigns)
        if location is None:
            return False

        if len(self._campaign_of_prefix) > _MAX_REMEMBERED:
            self._campaign_of_prefix.clear()
        self._campaign_of_prefix[prefix] = location
        return True

    def _names_annotators(self, campaign: Campaign) -> bool:
        try:
            is_naming = bool(campaign.people.list())
        except StoreError:
            # One database that is away must not stop campaigns without annotators. A campaign that
            # was never read may have some, so the request fails.
            if campaign.location in self._without_annotators:
                return False
            raise

        if is_naming:
            self._without_annotators.discard(campaign.location)
        else:
            self._without_annotators.add(campaign.location)
        return is_naming

    def _open_campaigns(self) -> list[Campaign]:
        # A copy: other threads open and close campaigns meanwhile.
        return [
            campaign
            for campaign in list(self._campaigns.values())
            if campaign.database.is_in_place()
        ]


def _first_result(find: Callable[[Campaign], T | None], campaigns: list[Campaign]) -> T | None:
    """Return what is found in the first campaign that has it.

    Raises:
        StoreError: nothing was found, but it might be in a campaign that cannot be read now.
    """
    failure: StoreError | None = None
    for campaign in campaigns:
        try:
            result = find(campaign)
        except StoreError as error:
            failure = error
            continue

        if result is not None:
            return result

    if failure is not None:
        raise failure
    return None
