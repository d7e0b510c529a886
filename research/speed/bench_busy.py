"""How much slower teeter gets while another program keeps a core busy.

    python research/speed/bench_busy.py --out research/speed/results/busy_cpu.json

Each task runs in a new process, with one thread and with two, first alone and then beside a program
that keeps one core busy. Threads that wait for each other in a busy loop would make two threads far
slower than one on a busy machine. The commands of teeter therefore set OMP_WAIT_POLICY, and the
tasks in Python get the same setting. Measure on a machine with two cores that has nothing else to
do.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from campaign_data import write_texts
from measure import describe_setup, format_table, save_result

TEXTS = 15_000

SELECTION = """
import torch
from teeter import Outputs, select
generator = torch.Generator().manual_seed(0)
features = torch.randn(10_000, 128, generator=generator)
weight = torch.randn(10, 128, generator=generator)
outputs = Outputs(features @ weight.T, features, weight, torch.zeros(10))
for seed in range(10):
    select("ldm-s", outputs, 100, seed=seed)
"""

TRAINING = """
import numpy as np
from teeter import Learner
from teeter.models.networks import mlp
rng = np.random.default_rng(0)
features = rng.standard_normal((4_000, 64)).astype(np.float32)
learner = Learner(lambda seed: mlp(64, 10, seed=seed), features, "ldm-s", classes=10)
learner.tell(np.arange(2_000), np.arange(2_000) % 10)
learner.fit()
"""


def commands(folder: Path) -> dict[str, list[str]]:
    """Return the tasks as commands, by what they do."""
    texts = folder / "texts.csv"
    write_texts(texts, TEXTS)
    new_campaign = "from teeter.cli import main; main()"
    return {
        f"campaign new, {TEXTS:,} texts, tfidf": [
            *(sys.executable, "-c", new_campaign, "campaign", "new", str(texts)),
            *("--classes", "a,b,c", "--encoder", "tfidf", "--file"),
        ],
        "ten selections by LDM-S, 10,000 x 128": [sys.executable, "-c", SELECTION],
        "training an MLP on 2,000 labels": [sys.executable, "-c", TRAINING],
    }


@contextmanager
def busy_program() -> Iterator[None]:
    """Run a program that keeps one core busy."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def measure(command: list[str], threads: int, folder: Path) -> float:
    """Return the seconds of a task in a new process."""
    if command[-1] == "--file":
        path = folder / f"{time.monotonic_ns()}.teeter"
        command = [*command, str(path)]

    environment = os.environ | {"OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "PASSIVE"}
    started = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, env=environment)
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=3, help="the fastest of so many counts")
    parser.add_argument("--out", type=Path, help="file for the result as JSON")
    options = parser.parse_args()

    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for what, command in commands(folder).items():
            row: dict[str, Any] = {"task": what}
            for threads in (1, 2):
                repeats = range(options.repeats)
                row[f"alone, {threads}"] = min(measure(command, threads, folder) for _ in repeats)
                with busy_program():
                    row[f"busy, {threads}"] = min(
                        measure(command, threads, folder) for _ in repeats
                    )
            row["two / one, busy"] = row["busy, 2"] / row["busy, 1"]
            rows.append(row)
            print(format_table([row]), flush=True)

    save_result(
        options.out,
        {**describe_setup(torch.device("cpu")), "repeats": options.repeats, "busy": rows},
    )


if __name__ == "__main__":
    main()
