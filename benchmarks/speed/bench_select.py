"""How long `teeter select` takes from file to picks: 100,000 x 256 features, 10 classes, 1,000
picks, 512 rays.

python benchmarks/speed/bench_select.py
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


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, help="where to write the result as JSON")
    options = parser.parse_args()
    cpu = torch.device("cpu")
    features, weight, bias = make_pool(options.rows, 256, 10, cpu)
    with tempfile.TemporaryDirectory() as folder:
        np.savez(f"{folder}/pool.npz", features=features.numpy())
        np.savez(f"{folder}/head.npz", weight=weight.numpy(), bias=bias.numpy())
        command = [
            sys.executable,
            "-c",
            "from teeter.cli import main; main()",
            "select",
            f"{folder}/pool.npz",
        ]
        command += [
            "--head",
            f"{folder}/head.npz",
            "-n",
            "1000",
            "--rays",
            "512",
            "--out",
            f"{folder}/picks.csv",
        ]
        times = []
        for _ in range(options.repeats):
            start = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True)
            times.append(time.perf_counter() - start)
    row = {
        "rows": options.rows,
        "D": 256,
        "C": 10,
        "n": 1000,
        "rays": 512,
        "median (s)": statistics.median(times),
    }
    print(format_table([row]))
    save_result(options.out, {**describe_setup(cpu), "select": [row], "times": times})


if __name__ == "__main__":
    main()
