"""Who is behind a request: log in, restore and end sessions, and limit wrong tokens."""

from __future__ import annotations

import secrets
import threading
import time
from collections import deque
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address, ip_address, ip_network
from typing import Protocol

from teeter.errors import PermissionDeniedError, TeeterError
from teeter.server.access.login_config import SecurityConfig
from teeter.server.access.sessions import LoginMethod, Session
from teeter.server.access.tokens import token_prefix

_IPV6_PREFIX = 64
_MAX_CLIENTS = 10_000
"""Clients that are remembered. Older ones are forgotten, so that memory stays bounded."""


@dataclass
class FailedLoginLimit:
    """Count wrong tokens per client.

    Stops guessing tokens. Only failures count, so a right token always works, even from an address
    that an attacker shares.
    """

    attempts: int = 10
    """Failures allowed within ``seconds``."""
    seconds: float = 60.0
    _failures: dict[str, deque[float]] = field(default_factory=dict, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def record_failure(self, address: str) -> bool:
        """Count a failure, and return whether the client had too many before."""
        client = _client_network(address)
        now = time.monotonic()

        with self._lock:
            times = self._failures.setdefault(client, deque())
            while times and times[0] < now - self.seconds:
                times.popleft()

            if len(times) >= self.attempts:
                return True

            times.append(now)
            while len(self._failures) > _MAX_CLIENTS:
                del self._failures[next(iter(self._failures))]
            return False


class WrongTokenError(TeeterError):
    """No annotator has this token."""


class TooManyLoginsError(TeeterError):
    """A client tried too many wrong tokens. It may try again after a minute."""


class CampaignTokenStore(Protocol):
    """The tokens that campaigns give to their annotators."""

    def is_required(self) -> bool:
        """Return whether a campaign names annotators, so that everybody needs a token."""

    def find_annotator(self, token: str) -> str | None:
        """Return the annotator who has a token, or None."""

    def is_valid(self, annotator: str, prefix: str) -> bool:
        """Return whether an annotator still has the token whose hash starts with a prefix."""


def _client_network(address: str) -> str:
    """Return the address of a client, or its /64 network for IPv6.

    A single IPv6 client usually has a whole /64 network, so counting its addresses one by one would
    limit nothing.

    Example:
        >>> _client_network("192.0.2.7"), _client_network("2001:db8::7:1")
        ('192.0.2.7', '2001:db8::/64')
    """
    try:
        parsed = ip_address(address)
    except ValueError:
        return address

    if isinstance(parsed, IPv4Address) or parsed.is_loopback or parsed.ipv4_mapped is not None:
        return address
    return str(ip_network((int(parsed), _IPV6_PREFIX), strict=False))


class Authenticator:
    """Opens and checks sessions.

    Args:
        config: has the server's own tokens.
        campaign_tokens: tokens of the campaigns' annotators; None if no campaign has any.
    """

    def __init__(
        self, config: SecurityConfig, campaign_tokens: CampaignTokenStore | None = None
    ) -> None:
        self.config = config
        self._campaign_tokens = campaign_tokens
        self._failed_logins = FailedLoginLimit()

        # Decided once: removing the last token of a running server must not open it to everybody.
        self._server_requires_login = len(config.tokens) > 0 or config.login is not None

    def requires_login(self) -> bool:
        """Return whether everybody needs a login, by a token or by an account elsewhere.

        Raises:
            StoreError: the database of a campaign does not answer.
        """
        if self._server_requires_login:
            return True
        if self._campaign_tokens is None:
            return False
        return self._campaign_tokens.is_required()

    def new_session(self, proxy_user: str | None = None) -> Session:
        """Return the session of a browser that has none.

        Args:
            proxy_user: the person that a trusted proxy names in this request.
        """
        if proxy_user is not None:
            return _open_session(proxy_user, method=LoginMethod.HEADER)

        annotator = None
        if not self.requires_login():
            annotator = self.config.default_annotator
        return _open_session(annotator)

    def session_for_name(self, name: str) -> Session:
        """Return a session of an annotator who chose a name, where no login is required."""
        return _open_session(name)

    def log_in(self, token: str, address: str) -> Session:
        """Return a session of the annotator who has a token.

        Args:
            address: the client's address, whose failures are counted.

        Raises:
            WrongTokenError: no annotator has this token.
            TooManyLoginsError: so it is, and the client tried too many.
        """
        # The token is looked up before failures are counted, so that a right one always works.
        annotator = self.config.tokens.find_annotator(token)
        if annotator is None and token and self._campaign_tokens is not None:
            annotator = self._campaign_tokens.find_annotator(token)
        if annotator is not None:
            return _open_session(annotator, token_prefix(token), LoginMethod.TOKEN)

        if self._failed_logins.record_failure(address):
            raise TooManyLoginsError("Too many wrong tokens. Wait a minute and try again.")
        raise WrongTokenError("This token is not valid on this server.")

    def require_allowed(self, name: str) -> str:
        """Return the annotator's name of a person with an account elsewhere.

        Raises:
            PermissionDeniedError: they are not let in.
        """
        if self.config.login is None:
            raise PermissionDeniedError("This server accepts only tokens.")
        return self.config.login.require_allowed(name)

    def log_in_by_account(self, name: str, seconds: float) -> Session:
        """Return a session of a person whom an OpenID Connect provider has named.

        Args:
            name: their e-mail address.
            seconds: how long the session lasts.

        Raises:
            PermissionDeniedError: they are not let in.
        """
        annotator = self.require_allowed(name)
        session = _open_session(annotator, method=LoginMethod.OIDC)
        return replace(session, expires_at=time.time() + seconds)

    def end_session(self, session: Session) -> None:
        """Log a session out, in all browser tabs and for good.

        Raises:
            FileError: the ended sessions cannot be written.
        """
        # Without a login there is nothing to take away, and anyone could fill the disk.
        if session.is_authenticated:
            self.config.ended_sessions.add(session)

    def restore_session(self, session: Session, proxy_user: str | None = None) -> Session | None:
        """Return a session that came back in a cookie; None if it is no longer valid.

        It ends when it is logged out, when its token is replaced or revoked, when its person is no
        longer let in or its time is over, and when the server begins or ceases to require a login.

        Args:
            proxy_user: the person that a trusted proxy names in this request.
        """
        if session in self.config.ended_sessions:
            return None

        # The proxy speaks for every single request: a cookie alone is no login by it, and what the
        # proxy says now counts for more than any earlier login.
        if proxy_user is not None or session.method is LoginMethod.HEADER:
            is_by_header = session.method is LoginMethod.HEADER
            if not is_by_header or session.annotator != proxy_user:
                return None
            return session

        if session.method is LoginMethod.OIDC:
            if not self._is_allowed_account(session):
                return None
            return session

        if not self.requires_login():
            # From another server of this machine with the same secret, or from an earlier run.
            if session.token_prefix:
                return None
            if session.annotator is None:
                return replace(session, annotator=self.config.default_annotator)
            return session

        # Before login; LoginRequiredMiddleware lets it see the login page only.
        if session.annotator is None:
            return session
        if session.token_prefix and self._is_valid(session.annotator, session.token_prefix):
            return session
        return None

    def _is_allowed_account(self, session: Session) -> bool:
        login = self.config.login
        if login is None or login.oidc is None or session.annotator is None:
            return False

        if session.expires_at is None or session.expires_at < time.time():
            return False
        return login.is_allowed(session.annotator)

    def _is_valid(self, annotator: str, prefix: str) -> bool:
        if self.config.tokens.is_valid(annotator, prefix):
            return True
        return self._campaign_tokens is not None and self._campaign_tokens.is_valid(
            annotator, prefix
        )


def _open_session(
    annotator: str | None, prefix: str = "", method: LoginMethod = LoginMethod.NONE
) -> Session:
    csrf_token = secrets.token_urlsafe(24)
    return Session(annotator, csrf_token, token_prefix=prefix, method=method)
