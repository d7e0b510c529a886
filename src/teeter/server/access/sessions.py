"""Sessions of browsers, kept in a signed cookie."""

from __future__ import annotations

import contextlib
import hashlib
import time
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from itsdangerous import BadData, URLSafeTimedSerializer
from starlette.responses import Response

from teeter.base.files import atomic_write, write_errors

PROXY_USER = "proxy_user"
"""The key of the state of a request with the name that a trusted proxy gave the person."""

_MAX_AGE = 14 * 24 * 3600
"""Seconds after which a session ends."""

_COOKIE_FIELDS = {"annotator", "csrf_token", "token_prefix", "method", "expires_at"}


class LoginMethod(StrEnum):
    """How a session shows who it speaks for."""

    NONE = "none"
    """It does not: a name was chosen, or there was no login yet."""
    TOKEN = "token"
    OIDC = "oidc"
    HEADER = "header"
    """A trusted proxy names the person with every request."""


@dataclass(frozen=True)
class Session:
    """Whom a browser, or a program with a token, speaks for."""

    annotator: str | None
    """None before login, on a server that requires one."""
    csrf_token: str
    """Random; pages send it with every change. Other sites cannot read it."""
    token_prefix: str = ""
    """First characters of the hash of the token it was opened with; empty without a token."""
    method: LoginMethod = LoginMethod.NONE
    """How its annotator logged in."""
    expires_at: float | None = None
    """When it ends, in seconds since 1970; None for as long as the cookie and the token last."""
    is_bearer: bool = False
    """Whether each request carries the token itself, so that no cookie is involved."""

    @property
    def is_authenticated(self) -> bool:
        """Whether its annotator has shown who they are."""
        return self.method is not LoginMethod.NONE

    @property
    def has_account(self) -> bool:
        """Whether its annotator is known by an account elsewhere, not by a token."""
        return self.method in (LoginMethod.OIDC, LoginMethod.HEADER)


ANONYMOUS = Session(annotator=None, csrf_token="")
"""Requests that need no session, such as those for static files."""


def protect_cookie_name(name: str, *, is_https: bool) -> str:
    """Return the name of a cookie that only this server can set, where browsers allow it.

    Stops servers of sibling domains: ``evil.example.org`` can set a cookie for all of
    ``example.org``, and so log a visitor of ``label.example.org`` in as another person. From a
    cookie whose name begins with ``__Host-`` browsers require that the server itself set it by TLS.
    """
    if is_https:
        return f"__Host-{name}"
    return name


class SessionCookie:
    """Writes sessions into a signed cookie, and reads them back.

    Args:
        name: name of the cookie, before ``protect_cookie_name``.
        secret: signs it.
    """

    def __init__(self, name: str, secret: bytes) -> None:
        self.name = name
        # The salt separates these signatures from others that may be made with the same secret.
        self._serializer = URLSafeTimedSerializer(
            secret, salt="teeter session", signer_kwargs={"digest_method": hashlib.sha256}
        )

    def encode(self, session: Session) -> str:
        """Return the signed value of the cookie."""
        content = {name: getattr(session, name) for name in _COOKIE_FIELDS}
        return str(self._serializer.dumps(content))

    def decode(self, value: str) -> Session | None:
        """Return the session in a cookie; None if it is forged, too old or of another version."""
        try:
            content = self._serializer.loads(value, max_age=_MAX_AGE)
        except BadData:
            return None

        # Signed by us, but maybe by an earlier version.
        if not isinstance(content, dict) or content.keys() != _COOKIE_FIELDS:
            return None
        content["method"] = LoginMethod(content["method"])
        return Session(**content)

    def header(self, session: Session, *, is_https: bool) -> str:
        """Return the Set-Cookie header of a session."""
        # Only a response of Starlette knows how to format a cookie.
        response = Response()
        response.set_cookie(
            protect_cookie_name(self.name, is_https=is_https),
            self.encode(session),
            max_age=_MAX_AGE,
            httponly=True,
            # Lax and not strict: a strict cookie is not sent with a link from another site, so the
            # server would open a new session, whose cookie replaces that of the login.
            samesite="lax",
            secure=is_https,
            path="/",
        )
        return response.headers["set-cookie"]


class EndedSessions:
    """Sessions that were logged out, whose cookies would be valid for days.

    Args:
        folder: has an empty file for each, named by a hash and as old as the logout. All servers
            that sign cookies with the same secret share it, and so does the next start. None keeps
            them in this process only.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._ended: dict[str, float] = {}
        """The time of each logout in this process, in seconds since 1970."""

    def add(self, session: Session) -> None:
        """End a session in all browser tabs, and forget those whose cookies have expired.

        Raises:
            FileError: the folder cannot be written. The session ends in this process all the same.
        """
        digest = _hash_session(session)
        now = time.time()
        self._ended[digest] = now
        # A copy, because other threads log out meanwhile.
        for name, ended_at in list(self._ended.items()):
            if ended_at < now - _MAX_AGE:
                self._ended.pop(name, None)
        if self._folder is None:
            return

        with write_errors(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
            atomic_write(self._folder / digest, b"")
            for path in self._folder.iterdir():
                # Another logout may be writing or removing files.
                with contextlib.suppress(FileNotFoundError):
                    if path.stat().st_mtime < now - _MAX_AGE:
                        path.unlink()

    def __contains__(self, session: Session) -> bool:
        digest = _hash_session(session)
        if digest in self._ended:
            return True
        if self._folder is None:
            return False
        return (self._folder / digest).exists()


def _hash_session(session: Session) -> str:
    # Every cookie of a session has its CSRF token, also one that was signed again.
    return hashlib.sha256(session.csrf_token.encode()).hexdigest()
