"""The proxy of ``deploy/`` in front of a real server: slow clients lock nobody out."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx2
import pytest

from campaigns.ports import ReservedPort
from server.servers import PATIENCE, TeeterServeProcess, make_text_campaign

CADDYFILE = Path(__file__).parents[2] / "deploy" / "Caddyfile"

SLOW_CLIENTS = 300

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("caddy") is None, reason="needs Caddy"),
]


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """The address of Caddy, with the configuration of ``deploy/`` in front of a server."""
    file = make_text_campaign(tmp_path / "texts.teeter", 10)
    settings = tmp_path / "server.toml"
    settings.write_text('proxy = "127.0.0.1"')
    server = TeeterServeProcess(tmp_path / "home", file, "--settings", settings)
    server.start()

    port = ReservedPort()
    address = f"http://127.0.0.1:{port.number}"
    environment = {
        **os.environ,
        # A certificate needs a public name: the rest of the configuration is the same over HTTP.
        "TEETER_HOST": address,
        "TEETER_UPSTREAM": f"127.0.0.1:{server.port}",
        "CADDY_ADMIN": f"unix/{tmp_path}/admin.sock",
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path),
        "XDG_DATA_HOME": str(tmp_path),
    }
    # The port is given up only now: Caddy does not share one that is reserved.
    port.release()
    command = ["caddy", "run", "--config", str(CADDYFILE), "--adapter", "caddyfile"]
    with (tmp_path / "caddy.log").open("wb") as log:
        caddy = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        wait_for_response(address)
        yield address
    finally:
        caddy.terminate()
        caddy.wait(PATIENCE)
        server.stop()


def wait_for_response(address: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            if httpx2.get(f"{address}/healthz", timeout=PATIENCE).is_success:
                return
        except httpx2.TransportError:
            pass
        time.sleep(0.05)
    raise AssertionError("Caddy does not respond")


class SlowClients:
    """Connections that send a byte of a request head now and then, and never all of it."""

    def __init__(self, address: str, count: int) -> None:
        host, port = address.removeprefix("http://").split(":")
        self.open: list[socket.socket] = []
        self.count = count
        self._stop = threading.Event()
        self._stack = ExitStack()
        for _ in range(count):
            client = self._stack.enter_context(socket.create_connection((host, int(port))))
            client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nX-Long: ")
            client.setblocking(False)
            self.open.append(client)
        self._thread = threading.Thread(target=self._dribble)

    def __enter__(self) -> SlowClients:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._stack.close()

    def _dribble(self) -> None:
        while not self._stop.wait(0.5):
            self.open = [client for client in self.open if is_kept_open(client)]


def is_kept_open(client: socket.socket) -> bool:
    """Send another byte, and return whether the connection is still open."""
    try:
        client.sendall(b"x")
        return client.recv(1000) != b"" and is_kept_open(client)
    except BlockingIOError:
        return True
    except OSError:
        return False


def test_slow_clients_are_closed_and_others_are_served(address: str) -> None:
    deadline = time.monotonic() + PATIENCE
    with SlowClients(address, SLOW_CLIENTS) as slow, httpx2.Client(timeout=PATIENCE) as client:
        assert len(slow.open) == SLOW_CLIENTS
        csrf = client.get(f"{address}/api/v1/session").json()["csrf"]
        answers = 0

        while slow.open:
            assert time.monotonic() < deadline, f"{len(slow.open)} slow clients are still served"
            # A new connection each time, as annotators have who just arrive.
            assert httpx2.get(f"{address}/c/texts", timeout=PATIENCE).status_code == 200
            body = {"item": f"t{answers % 10}", "label": ("spam", "ham")[answers // 10 % 2]}
            headers = {"x-csrf-token": csrf}
            sent = client.post(
                f"{address}/api/v1/campaigns/texts/answers", json=body, headers=headers
            )
            assert sent.status_code == 200, sent.text
            answers += 1
            time.sleep(0.1)

        assert answers, "others were served while the slow clients waited"


def test_slow_bodies_keep_no_one_from_being_served(address: str) -> None:
    host, port = address.removeprefix("http://").split(":")
    head = b"POST /api/v1/session HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n{"
    with ExitStack() as stack:
        for _ in range(SLOW_CLIENTS):
            client = stack.enter_context(socket.create_connection((host, int(port))))
            client.sendall(head)

        for _ in range(5):
            assert httpx2.get(f"{address}/c/texts", timeout=PATIENCE).status_code == 200


def test_caddy_reads_the_time_limits() -> None:
    """Without them, a slow head would be waited for a minute, and a slow body for ever."""
    command = ["caddy", "adapt", "--config", str(CADDYFILE), "--adapter", "caddyfile"]
    environment = {**os.environ, "TEETER_HOST": "http://127.0.0.1:9"}
    adapted = subprocess.run(command, env=environment, capture_output=True, check=True)

    (server,) = json.loads(adapted.stdout)["apps"]["http"]["servers"].values()
    second = 1_000_000_000
    assert server["read_header_timeout"] == 10 * second
    assert server["read_timeout"] == 6 * 60 * second
