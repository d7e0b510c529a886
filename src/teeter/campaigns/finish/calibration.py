"""How well a model's confidence fits the share of its labels that are right."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from teeter.campaigns.learning.stopping import wilson_interval

__all__ = ["ReliabilityBin", "measure_reliability"]

Floats: TypeAlias = npt.NDArray[np.float64]
Booleans: TypeAlias = npt.NDArray[np.bool_]

N_BINS = 6
FEWEST_PER_BIN = 10
"""With fewer items in a bin, its share would be mostly chance."""


@dataclass(frozen=True)
class ReliabilityBin:
    """Items with similar confidence, and the share of them that the model labels right."""

    confidence: float
    """The mean confidence."""
    right: float
    low: float
    """The 95 % confidence interval of the share, Wilson's."""
    high: float
    items: int


def measure_reliability(confidences: Floats, is_right: Booleans) -> list[ReliabilityBin]:
    """Compare confidences with the share of right labels, in bins of equally many items.

    Args:
        confidences: (n,) of items that were drawn at random and did not train the model.
        is_right: (n,) whether the model labels them right.

    Returns:
        Bins from the lowest to the highest confidence; fewer with few items.

    Example:
        >>> bins = measure_reliability(np.full(40, 0.9), np.arange(40) >= 4)
        >>> [(round(bin.confidence, 2), round(bin.right, 2), bin.items) for bin in bins[:1]]
        [(0.9, 0.6, 10)]
    """
    n_bins = min(N_BINS, len(confidences) // FEWEST_PER_BIN)
    if n_bins == 0:
        return []

    # Equally many in each bin: most confidences are close to 1, and bins of equal width would be
    # empty or crowded.
    order = np.argsort(confidences, kind="stable")
    bins = []
    for rows in np.array_split(order, n_bins):
        right = float(is_right[rows].mean())
        low, high = wilson_interval(right, len(rows))
        bins.append(ReliabilityBin(float(confidences[rows].mean()), right, low, high, len(rows)))
    return bins
