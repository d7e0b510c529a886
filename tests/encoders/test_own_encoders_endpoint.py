"""Embeddings from a server that is compatible with OpenAI's."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest

from campaigns.ports import ReservedPort
from teeter.encoders import own_encoders
from teeter.encoders.own_encoders import EndpointEncoder
from teeter.errors import ServerError, ServerUnavailableError


class EmbeddingsServer(ThreadingHTTPServer):
    """A server whose next responses a test decides."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.statuses: list[int] = []
        """The status of each response, in order; 200 after the last."""
        self.body: bytes | None = None
        """The response, if it is not the right one."""
        self.requests: list[dict[str, Any]] = []

    @property
    def encoder_name(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1#small"


class _Handler(BaseHTTPRequestHandler):
    server: EmbeddingsServer

    def do_POST(self) -> None:
        size = int(self.headers["content-length"])
        request = json.loads(self.rfile.read(size))
        request["path"] = self.path
        request["authorization"] = self.headers.get("authorization")
        self.server.requests.append(request)

        status = self.server.statuses.pop(0) if self.server.statuses else 200
        self.send_response(status)
        self.end_headers()
        if status == 200:
            self.wfile.write(self.server.body or self._embed(request["input"]))

    def _embed(self, texts: list[str]) -> bytes:
        entries = [
            {"index": index, "embedding": [len(text), 1.0]} for index, text in enumerate(texts)
        ]
        # Servers may answer in any order.
        return json.dumps({"data": entries[::-1]}).encode()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddingsServer]:
    monkeypatch.setattr(own_encoders, "_FIRST_PAUSE", 0.0)
    with EmbeddingsServer() as running:
        threading.Thread(target=running.serve_forever, args=(0.01,), daemon=True).start()
        yield running
        running.shutdown()


def test_texts_are_sent_in_batches_and_embeddings_have_length_1(
    server: EmbeddingsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEETER_EMBEDDINGS_KEY", "secret")
    texts = ["x" * (k % 7) for k in range(100)]

    vectors = EndpointEncoder(server.encoder_name).encode(texts).vectors

    assert [len(request["input"]) for request in server.requests] == [64, 36]
    first = server.requests[0]
    assert (first["path"], first["model"]) == ("/v1/embeddings", "small")
    assert first["authorization"] == "Bearer secret"
    assert first["input"][0] == " ", "an empty text"
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1)
    assert vectors[6, 0] == pytest.approx(6 / 37**0.5)


def test_a_busy_server_is_asked_again(server: EmbeddingsServer) -> None:
    server.statuses = [429, 503]

    assert len(EndpointEncoder(server.encoder_name).encode(["a"]).vectors) == 1
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    ("statuses", "body", "error", "message"),
    [
        ([401], None, ServerError, "rejected the key: set TEETER_EMBEDDINGS_KEY"),
        ([404], None, ServerError, "rejected the request with status 404"),
        ([500] * 9, None, ServerUnavailableError, "resume later with teeter campaign encode"),
        ([], b"{}", ServerError, "is not a list of 1 embeddings"),
        ([], b"<html>", ServerError, "is not a list of 1 embeddings"),
    ],
)
def test_refusals_say_what_to_do(
    statuses: list[int],
    body: bytes | None,
    error: type[Exception],
    message: str,
    server: EmbeddingsServer,
) -> None:
    server.statuses = statuses
    server.body = body

    with pytest.raises(error, match=message):
        EndpointEncoder(server.encoder_name).encode(["a"])


def test_a_server_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_encoders, "_FIRST_PAUSE", 0.0)
    unused = ReservedPort()

    with pytest.raises(ServerUnavailableError, match=r"127\.0\.0\.1.* is not available"):
        EndpointEncoder(f"http://127.0.0.1:{unused.number}/v1#small").encode(["a"])
