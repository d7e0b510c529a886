"""Everything but the login page needs a login, where tokens are required."""

from __future__ import annotations

from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import Receive, Scope, Send

from teeter.web.auth.http_middleware import HttpMiddleware, is_api, is_static
from teeter.web.auth.sessions import Session

__all__ = ["LoginRequiredMiddleware"]


class LoginRequiredMiddleware(HttpMiddleware):
    """Refuse requests that speak for no annotator.

    Stops use without a login. It runs before the routes, so that a new route is protected without
    having to ask for it.
    """

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on if it is logged in, or needs no login."""
        session: Session = scope["state"]["session"]
        # Exactly this path: a prefix would open every route that happens to begin like it.
        is_open = is_static(scope) or scope["path"] == "/login"

        if session.annotator is not None or is_open:
            await self.app(scope, receive, send)
            return

        response: Response
        if is_api(scope):
            detail = "A token is required: send the header Authorization: Bearer TOKEN."
            response = JSONResponse({"detail": detail}, 401, {"www-authenticate": "Bearer"})
        else:
            response = RedirectResponse("/login", 303)
        await response(scope, receive, send)
