"""Time teeter beside the paper's LDM-S and scikit-activeml, and compare with a lower bound.

The lower bound is the time that the indispensable operations and bytes of an algorithm would take
at the rates measured in the same run, for products and for copies. Growth is LDM-S against one size
at a time. scikit-activeml needs ``pip install '.[oracles]'``.

    python research/speed/bench_all.py                     one CPU thread
    python research/speed/bench_all.py --device cuda       a GPU, with ImageNet's setting
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from bench_ldm import make_pool
from bench_strategies import (
    LABELLED_COUNT,
    PEER_PICKS,
    Cost,
    Library,
    SelectionCase,
    measure_in_subprocess,
    prepare_paper,
    prepare_teeter,
    seed_one_at_a_time,
)
from measure import (
    describe_setup,
    fit_exponent,
    format_table,
    format_table_row,
    measure_seconds,
    save_result,
)

import teeter
from teeter.kernels.directions import DEFAULT_SUBSPACE
from teeter.kernels.seeding import ldm_seeding

PAPER = "the paper's"
SCIKIT_ACTIVEML = "scikit-activeml"

RAYS = 512
IMAGENET = SelectionCase("ldm-s", N=256_240, D=512, C=1_000, n=64_060)

GROWTH_BASE = {
    "cpu": SelectionCase("ldm-s", N=1_000, D=64, C=10, n=50),
    "cuda": SelectionCase("ldm-s", N=10_000, D=128, C=20, n=200),
}
"""The smallest sizes. Each is doubled three times while the others stay fixed."""


# The lower bound


@dataclass(frozen=True)
class Work:
    """What a selection cannot do without."""

    operations: float
    bytes: float


def measure_rates(device: torch.device) -> dict[str, float]:
    """Return what this machine does in a second: operations of products, and bytes of copies."""
    if device.type == "cuda":
        width = 8192
        dtype = torch.bfloat16
        buffer_size = 1 << 30
    else:
        width = 1024
        dtype = torch.float32
        buffer_size = 1 << 26
    matrix = torch.randn(width, width, device=device).to(dtype)
    buffer = torch.empty(buffer_size, dtype=torch.uint8, device=device)

    operations = 2 * width**3
    copied_bytes = 2 * buffer_size  # read and written
    return {
        "operations a second": operations / measure_seconds(lambda: matrix @ matrix, device),
        "bytes a second": copied_bytes / measure_seconds(buffer.clone, device),
    }


def count_work(case: SelectionCase, subspace: int | None) -> Work | None:
    """Count the operations and bytes that a selection cannot do without.

    Args:
        case: the selection.
        subspace: dimensions of the subspaces of the rays. None: isotropic rays.

    Returns:
        The work, or None if it depends on the data.
    """
    N = case.N
    D = case.D
    C = case.C
    n = case.n

    if subspace is None:
        ldm = N * C * D * RAYS
    else:
        # The logits, the projections into a subspace for every 32 rays, and the changes.
        ldm = 2 * N * C * D + N * D * subspace * RAYS // 16 + N * C * subspace * RAYS

    works = {
        "ldm": Work(ldm, 8 * RAYS * N),
        "ldm-s": Work(ldm + 2 * N * D * n, 8 * RAYS * N + 4 * N * D),
        "seeding": Work(2 * N * D * n, 4 * N * D),
        "badge": Work(2 * N * (C + D) * n, 4 * N * (C + D)),
        "coreset": Work(2 * N * D * (n + LABELLED_COUNT), 4 * N * D),
        "probcover": Work(N * N * D, 4 * N * D),
    }
    return works.get(case.strategy)


def compute_lower_bound(
    case: SelectionCase, rates: Mapping[str, float], subspace: int | None
) -> float | None:
    """Return the least seconds of a selection at the measured rates, or None if unknown."""
    work = count_work(case, subspace)
    if work is None:
        return None
    return max(
        work.operations / rates["operations a second"],
        work.bytes / rates["bytes a second"],
    )


# The table


def build_row(
    case: SelectionCase,
    cost: Cost | None,
    other_costs: Mapping[str, Cost | None],
    rates: Mapping[str, float],
    *,
    subspace: int | None = DEFAULT_SUBSPACE,
) -> dict[str, Any]:
    """Return a row of the table.

    Args:
        case: the selection.
        cost: the cost of teeter. None: it was not measured, or ran out of time or memory.
        other_costs: costs of the other implementations.
        rates: what the machine does in a second.
        subspace: dimensions of the subspaces of the rays. None: isotropic rays.
    """
    row: dict[str, Any] = {
        "strategy": case.strategy,
        "N": case.N,
        "D": case.D,
        "C": case.C,
        "n": case.n,
        "teeter (s)": cost.seconds if cost else None,
        "teeter (MB)": cost.peak_mb if cost else None,
    }

    for name in (PAPER, SCIKIT_ACTIVEML):
        other_cost = other_costs.get(name)
        row[f"{name} (s)"] = other_cost.seconds if other_cost else None
        row[f"{name} (MB)"] = other_cost.peak_mb if other_cost else None
        row[f"times faster than {name}"] = None
        if cost is not None and other_cost is not None:
            row[f"times faster than {name}"] = other_cost.seconds / cost.seconds

    lower_bound = compute_lower_bound(case, rates, subspace)
    row["floor (s)"] = lower_bound
    row["times the floor"] = None
    if cost is not None and lower_bound is not None:
        row["times the floor"] = cost.seconds / lower_bound
    return row


def compare_on_cpu(
    threads: int, timeout: float, rates: Mapping[str, float]
) -> list[dict[str, Any]]:
    """Compare on a CPU, each measurement in a new process."""
    cases = [SelectionCase("ldm-s", N, n=100) for N in (2_000, 10_000)]
    cases += [
        SelectionCase(strategy, 10_000, n=n, configurations=1_000)
        for strategy, n in PEER_PICKS.items()
    ]

    rows = []
    for case in cases:
        other_costs = {}
        if case.strategy == "ldm-s":
            paper_case = replace(case, library=Library.PAPER, repeats=1)
            other_costs[PAPER] = measure_in_subprocess(paper_case, threads, timeout)
        elif find_spec("skactiveml"):
            peer_case = replace(case, library=Library.SCIKIT_ACTIVEML)
            other_costs[SCIKIT_ACTIVEML] = measure_in_subprocess(peer_case, threads, timeout)

        cost = measure_in_subprocess(case, threads, timeout)
        rows.append(build_row(case, cost, other_costs, rates))
        print(format_table_row(rows[-1].values()), flush=True)
    return rows


def compare_on_gpu(device: torch.device, rates: Mapping[str, float]) -> list[dict[str, Any]]:
    """Compare on a GPU, and measure the parts of LDM-S in ImageNet's setting."""
    cases = [SelectionCase("ldm-s", N, n=100) for N in (2_000, 10_000)]
    strategies = ("ldm-s", "badge", "coreset", "probcover")
    cases += [SelectionCase(strategy, 100_000, n=100) for strategy in strategies]

    rows = []
    for case in cases:
        paper_cost = None
        if case.strategy == "ldm-s" and case.N < 50_000:
            paper_cost = measure_gpu_cost(prepare_paper(case, device), device, repeats=1)
        cost = measure_gpu_cost(prepare_teeter(case, device), device)
        rows.append(build_row(case, cost, {PAPER: paper_cost}, rates))
        print(format_table_row(rows[-1].values()), flush=True)

    features, weight, bias = make_pool(IMAGENET.N, IMAGENET.D, IMAGENET.C, device)
    outputs = teeter.Outputs(features=features, weight=weight, bias=bias)
    estimates = torch.as_tensor(teeter.ldm(features, weight, bias, rays=RAYS))

    def seed() -> object:
        generator = torch.Generator(device).manual_seed(0)
        return ldm_seeding(estimates, features, IMAGENET.n, generator=generator)

    parts: dict[str, Callable[[], object]] = {
        "ldm": lambda: teeter.ldm(features, weight, bias, rays=RAYS),
        "seeding": seed,
        "ldm-s": lambda: teeter.select("ldm-s", outputs, IMAGENET.n, options={"rays": RAYS}),
    }
    seed_as_usual = partial(seed_one_at_a_time, estimates, features, IMAGENET.n, 0)
    usual_seeding_cost = measure_gpu_cost(seed_as_usual, device, repeats=1)
    for name, work in parts.items():
        other_costs = {PAPER: usual_seeding_cost} if name == "seeding" else {}
        cost = measure_gpu_cost(work, device)
        rows.append(build_row(replace(IMAGENET, strategy=name), cost, other_costs, rates))
        print(format_table_row(rows[-1].values()), flush=True)
    return rows


def measure_gpu_cost(work: Callable[[], object], device: torch.device, *, repeats: int = 5) -> Cost:
    """Return the median time and the peak memory of the GPU, after a warm-up unless run once."""
    if repeats > 1:
        work()
    torch.cuda.reset_peak_memory_stats()
    seconds = measure_seconds(work, device, repeats=repeats, warmups=0)
    return Cost(seconds, torch.cuda.max_memory_allocated() / 2**20)


def measure_growth(device: torch.device) -> list[dict[str, Any]]:
    """Time LDM-S as one size at a time grows: teeter's, and as the paper's authors run it."""
    base = GROWTH_BASE[device.type]

    lines = []
    for name in ("N", "C", "D", "n"):
        sizes = [getattr(base, name) * 2**doublings for doublings in range(4)]
        cases = [replace(base, **{name: size}) for size in sizes]

        times = [measure_seconds(prepare_teeter(case, device), device, repeats=3) for case in cases]
        lines.append(report_growth("teeter", name, sizes, times))

        paper_times = [
            measure_seconds(prepare_paper(case, device), device, repeats=1, warmups=0)
            for case in cases
        ]
        lines.append(report_growth(PAPER, name, sizes, paper_times))
    return lines


def report_growth(library: str, name: str, sizes: list[int], times: list[float]) -> dict[str, Any]:
    """Print the growth with a size, and return it for the result."""
    exponent = fit_exponent(sizes, times)
    print(library, name, [f"{seconds:.3g}" for seconds in times], f"{exponent:.2f}", flush=True)
    return {
        "library": library,
        "grows": name,
        "sizes": sizes,
        "seconds": times,
        "exponent": exponent,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--patience", type=float, default=120, help="seconds before a selection is cancelled"
    )
    parser.add_argument("--out", type=Path, help="file for the result as JSON")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    device = torch.device(options.device)

    rates = measure_rates(device)
    print({name: f"{value:.3g}" for name, value in rates.items()}, flush=True)

    if device.type == "cuda":
        rows = compare_on_gpu(device, rates)
    else:
        rows = compare_on_cpu(options.threads, options.patience, rates)
    growth = measure_growth(device)
    print(format_table(rows))

    result = {
        **describe_setup(device),
        "subspace": DEFAULT_SUBSPACE,
        "rates": rates,
        "table": rows,
        "growth": growth,
    }
    save_result(options.out, result)


if __name__ == "__main__":
    main()
