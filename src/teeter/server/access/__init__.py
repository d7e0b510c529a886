"""Who may use the server: small middlewares, each of which stops one kind of attack.

``security_middleware`` lists them in order. ``SecurityConfig`` holds what they enforce, and
``Authenticator`` decides whom a request speaks for. What an annotator may do in a campaign is
another question: see ``teeter.server.access.permissions``.
"""

from __future__ import annotations

from starlette.middleware import Middleware

from teeter.server.access.authenticator import (
    Authenticator,
    CampaignTokenStore,
    TooManyLoginsError,
    WrongTokenError,
)
from teeter.server.access.login_config import (
    LoginConfig,
    SecurityConfig,
    ServerSettings,
    is_loopback,
    read_login_config,
    read_server_settings,
)
from teeter.server.access.middlewares import (
    CALLBACK_PATH,
    HEALTH_PATH,
    AllowedHostsMiddleware,
    BearerTokenMiddleware,
    BodyLimitMiddleware,
    CsrfMiddleware,
    FailClosedMiddleware,
    ForwardedHeadersMiddleware,
    HealthMiddleware,
    LoginRequiredMiddleware,
    MessageFramingMiddleware,
    SameOriginMiddleware,
    SecurityHeadersMiddleware,
    SessionMiddleware,
    TrustedHeaderMiddleware,
)
from teeter.server.access.sessions import EndedSessions, Session

__all__ = [
    "CALLBACK_PATH",
    "HEALTH_PATH",
    "Authenticator",
    "CampaignTokenStore",
    "EndedSessions",
    "LoginConfig",
    "SecurityConfig",
    "ServerSettings",
    "Session",
    "TooManyLoginsError",
    "WrongTokenError",
    "is_loopback",
    "read_login_config",
    "read_server_settings",
    "security_middleware",
]


def security_middleware(authenticator: Authenticator) -> list[Middleware]:
    """Return the middlewares in the order in which they see a request.

    The order matters: cheap checks that need no session come first, a request is authenticated
    before its body is read, and the headers are added last, to refusals too.
    """
    config = authenticator.config
    return [
        # First, so that all others see the client's own address and scheme.
        Middleware(ForwardedHeadersMiddleware, proxy=config.proxy),
        Middleware(SecurityHeadersMiddleware, frame_origin=config.frame_origin),
        Middleware(MessageFramingMiddleware),
        # Container engines ask by any host name, without a login and even if a database is away.
        Middleware(HealthMiddleware),
        Middleware(FailClosedMiddleware),
        Middleware(AllowedHostsMiddleware, authenticator=authenticator),
        Middleware(SameOriginMiddleware),
        # Who it is. Programs with a token first: they get no cookie.
        Middleware(BearerTokenMiddleware, authenticator=authenticator),
        Middleware(TrustedHeaderMiddleware, authenticator=authenticator),
        Middleware(SessionMiddleware, authenticator=authenticator),
        Middleware(LoginRequiredMiddleware),
        # From here on bodies are read.
        Middleware(BodyLimitMiddleware, config=config),
        Middleware(CsrfMiddleware),
    ]
