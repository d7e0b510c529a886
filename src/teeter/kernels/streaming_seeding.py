"""Weighted seeding over rows whose features must be fetched, with as few fetches as needed.

The law is that of ``kernels.seeding``: each pick is drawn with probability proportional to
``(weight * cosine distance to the nearest pick)^2``. Weights of all N rows are known, but features
live elsewhere (other machines, files on disk), and a distance needs features. With a million rows
and a thousand picks, nearly all rows have too little weight to be worth a fetch.

How it works
------------
A row is in one of four states, and only moves forward:

1. **waiting**: its features are unknown. It counts with the largest distance there can be,
   ``farthest``.
2. **fetched**: its features are here, but it was never drawn. It still counts with ``farthest``.
3. **drawn**: it was drawn at least once, and counts with its distance to the nearest pick at the
   time it was last looked at, its *bound*.
4. **picked**.

*Rejection sampling.* Distances only fall as picks are added, so every row counts with an upper
bound on its true distance. A draw by these bounds is accepted with probability
``(distance now / bound)^2``. That is exact sampling from the sequential law, whatever the bounds
are; better bounds only waste fewer draws. As in ``kernels.seeding``, a block of draws is made from
one state of the weights, with replacement, and walked through in order.

*The race.* Waiting and fetched rows all count with the same distance, so among them only the
weights decide. The order in which such rows are drawn for the first time, successively and by
weight, is that of a race in which row i arrives after an exponential time with rate ``weight_i^2``.
These times can be drawn for all rows before anything is fetched (``_ExponentialRace``). So features
are fetched ``ahead`` at a time in the order of arrival, and a draw that hits the undrawn rows *is*
the next row of the race.

*One draw.* The line from 0 to the total weight has two parts: drawn rows by their bounds, then all
undrawn rows with ``farthest``. A point in the second part is either one of the rows that this block
has met for the first time already (they occupy the start of that part, in the order of arrival), or
else it is the next arrival. If the next arrival is not fetched yet, the block ends there: the draws
before it stand, and the fetch comes first.

Weights underflow, so they are kept as logarithms throughout. Tests compare the frequencies of whole
pick sequences with their exact law, from ``tests/reference/seeding.py``.

State
-----
Two objects change. ``seed_streaming`` owns both and is the only caller of the methods that change
them, so its loop shows every change:

- ``_ExponentialRace.next_rows`` hands out rows, each once.
- ``_FetchedRows`` grows by ``append``, and follows what happens to its rows by ``mark_drawn`` and
  ``record_distances``. It is changed in place because it holds many thousands of rows, of which a
  block touches at most 256.

Drawing and deciding are pure, and picks are replaced, not changed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Generator, Tensor

from teeter.arrays import full_precision_matmul
from teeter.kernels.distances import NEGLIGIBLE, Cosine
from teeter.kernels.seeding import accept_candidates
from teeter.seeds import uniform

__all__ = ["seed_streaming"]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

BLOCK = 256
"""Draws from one state of the weights."""

_CPU = torch.device("cpu")


def seed_streaming(
    fetch: Callable[[IntArray], Tensor],
    n: int,
    *,
    first: int,
    log_weights: FloatArray,
    preference: npt.NDArray[np.floating],
    farthest: float,
    ahead: int,
    generator: Generator,
) -> IntArray:
    """Pick n different rows, each drawn by ``(weight * cosine distance to the nearest pick)^2``.

    When every remaining weight is 0, the rows of smallest ``preference`` fill up.

    Args:
        fetch: returns the features (k, D) of rows (k,), on the CPU.
        n: number of picks, 1 to N.
        first: the first pick.
        log_weights: (N,); -inf for rows that must not be drawn.
        preference: (N,).
        farthest: largest distance there can be: 2, or 1 if no feature is negative.
        ahead: number of rows to fetch at once.
        generator: source of randomness.

    Returns:
        (n,) int64 rows in the order of picking.
    """
    race = _ExponentialRace(log_weights, generator)
    fetched = _FetchedRows(farthest)
    first_row = np.array([first], dtype=np.int64)
    picks = _Picks(first_row, Cosine(fetch(first_row)).units)

    while len(picks.rows) < n:
        if fetched.drawn_count == len(fetched.rows) and len(race.waiting):
            rows = race.next_rows(ahead)
            units = Cosine(fetch(rows)).units
            fetched.append(rows, units, 2 * log_weights[rows], race.waiting_log_mass())

        draws = fetched.draw(generator)
        if not len(draws.places):
            missing = n - len(picks.rows)
            return np.concatenate([picks.rows, _preferred_rows(preference, picks.rows, missing)])
        fetched.mark_drawn(draws.first_draws)

        decision = _decide(draws.places, fetched, picks, n - len(picks.rows), generator)
        picks = decision.picks
        fetched.record_distances(decision.places, decision.nearest, len(picks.rows))

    return picks.rows


class _ExponentialRace:
    """The order in which rows are drawn for the first time, while all count with one distance."""

    def __init__(self, log_weights: FloatArray, generator: Generator) -> None:
        chances = uniform((len(log_weights),), generator, _CPU).numpy()
        with np.errstate(divide="ignore"):  # log 0 = -inf: that row arrives first
            log_exponentials = np.log(-np.log1p(-chances))

        self.log_weights = log_weights  # (N,)
        self.log_arrivals = log_exponentials - 2 * log_weights  # (N,)
        self.waiting: IntArray = np.flatnonzero(log_weights > -np.inf)  # rows to come, ascending

    def next_rows(self, count: int) -> IntArray:
        """Take the next rows to arrive out of ``waiting``, in the order of arrival."""
        log_arrivals = self.log_arrivals[self.waiting]
        if count < len(log_arrivals):
            is_next = np.zeros(len(log_arrivals), dtype=bool)
            is_next[np.argpartition(log_arrivals, count)[:count]] = True
        else:
            is_next = np.ones(len(log_arrivals), dtype=bool)

        rows = self.waiting[is_next]
        self.waiting = self.waiting[~is_next]
        return rows[np.lexsort((rows, self.log_arrivals[rows]))]

    def waiting_log_mass(self) -> float:
        """Return the logarithm of the sum of the squared weights of all waiting rows."""
        return _log_sum_exp(2 * self.log_weights[self.waiting])


@dataclass(frozen=True)
class _Draws:
    """A block of draws with replacement."""

    places: IntArray  # positions in _FetchedRows.rows, in the order of drawing; may repeat
    first_draws: int  # how many fetched rows were drawn for the first time


class _FetchedRows:
    """Fetched rows in the order of arrival; the first ``drawn_count`` of them were drawn.

    Places are positions in these arrays. K is the number of fetched rows. Invariant: the bound of
    a row is at or above its distance to the nearest pick.
    """

    def __init__(self, farthest: float) -> None:
        self.farthest = farthest
        self.drawn_count = 0
        # (K,) row numbers, and (K, D) unit vectors; (K, D + 1) once a zero row was fetched.
        self.rows: IntArray = np.empty(0, dtype=np.int64)
        self.units = torch.empty(0, 0)
        # (K,) logarithms of squared weights.
        self.log_squares: FloatArray = np.empty(0)
        # (K + 1,) entry k: log of the squared weight of rows k, k + 1, ... and all waiting rows.
        self.log_tails: FloatArray = np.full(1, -np.inf)
        # (K,) distances that rows count with; ``farthest`` for rows that were not drawn.
        self.bounds: FloatArray = np.empty(0)
        # (K,) number of picks that the bound accounts for: the first of them.
        self.picks_seen: IntArray = np.empty(0, dtype=np.int64)

    def append(
        self,
        rows: IntArray,
        units: Tensor,
        log_squares: FloatArray,
        waiting_log_mass: float,
    ) -> None:
        """Add rows that were fetched: rows (k,), units (k, D), log_squares (k,)."""
        if len(self.rows):
            self.units = _concatenate_units(self.units, units)
        else:
            self.units = units
        self.rows = np.concatenate([self.rows, rows])
        self.log_squares = np.concatenate([self.log_squares, log_squares])
        self.bounds = np.concatenate([self.bounds, np.full(len(rows), self.farthest)])
        self.picks_seen = np.concatenate([self.picks_seen, np.zeros(len(rows), dtype=np.int64)])

        # The tails of older rows stay: what arrives now was part of their waiting mass.
        from_the_end = np.concatenate([[waiting_log_mass], log_squares[::-1]])
        tails = np.logaddexp.accumulate(from_the_end)[::-1]
        self.log_tails = np.concatenate([self.log_tails[:-1], tails])

    def draw(self, generator: Generator) -> _Draws:
        """Draw a block with replacement. It is empty if no row has any weight left."""
        drawn_count = self.drawn_count
        with np.errstate(divide="ignore"):  # log 0 = -inf: picked rows and their copies
            log_bounds = np.log(self.bounds[:drawn_count])
        drawn_log_mass = self.log_squares[:drawn_count] + 2 * log_bounds
        undrawn_log_mass = self.log_tails[drawn_count] + 2 * np.log(self.farthest)

        peak = max(float(drawn_log_mass.max(initial=-np.inf)), float(undrawn_log_mass))
        if peak == -np.inf:
            return _Draws(np.empty(0, dtype=np.int64), first_draws=0)

        # Points on the line: drawn rows first, then everything that was never drawn.
        drawn_ends = np.cumsum(np.exp(drawn_log_mass - peak))
        drawn_mass = float(drawn_ends[-1]) if drawn_count else 0.0
        total_mass = drawn_mass + np.exp(undrawn_log_mass - peak)
        points = uniform((BLOCK,), generator, _CPU).numpy() * total_mass
        places: IntArray = np.searchsorted(drawn_ends, points, side="right").astype(np.int64)
        if undrawn_log_mass == -np.inf:
            places = np.minimum(places, drawn_count - 1)  # a point rounded to the very end

        # Ends of the rows that this block draws for the first time, on the line of undrawn rows.
        first_ends: list[float] = []
        for j in np.flatnonzero(places == drawn_count).tolist():
            point = float(points[j]) - drawn_mass
            place = drawn_count + bisect_right(first_ends, point)

            if place == drawn_count + len(first_ends):  # beyond those met so far: the next arrival
                if place == len(self.rows):
                    places = places[:j]  # it must be fetched first; the draws so far stand
                    break
                log_mass = self.log_squares[place] + 2 * np.log(self.farthest)
                previous_end = first_ends[-1] if first_ends else 0.0
                first_ends.append(previous_end + float(np.exp(log_mass - peak)))

            places[j] = place

        return _Draws(places, first_draws=len(first_ends))

    def mark_drawn(self, count: int) -> None:
        """Move the next ``count`` fetched rows to the state *drawn*."""
        self.drawn_count += count

    def record_distances(self, places: IntArray, nearest: FloatArray, pick_count: int) -> None:
        """Lower the bounds of drawn rows to their distances to the nearest of the picks so far."""
        self.bounds[places] = nearest
        self.picks_seen[places] = pick_count


@dataclass(frozen=True)
class _Picks:
    """The picks so far, with their unit vectors."""

    rows: IntArray  # (P,)
    units: Tensor  # (P, D) or (P, D + 1)


@dataclass(frozen=True)
class _Decision:
    """What became of a block of draws."""

    picks: _Picks  # the picks before the block and those it added
    places: IntArray  # (k,) the different places that were drawn
    nearest: FloatArray  # (k,) their distances to the nearest of these picks


def _decide(
    drawn_places: IntArray,
    fetched: _FetchedRows,
    picks: _Picks,
    wanted: int,
    generator: Generator,
) -> _Decision:
    """Accept draws by the sequential law, at most ``wanted``."""
    places, inverse = np.unique(drawn_places, return_inverse=True)
    bounds = fetched.bounds[places]
    nearest = np.minimum(bounds, _distances_to_new_picks(places, fetched, picks))

    units = fetched.units[torch.from_numpy(places)]
    with full_precision_matmul():
        pairs = _zero_negligible(1 - units @ units.T)

    chances = uniform((len(drawn_places),), generator, _CPU).numpy()
    accepted = accept_candidates(
        drawn_places,
        pairs[inverse][:, inverse],
        nearest=nearest[inverse],
        thresholds=np.sqrt(chances) * bounds[inverse],
        wanted=wanted,
    )

    chosen = inverse[accepted]
    if len(chosen):
        nearest = np.minimum(nearest, pairs[:, chosen].min(axis=1))
        picks = _Picks(
            rows=np.concatenate([picks.rows, fetched.rows[places[chosen]]]),
            units=_concatenate_units(picks.units, units[torch.from_numpy(chosen)]),
        )
    return _Decision(picks, places, nearest)


def _distances_to_new_picks(places: IntArray, fetched: _FetchedRows, picks: _Picks) -> FloatArray:
    """Return distances to the nearest pick among those that each row's bound does not account for.

    A pick that the bound accounts for may be included; that does no harm. inf if there is no such
    pick.
    """
    distances = np.full(len(places), np.inf)
    never_seen = fetched.picks_seen[places] == 0

    # Two products: rows drawn for the first time need all picks, the others only the last few.
    for group in (never_seen, ~never_seen):
        if not group.any():
            continue
        since = int(fetched.picks_seen[places[group]].min())
        if since == len(picks.units):
            continue

        width = max(fetched.units.shape[1], picks.units.shape[1])
        rows = _pad_columns(fetched.units[torch.from_numpy(places[group])], width)
        new_picks = _pad_columns(picks.units[since:], width)
        with full_precision_matmul():
            cosines = rows @ new_picks.T
        distances[group] = _zero_negligible(1 - cosines.amax(dim=1))

    return distances


def _zero_negligible(distances: Tensor) -> FloatArray:
    values: FloatArray = distances.double().numpy()
    return np.where(values < NEGLIGIBLE, 0.0, values)


def _concatenate_units(left: Tensor, right: Tensor) -> Tensor:
    """Concatenate unit vectors of which one side may have the extra axis of zero rows."""
    width = max(left.shape[1], right.shape[1])
    return torch.cat([_pad_columns(left, width), _pad_columns(right, width)])


def _pad_columns(units: Tensor, width: int) -> Tensor:
    missing = width - units.shape[1]
    return torch.nn.functional.pad(units, (0, missing)) if missing else units


def _log_sum_exp(values: FloatArray) -> float:
    if not len(values):
        return -np.inf
    peak = float(values.max())
    if peak == -np.inf:
        return -np.inf
    return peak + float(np.log(np.exp(values - peak).sum()))


def _preferred_rows(preference: npt.NDArray[np.floating], taken: IntArray, count: int) -> IntArray:
    """Return the ``count`` rows of smallest preference that are not taken."""
    is_free = np.ones(len(preference), dtype=bool)
    is_free[taken] = False
    order = np.argsort(preference, kind="stable")
    return order[is_free[order]][:count]
