"""The documentation as a site: it builds without a warning, asks nothing of other hosts, and is for
all eyes.
"""

from __future__ import annotations

import re
import shutil
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
    pytest.mark.skipif(find_spec("zensical") is None, reason="needs zensical: make docs"),
]


THEME_VIOLATIONS = {"landmark-unique"}
"""Violations in the buttons of the theme, which are not ours to fix."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # A copy, because zensical writes beside its configuration.
    folder = tmp_path_factory.mktemp("documentation")
    shutil.copy(ROOT / "mkdocs.yml", folder)
    shutil.copytree(ROOT / "docs", folder / "docs")
    assert build(folder).returncode == 0
    return folder / "site"


def build(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "zensical", "build", "--strict"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def test_a_link_to_nothing_fails_the_build(tmp_path: Path) -> None:
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    (tmp_path / "docs").mkdir()
    for target in ("nothing.md", "index.md#nothing"):
        (tmp_path / "docs" / "index.md").write_text(f"# Page\n\n[link]({target})\n")
        failed = build(tmp_path)
        assert failed.returncode == 1
        assert "does not exist" in failed.stderr


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
    page.keyboard.press("Control+k")
    page.keyboard.type("least disagree metric")
    page.get_by_text(re.compile(r"^\d+ results")).wait_for(timeout=30_000)
    page.keyboard.press("Enter")

    page.wait_for_url("**/explanation/ldm.html*")
    assert problems == []

    page.context.close()
