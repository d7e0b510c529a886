"""Weighted seeding over rows whose features are far away: only those of rows that may be picked are fetched.

The law is that of ``kernels.seeding``: each pick is drawn by ``(weight * distance to the nearest pick)^2``. A row whose
features were never seen counts with the largest distance there can be, and a row that was seen with its distance at
that time; what is drawn by these is accepted with probability ``(distance now / distance it counted with)^2``.
Distances only fall, so this is rejection sampling from the sequential law, exact at every step.

In which order rows are drawn for the first time is known before any of them is: that of a race in which a row arrives
after an exponential time of its squared weight. So features are fetched many at once, in the order of arrival.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Generator, Tensor

from teeter.arrays import full_precision_matmul
from teeter.kernels.distances import NEGLIGIBLE, Cosine
from teeter.kernels.seeding import accept_candidates
from teeter.seeds import uniform

__all__ = ["seed_streaming"]

Rows = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.float64]

BLOCK = 256
"""Draws from one state of the weights."""


def seed_streaming(
    fetch: Callable[[Rows], Tensor],
    n: int,
    *,
    first: int,
    log_weights: Numbers,
    preference: npt.NDArray[np.floating],
    farthest: float,
    ahead: int,
    generator: Generator,
) -> Rows:
    """Return n different rows, each drawn by ``(weight * cosine distance to the nearest pick)^2``, ``first`` first.

    log_weights (N,), preference (N,) -> (n,). ``fetch`` returns features (k, D) of rows (k,); ``farthest`` is the
    largest distance there can be, 2, or 1 where no feature is negative; ``ahead`` is how many rows to fetch at once.
    When every remaining weight is 0, the rows of least preference fill up.
    """
    race = _Race(log_weights, generator)
    seen = _Seen(farthest)
    picks = _Picked(np.array([first], dtype=np.int64), Cosine(fetch(np.array([first]))).units)
    while len(picks.rows) < n:
        if seen.known == len(seen.rows) and race.left:
            rows = race.next(ahead)
            seen.add(rows, Cosine(fetch(rows)).units, 2 * log_weights[rows], race.log_mass_left)
        drawn = seen.draw(generator)
        if not len(drawn):
            return np.concatenate([picks.rows, _fill(preference, picks.rows, n - len(picks.rows))])
        _accept(drawn, seen, picks, n, generator)
    return picks.rows


class _Race:
    """Rows in the order in which they are drawn for the first time, without one drawn before."""

    def __init__(self, log_weights: Numbers, generator: Generator) -> None:
        draws = uniform((len(log_weights),), generator, torch.device("cpu")).numpy()
        with np.errstate(divide="ignore"):
            self.arrivals = np.log(-np.log1p(-draws)) - 2 * log_weights
        self.log_weights = log_weights
        self.waiting: Rows = np.flatnonzero(log_weights > -np.inf)
        self.log_mass_left = -np.inf

    @property
    def left(self) -> int:
        """How many rows are still to come."""
        return len(self.waiting)

    def next(self, count: int) -> Rows:
        """Return the next rows to arrive, and keep the squared weight of those after them."""
        arrivals = self.arrivals[self.waiting]
        if count < len(arrivals):
            early = np.zeros(len(arrivals), dtype=bool)
            early[np.argpartition(arrivals, count)[:count]] = True
        else:
            early = np.ones(len(arrivals), dtype=bool)
        rows = self.waiting[early]
        rows = rows[np.lexsort((rows, self.arrivals[rows]))]
        self.waiting = self.waiting[~early]
        self.log_mass_left = _log_sum(2 * self.log_weights[self.waiting])
        return rows


class _Seen:
    """Fetched rows in the order of the race: ``known`` of them were drawn at least once, and are at most so far."""

    def __init__(self, farthest: float) -> None:
        self.farthest = farthest
        self.known = 0
        self.rows: Rows = np.empty(0, dtype=np.int64)
        self.units = torch.empty(0, 0)
        self.log_squares: Numbers = np.empty(0)
        self.log_tails: Numbers = np.full(1, -np.inf)
        self.bounds: Numbers = np.empty(0)
        self.upto: Rows = np.empty(0, dtype=np.int64)

    def add(self, rows: Rows, units: Tensor, log_squares: Numbers, log_mass_left: float) -> None:
        """Take rows that were fetched, and the squared weight of all that were not."""
        width = max(units.shape[1], self.units.shape[1])  # zero rows add an axis of their own
        self.units = (
            torch.cat([_widened(self.units, width), _widened(units, width)])
            if len(self.rows)
            else units
        )
        self.rows = np.concatenate([self.rows, rows])
        self.log_squares = np.concatenate([self.log_squares, log_squares])
        tails = np.logaddexp.accumulate(np.concatenate([[log_mass_left], log_squares[::-1]]))[::-1]
        self.log_tails = np.concatenate([self.log_tails[:-1], tails])
        self.bounds = np.concatenate([self.bounds, np.full(len(rows), self.farthest)])
        self.upto = np.concatenate([self.upto, np.zeros(len(rows), dtype=np.int64)])

    def draw(self, generator: Generator) -> Rows:
        """Return places in ``rows``, drawn with replacement; none where nothing weighs anything."""
        begun = self.known
        with np.errstate(divide="ignore"):
            known = self.log_squares[:begun] + 2 * np.log(self.bounds[:begun])
        unknown = self.log_tails[begun] + 2 * np.log(self.farthest)
        peak = max(float(known.max(initial=-np.inf)), float(unknown))
        if peak == -np.inf:
            return np.empty(0, dtype=np.int64)
        ends = np.cumsum(np.exp(known - peak))
        old = float(ends[-1]) if begun else 0.0
        points = uniform((BLOCK,), generator, torch.device("cpu")).numpy() * (
            old + np.exp(unknown - peak)
        )
        places: Rows = np.searchsorted(ends, points, side="right").astype(np.int64)
        if unknown == -np.inf:
            places = np.minimum(places, begun - 1)
        fresh = _Fresh(self, begun, peak)
        for j in np.flatnonzero(places == begun).tolist():
            place = fresh.place(float(points[j]) - old)
            if place is None:  # more must be fetched first; the draws so far stand
                places = places[:j]
                break
            places[j] = place
        return places


@dataclass
class _Fresh:
    """Rows that a block of draws meets for the first time; later draws of the block may meet them again."""

    seen: _Seen
    begun: int
    peak: float
    ends: list[float] = field(default_factory=list)

    def place(self, point: float) -> int | None:
        """Return the place of the row at ``point`` of the unknown rows' weight; None where it is not fetched yet."""
        again = int(np.searchsorted(self.ends, point, side="right"))
        if again < len(self.ends):
            return self.begun + again
        seen, place = self.seen, self.seen.known
        if place == len(seen.rows):
            return None
        weight = np.exp(seen.log_squares[place] + 2 * np.log(seen.farthest) - self.peak)
        self.ends.append((self.ends[-1] if self.ends else 0.0) + float(weight))
        seen.known += 1
        return place


@dataclass
class _Picked:
    rows: Rows
    units: Tensor


def _accept(drawn: Rows, seen: _Seen, picks: _Picked, n: int, generator: Generator) -> None:
    """Take the rows that the sequential law accepts, and bring distances of those drawn up to date."""
    places, where = np.unique(drawn, return_inverse=True)
    before = seen.bounds[places]
    now = np.minimum(before, _nearest(places, seen, picks))
    units = seen.units[torch.from_numpy(places)]
    with full_precision_matmul():
        between = _clean(1 - units @ units.T)
    chances = uniform((len(drawn),), generator, torch.device("cpu")).numpy()
    accepted = accept_candidates(
        drawn,
        between[where][:, where],
        now=now[where],
        bars=np.sqrt(chances) * before[where],
        wanted=n - len(picks.rows),
    )
    chosen = where[accepted]
    if len(chosen):
        now = np.minimum(now, between[:, chosen].min(axis=1))
        width = max(picks.units.shape[1], units.shape[1])
        picks.units = torch.cat(
            [_widened(picks.units, width), _widened(units[torch.from_numpy(chosen)], width)]
        )
        picks.rows = np.concatenate([picks.rows, seen.rows[places[chosen]]])
    seen.bounds[places], seen.upto[places] = now, len(picks.rows)


def _nearest(places: Rows, seen: _Seen, picks: _Picked) -> Numbers:
    """Return distances to the nearest of the picks that came since each row was looked at."""
    away = np.full(len(places), np.inf)
    new = seen.upto[places] == 0
    for some in (new, ~new):
        if some.any():
            since = int(seen.upto[places[some]].min())
            rows, width = (
                seen.units[torch.from_numpy(places[some])],
                max(seen.units.shape[1], picks.units.shape[1]),
            )
            if since < len(picks.units):
                with full_precision_matmul():
                    cosines = _widened(rows, width) @ _widened(picks.units[since:], width).T
                away[some] = _clean(1 - cosines.amax(dim=1))
    return away


def _clean(distances: Tensor) -> Numbers:
    found: Numbers = distances.double().numpy()
    return np.where(found < NEGLIGIBLE, 0.0, found)


def _widened(units: Tensor, width: int) -> Tensor:
    missing = width - units.shape[1]
    return torch.nn.functional.pad(units, (0, missing)) if missing else units


def _log_sum(values: Numbers) -> float:
    if not len(values) or (top := float(values.max())) == -np.inf:
        return -np.inf
    return top + float(np.log(np.exp(values - top).sum()))


def _fill(preference: npt.NDArray[np.floating], taken: Rows, count: int) -> Rows:
    free = np.ones(len(preference), dtype=bool)
    free[taken] = False
    order = np.argsort(preference, kind="stable")
    return order[free[order]][:count]
