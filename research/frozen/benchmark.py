"""Compare strategies on frozen features with few labels, from no label on.

python research/frozen/benchmark.py prepare FEATURES FOLDER   # what the benchmark uses of FEATURES
python research/frozen/benchmark.py run choose FOLDER         # or confirm, guards; results/*.jsonl
python research/frozen/benchmark.py run choose FOLDER --arms typiclust+my-strategy
python research/frozen/benchmark.py table                     # the tables, and the rule

An arm is a cold start and the strategy that follows it, with options as JSON:
``maxherding+uherding:{"class_weights":false}``. All arms of a
setting and seed have the same pool and test rows. The model of the picks is a linear head, as in
campaigns; a linear head and a pool head are measured on the labels. A run that was stopped resumes.
research/campaigns/simulator.py writes the folder FEATURES.
"""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import balanced_accuracy_score

from teeter.learner.learner import Learner
from teeter.models import ExampleRegression, PoolHead
from teeter.strategies import Strategy
from teeter.strategies.api import make_strategy

sys.path.append(str(Path(__file__).parents[2]))

from research.campaigns.simulator import EncodedDataset, read_features
from research.labelling import make_parser
from research.pool_head.measure import Split, add_junk, draw_tail, examples_of

RESULTS = Path(__file__).parent / "results"

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

TODAY = "typiclust+ldm-s"
HERDING = "maxherding+herding-ldm-s"

CHOOSING_ARMS = (
    TODAY,
    HERDING,
    "maxherding+uherding",
    'maxherding+uherding:{"class_weights":false}',
    "maxherding+maxherding",
    "maxherding+ldm-s",
    "typiclust+badge",
    "typiclust+margin",
    "typiclust+alfa-mix",
    "typiclust+dropquery",
    "typiclust+galaxy",
    "random+random",
)

CONFIRMING_ARMS = (TODAY, HERDING, "maxherding+uherding", "maxherding+ldm-s", "random+random")
LARGE_ARMS = (
    TODAY,
    HERDING,
    'maxherding:{"sample":5000}+herding-ldm-s:{"sample":5000}',
    'maxherding:{"sample":1000}+herding-ldm-s:{"sample":1000}',
)

LABELS_PER_CLASS = (1, 2, 3, 4, 6, 8, 11, 15)
MAX_POOL = 4_000
"""Rows of a pool, drawn again for each seed."""
MAX_STORED = 6_000
MAX_TEST = 1_000
SHARE_LABELLED = 0.5
"""A curve ends when so much of the pool is labelled."""


@dataclass(frozen=True)
class Setting:
    """A pool to label, and what is done to it."""

    features: str
    """The name of the file of features."""
    tail: float = 1.0
    """How much rarer the rarest class is made than the most frequent one."""
    names: bool = False
    """Whether the class names are pseudo-examples of both heads."""
    junk: bool = False
    """Whether half as many rows as the pool has, of no class, are added to it."""
    wrong: float = 0.0
    """The share of labels that are drawn at random."""
    batch: int | None = None
    """Labels per round. Default: from one total of ``LABELS_PER_CLASS`` to the next."""
    max_pool: int = MAX_POOL
    totals: tuple[int, ...] | None = None
    """Where the heads are measured. Default: ``LABELS_PER_CLASS`` of each class."""


CHOOSING = {
    "banking77": Setting("banking77"),
    "hwu64": Setting("hwu64"),
    "sms_spam": Setting("sms_spam"),
    "mnist": Setting("mnist"),
    "letter": Setting("letter"),
    "digits": Setting("digits"),
    "hwu64, tail": Setting("hwu64", tail=20),
    "mnist, tail": Setting("mnist", tail=20),
    "letter, tail": Setting("letter", tail=20),
}
NEW = {
    "isolet": Setting("isolet"),
    "goemotions": Setting("goemotions"),
    "cifar10": Setting("cifar10"),
    "isolet, tail": Setting("isolet", tail=20),
}
"""Not used to choose anything."""
GUARDS = {
    "banking77, names": Setting("banking77", names=True),
    "hwu64, names": Setting("hwu64", names=True),
    "hwu64, junk": Setting("hwu64", junk=True),
    "cifar10, junk": Setting("cifar10", junk=True),
    "hwu64, wrong labels": Setting("hwu64", wrong=0.1),
    "cifar10, wrong labels": Setting("cifar10", wrong=0.1),
    "digits, one by one": Setting("digits", batch=1, totals=(10, 20, 40, 80)),
    "sms_spam, one by one": Setting("sms_spam", batch=1, totals=(5, 10, 20, 40)),
    "letter, batches of 50": Setting("letter", batch=50, totals=(50, 100, 200, 400)),
    "hwu64, batches of 50": Setting("hwu64", batch=50, totals=(50, 100, 200, 400, 950)),
}
LARGE = {"mnist, 20,000": Setting("mnist_large", max_pool=20_000, totals=(10, 20, 50, 150))}
SETTINGS = CHOOSING | NEW | GUARDS | LARGE

PARTS: dict[str, tuple[Mapping[str, Setting], Sequence[str], range]] = {
    "choose": (CHOOSING, CHOOSING_ARMS, range(10)),
    "confirm": (CHOOSING | NEW, CONFIRMING_ARMS, range(10, 30)),
    "guards": (GUARDS, (TODAY, HERDING), range(10, 20)),
    "large": (LARGE, LARGE_ARMS, range(10, 13)),
}
"""The settings, arms and seeds of each part."""


# Data


def prepare(features: Path, folder: Path) -> None:
    """Copy what the benchmark uses of the features, in half precision."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in sorted({setting.features for setting in SETTINGS.values()}):
        data = read_features(name, features)
        size = data.pool_size
        largest = max(s.max_pool for s in SETTINGS.values() if s.features == name)
        generator = np.random.default_rng(0)
        # More rows than a pool has, so that the pools of two seeds are not the same.
        pool = generator.permutation(size)[: max(MAX_STORED, largest)]
        test = size + generator.permutation(len(data.labels) - size)[:MAX_TEST]
        rows = np.concatenate([np.sort(pool), np.sort(test)])
        arrays = {
            "features": data.features[rows].astype(np.float16),
            "labels": data.labels[rows].astype(np.int16),
            "pool_size": np.array(len(pool)),
        }
        if data.names is not None:
            arrays["names"] = data.names
        np.savez_compressed(folder / f"{name}.npz", **arrays)


def read_split(setting: Setting, folder: Path, seed: int) -> Split:
    """Return a pool and test rows, scaled as campaigns scale them."""
    data = read_features(setting.features, folder)
    generator = np.random.default_rng([seed, 3])
    size = data.pool_size
    rows = np.arange(size)
    if setting.tail > 1:
        rows = draw_tail(data.labels[:size], setting.tail, generator)
    rows = np.sort(generator.permutation(rows)[: setting.max_pool])

    features = data.features
    centre = features[rows].mean(axis=0)
    scale = np.sqrt(np.square(features[rows] - centre).mean())
    split = Split(
        ((features[rows] - centre) / scale).astype(np.float32),
        data.labels[rows],
        ((features[size:] - centre) / scale).astype(np.float32),
        data.labels[size:],
        scale_names(data, setting, centre, scale),
    )
    if setting.junk:
        split = add_junk(split, generator, len(split.pool) // 2)
    return split


def scale_names(
    data: EncodedDataset, setting: Setting, centre: npt.NDArray[Any], scale: float
) -> npt.NDArray[np.float32] | None:
    if not setting.names or data.names is None:
        return None
    scaled: npt.NDArray[np.float32] = ((data.names - centre) / scale).astype(np.float32)
    return scaled


# Measuring


def make_learner(arm: str, split: Split, seed: int) -> Learner:
    """Return a learner without labels for an arm: ``COLD_START+STRATEGY``."""
    cold_start, _, strategy = arm.partition("+")
    return Learner(
        ExampleRegression(examples_of(split)),
        split.pool,
        read_strategy(strategy),
        classes=split.n_classes,
        seed=seed,
        cold_start=read_strategy(cold_start),
        device="cpu",
    )


def read_strategy(text: str) -> Strategy:
    """Return a strategy by ``NAME``, or by ``NAME:OPTIONS`` with the options as JSON."""
    name, _, options = text.partition(":")
    return make_strategy(name, json.loads(options or "{}"))


def label_rounds(
    learner: Learner, setting: Setting, split: Split, answers: Integers
) -> Iterator[tuple[Integers, float]]:
    """Yield the labelled rows at each total, and the seconds per round of the picks until then."""
    totals = setting.totals
    if totals is None:
        totals = tuple(number * split.n_classes for number in LABELS_PER_CLASS)
    for total in totals:
        if total > SHARE_LABELLED * len(split.pool):
            return
        seconds = []
        while len(learner.pool.labelled) < total:
            n = total - len(learner.pool.labelled)
            if setting.batch is not None:
                n = min(n, setting.batch)
            started = time.perf_counter()
            rows = learner.ask(n)
            seconds.append(time.perf_counter() - started)
            learner.tell(rows, answers[rows])
            learner.fit()
        yield learner.pool.labelled, float(np.mean(seconds))


def measure(name: str, arm: str, folder: Path, seed: int) -> dict[str, Any]:
    """Label a pool by an arm, and measure both heads on the way."""
    setting = SETTINGS[name]
    split = read_split(setting, folder, seed)
    answers = split.labels.copy()
    generator = np.random.default_rng([seed, 4])
    is_wrong = generator.random(len(answers)) < setting.wrong
    answers[is_wrong] = generator.integers(split.n_classes, size=int(is_wrong.sum()))
    if setting.junk:
        # People cannot know the class of junk either.
        n_items = len(answers) * 2 // 3
        answers[n_items:] = generator.integers(split.n_classes, size=len(answers) - n_items)

    curves: dict[str, list[float]] = {
        key: []
        for key in ("labels", "linear", "pool", "linear balanced", "pool balanced", "seconds")
    }
    learner = make_learner(arm, split, seed)
    for labelled, seconds in label_rounds(learner, setting, split, answers):
        curves["labels"].append(len(labelled))
        curves["seconds"].append(round(seconds, 4))
        for head in ("linear", "pool"):
            predicted = predict(head, learner, split, labelled, answers)
            accuracy = float((predicted == split.test_labels).mean())
            balanced = float(balanced_accuracy_score(split.test_labels, predicted))
            curves[head].append(round(100 * accuracy, 3))
            curves[f"{head} balanced"].append(round(100 * balanced, 3))
    return {"setting": name, "arm": arm, "seed": seed, **curves}


def predict(
    head: str, learner: Learner, split: Split, labelled: Integers, answers: Integers
) -> Integers:
    """Return the classes of the test rows; with labels of one class only, that class."""
    labels = answers[labelled]
    if split.names is None and len(np.unique(labels)) < 2:
        return np.full(len(split.test), labels[0])
    if head == "linear" and learner.models:
        predicted: Integers = learner.predict(split.test).astype(np.int64)
        return predicted

    model = PoolHead(examples_of(split), random_state=learner.seed)
    unlabelled = None
    if head == "pool":
        unlabelled = np.delete(split.pool, labelled, axis=0)
    fitted: Integers = model.fit(split.pool[labelled], labels, pool=unlabelled).predict(split.test)
    return fitted


# Running


def run_cell(task: tuple[str, str, str, int]) -> dict[str, Any]:
    """Measure a cell on one thread."""
    import torch
    from threadpoolctl import threadpool_limits

    name, arm, folder, seed = task
    torch.set_num_threads(1)
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings("ignore", message="The number of unique classes is greater")
        warnings.filterwarnings("ignore", message="y_pred contains classes not in y_true")
        return measure(name, arm, Path(folder), seed)


def read_cells(file: Path) -> list[dict[str, Any]]:
    """Return the complete cells of a file of results."""
    if not file.exists():
        return []
    cells = []
    for line in file.read_text().splitlines():
        try:
            cells.append(json.loads(line))
        except json.JSONDecodeError:
            continue  # cut off when the run was stopped
    return cells


def run(
    part: str,
    folder: Path,
    file: Path,
    *,
    workers: int,
    arms: Sequence[str] | None = None,
    seeds: range | None = None,
    settings: Sequence[str] | None = None,
    minutes: float | None = None,
) -> None:
    """Measure the cells of a part that are not in the file yet, seed by seed."""
    all_settings, all_arms, all_seeds = PARTS[part]
    done = {(cell["setting"], cell["arm"], cell["seed"]) for cell in read_cells(file)}
    tasks = [
        (name, arm, str(folder), seed)
        for seed in seeds or all_seeds
        for name in settings or all_settings
        for arm in arms or all_arms
        if (name, arm, seed) not in done and (folder / f"{SETTINGS[name].features}.npz").exists()
    ]
    file.parent.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    print(f"{len(tasks)} cells to measure, {len(done)} are there", flush=True)
    with (
        file.open("a") as lines,
        ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as executor,
    ):
        futures = [executor.submit(run_cell, task) for task in tasks]
        for count, future in enumerate(as_completed(futures), start=1):
            lines.write(json.dumps(future.result()) + "\n")
            lines.flush()
            elapsed = time.monotonic() - started
            if count % 50 == 0:
                print(f"{count} of {len(tasks)} cells, {elapsed:.0f} s", flush=True)
            if minutes is not None and elapsed > 60 * minutes:
                # as_completed would wait for the cancelled ones forever.
                executor.shutdown(wait=False, cancel_futures=True)
                break


# Tables


def area(cell: Mapping[str, Any], head: str) -> float:
    """Return the mean of the curve over the number of labels, in per cent."""
    labels = np.array(cell["labels"], dtype=float)
    values = np.array(cell[head])
    if len(labels) == 1:
        return float(values[0])
    return float(np.trapezoid(values, labels) / (labels[-1] - labels[0]))


def differences(
    cells: Sequence[Mapping[str, Any]], setting: str, arm: str, head: str
) -> tuple[Floats, Floats]:
    """Return the areas of the default (S,) and what an arm adds, (S,), over the common seeds."""
    by_arm: dict[str, dict[int, float]] = {TODAY: {}, arm: {}}
    for cell in cells:
        if cell["setting"] == setting and cell["arm"] in by_arm:
            by_arm[cell["arm"]][cell["seed"]] = area(cell, head)
    seeds = sorted(by_arm[TODAY].keys() & by_arm[arm].keys())
    today = np.array([by_arm[TODAY][seed] for seed in seeds])
    return today, np.array([by_arm[arm][seed] for seed in seeds]) - today


def describe(gain: Floats) -> str:
    """Return the mean and its standard error."""
    if len(gain) < 2:
        return "–"
    return f"{gain.mean():+.1f} ± {gain.std(ddof=1) / len(gain) ** 0.5:.1f}"


def build_table(cells: Sequence[Mapping[str, Any]], head: str) -> str:
    """Return what each arm adds to the area of today's default, by setting."""
    settings = [name for name in SETTINGS if any(cell["setting"] == name for cell in cells)]
    arms = list(dict.fromkeys(cell["arm"] for cell in cells if cell["arm"] != TODAY))
    lines = [
        f"| | `{TODAY}` | " + " | ".join(f"`{arm}`" for arm in arms) + " |",
        "| --- |" + " ---: |" * (len(arms) + 1),
    ]
    for name in settings:
        row: list[str] = []
        for arm in arms:
            today, gain = differences(cells, name, arm, head)
            if not row:
                row.append(f"{today.mean():.1f}")
            row.append(describe(gain))
        lines.append(f"| {name} | " + " | ".join(row) + " |")
    return "\n".join(lines)


def build_seconds(cells: Sequence[Mapping[str, Any]]) -> str:
    """Return the median seconds of an ask, by setting and arm: the cold start / later rounds."""
    settings = [name for name in SETTINGS if any(cell["setting"] == name for cell in cells)]
    arms = list(dict.fromkeys(cell["arm"] for cell in cells))
    lines = [
        "| | " + " | ".join(f"`{arm}`" for arm in arms) + " |",
        "| --- |" + " ---: |" * len(arms),
    ]
    for name in settings:
        row = []
        for arm in arms:
            same = [c["seconds"] for c in cells if c["setting"] == name and c["arm"] == arm]
            first = [seconds[0] for seconds in same]
            later = [value for seconds in same for value in seconds[1:]]
            row.append(f"{np.median(first):.2f} / {np.median(later):.2f}" if later else "–")
        lines.append(f"| {name} | " + " | ".join(row) + " |")
    return "\n".join(lines)


def judge(cells: Sequence[Mapping[str, Any]], arm: str) -> str:
    """Apply the rule for a new default: five gains beyond two standard errors, no loss above 1."""
    verdicts = []
    for head in ("linear", "pool"):
        better = []
        worse = []
        for name in SETTINGS:
            _, gain = differences(cells, name, arm, head)
            if len(gain) < 2:
                continue
            error = gain.std(ddof=1) / len(gain) ** 0.5
            if gain.mean() > 2 * error:
                better.append(name)
            if gain.mean() < -1:
                worse.append(name)
        passes = len(better) >= 5 and not worse
        verdicts.append(
            f"{head} head: {'passes' if passes else 'fails'}; better in {len(better)} "
            f"({', '.join(better)}), more than a point worse in {len(worse)} ({', '.join(worse)})"
        )
    return "\n".join(verdicts)


def print_tables(folder: Path) -> None:
    for part in PARTS:
        cells = read_cells(folder / f"{part}.jsonl")
        if not cells:
            continue
        for head in ("linear", "pool", "linear balanced", "pool balanced"):
            print(
                f"\n## {part}, {head}: area, and what each arm adds\n\n{build_table(cells, head)}"
            )
        print(f"\n## {part}, seconds per ask\n\n{build_seconds(cells)}")
        print(f"\nThe rule, for {HERDING}:\n{judge(cells, HERDING)}")


def main() -> None:
    parser = make_parser(__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    prepare_parser = commands.add_parser("prepare", help="copy what the benchmark uses")
    prepare_parser.add_argument("features", type=Path)
    prepare_parser.add_argument("folder", type=Path)
    run_parser = commands.add_parser("run", help="measure")
    run_parser.add_argument("part", choices=list(PARTS))
    run_parser.add_argument("folder", type=Path)
    run_parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    run_parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    run_parser.add_argument("--arms", nargs="+", help="COLD_START+STRATEGY")
    run_parser.add_argument("--settings", nargs="+", choices=list(SETTINGS))
    run_parser.add_argument("--seeds", type=int, nargs=2, metavar=("FIRST", "LAST"))
    run_parser.add_argument("--minutes", type=float, help="begin no further cells after so many")
    table_parser = commands.add_parser("table", help="print the tables")
    table_parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    options = parser.parse_args()

    if options.command == "prepare":
        prepare(options.features, options.folder)
    elif options.command == "table":
        print_tables(options.out)
    else:
        run(
            options.part,
            options.folder,
            options.out / f"{options.part}.jsonl",
            workers=options.workers,
            arms=options.arms,
            seeds=range(options.seeds[0], options.seeds[1] + 1) if options.seeds else None,
            settings=options.settings,
            minutes=options.minutes,
        )


if __name__ == "__main__":
    main()
