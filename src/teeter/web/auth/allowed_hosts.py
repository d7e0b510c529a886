"""The host names that the server answers to."""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from teeter.web.auth.authenticator import Authenticator
from teeter.web.auth.http_middleware import HttpMiddleware

__all__ = ["AllowedHostsMiddleware"]


class AllowedHostsMiddleware(HttpMiddleware):
    """Refuse requests for other host names while no login is required.

    Stops DNS rebinding: a page of another site whose name is made to resolve to 127.0.0.1 could
    otherwise read and change campaigns with the visitor's browser, because for the browser both
    are the same site. Once a login is required such a page has no session, and proxies may use any
    name.

    Starlette's TrustedHostMiddleware cannot depend on whether a login is required, and in most of
    its versions it does not know IPv6 addresses.
    """

    def __init__(self, app: ASGIApp, authenticator: Authenticator) -> None:
        super().__init__(app)
        self._authenticator = authenticator

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on if its host name is allowed."""
        host = Headers(scope=scope).get("host", "")

        # The list first: whether a login is required may take a query.
        if self._is_listed(host) or await run_in_threadpool(self._authenticator.requires_login):
            await self.app(scope, receive, send)
            return

        sentence = f"This server does not accept requests for the host name {host[:100]!r}."
        await PlainTextResponse(sentence, 400)(scope, receive, send)

    def _is_listed(self, host: str) -> bool:
        allowed_hosts = self._authenticator.config.allowed_hosts
        return allowed_hosts is None or _host_name(host) in allowed_hosts


def _host_name(host: str) -> str:
    """Return the name in a Host header, without the port and the brackets of IPv6."""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""
