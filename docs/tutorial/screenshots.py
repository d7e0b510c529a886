"""Take the pictures of the page for the docs: a script labels real data in a browser.

    python docs/tutorial/screenshots.py [FOLDER]

Needs playwright and Chromium. The images are the digits of scikit-learn. The texts are the SMS Spam
Collection if the folder TEETER_DATA has sms_spam.tsv.xz, and made-up sentences otherwise.
"""

from __future__ import annotations

import csv
import itertools
import lzma
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright
from sklearn.datasets import load_digits

TEETER = [sys.executable, "-c", "from teeter.cli import main; main()"]
DIGITS = load_digits()
VIEW = {"width": 1080, "height": 760}

BATCH = 20
"""Answers after which the server trains a model, and the script pauses."""

PAUSE = 1500
"""Milliseconds that the server gets to train a model and pick with it."""

COLOURS = 256
"""Colours of a saved picture. A palette makes the files half as large."""

SUBJECTS = (
    "The manager",
    "Our driver",
    "The night nurse",
    "My landlord",
    "The waiter",
    "Your plumber",
    "The clerk",
)
HAM = (
    "thanked us warmly",
    "fixed it within the hour",
    "called back at once",
    "gave us a hand",
    "lost the papers",
)
SPAM = (
    "wins a free prize",
    "claims 500 pounds",
    "calls now to win",
    "sends cash today",
    "texts to claim",
)
TIMES = (
    "on Monday",
    "last week",
    "before lunch",
    "after the holidays",
    "this morning",
    "in the end",
    "again",
)


def load_messages() -> dict[str, str]:
    """Return the class of each message."""
    source = Path(os.environ.get("TEETER_DATA", "")) / "sms_spam.tsv.xz"
    messages = {}
    if source.is_file():
        for line in lzma.decompress(source.read_bytes()).decode().split("\n"):
            if line:
                label, text = line.split("\t", 1)
                messages[text] = label
        return messages

    labels = dict.fromkeys(HAM, "ham") | dict.fromkeys(SPAM, "spam")
    for subject, predicate, moment in itertools.product(SUBJECTS, labels, TIMES):
        messages[f"{subject} {predicate} {moment}."] = labels[predicate]
    return messages


def write_digits(folder: Path) -> None:
    """Write the digits as images. Only their numbers tell which digit they show."""
    folder.mkdir()
    for number, pixels in enumerate(DIGITS.images):
        image = Image.fromarray((pixels * 15.9).astype("uint8")).resize((160, 160))
        image.save(folder / f"{number:04}.png")


def digit_shortcut(source: str) -> str:
    """Return the shortcut of the class of an image, from its address."""
    match = re.search(r"(\d+)\.png", source)
    if match is None:
        raise ValueError(f"{source} is not the address of a digit.")
    digit = int(DIGITS.target[int(match[1])])
    return str(digit) if digit else "z"


def shown_item(page: Any) -> str:
    """Return the item on the page: the address of an image, or a text."""
    stage = page.locator("#stage img, #stage .words").first
    stage.wait_for()
    return str(stage.get_attribute("src") or stage.inner_text())


def label_items(page: Any, count: int, shortcut_of: Callable[[str], str]) -> None:
    """Label by keyboard, with a pause after each batch in which the server trains a model."""
    for number in range(count):
        item = shown_item(page)
        page.keyboard.press(shortcut_of(item))
        while page.locator("#stage img, #stage .words").count() and shown_item(page) == item:
            time.sleep(0.02)

        if number % BATCH == BATCH - 1:
            page.locator("#saved.all").wait_for()
            page.wait_for_timeout(PAUSE)
    page.locator("#saved.all").wait_for()


def create_campaigns(folder: Path, messages: dict[str, str]) -> None:
    with (folder / "messages.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["text"], *([text] for text in messages)])
    write_digits(folder / "digits")

    digits_options = {
        "--classes": "one,two,three,four,five,six,seven,eight,nine,zero",
        "--keys": "1,2,3,4,5,6,7,8,9,z",
        "--instructions": "Which digit is it? Flag images that show no digit.",
        "--cost": "0.04",
        "--control": "0.2",
    }
    messages_options = {
        "--classes": "ham,spam",
        "--keys": "h,s",
        "--instructions": "Spam is advertising nobody asked for: prizes, offers, subscriptions.",
    }
    for name, options in (("digits", digits_options), ("messages.csv", messages_options)):
        arguments = itertools.chain.from_iterable(options.items())
        subprocess.run([*TEETER, "campaign", "new", str(folder / name), *arguments], check=True)


def main(out: Path, answers: int = 160) -> None:
    """Create two campaigns, serve them, label, and take the pictures."""
    messages = load_messages()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        create_campaigns(folder, messages)

        environment = {**os.environ, "TEETER_HOME": str(folder / "home")}
        settings = folder / "server.toml"
        settings.write_text(f"batch = {BATCH}\n", encoding="utf-8")
        command = [*TEETER, "serve", "--folder", str(folder), "--no-open"]
        command += ["--settings", str(settings)]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        assert server.stdout is not None
        try:
            addresses = (re.search(r"http://[^/]+", line) for line in server.stdout)
            address = next(filter(None, addresses))[0]
            take_pictures(address, out, messages, answers)
        finally:
            server.terminate()
            try:
                server.wait(300)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()
            server.stdout.close()


def take_pictures(address: str, out: Path, messages: dict[str, str], answers: int) -> None:
    """Label both campaigns and take three pictures."""
    out.mkdir(parents=True, exist_ok=True)
    # A browser shows any white space as one space.
    labels = {" ".join(text.split()): label for text, label in messages.items()}

    def message_shortcut(text: str) -> str:
        return labels[" ".join(text.split())][0]

    with sync_playwright() as player:
        browser = player.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = browser.new_page(viewport=VIEW)
        page.set_default_timeout(120_000)

        page.goto(f"{address}/c/digits")
        label_items(page, answers, digit_shortcut)
        page.goto(f"{address}/c/digits/progress")
        page.locator("svg").first.wait_for()
        save_picture(page, out / "page_progress.png")

        page.goto(f"{address}/c/digits/map")
        page.get_by_label("Colour by").select_option("predicted")
        page.get_by_label("Layout").select_option("tsne")
        page.get_by_text("1,797 items").wait_for()
        page.wait_for_timeout(500)
        save_picture(page, out / "page_map.png")

        page.goto(f"{address}/c/messages")
        label_items(page, min(answers, 80), message_shortcut)
        deadline = time.monotonic() + 10
        while not is_instructive(page) and time.monotonic() < deadline:
            page.wait_for_timeout(300)
            label_items(page, 1, message_shortcut)
        save_picture(page, out / "page_label.png")
        browser.close()


def save_picture(page: Any, path: Path) -> None:
    """Save what the browser shows, with few colours to keep the file small."""
    page.screenshot(path=path)
    with Image.open(path) as picture:
        small = picture.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    small.save(path, optimize=True)


def is_instructive(page: Any) -> bool:
    """Return whether the page shows a short message that the model is unsure about, and why."""
    odds = page.locator("#why .odds")
    if not odds.count():
        return False
    percentages = re.findall(r"([\d.]+)%", odds.first.inner_text())
    return max(map(float, percentages)) < 90 and len(shown_item(page)) < 120


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
