"""A real browser for tests: where Chromium is, how long we wait for it, and what is wrong with a page it shows."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright")

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

MARKS = [
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium"),
    pytest.mark.xdist_group("servers"),
]

PATIENCE = 90_000
"""Milliseconds; the machine may be busy."""

PHONE = {"width": 390, "height": 800}


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser, closed in the end."""
    with sync_api.sync_playwright() as player:
        launched = player.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield launched
        launched.close()


def window(browser: Any, problems: list[str], **options: Any) -> Any:
    """A new window; whatever goes wrong in it is noted."""
    page = browser.new_context(**options).new_page()
    page.set_default_timeout(PATIENCE)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda said: problems.append(said.text) if said.type == "error" else None)
    return page


def for_all_eyes(page: Any, path: str) -> None:
    """Nothing is cut off at the side; labels, contrast, roles and the like are right, as axe sees them."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth"), f"{path} is too wide"
    found = axe.Axe().run(page).response["violations"]
    told = [f"{one['id']}: {[node['html'][:120] for node in one['nodes']]}" for one in found]
    assert told == [], f"{path}: {told}"
