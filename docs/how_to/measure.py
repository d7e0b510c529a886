"""Measure the figures of three how-tos on scikit-learn's handwritten digits, and fill their tables.

    python docs/how_to/measure.py run    measure (a few minutes on one core) and fill the tables
    python docs/how_to/measure.py        fill the tables from measured.json and the paper's results

A test fails if the tables are out of date.
"""

from __future__ import annotations

import json
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

import teeter
from teeter.base.arrays import describe_device
from teeter.bench.datasets import LabelledRows, load_dataset, make_long_tailed
from teeter.bench.experiments import setting_named
from teeter.campaigns import Settings

sys.path.append(str(Path(__file__).parents[2]))

from research.page_blocks import fill_blocks

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RESULTS = HERE / "measured.json"
STEPS = ROOT / "research" / "speed" / "results" / "steps_h200.json"
SPLIT = load_dataset("digits")
RARE = 3
"""The last classes, which a long tail leaves few rows of."""

WEIGHTS = {"rows alike": "none", "classes weighted": "balanced"}
"""What the page calls the two ways of training in measured.json."""

Table = list[list[str]]


def model(**options: Any) -> LogisticRegression:
    return LogisticRegression(max_iter=500, **options)


def class_accuracies(learner: teeter.Learner) -> tuple[float, float]:
    """Return the accuracy on the test rows: the mean over all classes, and over the rare ones."""
    truth = SPLIT.test.labels
    right = learner.predict(SPLIT.test.inputs.numpy()) == truth
    by_class = np.array([right[truth == label].mean() for label in range(10)])
    return float(by_class.mean()), float(by_class[-RARE:].mean())


def measure_imbalanced(repetitions: int = 10) -> dict[str, Any]:
    """Label a pool whose first class has 20 times as many rows as the last."""
    lines_by_case: dict[str, Any] = {}

    for name in ("random", "entropy", "margin", "badge", "ldm-s"):
        for weights in (None, "balanced"):
            lines = []
            for repetition in range(repetitions):
                pool = make_long_tailed(SPLIT.train, imbalance=20, seed=repetition)
                learner = train_learner(
                    pool, model(class_weight=weights), name, repetition, rounds=5
                )

                labels = pool.labels
                known_labels = labels[learner.pool.labelled]
                rare = labels >= 10 - RARE

                lines.append(
                    [
                        *class_accuracies(learner),
                        float((known_labels >= 10 - RARE).sum() / rare.sum()),
                    ]
                )
            lines_by_case[f"{name}, {'classes weighted' if weights else 'rows alike'}"] = lines

    return {
        "rows": len(pool.labels),
        "labels": 120,
        "counts": np.bincount(labels).tolist(),
        "lines": lines_by_case,
    }


def train_learner(
    pool: LabelledRows, estimator: LogisticRegression, strategy: str, seed: int, *, rounds: int
) -> teeter.Learner:
    """Label 20 rows, then 20 more in each round."""
    labels = pool.labels
    learner = teeter.Learner(
        estimator, pool.inputs.numpy(), strategy, classes=10, seed=seed, cold_start="typiclust"
    )
    for _ in range(rounds + 1):
        rows = learner.ask(20)
        learner.tell(rows, labels[rows])
        learner.fit()
    return learner


def measure_cold_start(repetitions: int = 20) -> dict[str, Any]:
    """Choose the first labels without a model, and train on these alone."""
    pools: dict[str, Callable[[int], LabelledRows]] = {
        "balanced": lambda seed: SPLIT.train,
        "long tail": lambda seed: make_long_tailed(SPLIT.train, imbalance=20, seed=seed),
    }

    lines_by_case: dict[str, Any] = {}

    for kind, pool_of in pools.items():
        for name in ("random", "seeding-l2", "seeding-cosine", "probcover", "typiclust"):
            for count in (10, 20, 40):
                lines = []
                for repetition in range(repetitions):
                    pool = pool_of(repetition)
                    learner = teeter.Learner(
                        model(),
                        pool.inputs.numpy(),
                        "ldm-s",
                        classes=10,
                        seed=repetition,
                        cold_start=name,
                    )

                    rows = learner.ask(count)
                    row_labels = pool.labels[rows]
                    learner.tell(rows, row_labels)
                    learner.fit()
                    lines.append([class_accuracies(learner)[0], len(np.unique(row_labels))])
                lines_by_case[f"{kind}/{name}/{count}"] = lines

    return {"lines": lines_by_case}


def measure_stopping(repetitions: int = 10, rounds: int = 25) -> dict[str, Any]:
    """Label in campaigns, and record the accuracy and the advice after each round."""
    parts = [SPLIT.train, SPLIT.test]
    features = np.concatenate([part.inputs.numpy() for part in parts]).astype(np.float32)
    labels = [str(label) for part in parts for label in part.labels.tolist()]
    n_train = len(SPLIT.train)
    classes = tuple(map(str, range(10)))

    lines = []
    for repetition in range(repetitions):
        truth = np.array(labels[n_train:])
        with tempfile.TemporaryDirectory() as folder:
            settings = Settings(kind="features", head="linear", seed=repetition, control=0.2)
            items = [{"id": str(row), "features": features[row]} for row in range(n_train)]
            campaign = teeter.Campaign.make(
                items, classes, at=Path(folder) / "digits.teeter", settings=settings
            )

            rows = []
            for _ in range(rounds):
                for question in campaign.ask(20):
                    campaign.tell(question.item, labels[int(question.item)])
                campaign.train()
                predicted = np.array(campaign.classifier().predict(features[n_train:]))
                right = float((predicted == truth).mean())

                status = campaign.status()
                estimate = status.accuracy
                stop = any("consider stopping" in sentence for sentence in status.advice)
                rows.append(
                    [
                        status.labelled,
                        right,
                        estimate and estimate.share,
                        estimate and estimate.low,
                        estimate and estimate.high,
                        stop,
                    ]
                )

            campaign.database.close()
        lines.append(rows)
        print(f"stopping {repetition}", flush=True)

    return {"lines": lines}


def measure_all() -> dict[str, Any]:
    warnings.simplefilter("ignore", ConvergenceWarning)
    torch.set_num_threads(1)
    parts = {
        "imbalanced": measure_imbalanced(),
        "cold_start": measure_cold_start(),
        "stopping": measure_stopping(),
    }
    facts = {"teeter": teeter.__version__, "torch": torch.__version__}
    return {**facts, "hardware": describe_device(torch.device("cpu")), **parts}


# Tables of the pages


def table(heads: list[str], rows: Table) -> str:
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def mean_and_deviation(values: Any) -> str:
    return f"{100 * np.mean(values):.1f} ± {100 * np.std(values, ddof=1):.1f}"


def imbalanced_table(results: dict[str, Any]) -> str:
    """Return a row per strategy and weighting: accuracies, and the share of rare rows found."""
    rows = [
        [
            f"`{name.split(', ')[0]}`",
            WEIGHTS[name.split(", ")[1]],
            *(mean_and_deviation(part) for part in np.array(lines).T),
        ]
        for name, lines in results["imbalanced"]["lines"].items()
    ]

    return table(
        [
            "strategy",
            "class weights",
            "accuracy, all classes",
            "accuracy, rare classes",
            "rare rows found",
        ],
        rows,
    )


def cold_start_table(results: dict[str, Any]) -> str:
    """Return a row per strategy: the accuracy from the first labels, and the number of classes."""
    lines = results["cold_start"]["lines"]
    names = dict.fromkeys(key.split("/")[1] for key in lines)

    rows = []
    for name in names:
        cells = [f"`{name}`"]
        for kind in ("balanced", "long tail"):
            for count in (10, 40):
                right, seen = np.array(lines[f"{kind}/{name}/{count}"]).T
                cells.append(f"{mean_and_deviation(right)}, {seen.mean():.1f}")
        rows.append(cells)

    heads = ["first labels by", "10 labels", "40 labels", "long tail, 10 labels", "long tail, 40"]
    return table(heads, rows)


def stopping_table(results: dict[str, Any]) -> str:
    """Return the estimates and the truth at the first advice to stop, and at the end."""
    firsts = [next(row for row in rows if row[5]) for rows in results["stopping"]["lines"]]
    lasts = [rows[-1] for rows in results["stopping"]["lines"]]

    at_advice = np.array([[row[0], row[1], row[2]] for row in firsts], dtype=float)
    end = np.array([[row[0], row[1], row[2]] for row in lasts], dtype=float)

    rows = []
    for name, part in (("first advice to stop", at_advice), ("the end", end)):
        least = part[:, 0].min()
        most = part[:, 0].max()
        labels = f"{most:.0f}"
        if least < most:
            labels = f"{least:.0f} to {most:.0f}, {part[:, 0].mean():.0f} on average"
        rows.append([name, labels, mean_and_deviation(part[:, 1]), mean_and_deviation(part[:, 2])])

    return table(
        ["when", "labels", "accuracy on held-out rows", "accuracy estimated by the campaign"], rows
    )


def stopping_facts(results: dict[str, Any]) -> str:
    """Return sentences on what stopping cost and how often the intervals were right."""
    campaigns = results["stopping"]["lines"]
    lost = [
        100 * (max(row[1] for row in rows) - next(row[1] for row in rows if row[5]))
        for rows in campaigns
    ]
    taken_back = sum(
        any(not row[5] for row in rows[[row[5] for row in rows].index(True) :])
        for rows in campaigns
    )
    measured = [row for rows in campaigns for row in rows if row[2] is not None]
    inside = [row[3] <= row[1] <= row[4] for row in measured]
    at_stop = [
        row[3] <= row[1] <= row[4]
        for rows in campaigns
        for row in [next(row for row in rows if row[5])]
    ]

    def difference(low: int, high: int) -> str:
        rows = [row for row in measured if low < row[0] <= high]
        points = 100 * float(np.mean([row[2] - row[1] for row in rows]))
        return f"{abs(points):.1f} points {'above' if points > 0 else 'below'}"

    sentences = [
        f"Stopping at the first advice to stop cost {np.mean(lost):.1f} points on average, and at "
        f"most {max(lost):.1f},",
        "compared with the best of 25 rounds.",
        f"In {taken_back} of {len(campaigns)} campaigns, the advice to stop was withdrawn for a "
        f"while in a later round.",
        f"The interval contained the accuracy on held-out rows in {np.mean(inside):.0%} of all "
        f"rounds,",
        f"and at the first advice to stop in {sum(at_stop)} of {len(at_stop)} campaigns.",
        f"The interval lay below this accuracy in "
        f"{np.mean([row[1] > row[4] for row in measured]):.0%} of all rounds,",
        f"and above it in {np.mean([row[1] < row[3] for row in measured]):.0%}.",
        f"On average, the estimate was {difference(0, 100)} the accuracy on held-out rows with up "
        f"to 100 labels,",
        f"{difference(100, 300)} it with 101 to 300 labels, "
        f"and {difference(300, 500)} it with more labels.",
    ]
    return "\n".join(sentences)


ENSEMBLE_NETWORKS = 5
DROPOUT_PASSES = 100

TEST_ROWS = {
    "fashion-mnist": 10_000,
    "svhn": 26_032,
    "cifar100": 10_000,
    "tiny-imagenet": 10_000,
    "food101": 25_250,
    "imagenet": 50_000,
}
"""The settings without a committed run, and how many rows their networks are tested on."""


def hours_table(results: dict[str, Any]) -> str:
    """Return the GPU hours that each setting takes, estimated from measured steps."""
    steps = json.loads(STEPS.read_text(encoding="utf-8"))
    alone = {row["setting"]: row for row in steps["alone"]}
    together = {row["network"]: row for row in steps["together"] if row["networks"] == 50}

    rows = []
    for name, test_rows in TEST_ROWS.items():
        setting = setting_named(name)
        if name in alone:
            step = alone[name]["step (ms)"]
            milliseconds_per_row = alone[name]["prediction of a batch (ms)"] / alone[name]["batch"]
        else:
            # Of one network out of 50 that are trained together.
            row = together[setting.network]
            step = row["step (ms)"] / 50
            milliseconds_per_row = row["validation of 512 rows (ms)"] / 50 / 512

        hours = 0.0
        for strategy in setting.strategies:
            networks = ENSEMBLE_NETWORKS if strategy == "ensemble" else 1
            passes = DROPOUT_PASSES if strategy == "dbal" else 1
            for number in range(setting.rounds + 1):
                labelled = setting.initial + number * setting.query
                batches = -(-labelled // setting.batch_size)
                training = setting.epochs * batches * step
                validation = setting.epochs * setting.validation * milliseconds_per_row
                scored_rows = test_rows + passes * (setting.pool or 0)
                scoring = scored_rows * milliseconds_per_row
                hours += networks * (training + validation + scoring) / 3.6e6
        hours *= setting.repetitions
        rows.append([f"`{name}`", setting.network, f"{hours:,.1f}"])
    return table(["setting", "network", "GPU hours"], rows)


def verdicts(results: dict[str, Any]) -> str:
    """Return how many of the paper's items hold, in a sentence."""
    items = [
        json.loads(path.read_text(encoding="utf-8"))
        for path in (ROOT / "research" / "paper" / "results").glob("*.json")
    ]
    words = {"holds": "hold", "holds in part": "hold in part", "does not hold": "do not hold"}
    count = {words[name]: sum(item["verdict"] == name for item in items) for name in words}
    *first, last = (f"{number} {name}" for name, number in count.items())
    return f"Of the {len(items)} items, {', '.join(first)} and {last}."


BLOCKS: dict[str, Callable[[dict[str, Any]], str]] = {
    "imbalanced": imbalanced_table,
    "cold start": cold_start_table,
    "stopping": stopping_table,
    "stopping, facts": stopping_facts,
    "verdicts": verdicts,
    "hours": hours_table,
}
PAGES = [HERE / f"{name}.md" for name in ("choose", "when_to_stop", "reproduce_the_paper")]


def fill_tables(text: str) -> str:
    """Return a page with new tables."""
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    names = [name for name in BLOCKS if f"<!-- measured: {name} -->" in text]
    return fill_blocks(text, {name: BLOCKS[name](results) for name in names})


if __name__ == "__main__":
    if sys.argv[1:] == ["run"]:
        RESULTS.write_text(json.dumps(measure_all()) + "\n", encoding="utf-8")
    for page in PAGES:
        page.write_text(fill_tables(page.read_text(encoding="utf-8")), encoding="utf-8")
