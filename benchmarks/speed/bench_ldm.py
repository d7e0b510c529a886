"""How much faster rays are than the paper's Algorithm 1 at equal or better estimates, and how their
cost grows.

Every estimate of the LDM is an upper bound, so lower is better. Algorithm 1 runs as its authors run
it: patience 10, 51 strengths, one hypothesis at a time. Rays get the fewest, in powers of two,
whose mean LDM is at or below Algorithm 1's.

    python benchmarks/speed/bench_ldm.py --threads 2      four sizes on two CPU cores
    python benchmarks/speed/bench_ldm.py --device cuda    five sizes on the GPU
"""

from __future__ import annotations

import argparse
import statistics
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch
from measure import describe_setup, fit_exponent, format_table, measure_seconds, save_result
from torch import Tensor

import teeter
from teeter.kernels.ldm import paper_sigmas, search_by_gaussian

FIVE = [
    (2_000, 128, 10),
    (4_000, 512, 10),
    (10_000, 512, 100),
    (20_000, 2_048, 200),
    (15_000, 2_048, 101),
]
SIZES = {"cpu": [(1_000, 128, 10), *FIVE[:3]], "cuda": FIVE}
GROWTH = {
    "cpu": ((2_000, 128, 10, 256), 2, 4),
    "cuda": ((20_000, 512, 50, 1024), 2, 4),
}


def pool(
    rows: int, width: int, classes: int, device: torch.device
) -> tuple[Tensor, Tensor, Tensor]:
    """Return features around class centres, and the head that the centres suggest."""
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(classes, width, generator=generator)
    labels = torch.randint(classes, (rows,), generator=generator)
    features = torch.relu(centres[labels] + 1.5 * torch.randn(rows, width, generator=generator))
    weight = torch.relu(centres)
    weight = (weight - weight.mean(dim=0)) / width**0.5
    return features.to(device), weight.to(device), torch.zeros(classes, device=device)


def compare(
    rows: int, width: int, classes: int, device: torch.device, repeats: int
) -> dict[str, Any]:
    """Time both estimators on one pool, in one run."""
    arrays = pool(rows, width, classes, device)
    draws, by_paper, paper_times = [], [], []
    for seed in range(repeats):
        start = time.perf_counter()
        found, taken = search_by_gaussian(
            *arrays, sigmas=paper_sigmas(), patience=10, seed=seed, batch=1
        )
        by_paper.append(float(found.mean()))  # waits for a GPU, too
        paper_times.append(time.perf_counter() - start)
        draws.append(taken)
    paper_seconds, goal = statistics.median(paper_times), statistics.median(by_paper)
    rays = 1
    while True:
        ours = [float(teeter.ldm(*arrays, rays=rays, seed=seed).mean()) for seed in range(repeats)]
        if statistics.median(ours) <= goal:
            break
        rays *= 2
    ray_seconds = measure_seconds(
        partial(teeter.ldm, *arrays, rays=rays), device, repeats=max(repeats, 5)
    )
    ratio, fewer = paper_seconds / ray_seconds, statistics.median(draws) / max(1, rays // 2)
    return {
        "N": rows,
        "D": width,
        "C": classes,
        "Algorithm 1 (s)": paper_seconds,
        "its draws": int(statistics.median(draws)),
        "its mean LDM": goal,
        "rays": rays,
        "rays (s)": ray_seconds,
        "their mean LDM": statistics.median(ours),
        "ratio": ratio,
        "ratio / (draws / directions)": ratio / fewer,
    }


def growth(device: torch.device) -> list[dict[str, Any]]:
    """Time rays as one size at a time grows, and fit ``time = a * size^k``."""
    base, factor, steps = GROWTH[device.type]
    lines = []
    for axis, name in enumerate(["N", "D", "C", "rays"]):
        sizes = [base[axis] * factor**step for step in range(steps)]
        times = []
        for size in sizes:
            rows, width, classes, rays = (size if i == axis else base[i] for i in range(4))
            arrays = pool(rows, width, classes, device)
            times.append(measure_seconds(partial(teeter.ldm, *arrays, rays=rays), device))
        told = {
            "grows": name,
            "from": sizes[0],
            "to": sizes[-1],
            "first (s)": times[0],
            "last (s)": times[-1],
        }
        lines.append({**told, "exponent": fit_exponent(sizes, times)})
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, help="where to write the result as JSON")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    device = torch.device(options.device)
    comparisons = []
    for rows, width, classes in SIZES[device.type]:
        long = device.type == "cpu" and rows * width * classes > 10**8  # minutes a time
        comparisons.append(compare(rows, width, classes, device, 1 if long else options.repeats))
    print(format_table(comparisons), end="\n\n", flush=True)
    grown = growth(device)
    print(format_table(grown))
    save_result(
        options.out, {**describe_setup(device), "comparison": comparisons, "growth of rays": grown}
    )


if __name__ == "__main__":
    main()
