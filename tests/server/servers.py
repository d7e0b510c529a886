"""Servers for tests: in this process, with workers that work at once, or in a
process of their own.
"""

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

import httpx2
from fastapi.testclient import TestClient

from campaigns.ports import ReservedPort
from teeter.campaigns.campaign import Campaign
from teeter.campaigns.settings import Settings
from teeter.campaigns.suggestions.language_model import LanguageModel
from teeter.server.access import SecurityConfig
from teeter.server.app import make_app
from teeter.server.worker.background import (
    BackgroundTaskError,
    BackgroundWorker,
    Request,
    WorkerTask,
)
from teeter.server.worker.tasks import TaskHandlers
from teeter.server.workspace import Workspace

BASE = "http://127.0.0.1:8765"
HARMFUL = "<script>alert('x')</script><img src=x onerror=alert(1)> & <b>bold</b>"

PATIENCE = 600.0
"""Seconds that a test waits for a process. A trainer has a low priority on a busy machine."""

HAM = (
    "The bread was warm",
    "A calm walk by the river",
    "She sang to the garden",
    "Apples ripened early",
)
SPAM = ("Win cash now", "Claim your free prize", "Urgent offer, reply today", "Cheap pills online")


def text(number: int) -> str:
    """Return the text of an item. Even numbers are spam."""
    sentences = SPAM if number % 2 == 0 else HAM
    return f"{sentences[number // 2 % 4]} number {number} {'abcdefgh'[number % 8]}"


def make_text_campaign(path: Path, items: int = 120, **settings: Any) -> Path:
    """Make a campaign of texts with the ids t0, t1, …; one more holds HTML.

    A campaign of this name, size and settings is made once per process, and copied.
    """
    path.write_bytes(_text_campaign(path.stem, items, tuple(sorted(settings.items()))))
    return path


@cache
def _text_campaign(name: str, items: int, settings: tuple[tuple[str, Any], ...]) -> bytes:
    """Return the file of a campaign of texts."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.teeter"
        campaign = Campaign.make(
            [], ("spam", "ham"), at=path, name=name, settings=Settings(**dict(settings))
        )

        rows = [{"id": f"t{number}", "text": text(number)} for number in range(items)]
        rows.append({"id": "html", "text": HARMFUL})
        campaign.add(rows)
        campaign.database.close()

        assert list(Path(folder).iterdir()) == [path], "a closed campaign is one file"
        return path.read_bytes()


def make_image_campaign(path: Path, folder: Path, count: int = 60) -> Path:
    """Make a campaign of images of handwritten digits, in a new folder."""
    folder.mkdir()
    for number in range(count):
        (folder / f"{number:03}.png").write_bytes(_digit_image(number))

    settings = Settings(kind="image", folder=str(folder.resolve()))
    campaign = Campaign.make([], ("even", "odd"), at=path, settings=settings)
    campaign.add({"image": f"{number:03}.png"} for number in range(count))
    campaign.database.close()
    return path


@cache
def _digit_image(number: int) -> bytes:
    """Return a handwritten digit as a PNG file."""
    from PIL import Image
    from sklearn.datasets import load_digits

    png = io.BytesIO()
    pixels = load_digits().images[number] * 15.9  # values up to 16 become values up to 254
    Image.fromarray(pixels.astype("uint8")).resize((64, 64)).save(png, "PNG")
    return png.getvalue()


class InlineProcess:
    """Stands for a worker process: handles requests in this process."""

    process_id = None

    def __init__(self) -> None:
        self.handlers = TaskHandlers()

    def run(self, request: Request[Any], on_report: Any) -> Any:
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

    def submit(self, task: WorkerTask[Any], campaign: str, **arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        self._handle(Request(task, campaign, arguments), future)

        error = future.exception()
        if isinstance(error, BackgroundTaskError):  # a fault of ours: fail the test
            raise error
        return future


def use_inline_workers(workspace: Workspace) -> None:
    """Let a server do its background work at once, in this process."""
    workspace.trainer = InlineWorker()
    workspace.slow_worker = InlineWorker()
    workspace.searcher = InlineWorker()


@contextmanager
def serve_campaigns(
    *files: Path,
    folder: Path | None = None,
    security: SecurityConfig | None = None,
    language_model: LanguageModel | None = None,
) -> Iterator[TestClient]:
    """Serve campaigns in this process, and yield a client that sends the CSRF token."""
    security = security or SecurityConfig(b"secret")
    app = make_app(
        files, security=security, folder=folder, warm=False, language_model=language_model
    )
    use_inline_workers(app.state.workspace)

    with TestClient(app, base_url=BASE, raise_server_exceptions=True) as client:
        if not app.state.workspace.auth.requires_login():
            client.headers["x-csrf-token"] = client.get("/api/v1/session").json()["csrf"]
        yield client


def find_csrf_token(page: str) -> str:
    """Return the CSRF token in the forms of a page."""
    return page.split('name="csrf" value="')[1].split('"')[0]


class TeeterServeProcess:
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

    def start(self) -> TeeterServeProcess:
        """Start the server, and wait until it responds."""
        command = [sys.executable, "-c", "from teeter.cli import main; main()", "serve"]
        command += [*self.arguments, "--no-open", "--port", str(self.port)]
        environment = {
            **os.environ,
            "TEETER_HOME": str(self.home),
            "OMP_NUM_THREADS": "1",
            "PYTHONUNBUFFERED": "1",
        }
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)

        self.address = self._read_address()
        self._wait_for_response()
        return self

    def _read_address(self) -> str:
        """Return the address that the server prints."""
        assert self.process is not None
        assert self.process.stdout is not None
        for line in self.process.stdout:
            match = re.search(r"http://[^/]+:\d+/", line)
            if match is not None:
                return match[0].rstrip("/")
        raise AssertionError("the server did not start")

    def _wait_for_response(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            try:
                httpx2.get(f"{self.address}/api/v1/session", timeout=PATIENCE)
                return
            except httpx2.TransportError:
                time.sleep(0.05)
        raise AssertionError("the server does not respond")

    def kill(self) -> None:
        """Kill the server without warning, as a power failure does."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self._wait_for_end()

    def stop(self) -> None:
        """Stop the server, unless it is not running."""
        if self.process is None:
            return

        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self._wait_for_end()

    def _wait_for_end(self) -> None:
        assert self.process is not None
        self.process.wait(PATIENCE)
        if self.process.stdout is not None:
            self.process.stdout.close()


def connect_client(address: str) -> httpx2.Client:
    """Return a client of a running server that sends the CSRF token."""
    client = httpx2.Client(base_url=address, timeout=PATIENCE)
    client.headers["x-csrf-token"] = client.get("/api/v1/session").json()["csrf"]
    return client
