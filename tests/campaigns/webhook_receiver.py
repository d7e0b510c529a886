"""A receiver of webhooks on loopback, which may fail."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[[int], int]


class Receiver:
    """What was received, and the statuses to answer with."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        """Returns the status of the answer to the n-th request, from 0."""
        self.requests: list[tuple[dict[str, str], bytes]] = []
        self.confirmed: list[dict[str, Any]] = []
        """The payloads of the requests that were answered with 200."""
        self.lock = threading.Lock()
        self.url = ""


@contextmanager
def running_receiver(answer: Answer = lambda _: 200) -> Iterator[Receiver]:
    """Yield a receiver that answers each request with a status."""
    receiver = Receiver(answer)

    class WebhookHandler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            with receiver.lock:
                status = receiver.answer(len(receiver.requests))
                receiver.requests.append((dict(self.headers), body))
                if status == 200:
                    receiver.confirmed.append(json.loads(body))
            self.send_response(status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), WebhookHandler)
    receiver.url = f"http://127.0.0.1:{server.server_port}/hook?x=1"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
