"""Time subspace rays beside isotropic rays, those of an earlier version too, and Algorithm 1.

    git worktree add ../earlier 40a72d2
    python research/rays/speed.py --baseline ../earlier/src --out research/rays/results/...

Every measurement is a process of its own, and the estimators take turns, so that a change of the
machine's speed meets all of them. A time is the median over the turns, of the least of a few runs.
On one CPU thread it is the CPU time, which other programs change less than the time that passes.
The result has both, so that a reader sees whether the machine was quiet.
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
sys.path.insert(0, str(ROOT / "research" / "speed"))

Sizes = tuple[int, int, int, int]
"""N, D, C and the number of rays."""

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


def run_once(name: str, head: tuple[Any, Any, Any], options: dict[str, Any]) -> Any:
    """Return the estimates, or the picks of a selection."""
    import teeter
    from teeter.kernels.ldm import paper_sigmas, search_by_gaussian

    features, weight, bias = head
    if name == ALGORITHM_1:
        estimates, _ = search_by_gaussian(
            features, weight, bias, sigmas=paper_sigmas(), patience=10, seed=0, batch=1
        )
        return estimates
    if name in (SELECTION, BASELINE_SELECTION):
        outputs = teeter.Outputs(features=features, weight=weight, bias=bias)
        return teeter.select("ldm-s", outputs, SELECTED, options=options)
    return teeter.ldm(features, weight, bias, **options)


def run_estimator(job: dict[str, Any]) -> list[dict[str, Any]]:
    """Time one estimator on all cases in this process: the best of a few runs."""
    import torch
    from bench_ldm import make_pool

    torch.set_num_threads(job["threads"])
    device = torch.device(job["device"])
    name = job["estimator"]
    rows = []
    for N, D, C, rays in job["cases"]:
        features, weight, bias = make_pool(N, D, C, device)
        options: dict[str, Any] = {"rays": rays}
        if name == ISOTROPIC:
            options["subspace"] = None

        # The least of a few runs: other programs can only add to it.
        head = (features, weight, bias)
        passed = []
        computed = []
        for _ in range(job["repeats"]):
            started = time.perf_counter()
            cpu_started = time.process_time()
            result = run_once(name, head, options)
            if device.type == "cuda":
                torch.cuda.synchronize()
            computed.append(time.process_time() - cpu_started)
            passed.append(time.perf_counter() - started)

        is_one_thread = device.type == "cpu" and job["threads"] == 1
        row: dict[str, Any] = {
            "seconds": min(computed) if is_one_thread else min(passed),
            "passed": min(passed),
            "mean LDM": None,
        }
        if name not in (SELECTION, BASELINE_SELECTION):
            row["mean LDM"] = float(result.mean())
        rows.append(row)
    return rows


def run_apart(job: dict[str, Any], source: Path) -> list[dict[str, Any]]:
    """Run an estimator in a process of its own, with the teeter of ``source``."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(source),
        "OMP_NUM_THREADS": str(job["threads"]),
    }
    command = [sys.executable, "-W", "ignore", __file__, "--job", json.dumps(job)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    answer: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return answer


def measure(
    *, device: str, threads: int, baseline: Path | None, turns: int, with_algorithm_1: bool
) -> list[dict[str, Any]]:
    """Time all estimators on all cases, in turns."""
    cases = GPU_CASES if device == "cuda" else CPU_CASES
    current = ROOT / "src"
    sources = {SUBSPACE: current, ISOTROPIC: current}
    if baseline is not None:
        sources[BASELINE] = baseline
    if device == "cuda":
        sources[SELECTION] = current
        if baseline is not None:
            sources[BASELINE_SELECTION] = baseline
    if with_algorithm_1:
        sources[ALGORITHM_1] = current

    # By estimator, turn and case.
    runs: dict[str, list[list[dict[str, Any]]]] = {name: [] for name in sources}
    for turn in range(turns):
        for name, source in sources.items():
            # It takes minutes, and its time is not what is compared closely.
            if name == ALGORITHM_1 and turn:
                continue
            job = {
                "estimator": name,
                "device": device,
                "threads": threads,
                "cases": _cases_for(name, cases),
                "repeats": _repeats(name, device),
            }
            runs[name].append(run_apart(job, source))

    rows = []
    # Selections run in the last case only, so their rows have other places.
    for number, (N, D, C, rays) in enumerate(cases):
        row: dict[str, Any] = {"N": N, "D": D, "C": C, "rays": rays, "threads": threads}
        for name, turns_of_it in runs.items():
            is_selection = name in (SELECTION, BASELINE_SELECTION)
            if is_selection and number < len(cases) - 1:
                continue
            place = 0 if is_selection else number
            if place >= len(turns_of_it[0]):
                continue
            seconds = [turn_rows[place]["seconds"] for turn_rows in turns_of_it]
            row[f"{name} (s)"] = statistics.median(seconds)
            passed = [turn_rows[place]["passed"] for turn_rows in turns_of_it]
            row[f"{name}, passed (s)"] = statistics.median(passed)
            if not is_selection:
                row[f"{name}, mean LDM"] = turns_of_it[0][place]["mean LDM"]
                if name != SUBSPACE:
                    ratio = row[f"{name} (s)"] / row[f"{SUBSPACE} (s)"]
                    row[f"times faster than {name}"] = ratio
        rows.append(row)
    return rows


def _cases_for(name: str, cases: list[Sizes]) -> list[Sizes]:
    """Return the cases of an estimator: picks in the largest, Algorithm 1 in all others."""
    if name in (SELECTION, BASELINE_SELECTION):
        return cases[-1:]
    if name == ALGORITHM_1:
        return cases[:-1]
    return cases


def _repeats(name: str, device: str) -> int:
    """Return how often to run an estimator: the slow ones, which vary less, not so often."""
    if name == ALGORITHM_1:
        return 1
    if device == "cuda":
        return 7
    repeats = {SUBSPACE: 4, BASELINE: 2}
    return repeats.get(name, 1)


def main() -> None:
    """Measure all cases and write the result."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--baseline", type=Path, help="folder src of an earlier version")
    parser.add_argument("--algorithm-1", action="store_true", help="time Algorithm 1, too")
    parser.add_argument("--out", type=Path, help="file for the result as JSON")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        print(json.dumps(run_estimator(json.loads(options.job))))
        return

    import torch
    from measure import describe_setup, save_result

    torch.set_num_threads(options.threads)
    rows = measure(
        device=options.device,
        threads=options.threads,
        baseline=options.baseline,
        turns=options.turns,
        with_algorithm_1=options.algorithm_1,
    )
    for row in rows:
        print(json.dumps(row), flush=True)
    device = torch.device(options.device)
    save_result(
        options.out, {**describe_setup(device), "seed": 0, "turns": options.turns, "cases": rows}
    )


if __name__ == "__main__":
    main()
