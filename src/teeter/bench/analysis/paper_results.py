"""The tables of the LDM paper [Cho, Kim, Lee, Shin and Yoo 2024], to compare our runs with.

Accuracies are in percent, gains in percentage points, runtimes in minutes. The numbers are CSV
files in ``paper_tables/``, as the paper prints them.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import numpy as np

from teeter.bench.analysis.statistics import FloatArray, gain_over
from teeter.errors import UnknownNameError

__all__ = [
    "NAMES",
    "ROUNDING",
    "PaperDelta",
    "RecomputedDelta",
    "accuracy",
    "datasets",
    "deltas",
    "minutes",
    "recomputed_deltas",
]

NAMES = {
    "LDM-S": "ldm-s",
    "Rand": "random",
    "Entropy": "entropy",
    "Margin": "margin",
    "Coreset": "coreset",
    "ProbCov": "probcover",
    "DBAL": "dbal",
    "ENS": "ensemble",
    "BADGE": "badge",
    "BAIT": "bait",
}
"""Our strategy names by the paper's."""

ROUNDING = 0.015
"""Points by which rounding alone can separate a printed delta from a recomputed one.

A printed delta is off by up to 0.005, and the difference of two printed accuracies by up to 0.01.
"""


@dataclass(frozen=True)
class PaperDelta:
    """A strategy's mean gain over Random in percentage points, as the paper prints it."""

    mean: float
    deviation: float
    beaten: bool
    """Whether LDM-S differs significantly, p < 0.05 in the paper's paired t-test."""


@dataclass(frozen=True)
class RecomputedDelta:
    """A printed delta beside the one that follows from the paper's own accuracy table."""

    dataset: str
    strategy: str
    printed: float
    recomputed: float
    complete: bool
    """Whether the accuracy table has every round after the first, so that the two must agree."""

    @property
    def difference(self) -> float:
        """Recomputed minus printed, in percentage points."""
        return self.recomputed - self.printed

    @property
    def agrees(self) -> bool:
        """Whether rounding alone explains the difference."""
        # The last term is for the rounding of binary fractions, not of the paper.
        return abs(self.difference) <= ROUNDING + 1e-9


def datasets() -> list[str]:
    """Return the names of the paper's datasets."""
    return [row["dataset"] for row in _read_table("settings")]


def deltas(dataset: str) -> dict[str, PaperDelta]:
    """Return the printed gain over Random of each strategy.

    Example:
        >>> deltas("openml-6")["ldm-s"].mean
        4.76
    """
    gains = {}

    for row in _rows_of(dataset, "deltas"):
        strategy = NAMES[row["strategy"]]
        gains[strategy] = PaperDelta(
            mean=float(row["delta_vs_random_percent"]),
            deviation=float(row["std"]),
            beaten=row["significant_vs_ldm_s"] == "yes",
        )

    return gains


def accuracy(dataset: str) -> dict[str, dict[int, float]]:
    """Return the mean test accuracy in percent, by strategy and number of labels."""
    curves: dict[str, dict[int, float]] = {}

    # One row per point of a curve. The paper prints only some of the rounds of a dataset.
    for row in _rows_of(dataset, "accuracy"):
        strategy = NAMES[row["strategy"]]
        labels = int(row["labelled"])
        curve = curves.setdefault(strategy, {})
        curve[labels] = float(row["accuracy_percent"])

    return curves


def minutes(dataset: str) -> dict[str, float]:
    """Return the minutes of a run on the authors' machine, by strategy.

    The paper does not time Random, nor any strategy on ImageNet.
    """
    minutes_by_strategy = {}

    for row in _rows_of(dataset, "runtime"):
        strategy = NAMES[row["strategy"]]
        minutes_by_strategy[strategy] = float(row["minutes"])

    return minutes_by_strategy


def recomputed_deltas(dataset: str) -> list[RecomputedDelta]:
    """Return each printed delta beside the one recomputed from the paper's accuracy table."""
    (setting,) = _rows_of(dataset, "settings")

    # Every round after the first adds ``query`` labels.
    labels_added = int(setting["final"]) - int(setting["initial"])
    rounds = labels_added // int(setting["query"])

    curves = accuracy(dataset)
    random = _as_repetition(curves["random"])
    compared = []

    for strategy, printed in deltas(dataset).items():
        curve = curves[strategy]
        gain = gain_over(_as_repetition(curve), random)
        compared.append(
            RecomputedDelta(
                dataset=dataset,
                strategy=strategy,
                printed=printed.mean,
                recomputed=gain.mean,
                complete=len(curve) == rounds,
            )
        )

    return compared


def _as_repetition(curve: dict[int, float]) -> FloatArray:
    """Return a printed curve as the accuracies of one repetition, shape (1, 1 + rounds)."""
    # No table shows the initial round. Gains leave it out, so any number does.
    percents = [0.0, *curve.values()]
    return np.array([percents]) / 100


def _rows_of(dataset: str, table: str) -> list[dict[str, str]]:
    names = datasets()
    if dataset not in names:
        raise UnknownNameError(
            f"The paper has no dataset called {dataset!r}. Choose from {', '.join(names)}."
        )

    rows = _read_table(table)
    return [row for row in rows if row["dataset"] == dataset]


@cache
def _read_table(table: str) -> tuple[dict[str, str], ...]:
    # Through importlib, because an installed package may be a zip archive.
    folder = files("teeter.bench.analysis").joinpath("paper_tables")
    text = folder.joinpath(f"{table}.csv").read_text(encoding="utf-8")
    return tuple(csv.DictReader(text.splitlines()))
