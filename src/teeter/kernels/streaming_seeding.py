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

- ``_ExponentialRace.next_rows`` hands out rows, each once: *waiting* to *fetched*.
- ``_FetchedRows`` grows by ``append``, and follows what happens to its rows by ``mark_drawn``
  (*fetched* to *drawn*) and ``record_distances``. It is changed in place because it holds many
  thousands of rows, of which a block touches at most 256.

Drawing and deciding are pure functions of that state and of the generator, and picks are replaced,
not changed. A pick needs no mark: its bound is its distance to itself, 0, so it has no weight left.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Generator, Tensor

from teeter.base.arrays import full_precision_matmul
from teeter.base.seeds import uniform
from teeter.kernels.distances import NEGLIGIBLE, Cosine
from teeter.kernels.seeding import accept_candidates

__all__ = [
    "BLOCK",
    "FloatArray",
    "IntArray",
    "seed_streaming",
]

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
    picks = _Picks(
        rows=first_row,
        units=Cosine(fetch(first_row)).units,
    )

    while len(picks.rows) < n:
        # Keep at least one fetched row that was never drawn, for the next draw to meet.
        all_drawn = fetched.drawn_count == len(fetched.rows)
        if all_drawn and len(race.waiting):
            arrivals = race.next_rows(ahead)
            units = Cosine(fetch(arrivals)).units
            fetched.append(
                arrivals,
                units,
                log_squares=2 * log_weights[arrivals],
                waiting_log_mass=race.waiting_log_mass(),
            )

        wanted = n - len(picks.rows)
        drawn_places, first_draws = fetched.draw(generator)
        if not len(drawn_places):
            is_free = np.ones(len(preference), dtype=bool)
            is_free[picks.rows] = False

            order = np.argsort(preference, kind="stable")
            free_in_order = order[is_free[order]]
            preferred = free_in_order[:wanted]
            return np.concatenate([picks.rows, preferred])
        fetched.drawn_count += first_draws

        picks, places, nearest = _decide(drawn_places, fetched, picks, wanted, generator)
        # The bounds of drawn rows become their distances to the nearest of the picks so far.
        pick_count = len(picks.rows)
        fetched.bounds[places] = nearest
        fetched.picks_seen[places] = pick_count

    return picks.rows


class _ExponentialRace:
    """The order in which rows are drawn for the first time, while all count with one distance.

    Row i arrives after ``E_i / weight_i^2``, with ``E_i`` exponential. The first to arrive is row i
    with probability ``weight_i^2`` over the sum of all, and an exponential time has no memory, so
    the same holds for each next arrival among the rows that are left.
    """

    def __init__(self, log_weights: FloatArray, generator: Generator) -> None:
        chances = uniform((len(log_weights),), generator, _CPU).numpy()
        with np.errstate(divide="ignore"):  # log 0 = -inf: that row arrives first
            log_exponentials = np.log(-np.log1p(-chances))

        # (N,) both, and never changed.
        self.log_weights = log_weights
        self.log_arrivals = log_exponentials - 2 * log_weights

        # (W,) rows that have not arrived, ascending. Rows of weight 0 never arrive.
        self.waiting: IntArray = np.flatnonzero(log_weights > -np.inf)

    def next_rows(self, count: int) -> IntArray:
        """Take the next rows to arrive out of ``waiting``, in the order of arrival."""
        log_arrivals = self.log_arrivals[self.waiting]  # (W,)
        if count < len(log_arrivals):
            earliest = np.argpartition(log_arrivals, count)[:count]  # in no order
            is_next = np.zeros(len(log_arrivals), dtype=bool)
            is_next[earliest] = True
        else:
            is_next = np.ones(len(log_arrivals), dtype=bool)

        rows = self.waiting[is_next]
        self.waiting = self.waiting[~is_next]

        # By time of arrival; rows that arrive at the same time, by their number.
        order = np.lexsort((rows, self.log_arrivals[rows]))
        return rows[order]

    def waiting_log_mass(self) -> float:
        """Return the logarithm of the sum of the squared weights of all waiting rows."""
        values = 2 * self.log_weights[self.waiting]
        if not len(values):
            return -np.inf

        # -inf - -inf would be NaN.
        peak = float(values.max())
        if peak == -np.inf:
            return -np.inf

        total = np.exp(values - peak).sum()
        return peak + float(np.log(total))


class _FetchedRows:
    """Fetched rows in the order of arrival; the first ``drawn_count`` of them were drawn.

    Places are positions in these arrays, and K is the number of fetched rows. Three invariants hold
    whenever the loop of ``seed_streaming`` begins again, and the law of the picks rests on them:

    - ``bounds[k]`` is at or above the distance of row k to its nearest pick;
    - ``bounds[k]`` is ``farthest`` for k from ``drawn_count`` on;
    - ``bounds[k]`` accounts for the first ``picks_seen[k]`` picks, which is 0 if and only if row k
      was never drawn.
    """

    def __init__(self, farthest: float) -> None:
        self.farthest = farthest
        self.log_square_farthest = 2 * np.log(farthest)
        self.drawn_count = 0

        # (K,) row numbers, all different, and (K, D) unit vectors; (K, D + 1) once a zero row was
        # fetched, because zero rows share one more axis.
        self.rows: IntArray = np.empty(0, dtype=np.int64)
        self.units = torch.empty(0, 0)

        # (K,) logarithms of squared weights.
        self.log_squares: FloatArray = np.empty(0)

        # (K + 1,) entry k: log of the squared weight of rows k, k + 1, ... and all waiting rows.
        # The last entry is that of the waiting rows alone.
        self.log_tails: FloatArray = np.full(1, -np.inf)

        # (K,) distances that rows count with, and the number of picks that each accounts for.
        self.bounds: FloatArray = np.empty(0)
        self.picks_seen: IntArray = np.empty(0, dtype=np.int64)

    def append(
        self,
        rows: IntArray,
        units: Tensor,
        *,
        log_squares: FloatArray,
        waiting_log_mass: float,
    ) -> None:
        """Add rows that were fetched.

        Args:
            rows: (k,) row numbers in the order of arrival.
            units: (k, D) or (k, D + 1) their unit vectors.
            log_squares: (k,) logarithms of their squared weights.
            waiting_log_mass: logarithm of the squared weight of the rows that still wait.
        """
        if len(self.rows):
            self.units = _concatenate_units(self.units, units)
        else:
            self.units = units

        new_bounds = np.full(len(rows), self.farthest)
        none_seen = np.zeros(len(rows), dtype=np.int64)
        self.rows = np.concatenate([self.rows, rows])
        self.log_squares = np.concatenate([self.log_squares, log_squares])
        self.bounds = np.concatenate([self.bounds, new_bounds])
        self.picks_seen = np.concatenate([self.picks_seen, none_seen])

        # The tails of older rows stay: what arrives now was part of their waiting mass. Only the
        # entry of the waiting rows alone is replaced.
        from_the_end = np.concatenate([[waiting_log_mass], log_squares[::-1]])
        new_tails = np.logaddexp.accumulate(from_the_end)[::-1]
        self.log_tails = np.concatenate([self.log_tails[:-1], new_tails])

    def draw(self, generator: Generator) -> tuple[IntArray, int]:
        """Draw a block with replacement. It is empty if no row has any weight left.

        Returns:
            (B,) places in the order of drawing, which may repeat; and how many fetched rows were
            drawn for the first time.
        """
        # Logarithms of (weight * bound)^2: (drawn_count,) of each drawn row, and of all others
        # together.
        drawn_count = self.drawn_count
        with np.errstate(divide="ignore"):  # log 0 = -inf: picked rows and their copies
            log_bounds = np.log(self.bounds[:drawn_count])
        drawn_log_mass = self.log_squares[:drawn_count] + 2 * log_bounds
        undrawn_log_mass = self.log_tails[drawn_count] + self.log_square_farthest

        # Relative to the largest, so that not all masses underflow.
        drawn_peak = float(drawn_log_mass.max(initial=-np.inf))
        peak = max(drawn_peak, float(undrawn_log_mass))
        if peak == -np.inf:
            nothing: IntArray = np.empty(0, dtype=np.int64)
            return nothing, 0

        # The line: drawn rows first, each up to its end, then everything that was never drawn.
        drawn_ends = np.cumsum(np.exp(drawn_log_mass - peak))
        drawn_mass = 0.0
        if drawn_count:
            drawn_mass = float(drawn_ends[-1])
        total_mass = drawn_mass + np.exp(undrawn_log_mass - peak)

        chances = uniform((BLOCK,), generator, _CPU).numpy()
        points = chances * total_mass
        places: IntArray = np.searchsorted(drawn_ends, points, side="right").astype(np.int64)
        if undrawn_log_mass == -np.inf:
            # A point that rounding put at the very end belongs to the last row.
            places = np.minimum(places, drawn_count - 1)

        # Points beyond the drawn rows, in the order of drawing. ``first_ends`` are the ends, on the
        # line of undrawn rows, of those that this block draws for the first time.
        first_ends: list[float] = []
        for j in np.flatnonzero(places == drawn_count).tolist():
            point = float(points[j]) - drawn_mass
            place = drawn_count + bisect_right(first_ends, point)

            # Beyond those met so far: the next arrival.
            if place == drawn_count + len(first_ends):
                if place == len(self.rows):
                    places = places[:j]  # it must be fetched first; the draws so far stand
                    break

                log_mass = self.log_squares[place] + self.log_square_farthest
                previous_end = 0.0
                if first_ends:
                    previous_end = first_ends[-1]
                mass = float(np.exp(log_mass - peak))
                first_ends.append(previous_end + mass)

            places[j] = place

        return places, len(first_ends)


@dataclass(frozen=True)
class _Picks:
    """The picks so far, with their unit vectors."""

    rows: IntArray
    """(P,) in the order of picking."""
    units: Tensor
    """(P, D), or (P, D + 1) once a zero row was picked."""


def _decide(
    drawn_places: IntArray,
    fetched: _FetchedRows,
    picks: _Picks,
    wanted: int,
    generator: Generator,
) -> tuple[_Picks, IntArray, FloatArray]:
    """Accept draws by the sequential law, at most ``wanted``: drawn_places (B,), may repeat.

    Returns:
        The picks with those it added; (k,) the different places that were drawn, ascending; and
        (k,) their distances to the nearest of these picks.
    """
    # places (k,) without repeats; inverse (B,) leads from a draw to its entry in them.
    places, inverse = np.unique(drawn_places, return_inverse=True)
    bounds = fetched.bounds[places]
    to_new_picks = _distances_to_new_picks(places, fetched, picks)
    nearest = np.minimum(bounds, to_new_picks)

    # (k, k) distances between the drawn rows.
    units = fetched.units[torch.from_numpy(places)]
    with full_precision_matmul():
        pairs = _zero_negligible(1 - units @ units.T)

    # A draw by its bound is accepted with probability (distance now / bound)^2.
    chances = uniform((len(drawn_places),), generator, _CPU).numpy()
    accepted = accept_candidates(
        drawn_places,
        pairs[inverse][:, inverse],
        nearest=nearest[inverse],
        thresholds=np.sqrt(chances) * bounds[inverse],
        wanted=wanted,
    )

    chosen = inverse[accepted]  # entries of `places`
    if len(chosen):
        to_chosen = pairs[:, chosen].min(axis=1)
        nearest = np.minimum(nearest, to_chosen)
        chosen_rows = fetched.rows[places[chosen]]
        chosen_units = units[torch.from_numpy(chosen)]
        picks = _Picks(
            rows=np.concatenate([picks.rows, chosen_rows]),
            units=_concatenate_units(picks.units, chosen_units),
        )

    return picks, places, nearest


def _distances_to_new_picks(
    places: IntArray,
    fetched: _FetchedRows,
    picks: _Picks,
) -> FloatArray:
    """Return distances to the nearest pick among those that each row's bound does not account for.

    A pick that the bound accounts for may be included; that does no harm. inf if there is no such
    pick. Places (k,) -> (k,).
    """
    distances = np.full(len(places), np.inf)
    picks_seen = fetched.picks_seen[places]
    never_seen = picks_seen == 0

    # Two products: rows drawn for the first time need all picks, the others only the last few.
    for is_in_group in (never_seen, ~never_seen):
        if not is_in_group.any():
            continue

        since = int(picks_seen[is_in_group].min())
        if since == len(picks.units):
            continue

        # One side may have the extra axis of zero rows and the other not.
        width = max(fetched.units.shape[1], picks.units.shape[1])
        group_places = torch.from_numpy(places[is_in_group])
        group_units = _pad_columns(fetched.units[group_places], width)
        new_pick_units = _pad_columns(picks.units[since:], width)
        with full_precision_matmul():
            cosines = group_units @ new_pick_units.T

        distances[is_in_group] = _zero_negligible(1 - cosines.amax(dim=1))

    return distances


def _zero_negligible(distances: Tensor) -> FloatArray:
    """Return distances in float64 with those of copies, which rounding keeps from 0, as 0."""
    values: FloatArray = distances.double().numpy()
    return np.where(values < NEGLIGIBLE, 0.0, values)


def _concatenate_units(left: Tensor, right: Tensor) -> Tensor:
    """Concatenate unit vectors of which one side may have the extra axis of zero rows."""
    width = max(left.shape[1], right.shape[1])
    left = _pad_columns(left, width)
    right = _pad_columns(right, width)
    return torch.cat([left, right])


def _pad_columns(units: Tensor, width: int) -> Tensor:
    """Append columns of zeros: on the extra axis, rows that are not zero have length 0."""
    missing = width - units.shape[1]
    if not missing:
        return units
    return torch.nn.functional.pad(units, (0, missing))
