"""The documentation as a site: it builds without a warning, asks nothing of other hosts, and is for
all eyes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from server.browsers import MARKS, PHONE, open_window, wait_until_drawn

ROOT = Path(__file__).parents[2]

pytestmark = [
    *MARKS,
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("material") is None, reason="needs mkdocs-material: make docs"),
]

THEME_VIOLATIONS = {"landmark-unique"}
"""Violations in the buttons of the theme, which are not ours to fix."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    build = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert build.returncode == 0, build.stderr
    assert "WARNING" not in build.stderr
    return out


def test_every_page_fits_a_phone_and_asks_nothing_of_others(site: Path, browser: Any) -> None:
    problems: list[str] = []
    page = open_window(browser, problems, viewport=PHONE)
    page.on(
        "request",
        lambda request: None if request.url.startswith("file://") else problems.append(request.url),
    )

    paths = sorted(path for path in site.rglob("*.html") if path.name != "404.html")
    assert len(paths) == len(list((ROOT / "docs").rglob("*.md")))

    for path in paths:
        page.goto(path.as_uri())
        broken = page.evaluate(
            "() => [...document.images].filter((i) => !i.naturalWidth).map((i) => i.src)"
        )
        wide = page.evaluate("() => document.documentElement.scrollWidth > innerWidth")
        assert (broken, wide, problems) == ([], False, []), path.name

    page.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_who_sees_little_can_read_it(site: Path, browser: Any, scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page = open_window(browser, [], viewport={"width": 1280, "height": 900}, color_scheme=scheme)

    for name in (
        "index",
        "gallery",
        "tutorial/label",
        "tutorial/terminal",
        "explanation/other_libraries",
        "reference/python",
    ):
        page.goto((site / f"{name}.html").as_uri())
        wait_until_drawn(page)

        violations = [
            (violation["id"], [node["html"][:120] for node in violation["nodes"]][:5])
            for violation in axe.Axe().run(page).response["violations"]
            if violation["id"] not in THEME_VIOLATIONS
        ]
        assert violations == [], name

    page.context.close()


def test_the_search_works_without_a_server(site: Path, browser: Any) -> None:
    problems: list[str] = []
    page = open_window(browser, problems, viewport={"width": 1280, "height": 900})
    page.on(
        "request",
        lambda request: None if request.url.startswith("file://") else problems.append(request.url),
    )

    page.goto((site / "index.html").as_uri())
    page.locator(".md-search__input").fill("least disagree metric")
    first_result = page.locator(".md-search-result__link").first
    first_result.wait_for()

    assert "explanation/" in first_result.get_attribute("href")
    assert problems == []

    page.context.close()
