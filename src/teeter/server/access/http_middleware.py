"""The base class of the middlewares."""

from __future__ import annotations

from abc import ABC, abstractmethod
from urllib.parse import urlsplit

from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = [
    "HOME",
    "SAFE_METHODS",
    "HttpMiddleware",
    "client_address",
    "is_api",
    "is_static",
    "local_path",
    "refuse",
]


SAFE_METHODS = frozenset({"GET", "HEAD"})
"""Methods that change nothing."""


class HttpMiddleware(ABC):
    """A middleware that sees HTTP requests only."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass HTTP requests to ``handle``."""
        if scope["type"] == "http":
            await self.handle(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        else:
            # The server has no WebSockets. If it ever gets one, it must not bypass the checks.
            await send({"type": "websocket.close", "code": 1008, "reason": "Not supported."})

    @abstractmethod
    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it to ``self.app``."""


def is_api(scope: Scope) -> bool:
    """Return whether a request is for the REST API rather than for a page."""
    return bool(scope["path"].startswith("/api/"))


def is_static(scope: Scope) -> bool:
    """Return whether a request is for a stylesheet, a script or an icon."""
    return bool(scope["path"].startswith("/static/"))


def client_address(scope: Scope) -> str:
    """Return the address of the client, or an empty string if it is unknown."""
    client = scope.get("client")
    if client is None:
        return ""
    return str(client[0])


def refuse(
    scope: Scope, status: int, sentence: str, headers: dict[str, str] | None = None
) -> Response:
    """Return a refusal: JSON for programs, plain text for people."""
    if is_api(scope):
        return JSONResponse({"detail": sentence}, status, headers)
    # Plain text, not a page: a refusal may come before there is a session to render one for.
    return PlainTextResponse(sentence, status, headers)


HOME = "/"

_MAX_LENGTH = 500


def local_path(value: str | None) -> str:
    r"""Return an address if it is a page of this server, else the home page.

    Stops open redirects: a link to our login page must not end on a page of another site that asks
    for the token again. Browsers read ``//host``, ``/\host`` and addresses with tabs or line breaks
    in them as addresses of other sites.

    Example:
        >>> local_path("/c/texts?page=2"), local_path("//evil.example")
        ('/c/texts?page=2', '/')
    """
    if value is None or len(value) > _MAX_LENGTH:
        return HOME

    # Pages of ours have such addresses: browsers encode everything else before they send it.
    is_plain = value.isprintable() and value.isascii() and "\\" not in value
    if not is_plain or not value.startswith("/") or value.startswith("//"):
        return HOME

    parts = urlsplit(value)
    # The login page itself would be a loop.
    if parts.scheme or parts.netloc or parts.path == "/login" or parts.path.startswith("/login/"):
        return HOME
    return value
