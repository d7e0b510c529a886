"""A secret that pages send with every change."""

from __future__ import annotations

import hmac
from urllib.parse import parse_qs

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import Message, Receive, Scope, Send

from teeter.web.auth.http_middleware import SAFE_METHODS, HttpMiddleware
from teeter.web.auth.sessions import Session

__all__ = ["CsrfMiddleware"]

_SENTENCE = (
    "Refused because the page is out of date. Reload it. (Programs must first GET /api/v1/session.)"
)

_MAX_FIELDS = 1000
"""Fields of a form that are read."""


class CsrfMiddleware(HttpMiddleware):
    """Refuse changes that do not carry the token of the session.

    Stops cross-site request forgery: another site can make a browser send a request with its
    cookie, but cannot read the token, which is only in the pages of this server. It comes in the
    header ``X-CSRF-Token``, or in the field ``csrf`` of a plain form. Programs that send a token
    with every request need none, because no browser does that by itself.
    """

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on if it changes nothing, or carries the right token."""
        session: Session = scope["state"]["session"]
        if scope["method"] in SAFE_METHODS or session.is_bearer:
            await self.app(scope, receive, send)
            return

        headers = Headers(scope=scope)
        # Forms with files are read by the application, after this check: their pages send a header.
        token = headers.get("x-csrf-token")
        content_type = headers.get("content-type", "")
        if token is None and content_type.startswith("application/x-www-form-urlencoded"):
            body = await _read_body(receive)
            token = _form_token(body)
            receive = _replay(body, receive)

        if not _is_equal(token, session.csrf_token):
            await JSONResponse({"detail": _SENTENCE}, 403)(scope, receive, send)
            return

        await self.app(scope, receive, send)


def _is_equal(token: str | None, expected: str) -> bool:
    if not token or not expected:
        return False
    # In constant time, so that a token cannot be guessed character by character.
    return hmac.compare_digest(token.encode(), expected.encode())


async def _read_body(receive: Receive) -> bytes:
    """Read a body to its end. ``BodyLimitMiddleware`` bounds its size."""
    body = bytearray()
    has_more = True
    while has_more:
        message = await receive()
        body += message.get("body", b"")
        has_more = message.get("more_body", False)
    return bytes(body)


def _form_token(body: bytes) -> str | None:
    try:
        fields = parse_qs(body.decode("utf-8", errors="replace"), max_num_fields=_MAX_FIELDS)
    except ValueError:
        # Too many fields: an attack, or nothing that a page of ours sends.
        return None
    return fields.get("csrf", [None])[0]


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a ``receive`` that yields a body once more, and then what comes after it."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        if messages:
            return messages.pop()
        return await receive()

    return receive_again
