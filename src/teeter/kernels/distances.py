"""Distances between the rows of a pool, computed on demand: never all pairs at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from teeter.arrays import full_precision_matmul, pad_to_tile, tiles

__all__ = [
    "NEGLIGIBLE",
    "Cosine",
    "Distance",
    "Euclidean",
    "distance_tiles",
    "refined",
    "squared_distances",
    "squared_lengths",
]

NEGLIGIBLE = 1e-5
"""Distances under this count as 0: copies are copies, whatever the rounding."""

_PAIRS_AT_ONCE = 1 << 16


class Distance(Protocol):
    """A distance over N rows."""

    def between(self, rows: Tensor, others: Tensor) -> Tensor:
        """Return all distances: positions (A,) and (B,) -> (A, B)."""

    def nearest(self, picks: Tensor) -> Tensor:
        """Return every row's distance to the nearest pick: positions (B,) -> (N,)."""


class Cosine:
    """One minus the cosine of two rows' angle; a zero row is at 1 from every other and at 0 from another zero row."""

    def __init__(self, features: Tensor) -> None:
        """features (N, D)."""
        low, high = torch.aminmax(features, dim=1, keepdim=True)
        peaks = torch.maximum(-low, high)
        zero = peaks == 0
        scaled = features / peaks.masked_fill(zero, 1)  # so that no square overflows or vanishes
        self.units = scaled.div_(
            torch.linalg.vector_norm(scaled, dim=1, keepdim=True).masked_fill_(zero, 1)
        )
        if bool(zero.any()):  # zero rows share an axis of their own
            self.units = torch.cat([self.units, zero.to(features.dtype)], dim=1)

    def between(self, rows: Tensor, others: Tensor) -> Tensor:
        """Return all distances: positions (A,) and (B,) -> (A, B)."""
        with full_precision_matmul():
            return _without_negligible(1 - self.units[rows] @ self.units[others].T)

    def nearest(self, picks: Tensor) -> Tensor:
        """Return every row's distance to the nearest pick: positions (B,) -> (N,)."""
        centres = self.units[picks]
        nearest = self.units.new_empty(len(self.units))
        for where in distance_tiles(self.units, len(picks)):
            with full_precision_matmul():
                cosines = centres @ pad_to_tile(self.units[where]).T
            nearest[where] = 1 - cosines.amax(dim=0)[: where.stop - where.start]
        return _without_negligible(nearest)


class Euclidean:
    """The Euclidean distance; under 1e-5 of the two rows' norms it counts as 0.

    Squared distances come from products, ``|a|^2 + |b|^2 - 2 a.b``, after centring; where these cancel, from the
    coordinates' differences.
    """

    def __init__(self, features: Tensor) -> None:
        """features (N, D)."""
        self.features = features - features.mean(dim=0)
        self.squares = squared_lengths(self.features)

    def between(self, rows: Tensor, others: Tensor) -> Tensor:
        """Return all distances: positions (A,) and (B,) -> (A, B)."""
        left, right = self.features[rows], self.features[others]
        with full_precision_matmul():
            products = left @ right.T
        squared = squared_distances(
            self.squares[rows][:, None], self.squares[others][None], products
        )
        return self._refined(squared, left, right).sqrt_()

    def nearest(self, picks: Tensor) -> Tensor:
        """Return every row's distance to the nearest pick: positions (B,) -> (N,)."""
        centres, own = self.features[picks], self.squares[picks][:, None]
        nearest = self.features.new_empty(len(self.features))
        for where in distance_tiles(self.features, len(picks)):
            with full_precision_matmul():
                products = (centres @ pad_to_tile(self.features[where]).T)[
                    :, : where.stop - where.start
                ]
            squared = squared_distances(own, self.squares[where][None], products)
            nearest[where] = self._refined(squared, centres, self.features[where]).amin(dim=0)
        return nearest.sqrt_()

    def _refined(self, squared: Tensor, left: Tensor, right: Tensor) -> Tensor:
        return refined(
            squared,
            lambda i, j: (left[i] - right[j]).square_().sum(dim=1),
            self._norms(left, right),
        )

    @staticmethod
    def _norms(left: Tensor, right: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
        return lambda i, j: left[i].square().sum(dim=1) + right[j].square().sum(dim=1)


def squared_distances(left: Tensor, right: Tensor, products: Tensor) -> Tensor:
    """Return ``|a|^2 + |b|^2 - 2 a.b``, and 0 where that is within rounding of copies.

    left (A, 1) and right (1, B) squared norms, products (A, B).
    """
    norms = left + right
    squared = norms - 2 * products
    resolution = max(NEGLIGIBLE**2, 16 * torch.finfo(products.dtype).eps)
    return squared.masked_fill_(squared <= resolution * norms, 0)


def refined(
    squared: Tensor,
    exactly: Callable[[Tensor, Tensor], Tensor],
    norms: Callable[[Tensor, Tensor], Tensor],
) -> Tensor:
    """Return squared distances (A, B) with those that rounded to 0 computed again, in place.

    ``exactly`` and ``norms`` tell the squared distance and the sum of squared norms of pairs: positions (P,), (P,).
    """
    for pairs in (squared == 0).nonzero().split(_PAIRS_AT_ONCE):
        i, j = pairs.T
        found = exactly(i, j)
        squared[i, j] = found.masked_fill_(found < NEGLIGIBLE**2 * norms(i, j), 0)
    return squared


def squared_lengths(rows: Tensor) -> Tensor:
    """Return the squared lengths of rows, with no copy of them all in between: (N, D) -> (N,)."""
    return torch.cat([some.square().sum(dim=1) for some in rows.split(1024)])


def distance_tiles(rows: Tensor, columns: int) -> list[slice]:
    """Return slices of ``rows`` such that products with ``columns`` picks fit in memory, and in the cache on a CPU."""
    return list(
        tiles(
            len(rows),
            columns * rows.element_size() * 3,
            rows.device,
            at_most=None if rows.is_cuda else 4096,
        )
    )


def _without_negligible(distance: Tensor) -> Tensor:
    return distance.masked_fill_(distance < NEGLIGIBLE, 0)
