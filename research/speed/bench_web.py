"""How long the labelling page keeps people waiting: for the first item, an answer and each page.

python research/speed/bench_web.py --out research/speed/results/web_cpu.json
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
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
from campaign_data import create_feature_campaign, write_texts
from measure import describe_setup, format_table, save_result

TEETER = [sys.executable, "-c", "from teeter.cli import main; main()"]

CLASS_COUNT = 10
FEATURE_WIDTH = 64
LABEL_COUNT = 1_000
"""Labels that the large campaign starts with."""

TEXT_COUNTS = (3_000, 15_000, 100_000)
PHOTOGRAPH_COUNT = 1_000
"""Items whose first question is waited for."""

LARGE_CAMPAIGN = "/api/v1/campaigns/large"


@contextmanager
def run_server(folder: Path, *arguments: str) -> Iterator[httpx2.Client]:
    """Run ``teeter serve`` in a process of its own, and yield a client that has a session."""
    process = subprocess.Popen(
        [*TEETER, "serve", *arguments, "--no-open"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TEETER_HOME": str(folder / "home")},
    )

    try:
        with httpx2.Client(base_url=read_url(process), timeout=60) as client:
            client.headers["x-csrf-token"] = client.get("/api/v1/session").json()["csrf"]
            yield client
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)


def read_url(process: subprocess.Popen[str]) -> str:
    """Return the URL that a server prints when it is ready."""
    for line in process.stdout or []:
        if match := re.search(r"http://[^/]+/", line):
            return match[0].rstrip("/")
    raise RuntimeError("The server ended without printing its URL.")


def wait_for_questions(client: httpx2.Client, campaign: str) -> None:
    """Wait until a server has picked items."""
    while not client.get(f"{campaign}/questions").json()["questions"]:
        time.sleep(0.1)


def is_training(client: httpx2.Client) -> bool:
    """Return whether the server says that it trains a model of the large campaign."""
    return "being trained" in client.get(LARGE_CAMPAIGN).json()["news"]


def measure_first_item(source: Path, count: int, kind: str) -> dict[str, Any]:
    """Time ``teeter serve FILE`` until an item is on the page, including starts of Python."""
    started = time.perf_counter()
    home = source.with_suffix(".home")
    with run_server(home, str(source), "--classes", "a,b,c") as client:
        served = time.perf_counter()
        wait_for_questions(client, f"/api/v1/campaigns/{source.stem}")
        asked = time.perf_counter()

    return {
        "what": f"{count:,} {kind}",
        "first question (s)": asked - started,
        "page (s)": served - started,
    }


def write_photographs(folder: Path, count: int) -> None:
    """Write photographs of 1,600 x 1,200 pixels: parts of two that scikit-learn has."""
    from PIL import Image
    from sklearn.datasets import load_sample_images

    folder.mkdir()
    generator = np.random.default_rng(0)
    images = [Image.fromarray(pixels) for pixels in load_sample_images().images]
    for number in range(count):
        image = images[number % len(images)]
        left, top = generator.integers(0, [image.width - 320, image.height - 240])
        part = image.crop((left, top, left + 320, top + 240)).resize((1_600, 1_200))
        part.save(folder / f"{number:04}.jpg", quality=88)


def measure_first_items(folder: Path) -> list[dict[str, Any]]:
    """Time the first question about files of several sizes, and about photographs."""
    results = []
    for count in TEXT_COUNTS:
        path = folder / f"texts{count}.csv"
        write_texts(path, count)
        results.append(measure_first_item(path, count, "texts"))

    photographs = folder / "photographs"
    write_photographs(photographs, PHOTOGRAPH_COUNT)
    results.append(measure_first_item(photographs, PHOTOGRAPH_COUNT, "photographs"))
    return results


def create_large_campaign(folder: Path, items: int) -> Path:
    """Create a campaign of random features with a trained model and picks."""
    path = folder / "large.teeter"
    campaign = create_feature_campaign(
        path, items=items, width=FEATURE_WIDTH, class_count=CLASS_COUNT, labels=LABEL_COUNT
    )
    campaign.train()
    campaign.ask(1000)
    campaign.database.close()
    return path


def measure_answers(client: httpx2.Client, count: int) -> dict[str, Any]:
    """Time answers, one after the other, that are given while a model is trained."""
    seconds: list[float] = []
    while len(seconds) < count:
        for question in client.get(f"{LARGE_CAMPAIGN}/questions?n=50").json()["questions"]:
            during_training = is_training(client)
            if not during_training:
                client.post(f"{LARGE_CAMPAIGN}/train")

            answer = {"item": question["item"], "label": "class 0"}
            started = time.perf_counter()
            client.post(f"{LARGE_CAMPAIGN}/answers", json=answer).raise_for_status()
            if during_training:
                seconds.append(time.perf_counter() - started)
            time.sleep(0.05)

    return {
        "what": f"{len(seconds)} answers while models are trained",
        "median ms": 1000 * float(np.median(seconds)),
        "95th percentile ms": 1000 * float(np.quantile(seconds, 0.95)),
        "largest ms": 1000 * max(seconds),
    }


def measure_pages(client: httpx2.Client, item_count: int, repeats: int = 5) -> list[dict[str, Any]]:
    """Time every page of the large campaign."""
    last_item = item_count - 1
    urls = {
        "label": "/c/large",
        "progress": "/c/large/progress",
        "find": "/c/large/find",
        "find, far down": f"/c/large/find?offset={item_count * 9 // 10}",
        "find, searched": f"/c/large/find?search={last_item}",
        "find, searched in vain": "/c/large/find?search=nothing-like-it",
        "find, of a class": "/c/large/find?label=class+3",
        "find, without a label": "/c/large/find?state=unlabelled",
        "item": f"/c/large/item?id={last_item}",
        "labels on the map": f"{LARGE_CAMPAIGN}/labels",
    }

    rows = []
    for name, url in urls.items():
        milliseconds = []
        for _ in range(repeats):
            started = time.perf_counter()
            client.get(url).raise_for_status()
            milliseconds.append(1000 * (time.perf_counter() - started))
        rows.append(
            {
                "page": name,
                "median ms": float(np.median(milliseconds)),
                "largest ms": max(milliseconds),
            }
        )

    map_milliseconds = 1000 * measure_first_map(client)
    rows.append(
        {
            "page": "map, the first time",
            "median ms": map_milliseconds,
            "largest ms": map_milliseconds,
        }
    )
    return rows


def measure_first_map(client: httpx2.Client) -> float:
    """Return the seconds until the map is computed, by a worker that is idle at first."""
    while "being" in client.get(LARGE_CAMPAIGN).json()["news"]:
        time.sleep(0.1)

    started = time.perf_counter()
    while client.get(f"{LARGE_CAMPAIGN}/map").status_code == 202:
        time.sleep(0.1)
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, help="file for the result as JSON")
    parser.add_argument(
        "--items", type=int, default=100_000, help="items of the large campaign (default: 100000)"
    )
    options = parser.parse_args()

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        first_items = measure_first_items(folder)
        print(format_table(first_items))

        large_campaign = create_large_campaign(folder, options.items)
        with run_server(folder, str(large_campaign)) as client:
            wait_for_questions(client, LARGE_CAMPAIGN)
            answers = measure_answers(client, 200)
            print(format_table([answers]))
            pages = measure_pages(client, options.items)
            print(format_table(pages))

    load = None
    if hasattr(os, "getloadavg"):  # not on Windows
        load = os.getloadavg()[0]
    result = {
        **describe_setup(torch.device("cpu")),
        "load": load,
        "first questions": first_items,
        "answers": answers,
        "pages": pages,
    }
    save_result(options.out, result)


if __name__ == "__main__":
    main()
