"""Compare strategies over the repetitions of a dataset, and across datasets.

Over paired repetitions: gains, labels saved, significance and rank correlation.

Accuracies are shares of correct test rows, in arrays of shape (R, T): R repetitions and T rounds.
Repetition r of two strategies starts from the same labels and networks, so the two are paired. The
first round is trained on the initial labels, which all strategies share. Gains leave it out.

Across datasets: performance profiles, the penalty matrix and mean ranks. A dataset is a mapping
from strategy names to accuracies. Every dataset has the same weight, whatever its number of
repetitions and rounds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from teeter.errors import InputError

__all__ = [
    "NEGLIGIBLE",
    "SIGNIFICANCE_LEVEL",
    "Dataset",
    "FloatArray",
    "Gain",
    "LabelSaving",
    "PenaltyMatrix",
    "PerformanceProfile",
    "critical_value",
    "gain_over",
    "labels_to_reach",
    "mean_and_std",
    "mean_ranks",
    "paired_t",
    "penalty_matrix",
    "performance_profile",
    "rank_correlation",
    "saving_over",
]

FloatArray = npt.NDArray[np.floating[Any]]

SIGNIFICANCE_LEVEL = 0.05
"""A difference is significant if its p-value is below this."""

NEGLIGIBLE = 1e-9
"""Differences that vary by less than this are taken as equal: the variation is rounding."""


@dataclass(frozen=True)
class Gain:
    """How much more accurate one strategy is than another, in percentage points."""

    mean: float
    deviation: float
    """Standard deviation over repetitions; 0 for a single repetition."""
    t: float
    p: float
    """Two-sided p-value of the paired t-test; 1 if the differences do not vary."""

    @property
    def significant(self) -> bool:
        """Whether equally good strategies would differ this clearly in less than 5 % of cases."""
        return self.p < SIGNIFICANCE_LEVEL


def gain_over(accuracy: FloatArray, baseline: FloatArray) -> Gain:
    """Return how much more accurate a strategy is than a baseline, averaged over rounds.

    The first round does not count: it is trained on the initial labels, before any pick.

    Args:
        accuracy: accuracies of the strategy, shape (R, T).
        baseline: accuracies of the baseline in the same repetitions, shape (R, T).

    Raises:
        InputError: if the shapes differ or there are fewer than two rounds.

    Example:
        >>> import numpy as np
        >>> random = np.array([[0.50, 0.60, 0.70], [0.52, 0.61, 0.73]])
        >>> ldm_s = np.array([[0.50, 0.64, 0.74], [0.52, 0.66, 0.76]])
        >>> round(gain_over(ldm_s, random).mean, 2)
        4.0
    """
    has_rounds = accuracy.ndim == 2 and accuracy.shape[1] >= 2
    if accuracy.shape != baseline.shape or not has_rounds:
        raise InputError(
            f"Accuracies of shape {accuracy.shape} and {baseline.shape} cannot be paired: "
            "both must be (repetitions, rounds), with at least two rounds."
        )

    # One number per repetition: rounds of a repetition depend on each other and are no sample.
    means = accuracy[:, 1:].mean(axis=1)
    baseline_means = baseline[:, 1:].mean(axis=1)
    differences = 100 * (means - baseline_means)

    mean, deviation = mean_and_std(differences)
    t, p = paired_t(differences)
    return Gain(
        mean=float(mean),
        deviation=float(deviation),
        t=t,
        p=p,
    )


def paired_t(differences: FloatArray) -> tuple[float, float]:
    """Test whether the mean of paired differences is zero.

    Args:
        differences: one difference per repetition, shape (R,).

    Returns:
        The t statistic and the two-sided p-value. They are 0 and 1 if there is a single difference
        or if the differences do not vary, since there is no spread to measure them by.
    """
    from scipy import stats

    # Without this, differences of 0.1 and 0.1 + 1e-17 would have an enormous t.
    if len(differences) < 2 or np.ptp(differences) < NEGLIGIBLE:
        return 0.0, 1.0

    result = stats.ttest_1samp(differences, 0.0)
    return float(result.statistic), float(result.pvalue)


def critical_value(repetitions: int) -> float:
    """Return the t statistic above which a two-sided paired test is significant at 5 %.

    It is infinite for a single repetition, which proves nothing.

    Example:
        >>> round(critical_value(5), 3)
        2.776
    """
    from scipy import stats

    if repetitions < 2:
        return float("inf")

    # Half of the level in each tail, with R - 1 degrees of freedom.
    quantile = 1 - SIGNIFICANCE_LEVEL / 2
    return float(stats.t.ppf(quantile, repetitions - 1))


def mean_and_std(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the mean and the sample standard deviation over repetitions, the first axis.

    Args:
        values: shape (R, ...), with R of at least 1.

    Returns:
        Two arrays of shape (...). The standard deviation of a single repetition is 0.
    """
    # Dividing by R - 1 is undefined for R = 1, where the deviation is 0 with either divisor.
    ddof = min(1, len(values) - 1)
    mean = np.asarray(values.mean(axis=0))
    deviation = np.asarray(values.std(axis=0, ddof=ddof))
    return mean, deviation


def labels_to_reach(labelled: FloatArray, accuracy: FloatArray, target: float) -> float | None:
    """Return the number of labels at which a learning curve first reaches an accuracy.

    The curve is linear between two rounds, so the number need not be an integer.

    Args:
        labelled: labels at each round, increasing, shape (T,).
        accuracy: accuracy at each round, shape (T,).
        target: the accuracy to reach.

    Returns:
        The number of labels, or None if the curve stays below the target.

    Example:
        >>> import numpy as np
        >>> labels_to_reach(np.array([20, 40, 60]), np.array([0.5, 0.75, 1.0]), 0.875)
        50.0
    """
    # The first crossing: a noisy curve may fall below the target again later.
    rounds_above = np.flatnonzero(accuracy >= target)
    if len(rounds_above) == 0:
        return None

    first = int(rounds_above[0])
    if first == 0:
        return float(labelled[0])

    # Interpolate between the last round below the target and the first one at or above it.
    previous = first - 1
    rise = accuracy[first] - accuracy[previous]
    share = (target - accuracy[previous]) / rise

    labels_added = labelled[first] - labelled[previous]
    return float(labelled[previous] + share * labels_added)


@dataclass(frozen=True)
class LabelSaving:
    """How many labels a strategy needs to reach the final accuracy of a baseline."""

    target: float
    """Final accuracy of the baseline's mean curve."""
    labels: float | None
    """Labels at which the strategy's mean curve reaches the target; None if it never does."""
    baseline: float
    """Labels at which the baseline's own mean curve first reaches the target."""
    needed_by_repetition: tuple[tuple[float | None, float], ...]
    """Labels that the strategy and the baseline need in each repetition.

    The target is the final accuracy of the baseline in that repetition.
    """

    @property
    def saved(self) -> float | None:
        """Labels saved according to the mean curves; None if the target is not reached."""
        if self.labels is None:
            return None

        return self.baseline - self.labels

    @property
    def saved_by_repetition(self) -> tuple[float | None, ...]:
        """Labels saved in each repetition; None where the strategy does not reach the target."""
        savings: list[float | None] = []

        for strategy_labels, baseline_labels in self.needed_by_repetition:
            if strategy_labels is None:
                savings.append(None)
            else:
                savings.append(baseline_labels - strategy_labels)

        return tuple(savings)

    @property
    def spread(self) -> tuple[float, float] | None:
        """Mean and standard deviation of the saving over repetitions.

        None for a single repetition, or if the target is missed in any of them: the repetitions
        that miss it have no saving, and a mean over the rest would flatter the strategy.
        """
        savings = self._complete_savings()
        if savings is None:
            return None

        mean, deviation = mean_and_std(savings)
        return float(mean), float(deviation)

    @property
    def p(self) -> float | None:
        """Two-sided p-value of the paired t-test on the savings; None without a spread."""
        savings = self._complete_savings()
        if savings is None:
            return None

        return paired_t(savings)[1]

    def _complete_savings(self) -> FloatArray | None:
        """Return the saving of each repetition, or None unless two or more all have one."""
        savings = [saved for saved in self.saved_by_repetition if saved is not None]
        repetitions = len(self.needed_by_repetition)
        if len(savings) < max(2, repetitions):
            return None

        return np.array(savings)


def saving_over(labelled: FloatArray, accuracy: FloatArray, baseline: FloatArray) -> LabelSaving:
    """Return how many labels a strategy saves on the way to the final accuracy of a baseline.

    Args:
        labelled: labels at each round, shape (T,).
        accuracy: accuracies of the strategy, shape (R, T).
        baseline: accuracies of the baseline in the same repetitions, shape (R, T).

    Example:
        >>> import numpy as np
        >>> labelled = np.array([20.0, 40.0, 60.0])
        >>> random = np.array([[0.5, 0.6, 0.7], [0.5, 0.6, 0.7]])
        >>> ldm_s = np.array([[0.5, 0.7, 0.8], [0.5, 0.7, 0.8]])
        >>> saving_over(labelled, ldm_s, random).saved
        20.0
    """
    # The mean curves for the headline, which are less noisy than any single curve.
    mean_curve = accuracy.mean(axis=0)
    mean_baseline_curve = baseline.mean(axis=0)
    labels, baseline_labels = _labels_needed(labelled, mean_curve, mean_baseline_curve)

    # Each repetition for the spread and the test.
    needed_by_repetition = []
    for curve, baseline_curve in zip(accuracy, baseline, strict=True):
        needed_by_repetition.append(_labels_needed(labelled, curve, baseline_curve))

    return LabelSaving(
        target=float(baseline[:, -1].mean()),
        labels=labels,
        baseline=baseline_labels,
        needed_by_repetition=tuple(needed_by_repetition),
    )


def _labels_needed(
    labelled: FloatArray, curve: FloatArray, baseline_curve: FloatArray
) -> tuple[float | None, float]:
    """Return the labels that a curve and its baseline need for the baseline's last accuracy."""
    target = float(baseline_curve[-1])
    curve_labels = labels_to_reach(labelled, curve, target)

    # A noisy baseline may reach its last accuracy early. Counting its first crossing, too, gives
    # both curves the same luck.
    baseline_labels = labels_to_reach(labelled, baseline_curve, target)
    if baseline_labels is None:
        baseline_labels = float(labelled[-1])

    return curve_labels, baseline_labels


def rank_correlation(ours: Mapping[str, float], theirs: Mapping[str, float]) -> float | None:
    """Return Spearman's rank correlation over the names that both mappings have.

    Returns:
        1 for the same order, -1 for the reverse; None if they share fewer than three names, or if
        all values of one are equal.
    """
    from scipy import stats

    names = [name for name in ours if name in theirs]
    our_values = [ours[name] for name in names]
    their_values = [theirs[name] for name in names]

    # Two names correlate perfectly by construction, and equal values have no order.
    fewest_values = min(len(set(our_values)), len(set(their_values)))
    if len(names) < 3 or fewest_values < 2:
        return None

    return float(stats.spearmanr(our_values, their_values).statistic)


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

    @property
    def beaten(self) -> dict[str, float]:
        """The column means by strategy."""
        return dict(zip(self.strategies, self.column_means.tolist(), strict=True))


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
