"""People whom a reverse proxy has logged in, and names in a header."""

from __future__ import annotations

import logging

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from teeter.errors import PermissionDeniedError
from teeter.server.access.authenticator import Authenticator
from teeter.server.access.http_middleware import HttpMiddleware, refuse
from teeter.server.access.middlewares import peer_address
from teeter.server.access.sessions import PROXY_USER

__all__ = ["TrustedHeaderMiddleware"]

logger = logging.getLogger(__name__)


class TrustedHeaderMiddleware(HttpMiddleware):
    """Note the person that a trusted proxy names, and refuse those who are not let in.

    Stops clients that name a person themselves: the header counts only if the connection comes from
    the address of a proxy. That address is the one of the connection, not the one in
    ``X-Forwarded-For``. A header that comes twice was not set by the proxy alone, and is ignored,
    even if a proxy has joined both by a comma.
    """

    def __init__(self, app: ASGIApp, authenticator: Authenticator) -> None:
        super().__init__(app)
        self._authenticator = authenticator

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, with the name of the person if a proxy gives one."""
        name = self._named_person(scope)
        if name is None:
            await self.app(scope, receive, send)
            return

        try:
            annotator = await run_in_threadpool(self._authenticator.require_allowed, name)
        except PermissionDeniedError as error:
            await refuse(scope, 403, str(error))(scope, receive, send)
            return

        scope.setdefault("state", {})[PROXY_USER] = annotator
        await self.app(scope, receive, send)

    def _named_person(self, scope: Scope) -> str | None:
        login = self._authenticator.config.login
        if login is None or login.header is None:
            return None

        # All of them: the first or the last may be the one that the client sent.
        names = Headers(scope=scope).getlist(login.header.name)
        if not names or not login.header.trusts(peer_address(scope)):
            return None

        if len(names) > 1 or "," in names[0]:
            logger.warning(
                "The header %s was sent more than once and is ignored.", login.header.name
            )
            return None
        return _decode(names[0]).strip() or None


def _decode(value: str) -> str:
    """Return the text of a header. Starlette reads Latin-1, and proxies write names in UTF-8."""
    try:
        return value.encode("latin-1").decode("utf-8")
    except UnicodeDecodeError:
        return value
