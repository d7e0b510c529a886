"""Facility location: rows that represent the others; and the lazy step of a greedy maximisation."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from teeter.arrays import TILE, full_precision_matmul, memory_budget, pad_to_tile, tiles
from teeter.kernels.distances import Cosine

__all__ = ["ROUNDING", "facility_location", "fill_remaining", "refresh_bounds", "top_rows"]

ROUNDING = 64
"""Gains are equal that differ by less than so many units of rounding of what they are computed from."""


def facility_location(features: Tensor, n: int) -> Tensor:
    """Return the n rows picked greedily to maximise ``f(A) = sum over i of max over j in A of (1 + cos(z_i, z_j))``.

    features (N, D) -> (n,) int64 in the order of picking; gains that are equal but for rounding go to the lowest row,
    and so does what is left when no gain is; such ties are common, as two rows that would serve only each other gain
    the same. A gain only falls as rows are picked, so the last one computed bounds it from above, and few need to be
    computed anew for a pick.

    Reference: Wei et al., Submodularity in Data Subset Selection and Active Learning, ICML 2015.
    """
    cosines = _Cosines(features)
    covered = features.new_full((len(features),), -1)  # each row's largest cosine to a pick
    bounds = cosines.bounds()
    gain = float(bounds.max())
    picks: list[Tensor] = []
    while len(picks) < n:
        slack = ROUNDING * torch.finfo(features.dtype).eps * gain
        known = refresh_bounds(
            bounds, lambda rows: cosines.excess(rows, covered), batch=32, slack=slack
        )
        pick = top_rows(bounds, known, slack=slack)
        gain = float(bounds[pick])
        if gain <= slack:
            break
        picks.append(pick)
        bounds[pick] = -torch.inf
        torch.maximum(covered, cosines.to_all(pick)[0], out=covered)
    return fill_remaining(picks, bounds, n)


def refresh_bounds(
    bounds: Tensor,
    gains: Callable[[Tensor], Tensor],
    *,
    batch: int,
    keep: int = 1,
    slack: float = 0.0,
) -> Tensor:
    """Return rows that have the ``keep`` largest gains among them, after putting their gains in the place of bounds.

    bounds (N,) at or above the gains, -inf for rows that are out; gains: rows (B,) -> (B,). It goes by the bounds, in
    batches that double, until none of the rest comes within ``slack`` of the gains that matter.
    """
    order = bounds.argsort(descending=True, stable=True)
    ceilings = bounds[order].cpu()
    left = int((ceilings > -torch.inf).sum())
    known, size = 0, batch
    while known < left:
        rows = order[known : min(known + size, left)]
        bounds[rows] = gains(rows)
        known, size = known + len(rows), 2 * size
        if (
            keep <= known < left
            and ceilings[known] < bounds[order[:known]].topk(keep).values[-1].cpu() - slack
        ):
            break
    return order[:known]


def top_rows(bounds: Tensor, rows: Tensor, keep: int = 1, *, slack: float = 0.0) -> Tensor:
    """Return the ``keep`` rows of largest gain; of those within ``slack`` of the largest, the lowest first."""
    rows = rows.sort().values
    gains = bounds[rows]
    tied = gains >= gains.max() - slack
    return rows[gains.masked_fill(tied, torch.inf).argsort(descending=True, stable=True)[:keep]]


def fill_remaining(picks: Sequence[Tensor], bounds: Tensor, n: int) -> Tensor:
    """Return the picks, and where they are fewer than n the lowest rows that are not out: (n,)."""
    return torch.cat([*picks, (bounds > -torch.inf).nonzero()[: n - len(picks), 0]])


class _Cosines:
    """Cosines of candidates to all rows, made when asked for; the first are kept, as far as the working memory goes."""

    def __init__(self, features: Tensor) -> None:
        """features (N, D)."""
        self.units = Cosine(features).units
        rows = len(features)
        fitting = memory_budget(features.device) // 2 // (rows * features.element_size())
        self.together = max(1, min(TILE, fitting // 4))
        self.kept = features.new_empty((min(rows, fitting), rows))
        self.used = 0
        self.place = torch.full((rows,), -1, device=features.device)

    def bounds(self) -> Tensor:
        """Return each row's ``sum over i of (1 + cos)``, raised by more than its rounding: (N,) float64."""
        total = self.units.sum(dim=0, dtype=torch.float64).to(self.units.dtype)
        with full_precision_matmul():
            gains: Tensor = (self.units @ total).double()
        return gains.add_(len(self.units) * (1 + 1e-3))

    def excess(self, rows: Tensor, covered: Tensor) -> Tensor:
        """Return by how much the cosines of each row exceed those covered, in all: (B,), (N,) -> (B,) float64."""
        parts = [
            self.to_all(some).sub_(covered).clamp_min_(0) for some in rows.split(self.together)
        ]
        return torch.cat([part.sum(dim=1, dtype=torch.float64) for part in parts])

    def to_all(self, rows: Tensor) -> Tensor:
        """Return the cosines of some rows to all: (B,) -> (B, N)."""
        new = rows[self.place[rows] < 0][: len(self.kept) - self.used]
        if len(new):
            end = self.used + len(new)
            self.kept[self.used : end] = self._product(new)
            self.place[new] = torch.arange(self.used, end, device=rows.device)
            self.used = end
        places = self.place[rows]
        answer = self.kept[places] if len(self.kept) else self._product(rows)
        missing = (places < 0).nonzero()[:, 0]
        if len(missing) and len(self.kept):
            answer[missing] = self._product(rows[missing])
        return answer

    def _product(self, rows: Tensor) -> Tensor:
        answer: Tensor = self.units.new_empty((len(rows), len(self.units)))
        candidates = pad_to_tile(self.units[rows])
        per_row = 2 * len(candidates) * self.units.element_size()
        in_cache = None if self.units.is_cuda else 4 * TILE
        for where in tiles(len(self.units), per_row, self.units.device, at_most=in_cache):
            with full_precision_matmul():
                product = candidates @ pad_to_tile(self.units[where]).T
            answer[:, where] = product[: len(rows), : where.stop - where.start]
        return answer
