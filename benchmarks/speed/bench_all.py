"""Time teeter beside the paper's LDM-S and scikit-activeml, and compare with a lower bound.

The lower bound is the time that the indispensable operations and bytes of an algorithm would take
at the rates measured in the same run, for products and for copies. Growth is LDM-S against one size
at a time. scikit-activeml needs ``pip install '.[oracles]'``.

    python benchmarks/speed/bench_all.py                     one CPU thread
    python benchmarks/speed/bench_all.py --device cuda       a GPU, with ImageNet's setting
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from bench_ldm import make_pool
from bench_strategies import LABELLED, PEERS, Cell, apart, one_at_a_time, ours, papers
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

IMAGENET = Cell("teeter", "ldm-s", 256_240, 512, 1_000, 64_060)
RAYS = 512
GROWTH = {
    "cpu": Cell("teeter", "ldm-s", 1_000, 64, 10, 50),
    "cuda": Cell("teeter", "ldm-s", 10_000, 128, 20, 200),
}


def rates(device: torch.device) -> dict[str, float]:
    """Return what this machine does in a second: operations of products, and bytes of copies."""
    size, dtype = (8192, torch.bfloat16) if device.type == "cuda" else (1024, torch.float32)
    square = torch.randn(size, size, device=device).to(dtype)
    long = torch.empty(1 << (30 if device.type == "cuda" else 26), dtype=torch.uint8, device=device)
    return {
        "operations a second": 2 * size**3 / measure_seconds(lambda: square @ square, device),
        "bytes a second": 2 * len(long) / measure_seconds(lambda: long.clone(), device),
    }


def needed(cell: Cell, subspace: int | None) -> tuple[float, float] | None:
    """Return the operations and bytes that a selection cannot do without; None where they depend on
    the data.

    Args:
        cell: the selection.
        subspace: dimensions of the subspaces of the rays; None for isotropic rays.
    """
    N, D, C, n, known = cell.N, cell.D, cell.C, cell.n, LABELLED
    ldm = N * C * D * RAYS
    if subspace is not None:
        # The logits, the projections into a subspace for every 32 rays, and the changes.
        ldm = 2 * N * C * D + N * D * subspace * RAYS // 16 + N * C * subspace * RAYS
    counts: dict[str, tuple[float, float]] = {
        "ldm": (ldm, 8 * RAYS * N),
        "ldm-s": (ldm + 2 * N * D * n, 8 * RAYS * N + 4 * N * D),
        "seeding": (2 * N * D * n, 4 * N * D),
        "badge": (2 * N * (C + D) * n, 4 * N * (C + D)),
        "coreset": (2 * N * D * (n + known), 4 * N * D),
        "probcover": (N * N * D, 4 * N * D),
    }
    return counts.get(cell.strategy)


def line(
    cell: Cell,
    us: dict[str, Any] | None,
    others: Mapping[str, dict[str, Any] | None],
    rate: dict[str, float],
    *,
    subspace: int | None = DEFAULT_SUBSPACE,
) -> Any:
    """Return a row of the table."""
    count = needed(cell, subspace)
    floor = (
        max(count[0] / rate["operations a second"], count[1] / rate["bytes a second"])
        if count
        else None
    )
    row: dict[str, Any] = {name: getattr(cell, name) for name in ("strategy", "N", "D", "C", "n")}
    row |= {
        "teeter (s)": us["seconds"] if us else None,
        "teeter (MB)": us["peak MB"] if us else None,
    }
    for name in ("the paper's", "scikit-activeml"):
        them = others.get(name)
        row[f"{name} (s)"], row[f"{name} (MB)"] = (
            (them["seconds"], them["peak MB"]) if them else (None, None)
        )
        row[f"times faster than {name}"] = them["seconds"] / us["seconds"] if us and them else None
    row |= {"floor (s)": floor, "times the floor": us["seconds"] / floor if us and floor else None}
    return row


def on_cpu(threads: int, patience: float, rate: dict[str, float]) -> list[dict[str, Any]]:
    """Compare in processes of their own."""
    rows = []
    cells = [Cell("teeter", "ldm-s", N, n=100) for N in (2_000, 10_000)]
    cells += [Cell("teeter", name, 10_000, n=n, configurations=1_000) for name, n in PEERS.items()]
    for cell in cells:
        others = {}
        if cell.strategy == "ldm-s":
            others["the paper's"] = apart(
                replace(cell, library="paper", repeats=1), threads, patience
            )
        elif find_spec("skactiveml"):
            others["scikit-activeml"] = apart(
                replace(cell, library="scikit-activeml"), threads, patience
            )
        rows.append(line(cell, apart(cell, threads, patience), others, rate))
        print(format_table_row(rows[-1].values()), flush=True)
    return rows


def on_gpu(device: torch.device, rate: dict[str, float]) -> list[dict[str, Any]]:
    """Compare on a GPU, and take ImageNet's setting to pieces."""
    rows = []
    for cell in [Cell("teeter", "ldm-s", N, n=100) for N in (2_000, 10_000)] + [
        Cell("teeter", name, N, n=100)
        for name in ("ldm-s", "badge", "coreset", "probcover")
        for N in (100_000,)
    ]:
        paper = (
            timed(papers(cell, device), device, repeats=1)
            if cell.strategy == "ldm-s" and cell.N < 50_000
            else None
        )
        rows.append(line(cell, timed(ours(cell, device), device), {"the paper's": paper}, rate))
        print(format_table_row(rows[-1].values()), flush=True)
    cell = IMAGENET
    features, weight, bias = make_pool(cell.N, cell.D, cell.C, device)
    outputs = teeter.Outputs(features=features, weight=weight, bias=bias)
    values = torch.as_tensor(teeter.ldm(features, weight, bias, rays=RAYS))
    seeded = partial(ldm_seeding, values, features, cell.n)
    parts: dict[str, Callable[[], object]] = {
        "ldm": lambda: teeter.ldm(features, weight, bias, rays=RAYS),
        "seeding": lambda: seeded(generator=torch.Generator(device).manual_seed(0)),
        "ldm-s": lambda: teeter.select("ldm-s", outputs, cell.n, rays=RAYS),
    }
    one_by_one = timed(partial(one_at_a_time, values, features, cell.n, 0), device, repeats=1)
    for name, work in parts.items():
        them = {"the paper's": one_by_one} if name == "seeding" else {}
        rows.append(line(replace(cell, strategy=name), timed(work, device), them, rate))
        print(format_table_row(rows[-1].values()), flush=True)
    return rows


def timed(work: Callable[[], object], device: torch.device, *, repeats: int = 5) -> dict[str, Any]:
    """Return the median time after a first run, and the peak of memory on the GPU."""
    if repeats > 1:
        work()
    torch.cuda.reset_peak_memory_stats()
    taken = measure_seconds(work, device, repeats=repeats, warmups=0)
    return {"seconds": taken, "peak MB": torch.cuda.max_memory_allocated() / 2**20}


def growth(device: torch.device) -> list[dict[str, Any]]:
    """Time LDM-S as one size at a time grows: ours, and as the paper's authors run it."""
    base, lines = GROWTH[device.type], []
    for name in ("N", "C", "D", "n"):
        sizes = [getattr(base, name) * 2**k for k in range(4)]
        cells = [replace(base, **{name: size}) for size in sizes]
        for library, call, repeats in (("teeter", ours, 3), ("the paper's", papers, 1)):
            times = [
                measure_seconds(call(cell, device), device, repeats=repeats, warmups=repeats // 3)
                for cell in cells
            ]
            told = {"library": library, "grows": name, "sizes": sizes, "seconds": times}
            lines.append({**told, "exponent": fit_exponent(sizes, times)})
            print(
                library,
                name,
                [f"{one:.3g}" for one in times],
                f"{lines[-1]['exponent']:.2f}",
                flush=True,
            )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--patience", type=float, default=120)
    parser.add_argument("--out", type=Path, help="where to write the result as JSON")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    device = torch.device(options.device)
    rate = rates(device)
    print({name: f"{value:.3g}" for name, value in rate.items()}, flush=True)
    on_it = device.type == "cuda"
    rows = on_gpu(device, rate) if on_it else on_cpu(options.threads, options.patience, rate)
    grown = growth(device)
    print(format_table(rows))
    result = {
        **describe_setup(device),
        "subspace": DEFAULT_SUBSPACE,
        "rates": rate,
        "table": rows,
        "growth": grown,
    }
    save_result(options.out, result)


if __name__ == "__main__":
    main()
