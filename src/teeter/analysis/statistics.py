"""Comparing two strategies: paired differences, what they are worth in labels, and whether they could be chance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from teeter.errors import InputError

__all__ = [
    "Gain",
    "LabelSaving",
    "RankCorrelation",
    "critical_value",
    "gain_over",
    "labels_to_reach",
    "mean_and_std",
    "paired_t",
    "rank_correlation",
    "saving_over",
]

Array = npt.NDArray[np.floating[Any]]

EQUAL = 1e-9
"""Differences that vary by less than this do not vary: the rest is rounding."""


@dataclass(frozen=True)
class Gain:
    """How much more accurate one strategy is than another, in points of accuracy."""

    mean: float
    deviation: float
    """The standard deviation over repetitions."""
    t: float
    p: float
    """Two-sided, paired over repetitions; 1 where all repetitions are equal."""

    @property
    def significant(self) -> bool:
        """Whether chance alone would do this less than once in twenty times."""
        return self.p < 0.05


def gain_over(accuracy: Array, baseline: Array) -> Gain:
    """Return the gain of a strategy's mean accuracy over rounds: (R, T) and (R, T), paired by repetition.

    The first round is left out: it is the initial set's, and the same for all.
    """
    if accuracy.shape != baseline.shape or accuracy.ndim != 2 or accuracy.shape[1] < 2:
        raise InputError(
            f"Accuracies of shape {accuracy.shape} and {baseline.shape} cannot be paired: "
            "both are (repetitions, rounds), with two rounds or more."
        )
    differences = 100 * (accuracy[:, 1:].mean(axis=1) - baseline[:, 1:].mean(axis=1))
    t, p = paired_t(differences)
    spread = float(differences.std(ddof=1)) if len(differences) > 1 else 0.0
    return Gain(float(differences.mean()), spread, t, p)


def paired_t(differences: Array) -> tuple[float, float]:
    """Return t and the two-sided p of paired differences (R,); (0, 1) where they do not vary or there is only one."""
    from scipy import stats

    if len(differences) < 2 or np.ptp(differences) < EQUAL:
        return 0.0, 1.0
    found = stats.ttest_1samp(differences, 0.0)
    return float(found.statistic), float(found.pvalue)


def critical_value(repetitions: int) -> float:
    """Return the t that differences must pass to be significant at 5 %, two-sided: 2.776 for 5; none does for 1."""
    from scipy import stats

    return float(stats.t.ppf(0.975, repetitions - 1)) if repetitions > 1 else float("inf")


def mean_and_std(runs: Array) -> tuple[Array, Array]:
    """Return the mean and the standard deviation over repetitions: (R, T) -> (T,), (T,); 0 for one repetition."""
    return runs.mean(axis=0), runs.std(axis=0, ddof=min(1, len(runs) - 1))


def labels_to_reach(labelled: Array, accuracy: Array, target: float) -> float | None:
    """Return how many labels a mean curve needs to reach ``target``, or None if it never does.

    labelled (T,), accuracy (T,); between two rounds the curve is a straight line.
    """
    reached = np.flatnonzero(accuracy >= target)
    if len(reached) == 0:
        return None
    k = int(reached[0])
    if k == 0:
        return float(labelled[0])
    share = (target - accuracy[k - 1]) / (accuracy[k] - accuracy[k - 1])
    return float(labelled[k - 1] + share * (labelled[k] - labelled[k - 1]))


@dataclass(frozen=True)
class LabelSaving:
    """How many labels a strategy needs to be as accurate as another at its end."""

    target: float
    """The other's mean accuracy at its end."""
    labels: float | None
    """What the strategy's mean curve needs for it; None if it never gets there."""
    baseline: float
    """What the other's mean curve needs for it."""
    needed: tuple[tuple[float | None, float], ...]
    """What the two need in each repetition to be as accurate as the other is at the end of that repetition."""

    @property
    def saved(self) -> float | None:
        """Labels saved, by the mean curves."""
        return None if self.labels is None else self.baseline - self.labels

    @property
    def each(self) -> tuple[float | None, ...]:
        """Labels saved in each repetition; None where the strategy never got there."""
        return tuple(None if ours is None else theirs - ours for ours, theirs in self.needed)

    @property
    def spread(self) -> tuple[float, float] | None:
        """The mean and the standard deviation of ``each``; None for one repetition, or if one never got there."""
        reached = [saved for saved in self.each if saved is not None]
        if len(reached) < 2 or len(reached) < len(self.needed):
            return None
        return float(np.mean(reached)), float(np.std(reached, ddof=1))

    @property
    def p(self) -> float | None:
        """Two-sided, paired over repetitions; None where there is no spread."""
        return None if self.spread is None else paired_t(np.array(self.each, dtype=float))[1]


def saving_over(labelled: Array, accuracy: Array, baseline: Array) -> LabelSaving:
    """Return what a strategy saves against ``baseline``: labelled (T,), accuracy (R, T) and (R, T), paired."""

    def needed(curve: Array, other: Array) -> tuple[float | None, float]:
        own = labels_to_reach(labelled, other, float(other[-1]))
        return labels_to_reach(labelled, curve, float(other[-1])), float(
            labelled[-1]
        ) if own is None else own

    labels, theirs = needed(accuracy.mean(axis=0), baseline.mean(axis=0))
    each = tuple(needed(curve, other) for curve, other in zip(accuracy, baseline, strict=True))
    return LabelSaving(float(baseline[:, -1].mean()), labels, theirs, each)


@dataclass(frozen=True)
class RankCorrelation:
    """How alike two lists order the same strategies."""

    rho: float
    """Spearman's rank correlation: 1 the same order, -1 the reverse."""
    p: float
    count: int
    """How many strategies both lists have."""


def rank_correlation(
    ours: Mapping[str, float], theirs: Mapping[str, float]
) -> RankCorrelation | None:
    """Return the rank correlation over the names that both have; None for fewer than three, or all equal."""
    from scipy import stats

    names = [name for name in ours if name in theirs]
    left, right = ([values[name] for name in names] for values in (ours, theirs))
    if len(set(left)) < 2 or len(set(right)) < 2 or len(names) < 3:
        return None
    found = stats.spearmanr(left, right)
    return RankCorrelation(float(found.statistic), float(found.pvalue), len(names))
