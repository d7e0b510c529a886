"""HTTP requests to addresses that a user named: guarded against other hosts, and against leaks.

``send_request`` must not reach into the server's own network. Who may name an address on a server
could otherwise make it fetch ``http://127.0.0.1:5432`` or a cloud's metadata service, and read the
answer (server-side request forgery). So a host name is resolved once, every address that it has
must be public, and the connection goes to that very address: a name server that answers differently
the second time changes nothing. The host name still stands in the request and in the TLS handshake,
where its certificate is checked. Redirects are followed by hand, each with the same checks. Proxies
of the environment are not used, because they would resolve the name themselves.

``make_opener`` connects to servers of models, such as those with OpenAI's interface, which may well
be in the user's own network. It must not leak: the texts and the key of a user go to the server
that the user names, and nowhere else.

``retry`` sends a request again when an attempt fails in a way that may pass.

Other requests are sent by httpx2; these two need the standard library. httpx2 resolves host names
itself and limits the time of each read, not of an exchange: to connect to a checked address by a
deadline it would need a network backend written here. And embeddings are asked for by encoders,
which need no extra; with httpx2, reading at most so many bytes takes as much code.
"""

from __future__ import annotations

import contextlib
import http.client
import io
import ipaddress
import math
import os
import socket
import ssl
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.message import Message
from email.utils import parsedate_to_datetime
from http.client import HTTPMessage
from typing import IO, Any, TypeAlias, TypeVar, cast
from urllib.parse import SplitResult, quote, urljoin, urlsplit

from teeter.base.version import __version__
from teeter.errors import InputError, ServerError, ServerUnavailableError

__all__ = [
    "LONGEST_PAUSE",
    "Address",
    "AttemptFailedError",
    "Headers",
    "HttpResponse",
    "PrivateAddressError",
    "RefusedRedirects",
    "Resolver",
    "is_loopback_url",
    "make_opener",
    "read_key",
    "require_http_url",
    "retry",
    "send_request",
]

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolver: TypeAlias = Callable[[str, int], Sequence[str]]
"""Returns the addresses of a host name and a port."""

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
"""IPv6 addresses that a gateway translates to the IPv4 address in their last 32 bits."""

_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
"""The only IPv6 addresses that are given out. Others have IPv4 addresses inside, or are local."""

_PROTOCOL_ASSIGNMENTS = ipaddress.IPv4Network("192.0.0.0/24")
"""Addresses of network equipment, some of which Python takes for public ones."""

_UNQUOTED_IN_PATH = "/%:@!$&'()*+,;=~"
_UNQUOTED_IN_QUERY = _UNQUOTED_IN_PATH + "?"

_CHUNK = 64 * 1024
_REDIRECTS = (301, 302, 303, 307, 308)
_MAX_URL = 4_000


class PrivateAddressError(InputError):
    """An address is not public, and private ones are not allowed."""


@dataclass(frozen=True)
class HttpResponse:
    """What a server answered."""

    status: int
    headers: Mapping[str, str]
    """Their names are in lower case."""
    body: bytes


def require_http_url(url: str) -> SplitResult:
    """Return the parts of an ``http`` or ``https`` address, as they are sent.

    An international host name is in the form of the name system, and other characters of the path
    are quoted.

    Raises:
        InputError: If it is none, or holds a password.

    Example:
        >>> require_http_url("https://käse.example/größe").geturl()
        'https://xn--kse-qla.example/gr%C3%B6%C3%9Fe'
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise InputError(f"{url[:200]!r} is not an address.") from None

    is_printable = url.isprintable() and " " not in url and len(url) <= _MAX_URL
    if parts.scheme not in ("http", "https") or not parts.hostname or not is_printable:
        raise InputError(f"{url[:200]!r} is not an http or https address.")
    if parts.username is not None:
        raise InputError(
            f"The address of {parts.hostname} must not contain a user name or a password."
        )
    if port == 0:
        raise InputError(f"The address of {parts.hostname} has the port 0, which cannot be used.")
    return parts._replace(
        netloc=_ascii_netloc(parts),
        path=quote(parts.path, safe=_UNQUOTED_IN_PATH),
        query=quote(parts.query, safe=_UNQUOTED_IN_QUERY),
    )


def _ascii_netloc(parts: SplitResult) -> str:
    """Return the host and port of an address, with an international name in ASCII.

    Raises:
        InputError: If the name is not a valid one.
    """
    if parts.netloc.isascii():
        return parts.netloc

    try:
        host = str(parts.hostname).encode("idna").decode()
    except UnicodeError:
        raise InputError(
            f"{parts.netloc[:200]!r} is not the name of a host, so it is not an address."
        ) from None
    if parts.port is None:
        return host
    return f"{host}:{parts.port}"


def send_request(
    method: str,
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
    timeout: float = 10.0,
    max_bytes: int = 1_000_000,
    max_redirects: int = 0,
    allow_private: bool = False,
    resolve: Resolver | None = None,
) -> HttpResponse:
    """Send a request and return the answer.

    Args:
        method: ``GET`` or ``POST``.
        url: An ``http`` or ``https`` address.
        headers: Further headers.
        body: What is sent.
        timeout: Seconds that the whole exchange may take, with all redirects. Only the system's
            resolver has limits of its own.
        max_bytes: The largest body of an answer.
        max_redirects: How many redirects are followed.
        allow_private: Whether loopback and private addresses may be used.
        resolve: Returns the addresses of a host; by default the system's resolver.

    Raises:
        InputError: If the address is not valid.
        PrivateAddressError: If it is not public and must be.
        ServerError: If there is no answer, or a larger one than allowed.
    """
    deadline = time.monotonic() + timeout
    for _ in range(max_redirects + 1):
        parts = require_http_url(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        resolver = resolve or _resolve
        address = _pick_address(str(parts.hostname), port, allow_private, resolver)

        with _connected(parts, port, address, deadline) as connection:
            path = parts.path or "/"
            if parts.query:
                path += f"?{parts.query}"
            host = str(parts.hostname)
            if ":" in host:
                host = f"[{host}]"
            if parts.port is not None:
                host = f"{host}:{parts.port}"
            default_headers = {
                "host": host,
                "user-agent": f"teeter/{__version__}",
                "accept-encoding": "identity",
                "connection": "close",
            }
            all_headers = {**default_headers, **(headers or {})}
            connection.request(method, path, body=body, headers=all_headers)
            response = _read_response(connection, max_bytes)

        location = response.headers.get("location")
        if response.status not in _REDIRECTS or max_redirects == 0:
            return response
        if not location:
            return response
        url = _redirect_target(url, location)

    raise ServerError(f"{url[:200]} redirects more than {max_redirects} times.")


def _redirect_target(url: str, location: str) -> str:
    """Return the address that a redirect leads to.

    Raises:
        ServerError: If it is not an address.
    """
    # Headers are read as Latin-1. Servers that send other characters unquoted send UTF-8.
    with contextlib.suppress(UnicodeError):
        location = location.encode("latin-1").decode()
    try:
        return urljoin(url, location)
    except ValueError:
        raise ServerError(f"{url[:200]} redirects to something that is not an address.") from None


def _resolve(host: str, port: int) -> list[str]:
    entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in entries]


def _pick_address(host: str, port: int, allow_private: bool, resolve: Resolver) -> str:
    """Return the address to connect to, after all addresses of the host were checked."""
    try:
        addresses = list(resolve(host, port))
    except (OSError, UnicodeError):
        raise ServerError(f"The host name {host} cannot be resolved.") from None
    if not addresses:
        raise ServerError(f"The host name {host} has no address.")

    if not allow_private:
        for text in addresses:
            # Behind a percent sign is the name of a network interface.
            number, _, _ = text.partition("%")
            if not _is_public(ipaddress.ip_address(number)):
                raise PrivateAddressError(
                    f"{host} has the address {text}, which is not public: use a public host, or "
                    f"allow private addresses."
                )
    return addresses[0]


def _is_public(address: Address) -> bool:
    """Return whether an address, and the one inside it, belongs to the public internet."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return _is_public(inner)
        # A tunnel leads to whatever the addresses inside it name.
        if address.teredo is not None or address not in _GLOBAL_UNICAST:
            return False
    elif address in _PROTOCOL_ASSIGNMENTS:
        return False

    return address.is_global and not address.is_multicast


class _DeadlineSocket:
    """A socket as ``http.client`` uses it, with one deadline for everything that is sent and read.

    The timeout of a socket starts again with every byte: a server that sends one byte now and then,
    even in the headers, would hold the connection for ever.
    """

    def __init__(self, raw: socket.socket, deadline: float) -> None:
        self._raw = raw
        self._deadline = deadline

    def sendall(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            self._raw.settimeout(_seconds_until(self._deadline))
            rest = rest[self._raw.send(rest) :]

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_DeadlineReader(self._raw, self._deadline), _CHUNK)

    def close(self) -> None:
        """Do nothing: ``http.client`` closes before the body is read, and ``_connected`` after."""


class _DeadlineReader(io.RawIOBase):
    """What is received from a socket until a deadline."""

    def __init__(self, raw: socket.socket, deadline: float) -> None:
        self._raw = raw
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._raw.settimeout(_seconds_until(self._deadline))
        return self._raw.recv_into(buffer)


@contextlib.contextmanager
def _connected(
    parts: SplitResult, port: int, address: str, deadline: float
) -> Iterator[http.client.HTTPConnection]:
    """Connect to an address under the name of its host."""
    host = str(parts.hostname)
    connection = http.client.HTTPConnection(host, port)
    raw: socket.socket | None = None

    try:
        raw = socket.create_connection((address, port), timeout=_seconds_until(deadline))
        if parts.scheme == "https":
            context = ssl.create_default_context()
            raw.settimeout(_seconds_until(deadline))
            raw = context.wrap_socket(raw, server_hostname=host)
        connection.sock = cast(Any, _DeadlineSocket(raw, deadline))

        yield connection
    except (OSError, UnicodeError, http.client.HTTPException) as error:
        # The reason only: the message of an error may repeat what a server has sent.
        reason = type(error).__name__
        if isinstance(error, OSError) and error.strerror:
            reason = error.strerror
        if isinstance(error, TimeoutError):
            reason = "it took too long"
        raise ServerError(f"{host} does not answer: {reason}.") from None
    finally:
        connection.close()
        if raw is not None:
            raw.close()


def _read_response(connection: http.client.HTTPConnection, max_bytes: int) -> HttpResponse:
    answer = connection.getresponse()
    content = bytearray()
    while chunk := answer.read1(_CHUNK):
        content += chunk
        if len(content) > max_bytes:
            raise ServerError(f"{connection.host} answers with more than {max_bytes:,} bytes.")

    # The bytes that are missing from what the header promised.
    if answer.length:
        raise ServerError(f"{connection.host} ended its answer {answer.length:,} bytes too early.")

    headers = {}
    for name, value in answer.getheaders():
        headers[name.lower()] = value
    return HttpResponse(answer.status, headers, bytes(content))


def _seconds_until(deadline: float) -> float:
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise TimeoutError
    return seconds


_LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})


def is_loopback_url(url: str) -> bool:
    """Return whether a URL leads to a server on this machine."""
    return urlsplit(url).hostname in _LOOPBACK_HOSTS


def read_key(variable: str) -> str:
    """Return the key in an environment variable; empty if it is not set.

    Raises:
        InputError: the key has characters that cannot be sent. It is not repeated.
    """
    key = os.environ.get(variable, "").strip()
    if not (key.isascii() and key.isprintable()):
        raise InputError(
            f"The key in {variable} has characters that cannot be sent: set it again, without "
            "spaces and line breaks around it."
        )
    return key


def make_opener(url: str, key: str, variable: str) -> urllib.request.OpenerDirector:
    """Return what sends requests to a server. It follows no redirect.

    Args:
        key: the key that is sent with each request; empty for none.
        variable: the environment variable of the key.

    Raises:
        InputError: the key would be sent to another machine unencrypted.
    """
    is_encrypted = urlsplit(url).scheme == "https"
    if key and not is_encrypted and not is_loopback_url(url):
        raise InputError(
            f"Will not send the key in {variable} to {url} unencrypted: use https://, or unset "
            f"{variable}."
        )

    handlers: list[urllib.request.BaseHandler] = [RefusedRedirects()]
    # A proxy only forwards what is encrypted. Everything else it would read.
    if is_loopback_url(url) or not is_encrypted:
        handlers.append(urllib.request.ProxyHandler({}))
    return urllib.request.build_opener(*handlers)


class RefusedRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: it would send the text and the key to another server."""

    def redirect_request(  # noqa: PLR0917 - the signature of the standard library
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> None:
        """Return no request, so that the redirect is reported as an error."""


# Trying again

Result = TypeVar("Result")
Headers: TypeAlias = Mapping[str, str] | Message
"""The headers of an answer, as httpx2 and the standard library give them: names in any case."""

LONGEST_PAUSE = 60.0
"""Seconds to wait at most, whatever the server asks for in ``Retry-After``."""


class AttemptFailedError(ServerUnavailableError):
    """An attempt failed, and another may succeed.

    Args:
        reason: How it failed.
        headers: Those of the answer, if there was one. ``Retry-After`` may ask for a pause.
    """

    def __init__(self, reason: str, headers: Headers | None = None) -> None:
        super().__init__(reason)
        self.retry_after = _read_retry_after(headers or {})


def retry(
    attempt: Callable[[], Result],
    *,
    attempts: int,
    first_pause: float,
    longest_pause: float = LONGEST_PAUSE,
    sleep: Callable[[float], object] = time.sleep,
) -> Result:
    """Return what ``attempt`` returns, calling it again after each ``AttemptFailedError``.

    Whatever else it raises is final.

    Args:
        attempt: Makes one attempt.
        attempts: How many attempts are made at most.
        first_pause: Seconds before the second attempt. Each further pause is twice as long.
        longest_pause: Seconds to wait at most, whatever the server asks for.
        sleep: Waits for a number of seconds. If it returns a true value, as ``Event.wait`` does,
            no further attempt is made.

    Raises:
        AttemptFailedError: The last attempt failed.
    """
    pause = first_pause
    attempts_left = attempts

    while True:
        attempts_left -= 1
        try:
            return attempt()
        except AttemptFailedError as error:
            if attempts_left <= 0:
                raise
            seconds = pause
            if error.retry_after is not None:
                seconds = error.retry_after
            if sleep(min(max(seconds, 0.0), longest_pause)):
                raise

        pause *= 2


def _read_retry_after(headers: Headers) -> float | None:
    """Return the seconds that a server asks to wait, as a number or a date; None without them."""
    value = headers.get("retry-after")
    if value is None:
        return None

    try:
        seconds = float(value)
    except ValueError:
        pass
    else:
        if not math.isfinite(seconds):
            return None
        return seconds

    try:
        return (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds()
    except (ValueError, TypeError, OverflowError):
        return None
