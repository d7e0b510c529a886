"""Requests to addresses of users: never into the server's own network, whatever a name says."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from teeter.campaigns import outbound_http
from teeter.campaigns.outbound_http import PrivateAddressError, send_request
from teeter.errors import InputError, ServerError, TeeterError


@contextmanager
def running_server(body: bytes = b"hello", location: str | None = None) -> Iterator[int]:
    """Yield the port of a server on loopback that answers everything alike."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if location is None else 302)
            if location is not None:
                self.send_header("location", location)
            self.send_header("x-host", self.headers["host"])
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
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
    *("localhost", "2130706433", "0x7f.1", "127.1"),
]


@pytest.mark.parametrize("host", PRIVATE)
def test_a_private_address_is_refused_however_it_is_written(host: str) -> None:
    with pytest.raises(PrivateAddressError, match="is not public"):
        send_request("GET", f"http://{host}:9/")


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
    with running_server() as port:
        pass
    with pytest.raises(TeeterError, match="does not answer"):
        send_request("GET", f"http://127.0.0.1:{port}/", allow_private=True)
