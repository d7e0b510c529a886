"""The middlewares that protect the server. Each stops one attack and says which.

``security_middleware`` of the package has their order.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

from fastapi import HTTPException
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from teeter.errors import PermissionDeniedError, StoreError
from teeter.server.access.authenticator import Authenticator, TooManyLoginsError, WrongTokenError
from teeter.server.access.login_config import SecurityConfig
from teeter.server.access.sessions import (
    ANONYMOUS,
    PROXY_USER,
    Session,
    SessionCookie,
    protect_cookie_name,
)

logger = logging.getLogger(__name__)

SAFE_METHODS = frozenset({"GET", "HEAD"})
"""Methods that change nothing."""


class HttpMiddleware(ABC):
    """A middleware that sees HTTP requests only."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass HTTP requests to ``handle``."""
        if scope["type"] == "http":
            await self.handle(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        else:
            # The server has no WebSockets. If it ever gets one, it must not bypass the checks.
            await send({"type": "websocket.close", "code": 1008, "reason": "Not supported."})

    @abstractmethod
    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it to ``self.app``."""


def is_api(scope: Scope) -> bool:
    """Return whether a request is for the REST API rather than for a page."""
    return bool(scope["path"].startswith("/api/"))


def is_static(scope: Scope) -> bool:
    """Return whether a request is for a stylesheet, a script or an icon."""
    return bool(scope["path"].startswith("/static/"))


def client_address(scope: Scope) -> str:
    """Return the address of the client, or an empty string if it is unknown."""
    client = scope.get("client")
    if client is None:
        return ""
    return str(client[0])


def refuse(
    scope: Scope, status: int, sentence: str, headers: dict[str, str] | None = None
) -> Response:
    """Return a refusal: JSON for programs, plain text for people."""
    if is_api(scope):
        return JSONResponse({"detail": sentence}, status, headers)
    # Plain text, not a page: a refusal may come before there is a session to render one for.
    return PlainTextResponse(sentence, status, headers)


HOME = "/"

_MAX_PATH_LENGTH = 500


def local_path(value: str | None) -> str:
    r"""Return an address if it is a page of this server, else the home page.

    Stops open redirects: a link to our login page must not end on a page of another site that asks
    for the token again. Browsers read ``//host``, ``/\host`` and addresses with tabs or line breaks
    in them as addresses of other sites.

    Example:
        >>> local_path("/c/texts?page=2"), local_path("//evil.example")
        ('/c/texts?page=2', '/')
    """
    if value is None or len(value) > _MAX_PATH_LENGTH:
        return HOME

    # Pages of ours have such addresses: browsers encode everything else before they send it.
    is_plain = value.isprintable() and value.isascii() and "\\" not in value
    if not is_plain or not value.startswith("/") or value.startswith("//"):
        return HOME

    parts = urlsplit(value)
    # The login page itself would be a loop.
    if parts.path == "/login" or parts.path.startswith("/login/"):
        return HOME
    if parts.scheme or parts.netloc:
        return HOME
    return value


_TWO_LENGTHS = "A request must not have both Content-Length and Transfer-Encoding."


class MessageFramingMiddleware(HttpMiddleware):
    """Refuse a request with Content-Length and Transfer-Encoding, and close its connection.

    Stops request smuggling: of such a request a proxy and this server may see different ends, and
    take the rest of the body for a request of another person. h11 reads the body by
    Transfer-Encoding and keeps the connection open; RFC 9112, section 6.1, says to close it.
    """

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on if it says in one way where it ends."""
        headers = Headers(scope=scope)
        if "content-length" in headers and "transfer-encoding" in headers:
            response = refuse(scope, 400, _TWO_LENGTHS, {"connection": "close"})
            await response(scope, receive, send)
            return

        await self.app(scope, receive, send)


_DATABASE_AWAY = (
    "The campaign's database is not responding. Saved answers are safe. Try again later."
)


class FailClosedMiddleware(HttpMiddleware):
    """Answer 503 if a check needs a database that does not respond.

    Stops requests that would slip through unauthenticated while the database that holds the tokens
    is away, for instance because someone overloads it.
    """

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and refuse it if a later check cannot be made."""
        try:
            await self.app(scope, receive, send)
        except StoreError:
            # From a middleware: the application answers its own database errors.
            response = refuse(scope, 503, _DATABASE_AWAY, {"retry-after": "2"})
            await response(scope, receive, send)


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


_PEER = "peer_address"
"""The key of the state of a request under which the address of the connection is passed on."""


class ForwardedHeadersMiddleware(HttpMiddleware):
    """Believe ``X-Forwarded-For`` and ``X-Forwarded-Proto`` of one proxy, and of no other client.

    Stops clients that write any address into these headers, to escape the limit of wrong tokens.

    uvicorn applies its middleware by itself if asked to, but then the address of the proxy is
    forgotten, and without it no other header of the proxy can be trusted.
    """

    def __init__(self, app: ASGIApp, proxy: str | None) -> None:
        super().__init__(app)
        self._forwarded_app: ASGIApp = app
        if proxy is not None:
            # uvicorn and Starlette describe the same interface by different types.
            middleware: Any = ProxyHeadersMiddleware
            self._forwarded_app = middleware(app, trusted_hosts=proxy)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on with the address of its client, and note that of its connection."""
        scope.setdefault("state", {})[_PEER] = client_address(scope)
        await self._forwarded_app(scope, receive, send)


def peer_address(scope: Scope) -> str:
    """Return the address that the connection of a request comes from."""
    return str(scope["state"][_PEER])


class AllowedHostsMiddleware(HttpMiddleware):
    """Refuse requests for other host names while no login is required.

    Stops DNS rebinding: a page of another site whose name is made to resolve to 127.0.0.1 could
    otherwise read and change campaigns with the visitor's browser, because for the browser both
    are the same site. Once a login is required such a page has no session, and proxies may use any
    name.

    Starlette's TrustedHostMiddleware cannot depend on whether a login is required, which may change
    while the server runs, does not say which name it refuses, and in most of its versions does not
    know IPv6 addresses.
    """

    def __init__(self, app: ASGIApp, authenticator: Authenticator) -> None:
        super().__init__(app)
        self._authenticator = authenticator

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on if its host name is allowed."""
        host = Headers(scope=scope).get("host", "")

        # The list first: whether a login is required may take a query.
        if self._is_listed(host) or await run_in_threadpool(self._authenticator.requires_login):
            await self.app(scope, receive, send)
            return

        sentence = f"This server does not accept requests for the host name {host[:100]!r}."
        await PlainTextResponse(sentence, 400)(scope, receive, send)

    def _is_listed(self, host: str) -> bool:
        allowed_hosts = self._authenticator.config.allowed_hosts
        if allowed_hosts is None:
            return True
        return _host_name(host) in allowed_hosts


def _host_name(host: str) -> str:
    """Return the name in a Host header, without the port and the brackets of IPv6."""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


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
    if origin is None:
        return False
    host = headers.get("host", "")
    return urlsplit(origin).netloc.lower() != host.lower()


_UPLOAD_PATH = re.compile(r"/api/v1/(uploads|campaigns(/[^/]+/(items/file|predictions))?)")
"""Where files are sent: for new campaigns, and items and predictions for one."""

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
        is_post = scope["method"] == "POST"
        if is_post and _UPLOAD_PATH.fullmatch(scope["path"]):
            max_bytes = self._config.upload_limit
            seconds = self._config.upload_seconds
        elif is_post and _ITEMS_PATH.fullmatch(scope["path"]):
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
            headers = dict(error.headers or {})
            response = refuse(scope, error.status_code, error.detail, headers)
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


_FORGED_FORM = (
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
            await JSONResponse({"detail": _FORGED_FORM}, 403)(scope, receive, send)
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
    if query:
        path += b"?" + query
    page = local_path(path.decode("ascii", "replace"))
    if page == HOME:
        return "/login"
    return f"/login?next={quote(page, safe='')}"


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
            response = refuse(scope, 401, str(error), headers)
            await response(scope, receive, send)
            return
        except TooManyLoginsError as error:
            response = refuse(scope, 429, str(error), {"retry-after": "60"})
            await response(scope, receive, send)
            return

        if session is not None:
            scope.setdefault("state", {})["session"] = session
        await self.app(scope, receive, send)

    def _log_in(self, token: str, address: str) -> Session | None:
        """Return the session of a token; None where no login is required."""
        # The same program may be used with servers that require a login and with others.
        if not self._authenticator.requires_login():
            return None
        session = self._authenticator.log_in(token, address)
        return replace(session, is_bearer=True)


def _bearer_token(headers: Headers) -> str | None:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        return None
    return token.strip()


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
            response = refuse(scope, 403, str(error))
            await response(scope, receive, send)
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
        return _decode_header(names[0]).strip() or None


def _decode_header(value: str) -> str:
    """Return the text of a header. Starlette reads Latin-1, and proxies write names in UTF-8."""
    try:
        return value.encode("latin-1").decode("utf-8")
    except UnicodeDecodeError:
        return value


class SessionMiddleware(HttpMiddleware):
    """Give every browser a session, in ``request.state.session``.

    A handler logs an annotator in or out by assigning another session there; the cookie follows.

    Stops forged sessions (the cookie is signed and expires), theft by scripts (HttpOnly), use by
    other sites (SameSite=Lax; SameOriginMiddleware refuses changes from there), sniffing (Secure
    over TLS), and use after the session was logged out, the token that opened it was replaced or
    revoked, or the person is no longer let in.
    """

    def __init__(self, app: ASGIApp, authenticator: Authenticator) -> None:
        super().__init__(app)
        self._authenticator = authenticator
        config = authenticator.config
        self._cookie = SessionCookie(config.cookie_name, config.secret)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on with its session."""
        state = scope.setdefault("state", {})
        # BearerTokenMiddleware has found a program with a token: no cookie is involved.
        if "session" in state:
            await self.app(scope, receive, send)
            return

        if is_static(scope):
            state["session"] = ANONYMOUS
            await self.app(scope, receive, send)
            return

        restored = await run_in_threadpool(self._restore, scope)
        if restored is None:
            open_session = self._authenticator.new_session
            state["session"] = await run_in_threadpool(open_session, state.get(PROXY_USER))
        else:
            state["session"] = restored

        # A session that changed is sent as a new cookie: one that was just opened, and one that a
        # handler has put in its place.
        async def send_with_cookie(message: Message) -> None:
            if message["type"] == "http.response.start" and state["session"] != restored:
                is_https = scope.get("scheme") == "https"
                header = self._cookie.header(state["session"], is_https=is_https)
                MutableHeaders(scope=message).append("set-cookie", header)
            await send(message)

        await self.app(scope, receive, send_with_cookie)

    def _restore(self, scope: Scope) -> Session | None:
        """Return the session of a request's cookie, if it is still valid."""
        is_https = scope.get("scheme") == "https"
        name = protect_cookie_name(self._cookie.name, is_https=is_https)
        value = HTTPConnection(scope).cookies.get(name)
        if not value:
            return None

        session = self._cookie.decode(value)
        if session is None:
            return None
        return self._authenticator.restore_session(session, scope["state"].get(PROXY_USER))
