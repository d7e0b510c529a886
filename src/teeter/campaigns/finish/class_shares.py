"""The share of each class in the whole pool, estimated with the help of a model's predictions.

A model labels every item, which tells much about the shares of the classes but is biased by its
errors. Items drawn at random and labelled by people tell how large that bias is. The estimate is
the share that the model predicts, corrected by it: prediction-powered inference [Angelopoulos et
al. 2023], with the weight of the predictions tuned by their worth [Angelopoulos et al. 2024].
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["ClassShare", "estimate_class_shares"]

Floats: TypeAlias = npt.NDArray[np.float64]
Integers: TypeAlias = npt.NDArray[np.int64]

FEWEST_DRAWS = 20
"""With fewer drawn items, no share is estimated."""

_NORMAL_QUANTILE = 1.959963984540054
"""95 % of a normal distribution lie within this many standard deviations of its mean."""


@dataclass(frozen=True)
class ClassShare:
    """The share of a class in the pool, with its 95 % confidence interval."""

    label: str
    share: float
    low: float
    high: float
    predicted: float
    """The share without the correction: what people and the model say together."""


def estimate_class_shares(
    classes: Sequence[str],
    predicted: Integers,
    drawn: Integers,
    drawn_labels: Integers,
    known_labels: Integers,
) -> list[ClassShare]:
    """Estimate the share of each class among known items and the items of a frozen set.

    Args:
        classes: the names of the classes.
        predicted: (N,) what the model predicts for each item of the set, as an index.
        drawn: (n,) positions of the items that were drawn at random and labelled.
        drawn_labels: (n,) their labels; -1 for an item that has none.
        known_labels: labels of the items outside of the set, which are known.

    Returns:
        The shares in the order of the classes; none if too few items were drawn.
    """
    total = len(predicted)
    n_drawn = len(drawn)
    if n_drawn < FEWEST_DRAWS:
        return []

    n_items = total + len(known_labels)
    shares = []
    for index, label in enumerate(classes):
        known_count = int((known_labels == index).sum())
        is_predicted = (predicted == index).astype(np.float64)
        is_label = (drawn_labels == index).astype(np.float64)
        share, deviation = _estimate_mean(is_label, is_predicted[drawn], float(is_predicted.mean()))
        # Only the draws are left to chance. With all items drawn, nothing is.
        deviation *= math.sqrt(max(0.0, 1 - n_drawn / total))

        centre = (known_count + total * share) / n_items
        half_width = total / n_items * _NORMAL_QUANTILE * deviation
        # What is known already bounds the share from below, and from above.
        lowest = known_count / n_items
        highest = (known_count + total) / n_items
        centre = min(max(centre, lowest), highest)
        shares.append(
            ClassShare(
                label=label,
                share=centre,
                low=max(lowest, centre - half_width),
                high=min(highest, centre + half_width),
                predicted=(known_count + float(is_predicted.sum())) / n_items,
            )
        )
    return shares


def _estimate_mean(
    labels: Floats, predictions: Floats, all_predictions: float
) -> tuple[float, float]:
    """Return a mean and its standard deviation, corrected by predictions.

    Args:
        labels: (n,) what the drawn items are, 0 or 1.
        predictions: (n,) what the model says of them.
        all_predictions: the mean of the predictions over all items.
    """
    # The best weight minimizes the variance of what is left to chance.
    spread = float(predictions.var())
    weight = 0.0
    if spread > 0:
        covariance = float(np.mean((labels - labels.mean()) * (predictions - predictions.mean())))
        weight = min(max(covariance / spread, 0.0), 1.0)

    # A weight of 0 ignores a useless model: the estimate is then the share among the draws.
    residuals = labels - weight * predictions
    mean = weight * all_predictions + float(residuals.mean())

    # One error more in each direction: if no drawn item shows one, there may still be some.
    widened = np.concatenate([residuals - residuals.mean(), [1.0, -1.0]])
    deviation = math.sqrt(float(np.square(widened).sum()) / len(widened) / len(residuals))
    return mean, deviation
