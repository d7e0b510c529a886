"""Facility location: rows that represent the others; and the lazy step of greedy maximisation.

``facility_location`` compares rows by their cosine. ``herd`` compares them by a Gaussian of it,
gives each row a weight, and begins with rows that are covered already.

A submodular gain only falls as rows are picked, so a gain computed earlier is an upper bound on the
gain now. Greedy picking needs only the gains of rows whose bound is near the best gain: see
``refresh_bounds``, which BatchBALD uses too.

References: Wei et al., Submodularity in Data Subset Selection and Active Learning, ICML 2015. Bae
et al., Generalized Coverage for More Robust Low-Budget Active Learning, ECCV 2024 (MaxHerding), and
Uncertainty Herding, ICLR 2025 (weights).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from teeter.base.arrays import TILE, full_precision_matmul, memory_budget, pad_to_tile, tiles
from teeter.kernels.distances import Cosine
from teeter.kernels.kcenter import CENTRES_PER_PRODUCT

__all__ = [
    "ROUNDING",
    "facility_location",
    "fill_remaining",
    "herd",
    "refresh_bounds",
    "top_rows",
]

ROUNDING = 64
"""Gains are equal if they differ by fewer than this many machine epsilons of what they sum."""

_FIRST_BATCH = 32
"""Gains computed at once, to begin with."""

_BOUND_SLACK = 1e-3
"""The first bounds are raised by this much per row, which is more than they can be rounded down."""


def facility_location(features: Tensor, n: int) -> Tensor:
    """Pick n rows greedily so that every row is similar to a pick.

    The picks A maximise ``f(A) = sum over i of max over j in A of (1 + cos(z_i, z_j))``.

    Gains that are equal but for rounding go to the lowest row. Such ties are common: two rows that
    would represent only each other gain the same. When no row gains anything, the lowest rows fill
    up.

    Args:
        features: (N, D).
        n: number of picks, 1 to N.

    Returns:
        (n,) int64 positions in the order of picking.

    Example:
        >>> import torch
        >>> facility_location(torch.tensor([[0.0, 1.0], [0.0, 2.0], [3.0, 0.0]]), 2)
        tensor([0, 2])
    """
    cosines = _SimilarityCache(Cosine(features).units)

    # (N,) float64, at or above each row's gain: its sum over i of (1 + cos), raised by more than
    # its rounding. The sum over i of cos(z_i, z_j) is the product of z_j with the sum of all unit
    # vectors.
    total = cosines.units.sum(dim=0, dtype=torch.float64).to(cosines.units.dtype)  # (D,)
    with full_precision_matmul():
        gains: Tensor = (cosines.units @ total).double()
    bounds = gains.add_(len(cosines.units) * (1 + _BOUND_SLACK))

    # A row's cosine to the nearest pick is -1 before the first.
    covered = features.new_full((len(features),), -1)
    picks, _ = _pick_greedily(cosines, bounds, covered, n)
    return picks


def herd(
    features: Tensor,
    n: int,
    *,
    weights: Tensor,
    centres: Tensor,
) -> tuple[Tensor, Tensor]:
    """Pick n rows greedily so that rows of large weight are near a pick.

    The picks A maximise ``f(A) = sum over j of w_j max(cover_j, max over i in A of k_ij)``, where
    ``k_ij = exp(2 (cos(z_i, z_j) - 1))``, and ``cover_j`` is the largest similarity of row j to a
    centre, or 0 without centres. For rows of length 1, ``k`` is a Gaussian of width
    ``sqrt(1/2)``, half of what two random rows are apart.

    Equal gains go to the lowest row, and the lowest rows fill up when no row gains anything.

    Args:
        features: (N, D) candidates.
        n: number of picks, 1 to N.
        weights: (N,) how much each row counts, 0 or more.
        centres: (L, D) rows that cover others already, for example the labelled ones. L may be 0.

    Returns:
        (n,) int64 positions in the order of picking, and for each row which pick covers it best:
        (N,) numbers from 0 to n - 1, or -1 for a centre or nothing.

    Example:
        >>> import torch
        >>> rows = torch.tensor([[0.0, 1.0], [0.1, 1.0], [1.0, 0.0]])
        >>> picks, _ = herd(rows, 1, weights=torch.tensor([1.0, 1.0, 3.0]), centres=rows[:0])
        >>> picks
        tensor([2])
    """
    N = len(features)
    cosine = Cosine(torch.cat([features, centres]))
    weights = weights.to(features)

    # (N,) similarity to the nearest centre.
    covered = torch.zeros_like(features[:, 0])
    for start in range(N, N + len(centres), CENTRES_PER_PRODUCT):
        stop = min(start + CENTRES_PER_PRODUCT, N + len(centres))
        chunk = torch.arange(start, stop, device=features.device)
        similarity = cosine.nearest(chunk)[:N].mul_(-2).exp_()
        covered = torch.maximum(covered, similarity)

    similarities = _SimilarityCache(cosine.units[:N], weights=weights, gaussian=True)
    # All gains are computed once. If not all similarities fit into the cache, it waits for the rows
    # of large gain.
    fits = len(similarities.cached) == N
    every_row = torch.arange(N, device=features.device)
    bounds = similarities.gains(every_row, covered, cache=fits)
    return _pick_greedily(similarities, bounds, covered, n)


def _pick_greedily(
    similarities: _SimilarityCache,
    bounds: Tensor,
    covered: Tensor,
    n: int,
) -> tuple[Tensor, Tensor]:
    """Pick n rows of largest gain, one after the other.

    Args:
        similarities: of the N rows.
        bounds: (N,) float64, at or above each row's gain. Changed in place: -inf for picks.
        covered: (N,) each row's largest similarity to what is there before the first pick. Changed
            in place.
        n: number of picks.

    Returns:
        (n,) positions, and which of them covers each row best: (N,), -1 for none.
    """
    gain = float(bounds.max())
    covered_by = torch.full_like(bounds, -1, dtype=torch.int64)

    picks: list[Tensor] = []
    while len(picks) < n:
        # Relative to the last gain, which is at or above those to come.
        slack = ROUNDING * torch.finfo(covered.dtype).eps * gain
        refreshed = refresh_bounds(
            bounds,
            lambda rows: similarities.gains(rows, covered),
            batch=_FIRST_BATCH,
            slack=slack,
        )
        pick = top_rows(bounds, refreshed, slack=slack)
        gain = float(bounds[pick])
        if gain <= slack:
            break

        similarity = similarities.to_all_rows(pick)[0]
        covered_by[similarity > covered] = len(picks)
        torch.maximum(covered, similarity, out=covered)
        picks.append(pick)
        bounds[pick] = -torch.inf

    return fill_remaining(picks, bounds, n), covered_by


def refresh_bounds(
    bounds: Tensor,
    gains: Callable[[Tensor], Tensor],
    *,
    batch: int,
    keep: int = 1,
    slack: float = 0.0,
) -> Tensor:
    """Replace bounds by gains, from the largest bound down, until the best gains are certain.

    It stops when every bound that is left is more than ``slack`` below the ``keep`` largest gains.

    Args:
        bounds: (N,) at or above the gains, -inf for rows that are out. Changed in place.
        gains: computes the gains of rows: positions (B,) -> (B,).
        batch: rows to compute first; the number doubles from batch to batch.
        keep: number of largest gains that must be certain.
        slack: difference below which gains count as equal.

    Returns:
        The rows whose gains were computed. They include the ``keep`` rows of largest gain.
    """
    order = bounds.argsort(descending=True, stable=True)
    upper_bounds = bounds[order].cpu()  # as they were, descending
    available = int((upper_bounds > -torch.inf).sum())

    computed = 0
    while computed < available:
        end = min(computed + batch, available)
        rows = order[computed:end]
        bounds[rows] = gains(rows)
        computed += len(rows)
        batch *= 2

        # The first bound that is left is the largest of them.
        if keep <= computed < available:
            computed_gains = bounds[order[:computed]]
            worst_kept = computed_gains.topk(keep).values[-1].cpu()
            if upper_bounds[computed] < worst_kept - slack:
                break

    return order[:computed]


def top_rows(
    bounds: Tensor,
    rows: Tensor,
    keep: int = 1,
    *,
    slack: float = 0.0,
) -> Tensor:
    """Return the ``keep`` rows of largest gain, by position: bounds (N,), rows (B,) -> (keep,).

    Among gains within ``slack`` of the largest, the lowest row comes first.
    """
    rows = rows.sort().values
    gains = bounds[rows]

    # Tied gains become equal, and a stable sort leaves the lowest of them first.
    is_tied = gains >= gains.max() - slack
    order = gains.masked_fill(is_tied, torch.inf).argsort(descending=True, stable=True)
    return rows[order[:keep]]


def fill_remaining(
    picks: Sequence[Tensor],
    bounds: Tensor,
    n: int,
) -> Tensor:
    """Return the picks, filled up to n with the lowest rows whose bound is not -inf: (n,)."""
    remaining = (bounds > -torch.inf).nonzero()[:, 0]
    missing = n - len(picks)
    return torch.cat([*picks, remaining[:missing]])


class _SimilarityCache:
    """Similarities of single rows to all rows, computed on demand.

    The first rows asked for are cached, as many as most of the memory budget holds: greedy
    picking asks for the same promising rows again and again. The cache is filled in place and never
    overwritten; it changes the speed, not the similarities.

    Args:
        units: (N, D) rows of length 1.
        weights: (N,) how much each row counts in a gain. Default: 1.
        gaussian: whether a similarity is ``exp(2 (cos - 1))`` instead of the cosine.
    """

    def __init__(
        self,
        units: Tensor,
        *,
        weights: Tensor | None = None,
        gaussian: bool = False,
    ) -> None:
        self.units = units
        self.weights = weights
        self.gaussian = gaussian
        N = len(units)
        bytes_per_row = N * units.element_size()
        capacity = memory_budget(units.device) * 7 // 8 // bytes_per_row
        self.rows_per_product = max(1, min(TILE, capacity // 16))

        # Row slot[i] of `cached` has the similarities of row i to all rows; slot[i] is -1 if it is
        # not cached. The first `used` rows of `cached` are filled.
        self.cached = units.new_empty((min(N, capacity), N))
        self.used = 0
        self.slot = units.new_full((N,), -1, dtype=torch.int64)

    def gains(self, rows: Tensor, covered: Tensor, *, cache: bool = True) -> Tensor:
        """Return how much each row would raise the coverage: (B,), (N,) -> (B,) float64."""
        sums = []
        for chunk in rows.split(self.rows_per_product):
            similarities = self.to_all_rows(chunk) if cache else self._compute(chunk)
            excess = similarities.sub_(covered).clamp_min_(0)
            if self.weights is not None:
                excess.mul_(self.weights)
            sums.append(excess.sum(dim=1, dtype=torch.float64))
        return torch.cat(sums)

    def to_all_rows(self, rows: Tensor) -> Tensor:
        """Return the similarities of rows to all rows: (B,) -> (B, N), a copy."""
        if not len(self.cached):
            return self._compute(rows)

        # Cache the new rows, as far as there is room.
        room = len(self.cached) - self.used
        is_new = self.slot[rows] < 0
        new_rows = rows[is_new][:room]
        if len(new_rows):
            end = self.used + len(new_rows)
            self.cached[self.used : end] = self._compute(new_rows)
            self.slot[new_rows] = torch.arange(self.used, end, device=rows.device)
            self.used = end

        slots = self.slot[rows]
        similarities = self.cached[slots]  # wrong where the slot is -1, which is put right next
        missing = (slots < 0).nonzero()[:, 0]
        if len(missing):
            similarities[missing] = self._compute(rows[missing])
        return similarities

    def _compute(self, rows: Tensor) -> Tensor:
        """Return the similarities of rows to all rows, not from the cache: (B,) -> (B, N)."""
        N = len(self.units)
        cosines: Tensor = self.units.new_empty((len(rows), N))
        candidates = pad_to_tile(self.units[rows])  # (padded B, D)
        bytes_per_row = 2 * len(candidates) * self.units.element_size()
        at_most = None
        if not self.units.is_cuda:
            at_most = 4 * TILE  # stays in the cache of a CPU

        for tile in tiles(N, bytes_per_row, self.units.device, at_most=at_most):
            with full_precision_matmul():
                products = candidates @ pad_to_tile(self.units[tile]).T
            size = tile.stop - tile.start
            cosines[:, tile] = products[: len(rows), :size]

        if self.gaussian:
            return cosines.sub_(1).mul_(2).exp_()
        return cosines
