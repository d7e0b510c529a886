"""Measure the time and memory of every strategy, and how they grow with the sizes.

Each measurement runs in a process with a fixed number of threads, so that its peak memory is its
own, and is the median over seeds. A selection that takes longer than --patience seconds is
cancelled and marked as such. scikit-activeml needs ``pip install '.[oracles]'``.

    python research/speed/bench_strategies.py --part peers     beside scikit-activeml
    python research/speed/bench_strategies.py --part growth    against N, C, D and n
    python research/speed/bench_strategies.py --part bait      BAIT beside its usual formulation
    python research/speed/bench_strategies.py --part gpu       sizes on a GPU
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
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
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
from teeter.kernels.directions import DEFAULT_SUBSPACE
from teeter.kernels.kmeans import k_means
from teeter.kernels.ldm import ldm_by_gaussian, paper_sigmas
from teeter.kernels.seeding import ldm_log_weights
from teeter.strategies.api import build_context, make_strategy

LABELLED_COUNT = 100
POSTERIOR_SAMPLES = 10

PEER_PICKS = {"badge": 100, "coreset": 100, "probcover": 100, "typiclust": 100, "batchbald": 10}
"""Strategies that scikit-activeml has too, and how many rows are picked."""

PEER_POOL_SIZES = (10_000, 100_000, 1_000_000)

PROBCOVER_RADIUS = 0.9
"""Near the radius that the purity rule finds on these pools."""

TYPICLUST_NEIGHBOURS = 20
INERTIA_SEEDS = 20


class Library(StrEnum):
    """An implementation that is measured."""

    TEETER = "teeter"
    PAPER = "paper"
    SCIKIT_ACTIVEML = "scikit-activeml"


@dataclass(frozen=True)
class SelectionCase:
    """A selection to measure."""

    strategy: str
    N: int
    D: int = 128
    C: int = 10
    n: int = 100
    library: Library = Library.TEETER
    configurations: int = 10_000
    """Label configurations of BatchBALD."""
    repeats: int = 3


@dataclass(frozen=True)
class Cost:
    """Medians of the repeats of a selection."""

    seconds: float
    peak_mb: float


@dataclass(frozen=True, eq=False)
class SyntheticPool:
    """Rows around class centres, with the outputs of a model."""

    features: Tensor
    weight: Tensor
    bias: Tensor
    logits: Tensor
    posterior_logits: Tensor

    def to_outputs(self, *, several: bool = False) -> teeter.Outputs:
        return teeter.Outputs(
            self.logits,
            self.features,
            self.weight,
            self.bias,
            self.posterior_logits,
            several=several,
        )


def make_synthetic_pool(rows: int, width: int, classes: int, device: torch.device) -> SyntheticPool:
    """Draw a pool with its head, and a posterior of jittered logits."""
    features, weight, bias = make_pool(rows, width, classes, device)
    logits = features @ weight.T + bias
    generator = torch.Generator().manual_seed(1)
    jitter = torch.randn(POSTERIOR_SAMPLES, rows, classes, generator=generator).to(device)
    return SyntheticPool(features, weight, bias, logits, posterior_logits=4 * logits + jitter)


def make_labels(classes: int) -> npt.NDArray[np.int64]:
    """Return the labels of the labelled rows."""
    return np.arange(LABELLED_COUNT) % classes


# Selections, prepared so that a call does nothing but select


def prepare_teeter(case: SelectionCase, device: torch.device) -> Callable[[], object]:
    """Return a function that selects by teeter, from outputs that are computed beforehand."""
    several = case.strategy in teeter.strategies.SEVERAL_LABELS
    pool = make_synthetic_pool(case.N + LABELLED_COUNT, case.D, case.C, device)
    outputs = pool.to_outputs(several=several)
    labelled = outputs.take(np.arange(LABELLED_COUNT))
    candidates = outputs.take(np.arange(LABELLED_COUNT, len(outputs)))
    labels = make_labels(case.C)
    if several:
        # A second label for every other row, so that their numbers differ.
        labels = np.eye(case.C, dtype=np.int64)[labels]
        labels[::2, 0] = 1

    options: dict[str, Any] = {}
    if case.strategy == "probcover":
        options["radius"] = PROBCOVER_RADIUS
    if case.strategy == "batchbald":
        options["configurations"] = case.configurations
    strategy = make_strategy(case.strategy, options)
    seeds = itertools.count()  # k-means takes more steps from one start than from another

    def select() -> object:
        context = build_context(
            candidates, labelled=labelled, labels=labels, seed=next(seeds), device=device
        )
        return strategy.select(context, case.n)

    return select


def prepare_scikit_activeml(case: SelectionCase) -> Callable[[], object]:
    """Return a function that selects by scikit-activeml from the same rows.

    Its classifier has the probabilities from the start.
    """
    from skactiveml import pool as peers
    from skactiveml.base import SkactivemlClassifier
    from skactiveml.pool import batch_bald

    pool = make_synthetic_pool(case.N + LABELLED_COUNT, case.D, case.C, torch.device("cpu"))
    X = pool.features.numpy()
    y = np.full(len(X), np.nan)
    y[:LABELLED_COUNT] = make_labels(case.C)
    probabilities = pool.logits.softmax(dim=1).numpy()[LABELLED_COUNT:]
    seeds = itertools.count()

    class FixedClassifier(SkactivemlClassifier):  # type: ignore[misc]
        def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
            self._validate_data(X=X, y=y, sample_weight=sample_weight, check_X_dict={})
            return self

        def predict_proba(self, X: Any) -> Any:
            return probabilities

    if case.strategy == "batchbald":
        posterior = pool.posterior_logits.softmax(dim=2).numpy()[:, LABELLED_COUNT:]
        posterior = posterior.astype(np.float64)
        return lambda: batch_bald(
            posterior, case.n, n_MC_samples=case.configurations, random_state=next(seeds)
        )

    if case.strategy == "badge":
        classifier = FixedClassifier(classes=np.arange(case.C)).fit(X, y)
        return lambda: peers.Badge(random_state=next(seeds)).query(
            X, y, clf=classifier, fit_clf=False, batch_size=case.n
        )

    if case.strategy == "coreset":
        return lambda: peers.CoreSet(random_state=next(seeds)).query(X, y, batch_size=case.n)

    if case.strategy == "probcover":
        unit_rows = X / np.linalg.norm(X, axis=1, keepdims=True)
        return lambda: peers.ProbCover(
            n_classes=case.C, deltas=[PROBCOVER_RADIUS], random_state=next(seeds)
        ).query(unit_rows, y, batch_size=case.n)

    if case.strategy == "typiclust":
        return lambda: peers.TypiClust(k=TYPICLUST_NEIGHBOURS, random_state=next(seeds)).query(
            X, y, batch_size=case.n
        )

    raise KeyError(case.strategy)


def prepare_paper(case: SelectionCase, device: torch.device) -> Callable[[], object]:
    """Return a function that selects by LDM-S as the paper's authors run it.

    That is one hypothesis at a time, then one pick at a time.
    """
    features, weight, bias = make_pool(case.N, case.D, case.C, device)
    seeds = itertools.count()

    def select() -> object:
        seed = next(seeds)
        estimates = ldm_by_gaussian(
            features, weight, bias, sigmas=paper_sigmas(), patience=10, seed=seed, batch=1
        )
        return seed_one_at_a_time(estimates, features, case.n, seed)

    return select


def seed_one_at_a_time(estimates: Tensor, features: Tensor, n: int, seed: int) -> Tensor:
    """Return n rows by LDM-Seeding as k-means++ is usually written.

    The chances of all rows are computed again for every pick.

    Args:
        estimates: (N,) the LDM of each row.
        features: (N, D)
        n: number of picks.
        seed: seed of the draws.
    """
    generator = torch.Generator(features.device).manual_seed(seed)
    units = torch.nn.functional.normalize(features)
    weights = ldm_log_weights(estimates, n).exp()
    picks = estimates.argmin()[None]
    nearest = torch.full_like(weights, torch.inf)

    for _ in range(n - 1):
        last_pick = picks[-1]
        distances = (1 - units @ units[last_pick]).clamp_min(0).double()
        nearest = torch.minimum(nearest, distances)
        chances = (weights * nearest).square()
        chances[last_pick] = 0

        cumulative = chances.cumsum(dim=0)
        uniform = torch.rand((), generator=generator, device=features.device, dtype=torch.float64)
        pick = torch.searchsorted(cumulative, uniform * cumulative[-1], right=True)
        picks = torch.cat([picks, pick.clamp_max(len(cumulative) - 1)[None]])
    return picks


def run_usual_bait(
    case: SelectionCase, device: torch.device, pick_count: int
) -> tuple[float, list[int]]:
    """Pick by BAIT as it is usually written, forward only.

    Returns:
        The seconds of a pick, and the picks.
    """
    pool = make_synthetic_pool(case.N + LABELLED_COUNT, case.D, case.C, device)
    p = pool.logits.double().softmax(dim=1)  # (rows, C)
    z = pool.features.double()  # (rows, D)

    # The factor of a row's Fisher information, (rows, C, C * D).
    eye = torch.eye(case.C, dtype=torch.float64, device=device)
    X = (p.sqrt()[:, :, None] * (eye - p[:, None]))[:, :, :, None] * z[:, None, None, :]
    X = X.view(len(z), case.C, -1)

    labelled = X[:LABELLED_COUNT].flatten(0, 1)
    candidates = X[LABELLED_COUNT:]
    fisher = X.flatten(0, 1).T @ X.flatten(0, 1) / len(X)
    labels_after = LABELLED_COUNT + case.n
    inverse = torch.linalg.inv(
        torch.eye(X.shape[2], dtype=torch.float64, device=device)
        + labelled.T @ labelled / labels_after
    )
    candidates = candidates * (case.n / labels_after) ** 0.5

    picks: list[int] = []
    started = time.perf_counter()
    for _ in range(pick_count):
        moved = candidates @ inverse
        inner = torch.linalg.inv(eye + moved @ candidates.transpose(1, 2))
        products = moved @ fisher @ moved.transpose(1, 2) @ inner
        scores = products.diagonal(dim1=1, dim2=2).sum(dim=1)
        scores[picks] = -torch.inf
        best = int(scores.argmax())
        picks.append(best)
        inverse = inverse - moved[best].T @ inner[best] @ moved[best]
    return (time.perf_counter() - started) / pick_count, picks


# Time and memory of a process


def measure_case(case: SelectionCase) -> Cost:
    """Run a case in this process, and measure by how much it raises the memory in use."""
    cpu = torch.device("cpu")
    if case.library == Library.TEETER:
        select = prepare_teeter(case, cpu)
    elif case.library == Library.PAPER:
        select = prepare_paper(case, cpu)
    else:
        select = prepare_scikit_activeml(case)

    times = []
    peaks = []
    for _ in range(case.repeats):
        used_before = reset_peak_memory()
        started = time.perf_counter()
        select()
        times.append(time.perf_counter() - started)
        peaks.append((read_memory("VmHWM") - used_before) / 1024)
    return Cost(statistics.median(times), statistics.median(peaks))


def reset_peak_memory() -> int:
    """Reset the peak memory of this process, and return the memory in use in KB."""
    gc.collect()
    # Otherwise a selection could use memory that the set-up has freed, and seem to need none.
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    return read_memory("VmRSS")


def read_memory(field: str) -> int:
    """Return a field of this process's status in KB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1])
    raise KeyError(field)


def measure_in_subprocess(case: SelectionCase, threads: int, timeout: float) -> Cost | None:
    """Measure a case in a new process.

    Returns:
        Its cost, or None if it ran out of time or memory.
    """
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "OPENBLAS_NUM_THREADS": str(threads),
    }
    command = [sys.executable, "-W", "ignore", __file__, "--cell", json.dumps(asdict(case))]
    try:
        process = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=timeout, check=True
        )
    except subprocess.TimeoutExpired:
        return None
    except subprocess.CalledProcessError as error:
        print(
            f"{case.library} {case.strategy} at N = {case.N:,} failed: "
            f"{error.stderr.strip().splitlines()[-1:]}"
        )
        return None

    answer = json.loads(process.stdout.splitlines()[-1])
    return Cost(answer["seconds"], answer["peak MB"])


# Parts of the benchmark


def compare_with_peers(threads: int, timeout: float, largest: int) -> list[dict[str, Any]]:
    """Measure teeter and scikit-activeml on pools of up to ``largest`` rows."""
    rows = []
    for strategy, n in PEER_PICKS.items():
        for N in PEER_POOL_SIZES:
            if largest < N:
                continue

            case = SelectionCase(
                strategy,
                N,
                n=n,
                # With 10,000 configurations of labels the peer takes 23 GB at N = 10,000.
                configurations=1_000,
                repeats=5 if N <= 10_000 else 1,
            )
            peer_case = replace(case, library=Library.SCIKIT_ACTIVEML)
            cost = measure_in_subprocess(case, threads, timeout)
            peer_cost = measure_in_subprocess(peer_case, threads, timeout)

            ratio: float | str = ""
            if cost is not None and peer_cost is not None:
                ratio = peer_cost.seconds / cost.seconds
            row = {
                "strategy": strategy,
                "N": N,
                "n": n,
                "teeter (s)": cost.seconds if cost else "gave up",
                "scikit-activeml (s)": peer_cost.seconds if peer_cost else "gave up",
                "times faster": ratio,
                "teeter (MB)": cost.peak_mb if cost else "",
                "scikit-activeml (MB)": peer_cost.peak_mb if peer_cost else "",
            }
            rows.append(row)
            print(format_table_row(row.values()), flush=True)
    return rows


def compare_inertia() -> dict[str, float]:
    """Return the mean inertia over seeds of teeter's k-means, which TypiClust uses, and of
    scikit-learn's, which the peer uses.
    """
    from sklearn.cluster import KMeans

    features, _, _ = make_pool(10_000, 128, 10, torch.device("cpu"))
    clusters = LABELLED_COUNT + PEER_PICKS["typiclust"]
    teeter_inertia = []
    sklearn_inertia = []
    for seed in range(INERTIA_SEEDS):
        generator = torch.Generator().manual_seed(seed)
        _, _, inertia = k_means(features, clusters, generator=generator)
        teeter_inertia.append(inertia)

        peer = KMeans(clusters, random_state=seed).fit(features.numpy())
        sklearn_inertia.append(float(peer.inertia_))
    return {
        "teeter": statistics.mean(teeter_inertia),
        "scikit-learn": statistics.mean(sklearn_inertia),
    }


def measure_growth(device: torch.device, names: Sequence[str]) -> list[dict[str, Any]]:
    """Time strategies as one size at a time grows, and fit ``time = a * size^k``."""
    rows = []
    for strategy in names:
        base = SelectionCase(strategy, N=4_000, D=64, C=10, n=50)
        if strategy in ("bait", "batchbald"):
            base = SelectionCase(strategy, N=600, D=24, C=5, n=8)

        for name in ("N", "C", "D", "n"):
            sizes = [getattr(base, name) * 2**doublings for doublings in range(4)]
            times = []
            for size in sizes:
                select = prepare_teeter(replace(base, **{name: size}), device)
                times.append(measure_seconds(select, device, repeats=3))
            rows.append(
                {
                    "strategy": strategy,
                    "grows": name,
                    "from": sizes[0],
                    "to": sizes[-1],
                    "first (s)": times[0],
                    "last (s)": times[-1],
                    "exponent": fit_exponent(sizes, times),
                }
            )
        print(format_table(rows[-4:]), flush=True)
    return rows


def compare_bait(device: torch.device) -> list[dict[str, Any]]:
    """Time BAIT beside its usual formulation, and compare their first picks."""
    case = SelectionCase("bait", N=2_000, D=128, C=10, n=100)
    seconds = measure_seconds(prepare_teeter(case, device), device, repeats=3, warmups=0)

    timed_picks = 200 if device.type == "cuda" else 5
    seconds_per_pick, usual_picks = run_usual_bait(case, device, timed_picks)
    # The backward pass over 2n rows is left out, in favour of the usual formulation.
    usual_seconds = seconds_per_pick * 2 * case.n

    pool = make_synthetic_pool(case.N + LABELLED_COUNT, case.D, case.C, device)
    picks = bait(
        pool.logits[LABELLED_COUNT:],
        pool.features[LABELLED_COUNT:],
        case.n,
        labelled=(pool.logits[:LABELLED_COUNT], pool.features[:LABELLED_COUNT]),
        pruned=False,
    ).tolist()

    return [
        {
            "N": case.N,
            "D": case.D,
            "C": case.C,
            "n": case.n,
            "teeter (s)": seconds,
            "usual, forward alone (s)": usual_seconds,
            "timed picks": len(usual_picks),
            "same picks": picks[: len(usual_picks)] == usual_picks,
            "times faster": usual_seconds / seconds,
        }
    ]


def measure_on_gpu(device: torch.device, names: Sequence[str]) -> list[dict[str, Any]]:
    """Measure every strategy on a GPU, and two forms of BAIT on larger inputs."""
    rows = []
    for strategy in names:
        pool_sizes = (2_000,) if strategy == "bait" else (10_000, 100_000)
        for N in pool_sizes:
            case = SelectionCase(strategy, N, n=10 if strategy == "batchbald" else 100)
            torch.cuda.reset_peak_memory_stats()
            seconds = measure_seconds(prepare_teeter(case, device), device, repeats=3)
            rows.append(build_gpu_row(case, strategy, seconds))
            print(format_table_row(rows[-1].values()), flush=True)

    bait_cases = {}
    if "bait" in names:
        bait_cases = {
            "exact": SelectionCase("bait", N=4_000, D=512, C=10, n=400),
            "binary": SelectionCase("bait", N=10_000, D=512, C=100, n=2_000),
        }
    for form, case in bait_cases.items():
        seconds = time_large_bait(case, form, device)
        rows.append(build_gpu_row(case, f"bait, {form}", seconds))
        print(format_table_row(rows[-1].values()), flush=True)
    return rows


def time_large_bait(case: SelectionCase, form: str, device: torch.device) -> float:
    """Return the seconds of one selection by a form of BAIT, with 1,000 labelled rows."""
    labelled_count = 1000
    outputs = make_synthetic_pool(case.N + labelled_count, case.D, case.C, device).to_outputs()
    context = build_context(
        outputs.take(np.arange(case.N)),
        labelled=outputs.take(np.arange(case.N, case.N + labelled_count)),
        labels=np.arange(labelled_count) % case.C,
        device=device,
    )
    strategy = make_strategy("bait", {"form": form})

    torch.cuda.reset_peak_memory_stats()
    started = time.perf_counter()
    strategy.select(context, case.n)
    return time.perf_counter() - started


def build_gpu_row(case: SelectionCase, name: str, seconds: float) -> dict[str, Any]:
    """Return a row with the peak memory of the GPU since it was last reset."""
    return {
        "strategy": name,
        "N": case.N,
        "D": case.D,
        "C": case.C,
        "n": case.n,
        "s": seconds,
        "peak MB": torch.cuda.max_memory_allocated() / 2**20,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--part", choices=["peers", "growth", "bait", "gpu"], default="peers")
    parser.add_argument(
        "--strategies", help="comma-separated: measure these again, and keep the others of --out"
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--patience", type=float, default=120, help="seconds before a selection is cancelled"
    )
    parser.add_argument(
        "--largest", type=int, default=1_000_000, help="the largest pool beside peers"
    )
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--out", type=Path, help="file for the result as JSON")
    parser.add_argument("--cell", dest="case", help=argparse.SUPPRESS)
    options = parser.parse_args()

    if options.case:
        cost = measure_case(SelectionCase(**json.loads(options.case)))
        print(json.dumps({"seconds": cost.seconds, "peak MB": cost.peak_mb}))
        return

    torch.set_num_threads(options.threads)
    device = torch.device("cuda" if options.part == "gpu" else options.device)
    names = teeter.strategies.names()
    if options.strategies:
        names = options.strategies.split(",")
    parts: dict[str, Callable[[], list[dict[str, Any]]]] = {
        "peers": lambda: compare_with_peers(options.threads, options.patience, options.largest),
        "growth": lambda: measure_growth(device, names),
        "bait": lambda: compare_bait(device),
        "gpu": lambda: measure_on_gpu(device, names),
    }
    rows = parts[options.part]()
    print(format_table(rows))

    result = {
        **describe_setup(device),
        "threads": options.threads,
        "subspace": DEFAULT_SUBSPACE,
        options.part: rows,
    }
    if options.strategies:
        result = json.loads(options.out.read_text())
        others = [row for row in result[options.part] if row["strategy"] not in names]
        result[options.part] = sorted(others + rows, key=lambda row: str(row["strategy"]))
    if options.part == "peers":
        result["patience"] = options.patience
        result["k-means inertia"] = compare_inertia()
        print(result["k-means inertia"])
    save_result(options.out, result)


if __name__ == "__main__":
    main()
