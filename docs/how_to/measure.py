"""Measure what three how-tos say, on the handwritten digits that scikit-learn carries; and fill the how-tos' tables in.

python docs/how_to/measure.py run: measures again, in two minutes on one core, and fills the tables.
python docs/how_to/measure.py: fills the tables from measured.json and from the paper's runs; a test holds them to it.
"""

from __future__ import annotations

import json
import re
import runpy
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
from teeter.arrays import describe_device
from teeter.campaigns import Settings
from teeter.datasets import LabelledRows, load_dataset, make_long_tailed
from teeter.experiments import read_run

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
KEPT = HERE / "measured.json"
SPLIT = load_dataset("digits")
RARE = 3
"""The last classes, which a long tail leaves few rows of."""

WEIGHTS = {"rows alike": "none", "classes weighted": "balanced"}
"""What the page calls the two ways of training in measured.json."""

Table = list[list[str]]


def model(**options: Any) -> LogisticRegression:
    return LogisticRegression(max_iter=500, **options)


def judged(learner: teeter.Learner) -> tuple[float, float]:
    """Return the mean share of right answers over all classes, and over the rare ones, on the test rows."""
    truth = SPLIT.test.labels
    logits = learner._all_classes(learner.observe(SPLIT.test.inputs.numpy(), ("logits",)).logits)
    right = logits.argmax(dim=1).numpy() == truth
    by_class = np.array([right[truth == one].mean() for one in range(10)])
    return float(by_class.mean()), float(by_class[-RARE:].mean())


def imbalanced(repetitions: int = 10) -> dict[str, Any]:
    """Label a pool whose first class has 20 times as many rows as the last, by several strategies and models."""
    found: dict[str, Any] = {}
    for name in ("random", "entropy", "margin", "badge", "ldm-s"):
        for weights in (None, "balanced"):
            lines = []
            for repetition in range(repetitions):
                pool = make_long_tailed(SPLIT.train, imbalance=20, seed=repetition)
                learner = learned(pool, model(class_weight=weights), name, repetition, rounds=5)
                labels = pool.labels
                told = labels[learner.pool.labelled]
                rare = labels >= 10 - RARE
                lines.append([*judged(learner), float((told >= 10 - RARE).sum() / rare.sum())])
            found[f"{name}, {'classes weighted' if weights else 'rows alike'}"] = lines
    return {
        "rows": len(pool.labels),
        "labels": 120,
        "counts": np.bincount(labels).tolist(),
        "lines": found,
    }


def learned(
    pool: LabelledRows, made: LogisticRegression, strategy: str, seed: int, *, rounds: int
) -> teeter.Learner:
    """Begin with 20 rows and add 20 a round."""
    labels = pool.labels
    learner = teeter.Learner(
        made, pool.inputs.numpy(), strategy, classes=10, seed=seed, cold_start="typiclust"
    )
    for _ in range(rounds + 1):
        rows = learner.ask(20)
        learner.tell(rows, labels[rows])
        learner.fit()
    return learner


def cold_start(repetitions: int = 20) -> dict[str, Any]:
    """Choose the first labels without a model, and train on these alone."""
    pools: dict[str, Callable[[int], LabelledRows]] = {
        "balanced": lambda seed: SPLIT.train,
        "long tail": lambda seed: make_long_tailed(SPLIT.train, imbalance=20, seed=seed),
    }
    found: dict[str, Any] = {}
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
                    told = pool.labels[rows]
                    learner.tell(rows, told)
                    learner.fit()
                    lines.append([judged(learner)[0], len(np.unique(told))])
                found[f"{kind}/{name}/{count}"] = lines
    return {"lines": found}


def stopping(repetitions: int = 10, rounds: int = 25) -> dict[str, Any]:
    """Label in campaigns, and note when their advice first is to stop."""
    made = runpy.run_path(str(ROOT / "benchmarks" / "campaigns" / "simulate.py"))
    parts = [SPLIT.train, SPLIT.test]
    features = np.concatenate([part.inputs.numpy() for part in parts]).astype(np.float32)
    labels = [str(label) for part in parts for label in part.labels.tolist()]
    whole = len(SPLIT.train)
    classes = tuple(map(str, range(10)))
    lines = []
    for repetition in range(repetitions):
        data = made["Data"](
            classes, features, labels, np.arange(whole), np.arange(whole, len(labels))
        )
        truth = np.array([classes.index(labels[row]) for row in data.test])
        with tempfile.TemporaryDirectory() as folder:
            settings = Settings(kind="features", seed=repetition, control=0.2)
            campaign = teeter.Campaign.create(
                Path(folder) / "digits.teeter", "digits", classes, settings
            )
            campaign.add({"id": str(row), "features": features[row]} for row in data.pool)
            rows = []
            for _ in range(rounds):
                for question in campaign.ask(20):
                    campaign.tell(question.item, labels[int(question.item)])
                right = float((made["predicted"](campaign, data) == truth).mean())
                status = campaign.status()
                told = status.accuracy
                stop = any("consider stopping" in sentence for sentence in status.advice)
                rows.append(
                    [
                        status.labelled,
                        right,
                        told and told.share,
                        told and told.low,
                        told and told.high,
                        stop,
                    ]
                )
            campaign.database.close()
        lines.append(rows)
        print(f"stopping {repetition}", flush=True)
    return {"lines": lines}


def measured() -> dict[str, Any]:
    warnings.simplefilter("ignore", ConvergenceWarning)
    torch.set_num_threads(1)
    parts = {one.__name__: one() for one in (imbalanced, cold_start, stopping)}
    facts = {"teeter": teeter.__version__, "torch": torch.__version__}
    return {**facts, "hardware": describe_device(torch.device("cpu")), **parts}


# ---- the tables of the pages


def table(heads: list[str], rows: Table) -> str:
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def spread(values: Any) -> str:
    return f"{100 * np.mean(values):.1f} ± {100 * np.std(values, ddof=1):.1f}"


def imbalanced_table(kept: dict[str, Any]) -> str:
    """Return a row per strategy and weighting: accuracy over all classes, over the rare ones, and rare rows found."""
    rows = [
        [
            f"`{name.split(', ')[0]}`",
            WEIGHTS[name.split(", ")[1]],
            *(spread(part) for part in np.array(lines).T),
        ]
        for name, lines in kept["imbalanced"]["lines"].items()
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


def cold_start_table(kept: dict[str, Any], kind: str) -> str:
    """Return a row per strategy: the accuracy of a model of the first labels, and how many classes they have."""
    lines = kept["cold_start"]["lines"]
    names = dict.fromkeys(key.split("/")[1] for key in lines)
    rows = []
    for name in names:
        parts = [np.array(lines[f"{kind}/{name}/{count}"]).T for count in (10, 20, 40)]
        rows.append(
            [f"`{name}`", *(f"{spread(right)}, {seen.mean():.1f}" for right, seen in parts)]
        )
    return table(["first labels by", "10 labels", "20 labels", "40 labels"], rows)


def stopping_table(kept: dict[str, Any]) -> str:
    """Return what was known and what was true when a campaign first said to stop, and at the end."""
    firsts = [next(row for row in rows if row[5]) for rows in kept["stopping"]["lines"]]
    lasts = [rows[-1] for rows in kept["stopping"]["lines"]]
    said = np.array([[row[0], row[1], row[2]] for row in firsts], dtype=float)
    end = np.array([[row[0], row[1], row[2]] for row in lasts], dtype=float)
    rows = []
    for name, part in (("first advice to stop", said), ("the end", end)):
        least, most = part[:, 0].min(), part[:, 0].max()
        labels = (
            f"{least:.0f} to {most:.0f}, {part[:, 0].mean():.0f} on average"
            if least < most
            else f"{most:.0f}"
        )
        rows.append([name, labels, spread(part[:, 1]), spread(part[:, 2])])
    return table(
        ["when", "labels", "accuracy on held-out rows", "accuracy estimated by the campaign"], rows
    )


def stopping_facts(kept: dict[str, Any]) -> str:
    """Return what else there is to say of the campaigns, in sentences."""
    campaigns = kept["stopping"]["lines"]
    lost = [
        100 * (max(row[1] for row in rows) - next(row[1] for row in rows if row[5]))
        for rows in campaigns
    ]
    taken_back = sum(
        any(not row[5] for row in rows[[row[5] for row in rows].index(True) :])
        for rows in campaigns
    )
    known = [row for rows in campaigns for row in rows if row[2] is not None]
    inside = [row[3] <= row[1] <= row[4] for row in known]
    at_stop = [
        row[3] <= row[1] <= row[4]
        for rows in campaigns
        for row in [next(one for one in rows if one[5])]
    ]

    def behind(low: int, high: int) -> float:
        return 100 * float(np.mean([row[1] - row[2] for row in known if low < row[0] <= high]))

    sentences = [
        f"Stopping at the first advice cost {np.mean(lost):.1f} points on average, and at most {max(lost):.1f},",
        "compared with the best of 25 rounds.",
        f"In {taken_back} of {len(campaigns)} campaigns, a later round took the advice back for a while.",
        f"The interval contained the accuracy on held-out rows in {np.mean(inside):.0%} of all rounds,",
        f"and in {sum(at_stop)} of {len(at_stop)} rounds in which the advice first came.",
        f"It was too low in {np.mean([row[1] > row[4] for row in known]):.0%} of all rounds",
        f"and too high in {np.mean([row[1] < row[3] for row in known]):.0%}.",
        f"Up to 100 labels, the estimate was {behind(0, 100):.1f} points below the accuracy on held-out rows,",
        f"from 100 to 300 labels {behind(100, 300):.1f} points, and after that {behind(300, 500):.1f}.",
    ]
    return "\n".join(sentences)


def runs_table(kept: dict[str, Any]) -> str:
    """Return a row per run of the paper's settings: what was run, on which machine, and for how long."""
    rows = []
    for path in sorted((ROOT / "benchmarks" / "paper" / "runs").glob("*/run.json")):
        run = read_run(path.parent)
        if run.setting.paper is None or run.setting.name != path.parent.name or not run.finished:
            continue
        facts = json.loads(path.read_text(encoding="utf-8"))
        minutes = sum(sum(one.seconds.values()) for one in run.rounds) / 60
        size = f"{len(run.strategies)} × {facts['repetitions']} × {facts['rounds']}"
        rows.append(
            [f"`{path.parent.name}`", size, facts["hardware"].split(",")[0], f"{minutes:.0f}"]
        )
    return table(["setting", "strategies × repetitions × rounds", "machine", "minutes"], rows)


def verdicts(kept: dict[str, Any]) -> str:
    """Return how many of the paper's items hold, in a sentence."""
    found = [
        json.loads(path.read_text(encoding="utf-8"))
        for path in (ROOT / "reproduction" / "results").glob("*.json")
    ]
    words = {"holds": "hold", "holds in part": "hold in part", "does not hold": "do not hold"}
    count = {words[name]: sum(one["verdict"] == name for one in found) for name in words}
    return (
        f"Of the {len(found)} items, "
        + ", ".join(f"{number} {name}" for name, number in count.items())
        + "."
    )


BLOCKS: dict[str, Callable[[dict[str, Any]], str]] = {
    "imbalanced": imbalanced_table,
    "cold start": lambda kept: cold_start_table(kept, "balanced"),
    "cold start, long tail": lambda kept: cold_start_table(kept, "long tail"),
    "stopping": stopping_table,
    "stopping, facts": stopping_facts,
    "runs": runs_table,
    "verdicts": verdicts,
}
PAGES = [
    HERE / f"{name}.md"
    for name in ("imbalanced_data", "cold_start", "when_to_stop", "reproduce_the_paper")
]


def filled(text: str) -> str:
    """Return a page with its tables made anew."""
    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    block = re.compile(r"<!-- measured: (.*?) -->\n.*?<!-- end -->", flags=re.DOTALL)
    return block.sub(
        lambda found: f"<!-- measured: {found[1]} -->\n\n{BLOCKS[found[1]](kept)}\n\n<!-- end -->",
        text,
    )


if __name__ == "__main__":
    if sys.argv[1:] == ["run"]:
        KEPT.write_text(json.dumps(measured()) + "\n", encoding="utf-8")
    for page in PAGES:
        page.write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")
