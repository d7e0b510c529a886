"""Limits of open connections, for uvicorn's option ``http``.

A connection costs the server a file and memory from the moment it is accepted, long before it sends
a request. A client can therefore lock everybody out by opening connections and sending nothing, or
a byte of the request head now and then (slowloris). uvicorn counts connections only when a request
is complete, and then answers 503 to everybody. Here

- the head of a request must be complete ``head_seconds`` after the connection, or its first byte;
- one client has at most ``per_client`` connections, and all clients together ``total``;
- when a limit is reached, the new connection takes the place of an idle one: first of those that
  never sent a complete request, then of those that wait between two requests. Browsers send their
  request at once and open an idle connection again when they need it, so annotators notice nothing.

``_LimitedConnection`` wraps uvicorn's protocol and uses asyncio's public interface. Two details of
uvicorn 0.54 are used that it does not document: the arguments of ``H11Protocol``, and its attribute
``conn`` (in ``is_awaiting_head``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from typing import Any, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from teeter.server.access.client_network import client_network

__all__ = ["ConnectionLimits", "limit_connections"]

_REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\n"
    b"connection: close\r\ncontent-length: 0\r\nretry-after: 1\r\n\r\n"
)


@dataclass(frozen=True)
class ConnectionLimits:
    """How many connections may be open, and how long a request head may take."""

    total: int = 500
    """Of all clients. Each is an open file, and 1,024 is the usual limit of a process."""
    per_client: int = 100
    """Of one client. A browser opens six, and several may share an address behind a router."""
    head_seconds: float = 20.0
    """Time in which the head of a request must arrive."""
    proxy: str | None = None
    """Address or network of a reverse proxy. All clients come through it, so ``per_client`` does
    not hold for it."""


def limit_connections(limits: ConnectionLimits) -> Callable[..., asyncio.Protocol]:
    """Return a value for uvicorn's option ``http`` that enforces limits.

    Example:
        >>> options = {"http": limit_connections(ConnectionLimits()), "ws": "none"}
    """
    table = _ConnectionTable(limits)

    def make_connection(**uvicorn_arguments: Any) -> asyncio.Protocol:
        return _LimitedConnection(table, H11Protocol(**uvicorn_arguments))

    return make_connection


class _ConnectionTable:
    """The open connections of a server, the oldest first."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self._connections: dict[_LimitedConnection, None] = {}

    def admit(self, connection: _LimitedConnection) -> bool:
        """Add a connection, closing an idle one if a limit is reached.

        Returns:
            False if the limit is reached and no connection is idle.
        """
        if not self._is_proxy(connection.address):
            of_client = [other for other in self._connections if other.client == connection.client]
            if len(of_client) >= self.limits.per_client and not self._evict_one(of_client):
                return False

        if len(self._connections) >= self.limits.total and not self._evict_one(self._connections):
            return False

        self._connections[connection] = None  # a dict keeps the order, unlike a set
        return True

    def remove(self, connection: _LimitedConnection) -> None:
        """Forget a connection that is closed."""
        self._connections.pop(connection, None)

    def _evict_one(self, connections: Iterable[_LimitedConnection]) -> bool:
        """Close an idle connection, and return whether there was one."""
        idle = [connection for connection in connections if connection.is_awaiting_head()]
        if not idle:
            return False

        # Of those without any complete request the oldest; of the others the one idle for longest.
        victim = min(idle, key=lambda connection: (connection.has_sent_request, connection.since))
        # Removed at once: its connection_lost comes only with the next turn of the event loop.
        self.remove(victim)
        victim.abort()
        return True

    def _is_proxy(self, address: str) -> bool:
        if self.limits.proxy is None:
            return False
        try:
            return ip_address(address) in ip_network(self.limits.proxy)
        except ValueError:
            return False


class _LimitedConnection(asyncio.Protocol):
    """A connection whose request heads must arrive in time, wrapped around uvicorn's protocol."""

    def __init__(self, table: _ConnectionTable, http: H11Protocol) -> None:
        self.address = ""
        self.client = ""
        self.since = 0.0
        """When data last arrived, or the connection was made."""
        self.has_sent_request = False
        self._table = table
        self._http = http
        self._transport: asyncio.Transport | None = None
        self._head_timer: asyncio.TimerHandle | None = None
        self._is_refused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Admit the connection, and wait for its first request head."""
        # asyncio declares the base class for all protocols, and gives a stream protocol a stream.
        stream = cast("asyncio.Transport", transport)
        self._transport = stream
        self.since = self._http.loop.time()

        peer = stream.get_extra_info("peername")
        if isinstance(peer, tuple):
            self.address = str(peer[0])
            self.client = client_network(self.address)

        # uvicorn's protocol does not learn of a refused connection.
        if not self._table.admit(self):
            self._is_refused = True
            stream.write(_REFUSAL)
            stream.close()
            return

        self._http.connection_made(stream)
        self._start_head_timer()

    def data_received(self, data: bytes) -> None:
        """Pass data on. A head that begins with it must be complete in time."""
        if self._is_refused:
            return

        self.since = self._http.loop.time()
        # Not restarted by every byte: a client that sends them slowly is the attack.
        if self._head_timer is None and self.is_awaiting_head():
            self._start_head_timer()

        self._http.data_received(data)

        if not self.is_awaiting_head():
            self.has_sent_request = True
            self._stop_head_timer()

    def eof_received(self) -> None:
        """Pass on that the client sends no more."""
        if not self._is_refused:
            self._http.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._stop_head_timer()
        self._table.remove(self)
        if not self._is_refused:
            self._http.connection_lost(exc)

    def pause_writing(self) -> None:
        """Pass on that the client reads slower than the server writes."""
        self._http.pause_writing()

    def resume_writing(self) -> None:
        """Pass on that the client reads again."""
        self._http.resume_writing()

    def is_awaiting_head(self) -> bool:
        """Return whether the server waits for a request head, rather than for itself."""
        return bool(self._http.conn.their_state is h11.IDLE)

    def abort(self) -> None:
        """Close the connection at once."""
        self._stop_head_timer()
        if self._transport is not None:
            self._transport.abort()

    def _start_head_timer(self) -> None:
        seconds = self._table.limits.head_seconds
        self._head_timer = self._http.loop.call_later(seconds, self.abort)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
