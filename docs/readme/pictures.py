"""Make the animation of the README and the pictures of the gallery from ``teeter try``.

    python docs/readme/pictures.py [FOLDER]

Needs playwright, Chromium and openTSNE. A person who knows the answers labels the sample projects
on the real page. What is seen is what a user sees, except for the key that is shown in the corner.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from teeter.samples import Sample, find_sample, read_items

HERE = Path(__file__).parent
GALLERY = HERE.parent / "gallery"
ANIMATION = "labelling.gif"
PICTURES = (
    "label_texts.png",
    "label_images.png",
    "progress.png",
    "map.png",
    "review.png",
    "find.png",
    "classes.png",
    "model.png",
    "export.png",
)

VIEW = {"width": 960, "height": 600}
GALLERY_VIEW = {"width": 1180, "height": 760}
COLOURS = 255
ANSWERS = 24
"""Enough for a batch of 20 and the model after it."""

SLOW_ANSWERS = 4
"""The first answers, which are shown long enough to be read."""

PATIENCE = 120_000
"""Milliseconds; the machine may be busy."""


class Film:
    """Frames and how long each is shown."""

    def __init__(self) -> None:
        self.frames: list[Image.Image] = []
        self.durations: list[int] = []

    def take(self, page: Page, milliseconds: int) -> None:
        """Add what the page shows now."""
        picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
        self.frames.append(picture)
        self.durations.append(milliseconds)

    def save(self, path: Path) -> None:
        """Write a GIF with one palette for all frames, so that their colours do not flicker."""
        width, height = self.frames[0].size
        # The palette must suit the first, a middle and the last page.
        strip = Image.new("RGB", (width, height * 3))
        for number, frame in enumerate((self.frames[0], self.frames[-2], self.frames[-1])):
            strip.paste(frame, (0, height * number))
        palette = strip.quantize(COLOURS, dither=Image.Dither.NONE)

        frames = [
            frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in self.frames
        ]
        frames[0].save(
            path,
            save_all=True,
            append_images=frames[1:],
            duration=self.durations,
            loop=0,
            optimize=True,
        )


def true_labels(sample: Sample, folder: Path) -> dict[str, str]:
    """Return the published class of each item."""
    return {" ".join(content.split()): label for content, label in read_items(sample, folder)}


@contextmanager
def serve_sample(name: str, folder: Path) -> Iterator[str]:
    """Run ``teeter try`` and yield the address of its page."""
    command = [sys.executable, "-c", "from teeter.cli import main; main()", "try", name]
    command += ["--no-open", "--folder", str(folder / "try")]

    environment = {
        **os.environ,
        "TEETER_HOME": str(folder / "home"),
        "PYTHONUNBUFFERED": "1",
    }

    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert server.stdout is not None

    try:
        addresses = (re.search(r"http://\S+", line) for line in server.stdout)
        yield next(match[0] for match in addresses if match)
    finally:
        server.terminate()
        server.wait(60)
        server.stdout.close()


def shown_item(page: Page) -> str:
    """Return the text in the middle, or the file name of the image."""
    stage = page.locator("#stage img, #stage .words").first
    stage.wait_for()
    source = stage.get_attribute("src")
    if source is None:
        return " ".join(stage.inner_text().split())
    return re.findall(r"(\d+\.png)", source)[-1]


def show_key(page: Page, key: str) -> None:
    """Show a key in the corner, as screen recorders do; nothing for no key."""
    page.evaluate(
        """(key) => {
          let cap = document.getElementById("shown-key");
          if (!cap) {
            cap = document.createElement("div");
            cap.id = "shown-key";
            document.body.append(cap);
          }
          cap.textContent = key;
          const stage = document.getElementById("stage").getBoundingClientRect();
          Object.assign(cap.style, {
            display: key ? "grid" : "none", position: "fixed",
            left: `${stage.right - 80}px`, top: `${stage.bottom - 80}px`,
            width: "64px", height: "64px", placeItems: "center", borderRadius: "12px",
            background: "#1c2430", color: "#fff", font: "600 32px system-ui", zIndex: 99,
          });
        }""",
        key,
    )


def answer(page: Page, labels: dict[str, str], film: Film | None, slow: bool) -> None:
    """Press the key of the right class."""
    before = shown_item(page)
    label = labels[before]
    button = page.locator("#choices button").filter(has_text=label).first
    key = button.locator("kbd").inner_text()

    if film is not None:
        show_key(page, key)
        film.take(page, 700 if slow else 130)
    page.keyboard.press(key)
    page.wait_for_function(
        """(before) => {
          const item = document.querySelector("#stage img, #stage .words");
          const shown = item && (item.getAttribute("src") || item.innerText);
          return item && !(shown.split(/\\s+/).join(" ").trim().endsWith(before));
        }""",
        arg=before,
    )
    if film is not None:
        show_key(page, "")
        film.take(page, 900 if slow else 170)


def open_page(browser: Any, view: dict[str, int], scale: float = 1) -> Page:
    page: Page = browser.new_context(viewport=view, device_scale_factor=scale).new_page()
    page.set_default_timeout(PATIENCE)
    return page


def wait_for_model(page: Page) -> None:
    """Wait until the page says all about why it asks, which takes a model."""
    page.locator("#why .near").first.wait_for()


def film_labelling(page: Page, address: str, labels: dict[str, str], path: Path) -> None:
    """Label a batch, look at the map and the progress, and write the animation."""
    page.goto(address)
    shown_item(page)

    film = Film()
    film.take(page, 1500)
    for number in range(ANSWERS):
        answer(page, labels, film, slow=number < SLOW_ANSWERS)
    page.locator("#saved.all").wait_for()
    page.wait_for_timeout(2500)
    film.take(page, 1200)

    draw_map(page, address)
    film.take(page, 2200)

    page.goto(f"{address}/progress")
    page.locator("svg").first.wait_for()
    film.take(page, 2800)
    film.save(path)


def draw_map(page: Page, address: str) -> None:
    """Show the map when its t-SNE is computed."""
    page.goto(f"{address}/map")
    page.wait_for_function(
        "() => /model \\d+\\.$/.test(document.getElementById('status').textContent)"
    )
    page.wait_for_timeout(1500)


def photograph(page: Page, address: str, folder: Path) -> None:
    """Take the pictures of a text campaign."""
    page.goto(address)
    wait_for_model(page)
    page.screenshot(path=folder / "label_texts.png")

    page.goto(f"{address}/progress")
    page.locator("svg").first.wait_for()
    page.screenshot(path=folder / "progress.png")

    draw_map(page, address)
    page.screenshot(path=folder / "map.png")

    page.goto(f"{address}/review")
    shown_item(page)
    page.screenshot(path=folder / "review.png")

    page.goto(f"{address}/find?meaning=somebody+took+my+card")
    for row in range(4):
        page.locator(".tick").nth(row).check()
    page.screenshot(path=folder / "find.png")

    for name in ("classes", "model", "export"):
        page.goto(f"{address}/{name}")
        page.locator("h1").wait_for()
        page.screenshot(path=folder / f"{name}.png")


def main(animation_folder: Path = HERE, gallery: Path = GALLERY) -> None:
    """Make all pictures."""
    gallery.mkdir(parents=True, exist_ok=True)
    texts = find_sample("texts")

    with tempfile.TemporaryDirectory() as name, sync_playwright() as player:
        folder = Path(name)
        browser = player.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )

        with serve_sample("texts", folder) as address:
            labels = true_labels(texts, folder)
            # One page for both: a second browser would be warned of the first.
            page = open_page(browser, VIEW)
            film_labelling(page, address, labels, animation_folder / ANIMATION)
            page.set_viewport_size(GALLERY_VIEW)
            photograph(page, address, gallery)
            page.context.close()

        with serve_sample("images", folder) as address:
            page = open_page(browser, GALLERY_VIEW)
            page.goto(address)
            wait_for_model(page)
            page.screenshot(path=gallery / "label_images.png")

        browser.close()


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    if target is None:
        main()
    else:
        main(target, target)
