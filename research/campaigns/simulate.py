"""Simulate campaigns with an annotator who knows every answer, and measure the model after each round.

python research/campaigns/simulate.py run banking77 FEATURES    # the folder that simulator.py writes
python research/campaigns/simulate.py page                      # docs/explanation/campaigns.md
"""

from __future__ import annotations

import json
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from teeter.bench.analysis.statistics import Gain, LabelSaving, gain_over, saving_over
from teeter.campaigns.settings import Settings

sys.path.append(str(Path(__file__).parents[2]))

from research.campaigns.simulator import (
    EncodedDataset,
    SimulatedCampaign,
    measure,
    read_features,
    record,
    split_again,
)
from research.labelling import describe_setup, draw_curves, make_parser, write_result
from research.page_blocks import fill_blocks

ROOT = Path(__file__).parents[2]
RESULTS = Path(__file__).parent / "results"
PAGE = ROOT / "docs" / "explanation" / "campaigns.md"

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Simulation:
    """A dataset, and how it is labelled."""

    batch: int
    rounds: int
    test_share: float | None = None
    """The share of rows that each repetition draws as test rows; None for the published ones."""
    positive: int | None = None
    """The rare class whose share of found rows is measured, if there is one."""


SIMULATIONS = {
    "banking77": Simulation(batch=100, rounds=15),
    "sms_spam": Simulation(batch=20, rounds=15, test_share=0.2, positive=1),
}

ARMS = {
    "ldm-s": ("ldm-s", "pool"),
    "margin": ("margin", "pool"),
    "badge": ("badge", "pool"),
    "random": ("random", "pool"),
    "ldm-s, labels alone": ("ldm-s", "linear"),
    "random, labels alone": ("random", "linear"),
}
"""What is compared: a strategy, and the head of the model in use."""


# Simulation


def simulate(
    data: EncodedDataset, simulation: Simulation, arm: str, seed: int
) -> dict[str, list[float]]:
    """Ask, answer and train, round by round.

    Returns:
        The value of each measure on the test rows after each round.
    """
    strategy, head = ARMS[arm]
    campaign = SimulatedCampaign(
        data.features[: data.pool_size],
        data.labels[: data.pool_size],
        data.n_classes,
        strategy=strategy,
        head=head,
        seed=seed,
        names=data.names,
    )
    curves: dict[str, list[float]] = {}
    for _ in range(simulation.rounds):
        campaign.label(simulation.batch)
        # Only the model counts here: judging all labels of "random" would take twenty more folds.
        campaign.state = replace(campaign.state, random=campaign.state.control)
        campaign.train()
        predicted = campaign.predict(data.test_features)
        record(curves, measure(data.test_labels, predicted, simulation.positive))
    return curves


def run_one(task: tuple[str, str, str, int]) -> tuple[dict[str, list[float]], float]:
    """Simulate one campaign on one thread, and return its curves and CPU minutes."""
    name, arm, folder, seed = task
    torch.set_num_threads(1)
    started = time.process_time()
    simulation = SIMULATIONS[name]
    data = read_features(name, Path(folder))
    if simulation.test_share is not None:
        data = split_again(data, simulation.test_share, seed)
    return simulate(data, simulation, arm, seed), (time.process_time() - started) / 60


def run(name: str, folder: Path, repetitions: int, processes: int) -> dict[str, Any]:
    """Simulate a dataset with every arm, and return the result to be saved."""
    simulation = SIMULATIONS[name]
    curves: dict[str, dict[str, list[list[float]]]] = {arm: {} for arm in ARMS}
    minutes = dict.fromkeys(ARMS, 0.0)
    tasks = [(name, arm, str(folder), seed) for seed in range(repetitions) for arm in ARMS]
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        for (_, arm, _, seed), (values, spent) in zip(tasks, pool.map(run_one, tasks), strict=True):
            minutes[arm] += spent
            for measure_name, curve in values.items():
                curves[arm].setdefault(measure_name, []).append(curve)
            print(
                f"{name}, {seed}, {arm}: {values['accuracy'][-1]:.3f}, {spent:.1f} min", flush=True
            )

    data = read_features(name, folder)
    pool_size = data.pool_size
    if simulation.test_share is not None:
        pool_size = split_again(data, simulation.test_share, 0).pool_size
    return {
        "dataset": name,
        **describe_setup(),
        "threads": 1,
        "minutes": {arm: round(spent, 2) for arm, spent in minutes.items()},
        "settings": {
            "encoder": "minilm",
            "control": Settings().control,
            "cold_start": "typiclust",
            "batch": simulation.batch,
        },
        "seeds": list(range(repetitions)),
        "pool": pool_size,
        "test": len(data.labels) - pool_size,
        "labelled": [simulation.batch * (k + 1) for k in range(simulation.rounds)],
        "curves": curves,
    }


# The page of results

SECTIONS = {
    "banking77": (
        "Banking77: 77 kinds of questions to a bank",
        "There are {pool:,} texts to label. The test rows are the {test:,} published ones",
    ),
    "sms_spam": (
        "SMS Spam: one in eight messages is spam",
        "Without duplicates, there are {pool:,} texts to label and {test:,} test rows. The split is drawn "
        "again in each repetition",
    ),
}


def read_result(name: str) -> dict[str, Any]:
    """Return a committed result, with its curves as arrays (repetitions, rounds)."""
    result: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())
    result["curves"] = {
        strategy: {measure_name: np.array(runs) for measure_name, runs in curves.items()}
        for strategy, curves in result["curves"].items()
    }
    return result


def fill_page(text: str) -> str:
    """Return the page with the committed results."""
    return fill_blocks(text, {"picks": "\n".join(build_section(name) for name in SECTIONS)})


def build_section(name: str) -> str:
    """Return the section about one dataset."""
    result = read_result(name)
    title, description = SECTIONS[name]
    measure_names = result["curves"]["random"]

    parts = [
        f"### {title}\n\n{description.format(**result)}. Each batch has {result['settings']['batch']} items.\n\n"
        f"![Accuracy against the number of labels, for each strategy](campaigns_{name}.svg)\n"
    ]
    parts.append(build_gain_table(result))
    if "found" in measure_names:
        parts.append(build_recall_table(result))

    return "\n".join(parts)


def build_gain_table(result: dict[str, Any]) -> str:
    """Return a table of gains in accuracy and saved labels, best strategy first, and a sentence about it."""
    label_counts = np.array(result["labelled"], dtype=float)
    curves = {strategy: curves["accuracy"] for strategy, curves in result["curves"].items()}
    baseline = curves["random"]

    gains = {}
    savings = {}
    for strategy, runs in curves.items():
        if strategy != "random":
            gains[strategy] = gain_over(runs, baseline)
            savings[strategy] = saving_over(label_counts, runs, baseline)

    last = int(label_counts[-1])
    lines = [
        f"| accuracy | at {last:,} labels | gain | p | labels needed | saved | p |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    lines += [
        format_gain_row(strategy, curves[strategy], gains[strategy], savings[strategy])
        for strategy in sorted(gains, key=lambda strategy: -gains[strategy].mean)
    ]
    lines.append(f"| `random` | {baseline[:, -1].mean():.1%} | | | {last:,} | | |")

    return "\n".join([*lines, "", compare_ldm_s(gains, curves), ""])


def format_gain_row(strategy: str, runs: Floats, gain: Gain, saving: LabelSaving) -> str:
    labels_needed = "never"
    if saving.labels is not None:
        labels_needed = f"{saving.labels:,.0f}"
    saved = ""
    if saving.saved is not None:
        saved = f"{saving.saved / saving.baseline:.0%}"
    saving_p = ""
    if saving.p is not None:
        saving_p = f"{saving.p:.2g}"

    cells = [
        f"`{strategy}`",
        f"{runs[:, -1].mean():.1%}",
        f"{gain.mean:+.2f} ± {gain.deviation:.2f}",
        f"{gain.p:.2g}",
        labels_needed,
        saved,
        saving_p,
    ]
    return f"| {' | '.join(cells)} |"


def compare_ldm_s(gains: dict[str, Gain], curves: dict[str, Floats]) -> str:
    """Return a sentence that compares LDM-S with the best other strategy, whichever is ahead."""
    rivals = [arm for arm in gains if ARMS[arm][1] == "pool" and arm != "ldm-s"]
    best_rival = max(rivals, key=lambda strategy: gains[strategy].mean)
    difference = gain_over(curves["ldm-s"], curves[best_rival])
    figures = f"{abs(difference.mean):.2f} points, p = {difference.p:.2g}"
    leader = "ldm-s" if difference.mean > 0 else best_rival

    if not difference.significant:
        comparison = (
            f"The difference between `ldm-s` and `{best_rival}`, the best other strategy, is not "
            f"significant ({figures}, in favour of `{leader}`)."
        )
    elif difference.mean > 0:
        comparison = f"`ldm-s` is better than `{best_rival}`, the best other strategy ({figures})."
    else:
        comparison = f"`ldm-s` is worse than `{best_rival}`, the best other strategy ({figures})."

    return comparison


def build_recall_table(result: dict[str, Any]) -> str:
    """Return a table of the share of the rare class that was found, at three label counts."""
    label_counts = [40, 100, result["labelled"][-1]]
    rounds = [result["labelled"].index(count) for count in label_counts]

    counts = " | ".join(str(count) for count in label_counts)
    lines = [
        f"| share of spam found, by number of labels | {counts} |",
        "| --- |" + " ---: |" * len(label_counts),
    ]
    for strategy, curves in result["curves"].items():
        shares = " | ".join(f"{curves['found'][:, k].mean():.1%}" for k in rounds)
        lines.append(f"| `{strategy}` | {shares} |")
    return "\n".join([*lines, ""])


def draw_figure(name: str, folder: Path) -> Path:
    """Draw the accuracy curves of a result, and return the SVG file."""
    result = read_result(name)
    curves = {strategy: curves["accuracy"] for strategy, curves in result["curves"].items()}
    return draw_curves(result["labelled"], curves, folder / f"campaigns_{name}")


# Command line


def main() -> None:
    parser = make_parser(__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run_parser = commands.add_parser("run", help="simulate campaigns on a dataset")
    run_parser.add_argument("dataset", choices=list(SIMULATIONS))
    run_parser.add_argument("features", type=Path)
    run_parser.add_argument("--repetitions", type=int, default=5)
    run_parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    run_parser.add_argument("--out", type=Path, help="default: results/DATASET.json")
    commands.add_parser("page", help="write the page and its figures from the results")
    options = parser.parse_args()

    if options.command == "page":
        PAGE.write_text(fill_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
        for name in SECTIONS:
            draw_figure(name, PAGE.parent)
        return

    result = run(options.dataset, options.features, options.repetitions, options.processes)
    write_result(result, options.out or RESULTS / f"{options.dataset}.json")


if __name__ == "__main__":
    main()
