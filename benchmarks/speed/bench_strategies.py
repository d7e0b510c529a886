"""Measure the time and memory of every strategy, and how they grow with the sizes.

Each measurement runs in a process with a fixed number of threads, so that its peak memory is its
own, and is the median over seeds. A cell that takes longer than --patience seconds is cancelled and
marked as such. scikit-activeml needs ``pip install '.[oracles]'``.

    python benchmarks/speed/bench_strategies.py --part peers     beside scikit-activeml
    python benchmarks/speed/bench_strategies.py --part growth    against N, C, D and n
    python benchmarks/speed/bench_strategies.py --part bait      BAIT beside its usual formulation
    python benchmarks/speed/bench_strategies.py --part gpu       sizes on a GPU
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from bench_ldm import make_pool
from measure import (
    describe_setup,
    fit_exponent,
    format_table,
    format_table_row,
    measure_seconds,
    save_result,
)
from torch import Tensor

import teeter
from teeter.kernels.bait import bait
from teeter.kernels.kmeans import k_means
from teeter.kernels.ldm import ldm_by_gaussian, paper_sigmas
from teeter.kernels.seeding import ldm_log_weights
from teeter.strategies.api import build_context, make_strategy

LABELLED, SAMPLES = 100, 10
PEERS = {"badge": 100, "coreset": 100, "probcover": 100, "typiclust": 100, "batchbald": 10}
"""Strategies that scikit-activeml has too, and how many rows are picked."""
RADIUS = 0.9
"""Near the radius that the purity rule finds on these pools."""


@dataclass(frozen=True)
class Cell:
    """One measurement."""

    library: str
    strategy: str
    N: int
    D: int = 128
    C: int = 10
    n: int = 100
    configurations: int = 10_000
    repeats: int = 3


def outputs_of(rows: int, width: int, classes: int, device: torch.device) -> teeter.Outputs:
    """Return a pool around class centres with its head, and a posterior of jittered logits."""
    features, weight, bias = make_pool(rows, width, classes, device)
    logits = features @ weight.T + bias
    generator = torch.Generator().manual_seed(1)
    jitter = torch.randn(SAMPLES, rows, classes, generator=generator).to(device)
    return teeter.Outputs(logits, features, weight, bias, 4 * logits + jitter)


def ours(cell: Cell, device: torch.device) -> Callable[[], object]:
    """Return teeter's selection as a call; outputs are there already, as they are for the peer."""
    everything = outputs_of(cell.N + LABELLED, cell.D, cell.C, device)
    labelled, candidates = (
        everything.take(np.arange(LABELLED)),
        everything.take(np.arange(LABELLED, len(everything))),
    )
    options: dict[str, Any] = {}
    if cell.strategy == "probcover":
        options["radius"] = RADIUS
    if cell.strategy == "batchbald":
        options["configurations"] = cell.configurations
    strategy = make_strategy(cell.strategy, options)
    labels = np.arange(LABELLED) % cell.C
    seeds = itertools.count()  # k-means takes more steps from one start than from another

    def run() -> object:
        context = build_context(
            candidates, labelled=labelled, labels=labels, seed=next(seeds), device=device
        )
        return strategy.select(context, cell.n)

    return run


def theirs(cell: Cell) -> Callable[[], object]:
    """Return scikit-activeml's selection as a call, on the same rows; its classifier knows the
    answers already.
    """
    from skactiveml import pool as peers
    from skactiveml.base import SkactivemlClassifier
    from skactiveml.pool import batch_bald

    everything = outputs_of(cell.N + LABELLED, cell.D, cell.C, torch.device("cpu"))
    if (
        everything.features is None
        or everything.logits is None
        or everything.posterior_logits is None
    ):
        raise TypeError("the pool has everything")
    X = everything.features.numpy().astype(np.float64)
    y = np.full(len(X), np.nan)
    y[:LABELLED] = np.arange(LABELLED) % cell.C
    probabilities = everything.logits.softmax(dim=1).numpy()[LABELLED:]

    class Known(SkactivemlClassifier):  # type: ignore[misc]
        def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
            self._validate_data(X=X, y=y, sample_weight=sample_weight, check_X_dict={})
            return self

        def predict_proba(self, X: Any) -> Any:
            return probabilities

    seeds = itertools.count()
    if cell.strategy == "batchbald":
        posterior = (
            everything.posterior_logits.softmax(dim=2).numpy()[:, LABELLED:].astype(np.float64)
        )
        return lambda: batch_bald(
            posterior, cell.n, n_MC_samples=cell.configurations, random_state=next(seeds)
        )
    if cell.strategy == "badge":
        known = Known(classes=np.arange(cell.C)).fit(X, y)
        return lambda: peers.Badge(random_state=next(seeds)).query(
            X, y, clf=known, fit_clf=False, batch_size=cell.n
        )
    units = X / np.linalg.norm(X, axis=1, keepdims=True)
    query = {
        "coreset": lambda: peers.CoreSet(random_state=next(seeds)).query(X, y, batch_size=cell.n),
        "probcover": lambda: peers.ProbCover(
            n_classes=cell.C, deltas=[RADIUS], random_state=next(seeds)
        ).query(units, y, batch_size=cell.n),
        "typiclust": lambda: peers.TypiClust(k=20, random_state=next(seeds)).query(
            X, y, batch_size=cell.n
        ),
    }
    return query[cell.strategy]


def papers(cell: Cell, device: torch.device) -> Callable[[], object]:
    """Return LDM-S as the paper's authors run it, as a call: one hypothesis at a time, then one
    pick at a time.
    """
    features, weight, bias = make_pool(cell.N, cell.D, cell.C, device)
    seeds = itertools.count()

    def run() -> object:
        seed = next(seeds)
        values = ldm_by_gaussian(
            features, weight, bias, sigmas=paper_sigmas(), patience=10, seed=seed, batch=1
        )
        return one_at_a_time(values, features, cell.n, seed)

    return run


def one_at_a_time(values: Tensor, features: Tensor, n: int, seed: int) -> Tensor:
    """Return n rows by LDM-Seeding as k-means++ is usually written: all rows are weighed anew for
    every pick.
    """
    generator = torch.Generator(features.device).manual_seed(seed)
    units = torch.nn.functional.normalize(features)
    weights = ldm_log_weights(values, n).exp()
    picks = values.argmin()[None]
    nearest = torch.full_like(weights, torch.inf)
    for _ in range(n - 1):
        nearest = torch.minimum(nearest, (1 - units @ units[picks[-1]]).clamp_min(0).double())
        chances = (weights * nearest).square()
        chances[picks[-1]] = 0
        ends = chances.cumsum(dim=0)
        point = (
            torch.rand((), generator=generator, device=features.device, dtype=torch.float64)
            * ends[-1]
        )
        picks = torch.cat(
            [picks, torch.searchsorted(ends, point, right=True).clamp_max(len(ends) - 1)[None]]
        )
    return picks


def usual_bait(cell: Cell, device: torch.device, picks: int) -> tuple[float, list[int]]:
    """Return the seconds of one forward pick as BAIT is usually written, and the first picks."""
    everything = outputs_of(cell.N + LABELLED, cell.D, cell.C, device)
    if everything.features is None or everything.logits is None:
        raise TypeError("the pool has everything")
    p, z = everything.logits.double().softmax(dim=1), everything.features.double()
    eye = torch.eye(cell.C, dtype=torch.float64, device=device)
    X = (p.sqrt()[:, :, None] * (eye - p[:, None]))[:, :, :, None] * z[:, None, None, :]
    X = X.view(len(z), cell.C, -1)
    known, free = X[:LABELLED].flatten(0, 1), X[LABELLED:]
    fisher = X.flatten(0, 1).T @ X.flatten(0, 1) / len(X)
    inverse = torch.linalg.inv(
        torch.eye(X.shape[2], dtype=torch.float64, device=device)
        + known.T @ known / (LABELLED + cell.n)
    )
    free = free * (cell.n / (LABELLED + cell.n)) ** 0.5
    chosen: list[int] = []
    start = time.perf_counter()
    for _ in range(picks):
        moved = free @ inverse
        inner = torch.linalg.inv(eye + moved @ free.transpose(1, 2))
        scores = (
            (moved @ fisher @ moved.transpose(1, 2) @ inner).diagonal(dim1=1, dim2=2).sum(dim=1)
        )
        scores[chosen] = -torch.inf
        best = int(scores.argmax())
        chosen.append(best)
        inverse = inverse - moved[best].T @ inner[best] @ moved[best]
    return (time.perf_counter() - start) / picks, chosen


def measure(cell: Cell) -> dict[str, Any]:
    """Run one cell here; return its median time and how far it raised the memory in use."""
    cpu = torch.device("cpu")
    work = {"teeter": lambda: ours(cell, cpu), "paper": lambda: papers(cell, cpu)}.get(
        cell.library, lambda: theirs(cell)
    )()
    times, peaks = [], []
    for _ in range(cell.repeats):
        before = _forget_peak()
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
        peaks.append((_status("VmHWM") - before) / 1024)
    return {"seconds": statistics.median(times), "peak MB": statistics.median(peaks)}


def _forget_peak() -> int:
    """Let the peak memory begin anew, so that set-up does not hide it; return what is in use, in
    KB.
    """
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # else work could hide in what set-up gave back
    Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def apart(cell: Cell, threads: int, patience: float) -> dict[str, Any] | None:
    """Run one cell in a process of its own; None if it ran out of time or memory."""
    pinned = {
        name: str(threads)
        for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    }
    command = [sys.executable, "-W", "ignore", __file__, "--cell", json.dumps(asdict(cell))]
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **pinned},
            capture_output=True,
            text=True,
            timeout=patience,
            check=True,
        )
    except subprocess.TimeoutExpired:
        return None
    except subprocess.CalledProcessError as error:
        print(
            f"{cell.library} {cell.strategy} at N = {cell.N:,} failed: "
            f"{error.stderr.strip().splitlines()[-1:]}"
        )
        return None
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def beside_peers(threads: int, patience: float, largest: int) -> list[dict[str, Any]]:
    lines = []
    for strategy, n in PEERS.items():
        for N in (size for size in (10_000, 100_000, 1_000_000) if size <= largest):
            # With 10,000 configurations of labels the peer takes 23 GB at N = 10,000.
            cell = Cell(
                "teeter", strategy, N, n=n, configurations=1_000, repeats=5 if N <= 10_000 else 1
            )
            us = apart(cell, threads, patience)
            them = apart(replace(cell, library="scikit-activeml"), threads, patience)
            lines.append(
                {
                    "strategy": strategy,
                    "N": N,
                    "n": n,
                    "teeter (s)": us["seconds"] if us else "gave up",
                    "scikit-activeml (s)": them["seconds"] if them else "gave up",
                    "times faster": them["seconds"] / us["seconds"] if us and them else "",
                    "teeter (MB)": us["peak MB"] if us else "",
                    "scikit-activeml (MB)": them["peak MB"] if them else "",
                }
            )
            print(format_table_row(lines[-1].values()), flush=True)
    return lines


def inertias() -> dict[str, float]:
    """Return the mean inertia of TypiClust's k-means over seeds: ours, and scikit-learn's, which
    the peer calls.
    """
    from sklearn.cluster import KMeans

    features = outputs_of(10_000, 128, 10, torch.device("cpu")).features
    if features is None:
        raise TypeError("the pool has features")
    clusters = LABELLED + PEERS["typiclust"]
    ours = [
        k_means(features, clusters, generator=torch.Generator().manual_seed(seed))[2]
        for seed in range(20)
    ]
    theirs = [
        float(KMeans(clusters, random_state=seed).fit(features.numpy()).inertia_)
        for seed in range(20)
    ]
    return {"teeter": statistics.mean(ours), "scikit-learn": statistics.mean(theirs)}


def growth(device: torch.device) -> list[dict[str, Any]]:
    lines = []
    for strategy in teeter.strategies.names():
        small = strategy in ("bait", "batchbald")
        base = Cell("teeter", strategy, *((600, 24, 5, 8) if small else (4_000, 64, 10, 50)))
        for name in ("N", "C", "D", "n"):
            sizes = [getattr(base, name) * 2**k for k in range(4)]
            times = [
                measure_seconds(ours(replace(base, **{name: size}), device), device, repeats=3)
                for size in sizes
            ]
            told = {"strategy": strategy, "grows": name, "from": sizes[0], "to": sizes[-1]}
            lines.append(
                {
                    **told,
                    "first (s)": times[0],
                    "last (s)": times[-1],
                    "exponent": fit_exponent(sizes, times),
                }
            )
        print(format_table(lines[-4:]), flush=True)
    return lines


def bait_beside_itself(device: torch.device) -> list[dict[str, Any]]:
    cell = Cell("teeter", "bait", 2_000, 128, 10, 100)
    work = ours(cell, device)
    us = measure_seconds(work, device, repeats=3, warmups=0)
    per_pick, first = usual_bait(cell, device, 200 if device.type == "cuda" else 5)
    everything = outputs_of(cell.N + LABELLED, cell.D, cell.C, device)
    if everything.features is None or everything.logits is None:
        raise TypeError("the pool has everything")
    forward = bait(
        everything.logits[LABELLED:],
        everything.features[LABELLED:],
        cell.n,
        labelled=(everything.logits[:LABELLED], everything.features[:LABELLED]),
        pruned=False,
    ).tolist()
    usual = per_pick * 2 * cell.n  # the backward pass over 2n rows is left out, in its favour
    return [
        {
            "N": cell.N,
            "D": cell.D,
            "C": cell.C,
            "n": cell.n,
            "teeter (s)": us,
            "usual, forward alone (s)": usual,
            "timed picks": len(first),
            "same picks": forward[: len(first)] == first,
            "times faster": usual / us,
        }
    ]


def on_gpu(device: torch.device) -> list[dict[str, Any]]:
    lines = []
    for strategy in teeter.strategies.names():
        for N in (10_000, 100_000) if strategy not in ("bait",) else (2_000,):
            cell = Cell("teeter", strategy, N, n=10 if strategy == "batchbald" else 100)
            torch.cuda.reset_peak_memory_stats()
            taken = measure_seconds(ours(cell, device), device, repeats=3)
            peak = torch.cuda.max_memory_allocated() / 2**20
            lines.append(
                {
                    "strategy": strategy,
                    "N": N,
                    "D": 128,
                    "C": 10,
                    "n": cell.n,
                    "s": taken,
                    "peak MB": peak,
                }
            )
            print(format_table_row(lines[-1].values()), flush=True)
    for N, D, C, n, form in [(4_000, 512, 10, 400, "exact"), (10_000, 512, 100, 2_000, "binary")]:
        known = outputs_of(N + 1000, D, C, device)
        context = build_context(
            known.take(np.arange(N)),
            labelled=known.take(np.arange(N, N + 1000)),
            labels=np.arange(1000) % C,
            device=device,
        )
        chosen = make_strategy("bait", {"form": form})
        torch.cuda.reset_peak_memory_stats()
        start = time.perf_counter()
        chosen.select(context, n)
        taken = time.perf_counter() - start
        peak = torch.cuda.max_memory_allocated() / 2**20
        lines.append(
            {
                "strategy": f"bait, {form}",
                "N": N,
                "D": D,
                "C": C,
                "n": n,
                "s": taken,
                "peak MB": peak,
            }
        )
        print(format_table_row(lines[-1].values()), flush=True)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--part", choices=["peers", "growth", "bait", "gpu"], default="peers")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--patience", type=float, default=120)
    parser.add_argument(
        "--largest", type=int, default=1_000_000, help="the largest pool beside peers"
    )
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--out", type=Path, help="where to write the result as JSON")
    parser.add_argument("--cell", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.cell:
        print(json.dumps(measure(Cell(**json.loads(options.cell)))))
        return
    torch.set_num_threads(options.threads)
    device = torch.device("cuda" if options.part == "gpu" else options.device)
    parts: dict[str, Callable[[], list[dict[str, Any]]]] = {
        "peers": lambda: beside_peers(options.threads, options.patience, options.largest),
        "growth": lambda: growth(device),
        "bait": lambda: bait_beside_itself(device),
        "gpu": lambda: on_gpu(device),
    }
    lines = parts[options.part]()
    print(format_table(lines))
    result = {**describe_setup(device), "threads": options.threads, options.part: lines}
    if options.part == "peers":
        result["patience"], result["k-means inertia"] = options.patience, inertias()
        print(result["k-means inertia"])
    save_result(options.out, result)


if __name__ == "__main__":
    main()
