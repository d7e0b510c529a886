"""Servers for tests: with a trainer that does its work at once in this process, or in a process of their own."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
from fastapi.testclient import TestClient

from campaigns.ports import ReservedPort
from teeter.campaigns.campaign import Campaign, Settings
from teeter.web.app import make_app
from teeter.web.auth import SecurityConfig
from teeter.web.background import BackgroundTaskError, BackgroundWorker, _Job
from teeter.web.background_requests import TaskRequest
from teeter.web.background_tasks import TaskHandlers

BASE = "http://127.0.0.1:8765"
HARMFUL = "<script>alert('x')</script><img src=x onerror=alert(1)> & <b>bold</b>"

PATIENCE = 600.0
"""Seconds that a test waits for a process. A trainer has low priority: all others of a busy machine go first."""

GOOD = (
    "The bread was warm",
    "A calm walk by the river",
    "She sang to the garden",
    "Apples ripened early",
)
POOR = ("Win cash now", "Claim your free prize", "Urgent offer, reply today", "Cheap pills online")


def text(number: int) -> str:
    """An item's text: even numbers are spam."""
    words = POOR if number % 2 == 0 else GOOD
    return f"{words[number // 2 % 4]} number {number} {'abcdefgh'[number % 8]}"


def begin(path: Path, items: int = 120, **settings: Any) -> Path:
    """Make a campaign of texts t0, t1, …; the last one holds HTML.

    A campaign of this name, size and settings is made once in a process, and copied.
    """
    path.write_bytes(_text_campaign(path.stem, items, tuple(sorted(settings.items()))))
    return path


@cache
def _text_campaign(name: str, items: int, settings: tuple[tuple[str, Any], ...]) -> bytes:
    """Return the file of a campaign of texts."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.teeter"
        campaign = Campaign.create(path, name, ("spam", "ham"), Settings(**dict(settings)))
        campaign.add(
            [
                *({"id": f"t{k}", "text": text(k)} for k in range(items)),
                {"id": "html", "text": HARMFUL},
            ]
        )
        campaign.database.close()
        assert list(Path(folder).iterdir()) == [path], "a campaign that is closed is one file"
        return path.read_bytes()


def begin_images(path: Path, folder: Path, count: int = 60) -> Path:
    """Make a campaign of handwritten digits, as images."""
    folder.mkdir()
    for number in range(count):
        (folder / f"{number:03}.png").write_bytes(_digit_image(number))
    classes = ("even", "odd")
    campaign = Campaign.create(
        path, path.stem, classes, Settings(kind="image", folder=str(folder.resolve()))
    )
    campaign.add({"image": f"{k:03}.png"} for k in range(count))
    campaign.database.close()
    return path


@cache
def _digit_image(number: int) -> bytes:
    """Return one handwritten digit of scikit-learn's as a PNG file."""
    from PIL import Image
    from sklearn.datasets import load_digits

    written = io.BytesIO()
    pixels = load_digits().images[number] * 15.9
    Image.fromarray(pixels.astype("uint8")).resize((64, 64)).save(written, "PNG")
    return written.getvalue()


class InlineProcess:
    """Stands for a worker process: handles requests in this process."""

    process_id = None

    def __init__(self) -> None:
        self.handlers = TaskHandlers()

    def run(self, request: TaskRequest[Any], on_report: Any) -> Any:
        return self.handlers.run(request, on_report)

    def close(self) -> None:
        """Close the campaigns, so that each is one file again."""
        self.handlers.close()


class InlineWorker(BackgroundWorker):
    """A background worker that does everything in this process, before it returns."""

    def __init__(self, batch: int = 20) -> None:
        super().__init__(batch)
        self.process = InlineProcess()
        self._process = self.process  # type: ignore[assignment]

    def submit(self, request: TaskRequest[Any]) -> Future[Any]:
        job = _Job(request, Future())
        job.future.set_running_or_notify_cancel()
        self._handle(job)

        error = job.future.exception()
        if isinstance(error, BackgroundTaskError):  # a fault of ours: fail the test
            raise error
        return job.future


@contextmanager
def served(
    *files: Path, folder: Path | None = None, security: SecurityConfig | None = None
) -> Iterator[TestClient]:
    """A client that has its session, and sends what goes with changes."""
    security = security or SecurityConfig(b"secret")
    app = make_app(files, security=security, folder=folder, warm=False)
    app.state.workspace.trainer, app.state.workspace.slow_worker = InlineWorker(), InlineWorker()
    with TestClient(app, base_url=BASE, raise_server_exceptions=True) as client:
        if not app.state.workspace.auth.requires_token():
            client.headers["x-csrf-token"] = client.get("/api/v1/session").json()["csrf"]
        yield client


def csrf_of(page: str) -> str:
    """Return the CSRF token in the forms of a page."""
    return page.split('name="csrf" value="')[1].split('"')[0]


class Server:
    """``teeter serve`` in a process of its own, which can be killed and started again.

    Its port stays reserved, so no other server takes it while this one is down.
    """

    def __init__(self, home: Path, *arguments: object) -> None:
        self.home = home
        self.arguments = [str(argument) for argument in arguments]
        self.process: subprocess.Popen[str] | None = None
        self.address = ""
        self._reserved_port = ReservedPort()
        self.port = self._reserved_port.number

    def start(self) -> Server:
        environment = {
            **os.environ,
            "TEETER_HOME": str(self.home),
            "OMP_NUM_THREADS": "1",
            "PYTHONUNBUFFERED": "1",
        }
        command = [
            sys.executable,
            "-c",
            "from teeter.cli import main; main()",
            "serve",
            *self.arguments,
            "--no-open",
        ]
        command += ["--port", str(self.port)]
        self.address = ""
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if found := re.search(r"http://[^/]+:\d+/", line):
                self.address = found[0].rstrip("/")
                break
        assert self.address, "the server did not start"
        ends = time.monotonic() + PATIENCE
        while time.monotonic() < ends:
            try:
                httpx.get(f"{self.address}/api/v1/session", timeout=PATIENCE)
                return self
            except httpx.TransportError:
                time.sleep(0.05)
        raise AssertionError("the server does not answer")

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self._gone()

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.process.kill()
        if self.process is not None:
            self._gone()

    def _gone(self) -> None:
        assert self.process is not None
        self.process.wait(PATIENCE)
        if self.process.stdout is not None:
            self.process.stdout.close()


def client_of(address: str) -> httpx.Client:
    """A program's session with a running server."""
    client = httpx.Client(base_url=address, timeout=PATIENCE)
    client.headers["x-csrf-token"] = client.get("/api/v1/session").json()["csrf"]
    return client
