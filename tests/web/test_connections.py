"""Connections whose heads do not come in time are closed; answers may take as long as they like."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from teeter.cli.serve import _options
from teeter.web.connections import Punctual
from web.servers import PATIENCE

uvicorn = pytest.importorskip("uvicorn")


class Timer:
    """A timer that runs out when a test says so."""

    def __init__(self, seconds: float, callback: Callable[[], object]) -> None:
        self.seconds, self.callback = seconds, callback
        self.is_pending = True

    def cancel(self) -> None:
        self.is_pending = False


class LoopWithoutClock:
    """A running event loop whose timers are kept, and never run out by themselves."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.timers: list[Timer] = []

    def call_later(self, seconds: float, callback: Callable[[], object], *_: object) -> Timer:
        self.timers.append(Timer(seconds, callback))
        return self.timers[-1]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loop, name)


class Connection(asyncio.Transport):
    """A connection that keeps what is written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.is_aborted = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def write(self, data: Any) -> None:
        self.written += data

    def abort(self) -> None:
        self.is_aborted = True

    def is_closing(self) -> bool:
        return self.is_aborted

    def close(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def pause_reading(self) -> None:
        pass


async def answer_ok(scope: Any, receive: Any, send: Any) -> None:
    await send(
        {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]}
    )
    await send({"type": "http.response.body", "body": b"ok"})


class Conversation:
    """What a client sends over one connection, and the timers that wait for its heads."""

    def __init__(self) -> None:
        self.loop = LoopWithoutClock(asyncio.get_running_loop())
        self.may_answer = asyncio.Event()

        async def answer(scope: Any, receive: Any, send: Any) -> None:
            await self.may_answer.wait()
            await answer_ok(scope, receive, send)

        config = uvicorn.Config(answer, lifespan="off", **_options(None))
        config.load()
        self.protocol = Punctual(config, uvicorn.server.ServerState(), {}, _loop=self.loop)
        self.connection = Connection()
        self.protocol.connection_made(self.connection)

    def send(self, part: bytes) -> None:
        self.protocol.data_received(part)

    def head_timers(self) -> list[Timer]:
        return [timer for timer in self.loop.timers if timer.callback == self.connection.abort]

    def is_waiting_for_a_head(self) -> bool:
        return any(timer.is_pending for timer in self.head_timers())


def test_the_server_uses_it() -> None:
    assert _options(None)["http"] is Punctual


def test_each_byte_of_a_head_does_not_begin_the_time_anew() -> None:
    async def talk() -> None:
        client = Conversation()
        for part in (b"GET / HTTP/1.1\r\nX-Long: ", b"x", b"x"):
            client.send(part)
        (timer,) = client.head_timers()
        assert timer.is_pending
        assert timer.seconds == Punctual.seconds
        timer.callback()
        assert client.connection.is_aborted

    asyncio.run(talk())


def test_nothing_at_all_is_not_waited_for() -> None:
    async def talk() -> None:
        assert Conversation().is_waiting_for_a_head()

    asyncio.run(talk())


def test_an_answer_may_take_longer_than_a_head() -> None:
    async def talk() -> None:
        client = Conversation()
        for number in (1, 2):  # the second over the same connection
            client.send(b"GET / HTTP/1.1\r\nHost: a\r\n")
            assert client.is_waiting_for_a_head()
            client.send(b"\r\n")
            assert not client.is_waiting_for_a_head()
            client.may_answer.set()
            async with asyncio.timeout(PATIENCE):
                while client.connection.written.count(b"ok") < number:
                    await asyncio.sleep(0)
            client.may_answer.clear()
        client.send(b"GET / HTTP/1.1\r\nX: ")
        assert client.is_waiting_for_a_head(), "nor is a third head that never ends"
        client.protocol.connection_lost(None)
        assert not client.is_waiting_for_a_head()

    asyncio.run(talk())


def test_heads_that_drip_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over a real socket, against a real server."""
    monkeypatch.setattr(Punctual, "seconds", 0.2)

    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    server = uvicorn.Server(uvicorn.Config(answer_ok, lifespan="off", **_options(None)))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        port = listening.getsockname()[1]
        assert is_cut_off(port, b"GET / HTTP/1.1\r\nX-Long: "), "a head that never ends"
        assert is_cut_off(port, b""), "nothing at all"
        assert is_cut_off(port, b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nX: "), (
            "nor a second head"
        )
    finally:
        server.should_exit = True
        thread.join(PATIENCE)
        listening.close()


def is_cut_off(port: int, begin: bytes) -> bool:
    """Send a byte now and then, and return whether the server closes the connection in the end."""
    ends = time.monotonic() + PATIENCE
    with socket.create_connection(("127.0.0.1", port), timeout=0.1) as client:
        try:
            client.sendall(begin)
            while time.monotonic() < ends:
                try:
                    if client.recv(100) == b"":
                        return True
                except TimeoutError:
                    if begin:
                        client.sendall(b"x")
        except OSError:
            return True
    return False
