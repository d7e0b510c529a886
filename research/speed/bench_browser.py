"""What people wait for in a browser: from a key to the next item, from a search to its hits.

python research/speed/bench_browser.py keys --out research/speed/results/browser_keys_cpu.json
python research/speed/bench_browser.py find --data FOLDER --out research/speed/results/find_cpu.json

``find`` compares answers to many items at once on the page Find with answers one by one on the
page Label, on Banking77. Both are given by a script that knows the classes, with real keys and
clicks in Chromium. The time of a person is added to the time that the run took: 0.28 s for a key
and 1.3 s for pointing and clicking, as in the keystroke-level model [Card, Moran & Newell 1980],
and the time to read a text, which is the same on both pages. One in twenty answers in bulk is asked
again, one by one, which counts too. Needs playwright and Chromium.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import torch
from bench_web import run_server, wait_for_questions
from campaign_data import write_texts
from measure import describe_setup, format_table, save_result

sys.path.append(str(Path(__file__).parents[2]))

from research.labelling import add_data_option, read_banking77, require_data
from teeter.campaigns.campaign import Campaign
from teeter.campaigns.settings import Settings

ITEM_COUNTS = (3_000, 100_000)
CLASS_COUNT = 10
KNOWN_LABELS = 200
ANSWERS = 100
PAUSE = 0.3
"""Seconds that a person looks at an item."""
SEARCHES = 10

KEY_SECONDS = 0.28
CLICK_SECONDS = 1.3
READING_SECONDS = (0.0, 0.5, 1.0, 2.0)
CHECKED_SHARE = 0.05
KNOWN_INTENTS = 770
"""Labels of Banking77 that the model is trained on: ten per class."""
ONE_BY_ONE = 150

PATIENCE = 120_000
"""Milliseconds."""

TIMER = """([place, content]) => {
  window.times = [];
  let pressed = null;
  const note = () => { pressed = performance.now(); };
  addEventListener("keydown", note, true);
  addEventListener("input", note, true);
  const watched = document.getElementById(place);
  new MutationObserver(() => {
    if (pressed === null || !watched.querySelector(content)) return;
    const started = pressed;
    pressed = null;
    // After the frame that shows it.
    requestAnimationFrame(() => setTimeout(() => window.times.push(performance.now() - started)));
  }).observe(watched, { childList: true });
}"""


@contextmanager
def open_page() -> Iterator[Any]:
    """Yield a page of a new browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as player:
        browser = player.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"], timeout=PATIENCE
        )
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.set_default_timeout(PATIENCE)
        yield page
        browser.close()


def describe_times(what: str, items: int, milliseconds: list[float]) -> dict[str, Any]:
    return {
        "what": what,
        "items": items,
        "times": len(milliseconds),
        "median ms": float(np.median(milliseconds)),
        "95th percentile ms": float(np.quantile(milliseconds, 0.95)),
        "largest ms": max(milliseconds),
    }


# From a key to the next item


def create_text_campaign(folder: Path, count: int) -> Path:
    """Create a campaign of random texts with some labels and a model."""
    table = folder / f"texts{count}.csv"
    write_texts(table, count)
    path = folder / f"texts{count}.teeter"
    classes = [f"class {k}" for k in range(CLASS_COUNT)]
    campaign = Campaign.make(table, classes, at=path, settings=Settings(encoder="tfidf"))
    for number, question in enumerate(campaign.ask(KNOWN_LABELS)):
        campaign.tell(question.item, classes[number % CLASS_COUNT])
    campaign.train()
    campaign.ask(40)
    campaign.database.close()
    return path


def time_action(page: Any, action: Any) -> float:
    """Return the milliseconds from the last key of an action until the page shows what it does."""
    before = page.evaluate("window.times.length")
    action()
    page.wait_for_function("(count) => window.times.length > count", arg=before)
    return float(page.evaluate("window.times.at(-1)"))


def measure_keys(page: Any, url: str) -> list[float]:
    """Answer items by keyboard while models are trained after every batch."""
    page.goto(url)
    page.locator("#stage .words").wait_for()
    page.evaluate(TIMER, ["stage", ".words"])
    milliseconds = []
    for number in range(ANSWERS):
        time.sleep(PAUSE)
        key = str(1 + number % 9)
        milliseconds.append(time_action(page, lambda key=key: page.keyboard.press(key)))
    page.locator("#saved.all").wait_for()
    return milliseconds


def measure_searches(page: Any, url: str, client: httpx2.Client, api: str) -> dict[str, Any]:
    """Search by words and by meaning, the latter also while a model is trained."""
    page.goto(f"{url}/find")
    page.evaluate(TIMER, ["rows", "#hits"])
    page.wait_for_function("() => window.htmx !== undefined")
    times: dict[str, list[float]] = {"by words": [], "by meaning": [], "while training": []}

    def search(field: str, text: str) -> float:
        def type_and_enter() -> None:
            page.locator(f"#{field}").fill(text)
            if field == "meaning":
                page.keyboard.press("Enter")

        return time_action(page, type_and_enter)

    for number in range(SEARCHES):
        times["by words"].append(search("search", f"word{2 + number}"))
    page.goto(f"{url}/find")
    page.evaluate(TIMER, ["rows", "#hits"])
    first = search("meaning", "word3 word4")
    for number in range(SEARCHES):
        times["by meaning"].append(search("meaning", f"word{5 + number} word{number}"))
    while len(times["while training"]) < SEARCHES:
        if "being trained" not in client.get(api).json()["news"]:
            client.post(f"{api}/train").raise_for_status()
            time.sleep(0.2)
            continue
        words = f"word{20 + len(times['while training'])} word1"
        times["while training"].append(search("meaning", words))
    return {"first ms": first, **times}


def run_keys(folder: Path, counts: list[int], out: Path | None) -> None:
    rows = []
    for count in counts:
        path = create_text_campaign(folder, count)
        api = f"/api/v1/campaigns/{path.stem}"
        with run_server(folder, str(path)) as client, open_page() as page:
            wait_for_questions(client, api)
            url = f"{client.base_url}/c/{path.stem}".replace("//c/", "/c/")
            rows.append(describe_times("key to next item", count, measure_keys(page, url)))
            searches = measure_searches(page, url, client, api)
            first = searches.pop("first ms")
            for kind, milliseconds in searches.items():
                name = "by meaning, while training" if kind == "while training" else kind
                rows.append(describe_times(f"search {name}, to its hits", count, milliseconds))
            rows.append(describe_times("first search by meaning", count, [first]))
        print(format_table(rows[-5:]))
        save(out, {"waits": rows})


# Answers a minute


class Person:
    """Presses keys and clicks, counts them, and counts the texts that were read."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.keys = 0
        self.clicks = 0
        self.read = 0
        self.answers = 0
        self.steps: list[float] = []
        """Seconds that the machine took for each answer, or for each page of answers."""

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)
            self.keys += 1

    def click(self, place: Any, **options: Any) -> None:
        place.click(**options)
        self.clicks += 1

    def time_per_answer(self, reading: float) -> float:
        """Return the seconds of an answer, with the time that a person takes."""
        pressing = KEY_SECONDS * self.keys + CLICK_SECONDS * self.clicks
        # The median: other work on the machine may stop a step for minutes.
        machine = float(np.median(self.steps)) * len(self.steps)
        return (machine + pressing + reading * self.read) / self.answers

    def describe(self) -> dict[str, Any]:
        counts = {name: getattr(self, name) for name in ("keys", "clicks", "read", "answers")}
        return {**counts, "steps": len(self.steps), "seconds a step": float(np.median(self.steps))}


def shortest_typing(name: str, classes: tuple[str, ...]) -> str:
    """Return the beginning of a class that finds it: the first class that begins like this."""
    for length in range(1, len(name) + 1):
        begun = name[:length].lower()
        first = next(other for other in classes if other.lower().startswith(begun))
        if first == name:
            return begun
    return name.lower()


def label_one_by_one(
    page: Any, url: str, truth: dict[str, str], classes: tuple[str, ...]
) -> Person:
    """Answer picked items on the page Label, each by typing its class."""
    person = Person(page)
    page.goto(url)
    stage = page.locator("#stage .words")
    stage.wait_for()
    while person.answers < ONE_BY_ONE:
        started = time.perf_counter()
        text = stage.inner_text()
        person.read += 1
        person.press(*shortest_typing(truth[" ".join(text.split())], classes), "Enter")
        person.answers += 1
        page.wait_for_function(
            "(before) => (document.querySelector('#stage .words')?.innerText ?? before) !== before",
            arg=text,
        )
        person.steps.append(time.perf_counter() - started)
    page.locator("#saved.all").wait_for()
    return person


def label_in_find(page: Any, url: str, truth: dict[str, str], classes: tuple[str, ...]) -> Person:
    """Answer the 50 items that are most surely predicted as each class, without the wrong ones."""
    person = Person(page)
    page.goto(f"{url}/find?state=unlabelled&sort=probability&descending=true")
    for name in classes:
        started = time.perf_counter()
        # A class is chosen from the list by its beginning.
        person.clicks += 1
        person.keys += len(shortest_typing(name, classes)) + 1
        page.get_by_label("Predicted as").select_option(name)
        quoted = name.replace("?", "%3F")
        page.locator(f'#hits[data-query*="predicted={quoted}&"]').wait_for()
        ticks = page.locator("#rows .tick")
        items = ticks.evaluate_all("(ticks) => ticks.map((tick) => tick.value)")
        person.read += len(items)
        is_right = [truth[item] == name for item in items]
        if not any(is_right):
            continue

        page_button = page.locator("#tick-page")
        if page_button.is_visible():
            person.click(page_button)
        else:
            person.click(page.locator("#tick-all"))
        for index, right in enumerate(is_right):
            if not right:
                person.click(ticks.nth(index))

        hits = page.locator("#hits").inner_text()
        person.press("=")
        said = page.locator("#said", has_text=f"{name} now")
        said.wait_for()
        person.answers += sum(is_right)
        assert page.locator("#hits").inner_text() != hits
        person.steps.append(time.perf_counter() - started)
    return person


def run_find(folder: Path, data: Path, out: Path | None) -> None:
    dataset = read_banking77(data)
    classes = dataset.classes
    texts = dataset.texts[: dataset.pool_size]
    labels = [classes[k] for k in dataset.labels[: dataset.pool_size]]
    by_text = {" ".join(text.split()): label for text, label in zip(texts, labels, strict=True)}
    by_item = {f"q{k}": label for k, label in enumerate(by_text.values())}

    path = folder / "banking77.teeter"
    campaign = Campaign.make([], classes, at=path, settings=Settings(encoder="tfidf"))
    campaign.add([{"id": f"q{k}", "text": text} for k, text in enumerate(by_text)])
    for k in np.random.default_rng(0).permutation(len(by_item))[:KNOWN_INTENTS]:
        campaign.tell(f"q{k}", by_item[f"q{k}"])
    campaign.train()
    campaign.ask(ONE_BY_ONE + 50)
    campaign.database.close()

    with run_server(folder, str(path)) as client, open_page() as page:
        wait_for_questions(client, "/api/v1/campaigns/banking77")
        url = f"{client.base_url}/c/banking77".replace("//c/", "/c/")
        in_find = label_in_find(page, url, by_item, classes)
        single = label_one_by_one(page, url, by_text, classes)

    rows = []
    for reading in READING_SECONDS:
        alone = single.time_per_answer(reading)
        together = in_find.time_per_answer(reading) + CHECKED_SHARE * alone
        row = {
            "reading a text (s)": reading,
            "one by one, answers a minute": 60 / alone,
            "in Find, answers a minute": 60 / together,
            "times faster": alone / together,
        }
        rows.append(row)
    print(format_table(rows))
    counts = {"one by one": single.describe(), "in Find": in_find.describe()}
    save(out, {"rates": rows, **counts})


def save(out: Path | None, result: dict[str, Any]) -> None:
    setup = {**describe_setup(torch.device("cpu")), "load": os.getloadavg()[0]}
    save_result(out, {**setup, **result})


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=("keys", "find"))
    parser.add_argument("--out", type=Path, help="file for the result as JSON")
    parser.add_argument("--items", type=int, nargs="+", default=list(ITEM_COUNTS))
    add_data_option(parser)
    options = parser.parse_args()

    with tempfile.TemporaryDirectory() as name:
        if options.part == "keys":
            run_keys(Path(name), options.items, options.out)
        else:
            run_find(Path(name), require_data(parser, options), options.out)


if __name__ == "__main__":
    main()
