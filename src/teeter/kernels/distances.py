"""Distances between the rows of a pool, computed on demand: never all pairs at once.

Both distances come from matrix products. Products of a row with itself or with a copy of it round,
so distances near 0 are treated with care: a cosine distance under ``NEGLIGIBLE`` is 0, and a
Euclidean distance that cancelled is computed again from the coordinates.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from teeter.base.arrays import full_precision_matmul, pad_to_tile, tiles

__all__ = [
    "NEGLIGIBLE",
    "Cosine",
    "Distance",
    "Euclidean",
    "distance_tiles",
    "refine_cancelled",
    "squared_distances",
    "squared_lengths",
]

NEGLIGIBLE = 1e-5
"""Distances below this are 0, so that copies are copies in spite of rounding."""

_PAIRS_PER_REFINEMENT = 1 << 16
"""Pairs that ``refine_cancelled`` computes at once, to bound its memory."""

_CPU_TILE_ROWS = 4096
"""Rows of a tile on a CPU, whose products should stay in the cache."""


class Distance(Protocol):
    """A distance over the N rows of a pool."""

    def between(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Return the distances of all pairs: positions (A,) and (B,) -> (A, B)."""

    def nearest(self, picks: Tensor) -> Tensor:
        """Return every row's distance to the nearest pick: positions (B,) -> (N,)."""


class Cosine:
    """One minus the cosine of the angle between two rows.

    A zero row is at distance 1 from every other row, and at 0 from another zero row.

    Args:
        features: (N, D).
    """

    def __init__(self, features: Tensor) -> None:
        # (N, 1) each: the largest absolute entry of every row, and whether it is 0.
        low, high = torch.aminmax(features, dim=1, keepdim=True)
        peaks = torch.maximum(-low, high)
        is_zero = peaks == 0

        # Dividing by the largest entry first: no square overflows or underflows.
        scaled = features / peaks.masked_fill(is_zero, 1)
        norms = torch.linalg.vector_norm(scaled, dim=1, keepdim=True)
        norms.masked_fill_(is_zero, 1)

        # (N, D) of length 1; (N, D + 1) if there are zero rows, which share one more axis.
        self.units = scaled.div_(norms)
        if bool(is_zero.any()):
            self.units = torch.cat([self.units, is_zero.to(features.dtype)], dim=1)

    def between(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Return the distances of all pairs: positions (A,) and (B,) -> (A, B)."""
        left = self.units[rows]
        right = left
        if columns is not rows:
            right = self.units[columns]
        with full_precision_matmul():
            return _zero_negligible(1 - left @ right.T)

    def nearest(self, picks: Tensor) -> Tensor:
        """Return every row's distance to the nearest pick: positions (B,) -> (N,)."""
        centres = self.units[picks]  # (B, D)
        nearest = self.units.new_empty(len(self.units))

        for tile in distance_tiles(self.units, len(picks)):
            with full_precision_matmul():
                cosines = centres @ pad_to_tile(self.units[tile]).T  # (B, padded tile)
            size = tile.stop - tile.start
            nearest[tile] = 1 - cosines.amax(dim=0)[:size]

        return _zero_negligible(nearest)


class Euclidean:
    """The Euclidean distance. Below 1e-5 of the two rows' norms it is 0.

    Squared distances come from products, ``|a|^2 + |b|^2 - 2 a.b``, after centring. Where these
    cancel, they are computed again from the differences of the coordinates.

    Args:
        features: (N, D).
    """

    def __init__(self, features: Tensor) -> None:
        self.features = features - features.mean(dim=0)  # (N, D)
        self.squares = squared_lengths(self.features)  # (N,)

    def between(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Return the distances of all pairs: positions (A,) and (B,) -> (A, B)."""
        left = self.features[rows]
        right = self.features[columns]
        with full_precision_matmul():
            products = left @ right.T

        squared = squared_distances(
            self.squares[rows][:, None],
            self.squares[columns][None],
            products,
        )
        return _refine_euclidean(squared, left, right).sqrt_()

    def nearest(self, picks: Tensor) -> Tensor:
        """Return every row's distance to the nearest pick: positions (B,) -> (N,)."""
        centres = self.features[picks]  # (B, D)
        centre_squares = self.squares[picks][:, None]  # (B, 1)
        nearest = self.features.new_empty(len(self.features))  # (N,) squared, until the end

        for tile in distance_tiles(self.features, len(picks)):
            with full_precision_matmul():
                products = centres @ pad_to_tile(self.features[tile]).T

            size = tile.stop - tile.start
            products = products[:, :size]  # without the padding
            squared = squared_distances(centre_squares, self.squares[tile][None], products)
            squared = _refine_euclidean(squared, centres, self.features[tile])
            nearest[tile] = squared.amin(dim=0)

        return nearest.sqrt_()


def squared_distances(
    left: Tensor,
    right: Tensor,
    products: Tensor,
) -> Tensor:
    """Return ``|a|^2 + |b|^2 - 2 a.b``, and 0 where that is within rounding of 0.

    Args:
        left: (A, 1) squared norms.
        right: (1, B) squared norms.
        products: (A, B) inner products.

    Returns:
        (A, B). Zeros are either copies or pairs too close to tell apart: see ``refine_cancelled``.
    """
    norms = left + right
    squared = norms - 2 * products

    # What is left of norms that cancel to less than this is rounding.
    rounding = 16 * torch.finfo(products.dtype).eps
    resolution = max(NEGLIGIBLE**2, rounding)
    return squared.masked_fill_(squared <= resolution * norms, 0)


def refine_cancelled(
    squared: Tensor,
    exact: Callable[[Tensor, Tensor], Tensor],
    norms: Callable[[Tensor, Tensor], Tensor],
) -> Tensor:
    """Compute squared distances that rounded to 0 again, in place.

    Args:
        squared: (A, B) squared distances, changed in place.
        exact: the squared distances of pairs, without cancellation: positions (P,), (P,) -> (P,).
        norms: the sums of the squared norms of pairs: positions (P,), (P,) -> (P,).

    Returns:
        ``squared``.
    """
    cancelled = (squared == 0).nonzero()  # (P, 2) rows and columns
    for pairs in cancelled.split(_PAIRS_PER_REFINEMENT):
        i, j = pairs.T
        values = exact(i, j)
        is_copy = values < NEGLIGIBLE**2 * norms(i, j)
        squared[i, j] = values.masked_fill_(is_copy, 0)

    return squared


def squared_lengths(rows: Tensor) -> Tensor:
    """Return the squared lengths of rows without a temporary copy of them all: (N, D) -> (N,)."""
    lengths = [chunk.square().sum(dim=1) for chunk in rows.split(1024)]
    return torch.cat(lengths)


def distance_tiles(rows: Tensor, columns: int) -> list[slice]:
    """Return slices of the rows whose products with ``columns`` vectors fit in memory.

    On a CPU they also fit in the cache.
    """
    bytes_per_row = columns * rows.element_size() * 3
    at_most = None
    if not rows.is_cuda:
        at_most = _CPU_TILE_ROWS
    return list(tiles(len(rows), bytes_per_row, rows.device, at_most=at_most))


def _refine_euclidean(
    squared: Tensor,
    left: Tensor,
    right: Tensor,
) -> Tensor:
    """Compute squared distances (A, B) of rows (A, D) and (B, D) that cancelled again, in place."""

    def exact(i: Tensor, j: Tensor) -> Tensor:
        differences = left[i] - right[j]
        return differences.square_().sum(dim=1)

    def norms(i: Tensor, j: Tensor) -> Tensor:
        left_squares = left[i].square().sum(dim=1)
        return left_squares + right[j].square().sum(dim=1)

    return refine_cancelled(squared, exact, norms)


def _zero_negligible(distance: Tensor) -> Tensor:
    """Set distances of copies to 0, in place."""
    return distance.masked_fill_(distance < NEGLIGIBLE, 0)
