"""Whether to go on: how right the model is, with an interval, and what changed; never a silent stop."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["AccuracyEstimate", "Progress", "advice", "estimate_accuracy", "prediction_agreement"]

Integers = npt.NDArray[np.int64]

STEADY = 0.99
"""Cohen's kappa between the predictions of two rounds from which on little changes."""

MANY = 300
"""Labels from which on it hardly matters that each random item is judged by a model that learnt from fewer of them."""

FLAT = 0.005
"""A change of accuracy over three rounds, up or down, below which the curve is flat."""


@dataclass(frozen=True)
class AccuracyEstimate:
    """A share of right answers, with the interval that holds the true share 19 times in 20 (Wilson's).

    That is of the models that judged: where they learnt from fewer labels than the one in use, both are rather too low.
    """

    right: int
    total: int
    low: float
    high: float

    @property
    def share(self) -> float:
        """The share itself."""
        return self.right / self.total


def estimate_accuracy(right: int, total: int) -> AccuracyEstimate | None:
    """Return the estimate from so many right of so many drawn at random; None for none."""
    if total == 0:
        return None
    z = 1.959963984540054
    share, extra = right / total, z * z / total
    middle = (share + extra / 2) / (1 + extra)
    half = z / (1 + extra) * math.sqrt(share * (1 - share) / total + extra / (4 * total))
    low, high = min(share, middle - half), max(share, middle + half)
    return AccuracyEstimate(right, total, max(0.0, low), min(1.0, high))


def prediction_agreement(before: Integers, after: Integers) -> tuple[float, float]:
    """Return Cohen's kappa of two lists of predictions (N,), and the share that changed."""
    changed = float((before != after).mean())
    classes = int(max(before.max(), after.max())) + 1
    first, second = (np.bincount(part, minlength=classes) / len(part) for part in (before, after))
    by_chance = float(first @ second)
    kappa = 1.0 if by_chance == 1 else (1 - changed - by_chance) / (1 - by_chance)
    return kappa, changed


@dataclass(frozen=True)
class Progress:
    """What is known after a round."""

    labels: int
    accuracy: AccuracyEstimate | None
    """From items that were drawn at random; None if there are none yet."""
    accuracies: tuple[float, ...]
    """Of the rounds so far, oldest first, where they are known."""
    kappa: float | None
    changed: float | None
    cost: float | None = None
    budget: float | None = None
    measurable: bool = True
    """Whether items are drawn at random at all."""


def advice(progress: Progress) -> list[str]:
    """Return what speaks for and against going on, in sentences; what is not known is said not to be."""
    told = [_accuracy(progress), _change(progress), _curve(progress)]
    if progress.budget is not None and progress.cost is None:
        told.append("How much of the budget is spent is not known: nobody said what a label costs.")
    if progress.budget is not None and progress.cost is not None:
        left = progress.budget - progress.cost
        state = "The budget is spent" if left <= 0 else f"{left:g} of the budget is left"
        told.append(f"{state}: {progress.cost:g} of {progress.budget:g}.")
    signs = [_is_steady(progress), _is_flat(progress.accuracies)]
    if all(signs):
        told.append("Little is to be gained by more labels of this kind: consider stopping.")
    elif progress.kappa is not None and not signs[0]:
        told.append("The model still changes: going on is worth it.")
    elif progress.kappa is not None:
        told.append(
            "Whether more labels help is not yet clear: the model is steady, and its curve is not, or not known."
        )
    return told


def _accuracy(progress: Progress) -> str:
    found = progress.accuracy
    if found is None and not progress.measurable:
        return "Accuracy will not be known: this campaign draws no items at random to measure with."
    if found is None:
        return "Accuracy is not yet known: no item that was drawn at random is labelled."
    early = (
        " With few labels that is rather too low: models that learnt from fewer still are judged."
    )
    return (
        f"Accuracy is about {found.share:.0%}, between {found.low:.0%} and {found.high:.0%} 19 times in 20 "
        f"({found.right} of {found.total} drawn at random of all items).{early if progress.labels < MANY else ''}"
    )


def _change(progress: Progress) -> str:
    if progress.kappa is None or progress.changed is None:
        return "How much predictions change is not yet known: it takes two rounds of training."
    return f"{progress.changed:.1%} of the predictions changed with the last round (kappa {progress.kappa:.3f})."


def _curve(progress: Progress) -> str:
    accuracies = progress.accuracies
    if len(accuracies) < 4 and not progress.measurable:
        return "Whether the curve is flat will not be known either."
    if len(accuracies) < 4:
        return "Whether the curve is flat is not yet known: it takes four rounds."
    rise = accuracies[-1] - accuracies[-4]
    return f"Over the last three rounds accuracy changed by {100 * rise:+.1f} points."


def _is_steady(progress: Progress) -> bool:
    return progress.kappa is not None and progress.kappa >= STEADY


def _is_flat(accuracies: Sequence[float]) -> bool:
    return len(accuracies) >= 4 and abs(accuracies[-1] - accuracies[-4]) < FLAT
