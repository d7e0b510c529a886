"""The paper's tables [Cho, Kim, Lee, Shin and Yoo 2024], to stand beside ours: in percent, points and minutes."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import numpy as np

from teeter.analysis.statistics import gain_over
from teeter.errors import UnknownNameError

__all__ = [
    "NAMES",
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
"""What the paper calls a strategy, and what we do."""

ROUNDING = 0.015
"""How far a delta and the mean of differences may be apart by rounding: 0.005 for itself, 0.01 for a difference."""


@dataclass(frozen=True)
class PaperDelta:
    """A strategy's mean gain over Random, in points, as the paper prints it."""

    mean: float
    deviation: float
    beaten: bool
    """Whether LDM-S is significantly different, p < 0.05 in the paper's paired t-test."""


@dataclass(frozen=True)
class RecomputedDelta:
    """A delta of the paper beside the one that follows from its own accuracy table."""

    dataset: str
    strategy: str
    printed: float
    recomputed: float
    complete: bool
    """Whether the accuracy table has every step after the first, so that the two must agree."""

    @property
    def difference(self) -> float:
        """Recomputed minus printed, in points."""
        return self.recomputed - self.printed

    @property
    def agrees(self) -> bool:
        """Whether rounding alone explains the difference."""
        return abs(self.difference) <= ROUNDING + 1e-9


def datasets() -> list[str]:
    """Return the datasets of the paper's tables."""
    return [row["dataset"] for row in _rows("settings")]


def deltas(dataset: str) -> dict[str, PaperDelta]:
    """Return the gains over Random by strategy."""
    return {
        NAMES[row["strategy"]]: PaperDelta(
            float(row["delta_vs_random_percent"]),
            float(row["std"]),
            row["significant_vs_ldm_s"] == "yes",
        )
        for row in _of("deltas", dataset)
    }


def accuracy(dataset: str) -> dict[str, dict[int, float]]:
    """Return the mean test accuracy in percent by strategy and number of labels."""
    found: dict[str, dict[int, float]] = {}
    for row in _of("accuracy", dataset):
        found.setdefault(NAMES[row["strategy"]], {})[int(row["labelled"])] = float(
            row["accuracy_percent"]
        )
    return found


def minutes(dataset: str) -> dict[str, float]:
    """Return the minutes of a run by strategy, on the authors' machine; Random and ImageNet are not in the table."""
    return {NAMES[row["strategy"]]: float(row["minutes"]) for row in _of("runtime", dataset)}


def recomputed_deltas(dataset: str) -> list[RecomputedDelta]:
    """Return each delta of the paper beside the one recomputed from its accuracy table."""
    (setting,) = _of("settings", dataset)
    steps = (int(setting["final"]) - int(setting["initial"])) // int(setting["query"])
    shown = accuracy(dataset)

    def curve(strategy: str) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
        return (
            np.array([[0.0, *shown[strategy].values()]]) / 100
        )  # the initial step, which no table shows, is left out

    return [
        RecomputedDelta(
            dataset,
            strategy,
            printed.mean,
            gain_over(curve(strategy), curve("random")).mean,
            complete=len(shown[strategy]) == steps,
        )
        for strategy, printed in deltas(dataset).items()
    ]


def _of(table: str, dataset: str) -> Iterator[dict[str, str]]:
    known = datasets()
    if dataset not in known:
        raise UnknownNameError(
            f"The paper has no dataset called {dataset!r}: it has {', '.join(known)}."
        )
    return (row for row in _rows(table) if row["dataset"] == dataset)


@cache
def _rows(table: str) -> tuple[dict[str, str], ...]:
    text = (
        files("teeter.analysis")
        .joinpath("paper_tables", f"{table}.csv")
        .read_text(encoding="utf-8")
    )
    return tuple(csv.DictReader(text.splitlines()))
