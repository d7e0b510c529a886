"""Comparing strategies across datasets: the performance profile, the penalty matrix and mean ranks.

A dataset is given as its strategies' accuracies (R, T), in shares. The first round is left out everywhere: it is the
initial set's, and the same for all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from teeter.analysis.statistics import EQUAL, critical_value
from teeter.errors import InputError

__all__ = [
    "PenaltyMatrix",
    "PerformanceProfile",
    "mean_ranks",
    "penalty_matrix",
    "performance_profile",
]

Array = npt.NDArray[np.floating[Any]]
Dataset = Mapping[str, Array]


@dataclass(frozen=True)
class PerformanceProfile:
    """How often a strategy is within delta points of the best: a step function R_A(delta) [Dolan and Moré 2002]."""

    gaps: Array
    """(K,) where it steps up, in points, in increasing order."""
    shares: Array
    """(K,) its value from each of them on; the last is 1."""

    def at(self, delta: float) -> float:
        """Return the share of cases with a gap of at most ``delta`` points."""
        steps = int(np.searchsorted(self.gaps, delta, side="right"))
        return float(self.shares[steps - 1]) if steps else 0.0

    def area(self, limit: float = 10.0) -> float:
        """Return the exact integral from 0 to ``limit`` points: ``limit`` for a strategy that is always the best."""
        edges = np.minimum([*self.gaps, np.inf], limit)
        return float(self.shares @ np.diff(edges))


def performance_profile(datasets: Sequence[Dataset]) -> dict[str, PerformanceProfile]:
    """Return each strategy's profile; every dataset weighs the same, and so does every case within it."""
    names = _names(datasets)
    steps = [_steps(dataset, names) for dataset in datasets]
    gaps = [100 * (one.max(axis=0) - one).reshape(len(names), -1) for one in steps]
    weights = np.concatenate([np.full(one.shape[1], 1 / one.shape[1]) for one in gaps])
    pooled = np.round(np.concatenate(gaps, axis=1), 9)  # a gap of 1 point is 1, not 1 + 2e-16
    return {name: _profile(row, weights) for name, row in zip(names, pooled, strict=True)}


def _profile(gaps: Array, weights: Array) -> PerformanceProfile:
    places, which = np.unique(gaps, return_inverse=True)
    grown = np.cumsum(np.bincount(which, weights=weights))
    return PerformanceProfile(places, grown / grown[-1])


@dataclass(frozen=True)
class PenaltyMatrix:
    """How often the strategy of a row beats that of a column, summed over datasets [Ash et al. 2020]."""

    strategies: tuple[str, ...]
    matrix: Array
    """(A, A); an entry is at most the number of datasets."""

    @property
    def column_means(self) -> Array:
        """(A,) how often a strategy is beaten, over the others; lower is better. The diagonal is left out."""
        means: Array = self.matrix.sum(axis=0) / max(1, len(self.strategies) - 1)
        return means


def penalty_matrix(datasets: Sequence[Dataset]) -> PenaltyMatrix:
    """Return the penalties: 1/T for each of a dataset's T steps in which a paired t-test says that i beats j."""
    names = _names(datasets)
    matrix = np.zeros((len(names), len(names)))
    for dataset in datasets:
        steps = _steps(dataset, names)
        matrix += (_t_scores(steps) > critical_value(steps.shape[1])).mean(axis=2)
    return PenaltyMatrix(names, matrix)


def _t_scores(steps: Array) -> Array:
    """Return t of every pair at every step, (A, R, T) -> (A, A, T); 0 where the differences do not vary."""
    repetitions = steps.shape[1]
    if repetitions < 2:
        return np.zeros((len(steps), len(steps), steps.shape[2]))
    differences = 100 * (steps[:, None] - steps[None])
    varies = np.ptp(differences, axis=2) >= EQUAL
    spread = np.where(varies, differences.std(axis=2, ddof=1), 1)
    scores: Array = np.where(varies, np.sqrt(repetitions) * differences.mean(axis=2) / spread, 0)
    return scores


def mean_ranks(datasets: Sequence[Dataset]) -> dict[str, float]:
    """Return each strategy's rank by its mean accuracy over rounds, 1 the best, over repetitions and then datasets."""
    from scipy import stats

    names = _names(datasets)
    means = [np.round(_steps(dataset, names).mean(axis=2), 12) for dataset in datasets]
    ranks = np.mean([stats.rankdata(-one, axis=0).mean(axis=1) for one in means], axis=0)
    return dict(zip(names, ranks.tolist(), strict=True))


def _names(datasets: Sequence[Dataset]) -> tuple[str, ...]:
    if not datasets or not datasets[0]:
        raise InputError(
            "There is nothing to compare: give one dataset or more, with one strategy or more."
        )
    names = tuple(datasets[0])
    for dataset in datasets[1:]:
        if set(dataset) != set(names):
            odd = ", ".join(sorted(set(dataset) ^ set(names)))
            raise InputError(
                f"Across datasets, strategies are compared that all datasets have; not all have {odd}."
            )
    return names


def _steps(dataset: Dataset, names: tuple[str, ...]) -> Array:
    """Return a dataset's accuracies after the first round as one array, strategies in this order: (A, R, T - 1)."""
    shapes = {runs.shape for runs in dataset.values()}
    if len(shapes) != 1 or len(shape := shapes.pop()) != 2 or shape[0] < 1 or shape[1] < 2:
        raise InputError(
            "Accuracies of one dataset have one shape, (repetitions, rounds), with two rounds or more: "
            f"these have {', '.join(str(runs.shape) for runs in dataset.values())}."
        )
    return np.array([dataset[name][:, 1:] for name in names])
