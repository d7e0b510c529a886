"""A campaign's waits: from a table of 10,000 texts to the first question, and the next batch from 100,000 items.

python benchmarks/speed/bench_campaign.py --out benchmarks/speed/results/campaign_cpu.json
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import facts, save, table

from teeter.campaigns.campaign import Campaign, Settings

WORDS = 5_000


def first_question(folder: Path, texts: int) -> dict[str, Any]:
    """Time the two commands as they are typed, starting Python included."""
    path = folder / "texts.csv"
    drawn = np.random.default_rng(0)
    common = drawn.zipf(1.3, size=(texts, 12)) % WORDS
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["text"])
        rows.writerows(
            [" ".join(f"word{k}" for k in line) + f" {number}"]
            for number, line in enumerate(common)
        )
    command = [sys.executable, "-c", "from teeter.cli import main; main()", "campaign"]
    started = time.perf_counter()
    subprocess.run(
        [*command, "new", str(path), "--classes", "a,b,c"], check=True, capture_output=True
    )
    made = time.perf_counter()
    subprocess.run(
        [*command, "ask", str(path.with_suffix(".teeter")), "-n", "20"],
        check=True,
        capture_output=True,
    )
    asked = time.perf_counter()
    return {
        "what": f"{texts:,} texts: new, then the first 20 questions",
        "s": asked - started,
        "of it new": made - started,
    }


def next_batch(folder: Path, items: int, width: int, classes: int, labels: int) -> dict[str, Any]:
    """Time training and the next 20 questions of a large campaign."""
    drawn = np.random.default_rng(0)
    centres = drawn.normal(size=(classes, width)).astype(np.float32)
    kinds = drawn.integers(classes, size=items)
    vectors = centres[kinds] + drawn.normal(size=(items, width)).astype(np.float32)
    names = [f"class {k}" for k in range(classes)]
    campaign = Campaign.create(folder / "large.teeter", "large", names, Settings(kind="features"))
    started = time.perf_counter()
    campaign.add(
        {"id": str(k), "features": vectors[k], "label": names[kinds[k]] if k < labels else None}
        for k in range(items)
    )
    added = time.perf_counter()
    campaign = Campaign.open(folder / "large.teeter")
    begun = time.perf_counter()
    campaign.train()
    trained = time.perf_counter()
    campaign.ask(20)
    asked = time.perf_counter()
    start = time.perf_counter()
    for question in campaign.ask(20):
        campaign.tell(question.item, names[0])
    told = (time.perf_counter() - start) / 20
    return {
        "what": f"{items:,} items x {width}, {labels:,} labels: train and ask for 20",
        "s": asked - begun,
        "of it train": trained - begun,
        "adding them": added - started,
        "an answer": told,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, help="where to write the result as JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        lines = [
            first_question(Path(folder), 10_000),
            next_batch(Path(folder), 100_000, 256, 10, 1_000),
        ]
    for line in lines:
        print(table([line]))
    save(options.out, {**facts(torch.device("cpu")), "campaign": lines})


if __name__ == "__main__":
    main()
