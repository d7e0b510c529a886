"""Texts and keys go to the server that the user names, and nowhere else."""

from __future__ import annotations

import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from teeter.base.outbound_http import make_opener, read_key
from teeter.errors import InputError

VARIABLE = "TEETER_TEST_KEY"


class RedirectingServer(ThreadingHTTPServer):
    """Redirects every request to itself, and notes the paths."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _RedirectHandler)
        self.paths: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _RedirectHandler(BaseHTTPRequestHandler):
    server: RedirectingServer

    def do_GET(self) -> None:
        self.server.paths.append(self.path)
        self.send_response(302)
        self.send_header("location", f"{self.server.url}/elsewhere")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[RedirectingServer]:
    with RedirectingServer() as running:
        threading.Thread(target=running.serve_forever, args=(0.01,), daemon=True).start()
        yield running
        running.shutdown()


def test_no_redirect_is_followed_and_no_proxy_reads_what_is_not_encrypted(
    server: RedirectingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A request that went to this proxy would never reach the server.
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    opener = make_opener(server.url, "secret", VARIABLE)

    with pytest.raises(urllib.error.HTTPError) as refused:
        opener.open(urllib.request.Request(f"{server.url}/first"), timeout=60)
    refused.value.close()

    assert refused.value.code == 302
    assert server.paths == ["/first"]


def test_a_key_is_sent_to_another_machine_only_encrypted() -> None:
    with pytest.raises(InputError, match="unencrypted"):
        make_opener("http://example.org/v1", "secret", VARIABLE)

    make_opener("http://example.org/v1", "", VARIABLE)
    make_opener("https://example.org/v1", "secret", VARIABLE)


def test_a_key_that_cannot_be_sent_is_refused_without_repeating_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(VARIABLE, " sk-1\n")
    assert read_key(VARIABLE) == "sk-1"

    monkeypatch.setenv(VARIABLE, "sk-\u201csecret\u201d")
    with pytest.raises(InputError, match=VARIABLE) as refused:
        read_key(VARIABLE)
    assert "secret" not in str(refused.value)
