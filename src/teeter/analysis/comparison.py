"""Comparing strategies: paired differences, what they are worth in labels, and whether they could be chance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from teeter.errors import InputError

__all__ = ["Gain", "gain_over", "labels_to_reach", "paired_t"]

Array = npt.NDArray[np.floating[Any]]


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

    if len(differences) < 2 or np.ptp(differences) == 0:
        return 0.0, 1.0
    found = stats.ttest_1samp(differences, 0.0)
    return float(found.statistic), float(found.pvalue)


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
