"""No request is let in while the tokens of campaigns cannot be read."""

from __future__ import annotations

from starlette.types import Receive, Scope, Send

from teeter.errors import StoreError
from teeter.web.auth.http_middleware import HttpMiddleware, refuse

__all__ = ["FailClosedMiddleware"]

_SENTENCE = "The campaign's database is not responding. Saved answers are safe. Try again later."


class FailClosedMiddleware(HttpMiddleware):
    """Answer 503 if a check needs a database that does not respond.

    Stops requests that would slip through unauthenticated while the database that holds the tokens
    is away, for instance because someone overloads it.
    """

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and refuse it if a later check cannot be made."""
        try:
            await self.app(scope, receive, send)
        except StoreError:
            # From a middleware: the application answers its own database errors.
            response = refuse(scope, 503, _SENTENCE, {"retry-after": "2"})
            await response(scope, receive, send)
