"""Add items to a running server over REST, and measure the seconds and the memory.

python research/campaigns/rest_items.py --items 100000

A campaign of a few texts is served by ``teeter serve`` in a process of its own, and the client of
``teeter.connect`` adds texts with five columns, a thousand per request. The items are not encoded
meanwhile: their features come with later requests of the server to its worker.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

import teeter
from teeter.base.arrays import describe_device
from teeter.base.version import __version__, commit
from teeter.campaigns import Campaign, Settings

RESULT = Path(__file__).parent / "results" / "rest_items.json"
SEED = 0
WORDS = ["warm", "bread", "calm", "river", "early", "apples", "urgent", "offer", "reply", "today"]
COLUMNS = 5
PAUSE = 0.2


def make_items(count: int) -> list[dict[str, Any]]:
    """Return different texts of 20 words with five columns."""
    generator = random.Random(SEED)
    items = []

    for number in range(count):
        text = " ".join(generator.choices(WORDS, k=20))
        items.append(
            {
                "id": f"i{number}",
                "text": f"{text} {number}",
                "customer": f"customer {number % 1000}",
                "date": f"2026-{1 + number % 12:02}-{1 + number % 28:02}",
                "amount": number / 7,
                "tags": ["a", "b", number % 5],
                "notes": generator.choice(WORDS) * 10,
            }
        )

    return items


class MemoryWatch(threading.Thread):
    """Notes the largest resident memory of a process and of its children."""

    def __init__(self, process_id: int) -> None:
        super().__init__(daemon=True)
        self.process_id = process_id
        self.server_bytes = 0
        self.worker_bytes = 0
        self.is_done = threading.Event()

    def run(self) -> None:
        while not self.is_done.wait(PAUSE):
            self.server_bytes = max(self.server_bytes, resident_bytes(self.process_id))
            for child in descendants(self.process_id):
                self.worker_bytes = max(self.worker_bytes, resident_bytes(child))


def resident_bytes(process_id: int) -> int:
    try:
        status = Path(f"/proc/{process_id}/status").read_text()
    except OSError:
        return 0
    match = re.search(r"VmRSS:\s+(\d+) kB", status)
    return 0 if match is None else 1024 * int(match[1])


def descendants(process_id: int) -> list[int]:
    """Return the children of a process and theirs."""
    process_ids: list[int] = []
    for task in Path(f"/proc/{process_id}/task").glob("*/children"):
        for child in map(int, task.read_text().split()):
            process_ids += [child, *descendants(child)]
    return process_ids


def measure(count: int, folder: Path) -> dict[str, Any]:
    path = folder / "rest.teeter"
    first = [{"id": f"first{k}", "text": f"{word} first"} for k, word in enumerate(WORDS)]
    Campaign.make(
        first, ["good", "poor"], at=path, settings=Settings(encoder="tfidf")
    ).database.close()
    items = make_items(count)

    main_program = "from teeter.cli import main; main()"
    arguments = ["serve", str(path), "--port", str(free_port()), "--no-open"]
    command = [sys.executable, "-c", main_program, *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ)
    try:
        url = read_address(process)
        watch = MemoryWatch(process.pid)
        watch.start()
        campaign = teeter.connect(url)

        began = time.perf_counter()
        result = campaign.add(items)
        seconds = time.perf_counter() - began

        began = time.perf_counter()
        matches = len(list(campaign.items.find(column="customer=customer 7")))
        filter_seconds = time.perf_counter() - began
        watch.is_done.set()
    finally:
        process.terminate()
        process.wait()

    return {
        "teeter": __version__,
        "commit": commit(),
        "hardware": describe_device(torch.device("cpu")),
        "seed": SEED,
        "settings": {"columns": COLUMNS, "items per request": 1000, "encoder": "tfidf"},
        "items": count,
        "new": result.new,
        "seconds": round(seconds, 1),
        "items a second": round(count / seconds),
        "server peak MB": round(watch.server_bytes / 1e6),
        "worker peak MB": round(watch.worker_bytes / 1e6),
        "campaign MB": round(path.stat().st_size / 1e6),
        "filter by a column": {"matches": matches, "seconds": round(filter_seconds, 2)},
    }


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def read_address(process: subprocess.Popen[str]) -> str:
    """Return the address that a starting server prints."""
    for line in process.stdout or ():
        match = re.search(r"http://\S+", line)
        if match is not None:
            return match[0].rstrip("/")
    raise SystemExit("The server did not start.")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--result", type=Path, default=RESULT)
    arguments = parser.parse_args()

    with TemporaryDirectory() as folder:
        measured = measure(arguments.items, Path(folder))
    text = json.dumps(measured, indent=1)
    print(text)
    arguments.result.parent.mkdir(parents=True, exist_ok=True)
    arguments.result.write_text(text + "\n")


if __name__ == "__main__":
    main()
