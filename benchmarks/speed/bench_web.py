"""The labelling page's waits: to the first question, an answer while a model trains, and pages of 100,000 items.

python benchmarks/speed/bench_web.py --out benchmarks/speed/results/web_cpu.json
"""

from __future__ import annotations

import argparse
import csv
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

import httpx
import numpy as np
import torch
from measure import facts, save, table

from teeter.campaigns.campaign import Campaign, Settings

WORDS = 5_000
TEETER = [sys.executable, "-c", "from teeter.cli import main; main()"]


def texts(path: Path, count: int) -> None:
    """Write a table of texts of twelve words each, some of them common."""
    common = np.random.default_rng(0).zipf(1.3, size=(count, 12)) % WORDS
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["text"])
        rows.writerows(
            [" ".join(f"word{k}" for k in line) + f" {number}"]
            for number, line in enumerate(common)
        )


@contextmanager
def serving(folder: Path, *arguments: str) -> Iterator[httpx.Client]:
    """Yield a client of a server in a process of its own, with its session."""
    command = [*TEETER, "serve", *arguments, "--no-open"]
    environment = {**os.environ, "TEETER_HOME": str(folder / "home")}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        found = next(
            filter(None, (re.search(r"http://[^/]+/", line) for line in process.stdout or []))
        )
        with httpx.Client(base_url=found[0].rstrip("/"), timeout=60) as client:
            client.headers["x-csrf-token"] = client.get("/api/v1/session").json()["csrf"]
            yield client
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)


def first_question(folder: Path, count: int) -> dict[str, Any]:
    """Time the two commands as they are typed, up to the moment at which a question is on the page."""
    path = folder / "texts.csv"
    texts(path, count)
    started = time.perf_counter()
    subprocess.run(
        [*TEETER, "campaign", "new", str(path), "--classes", "a,b,c"],
        check=True,
        capture_output=True,
    )
    made = time.perf_counter()
    with serving(folder, str(path.with_suffix(".teeter"))) as client:
        shown = time.perf_counter()
        while not client.get("/api/v1/campaigns/texts/questions").json()["questions"]:
            time.sleep(0.1)
        asked = time.perf_counter()
    return {
        "what": f"{count:,} texts: campaign new, then serve, to the first question",
        "s": asked - started,
        "of it new": made - started,
        "serve to a page": shown - made,
        "page to a question": asked - shown,
    }


def large(folder: Path, items: int, width: int, classes: int, labels: int) -> Path:
    """Make a campaign of many features, some of them labelled."""
    drawn = np.random.default_rng(0)
    centres = drawn.normal(size=(classes, width)).astype(np.float32)
    kinds = drawn.integers(classes, size=items)
    vectors = centres[kinds] + drawn.normal(size=(items, width)).astype(np.float32)
    names = [f"class {k}" for k in range(classes)]
    campaign = Campaign.create(folder / "large.teeter", "large", names, Settings(kind="features"))
    campaign.add(
        {"id": str(k), "features": vectors[k], "label": names[kinds[k]] if k < labels else None}
        for k in range(items)
    )
    campaign.train()
    campaign.ask(1000)
    campaign.database.close()
    return folder / "large.teeter"


def answers(client: httpx.Client, count: int) -> dict[str, Any]:
    """Time answers one after the other, those that are given while a model is being trained."""
    at = "/api/v1/campaigns/large"
    times: list[float] = []
    while len(times) < count:
        for one in client.get(f"{at}/questions?n=50").json()["questions"]:
            training = "being trained" in client.get(at).json()["news"]
            if not training:
                client.post(f"{at}/train")
            start = time.perf_counter()
            client.post(
                f"{at}/answers", json={"item": one["item"], "label": "class 0"}
            ).raise_for_status()
            if training:
                times.append(time.perf_counter() - start)
            time.sleep(0.05)
    return {
        "what": f"{len(times)} answers while models are trained",
        "median ms": 1000 * float(np.median(times)),
        "95th percentile ms": 1000 * float(np.quantile(times, 0.95)),
        "largest ms": 1000 * max(times),
    }


def pages(client: httpx.Client, repeats: int = 5) -> list[dict[str, Any]]:
    """Time every page of a large campaign."""
    last = (
        client.get("/api/v1/campaigns/large/items?count=1&state=unlabelled").json()["items"][0][
            "number"
        ]
        + 90_000
    )
    addresses = {
        "label": "/c/large",
        "progress": "/c/large/progress",
        "items": "/c/large/items",
        "items, far down": f"/c/large/items?after={last}",
        "items, searched": "/c/large/items?search=99999",
        "items, searched in vain": "/c/large/items?search=nothing-like-it",
        "items of a class": "/c/large/items?label=class+3",
        "items without a label": "/c/large/items?state=unlabelled",
        "item": "/c/large/item?id=77777",
        "labels on the map": "/api/v1/campaigns/large/labels",
    }
    rows = []
    for name, address in addresses.items():
        times = []
        for _ in range(repeats):
            start = time.perf_counter()
            client.get(address).raise_for_status()
            times.append(1000 * (time.perf_counter() - start))
        rows.append({"page": name, "median ms": float(np.median(times)), "largest ms": max(times)})
    while "being" in client.get("/api/v1/campaigns/large").json()["news"]:
        time.sleep(0.1)
    start = time.perf_counter()
    while client.get("/api/v1/campaigns/large/map").status_code == 202:
        time.sleep(0.1)
    rows.append(
        {
            "page": "map, the first time",
            "median ms": (passed := 1000 * (time.perf_counter() - start)),
            "largest ms": passed,
        }
    )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, help="where to write the result as JSON")
    parser.add_argument("--items", type=int, default=100_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        first = first_question(folder, 10_000)
        print(table([first]))
        with serving(folder, str(large(folder, options.items, 64, 10, 1_000))) as client:
            while not client.get("/api/v1/campaigns/large/questions").json()["questions"]:
                time.sleep(0.1)
            told = answers(client, 200)
            print(table([told]))
            quiet = pages(client)
            print(table(quiet))
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    result = {
        **facts(torch.device("cpu")),
        "load": load,
        "first question": first,
        "answers": told,
        "pages": quiet,
    }
    save(options.out, result)


if __name__ == "__main__":
    main()
