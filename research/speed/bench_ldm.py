"""How much faster rays are than the paper's Algorithm 1 at equal or better estimates, and how their
cost grows.

Every estimate of the LDM is an upper bound, so lower is better. Algorithm 1 runs as its authors run
it: patience 10, 51 strengths, one hypothesis at a time, one stop counter for all rows. Rays get the
fewest, in powers of two, whose mean LDM is at or below Algorithm 1's.

    python research/speed/bench_ldm.py --threads 2      four sizes on two CPU cores
    python research/speed/bench_ldm.py --device cuda    five sizes on the GPU
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
from teeter.kernels.directions import DEFAULT_SUBSPACE
from teeter.kernels.ldm import paper_sigmas, search_by_gaussian

SIZES = {
    "cpu": [
        (1_000, 128, 10),
        (2_000, 128, 10),
        (4_000, 512, 10),
        (10_000, 512, 100),
    ],
    "cuda": [
        (2_000, 128, 10),
        (4_000, 512, 10),
        (10_000, 512, 100),
        (20_000, 2_048, 200),
        (15_000, 2_048, 101),
    ],
}
"""N, D and C of the pools on which the estimators are compared."""

LARGEST_REPEATED = 10**8
"""Product of N, D and C above which a CPU runs Algorithm 1 only once: it takes minutes."""

GROWTH_BASE = {
    "cpu": (2_000, 128, 10, 256),
    "cuda": (20_000, 512, 50, 1024),
}
"""Smallest N, D, C and number of rays. Each is doubled three times while the others stay fixed."""
GROWTH_STEPS = 4


def make_pool(
    rows: int, width: int, classes: int, device: torch.device
) -> tuple[Tensor, Tensor, Tensor]:
    """Draw features around class centres, and derive a head from the centres.

    Returns:
        The features (N, D), the weight (C, D) and the bias (C,).
    """
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(classes, width, generator=generator)
    labels = torch.randint(classes, (rows,), generator=generator)
    noise = torch.randn(rows, width, generator=generator)
    features = torch.relu(centres[labels] + 1.5 * noise)

    weight = torch.relu(centres)
    weight = (weight - weight.mean(dim=0)) / width**0.5
    bias = torch.zeros(classes, device=device)
    return features.to(device), weight.to(device), bias


def compare(
    rows: int, width: int, classes: int, device: torch.device, repeats: int
) -> dict[str, Any]:
    """Time both estimators on one pool, in one run."""
    features, weight, bias = make_pool(rows, width, classes, device)

    draw_counts = []
    paper_means = []
    paper_times = []
    for seed in range(repeats):
        started = time.perf_counter()
        estimates, draws = search_by_gaussian(
            features, weight, bias, sigmas=paper_sigmas(), patience=10, seed=seed, batch=1
        )
        paper_means.append(float(estimates.mean()))  # waits for a GPU, too
        paper_times.append(time.perf_counter() - started)
        draw_counts.append(draws)
    paper_mean = statistics.median(paper_means)
    paper_seconds = statistics.median(paper_times)

    rays = 1
    while True:
        ray_means = [
            float(teeter.ldm(features, weight, bias, rays=rays, seed=seed).mean())
            for seed in range(repeats)
        ]
        if statistics.median(ray_means) <= paper_mean:
            break
        rays *= 2
    ray_seconds = measure_seconds(
        partial(teeter.ldm, features, weight, bias, rays=rays), device, repeats=max(repeats, 5)
    )

    # A direction is searched both ways: it gives two rays.
    directions = max(1, rays // 2)
    draws_per_direction = statistics.median(draw_counts) / directions
    ratio = paper_seconds / ray_seconds
    return {
        "N": rows,
        "D": width,
        "C": classes,
        "Algorithm 1 (s)": paper_seconds,
        "its draws": int(statistics.median(draw_counts)),
        "its mean LDM": paper_mean,
        "rays": rays,
        "rays (s)": ray_seconds,
        "their mean LDM": statistics.median(ray_means),
        "ratio": ratio,
        "ratio / (draws / directions)": ratio / draws_per_direction,
    }


def measure_growth(device: torch.device) -> list[dict[str, Any]]:
    """Time rays as one size at a time grows, and fit ``time = a * size^k``."""
    base = GROWTH_BASE[device.type]

    lines = []
    for axis, name in enumerate(["N", "D", "C", "rays"]):
        sizes = [base[axis] * 2**step for step in range(GROWTH_STEPS)]
        times = []
        for size in sizes:
            grown = list(base)
            grown[axis] = size
            rows, width, classes, rays = grown
            pool = make_pool(rows, width, classes, device)
            times.append(measure_seconds(partial(teeter.ldm, *pool, rays=rays), device))
        lines.append(
            {
                "grows": name,
                "from": sizes[0],
                "to": sizes[-1],
                "first (s)": times[0],
                "last (s)": times[-1],
                "exponent": fit_exponent(sizes, times),
            }
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, help="file for the result as JSON")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    device = torch.device(options.device)

    comparisons = []
    for rows, width, classes in SIZES[device.type]:
        repeats = options.repeats
        if device.type == "cpu" and rows * width * classes > LARGEST_REPEATED:
            repeats = 1
        comparisons.append(compare(rows, width, classes, device, repeats))
    print(format_table(comparisons), end="\n\n", flush=True)

    growth = measure_growth(device)
    print(format_table(growth))

    result = {
        **describe_setup(device),
        "subspace": DEFAULT_SUBSPACE,
        "comparison": comparisons,
        "growth of rays": growth,
    }
    save_result(options.out, result)


if __name__ == "__main__":
    main()
