"""Programs that send their token with every request."""

from __future__ import annotations

from dataclasses import replace

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from teeter.server.access.authenticator import Authenticator, TooManyLoginsError, WrongTokenError
from teeter.server.access.http_middleware import HttpMiddleware, client_address, refuse
from teeter.server.access.sessions import Session

__all__ = ["BearerTokenMiddleware"]


class BearerTokenMiddleware(HttpMiddleware):
    """Authenticate ``Authorization: Bearer TOKEN``.

    Stops programs without a valid token, and slows down those that guess. A request with a wrong
    token is refused even for pages that need none, so that a typo never goes unnoticed.
    """

    def __init__(self, app: ASGIApp, authenticator: Authenticator) -> None:
        super().__init__(app)
        self._authenticator = authenticator

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, with a session if it carries a token."""
        token = _bearer_token(Headers(scope=scope))
        if token is None:
            await self.app(scope, receive, send)
            return

        try:
            # In a thread: it reads the tokens of campaigns, and a database may be slow.
            session = await run_in_threadpool(self._log_in, token, client_address(scope))
        except WrongTokenError as error:
            headers = {"www-authenticate": 'Bearer error="invalid_token"'}
            await refuse(scope, 401, str(error), headers)(scope, receive, send)
            return
        except TooManyLoginsError as error:
            await refuse(scope, 429, str(error), {"retry-after": "60"})(scope, receive, send)
            return

        if session is not None:
            scope.setdefault("state", {})["session"] = session
        await self.app(scope, receive, send)

    def _log_in(self, token: str, address: str) -> Session | None:
        """Return the session of a token; None where no login is required."""
        # The same program may be used with servers that require a login and with others.
        if not self._authenticator.requires_login():
            return None
        return replace(self._authenticator.log_in(token, address), is_bearer=True)


def _bearer_token(headers: Headers) -> str | None:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        return None
    return token.strip()
