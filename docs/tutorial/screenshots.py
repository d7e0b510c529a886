"""Make the pictures of the labelling page: a person who knows the answers labels real data at it.

python docs/tutorial/screenshots.py [FOLDER]: needs playwright and Chromium. The digits come with scikit-learn; the
messages are the SMS Spam Collection where the folder TEETER_DATA has sms_spam.tsv.xz, and sentences of ours elsewhere.
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
"""Answers after which the server trains a model, and the person takes a breath."""

WHO = (
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
WHEN = (
    "on Monday",
    "last week",
    "before lunch",
    "after the holidays",
    "this morning",
    "in the end",
    "again",
)


def messages() -> dict[str, str]:
    """Return messages and what each is: those that people got, where they are at hand."""
    source = Path(os.environ.get("TEETER_DATA", "")) / "sms_spam.tsv.xz"
    if source.is_file():
        lines = lzma.decompress(source.read_bytes()).decode().split("\n")
        return {text: kind for kind, text in (line.split("\t", 1) for line in lines if line)}
    kinds = {what: kind for kind, said in (("ham", HAM), ("spam", SPAM)) for what in said}
    return {
        f"{who} {what} {when}.": kinds[what]
        for who, what, when in itertools.product(WHO, kinds, WHEN)
    }


def write_digits(folder: Path) -> None:
    """Write the digits as images that say what they are by their number alone."""
    folder.mkdir()
    for number, pixels in enumerate(DIGITS.images):
        Image.fromarray((pixels * 15.9).astype("uint8")).resize((160, 160)).save(
            folder / f"{number:04}.png"
        )


def digit_of(source: str) -> str:
    truth = int(DIGITS.target[int(re.findall(r"(\d+)\.png", source)[0])])
    return str(truth) if truth else "z"


def shown(page: Any) -> str:
    """Return what is in the middle: an image's address, or words."""
    stage = page.locator("#stage img, #stage .words")
    stage.first.wait_for()
    return str(stage.first.get_attribute("src") or stage.first.inner_text())


def label(page: Any, count: int, key: Callable[[str], str]) -> None:
    """Answer by keyboard at a person's pace: by the end of a batch there is a model of the batch before."""
    for number in range(count):
        before = shown(page)
        page.keyboard.press(key(before))
        while page.locator("#stage img, #stage .words").count() and shown(page) == before:
            time.sleep(0.02)
        if number % BATCH == BATCH - 1:
            page.locator("#saved.all").wait_for()
            page.wait_for_timeout(1500)
    page.locator("#saved.all").wait_for()


def main(out: Path, answers: int = 160) -> None:
    """Serve, label, and take the pictures."""
    known = messages()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with (folder / "messages.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([["text"], *([text] for text in known)])
        write_digits(folder / "digits")
        new = [*TEETER, "campaign", "new"]
        told = [
            "--instructions",
            "Which digit is it? Flag what is no digit at all.",
            "--cost",
            "0.04",
        ]
        told += [
            "--control",
            "0.2",
            "--keys",
            "1,2,3,4,5,6,7,8,9,z",
            "--classes",
            "one,two,three,four,five,six,seven,eight,nine,zero",
        ]
        subprocess.run([*new, str(folder / "digits"), *told], check=True)
        told = [
            "--instructions",
            "Spam is what nobody asked for: prizes, offers, subscriptions.",
            "--keys",
            "h,s",
        ]
        subprocess.run(
            [*new, str(folder / "messages.csv"), *told, "--classes", "ham,spam"], check=True
        )
        environment = {**os.environ, "TEETER_HOME": str(folder / "home")}
        command = [*TEETER, "serve", "--folder", str(folder), "--no-open", "--batch", str(BATCH)]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        assert server.stdout is not None
        try:
            lines = (re.search(r"http://[^/]+/", line) for line in server.stdout)
            take(next(filter(None, lines))[0].rstrip("/"), out, known, answers)
        finally:
            server.terminate()
            server.wait(20)
            server.stdout.close()


def take(address: str, out: Path, known: dict[str, str], answers: int) -> None:
    """Label both campaigns and take three pictures."""
    out.mkdir(parents=True, exist_ok=True)
    squeezed = {" ".join(text.split()): kind for text, kind in known.items()}
    with sync_playwright() as player:
        browser = player.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = browser.new_page(viewport=VIEW)
        page.set_default_timeout(120_000)
        page.goto(f"{address}/c/digits")
        label(page, answers, digit_of)
        page.goto(f"{address}/c/digits/progress")
        page.locator("svg").first.wait_for()
        page.screenshot(path=out / "page_progress.png")
        page.goto(f"{address}/c/digits/map")
        page.get_by_label("Colour by").select_option("predicted")
        page.get_by_label("Layout").select_option("tsne")
        page.get_by_text("1,797 items").wait_for()
        page.wait_for_timeout(500)
        page.screenshot(path=out / "page_map.png")
        page.goto(f"{address}/c/messages")
        label(page, min(answers, 80), lambda text: squeezed[" ".join(text.split())][0])
        until = time.monotonic() + 10
        while not telling(page) and time.monotonic() < until:
            page.wait_for_timeout(300)
            label(page, 1, lambda text: squeezed[" ".join(text.split())][0])
        page.screenshot(path=out / "page_label.png")
        browser.close()


def telling(page: Any) -> bool:
    """Tell whether the page shows all that it can: a short message, of which the model is not sure, and why."""
    odds = page.locator("#why .odds")
    likely = (
        max(map(float, re.findall(r"([\d.]+)%", odds.first.inner_text()))) if odds.count() else 100
    )
    return likely < 90 and len(shown(page)) < 120


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
