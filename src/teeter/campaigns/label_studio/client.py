"""Label Studio's REST interface: tokens of both kinds, tries that are repeated, and one sentence for every refusal."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from teeter.errors import InputError, MissingExtraError, ServerError, ServerUnavailableError

if TYPE_CHECKING:
    import httpx

__all__ = ["ListingChangedError", "NotFoundError", "Server", "address", "is_personal"]

_TRIES = 5
"""Times that something is tried before it is given up."""

_PAUSE = 0.5
"""Seconds before the second try; each pause is twice the one before."""

_LONGEST_PAUSE = 60.0
"""Seconds to wait at most where the server says how long to."""

_TIMEOUT = 30.0
"""Seconds without a sign of life."""

_BUSY = (429, 503)
"""The server did not begin: whatever was asked can be asked again."""

_TROUBLE = (500, 502, 504)
"""Nobody knows what was done: only what changes nothing is asked again."""

_LOOPBACK = ("127.0.0.1", "::1", "localhost")


class NotFoundError(ServerError):
    """What was asked for is not there."""


class ListingChangedError(ServerUnavailableError):
    """A listing changed while it was read."""

    def __init__(self, url: str) -> None:
        super().__init__(f"What {url} lists changed while it was read: run it again.")


def address(url: str) -> str:
    """Return an address as it is kept: without what a browser shows after it."""
    url = url.strip()
    refusal = InputError(f"{url!r} is not an address: give one such as http://localhost:8080.")
    try:
        parts = urlsplit(url)
        _ = parts.port  # which may be none
    except ValueError:
        raise refusal from None
    if parts.scheme not in ("http", "https") or not parts.hostname or not url.isprintable():
        raise refusal
    if parts.username or parts.password:
        raise InputError("Leave name and password out of the address: a token lets teeter in.")
    path = re.split(r"/(?:projects|user|api)(?:/|$)", parts.path)[0]
    return f"{parts.scheme}://{parts.netloc}{path.rstrip('/')}"


def is_personal(token: str) -> bool:
    """Tell a personal access token, which is three parts with dots between, from a legacy one."""
    return token.count(".") == 2


class Server:
    """A Label Studio, and somebody's token for it."""

    def __init__(
        self,
        url: str,
        token: str,
        *,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Keep the token in memory alone; ``transport`` and ``sleep`` are other ones in tests."""
        self.url = address(url)
        self._token = _checked(token)
        self._access: str | None = None
        self._sleep = sleep
        self._http = _client(self.url, transport)
        self.before: Callable[[], None] = lambda: None
        """Called before every try."""

    def close(self) -> None:
        """Let go of the connection."""
        self._http.close()

    def get(self, path: str, **params: Any) -> Any:
        """Return what the server has at a path."""
        return self._asked("GET", path, params=params)

    def post(self, path: str, body: Any, **params: Any) -> Any:
        """Send something new; it is not sent again where it may have arrived."""
        return self._asked("POST", path, params=params, json=body)

    def patch(self, path: str, body: Mapping[str, Any]) -> Any:
        """Change what the server has at a path."""
        return self._asked("PATCH", path, json=dict(body))

    def upload(self, path: str, files: Sequence[tuple[str, bytes]], **params: Any) -> Any:
        """Send files by their names."""
        parts = [
            (str(k), (name, data, "application/octet-stream"))
            for k, (name, data) in enumerate(files)
        ]
        return self._asked("POST", path, params=params, files=parts)

    def pages(self, path: str, rows: str, count: str, **params: Any) -> Iterator[Any]:
        """Yield the rows of all pages, some perhaps twice; where one may have slipped between two, it is a trouble."""
        page, seen, total = 1, 0, 0
        while page == 1 or seen < total:
            try:
                found = self.get(path, page=page, **params)
            except NotFoundError:
                if page == 1:
                    raise
                raise ListingChangedError(self.url) from None
            if not isinstance(found, dict) or not {rows, count} <= set(found):
                raise self.strange()
            some, before, total = list(found[rows]), total, int(found[count])
            if total < before or (not some and seen < total):
                raise ListingChangedError(self.url)
            yield from some
            page, seen = page + 1, seen + len(some)

    def strange(self) -> ServerError:
        """Return what to raise where an answer is not what Label Studio's would be."""
        return ServerError(
            f"{self.url} answers in a way that teeter does not know: check that it is a Label Studio."
        )

    def _asked(self, method: str, path: str, **what: Any) -> Any:
        answer = self._tried(method, path, what)
        if answer.status_code == 401 and is_personal(self._token):
            self._access = None  # it lasts five minutes
            answer = self._tried(method, path, what)
        return self._told(answer)

    def _tried(self, method: str, path: str, what: dict[str, Any]) -> httpx.Response:
        """Return an answer, after several tries if need be; 5xx and the like are not answers."""
        import httpx

        pause = _PAUSE
        for left in reversed(range(_TRIES)):
            self.before()
            safe = method == "GET"
            try:
                answer = self._http.request(method, path, headers=self._headers(), **what)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                trouble, safe, wait = f"Nobody answers at {self.url} ({_why(error)})", True, None
            except httpx.HTTPError as error:
                trouble, wait = f"{self.url} broke off ({_why(error)})", None
            else:
                if answer.status_code not in (*_BUSY, *_TROUBLE):
                    return answer
                safe |= answer.status_code in _BUSY
                trouble = f"{self.url} answers with {answer.status_code}{_detail(answer)}"
                wait = _seconds(answer.headers.get("Retry-After"))
            if not safe or not left:
                raise ServerUnavailableError(f"{trouble}: nothing is lost, run it again later.")
            self._sleep(min(_LONGEST_PAUSE, pause if wait is None else wait))
            pause *= 2
        raise AssertionError("every try returns or raises")

    def _headers(self) -> dict[str, str]:
        if not is_personal(self._token):
            return {"Authorization": f"Token {self._token}"}
        if self._access is None:
            self._access = self._refreshed()
        return {"Authorization": f"Bearer {self._access}"}

    def _refreshed(self) -> str:
        """Return a token for the next five minutes: a personal access token is good for nothing but to get one."""
        answer = self._http.post("/api/token/refresh/", json={"refresh": self._token})
        if answer.status_code in (*_BUSY, *_TROUBLE):
            raise ServerUnavailableError(
                f"{self.url} answers with {answer.status_code}: nothing is lost, run it again later."
            )
        found = self._told(answer)
        if not isinstance(found, dict) or not isinstance(found.get("access"), str):
            raise self.strange()
        return str(found["access"])

    def _told(self, answer: httpx.Response) -> Any:
        """Return what an answer holds, or refuse it in a sentence."""
        status = answer.status_code
        if status in (401, 403):
            hint = (
                "make one under Account & Settings"
                if status == 401
                else "ask for the rights to the project"
            )
            old = "" if is_personal(self._token) else ", or legacy tokens are switched off there"
            raise ServerError(
                f"{self.url} refuses the token{_detail(answer)}: it is wrong or ended{old}; {hint}."
            )
        if 300 <= status < 400:
            raise ServerError(
                f"{self.url} leads on to {answer.headers.get('Location', 'elsewhere')}: give that address."
            )
        found = _parsed(answer)
        if status == 404:
            if found is None:
                raise NotFoundError(f"There is no Label Studio at {self.url}: check the address.")
            raise NotFoundError(f"{self.url} has no {answer.request.url.path}{_detail(answer)}.")
        if found is None and answer.content:
            raise ServerError(
                f"{self.url} answers with a page instead of data: check that it is a Label Studio."
            )
        if status >= 400:
            raise ServerError(f"{self.url} refuses with {status}{_detail(answer)}.")
        return found


def _client(url: str, transport: httpx.BaseTransport | None) -> httpx.Client:
    try:
        import httpx
    except ImportError:
        raise MissingExtraError(
            "Label Studio needs httpx: pip install 'teeter[label-studio]'."
        ) from None
    near = urlsplit(url).hostname in _LOOPBACK  # no proxy leads back to this machine
    return httpx.Client(base_url=url, transport=transport, timeout=_TIMEOUT, trust_env=not near)


def _checked(token: str) -> str:
    token = token.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise InputError(
            "The token is blank, or has signs that no token has: copy it again from Label Studio."
        )
    return token


def _parsed(answer: httpx.Response) -> Any:
    """Return the JSON of an answer; None if it is none."""
    try:
        return answer.json()
    except ValueError:
        return None


def _detail(answer: httpx.Response) -> str:
    """Return what the server says of a refusal, in brackets and on one line."""
    found = _parsed(answer)
    if not isinstance(found, dict):
        return ""
    said = found.get("validation_errors") or found.get("detail") or ""
    line = " ".join("".join(sign if sign.isprintable() else " " for sign in str(said)).split())
    return f" ({line[:300]})" if line else ""


def _why(error: Exception) -> str:
    return str(error) or type(error).__name__


def _seconds(told: str | None) -> float | None:
    return float(told) if told is not None and told.isdecimal() else None
