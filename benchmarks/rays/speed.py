"""Time subspace rays beside isotropic rays, those of an earlier version too, and Algorithm 1.

    git worktree add ../earlier 40a72d2
    python benchmarks/rays/speed.py --baseline ../earlier/src --out benchmarks/rays/results/...

Every measurement is a process of its own, and the estimators take turns, so that a change of the
machine's speed meets all of them. A time is the median over the turns.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks" / "speed"))

CPU_CASES = [(10_000, 128, 10, 512), (10_000, 512, 100, 1024), (4_000, 2_048, 200, 1024)]
GPU_CASES = [
    (2_000, 128, 10, 512),
    (10_000, 512, 100, 1024),
    (20_000, 2_048, 200, 1024),
    (256_240, 512, 1_000, 512),
]
SELECTED = 64_060
"""Rows that LDM-S picks in the largest case."""

SUBSPACE = "subspace rays"
ISOTROPIC = "isotropic rays"
BASELINE = "isotropic rays, earlier version"
ALGORITHM_1 = "Algorithm 1"
SELECTION = "LDM-S, subspace rays"
BASELINE_SELECTION = "LDM-S, earlier version"


def run_cell(cell: dict[str, Any]) -> dict[str, Any]:
    """Time one estimator in this process: the best of a few runs after one that does not count."""
    import torch
    from bench_ldm import pool

    import teeter
    from teeter.kernels.ldm import paper_sigmas, search_by_gaussian

    torch.set_num_threads(cell["threads"])
    device = torch.device(cell["device"])
    features, weight, bias = pool(cell["N"], cell["D"], cell["C"], device)
    name = cell["estimator"]
    options: dict[str, Any] = {"rays": cell["rays"]}
    if name == ISOTROPIC:
        options["subspace"] = None

    def work() -> Any:
        if name == ALGORITHM_1:
            sigmas = paper_sigmas()
            return search_by_gaussian(
                features, weight, bias, sigmas=sigmas, patience=10, seed=0, batch=1
            )
        if name in (SELECTION, BASELINE_SELECTION):
            outputs = teeter.Outputs(features=features, weight=weight, bias=bias)
            return teeter.select("ldm-s", outputs, SELECTED, rays=cell["rays"])
        return teeter.ldm(features, weight, bias, **options)

    repeats = 1 if name == ALGORITHM_1 else cell["repeats"]
    seconds = []
    for number in range(repeats + 1):
        started = time.perf_counter()
        result = work()
        if device.type == "cuda":
            torch.cuda.synchronize()
        if number or repeats == 1:
            seconds.append(time.perf_counter() - started)
        if name == ALGORITHM_1:
            break

    mean = None
    if name == ALGORITHM_1:
        mean = float(result[0].mean())
    elif name not in (SELECTION, BASELINE_SELECTION):
        mean = float(result.mean())
    return {"seconds": min(seconds), "mean LDM": mean}


def run_apart(cell: dict[str, Any], source: Path) -> dict[str, Any]:
    """Run a cell in a process of its own, with the teeter of ``source``."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(source),
        "OMP_NUM_THREADS": str(cell["threads"]),
    }
    command = [sys.executable, "-W", "ignore", __file__, "--cell", json.dumps(cell)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def measure_case(
    sizes: tuple[int, int, int, int],
    *,
    device: str,
    threads: int,
    baseline: Path | None,
    turns: int,
    with_algorithm_1: bool,
) -> dict[str, Any]:
    """Time all estimators on one pool, in turns."""
    N, D, C, rays = sizes
    sources = {SUBSPACE: ROOT / "src", ISOTROPIC: ROOT / "src"}
    if baseline is not None:
        sources[BASELINE] = baseline
    if sizes == GPU_CASES[-1]:
        sources[SELECTION] = ROOT / "src"
        if baseline is not None:
            sources[BASELINE_SELECTION] = baseline

    results: dict[str, list[dict[str, Any]]] = {name: [] for name in sources}
    cell = {"N": N, "D": D, "C": C, "rays": rays, "device": device, "threads": threads}
    cell["repeats"] = 5 if device == "cuda" else 3
    for _ in range(turns):
        for name, source in sources.items():
            results[name].append(run_apart({**cell, "estimator": name}, source))
    if with_algorithm_1:
        results[ALGORITHM_1] = [run_apart({**cell, "estimator": ALGORITHM_1}, ROOT / "src")]

    row: dict[str, Any] = {"N": N, "D": D, "C": C, "rays": rays, "threads": threads}
    for name, runs in results.items():
        row[f"{name} (s)"] = statistics.median(run["seconds"] for run in runs)
        if runs[0]["mean LDM"] is not None:
            row[f"{name}, mean LDM"] = statistics.mean(run["mean LDM"] for run in runs)
    for name in results:
        if name not in (SUBSPACE, SELECTION, BASELINE_SELECTION):
            row[f"times faster than {name}"] = row[f"{name} (s)"] / row[f"{SUBSPACE} (s)"]
    return row


def main() -> None:
    """Measure all cases and write the result."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--threads", default="1,2", help="comma-separated numbers of CPU threads")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--baseline", type=Path, help="folder src of an earlier version")
    parser.add_argument("--out", type=Path, help="file for the result as JSON")
    parser.add_argument("--algorithm-1", type=int, default=0, help="cases that also time it")
    parser.add_argument("--cell", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.cell:
        print(json.dumps(run_cell(json.loads(options.cell))))
        return

    import torch
    from measure import facts, save

    threads = [int(text) for text in options.threads.split(",")]
    cases = CPU_CASES
    if options.device == "cuda":
        cases = GPU_CASES
        threads = threads[:1]
    rows = []
    for thread_count in threads:
        for number, sizes in enumerate(cases):
            row = measure_case(
                sizes,
                device=options.device,
                threads=thread_count,
                baseline=options.baseline,
                turns=options.turns,
                with_algorithm_1=number < options.algorithm_1 and thread_count == threads[0],
            )
            rows.append(row)
            print(json.dumps(row), flush=True)

    result = {
        **facts(torch.device(options.device)),
        "seed": 0,
        "turns": options.turns,
        "cases": rows,
    }
    save(options.out, result)


if __name__ == "__main__":
    main()
