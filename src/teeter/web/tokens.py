"""A token for each annotator: shown once when it is made, kept as its hash."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from teeter.errors import FileError, InputError

__all__ = ["Tokens", "home", "make_token", "server_secret"]

_SHORTEST = 16
"""Characters of a token that somebody made up."""


def home() -> Path:
    """Return the folder where the server keeps what only its owner may read."""
    told = os.environ.get("TEETER_HOME") or os.environ.get("XDG_CONFIG_HOME")
    if told and os.environ.get("TEETER_HOME"):
        return Path(told)
    if os.name == "nt":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "teeter"
    return (Path(told) if told else Path.home() / ".config") / "teeter"


class Tokens:
    """Who may come in: names by the hash of their token."""

    def __init__(self, names: Mapping[str, str] | None = None) -> None:
        self._names = dict(names or {})

    @classmethod
    def read(cls, path: Path) -> Tokens:
        """Return the tokens of a file that ``make_token`` wrote; none where there is no file."""
        return cls({kept: name for name, kept in _kept(path).items()})

    def add(self, name: str, token: str) -> None:
        """Let somebody in by a token; one that could be guessed is refused."""
        if not name.strip():
            raise InputError("A token needs the name of an annotator: NAME=TOKEN.")
        if len(token) < _SHORTEST:
            raise InputError(
                f"The token of {name} has {len(token)} characters: give {_SHORTEST} or more, or use --make-token."
            )
        self._names[_hashed(token)] = name

    def __len__(self) -> int:
        return len(self._names)

    def name_of(self, token: str) -> str | None:
        """Return whose token it is; every one is compared, so that time tells nothing."""
        own = _hashed(token)
        found = None
        for kept, name in self._names.items():
            if hmac.compare_digest(kept, own):
                found = name
        return found

    def has(self, name: str) -> bool:
        """Tell whether somebody of this name still has a token."""
        return name in self._names.values()


def make_token(path: Path, name: str) -> str:
    """Make a token for an annotator, in the place of any they had; keep its hash in a file and return the token."""
    if not name.strip():
        raise InputError("A token needs the name of an annotator.")
    token = secrets.token_urlsafe(32)
    kept = {**_kept(path), name.strip(): _hashed(token)}
    _write_alone(path, json.dumps(kept, indent=1) + "\n")
    return token


def server_secret(path: Path) -> bytes:
    """Return what signs the cookies: made once, kept where only the owner reads, so that a restart logs nobody out."""
    if not path.exists():
        _write_alone(path, secrets.token_hex(32))
    try:
        return bytes.fromhex(path.read_text(encoding="utf-8").strip())
    except (ValueError, OSError):
        raise FileError(f"{path} is not what signs the cookies: remove it, and another is made.") from None


def _kept(path: Path) -> dict[str, str]:
    if not path.exists():
        return {}
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        return {str(name): str(kept) for name, kept in told.items()}
    except (ValueError, AttributeError, OSError):
        raise FileError(f"{path} is not a file of tokens: make one with teeter serve --make-token NAME.") from None


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


def _hashed(token: str) -> str:
    # A token is 256 random bits, so a fast hash keeps it well.
    return hashlib.sha256(token.encode("utf-8", errors="surrogatepass")).hexdigest()
