"""A real browser for tests: where Chromium is, how long we wait for it, and what is wrong with a
page it shows.
"""

from __future__ import annotations

import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from server.servers import use_inline_workers
from teeter.server.access import SecurityConfig
from teeter.server.app import make_app

sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright")

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)

MARKS = [
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium"),
    pytest.mark.xdist_group("servers"),
]

PATIENCE = 300_000
"""Milliseconds; the machine may be busy."""

sync_api.expect.set_options(timeout=PATIENCE)

PHONE = {"width": 390, "height": 800}


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser, closed in the end."""
    with sync_api.sync_playwright() as player:
        browser = player.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox"], timeout=PATIENCE
        )
        yield browser
        browser.close()


@contextmanager
def page_server(
    campaign: Path, make_security: Callable[[str], SecurityConfig] | None = None
) -> Iterator[str]:
    """Serve a campaign from a thread of this process, which trains by itself, and yield the
    address.

    Much cheaper than ``teeter serve``, which loads torch in two more processes.

    Args:
        campaign: the file.
        make_security: returns who may log in, and how, at a server of an address; None for all.
    """
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        security = SecurityConfig(b"secret") if make_security is None else make_security(address)

        app = make_app([campaign], security=security, warm=False)
        use_inline_workers(app.state.workspace)

        config = uvicorn.Config(app, log_level="warning", access_log=False, ws="none")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()

        deadline = time.monotonic() + PATIENCE / 1000
        while not server.started:
            assert thread.is_alive(), "the server ended"
            assert time.monotonic() < deadline, "the server did not start"
            time.sleep(0.01)

        try:
            yield address
        finally:
            server.should_exit = True
            thread.join(PATIENCE / 1000)


def open_window(browser: Any, problems: list[str], **options: Any) -> Any:
    """Open a new window, and note the errors of its pages in ``problems``."""
    context = browser.new_context(**options)
    context.set_default_timeout(PATIENCE)  # Also of pages that are opened in it later.
    page = context.new_page()
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on(
        "console",
        lambda message: problems.append(message.text) if message.type == "error" else None,
    )
    return page


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait until something is so, which the page does not show."""
    deadline = time.monotonic() + PATIENCE / 1000
    while not condition():
        assert time.monotonic() < deadline, "it did not become so"
        time.sleep(0.05)


def wait_until_drawn(page: Any) -> None:
    """Wait until a page and its fonts are loaded and drawn.

    Waiting for an idle network instead may never end: pages ask the server again and again.
    """
    page.wait_for_load_state("load")
    page.evaluate("() => document.fonts.ready.then(() => null)")
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")


def check_accessibility(page: Any, path: str) -> None:
    """Assert that nothing is cut off at the side, and that axe finds no violation: labels,
    contrast, roles and the like.
    """
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth"), (
        f"{path} is too wide"
    )

    violations = [
        f"{violation['id']}: {[node['html'][:120] for node in violation['nodes']]}"
        for violation in axe.Axe().run(page).response["violations"]
    ]
    assert violations == [], f"{path}: {violations}"
