"""Request smuggling: a request whose end a proxy and the server could see differently."""

from __future__ import annotations

import socket
import threading
from typing import Any

import pytest

from server.servers import PATIENCE
from teeter.server.access.middlewares import MessageFramingMiddleware

uvicorn = pytest.importorskip("uvicorn")

CHUNKED = b"Transfer-Encoding: chunked\r\n"
SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"


async def answer_ok(scope: Any, receive: Any, send: Any) -> None:
    headers = [(b"content-length", b"2")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"ok"})


def exchange(headers: bytes) -> bytes:
    """Send a request and a second one behind its body; return all that the server answers."""
    app = MessageFramingMiddleware(answer_ok)
    request = b"POST / HTTP/1.1\r\nHost: a\r\n" + headers + b"\r\n0\r\n\r\n" + SMUGGLED

    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        config = uvicorn.Config(app, lifespan="off", log_level="warning", timeout_keep_alive=1)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            address = ("127.0.0.1", listening.getsockname()[1])
            with socket.create_connection(address, timeout=PATIENCE) as client:
                client.sendall(request)
                answer = b""
                while part := client.recv(10_000):
                    answer += part
            return answer
        finally:
            server.should_exit = True
            thread.join(PATIENCE)


@pytest.mark.parametrize("length", [b"Content-Length: 5\r\n", b"content-length: 0\r\n"])
def test_content_length_with_transfer_encoding_closes_the_connection(length: bytes) -> None:
    answer = exchange(length + CHUNKED)

    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"must not have both Content-Length and Transfer-Encoding" in answer
    assert answer.count(b"HTTP/1.1") == 1, "the second request is not answered"


def test_one_of_them_alone_keeps_the_connection_open() -> None:
    assert exchange(CHUNKED).count(b"HTTP/1.1 200 ") == 2
