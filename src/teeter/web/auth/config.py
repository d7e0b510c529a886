"""What the security middlewares enforce."""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import ip_address

from teeter.web.auth.login_config import LoginConfig
from teeter.web.auth.sessions import EndedSessions
from teeter.web.tokens import Tokens

__all__ = ["LOOPBACK_HOSTS", "SecurityConfig", "is_loopback"]

LOOPBACK_HOSTS = frozenset({"127.0.0.1", "localhost", "::1"})
"""Host names that always mean this machine."""


@dataclass(frozen=True)
class SecurityConfig:
    """Settings of the security middlewares, complete when made."""

    secret: bytes = field(repr=False)  # logs may show the configuration
    """Signs the session cookies. An attacker who knows it can pose as any annotator."""
    tokens: Tokens = field(default_factory=Tokens)
    """Tokens of the server. If it has any when it starts, everybody needs a token."""
    allowed_hosts: frozenset[str] | None = LOOPBACK_HOSTS
    """Host names the server answers to while no login is required; None for any."""
    cookie_name: str = "teeter_session"
    """Name of the session cookie. Include the port: browsers send the cookies of all servers of a
    machine to each of them."""
    ended_sessions: EndedSessions = field(default_factory=EndedSessions)
    """Sessions that were logged out."""
    login: LoginConfig | None = None
    """Logins without a token. If there are any, everybody needs a login."""
    proxy: str | None = None
    """Address or network of a reverse proxy, whose ``X-Forwarded-…`` headers are believed."""
    frame_origin: str | None = None
    """The only origin whose pages may show this server's in a frame; None for none."""
    default_annotator: str = "me"
    """Annotator of a session without a token, until a name is chosen."""
    body_limit: int = 1_000_000
    """Largest request body in bytes."""
    items_limit: int = 8_000_000
    """Largest body with items in bytes. It is held in memory, unlike an upload."""
    upload_limit: int = 200_000_000
    """Largest upload in bytes."""
    body_seconds: float = 30.0
    """Time in which a body must arrive."""
    upload_seconds: float = 900.0
    """Time in which an upload must arrive."""


def is_loopback(host: str) -> bool:
    """Return whether an address can be reached from this machine only.

    Example:
        >>> is_loopback("127.0.0.1"), is_loopback("0.0.0.0")
        (True, False)
    """
    if host == "localhost":
        return True

    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
