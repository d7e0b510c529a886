"""Make the pictures of the labelling page from real data: handwritten digits, and sentences of ours.

python docs/tutorial/screenshots.py [FOLDER]: needs playwright and Chromium.
"""

from __future__ import annotations

import csv
import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright
from sklearn.datasets import load_digits

TEETER = [sys.executable, "-c", "from teeter.cli import main; main()"]
DIGITS = load_digits()

WHO = ("The manager", "Our driver", "The night nurse", "My landlord", "The waiter", "Your plumber", "The clerk")
GLAD = (
    "thanked us warmly",
    "fixed it within the hour",
    "was kind and patient",
    "called back at once",
    "gave us a hand",
)
CROSS = (
    "never called back",
    "lost the papers twice",
    "was rude from the start",
    "sent the wrong bill",
    "left it broken",
)
WHEN = ("on Monday", "last week", "before lunch", "after the holidays", "this morning", "in the end", "again")


def sentences(path: Path) -> None:
    """Write complaints and praise, as people would."""
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["text"])
        rows.writerows([f"{who} {what} {when}."] for who, what, when in itertools.product(WHO, GLAD + CROSS, WHEN))


def digits(folder: Path) -> None:
    """Write the digits as images that say what they are by their number alone."""
    folder.mkdir()
    for number, pixels in enumerate(DIGITS.images):
        Image.fromarray((pixels * 15.9).astype("uint8")).resize((160, 160)).save(folder / f"{number:04}.png")


def label(page: Any, count: int, key: Any) -> None:
    """Answer by keyboard, as somebody would who knows."""
    for _ in range(count):
        shown = page.locator("#stage img, #stage .words")
        shown.wait_for()
        before = shown.first.get_attribute("src") or shown.first.inner_text()
        page.keyboard.press(key(before))
        while (now := page.locator("#stage img, #stage .words")).count() and before == (
            now.first.get_attribute("src") or now.first.inner_text()
        ):
            time.sleep(0.02)
    page.locator("#saved.all").wait_for()


def digit_of(source: str) -> str:
    truth = int(DIGITS.target[int(re.findall(r"(\d+)\.png", source)[0])])
    return str(truth) if truth else "z"


def main(out: Path) -> None:
    """Serve, label, and take the pictures."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sentences(folder / "letters.csv")
        digits(folder / "digits")
        new = [*TEETER, "campaign", "new"]
        asked = "Which digit is it? Flag what is no digit at all."
        names = "one,two,three,four,five,six,seven,eight,nine,zero"
        keys = "1,2,3,4,5,6,7,8,9,z"
        told = ["--instructions", asked, "--keys", keys, "--cost", "0.04", "--control", "0.2"]
        subprocess.run([*new, str(folder / "digits"), "--classes", names, *told], check=True)
        asked = "Is the writer content with how they were treated?"
        told = ["--instructions", asked, "--keys", "c,n"]
        subprocess.run([*new, str(folder / "letters.csv"), "--classes", "content,not content", *told], check=True)
        environment = {**os.environ, "TEETER_HOME": str(folder / "home")}
        command = [*TEETER, "serve", "--folder", str(folder), "--no-open"]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        try:
            lines = (re.search(r"http://[^/]+/", line) for line in server.stdout or [])
            take(next(filter(None, lines))[0].rstrip("/"), out)
        finally:
            server.terminate()
            server.wait(20)


def take(address: str, out: Path) -> None:
    """Label both campaigns and take three pictures."""
    out.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as player:
        browser = player.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1180, "height": 760})
        page.set_default_timeout(120_000)
        page.goto(f"{address}/c/letters")
        label(page, 45, lambda text: "c" if any(what in text for what in GLAD) else "n")
        page.goto(f"{address}/c/digits")
        label(page, 160, digit_of)
        page.goto(f"{address}/c/digits/progress")
        page.wait_for_timeout(500)
        page.screenshot(path=out / "page_progress.png", clip={"x": 0, "y": 0, "width": 1180, "height": 760})
        page.goto(f"{address}/c/digits/map")
        page.get_by_label("Coloured by").select_option("predicted")
        page.get_by_text("1,797 items").wait_for()
        page.wait_for_timeout(1500)
        page.screenshot(path=out / "page_map.png")
        page.goto(f"{address}/c/letters")
        until = time.monotonic() + 60
        while not page.locator("#why .odds").count() and time.monotonic() < until:
            page.keyboard.press("Space" if page.get_by_text("Random control").count() else "Shift")
            page.wait_for_timeout(300)
        page.screenshot(path=out / "page_label.png")
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
