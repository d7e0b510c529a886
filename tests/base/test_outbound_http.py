"""Requests to addresses of users: never into the server's own network, whatever a name says."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from campaigns.ports import ReservedPort
from teeter.base import outbound_http
from teeter.base.outbound_http import PrivateAddressError, send_request
from teeter.errors import InputError, ServerError, TeeterError


@contextmanager
def running_server(
    body: bytes = b"hello",
    location: str | None = None,
    *,
    from_path: str | None = None,
    length: int | None = None,
) -> Iterator[int]:
    """Yield the port of a server on loopback that answers everything alike.

    Args:
        body: What it answers with.
        location: Where it redirects to, if it does.
        from_path: The only path that is redirected; None for all of them.
        length: What it says that the length of the body is.
    """

    class RedirectHandler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_moved = location is not None and from_path in (None, self.path)
            self.send_response(302 if is_moved else 200)
            if is_moved:
                # As servers do that do not quote: in UTF-8.
                self.send_header("location", str(location).encode().decode("latin-1"))
            if length is not None:
                self.send_header("content-length", str(length))
            self.send_header("x-host", self.headers["host"])
            self.send_header("x-path", self.path)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), RedirectHandler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


PRIVATE = [
    *("127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1"),
    *("0.0.0.0", "224.0.0.1", "255.255.255.255", "[::1]", "[fe80::1]", "[fd00::1]", "[::]"),
    *("[::ffff:127.0.0.1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[2001:0:7f00:1::]"),
    *("localhost", "2130706433", "0x7f.1", "127.1", "①②⑦.0.0.1"),
    *("[::127.0.0.1]", "[::ffff:0:127.0.0.1]", "[fec0::1]", "[64:ff9b:1::7f00:1]", "[5f00::1]"),
    *("192.0.0.8", "192.0.0.171"),
]


@pytest.mark.parametrize("host", PRIVATE)
def test_a_private_address_is_refused_however_it_is_written(host: str) -> None:
    with pytest.raises(PrivateAddressError, match="is not public"):
        send_request("GET", f"http://{host}:9/")


@pytest.mark.parametrize(
    "address", ["93.184.215.14", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]
)
def test_a_public_address_is_used(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(outbound_http.socket, "create_connection", refuse)
    with pytest.raises(ServerError, match=r"x\.test does not answer"):
        send_request("GET", "http://x.test/", resolve=lambda *_: [address])


def test_a_name_with_one_private_address_is_refused() -> None:
    with pytest.raises(PrivateAddressError, match=r"10\.0\.0\.1, which is not public"):
        send_request("GET", "http://x.test/", resolve=lambda *_: ["93.184.215.14", "10.0.0.1"])


def test_a_redirect_to_a_private_address_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    # The first server has to be taken for a public one, to see that its redirect is checked.
    with running_server(location="http://10.0.0.1/secret") as port:
        monkeypatch.setattr(
            outbound_http, "_is_public", lambda address: str(address) == "127.0.0.1"
        )
        with pytest.raises(PrivateAddressError, match=r"10\.0\.0\.1"):
            send_request("GET", f"http://127.0.0.1:{port}/", max_redirects=3)


def test_a_name_that_changes_its_address_is_resolved_once(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([["127.0.0.2"], ["127.0.0.1"]])
    asked = []

    def resolve(host: str, _: int) -> Sequence[str]:
        asked.append(host)
        return next(answers)

    connected = []

    def refuse(address: tuple[str, int], timeout: float) -> None:
        connected.append(address)
        raise ConnectionRefusedError(111, "Connection refused")

    # 127.0.0.2 stands for a public address, and 127.0.0.1 for what a second question would give.
    monkeypatch.setattr(outbound_http, "_is_public", lambda address: str(address) == "127.0.0.2")
    monkeypatch.setattr(outbound_http.socket, "create_connection", refuse)

    with pytest.raises(ServerError, match=r"rebind\.test does not answer: Connection refused"):
        send_request("GET", "http://rebind.test:8080/", resolve=resolve)

    assert asked == ["rebind.test"]
    assert connected == [("127.0.0.2", 8080)], "the address that was checked, not the name"


def test_a_private_address_can_be_allowed() -> None:
    with running_server() as port:
        response = send_request("GET", f"http://127.0.0.1:{port}/a?b", allow_private=True)

    assert (response.status, response.body) == (200, b"hello")
    assert response.headers["x-host"] == f"127.0.0.1:{port}"


def test_an_answer_has_a_limit_and_redirects_end() -> None:
    with running_server(b"x" * 100_000) as port:
        address = f"http://127.0.0.1:{port}/"
        with pytest.raises(ServerError, match="answers with more than 5,000 bytes"):
            send_request("GET", address, max_bytes=5_000, allow_private=True)
    with running_server(location="/again") as port:
        address = f"http://127.0.0.1:{port}/"
        assert send_request("GET", address, allow_private=True).status == 302
        with pytest.raises(ServerError, match="redirects more than 2 times"):
            send_request("GET", address, max_redirects=2, allow_private=True)


@pytest.mark.parametrize(
    "url",
    [
        *("", "example.org", "ftp://example.org", "file:///etc/passwd", "http://", "https:///a"),
        *("http://a b/", "http://user:secret@example.org/", "http://example.org:99999/"),
        *("http://example.org/\r\nx: y", "http://[::1", "http://example.org:0/"),
    ],
)
def test_only_http_addresses_are_used(url: str) -> None:
    with pytest.raises(InputError, match="address"):
        send_request("GET", url)


def test_a_server_that_is_away_is_an_error_of_ours() -> None:
    unused = ReservedPort()
    with pytest.raises(TeeterError, match="does not answer"):
        send_request("GET", f"http://127.0.0.1:{unused.number}/", allow_private=True)


def test_other_characters_in_an_address_are_sent_in_ascii() -> None:
    with running_server() as port:
        hosts: list[str] = []

        def resolve(host: str, _: int) -> Sequence[str]:
            hosts.append(host)
            return ["127.0.0.1"]

        address = f"http://käse.test:{port}/käse"
        response = send_request("GET", address, allow_private=True, resolve=resolve)

    assert hosts == ["xn--kse-qla.test"]
    assert response.headers["x-host"] == f"xn--kse-qla.test:{port}"
    assert response.headers["x-path"] == "/k%C3%A4se"


def test_a_redirect_in_utf8_is_followed() -> None:
    with running_server(b"hello", location="/größe?q=ü", from_path="/") as port:
        response = send_request(
            "GET", f"http://127.0.0.1:{port}/", max_redirects=1, allow_private=True
        )

    assert response.status == 200
    assert response.headers["x-path"] == "/gr%C3%B6%C3%9Fe?q=%C3%BC"


@pytest.mark.parametrize("url", ["http://" + "ä" * 70 + ".test/", "http://ä..test/"])
def test_a_host_that_cannot_be_a_name_is_refused(url: str) -> None:
    with pytest.raises(InputError, match="is not the name of a host"):
        send_request("GET", url)


def test_a_header_that_cannot_be_sent_is_an_error_of_ours() -> None:
    with running_server() as port:
        address = f"http://127.0.0.1:{port}/"
        with pytest.raises(ServerError, match="UnicodeEncodeError"):
            send_request("GET", address, headers={"x-name": "Ł"}, allow_private=True)


@contextmanager
def dripping_server(start: bytes) -> Iterator[int]:
    """Yield the port of a server that sends a byte now and then for as long as it is read."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(60)  # the client may give up before it connects
    stopped = threading.Event()

    def drip() -> None:
        with contextlib.suppress(OSError):
            connection, _ = listener.accept()
            with connection:
                connection.recv(10_000)
                connection.sendall(start)
                while not stopped.wait(0.05):
                    connection.sendall(b"x")

    thread = threading.Thread(target=drip)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        stopped.set()
        thread.join()
        listener.close()


@pytest.mark.parametrize(
    "start", [b"HTTP/1.1 200 OK\r\nx-long: ", b"HTTP/1.1 200 OK\r\n\r\n", b"HT"]
)
def test_a_server_that_drips_bytes_is_left_at_the_deadline(start: bytes) -> None:
    with (
        dripping_server(start) as port,
        pytest.raises(ServerError, match="does not answer: it took too long"),
    ):
        send_request("GET", f"http://127.0.0.1:{port}/", timeout=0.4, allow_private=True)


def test_an_answer_that_ends_early_is_an_error() -> None:
    with running_server(b"hello", length=99) as port, pytest.raises(ServerError, match="94 bytes"):
        send_request("GET", f"http://127.0.0.1:{port}/", allow_private=True)
