"""Measure what the pool head adds to a head of the labels alone, with the same labels.

python research/pool_head/measure.py run FEATURES    # results/pool_head.json
python research/pool_head/measure.py round FEATURES  # results/round.json
python research/pool_head/measure.py page            # docs/explanation/pool_head.md

Both heads get the same labels, drawn at random or picked as a campaign picks: TypiClust, then LDM-S
by the head of the labels alone. research/campaigns/simulator.py writes the folder FEATURES.
"""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import t as student
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import balanced_accuracy_score, f1_score

from teeter.learner.learner import Learner
from teeter.models import ExampleRegression, PoolHead

sys.path.append(str(Path(__file__).parents[2]))

from research.campaigns.simulator import SimulatedCampaign, read_features
from research.labelling import describe_setup, make_parser, write_result
from research.page_blocks import fill_blocks

ROOT = Path(__file__).parents[2]
RESULT = Path(__file__).parent / "results" / "pool_head.json"
ROUND_RESULT = Path(__file__).parent / "results" / "round.json"
PAGE = ROOT / "docs" / "explanation" / "pool_head.md"

Vectors = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

LABELS_PER_CLASS = (1, 2, 5, 10, 25)
DRAWS = 20
PICKS = ("random", "ldm-s")


@dataclass(frozen=True)
class Case:
    """A pool, and what its heads know beside labels."""

    title: str
    features: str
    """The name of the file of features."""
    names: bool = False
    """Whether the class names are pseudo-examples."""
    tail: float = 1.0
    """How much rarer the rarest class is made than the most frequent one."""


CASES = {
    "banking77": Case("Banking77, 77 classes, with names", "banking77", names=True),
    "hwu64": Case("HWU64, 64 classes, with names", "hwu64", names=True),
    "hwu64_plain": Case("HWU64 without names", "hwu64"),
    "sms_spam": Case("SMS Spam, 13% spam, with names", "sms_spam", names=True),
    "banking77_tail": Case("Banking77 with a tail of 1:20", "banking77", names=True, tail=20),
    "digits": Case("digits, 10 classes", "digits"),
    "mnist": Case("MNIST, 10 classes, pixels", "mnist"),
    "isolet": Case("ISOLET, 26 spoken letters", "isolet"),
    "cifar10": Case("CIFAR-10 photographs", "cifar10"),
}


# Data


@dataclass(frozen=True, eq=False)
class Split:
    """Pool and test rows, scaled as campaigns scale them."""

    pool: Vectors
    labels: Integers
    test: Vectors
    test_labels: Integers
    names: Vectors | None

    @property
    def n_classes(self) -> int:
        return int(max(self.labels.max(), self.test_labels.max())) + 1


def read_split(case: Case, folder: Path, seed: int) -> Split:
    """Read a dataset; a tail is drawn again for each seed."""
    stored = read_features(case.features, folder)
    features = stored.features
    labels = stored.labels
    size = stored.pool_size
    pool_rows = np.arange(size)
    if case.tail > 1:
        pool_rows = draw_tail(labels[:size], case.tail, np.random.default_rng([seed, 1]))

    centre = features[pool_rows].mean(axis=0)
    scale = np.sqrt(np.square(features[pool_rows] - centre).mean())
    features = (features - centre) / scale
    names = None
    if case.names and stored.names is not None:
        names = ((stored.names - centre) / scale).astype(np.float32)
    return Split(features[pool_rows], labels[pool_rows], features[size:], labels[size:], names)


def draw_tail(labels: Integers, ratio: float, generator: np.random.Generator) -> Integers:
    """Return rows in which the classes, in a random order, get rarer by a constant factor."""
    n_classes = int(labels.max()) + 1
    largest = int(np.bincount(labels).max())
    kept = []
    for position, k in enumerate(generator.permutation(n_classes)):
        rows = np.flatnonzero(labels == k)
        count = round(largest * ratio ** (-position / (n_classes - 1)))
        kept.append(generator.permutation(rows)[:count])
    return np.sort(np.concatenate(kept))


# Measuring


def measure_draw(case_name: str, picks: str, folder: Path, seed: int) -> list[dict[str, Any]]:
    """Label the pool up to each number of labels, and measure both heads there."""
    split = read_split(CASES[case_name], folder, seed)
    results = []
    for labelled in label_rows(split, picks, seed):
        today, with_pool, seconds = fit_both(split, labelled, seed)
        results.append(
            {
                "labels": len(labelled),
                "today": score(today, split),
                "pool": score(with_pool, split),
                "seconds": round(seconds, 3),
            }
        )
    return results


def label_rows(split: Split, picks: str, seed: int) -> Iterator[Integers]:
    """Yield the labelled rows for each number of labels; they only grow."""
    generator = np.random.default_rng(seed)
    totals = [per_class * split.n_classes for per_class in LABELS_PER_CLASS]
    if picks == "random":
        order = generator.permutation(len(split.pool))
        for total in totals:
            if total <= len(order) // 2:
                yield np.sort(order[:total])
        return

    learner = Learner(
        ExampleRegression(examples_of(split)),
        split.pool,
        "ldm-s",
        classes=split.n_classes,
        seed=seed,
        cold_start="typiclust",
        device="cpu",
    )
    for total in totals:
        if total > len(split.pool) // 2:
            return
        # In four batches, as between two models of a campaign.
        missing = total - len(learner.pool.labelled)
        for part in np.array_split(np.arange(missing), 4 if len(learner.pool.labelled) else 1):
            if len(part):
                rows = learner.ask(len(part))
                learner.tell(rows, split.labels[rows])
                learner.fit()
        yield learner.pool.labelled


def examples_of(split: Split) -> tuple[Vectors, Integers] | None:
    if split.names is None:
        return None
    return split.names, np.arange(len(split.names))


def fit_both(
    split: Split, labelled: Integers, seed: int, labels: Integers | None = None
) -> tuple[ExampleRegression, PoolHead, float]:
    """Fit the head of the labels alone and the pool head, and time the latter."""
    rows = split.pool[labelled]
    labels = split.labels[labelled] if labels is None else labels
    unlabelled = np.delete(split.pool, labelled, axis=0)
    today = ExampleRegression(examples_of(split)).fit(rows, labels)
    started = time.perf_counter()
    with_pool = PoolHead(examples_of(split), random_state=seed).fit(rows, labels, pool=unlabelled)
    return today, with_pool, time.perf_counter() - started


def score(model: ExampleRegression, split: Split) -> dict[str, float]:
    """Return accuracy, balanced accuracy and macro F1 on the test rows, in per cent."""
    predicted = model.predict(split.test)
    truth = split.test_labels
    values = {
        "accuracy": float((predicted == truth).mean()),
        "balanced": float(balanced_accuracy_score(truth, predicted)),
        "f1": float(f1_score(truth, predicted, average="macro", zero_division=0)),
    }
    if split.n_classes == 2:
        values["f1_rare"] = float(f1_score(truth, predicted, zero_division=0))
    return {name: round(100 * value, 3) for name, value in values.items()}


# Guards: what a pool or labels may have that they should not


def measure_guard(guard: str, folder: Path, seed: int) -> list[dict[str, Any]]:
    """Measure both heads at two labels per class in a case that could mislead the pool head."""
    case_name, per_class = GUARDS[guard][1:]
    split = read_split(CASES[case_name], folder, seed)
    generator = np.random.default_rng([seed, 2])
    labelled = np.sort(
        generator.choice(len(split.pool), per_class * split.n_classes, replace=False)
    )
    labels = split.labels[labelled]

    match guard.split(" in ")[0]:
        case "junk":
            # A half more rows that belong to no class: those of another dataset, turned at random.
            split = add_junk(split, generator, len(split.pool) // 2)
        case "wrong labels":
            labels = labels.copy()
            wrong = generator.random(len(labels)) < 0.1
            labels[wrong] = generator.integers(split.n_classes, size=int(wrong.sum()))
        case "small pool":
            rest = np.setdiff1d(np.arange(len(split.pool)), labelled)
            kept = np.sort(np.concatenate([labelled, generator.choice(rest, 150, replace=False)]))
            labelled = np.searchsorted(kept, labelled)
            split = Split(
                split.pool[kept], split.labels[kept], split.test, split.test_labels, split.names
            )
        case "shuffled names":
            order = generator.permutation(split.n_classes)
            assert split.names is not None
            split = Split(
                split.pool, split.labels, split.test, split.test_labels, split.names[order]
            )
    today, with_pool, seconds = fit_both(split, labelled, seed, labels)
    return [
        {
            "labels": len(labelled),
            "today": score(today, split),
            "pool": score(with_pool, split),
            "seconds": round(seconds, 3),
        }
    ]


GUARDS = {
    "junk in Banking77": ("a third of the pool belongs to no class", "banking77", 2),
    "junk in CIFAR-10": ("a third of the pool belongs to no class", "cifar10", 2),
    "wrong labels in HWU64": ("a tenth of the labels is random", "hwu64", 2),
    "small pool in Banking77": ("304 texts, 154 of them labelled", "banking77", 2),
    "shuffled names in Banking77": ("wrong names, which the rule would refuse", "banking77", 2),
}


def add_junk(split: Split, generator: np.random.Generator, count: int) -> Split:
    """Return a pool with more rows: mixtures of five random rows each, of no class."""
    parts = split.pool[generator.integers(len(split.pool), size=(count, 5))]
    junk = parts.mean(axis=1) * np.sqrt(5)
    return Split(
        np.concatenate([split.pool, junk.astype(np.float32)]),
        np.concatenate([split.labels, np.zeros(count, dtype=np.int64)]),
        split.test,
        split.test_labels,
        split.names,
    )


# Size


def time_fits() -> list[dict[str, float]]:
    """Return the seconds of a fit for growing pools, on one thread."""
    results = []
    for rows in (10_000, 30_000, 100_000, 400_000):
        generator = np.random.default_rng(0)
        centres = generator.normal(size=(77, 384)).astype(np.float32)
        classes = generator.integers(77, size=rows)
        pool = centres[classes] + 2 * generator.normal(size=(rows, 384)).astype(np.float32)
        labelled = np.concatenate([np.flatnonzero(classes == k)[:2] for k in range(77)])
        started = time.perf_counter()
        today = ExampleRegression().fit(pool[labelled], classes[labelled])
        middle = time.perf_counter()
        head = PoolHead(random_state=0).fit(pool[labelled], classes[labelled], pool=pool)
        ended = time.perf_counter()
        results.append(
            {
                "rows": rows,
                "today_seconds": round(middle - started, 3),
                "seconds": round(ended - middle, 3),
                "today": round(float(today.score(pool, classes)), 4),
                "pool": round(float(head.score(pool, classes)), 4),
            }
        )
    return results


def time_rounds(folder: Path) -> dict[str, Any]:
    """Time a training and the next batch at 20 labels of Banking77, on one thread, in turns."""
    import torch
    from threadpoolctl import threadpool_limits

    torch.set_num_threads(1)
    data = read_features("banking77", folder)
    seconds: dict[str, list[float]] = {"linear": [], "pool": []}
    with threadpool_limits(1):
        for seed in range(5):
            for head, measured in seconds.items():
                campaign = SimulatedCampaign(
                    data.features[: data.pool_size],
                    data.labels[: data.pool_size],
                    data.n_classes,
                    head=head,
                    seed=seed,
                    names=data.names,
                )
                campaign.label(20)
                started = time.perf_counter()
                campaign.train()
                campaign.pick(20)
                measured.append(round(time.perf_counter() - started, 3))
    return {**describe_setup(), "threads": 1, "seconds": seconds}


# Running


def run_one(task: tuple[str, str, str, int]) -> tuple[tuple[str, str, str, int], Any]:
    """Measure one draw on one thread."""
    import torch
    from threadpoolctl import threadpool_limits

    kind, name, folder, seed = task
    torch.set_num_threads(1)
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings("ignore", message="The number of unique classes is greater")
        warnings.filterwarnings("ignore", message="y_pred contains classes not in y_true")
        if kind == "guard":
            return task, measure_guard(name, Path(folder), seed)
        if kind == "time":
            return task, time_fits()
        return task, measure_draw(name, kind, Path(folder), seed)


def run(folder: Path, processes: int, draws: int) -> dict[str, Any]:
    """Measure everything, and return the result to be saved."""
    tasks = [("time", "", "", 0)]
    for seed in range(draws):
        tasks += [(picks, name, str(folder), seed) for picks in PICKS for name in CASES]
        tasks += [("guard", name, str(folder), seed) for name in GUARDS]

    result: dict[str, Any] = {**describe_setup(), "draws": draws, "threads": 1}
    result["labels_per_class"] = list(LABELS_PER_CLASS)
    result["cells"] = {}
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as executor:
        for (kind, name, _, seed), values in executor.map(run_one, tasks):
            if kind == "time":
                result["time"] = values
            else:
                result["cells"].setdefault(f"{name}/{kind}", []).append(values)
            print(kind, name, seed, flush=True)
    return result


# The page of results


def gains(result: Mapping[str, Any], cell: str, column: int, measure: str) -> tuple[Floats, Floats]:
    """Return today's scores (n,) and the gains (n,) over the draws of a cell."""
    rows = [draw[column] for draw in result["cells"][cell] if len(draw) > column]
    today = np.array([row["today"][measure] for row in rows])
    return today, np.array([row["pool"][measure] for row in rows]) - today


def standard_error(values: Floats) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values)))


def build_table(result: Mapping[str, Any], picks: str) -> str:
    """Return a table of gains in points, by dataset and labels per class."""
    counts = " | ".join(f"{count} per class" for count in result["labels_per_class"])
    lines = [f"| accuracy | {counts} |", "| --- |" + " ---: |" * len(LABELS_PER_CLASS)]
    for name, case in CASES.items():
        cells = []
        for column in range(len(LABELS_PER_CLASS)):
            today, gain = gains(result, f"{name}/{picks}", column, "accuracy")
            if len(gain) < 2:
                cells.append("")
                continue
            cells.append(f"{today.mean():.1f} {gain.mean():+.1f} ± {standard_error(gain):.1f}")
        lines.append(f"| {case.title} | {' | '.join(cells)} |")
    return "\n".join(lines)


def worst_cells(result: Mapping[str, Any]) -> list[tuple[str, float, float]]:
    """Return the cells whose gain is significantly below -0.5 points (Holm over all cells)."""
    tested = []
    for cell in result["cells"]:
        for column in range(len(LABELS_PER_CLASS)):
            for measure in ("accuracy", "balanced"):
                if cell.endswith("/guard"):
                    continue
                _, gain = gains(result, cell, column, measure)
                if len(gain) < 2:
                    continue
                error = max(standard_error(gain), 1e-9)
                p = float(student.cdf((gain.mean() + 0.5) / error, len(gain) - 1))
                per_class = LABELS_PER_CLASS[column]
                tested.append((p, f"{cell}, {per_class} per class, {measure}", gain.mean(), error))
    tested.sort()
    worst = []
    for rank, (p, label, mean, error) in enumerate(tested):
        if p > 0.05 / (len(tested) - rank):
            break
        worst.append((label, float(mean), error))
    return worst


def describe_worst(result: Mapping[str, Any]) -> str:
    """Return a sentence on losses."""
    cells = sum(
        len(gains(result, cell, column, "accuracy")[1]) > 1
        for cell in result["cells"]
        for column in range(len(LABELS_PER_CLASS))
        if not cell.endswith("/guard")
    )
    worst = worst_cells(result)
    if not worst:
        return (
            f"In none of the {cells} cells is the pool head significantly more than half a point "
            "worse, in accuracy or in balanced accuracy (one-sided t-tests, Holm over all cells)."
        )
    listed = "; ".join(f"{label}: {mean:+.1f} ± {error:.1f}" for label, mean, error in worst)
    return (
        f"Of {cells} cells, the pool head is significantly more than half a point worse in these "
        f"(one-sided t-tests, Holm over all cells, accuracy and balanced accuracy): {listed}."
    )


def build_guards(result: Mapping[str, Any]) -> str:
    """Return the table of guards."""
    lines = ["| case | what is wrong | labels alone | gain |", "| --- | --- | ---: | ---: |"]
    for name, (what, _, _) in GUARDS.items():
        today, gain = gains(result, f"{name}/guard", 0, "accuracy")
        lines.append(
            f"| {name} | {what} | {today.mean():.1f} | {gain.mean():+.1f} ± "
            f"{standard_error(gain):.1f} |"
        )
    return "\n".join(lines)


def build_times(result: Mapping[str, Any]) -> str:
    lines = ["| rows of the pool | labels alone | pool head |", "| ---: | ---: | ---: |"]
    lines += [
        f"| {row['rows']:,} | {row['today_seconds']:.2f} s | {row['seconds']:.2f} s |"
        for row in result["time"]
    ]
    return "\n".join(lines)


def fill_page(text: str) -> str:
    """Return the page with the committed results."""
    result = json.loads(RESULT.read_text())
    seconds = json.loads(ROUND_RESULT.read_text())["seconds"]
    linear, pool = (float(np.median(seconds[head])) for head in ("linear", "pool"))
    spam = gains(result, "sms_spam/random", 2, "f1_rare")
    blocks = {
        "random": "\n\n".join([build_table(result, "random"), describe_worst(result)]),
        "picked": build_table(result, "ldm-s"),
        "guards": build_guards(result),
        "times": build_times(result),
        "round": (
            f"From the 20th answer to the next batch, with all models that judge it, a campaign of "
            f"9,999 texts and 77 classes takes {linear:.1f} s with labels alone and {pool:.1f} s "
            "with a pool head (medians of five, one thread)."
        ),
        "spam": (
            f"On SMS Spam at ten labels, the F1 score of spam is {spam[0].mean():.0f} with labels "
            f"alone, and {spam[1].mean():+.0f} ± {standard_error(spam[1]):.0f} with the pool."
        ),
    }
    return fill_blocks(text, blocks)


def main() -> None:
    parser = make_parser(__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run_parser = commands.add_parser("run", help="measure")
    run_parser.add_argument("features", type=Path)
    run_parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    run_parser.add_argument("--draws", type=int, default=DRAWS)
    run_parser.add_argument("--out", type=Path, default=RESULT)
    round_parser = commands.add_parser("round", help="time a round of a campaign")
    round_parser.add_argument("features", type=Path)
    commands.add_parser("page", help="write the page from the results")
    options = parser.parse_args()

    if options.command == "run":
        write_result(run(options.features, options.processes, options.draws), options.out)
    elif options.command == "round":
        write_result(time_rounds(options.features), ROUND_RESULT)
    else:
        PAGE.write_text(fill_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
