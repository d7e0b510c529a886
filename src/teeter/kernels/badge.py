"""BADGE: k-means++ on gradient embeddings that are never built.

The gradient of the loss in the last layer, if the predicted class were the true one, is the outer product of the error
``a = p - onehot(argmax p)`` and the features ``z``. A squared distance between two of them needs only two products:
``|a|^2 |z|^2 + |a'|^2 |z'|^2 - 2 (a.a') (z.z')``.

Reference: Ash et al., Deep Batch Active Learning by Diverse, Uncertain Gradient Lower Bounds, ICLR 2020.
"""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from teeter.arrays import full_precision_matmul, pad_to_tile
from teeter.kernels.distances import distance_tiles, refined, squared_distances
from teeter.kernels.seeding import seed_rows

__all__ = ["GradientDistance", "gradient_errors", "seed_gradients"]


def gradient_errors(logits: Tensor) -> Tensor:
    """Return ``p - onehot(argmax p)``: (N, C) -> (N, C)."""
    errors = logits.softmax(dim=1)
    predicted = errors.argmax(dim=1, keepdim=True)
    return errors.scatter_add(1, predicted, errors.new_full((), -1.0).expand_as(predicted))


class GradientDistance:
    """The Euclidean distance between gradient embeddings, kept as errors (N, C) and features (N, D)."""

    def __init__(self, errors: Tensor, features: Tensor) -> None:
        self.errors, self.features = errors, features
        self.squares = errors.square().sum(dim=1) * self.features.square().sum(dim=1)

    def between(self, rows: Tensor, others: Tensor) -> Tensor:
        """Return all distances: positions (A,) and (B,) -> (A, B)."""
        with full_precision_matmul():
            products = self.features[rows] @ self.features[others].T
            products *= self.errors[rows] @ self.errors[others].T
        squared = squared_distances(
            self.squares[rows][:, None], self.squares[others][None], products
        )
        return self._refined(squared, rows, others).sqrt_()

    def nearest(self, picks: Tensor) -> Tensor:
        """Return every row's distance to the nearest pick: positions (B,) -> (N,)."""
        centres, errors, own = (
            self.features[picks],
            self.errors[picks],
            self.squares[picks][:, None],
        )
        nearest = self.squares.new_empty(len(self.squares))
        every = torch.arange(len(nearest), device=nearest.device)
        for where in distance_tiles(self.features, 2 * len(picks)):
            with full_precision_matmul():
                products = centres @ pad_to_tile(self.features[where]).T
                products *= errors @ pad_to_tile(self.errors[where]).T
            squared = squared_distances(
                own, self.squares[where][None], products[:, : where.stop - where.start]
            )
            nearest[where] = self._refined(squared, picks, every[where]).amin(dim=0)
        return nearest.sqrt_()

    def _refined(self, squared: Tensor, rows: Tensor, others: Tensor) -> Tensor:
        """Compute again what cancelled, from ``a z - a' z' = (a - a') z + a' (z - z')``."""

        def exactly(i: Tensor, j: Tensor) -> Tensor:
            a, z, b, y = (
                self.errors[rows[i]],
                self.features[rows[i]],
                self.errors[others[j]],
                self.features[others[j]],
            )
            error, move = a - b, z - y
            squares = error.square().sum(dim=1) * z.square().sum(dim=1) + b.square().sum(
                dim=1
            ) * move.square().sum(dim=1)
            return squares + 2 * (error * b).sum(dim=1) * (z * move).sum(dim=1)

        return refined(
            squared, exactly, lambda i, j: self.squares[rows[i]] + self.squares[others[j]]
        )


def seed_gradients(logits: Tensor, features: Tensor, n: int, *, generator: Generator) -> Tensor:
    """Return n rows: the largest gradient, then each next by its squared distance to those picked.

    logits (N, C), features (N, D) -> (n,).
    """
    distance = GradientDistance(gradient_errors(logits), features)
    even = torch.zeros(len(features), dtype=torch.float64, device=features.device)
    first = int((-distance.squares).argsort(stable=True)[0])
    return seed_rows(
        distance,
        n,
        first=first,
        log_weights=even,
        preference=-distance.squares,
        generator=generator,
    )
