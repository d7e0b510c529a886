"""What a reverse proxy says about the clients behind it."""

from __future__ import annotations

from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from teeter.web.auth.http_middleware import HttpMiddleware, client_address

__all__ = ["ForwardedHeadersMiddleware", "peer_address"]

_PEER = "peer_address"
"""The key of the state of a request under which the address of the connection is passed on."""


class ForwardedHeadersMiddleware(HttpMiddleware):
    """Believe ``X-Forwarded-For`` and ``X-Forwarded-Proto`` of one proxy, and of no other client.

    Stops clients that write any address into these headers, to escape the limit of wrong tokens.

    uvicorn applies its middleware by itself if asked to, but then the address of the proxy is
    forgotten, and without it no other header of the proxy can be trusted.
    """

    def __init__(self, app: ASGIApp, proxy: str | None) -> None:
        super().__init__(app)
        self._forwarded_app: ASGIApp = app
        if proxy is not None:
            # uvicorn and Starlette describe the same interface by different types.
            middleware: Any = ProxyHeadersMiddleware
            self._forwarded_app = middleware(app, trusted_hosts=proxy)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on with the address of its client, and note that of its connection."""
        scope.setdefault("state", {})[_PEER] = client_address(scope)
        await self._forwarded_app(scope, receive, send)


def peer_address(scope: Scope) -> str:
    """Return the address that the connection of a request comes from."""
    return str(scope["state"][_PEER])
