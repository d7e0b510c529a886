"""Everything but the login page needs a login, where one is required."""

from __future__ import annotations

from urllib.parse import quote

from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import Receive, Scope, Send

from teeter.web.auth.http_middleware import SAFE_METHODS, HttpMiddleware, is_api, is_static
from teeter.web.auth.local_paths import HOME, local_path
from teeter.web.auth.sessions import Session

__all__ = ["CALLBACK_PATH", "LoginRequiredMiddleware"]

CALLBACK_PATH = "/login/callback"
"""Where an OpenID Connect provider sends browsers back to."""

# Exactly these paths: a prefix would open every route that happens to begin like one of them.
_OPEN_PATHS = frozenset({"/login", "/login/oidc", CALLBACK_PATH})


class LoginRequiredMiddleware(HttpMiddleware):
    """Refuse requests that speak for no annotator.

    Stops use without a login. It runs before the routes, so that a new route is protected without
    having to ask for it.
    """

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on if it is logged in, or needs no login."""
        session: Session = scope["state"]["session"]
        is_open = is_static(scope) or scope["path"] in _OPEN_PATHS

        if session.annotator is not None or is_open:
            await self.app(scope, receive, send)
            return

        response: Response
        if is_api(scope):
            detail = "A token is required: send the header Authorization: Bearer TOKEN."
            response = JSONResponse({"detail": detail}, 401, {"www-authenticate": "Bearer"})
        else:
            response = RedirectResponse(_login_address(scope), 303)
        await response(scope, receive, send)


def _login_address(scope: Scope) -> str:
    """Return the address of the login page, which leads back to the page that was asked for."""
    if scope["method"] not in SAFE_METHODS:
        return "/login"

    # As the browser sent it: decoded, a path may mean another page, or another site.
    path = scope.get("raw_path") or quote(scope["path"]).encode()
    query = scope["query_string"]
    asked = path + b"?" + query if query else path
    page = local_path(asked.decode("ascii", "replace"))
    return "/login" if page == HOME else f"/login?next={quote(page, safe='')}"
