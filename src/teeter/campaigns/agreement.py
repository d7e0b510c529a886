"""How far people agree: observed, by pairs [Cohen 1960], and over all [Krippendorff 2011], each with an interval.

Ratings are (N, A) classes of N items by A annotators, -1 where somebody said nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from teeter.campaigns.stopping import estimate_accuracy

__all__ = ["ENOUGH", "AgreementScore", "alpha", "alpha_by_class", "kappa", "observed"]

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

ENOUGH = 5
"""Items answered by two or more from which on anything is said."""

_DRAWS = 500
"""Times that items are drawn anew for an interval."""

_PARTS = 10
"""Parts in which draws are worked through, so that memory stays small."""

_KEPT = 20_000
"""Items up to which draws are kept for the next measure."""


@dataclass(frozen=True)
class AgreementScore:
    """A measure of agreement, with the interval that holds it 19 times in 20."""

    value: float
    low: float
    high: float
    items: int
    """Items that two or more answered."""


def observed(ratings: Integers) -> AgreementScore | None:
    """Return the share of pairs of answers to one item that agree; None where too few items have two answers."""
    units = _units(ratings)
    return None if len(units) < ENOUGH else _with_interval(units, _observed, lambda low: low)


def kappa(first: Integers, second: Integers) -> AgreementScore | None:
    """Return Cohen's kappa of two annotators (N,) each; None where it cannot be known.

    The interval is Wilson's of the observed agreement, with the agreement by chance taken as known, as in Cohen's
    standard error; it stays honest for few items.
    """
    both = (first >= 0) & (second >= 0)
    first, second = first[both], second[both]
    total = len(first)
    if total < ENOUGH:
        return None
    classes = int(max(first.max(), second.max())) + 1
    one, other = (np.bincount(part, minlength=classes) / total for part in (first, second))
    by_chance = float(one @ other)
    found = estimate_accuracy(int((first == second).sum()), total)
    if found is None or by_chance >= 1:
        return None
    value, low, high = (
        (share - by_chance) / (1 - by_chance) for share in (found.share, found.low, found.high)
    )
    return AgreementScore(value, max(-1.0, low), min(1.0, high), total)


def alpha(ratings: Integers) -> AgreementScore | None:
    """Return Krippendorff's alpha for classes without an order; None where it cannot be known.

    That is where too few items have two answers, or all answers are one class. The interval comes from drawing items
    anew.
    """
    units = _units(ratings)
    if len(units) < ENOUGH or (units.sum(axis=0) > 0).sum() < 2:
        return None
    by_chance = float(_by_chance(units.sum(axis=0)))
    return _with_interval(units, _alpha, lambda low: 1 - (1 - low) / by_chance)


def alpha_by_class(ratings: Integers, classes: int) -> list[AgreementScore | None]:
    """Return Krippendorff's alpha of each class against all others."""
    return [
        alpha(np.where(ratings < 0, -1, (ratings == k).astype(np.int64))) for k in range(classes)
    ]


def _units(ratings: Integers) -> Integers:
    """Return how often each class was said of each item (N', C), of items with two answers or more."""
    classes = int(ratings.max(initial=0)) + 1
    counts = np.zeros((len(ratings), classes), dtype=np.int64)
    rows, people = np.nonzero(ratings >= 0)
    np.add.at(counts, (rows, ratings[rows, people]), 1)
    return np.asarray(counts[counts.sum(axis=1) >= 2])


def _pairs(units: Integers) -> Floats:
    """Return of each item (N', 3): ordered pairs that agree, all, and those that differ over answers less one."""
    totals = units.sum(axis=1)
    agreeing, every = (units * (units - 1)).sum(axis=1), totals * (totals - 1)
    return np.stack([agreeing, every, (every - agreeing) / (totals - 1)], axis=1)


def _observed(counts: Floats, pairs: Floats) -> Floats:
    return np.asarray(pairs[..., 0] / pairs[..., 1])


def _alpha(counts: Floats, pairs: Floats) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):  # items drawn anew may be of one class
        return np.asarray(1 - pairs[..., 2] / counts.sum(axis=-1) / _by_chance(counts))


def _by_chance(counts: npt.NDArray[Any]) -> Floats:
    """Return the share of ordered pairs of all answers, whatever the item, that differ."""
    every = counts.sum(axis=-1)
    return np.asarray((every**2 - (counts**2).sum(axis=-1)) / (every * (every - 1)))


def _drawn(size: int) -> Iterator[Floats]:
    """Yield how often each of so many items is drawn, a part of the draws at a time: (some, size)."""
    if size <= _KEPT:
        yield from (part.astype(np.float64) for part in np.split(_draws(size), _PARTS))
        return
    drawn = np.random.default_rng(0)
    for _ in range(_DRAWS):
        yield drawn.multinomial(size, np.full(size, 1 / size), size=1).astype(np.float64)


@lru_cache(maxsize=1)
def _draws(size: int) -> npt.NDArray[np.int16]:
    """Return all draws of so many items; the measures of one campaign share them."""
    drawn = np.random.default_rng(0)
    return drawn.multinomial(size, np.full(size, 1 / size), size=_DRAWS).astype(np.int16)


def _with_interval(
    units: Integers, measure: Callable[[Floats, Floats], Floats], fallback: Callable[[float], float]
) -> AgreementScore:
    """Return a measure with the middle 95 % of it over items drawn anew.

    Where all agree, drawing anew shows nothing: ``fallback`` then makes the lower end of Wilson's interval.
    """
    pairs, counts, size = _pairs(units), units.astype(np.float64), len(units)
    value = float(measure(counts.sum(axis=0), pairs.sum(axis=0)))
    if not pairs[:, 2].any():
        found = estimate_accuracy(size, size)
        return AgreementScore(value, fallback(0.0 if found is None else found.low), value, size)
    both = np.concatenate([counts, pairs], axis=1)
    sums = np.concatenate([times @ both for times in _drawn(size)])
    values = measure(sums[:, :-3], sums[:, -3:])
    low, high = np.percentile(values[np.isfinite(values)], (2.5, 97.5))
    return AgreementScore(value, min(value, float(low)), max(value, float(high)), size)
