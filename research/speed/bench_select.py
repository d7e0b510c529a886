"""How long `teeter select` takes from file to picks: 100,000 x 256 features, 10 classes, 1,000
picks, 512 rays.

python research/speed/bench_select.py
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from bench_ldm import make_pool
from measure import describe_setup, format_table, save_result

TEETER = [sys.executable, "-c", "from teeter.cli import main; main()"]

WIDTH = 256
CLASS_COUNT = 10
PICK_COUNT = 1000
RAY_COUNT = 512


def measure_selections(folder: Path, rows: int, repeats: int) -> list[float]:
    """Return the seconds of each run of ``teeter select``, including the start of Python."""
    features, weight, bias = make_pool(rows, WIDTH, CLASS_COUNT, torch.device("cpu"))
    pool_path = folder / "pool.npz"
    head_path = folder / "head.npz"
    np.savez(pool_path, features=features.numpy())
    np.savez(head_path, weight=weight.numpy(), bias=bias.numpy())

    command = [*TEETER, "select", str(pool_path), "--head", str(head_path)]
    command += ["-n", str(PICK_COUNT), "--option", f"rays={RAY_COUNT}"]
    command += ["--out", str(folder / "picks.csv")]

    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        times.append(time.perf_counter() - started)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, help="file for the result as JSON")
    options = parser.parse_args()

    with tempfile.TemporaryDirectory() as name:
        times = measure_selections(Path(name), options.rows, options.repeats)

    row = {
        "rows": options.rows,
        "D": WIDTH,
        "C": CLASS_COUNT,
        "n": PICK_COUNT,
        "rays": RAY_COUNT,
        "median (s)": statistics.median(times),
    }
    print(format_table([row]))
    setup = describe_setup(torch.device("cpu"))
    save_result(options.out, {**setup, "select": [row], "times": times})


if __name__ == "__main__":
    main()
