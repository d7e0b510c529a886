"""A server with OpenAI's chat interface whose replies a test decides."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

__all__ = ["FakeLanguageModel", "fake_language_model"]


class FakeLanguageModel(ThreadingHTTPServer):
    """Labels a text "spam" if it says "win", else "ham". It counts what it charges for."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)

        self.statuses: list[int] = []
        """The status of each response, in order; 200 after the last."""
        self.headers: dict[str, str] = {}
        """Headers of responses with another status than 200."""
        self.body: bytes | None = None
        """The response, if it is not the right one."""
        self.reply: Callable[[str], str] = label_text
        """Returns the content of the reply to a text."""

        self.refused_fields: set[str] = set()
        """Fields of a request that it answers with status 400."""
        self.refused_texts: set[str] = set()
        """Texts that it answers with status 400."""

        self.hold: threading.Event | None = None
        """Responses wait for this event."""
        self.responses_before_hold = 0
        """The number of responses that do not wait."""

        self.requests: list[dict[str, Any]] = []
        self.arrivals = threading.Semaphore(0)
        """Released once for each request."""
        self.charged: Counter[str] = Counter()
        """How often each text was charged for. An idempotency key is charged for once."""

        self._keys: set[str] = set()
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    @property
    def texts(self) -> list[str]:
        """The texts that it was asked about."""
        return [request["text"] for request in self.requests]

    def charge(self, key: str, text: str) -> None:
        with self.lock:
            if key not in self._keys:
                self._keys.add(key)
                self.charged[text] += 1


def label_text(text: str) -> str:
    label = "spam" if "win" in text.lower() else "ham"
    return json.dumps({"label": label})


class _Handler(BaseHTTPRequestHandler):
    server: FakeLanguageModel

    def do_POST(self) -> None:
        size = int(self.headers["content-length"])
        body = json.loads(self.rfile.read(size))
        text = json.loads(body["messages"][-1]["content"])["text"]
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = {"path": self.path, "headers": headers, "text": text, "body": body}
        with self.server.lock:
            self.server.requests.append(request)
            number = len(self.server.requests)
        self.server.arrivals.release()

        if self.server.hold is not None and number > self.server.responses_before_hold:
            self.server.hold.wait()
        status = self.server.statuses.pop(0) if self.server.statuses else 200
        if self.server.refused_fields & set(body) or text in self.server.refused_texts:
            status = 400
        self.send_response(status)
        if status != 200:
            for name, value in self.server.headers.items():
                self.send_header(name, value)
        self.end_headers()
        if status != 200:
            return

        self.server.charge(headers["idempotency-key"], text)
        self.wfile.write(self.server.body or self._complete(text))

    def _complete(self, text: str) -> bytes:
        message = {"role": "assistant", "content": self.server.reply(text)}
        usage = {"prompt_tokens": 100, "completion_tokens": 10}
        return json.dumps({"choices": [{"message": message}], "usage": usage}).encode()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def fake_language_model() -> Iterator[FakeLanguageModel]:
    with FakeLanguageModel() as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()
