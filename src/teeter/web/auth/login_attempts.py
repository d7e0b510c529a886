"""Logins that have begun here and continue at the provider."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
import time
from dataclasses import asdict, dataclass

from itsdangerous import BadData, URLSafeTimedSerializer

__all__ = ["LoginAttempt", "LoginAttempts"]

_MAX_AGE = 600
"""Seconds in which a person must log in at the provider."""

_MAX_USED = 10_000
"""Attempts that are remembered as used, so that memory stays bounded. Whoever completes more in ten
minutes can use an attempt twice, but not its code, which the provider accepts once."""


@dataclass(frozen=True)
class LoginAttempt:
    """The secrets of one login."""

    state: str
    """Comes back from the provider: shows that the login began in the same browser."""
    nonce: str
    """Comes back in the ID token: shows that the token was issued for this login."""
    code_verifier: str
    """Proves to the provider that the code is used by whom it was meant for (PKCE)."""
    next: str
    """The page to show after the login."""


class LoginAttempts:
    """Begins logins, and accepts each of them back once.

    An attempt travels in a signed cookie of the browser that began it, so that the server keeps
    nothing for logins that are never completed.

    Stops login forgery: an attacker can make a browser open the address that completes the
    attacker's own login, but the browser has no cookie with that state.
    """

    def __init__(self, secret: bytes) -> None:
        self._serializer = URLSafeTimedSerializer(
            secret, salt="teeter login", signer_kwargs={"digest_method": hashlib.sha256}
        )
        self._used_at: dict[str, float] = {}
        self._lock = threading.Lock()

    def begin(self, next_page: str) -> LoginAttempt:
        """Return a new attempt."""
        return LoginAttempt(
            state=secrets.token_urlsafe(32),
            nonce=secrets.token_urlsafe(32),
            code_verifier=secrets.token_urlsafe(48),
            next=next_page,
        )

    def encode(self, attempt: LoginAttempt) -> str:
        """Return the signed value of the cookie."""
        return str(self._serializer.dumps(asdict(attempt)))

    def take(self, cookie: str, state: str) -> LoginAttempt | None:
        """Return the attempt of a browser that comes back, and mark it as used.

        Args:
            cookie: the cookie of the attempt.
            state: the state in the address that the provider sent the browser to.

        Returns:
            None if the cookie is forged, too old or used, or of another attempt.
        """
        try:
            attempt = LoginAttempt(**self._serializer.loads(cookie, max_age=_MAX_AGE))
        except (BadData, TypeError):
            return None

        # In constant time, and for any text: the state is what a stranger wrote into an address.
        if not hmac.compare_digest(attempt.state.encode(), state.encode("utf-8", "replace")):
            return None
        if not self._mark_used(attempt.state):
            return None
        return attempt

    def _mark_used(self, state: str) -> bool:
        """Mark an attempt as used, and return whether it was not used before."""
        now = time.monotonic()
        with self._lock:
            # Insertion order is the order of time: the outdated ones come first.
            while self._used_at:
                oldest = next(iter(self._used_at))
                is_outdated = self._used_at[oldest] < now - _MAX_AGE
                if not is_outdated and len(self._used_at) < _MAX_USED:
                    break
                del self._used_at[oldest]

            if state in self._used_at:
                return False
            self._used_at[state] = now
            return True
