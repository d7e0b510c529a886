"""Response headers that tell browsers what pages must not do."""

from __future__ import annotations

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from teeter.web.auth.http_middleware import HttpMiddleware, is_static

__all__ = ["SecurityHeadersMiddleware"]

_HEADERS = {
    # Scripts and styles come from this server's files only: an injected <script> does not run.
    "content-security-policy": (
        "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; "
        "form-action 'self'; frame-ancestors 'none'"
    ),
    # A text file that looks like a script is not run as one.
    "x-content-type-options": "nosniff",
    # No other site can show a page in a frame and steal clicks.
    "x-frame-options": "DENY",
    # Other sites do not learn the names of campaigns and items.
    "referrer-policy": "same-origin",
    # A page that was opened from another site, or opens one, cannot be reached by its scripts.
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


class SecurityHeadersMiddleware(HttpMiddleware):
    """Add security headers to every response, refusals and errors included.

    Stops cross-site scripting by texts to label that hold HTML, clickjacking, content sniffing, and
    answers that stay in a shared browser's cache after logout.
    """

    def __init__(self, app: ASGIApp, frame_origin: str | None = None) -> None:
        super().__init__(app)
        self._headers = dict(_HEADERS)
        if frame_origin is not None:
            policy = _HEADERS["content-security-policy"]
            allowed = policy.replace("frame-ancestors 'none'", f"frame-ancestors {frame_origin}")
            self._headers["content-security-policy"] = allowed
            # The older header knows no single origin, and would forbid this one too.
            del self._headers["x-frame-options"]

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and add the headers to its response."""
        # Static files are public; "no-cache" lets a browser keep them and ask whether they changed.
        cache_control = "no-cache" if is_static(scope) else "no-store"

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.setdefault("cache-control", cache_control)
                for name, value in self._headers.items():
                    headers.setdefault(name, value)
            await send(message)

        await self.app(scope, receive, send_with_headers)
