"""Fill the measured figures into the README, the landing page and the page on choosing.

    python docs/readme/figures.py

Each stands between ``<!-- figures: NAME -->`` and ``<!-- end -->``, and comes from committed
results. A test fails if a page is out of date.
"""

from __future__ import annotations

import json
import re
import runpy
import textwrap
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from teeter.bench.analysis.statistics import gain_over, saving_over

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "docs" / "index.md",
    ROOT / "docs" / "how_to" / "choose.md",
]
SPEED_RESULTS = ROOT / "research" / "speed" / "results"

CAMPAIGNS = {
    "sms_spam": "SMS messages, spam or not",
    "banking77": "questions to a bank, 77 classes",
}
LABEL_COUNTS = {"sms_spam": (20, 40, 100, 200, 300), "banking77": (100, 300, 600, 1000, 1500)}
CLASS_COUNTS = {"sms_spam": 2, "banking77": 77}
WIDTH = 120


@cache
def read_campaign(name: str) -> dict[str, Any]:
    """Return the committed result of simulated campaigns on a dataset."""
    simulate = runpy.run_path(str(ROOT / "research" / "campaigns" / "simulate.py"))
    result: dict[str, Any] = simulate["read_result"](name)
    return result


def accuracy_curves(name: str) -> tuple[Any, dict[str, Any]]:
    """Return label counts, and the accuracy of each strategy: (repetitions, rounds)."""
    result = read_campaign(name)
    label_counts = np.array(result["labelled"], dtype=float)
    return label_counts, {
        strategy: curves["accuracy"] for strategy, curves in result["curves"].items()
    }


def labels_saved() -> str:
    """Return a sentence on how many labels campaigns save."""
    parts = []
    for name, data in (
        ("sms_spam", "{items} SMS messages"),
        ("banking77", "{items} bank questions in 77 classes"),
    ):
        label_counts, curves = accuracy_curves(name)
        saving = saving_over(label_counts, curves["ldm-s"], curves["random"])
        items = data.format(items=f"{read_campaign(name)['pool']:,}")
        parts.append(
            f"on {items}, a model trained on {saving.labels:,.0f} picked items is as accurate as "
            f"one trained on {saving.baseline:,.0f} random items "
            f"({saving.saved / saving.baseline:.0%} fewer labels)"
        )

    sentence = f"**Measured** in simulated campaigns with default settings: {parts[0]}; {parts[1]}."
    return textwrap.fill(sentence, WIDTH, break_on_hyphens=False)


def runs() -> str:
    """Return the table of the paper's comparison, run again, and what follows from it."""
    pages = runpy.run_path(str(ROOT / "research" / "paper" / "pages.py"))
    comparisons = pages["finished"]()
    savings = [comparison.savings["ldm-s"] for comparison in comparisons]
    shares = [saving.saved / saving.baseline for saving in savings]

    beaten = 0
    alone_in_front = 0
    for comparison in comparisons:
        accuracy = comparison.run.curves().accuracy
        rivals = [name for name in comparison.gains if name != "ldm-s"]
        gains = {name: comparison.gains[name].mean for name in rivals}
        best_rival = max(gains, key=gains.__getitem__)
        lead = gain_over(accuracy["ldm-s"], accuracy[best_rival])
        if lead.significant:
            beaten += lead.mean < 0
            alone_in_front += lead.mean > 0

    if alone_in_front:
        in_front = (
            f"On {alone_in_front} of them, LDM-S is significantly better than every other strategy."
        )
    else:
        in_front = "On no dataset is LDM-S significantly better than every other strategy."

    conclusion = (
        f"Compared with random picks, LDM-S saved {min(shares):.0%} to {max(shares):.0%} of the "
        f"labels. On {len(comparisons) - beaten} of {len(comparisons)} datasets, no strategy is "
        f"significantly better than LDM-S. {in_front}"
    )
    table: str = pages["table_of_runs"]()
    return f"{table}\n\n{textwrap.fill(conclusion, WIDTH, break_on_hyphens=False)}"


def read_speed(name: str) -> dict[str, Any]:
    """Return a committed result of the speed benchmarks."""
    path = SPEED_RESULTS / f"{name}.json"
    result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return result


def speed() -> str:
    """Return a sentence on the speed of the kernels."""
    comparison = read_speed("ldm_cpu")["comparison"]
    estimates = [row["ratio"] for row in comparison]

    # The last row is that of the largest pool, on which the paper's implementation was not run.
    gpu_rows = read_speed("all_h200")["table"]
    imagenet = gpu_rows[-1]
    selections = []
    for row in gpu_rows:
        ratio = row["times faster than the paper's"]
        if row["strategy"] == "ldm-s" and ratio is not None:
            selections.append(ratio)

    peers = []
    for name in ("peers_cpu", "peers_large_cpu"):
        rows = read_speed(name)["peers"]
        peers += [row["times faster"] for row in rows if row["times faster"]]

    sentence = (
        f"On two CPU cores, teeter estimates LDM {min(estimates):.0f} to {max(estimates):.0f} "
        "times faster than the paper's algorithm as its authors run it, at the same accuracy. "
        f"On one H200, selecting by LDM-S is {min(selections):,.0f} to {max(selections):,.0f} "
        "times faster than theirs. Picking 64,060 of 256,240 rows with 1,000 classes takes "
        f"{imagenet['teeter (s)']:.2f} s there. "
        "Strategies that scikit-activeml also has are "
        f"{min(peers):.1f} to {max(peers):.1f} times faster in teeter. See [how speed is "
        "measured](docs/explanation/speed.md)."
    )
    return textwrap.fill(sentence, WIDTH, break_on_hyphens=False, break_long_words=False)


def how_many_labels() -> str:
    """Return a table of accuracies by the number of labels."""
    lines = []
    for name, title in CAMPAIGNS.items():
        label_counts, curves = accuracy_curves(name)
        shown = LABEL_COUNTS[name]
        lines.append(f"| {title} | {' | '.join(f'{count:,} labels' for count in shown)} |")
        lines.append(f"| --- |{' ---: |' * len(shown)}")
        for strategy in ("ldm-s", "random"):
            mean = curves[strategy].mean(axis=0)
            values = np.interp(shown, label_counts, mean)
            lines.append(f"| `{strategy}` | {' | '.join(f'{value:.1%}' for value in values)} |")
        lines.append("")

    parts = []
    for name, title in CAMPAIGNS.items():
        label_counts, curves = accuracy_curves(name)
        labels = 10 * CLASS_COUNTS[name]
        accuracy = np.interp(labels, label_counts, curves["ldm-s"].mean(axis=0))
        parts.append(f"{accuracy:.0%} on {title.split(',')[0]} ({labels:,} labels)")
    lines.append(
        f"With ten labels per class, `ldm-s` reached an accuracy of {parts[0]} and {parts[1]}."
    )
    return "\n".join(lines)


BLOCKS: dict[str, Callable[[], str]] = {
    "labels saved": labels_saved,
    "paper runs": runs,
    "speed": speed,
    "labels": how_many_labels,
}


def fill_figures(text: str) -> str:
    """Return a page with its figures filled in."""
    block = re.compile(r"<!-- figures: (.*?) -->\n.*?<!-- end -->", flags=re.DOTALL)
    return block.sub(
        lambda match: f"<!-- figures: {match[1]} -->\n\n{BLOCKS[match[1]]()}\n\n<!-- end -->", text
    )


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(fill_figures(page.read_text(encoding="utf-8")), encoding="utf-8")
