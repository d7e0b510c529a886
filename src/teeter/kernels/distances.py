"""Distances between the rows of a pool, computed on demand: never all pairs at once."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from teeter.arrays import exact_products, padded, tiles

__all__ = ["NEGLIGIBLE", "Cosine", "Distance", "Euclidean"]

NEGLIGIBLE = 1e-5
"""Distances under this count as 0: copies are copies, whatever the rounding."""


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
        norms = torch.linalg.vector_norm(features, dim=1, keepdim=True)
        zero = norms == 0
        self.units = features / norms.masked_fill(zero, 1)
        if bool(zero.any()):  # zero rows share an axis of their own
            self.units = torch.cat([self.units, zero.to(features.dtype)], dim=1)

    def between(self, rows: Tensor, others: Tensor) -> Tensor:
        """Return all distances: positions (A,) and (B,) -> (A, B)."""
        with exact_products():
            return _without_negligible(1 - self.units[rows] @ self.units[others].T)

    def nearest(self, picks: Tensor) -> Tensor:
        """Return every row's distance to the nearest pick: positions (B,) -> (N,)."""
        centres = self.units[picks]
        nearest = self.units.new_empty(len(self.units))
        for where in _tiles(self.units, len(picks)):
            with exact_products():
                cosines = centres @ padded(self.units[where]).T
            nearest[where] = 1 - cosines.amax(dim=0)[: where.stop - where.start]
        return _without_negligible(nearest)


class Euclidean:
    """The Euclidean distance; under 1e-5 of the two rows' norms it counts as 0.

    Squared distances come from products, ``|a|^2 + |b|^2 - 2 a.b``, after centring. In float32 they are good to about
    1e-6 of the norms, so there what is below that counts as 0 too.
    """

    def __init__(self, features: Tensor) -> None:
        """features (N, D)."""
        self.features = features - features.mean(dim=0)
        self.squares = self.features.square().sum(dim=1)
        self.resolution = max(NEGLIGIBLE**2, 16 * torch.finfo(features.dtype).eps)

    def between(self, rows: Tensor, others: Tensor) -> Tensor:
        """Return all distances: positions (A,) and (B,) -> (A, B)."""
        with exact_products():
            products = self.features[rows] @ self.features[others].T
        return self._squared(self.squares[rows][:, None], self.squares[others][None], products).sqrt_()

    def nearest(self, picks: Tensor) -> Tensor:
        """Return every row's distance to the nearest pick: positions (B,) -> (N,)."""
        centres, own = self.features[picks], self.squares[picks][:, None]
        nearest = self.features.new_empty(len(self.features))
        for where in _tiles(self.features, len(picks)):
            with exact_products():
                products = (centres @ padded(self.features[where]).T)[:, : where.stop - where.start]
            nearest[where] = self._squared(own, self.squares[where][None], products).amin(dim=0)
        return nearest.sqrt_()

    def _squared(self, left: Tensor, right: Tensor, products: Tensor) -> Tensor:
        norms = left + right
        squared = norms - 2 * products
        return squared.masked_fill_(squared <= self.resolution * norms, 0)


def _tiles(rows: Tensor, columns: int) -> list[slice]:
    return list(
        tiles(len(rows), columns * rows.element_size() * 3, rows.device, at_most=None if rows.is_cuda else 4096)
    )


def _without_negligible(distance: Tensor) -> Tensor:
    return distance.masked_fill_(distance < NEGLIGIBLE, 0)
