"""Requests that other sites make in a visitor's browser."""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from teeter.web.auth.http_middleware import SAFE_METHODS, HttpMiddleware, is_api, refuse

__all__ = ["SameOriginMiddleware"]


class SameOriginMiddleware(HttpMiddleware):
    """Refuse changes, and any use of the REST API, from pages of other sites.

    Stops cross-site request forgery as far as browsers say where a request comes from
    (``Sec-Fetch-Site`` and ``Origin``). Links from other sites to pages still work. Clients that
    send neither header are no browsers; for them, and for old browsers, ``CsrfMiddleware`` asks
    for a token that other sites cannot know.
    """

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on unless it comes from another site."""
        if _is_cross_site(scope, Headers(scope=scope)):
            response = refuse(scope, 403, "Refused because the request came from another site.")
            await response(scope, receive, send)
            return

        await self.app(scope, receive, send)


def _is_cross_site(scope: Scope, headers: Headers) -> bool:
    fetch_site = headers.get("sec-fetch-site", "none")

    if is_api(scope) and fetch_site == "cross-site":
        return True
    if scope["method"] in SAFE_METHODS:
        return False

    # "none": typed or bookmarked by the user. "same-site" is another port or subdomain.
    if fetch_site not in ("same-origin", "none"):
        return True

    # The port counts too: another server of the same machine is another site.
    origin = headers.get("origin")
    host = headers.get("host", "")
    return origin is not None and urlsplit(origin).netloc.lower() != host.lower()
