"""A token for each annotator: shown once when it is made, kept as its hash."""

from __future__ import annotations

import hmac
import json
import logging
import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from teeter.campaigns.people import hash_token
from teeter.errors import FileError, InputError, UnknownNameError

__all__ = ["Tokens", "home", "make_token", "remove_token", "server_secret", "token_prefix"]

log = logging.getLogger(__name__)

_SHORTEST = 16
"""Characters of a token that somebody made up."""

_MARK = 16
"""Signs of a token's hash that a session keeps."""

_Stamp = tuple[int, int, int] | None
"""What tells that a file is another: its time, size and number; None without a file."""


def home() -> Path:
    """Return the folder where the server keeps what only its owner may read."""
    told = os.environ.get("TEETER_HOME") or os.environ.get("XDG_CONFIG_HOME")
    if told and os.environ.get("TEETER_HOME"):
        return Path(told)
    if os.name == "nt":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "teeter"
    return (Path(told) if told else Path.home() / ".config") / "teeter"


class Tokens:
    """Who may come in: names by the hash of their token. Those of a file are read again when it has changed."""

    def __init__(self, names: Mapping[str, str] | None = None, path: Path | None = None) -> None:
        self._given, self._path = dict(names or {}), path
        self._read: tuple[_Stamp, dict[str, str]] = (None, {})

    @classmethod
    def read(cls, path: Path) -> Tokens:
        """Return the tokens of a file that ``make_token`` wrote; none where there is no file."""
        _kept(path)  # what is no file of tokens is told at once
        return cls(path=path)

    def add(self, name: str, token: str) -> None:
        """Let somebody in by a token; one that could be guessed is refused."""
        name = _checked(name)
        if len(token) < _SHORTEST:
            raise InputError(
                f"The token of {name} has {len(token)} characters: give {_SHORTEST} or more, or use --make-token."
            )
        self._given[hash_token(token)] = name

    def __len__(self) -> int:
        return len(self._names())

    def name_of(self, token: str) -> str | None:
        """Return whose token it is; every one is compared, so that time tells nothing."""
        own = hash_token(token)
        found = None
        for kept, name in self._names().items():
            if hmac.compare_digest(kept.encode(), own.encode()):
                found = name
        return found

    def has(self, name: str, mark: str) -> bool:
        """Tell whether somebody still has the token of a mark."""
        return any(kept[:_MARK] == mark and owner == name for kept, owner in self._names().items())

    def _names(self) -> dict[str, str]:
        if self._path is None:
            return self._given
        stamp = _stamp(self._path)
        if stamp != self._read[0]:
            try:
                self._read = stamp, {kept: name for name, kept in _kept(self._path).items()}
            except FileError as error:
                log.warning("Nobody comes in by it: %s", error)
                self._read = stamp, {}
        return {**self._read[1], **self._given}


def token_prefix(token: str) -> str:
    """Return the first signs of a token's hash: a session says by them which token it came in by."""
    return hash_token(token)[:_MARK]


def make_token(path: Path, name: str) -> str:
    """Make a token for an annotator, in the place of any they had; keep its hash in a file and return the token."""
    token = secrets.token_urlsafe(32)
    kept = {**_kept(path), _checked(name): hash_token(token)}
    _write_alone(path, json.dumps(kept, indent=1) + "\n")
    return token


def remove_token(path: Path, name: str) -> None:
    """Take an annotator's token out of a file; whoever came in by it is out with the next request."""
    kept = _kept(path)
    if kept.pop(name.strip(), None) is None:
        known = ", ".join(sorted(kept)) or "nobody"
        raise UnknownNameError(
            f"No token of {name.strip()[:100]!r} is in {path}: it has those of {known}."
        )
    _write_alone(path, json.dumps(kept, indent=1) + "\n")


def server_secret(path: Path) -> bytes:
    """Return what signs the cookies: made once, kept where only the owner reads, so that a restart logs nobody out."""
    if not path.exists():
        _write_alone(path, secrets.token_hex(32))
    try:
        return bytes.fromhex(path.read_text(encoding="utf-8").strip())
    except (ValueError, OSError):
        raise FileError(
            f"{path} is not what signs the cookies: remove it, and another is made."
        ) from None


def _checked(name: str) -> str:
    if not name.strip() or not name.strip().isprintable():
        raise InputError("A token needs the name of an annotator, of letters and the like.")
    return name.strip()


def _stamp(path: Path) -> _Stamp:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _kept(path: Path) -> dict[str, str]:
    if not path.exists():
        return {}
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        return {str(name): str(kept) for name, kept in told.items()}
    except (ValueError, AttributeError, OSError):
        raise FileError(
            f"{path} is not a file of tokens: make one with teeter serve --make-token NAME."
        ) from None


def _write_alone(path: Path, text: str) -> None:
    """Write a file that only its owner can read, whole."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.{os.getpid()}.part")
        number = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(number, "w", encoding="utf-8") as file:
            file.write(text)
        part.replace(path)
    except OSError as error:
        raise FileError(f"Cannot write {path}: {error.strerror or error}.") from None
