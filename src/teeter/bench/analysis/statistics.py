"""Compare strategies over paired repetitions: gains, labels saved, significance, rank correlation.

Accuracies are shares of correct test rows, in arrays of shape (R, T): R repetitions and T rounds.
Repetition r of two strategies starts from the same labels and networks, so the two are paired. The
first round is trained on the initial labels, which all strategies share. Gains leave it out.
"""

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
        if len(savings) < 2 or len(savings) < repetitions:
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


@dataclass(frozen=True)
class RankCorrelation:
    """How similarly two sources order the same strategies."""

    rho: float
    """Spearman's rank correlation: 1 for the same order, -1 for the reverse."""
    p: float
    count: int
    """Number of strategies that both sources have."""


def rank_correlation(
    ours: Mapping[str, float], theirs: Mapping[str, float]
) -> RankCorrelation | None:
    """Return Spearman's rank correlation over the names that both mappings have.

    Returns:
        None if they share fewer than three names, or if all values of one are equal.
    """
    from scipy import stats

    names = [name for name in ours if name in theirs]
    our_values = [ours[name] for name in names]
    their_values = [theirs[name] for name in names]

    # Two names correlate perfectly by construction, and equal values have no order.
    fewest_values = min(len(set(our_values)), len(set(their_values)))
    if len(names) < 3 or fewest_values < 2:
        return None

    result = stats.spearmanr(our_values, their_values)
    return RankCorrelation(
        rho=float(result.statistic),
        p=float(result.pvalue),
        count=len(names),
    )
