"""How large request bodies may be, and how long they may take."""

from __future__ import annotations

import asyncio
import re

from fastapi import HTTPException
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from teeter.web.auth.config import SecurityConfig
from teeter.web.auth.http_middleware import HttpMiddleware, refuse

__all__ = ["BodyLimitMiddleware"]

_UPLOAD_PATH = re.compile(r"/api/v1/campaigns(/[^/]+/(items/file|predictions))?")
"""Where files are sent: new campaigns, and items and predictions for one."""

_ITEMS_PATH = re.compile(r"/api/v1/campaigns/[^/]+/items")
"""Where items are sent as JSON, which may have long texts and cells."""

_MAX_DIGITS = 20
"""Longer numbers are attacks: Python itself refuses to parse numbers of thousands of digits."""


class BodyLimitMiddleware(HttpMiddleware):
    """Refuse bodies that are too large or arrive too slowly.

    Stops filling memory and disk, also by bodies that do not say how long they are, and holding
    connections open by sending a byte now and then. Starlette's own limit has no time.
    """

    def __init__(self, app: ASGIApp, config: SecurityConfig) -> None:
        super().__init__(app)
        self._config = config

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on with a body that raises when it exceeds its limits."""
        max_bytes = self._config.body_limit
        seconds = self._config.body_seconds
        if scope["method"] == "POST" and _UPLOAD_PATH.fullmatch(scope["path"]):
            max_bytes = self._config.upload_limit
            seconds = self._config.upload_seconds
        elif scope["method"] == "POST" and _ITEMS_PATH.fullmatch(scope["path"]):
            max_bytes = self._config.items_limit

        length = Headers(scope=scope).get("content-length", "0")
        if not length.isdecimal() or len(length) > _MAX_DIGITS:
            await refuse(scope, 400, "Content-Length is not a number.")(scope, receive, send)
            return
        if int(length) > max_bytes:
            sentence = (
                f"The request body has {int(length):,} bytes: at most {max_bytes:,} are allowed."
            )
            await refuse(scope, 413, sentence)(scope, receive, send)
            return

        try:
            await self.app(scope, _LimitedBody(receive, max_bytes, seconds), send)
        except (_BodyTooLargeError, _BodyTooSlowError) as error:
            # From CsrfMiddleware: the application answers what it raises while it reads a body.
            response = refuse(scope, error.status_code, error.detail, dict(error.headers or {}))
            await response(scope, receive, send)


class _BodyTooLargeError(HTTPException):
    def __init__(self, max_bytes: int) -> None:
        super().__init__(
            413, f"The request body is too large: at most {max_bytes:,} bytes are allowed."
        )


class _BodyTooSlowError(HTTPException):
    def __init__(self, seconds: float) -> None:
        detail = f"The request body did not arrive within {seconds:g} seconds."
        super().__init__(408, detail, {"connection": "close"})


class _LimitedBody:
    """The body of one request, with a limit of its size and a deadline."""

    def __init__(self, receive: Receive, max_bytes: int, seconds: float) -> None:
        self._receive = receive
        self._max_bytes = max_bytes
        self._seconds = seconds
        self._received = 0
        self._deadline: float | None = None
        self._is_complete = False

    async def __call__(self) -> Message:
        # After the body only a disconnect can come, and it may take as long as it likes.
        if self._is_complete:
            return await self._receive()

        # The time counts from the first read: until then the server does not wait for it.
        if self._deadline is None:
            self._deadline = asyncio.get_running_loop().time() + self._seconds

        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            raise _BodyTooSlowError(self._seconds) from None

        self._received += len(message.get("body", b""))
        if self._received > self._max_bytes:
            raise _BodyTooLargeError(self._max_bytes)

        self._is_complete = not message.get("more_body", False)
        return message
