"""Requests whose end is ambiguous."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from teeter.web.auth.http_middleware import HttpMiddleware, refuse

__all__ = ["MessageFramingMiddleware"]

_SENTENCE = "A request must not have both Content-Length and Transfer-Encoding."


class MessageFramingMiddleware(HttpMiddleware):
    """Refuse a request with Content-Length and Transfer-Encoding, and close its connection.

    Stops request smuggling: of such a request a proxy and this server may see different ends, and
    take the rest of the body for a request of another person. h11 reads the body by
    Transfer-Encoding and keeps the connection open; RFC 9112, section 6.1, says to close it.
    """

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on if it says in one way where it ends."""
        headers = Headers(scope=scope)
        if "content-length" in headers and "transfer-encoding" in headers:
            response = refuse(scope, 400, _SENTENCE, {"connection": "close"})
            await response(scope, receive, send)
            return

        await self.app(scope, receive, send)
