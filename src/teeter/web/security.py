"""Who may do what on the page: sessions, tokens, cross-site requests, hosts, sizes and headers, in one gate."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import secrets
import time
from collections import deque
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from typing import Protocol
from urllib.parse import parse_qs, urlsplit

from fastapi import HTTPException
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from teeter.errors import StoreError
from teeter.web.tokens import Tokens, token_prefix

__all__ = ["COOKIE", "SecurityConfig", "SecurityMiddleware", "Session", "is_loopback"]

COOKIE = "teeter_session"
_LASTS = 14 * 24 * 3600
_FIELDS = 4
"""What a cookie says: the session, its annotator, since when, and the mark of its token."""

_HEADERS = {
    "content-security-policy": (
        "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; "
        "form-action 'self'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}
_OPEN = ("/static/", "/login")
"""What is shown before somebody has said who they are."""


def is_loopback(host: str) -> bool:
    """Tell whether an address can be reached from this machine alone."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True)
class Session:
    """A browser, or a program with a token, and who it speaks for."""

    id: str
    annotator: str | None
    by_token: bool = False
    mark: str = ""
    """Which token it came in by; none where none is needed."""


_NOBODY = Session("", None)


@dataclass
class RateLimit:
    """So many wrong tries a minute from one address; who has a right token is never kept waiting."""

    tries: int = 10
    seconds: float = 60.0
    _failed: dict[str, deque[float]] = field(default_factory=dict)

    def failed(self, address: str) -> bool:
        """Note a wrong try, and tell whether the address has had too many already."""
        if len(self._failed) > 10_000:
            self._failed.clear()
        times = self._failed.setdefault(address, deque())
        while times and times[0] < time.monotonic() - self.seconds:
            times.popleft()
        if len(times) >= self.tries:
            return True
        times.append(time.monotonic())
        return False


class People(Protocol):
    """Those whom campaigns name, and who have tokens there."""

    def is_needed(self) -> bool:
        """Tell whether anybody is named."""

    def name_of(self, token: str) -> str | None:
        """Return whose token it is."""

    def has(self, name: str, mark: str) -> bool:
        """Tell whether somebody still has the token of a mark."""


@dataclass
class SecurityConfig:
    """What the gate goes by."""

    secret: bytes
    tokens: Tokens = field(default_factory=Tokens)
    hosts: frozenset[str] | None = frozenset({"127.0.0.1", "localhost", "::1"})
    """Names that this server answers to; None for any, where a token is needed anyway."""
    body_limit: int = 1_000_000
    upload_limit: int = 200_000_000
    body_seconds: float = 30.0
    upload_seconds: float = 900.0
    """How long a body may take to come."""
    own: str = "me"
    """Who answers on this machine, where no token is needed."""
    limit: RateLimit = field(default_factory=RateLimit)
    people: People | None = None
    """Whom campaigns name: they come in by their tokens there, and then nobody comes in without one."""
    cookie_name: str = COOKIE
    """Of one server: a browser sends the cookies of all that are on a machine to each of them."""
    _strict: bool = field(init=False)
    """Whether the server has tokens of its own; settled at the start, so that removing the last opens nothing."""

    def __post_init__(self) -> None:
        self._strict = len(self.tokens) > 0

    @property
    def needs_token(self) -> bool:
        """Whether nobody comes in without a token."""
        return self._strict or (self.people is not None and self.people.is_needed())

    def _has(self, name: str, mark: str) -> bool:
        return self.tokens.has(name, mark) or (
            self.people is not None and self.people.has(name, mark)
        )

    def name_of(self, token: str) -> str | None:
        """Return whose token it is: one of the server's, or of a campaign's people."""
        found = self.tokens.name_of(token)
        return (
            self.people.name_of(token)
            if found is None and self.people is not None and token
            else found
        )

    def fresh(self) -> Session:
        """Return a session for a browser that has none."""
        return Session(secrets.token_urlsafe(16), None if self.needs_token else self.own)

    def csrf(self, session: Session) -> str:
        """Return what a page of this session must send with whatever it changes."""
        return self._signature(f"csrf {session.id} {session.annotator}")

    def cookie(self, session: Session) -> str:
        """Return a session as its cookie says it, signed."""
        told = json.dumps([session.id, session.annotator, int(time.time()), session.mark])
        packed = base64.urlsafe_b64encode(told.encode()).decode().rstrip("=")
        return f"{packed}.{self._signature(packed)}"

    def session_of(self, cookie: str) -> Session | None:
        """Return the session of a cookie; None if it is not ours, too old, or its token is gone."""
        packed, _, signature = cookie.rpartition(".")
        if not hmac.compare_digest(self._signature(packed).encode(), signature.encode()):
            return None
        told = json.loads(base64.urlsafe_b64decode(packed + "=" * (-len(packed) % 4)))
        if len(told) != _FIELDS:
            return None
        own, name, issued, mark = told
        if issued + _LASTS < time.time():
            return None
        if not self.needs_token:
            return None if mark else Session(own, self.own if name is None else name)
        if name is not None and not (mark and self._has(name, mark)):
            return None
        return Session(own, name, mark=mark)

    def named(self, session: Session, name: str) -> Session:
        """Return a new session of somebody who has just said who they are, where no token is needed."""
        return replace(session, id=secrets.token_urlsafe(16), annotator=name)

    def entered(self, token: str) -> Session | None:
        """Return a new session of whoever has this token; None if nobody has."""
        name = self.name_of(token)
        return (
            None
            if name is None
            else Session(secrets.token_urlsafe(16), name, mark=token_prefix(token))
        )

    def set_cookie(self, response: Response, session: Session, *, secure: bool) -> None:
        """Give a browser its session."""
        name, told = self.cookie_name, self.cookie(session)
        response.set_cookie(
            name, told, max_age=_LASTS, httponly=True, samesite="strict", secure=secure, path="/"
        )

    def _signature(self, text: str) -> str:
        made = hmac.new(
            self.secret, text.encode("utf-8", errors="surrogatepass"), hashlib.sha256
        ).digest()
        return base64.urlsafe_b64encode(made).decode().rstrip("=")


class SecurityMiddleware:
    """The middleware that every request goes through."""

    def __init__(self, app: ASGIApp, guard: SecurityConfig) -> None:
        self.app, self.guard = app, guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through to the page, or answer it with a refusal."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        is_static = scope["path"].startswith("/static/")
        try:
            session, fresh = (
                (_NOBODY, False) if is_static else await run_in_threadpool(self._who, headers)
            )
            refusal = await run_in_threadpool(self._refusal, scope, headers, session)
        except StoreError:  # of the campaigns whose people are to be asked for
            session, fresh, refusal = _NOBODY, False, _away(scope["path"])
        scope.setdefault("state", {}).update(session=session, csrf=self.guard.csrf(session))

        async def send_on(message: Message) -> None:
            if message["type"] == "http.response.start":
                told = MutableHeaders(scope=message)
                if is_static:
                    told.setdefault("cache-control", "no-cache")
                for name, value in _HEADERS.items():
                    told.setdefault(name, value)
                given = any(
                    one.startswith(self.guard.cookie_name + "=")
                    for one in told.getlist("set-cookie")
                )
                if fresh and not given:
                    response = Response()
                    self.guard.set_cookie(response, session, secure=scope.get("scheme") == "https")
                    told.append("set-cookie", response.headers["set-cookie"])
            await send(message)

        if refusal is None:
            guard, upload = self.guard, _is_upload(scope)
            limit = guard.upload_limit if upload else guard.body_limit
            refusal = _too_long(headers, limit)
            receive = _Counted(
                receive, limit, guard.upload_seconds if upload else guard.body_seconds
            )
        if refusal is None and scope["method"] not in ("GET", "HEAD") and not session.by_token:
            try:
                receive, body = await _form(receive, headers)
                refusal = self._without_csrf(headers, body, session)
            except (_TooLongError, _TooSlowError) as error:
                refusal = PlainTextResponse(error.detail, error.status_code, error.headers)
        await (refusal or self.app)(scope, receive, send_on)

    def _who(self, headers: Headers) -> tuple[Session, bool]:
        """Return whose request it is, and whether the browser is to be given a cookie."""
        bearer = headers.get("authorization", "")
        if bearer.lower().startswith("bearer ") and self.guard.needs_token:
            token = bearer[7:].strip()
            return Session(
                "", self.guard.name_of(token), by_token=True, mark=token_prefix(token)
            ), False
        cookie = cookie_parser(headers.get("cookie", "")).get(self.guard.cookie_name, "")
        session = self.guard.session_of(cookie) if cookie else None
        return (self.guard.fresh(), True) if session is None else (session, False)

    def _refusal(self, scope: Scope, headers: Headers, session: Session) -> Response | None:
        host = headers.get("host", "")
        hosts = self.guard.hosts
        if hosts is not None and _name_of(host) not in hosts and not self.guard.needs_token:
            return _plain(400, f"This server does not answer to the name {host[:100]!r}.")
        path = scope["path"]
        if path.startswith("/api/") and headers.get("sec-fetch-site") == "cross-site":
            return _plain(403, "Refused: this came from another site.")
        if scope["method"] not in ("GET", "HEAD"):
            origin = headers.get("origin")
            elsewhere = headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none")
            if elsewhere or (
                origin is not None and urlsplit(origin).netloc.lower() != host.lower()
            ):
                return _plain(403, "Refused: this came from another site.")
        if session.annotator is None and session.by_token:
            if self.guard.limit.failed(str((scope.get("client") or ("", 0))[0])):
                return JSONResponse(
                    {"detail": "Too many wrong tokens: wait a minute."}, 429, {"retry-after": "60"}
                )
            return JSONResponse({"detail": "That token is not known here."}, 401)
        if session.annotator is None and not path.startswith(_OPEN):
            if path.startswith("/api/"):
                return JSONResponse(
                    {"detail": "A token is needed: Authorization: Bearer TOKEN."}, 401
                )
            return RedirectResponse("/login", 303)
        return None

    def _without_csrf(
        self, headers: Headers, body: bytes | None, session: Session
    ) -> Response | None:
        given = headers.get("x-csrf-token")
        if given is None and body is not None:
            given = parse_qs(body.decode("utf-8", errors="replace")).get("csrf", [None])[0]
        if given is None or not hmac.compare_digest(
            given.encode(), self.guard.csrf(session).encode()
        ):
            detail = "Refused: the page is out of date. Load it again. (Programs: GET /api/v1/session first.)"
            return JSONResponse({"detail": detail}, 403)
        return None


class _TooLongError(HTTPException):
    """A body went on after its limit."""

    def __init__(self) -> None:
        super().__init__(413, "That is more than this server takes.")


class _TooSlowError(HTTPException):
    """A body did not come in its time."""

    def __init__(self) -> None:
        super().__init__(408, "That took too long to come.", {"connection": "close"})


class _Counted:
    """A request's body, up to a limit and within a time."""

    def __init__(self, receive: Receive, limit: int, seconds: float) -> None:
        self.receive, self.left, self.seconds = receive, limit, seconds
        self.ends: float | None = None
        self.whole = False

    async def __call__(self) -> Message:
        if self.whole:  # what comes now is that the browser has gone, whenever that is
            return await self.receive()
        if self.ends is None:
            self.ends = asyncio.get_running_loop().time() + self.seconds
        try:
            async with asyncio.timeout_at(self.ends):
                message = await self.receive()
        except TimeoutError:
            raise _TooSlowError from None
        self.left -= len(message.get("body", b""))
        if self.left < 0:
            raise _TooLongError
        self.whole = not message.get("more_body", False)
        return message


async def _form(receive: Receive, headers: Headers) -> tuple[Receive, bytes | None]:
    """Return a form's body, and how it can be read once more; None for what is no plain form."""
    if not headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        return receive, None
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    told: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return told.pop() if told else await receive()

    return again, body


def _too_long(headers: Headers, limit: int) -> Response | None:
    length = headers.get("content-length", "0")
    if not length.isdigit():
        return _plain(400, "The request's length is no number.")
    if int(length) > limit:
        return _plain(413, f"That is more than the {limit:,} bytes this server takes.")
    return None


def _is_upload(scope: Scope) -> bool:
    return bool(scope["path"] == "/api/v1/campaigns" and scope["method"] == "POST")


def _name_of(host: str) -> str:
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def _away(path: str) -> Response:
    sentence = "The campaign's database does not answer. What was acknowledged is safe; try again when it is back."
    told = {"retry-after": "2"}
    if path.startswith("/api/"):
        return JSONResponse({"detail": sentence}, 503, told)
    return PlainTextResponse(sentence, 503, told)


def _plain(status: int, sentence: str) -> Response:
    return PlainTextResponse(sentence, status)
