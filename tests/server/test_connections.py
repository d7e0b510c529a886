"""Slow request heads, and clients that hold connections open to lock others out."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from server.servers import PATIENCE
from teeter.cli.serve import _uvicorn_options
from teeter.server.connections import ConnectionLimits, limit_connections

uvicorn = pytest.importorskip("uvicorn")

HALF_OPEN = b"GET / HTTP/1.1\r\nHost: a\r\n"
REQUEST = HALF_OPEN + b"\r\n"


class Timer:
    """A timer that runs out when a test says so."""

    def __init__(self, seconds: float, callback: Callable[[], object]) -> None:
        self.seconds = seconds
        self.callback = callback
        self.is_pending = True

    def cancel(self) -> None:
        self.is_pending = False


class LoopWithoutClock:
    """A running event loop whose timers are recorded, and never run out by themselves."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.timers: list[Timer] = []

    def call_later(self, seconds: float, callback: Callable[[], object], *_: object) -> Timer:
        self.timers.append(Timer(seconds, callback))
        return self.timers[-1]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loop, name)


class RecordingTransport(asyncio.Transport):
    """A connection that records what is written to it."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self.address = address
        self.written = b""
        self.is_aborted = False
        self.is_closed = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return (self.address, 50_000) if name == "peername" else default

    def write(self, data: Any) -> None:
        self.written += data

    def abort(self) -> None:
        self.is_aborted = True

    def is_closing(self) -> bool:
        return self.is_aborted or self.is_closed

    def close(self) -> None:
        self.is_closed = True

    def resume_reading(self) -> None:
        pass

    def pause_reading(self) -> None:
        pass


async def answer_ok(scope: Any, receive: Any, send: Any) -> None:
    headers = [(b"content-length", b"2")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"ok"})


class FakeServer:
    """Answers requests when a test says so, over connections without sockets."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.loop = LoopWithoutClock(asyncio.get_running_loop())
        self.may_answer = asyncio.Event()

        async def answer(scope: Any, receive: Any, send: Any) -> None:
            await self.may_answer.wait()
            await answer_ok(scope, receive, send)

        self.make_connection = limit_connections(limits)
        self.config = uvicorn.Config(answer, lifespan="off", http=self.make_connection)
        self.config.load()
        self.state = uvicorn.server.ServerState()

    def connect(self, address: str = "192.0.2.1") -> Conversation:
        return Conversation(self, address)


class Conversation:
    """What a client sends over one connection, and the timers that wait for its heads."""

    def __init__(self, server: FakeServer, address: str) -> None:
        self.server = server
        self.protocol: Any = server.make_connection(
            config=server.config, server_state=server.state, app_state={}, _loop=server.loop
        )
        self.transport = RecordingTransport(address)
        self.protocol.connection_made(self.transport)

    def send(self, data: bytes) -> None:
        self.protocol.data_received(data)

    def head_timers(self) -> list[Timer]:
        timers = self.server.loop.timers
        return [timer for timer in timers if timer.callback == self.protocol.abort]

    def is_waiting_for_a_head(self) -> bool:
        return any(timer.is_pending for timer in self.head_timers())

    async def receive_answer(self, number: int = 1) -> None:
        async with asyncio.timeout(PATIENCE):
            while self.transport.written.count(b"ok") < number:
                await asyncio.sleep(0)


def test_the_server_limits_its_connections() -> None:
    assert _uvicorn_options(None)["http"].__module__ == "teeter.server.connections"
    assert _uvicorn_options(None)["ws"] == "none", "a WebSocket would leave the limits"


def test_a_byte_of_a_head_does_not_restart_its_timer() -> None:
    async def talk() -> None:
        client = FakeServer(ConnectionLimits()).connect()
        for part in (b"GET / HTTP/1.1\r\nX-Long: ", b"x", b"x"):
            client.send(part)
        (timer,) = client.head_timers()
        assert timer.is_pending
        assert timer.seconds == ConnectionLimits().head_seconds
        timer.callback()
        assert client.transport.is_aborted

    asyncio.run(talk())


def test_a_connection_that_sends_nothing_is_not_waited_for() -> None:
    async def talk() -> None:
        assert FakeServer(ConnectionLimits()).connect().is_waiting_for_a_head()

    asyncio.run(talk())


def test_an_answer_may_take_longer_than_a_head() -> None:
    async def talk() -> None:
        server = FakeServer(ConnectionLimits())
        client = server.connect()
        for number in (1, 2):  # the second over the same connection
            client.send(HALF_OPEN)
            assert client.is_waiting_for_a_head()
            client.send(b"\r\n")
            assert not client.is_waiting_for_a_head()
            server.may_answer.set()
            await client.receive_answer(number)
            server.may_answer.clear()

        client.send(b"GET / HTTP/1.1\r\nX: ")
        assert client.is_waiting_for_a_head(), "a third head that never ends"
        client.protocol.connection_lost(None)
        assert not client.is_waiting_for_a_head()

    asyncio.run(talk())


def test_half_open_connections_of_one_client_lock_no_client_out() -> None:
    """700 connections without a request, from one address."""

    async def attack() -> None:
        server = FakeServer(ConnectionLimits())
        server.may_answer.set()
        attackers = [server.connect() for _ in range(700)]
        for attacker in attackers:
            if not attacker.transport.is_aborted:
                attacker.send(HALF_OPEN)

        still_open = [attacker for attacker in attackers if not attacker.transport.is_aborted]
        assert len(still_open) == ConnectionLimits().per_client
        assert still_open == attackers[-len(still_open) :], "the oldest are closed first"

        for address in ("192.0.2.2", "192.0.2.1"):
            client = server.connect(address)
            client.send(REQUEST)
            await client.receive_answer()

    asyncio.run(attack())


def test_half_open_connections_of_many_clients_lock_no_client_out() -> None:
    async def attack() -> None:
        server = FakeServer(ConnectionLimits(total=50))
        server.may_answer.set()
        attackers = [server.connect(f"198.51.100.{number}") for number in range(200)]
        assert sum(not attacker.transport.is_aborted for attacker in attackers) == 50

        client = server.connect()
        client.send(REQUEST)
        await client.receive_answer()

    asyncio.run(attack())


def test_an_ipv6_client_is_counted_by_its_network() -> None:
    async def attack() -> None:
        server = FakeServer(ConnectionLimits(per_client=3))
        attackers = [server.connect(f"2001:db8::{number:x}") for number in range(10)]
        assert sum(not attacker.transport.is_aborted for attacker in attackers) == 3

    asyncio.run(attack())


def test_connections_between_two_requests_are_closed_after_half_open_ones() -> None:
    async def talk() -> None:
        server = FakeServer(ConnectionLimits(per_client=2))
        server.may_answer.set()
        browser = server.connect()
        browser.send(REQUEST)
        await browser.receive_answer()

        half_open = server.connect()
        server.connect()
        assert half_open.transport.is_aborted
        assert not browser.transport.is_aborted

    asyncio.run(talk())


def test_a_connection_that_is_being_answered_is_never_closed() -> None:
    async def talk() -> None:
        server = FakeServer(ConnectionLimits(per_client=2))
        busy = [server.connect(), server.connect()]
        for client in busy:
            client.send(REQUEST)

        refused = server.connect()
        assert refused.transport.written.startswith(b"HTTP/1.1 503 ")
        assert refused.transport.is_closed
        refused.send(REQUEST)
        refused.protocol.connection_lost(None)

        server.may_answer.set()
        for client in busy:
            await client.receive_answer()
            client.protocol.connection_lost(None)

        client = server.connect()
        client.send(REQUEST)
        await client.receive_answer()

    asyncio.run(talk())


@pytest.mark.parametrize("proxy", ["192.0.2.1", "192.0.2.0/24"])
def test_a_proxy_may_have_the_connections_of_all_its_clients(proxy: str) -> None:
    async def talk() -> None:
        server = FakeServer(ConnectionLimits(per_client=2, total=5, proxy=proxy))
        connections = [server.connect("192.0.2.1") for _ in range(5)]
        assert not any(connection.transport.is_aborted for connection in connections)
        other_connections = [server.connect("198.51.100.1") for _ in range(3)]
        assert sum(not connection.transport.is_aborted for connection in other_connections) == 2

    asyncio.run(talk())


@contextmanager
def running_server(limits: ConnectionLimits) -> Iterator[int]:
    """Run a real server in a thread, and yield its port."""
    options = {**_uvicorn_options(None), "http": limit_connections(limits)}

    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(128)

        server = uvicorn.Server(uvicorn.Config(answer_ok, lifespan="off", **options))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()

        try:
            yield listening.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(PATIENCE)


def test_over_real_sockets_heads_that_drip_are_not_waited_for() -> None:
    with running_server(ConnectionLimits(head_seconds=0.2)) as port:
        assert is_cut_off(port, b"GET / HTTP/1.1\r\nX-Long: "), "a head that never ends"
        assert is_cut_off(port, b""), "nothing at all"
        assert is_cut_off(port, REQUEST + b"GET / HTTP/1.1\r\nX: "), "a second head"


def is_cut_off(port: int, start: bytes) -> bool:
    """Send a byte now and then, and return whether the server closes the connection in the end."""
    deadline = time.monotonic() + PATIENCE

    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as client:
        try:
            client.sendall(start)

            client.settimeout(0.1)
            while time.monotonic() < deadline:
                try:
                    if start:
                        client.sendall(b"x")
                    if client.recv(100) == b"":
                        return True
                except TimeoutError:
                    continue  # The server holds the connection open.
        except ConnectionError:
            return True
    return False


def test_over_real_sockets_half_open_connections_lock_no_client_out() -> None:
    limits = ConnectionLimits(total=40, per_client=20, head_seconds=3600)
    with running_server(limits) as port, ExitStack() as stack:
        for number in range(100):
            # Two attackers: this machine has all addresses that begin with 127.
            source = (f"127.0.0.{2 + number % 2}", 0)
            attacker = socket.create_connection(("127.0.0.1", port), PATIENCE, source)
            stack.enter_context(attacker)
            attacker.sendall(HALF_OPEN)

        for source in ("127.0.0.1", "127.0.0.2"):
            client = socket.create_connection(("127.0.0.1", port), PATIENCE, (source, 0))
            stack.enter_context(client)
            client.sendall(REQUEST)
            assert client.recv(1000).startswith(b"HTTP/1.1 200 ")
