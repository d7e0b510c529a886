"""Compare strategies across datasets: performance profiles, the penalty matrix and mean ranks.

A dataset is a mapping from strategy names to accuracies of shape (R, T), as shares of correct rows.
The first round is left out: it is trained on the initial labels, which all strategies share. Every
dataset has the same weight, whatever its number of repetitions and rounds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from teeter.bench.analysis.statistics import NEGLIGIBLE, FloatArray, critical_value
from teeter.errors import InputError

__all__ = [
    "PenaltyMatrix",
    "PerformanceProfile",
    "mean_ranks",
    "penalty_matrix",
    "performance_profile",
]

Dataset = Mapping[str, FloatArray]
"""Accuracies of one dataset by strategy, each of shape (R, T)."""


@dataclass(frozen=True)
class PerformanceProfile:
    """How often a strategy is within delta points of the best one [Dolan and Moré 2002].

    A case is one repetition and round of a dataset. The profile is a step function of delta, and
    is stored as its steps.
    """

    gaps: FloatArray
    """Percentage points at which the function steps up, increasing, shape (K,)."""
    shares: FloatArray
    """Share of cases with at most that gap, shape (K,); the last one is 1."""

    def at(self, delta: float) -> float:
        """Return the share of cases that are at most ``delta`` points below the best."""
        steps = int(np.searchsorted(self.gaps, delta, side="right"))
        if steps == 0:
            return 0.0

        return float(self.shares[steps - 1])

    def area(self, limit: float = 10.0) -> float:
        """Return the exact integral from 0 to ``limit`` points.

        The area is ``limit`` for a strategy that is the best in every case.
        """
        # Each share holds from its step to the next one; steps beyond the limit have width 0.
        edges = np.minimum([*self.gaps, np.inf], limit)
        return float(self.shares @ np.diff(edges))


def performance_profile(datasets: Sequence[Dataset]) -> dict[str, PerformanceProfile]:
    """Return the performance profile of each strategy.

    Args:
        datasets: one or more datasets with the same strategies.

    Raises:
        InputError: if the strategies of the datasets differ, or accuracies cannot be compared.

    Example:
        >>> import numpy as np
        >>> accuracy = {"a": np.array([[0.5, 0.90, 0.80]]), "b": np.array([[0.5, 0.88, 0.85]])}
        >>> profiles = performance_profile([accuracy])
        >>> profiles["a"].at(0), profiles["b"].at(2)
        (0.5, 1.0)
    """
    names = _common_names(datasets)
    gaps = []
    weights = []

    for dataset in datasets:
        accuracy = _stack_rounds(dataset, names)
        below_best = accuracy.max(axis=0) - accuracy
        dataset_gaps = 100 * below_best.reshape(len(names), -1)  # (A, cases)
        gaps.append(dataset_gaps)

        # The weights of a dataset sum to 1, so that a long run does not outweigh a short one.
        cases = dataset_gaps.shape[1]
        weights.append(np.full(cases, 1 / cases))

    # Without rounding, a gap of 1 point may come out as 1 + 2e-16 and miss delta = 1.
    all_gaps = np.round(np.concatenate(gaps, axis=1), 9)
    all_weights = np.concatenate(weights)

    # R(delta) = weight of the cases with a gap of at most delta: the cumulative weight by gap.
    profiles = {}
    for name, strategy_gaps in zip(names, all_gaps, strict=True):
        steps, step_of_case = np.unique(strategy_gaps, return_inverse=True)
        weight_of_step = np.bincount(step_of_case, weights=all_weights)
        heights = np.cumsum(weight_of_step)
        profiles[name] = PerformanceProfile(
            gaps=steps,
            shares=heights / heights[-1],
        )

    return profiles


@dataclass(frozen=True)
class PenaltyMatrix:
    """How often one strategy beats another, summed over datasets [Ash et al. 2020]."""

    strategies: tuple[str, ...]
    matrix: FloatArray
    """Shape (A, A): entry (i, j) counts wins of i over j, at most the number of datasets."""

    @property
    def column_means(self) -> FloatArray:
        """How often each strategy is beaten by another one, shape (A,); lower is better."""
        # The diagonal is zero, so that a column sums over the A - 1 other strategies.
        opponents = max(1, len(self.strategies) - 1)
        return np.asarray(self.matrix.sum(axis=0) / opponents)


def penalty_matrix(datasets: Sequence[Dataset]) -> PenaltyMatrix:
    """Return the pairwise penalty matrix.

    For every round in which a paired t-test at 5 % says that strategy i is more accurate than j,
    entry (i, j) grows by one over the number of rounds of that dataset.

    Args:
        datasets: one or more datasets with the same strategies.

    Raises:
        InputError: if the strategies of the datasets differ, or accuracies cannot be compared.
    """
    names = _common_names(datasets)
    size = len(names)
    matrix = np.zeros((size, size))

    for dataset in datasets:
        accuracy = _stack_rounds(dataset, names)
        repetitions = accuracy.shape[1]

        # (A, A, T): a negative t score is a win of the other strategy, in its own entry.
        wins = _t_scores(accuracy) > critical_value(repetitions)
        matrix += wins.mean(axis=2)

    return PenaltyMatrix(names, matrix)


def _t_scores(accuracy: FloatArray) -> FloatArray:
    """Return the paired t statistic of each pair and round: (A, R, T) -> (A, A, T).

    It is 0 where the differences do not vary. ``scipy.stats.ttest_1samp`` warns about those, and
    every strategy compared with itself is one.
    """
    strategies, repetitions, rounds = accuracy.shape
    if repetitions < 2:
        return np.zeros((strategies, strategies, rounds))

    # (A, 1, R, T) - (1, A, R, T): every strategy minus every other one.
    rows = accuracy[:, None]
    columns = accuracy[None]
    differences = 100 * (rows - columns)

    # The 1 only avoids a division by zero; its quotient is replaced below.
    varies = np.ptp(differences, axis=2) >= NEGLIGIBLE
    deviation = differences.std(axis=2, ddof=1)
    deviation = np.where(varies, deviation, 1)

    # t = sqrt(R) * mean / standard deviation of the R paired differences.
    mean = differences.mean(axis=2)
    t_scores = np.sqrt(repetitions) * mean / deviation
    return np.asarray(np.where(varies, t_scores, 0))


def mean_ranks(datasets: Sequence[Dataset]) -> dict[str, float]:
    """Return the mean rank of each strategy; 1 is the best.

    Strategies are ranked by their mean accuracy over rounds in every repetition. Ties share a
    rank. Ranks are averaged over repetitions, then over datasets.

    Args:
        datasets: one or more datasets with the same strategies.

    Raises:
        InputError: if the strategies of the datasets differ, or accuracies cannot be compared.
    """
    from scipy import stats

    names = _common_names(datasets)
    ranks = []

    for dataset in datasets:
        # Rounding makes means that differ by the order of summation alone tie.
        accuracy = _stack_rounds(dataset, names)
        means = np.round(accuracy.mean(axis=2), 12)  # (A, R)

        # Negated, because rank 1 goes to the smallest value.
        ranks_by_repetition = stats.rankdata(-means, axis=0)
        ranks.append(ranks_by_repetition.mean(axis=1))

    ranks_over_datasets = np.mean(ranks, axis=0).tolist()
    return dict(zip(names, ranks_over_datasets, strict=True))


def _common_names(datasets: Sequence[Dataset]) -> tuple[str, ...]:
    """Return the strategies of all datasets, in the order of the first one."""
    if not datasets or not datasets[0]:
        raise InputError(
            "There is nothing to compare: give at least one dataset with at least one strategy."
        )

    names = tuple(datasets[0])

    for dataset in datasets[1:]:
        unshared_names = set(dataset) ^ set(names)
        if unshared_names:
            unshared = ", ".join(sorted(unshared_names))
            raise InputError(
                f"All datasets must have the same strategies, but some datasets lack {unshared}: "
                f"leave those strategies out."
            )

    return names


def _stack_rounds(dataset: Dataset, names: tuple[str, ...]) -> FloatArray:
    """Return the accuracies after the first round as one array of shape (A, R, T - 1)."""
    shapes = {runs.shape for runs in dataset.values()}
    shape = next(iter(shapes))

    has_rounds = False
    if len(shape) == 2:
        repetitions, rounds = shape
        has_rounds = repetitions >= 1 and rounds >= 2

    if len(shapes) > 1 or not has_rounds:
        shape_texts = [str(runs.shape) for runs in dataset.values()]
        all_shapes = ", ".join(shape_texts)
        raise InputError(
            "The accuracies of a dataset must all have the same shape, (repetitions, rounds), "
            f"with at least two rounds, but they have {all_shapes}."
        )

    later_rounds = [dataset[name][:, 1:] for name in names]
    return np.array(later_rounds)
