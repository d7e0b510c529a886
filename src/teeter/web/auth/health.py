"""The address at which a supervisor asks whether the server is alive."""

from __future__ import annotations

from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from teeter.web.auth.http_middleware import SAFE_METHODS, HttpMiddleware

__all__ = ["HEALTH_PATH", "HealthMiddleware"]

HEALTH_PATH = "/healthz"


class HealthMiddleware(HttpMiddleware):
    """Answer 200 at ``/healthz``, to anyone and without touching a database.

    Container engines and proxies ask every few seconds and have no token. The answer says nothing
    about campaigns. It does not depend on their databases: restarting the server would not bring
    back a database that is away.
    """

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a health check, or pass the request on."""
        if scope["path"] == HEALTH_PATH and scope["method"] in SAFE_METHODS:
            await PlainTextResponse("ok\n")(scope, receive, send)
            return

        await self.app(scope, receive, send)
