"""Measure strategies and heads for items with several labels, on features of encode.py.

python research/several/measure.py run FEATURES --workers N    # results/picks.jsonl
python research/several/measure.py heads FEATURES --workers N  # results/heads.jsonl
python research/several/measure.py table                       # print the results as tables

A simulated annotator answers with the true labels: one key for each label, and Enter. Both commands
skip what the result file has already, and need NumPy, SciPy, scikit-learn and torch only.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

sys.path.append(str(Path(__file__).parents[2]))

HERE = Path(__file__).parent
PICKS = HERE / "results" / "picks.jsonl"
HEADS = HERE / "results" / "heads.jsonl"

Floats = npt.NDArray[np.float64]
Marks = npt.NDArray[np.bool_]

SETS = {
    "goemotions": "GoEmotions, 28 emotions",
    "hwu64_joined": "HWU64 joined, 30 intents",
    "banking77_joined": "Banking77 joined, 77 intents",
}
STRATEGIES = (
    "random",
    "entropy",
    "margin",
    "mmc",
    "cvirs",
    "rare-labels",
    "badge",
    "coreset",
    "typiclust",
    "ldm",
    "ldm-s",
)
SEEDS = 20
BATCH = 100
ANSWERS = tuple(range(BATCH, 801, BATCH))
HEAD_SIZES = (100, 200, 400, 800)
CANDIDATES = 4_000
"""Items that a strategy sees, drawn at random."""


@dataclass(frozen=True, eq=False)
class Split:
    """Pool and test rows, scaled as campaigns scale them, and the features of the label names."""

    pool: Floats
    marks: Marks
    test: Floats
    test_marks: Marks
    names: Floats

    @property
    def name_examples(self) -> tuple[Floats, Marks]:
        return self.names, np.eye(len(self.names), dtype=bool)


def read_split(name: str, folder: Path) -> Split:
    """Read what encode.py has written."""
    stored = np.load(folder / f"{name}.npz")
    size = int(stored["pool_size"])
    n_labels = len(stored["classes"])
    marks = np.unpackbits(stored["marks"], axis=1)[:, :n_labels].astype(bool)

    features = stored["features"].astype(np.float64)
    centre = features[:size].mean(axis=0)
    scale = np.sqrt(np.square(features[:size] - centre).mean())
    features = (features - centre) / scale
    names = (stored["names"] - centre) / scale
    return Split(features[:size], marks[:size], features[size:], marks[size:], names)


def macro_f1(predicted: Marks, marks: Marks) -> float:
    """Return the mean F1 of the labels, in percent."""
    hits = (predicted & marks).sum(axis=0)
    return float(100 * (2 * hits / np.maximum(predicted.sum(axis=0) + marks.sum(axis=0), 1)).mean())


# Picks


def simulate(set_name: str, strategy: str, seed: int, folder: Path) -> dict[str, Any]:
    """Answer 800 items of a set, of which the first 100 are random, and measure every 100."""
    from teeter.models.outputs import Outputs
    from teeter.models.several_labels_head import SeveralLabelsHead
    from teeter.strategies.api import select

    started = time.perf_counter()
    split = read_split(set_name, folder)
    generator = np.random.default_rng(seed)
    labelled = generator.choice(len(split.pool), BATCH, replace=False)
    f1 = []
    keys = []
    while True:
        marks = split.marks[labelled]
        head = SeveralLabelsHead(split.name_examples).fit(split.pool[labelled], marks)
        f1.append(round(macro_f1(head.predict(split.test), split.test_marks), 3))
        keys.append(int(marks.sum()) + len(labelled))
        if len(labelled) == ANSWERS[-1]:
            break

        unlabelled = np.setdiff1d(np.arange(len(split.pool)), labelled)
        candidates = generator.choice(unlabelled, CANDIDATES, replace=False)
        outputs: Outputs = head.outputs(split.pool[candidates].astype(np.float32))
        known: Outputs = head.outputs(split.pool[labelled].astype(np.float32))
        picks = select(
            strategy, outputs, BATCH, labelled=known, labels=marks.astype(np.int64), seed=seed
        )
        labelled = np.concatenate([labelled, candidates[picks]])

    return {
        "set": set_name,
        "strategy": strategy,
        "seed": seed,
        "macro F1": f1,
        "keys": keys,
        "seconds": round(time.perf_counter() - started, 1),
    }


# Heads


def measure_heads(set_name: str, size: int, seed: int, folder: Path) -> dict[str, Any]:
    """Fit heads to random labels, and measure what each of their parts adds."""
    from teeter.models.several_labels_head import SeveralLabelsHead

    split = read_split(set_name, folder)
    rows = np.random.default_rng(seed).choice(len(split.pool), size, replace=False)
    plain = SeveralLabelsHead().fit(split.pool[rows], split.marks[rows])
    named = SeveralLabelsHead(split.name_examples, example_weight=1.0)
    named.fit(split.pool[rows], split.marks[rows])
    heavy = SeveralLabelsHead(split.name_examples).fit(split.pool[rows], split.marks[rows])

    probabilities = heavy.predict_proba(split.test)
    return {
        "set": set_name,
        "labels": size,
        "seed": seed,
        "one half": macro_f1(plain.predict_proba(split.test) > 0.5, split.test_marks),
        "cuts": macro_f1(plain.predict(split.test), split.test_marks),
        "cuts, names": macro_f1(named.predict(split.test), split.test_marks),
        "cuts, names count three": macro_f1(heavy.predict(split.test), split.test_marks),
        "calibration": calibration_error(probabilities, split.test_marks),
    }


def calibration_error(probabilities: Floats, marks: Marks) -> float:
    """Return the mean difference, in points, of probability and share among tenths of all marks."""
    difference = (probabilities - marks).ravel()
    tenths = np.array_split(probabilities.ravel().argsort(), 10)
    return float(100 * np.mean([abs(difference[tenth].mean()) for tenth in tenths]))


# Running


def run_missing(
    function: Callable[..., dict[str, Any]],
    cells: Iterable[tuple[Any, ...]],
    keys: tuple[str, ...],
    file: Path,
    *,
    workers: int,
) -> None:
    """Append the result of each cell that is not in the file yet, on one thread each."""
    file.parent.mkdir(parents=True, exist_ok=True)
    done = {tuple(row[key] for key in keys) for row in read_rows(file)}
    missing = [cell for cell in cells if cell[: len(keys)] not in done]
    # Read by the processes that are started below, before they import NumPy.
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}

    with (
        ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool,
        file.open("a", encoding="utf-8") as lines,
    ):
        futures = [pool.submit(function, *cell) for cell in missing]
        for count, future in enumerate(as_completed(futures), start=1):
            lines.write(json.dumps(future.result()) + "\n")
            lines.flush()
            print(f"{count} of {len(futures)}", end="\r", flush=True)


def read_rows(file: Path) -> list[dict[str, Any]]:
    """Read a result file; an empty list if there is none."""
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def print_tables() -> None:
    """Print the gain of each strategy over random, and what each part of the head adds."""
    rows = read_rows(PICKS)
    for set_name, title in SETS.items():
        runs = {(row["strategy"], row["seed"]): row for row in rows if row["set"] == set_name}
        print(f"\n{title}\n\n| strategy | for the same answers | for the same keys | keys |")
        print("| --- | --- | --- | --- |")
        for strategy in STRATEGIES:
            seeds = [s for s in range(SEEDS) if {(strategy, s), ("random", s)} <= runs.keys()]
            pairs = [(runs[strategy, seed], runs["random", seed]) for seed in seeds]
            if pairs:
                by_answers = describe_mean([gain_for_answers(*pair) for pair in pairs])
                by_keys = describe_mean([gain_for_keys(*pair) for pair in pairs])
                keys = np.mean([ours["keys"][-1] for ours, _ in pairs])
                print(f"| `{strategy}` | {by_answers} | {by_keys} | {keys:,.0f} |")

    print("\n| set | labels | one half | cuts | with names | names count three | calibration |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    parts = ("one half", "cuts", "cuts, names", "cuts, names count three", "calibration")
    for set_name in SETS:
        for size in HEAD_SIZES:
            heads = [
                row for row in read_rows(HEADS) if (row["set"], row["labels"]) == (set_name, size)
            ]
            if heads:
                means = [f"{np.mean([row[part] for row in heads]):.1f}" for part in parts]
                print(f"| {set_name} | {size} | {' | '.join(means)} |")


def gain_for_answers(ours: dict[str, Any], random: dict[str, Any]) -> float:
    """Return the mean gain in macro F1 from 200 to 800 answers."""
    return float(np.mean(np.subtract(ours["macro F1"], random["macro F1"])[1:]))


def gain_for_keys(ours: dict[str, Any], random: dict[str, Any]) -> float:
    """Return the mean gain in macro F1 at the same numbers of keys, as far as both curves go."""
    last = min(ours["keys"][-1], random["keys"][-1])
    keys = np.linspace(ours["keys"][0], last, 50)[1:]
    our_f1 = np.interp(keys, ours["keys"], ours["macro F1"])
    return float(np.mean(our_f1 - np.interp(keys, random["keys"], random["macro F1"])))


def describe_mean(values: list[float]) -> str:
    """Return a mean with its standard error."""
    error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return f"{np.mean(values):+.2f} ± {error:.2f}"


def main() -> None:
    """Run the command that is given."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("run", "heads"):
        command = commands.add_parser(name)
        command.add_argument("features", type=Path)
        command.add_argument("--workers", type=int, default=1)
        command.add_argument("--seeds", type=int, default=SEEDS)
    commands.add_parser("table")
    options = parser.parse_args()
    if options.command == "table":
        print_tables()
        return

    # Seed by seed, so that an early end leaves something to read.
    cells: list[tuple[Any, ...]] = []
    for seed in range(options.seeds):
        for set_name in SETS:
            if options.command == "run":
                cells += [(set_name, strategy, seed, options.features) for strategy in STRATEGIES]
            else:
                cells += [(set_name, size, seed, options.features) for size in HEAD_SIZES]

    if options.command == "run":
        keys = ("set", "strategy", "seed")
        run_missing(simulate, cells, keys, PICKS, workers=options.workers)
    else:
        keys = ("set", "labels", "seed")
        run_missing(measure_heads, cells, keys, HEADS, workers=options.workers)


if __name__ == "__main__":
    main()
