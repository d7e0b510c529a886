"""BADGE: k-means++ on gradient embeddings that are never built.

The gradient of the loss with respect to the last layer, if the predicted class were the true one,
is the outer product of the error ``a = p - onehot(argmax p)`` and the features ``z``. If a row may
have several labels, the loss is the sum of a binary one per label, and ``a = p - [p > 1/2]``. The
gradient has C D entries per row. A squared distance between two of them needs only two inner
products:

    |a|^2 |z|^2 + |a'|^2 |z'|^2 - 2 (a.a') (z.z')

Reference: Ash et al., Deep Batch Active Learning by Diverse, Uncertain Gradient Lower Bounds,
ICLR 2020.
"""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from teeter.base.arrays import full_precision_matmul, pad_to_tile
from teeter.kernels.distances import distance_tiles, refine_cancelled, squared_distances
from teeter.kernels.seeding import seed_rows

__all__ = [
    "GradientDistance",
    "gradient_errors",
    "seed_gradients",
]


def gradient_errors(logits: Tensor, *, several: bool = False) -> Tensor:
    """Return the errors ``p - onehot(argmax p)``, of several labels ``p - [p > 1/2]``: (N, C)."""
    if several:
        return torch.where(logits > 0, -(-logits).sigmoid(), logits.sigmoid())

    p = logits.softmax(dim=1)
    predicted = p.argmax(dim=1, keepdim=True)  # (N, 1)

    # Minus the one-hot vector, without building it.
    minus_one = p.new_full((), -1.0).expand_as(predicted)
    return p.scatter_add(1, predicted, minus_one)


class GradientDistance:
    """The Euclidean distance between gradient embeddings, kept in factored form.

    Args:
        errors: (N, C), see ``gradient_errors``.
        features: (N, D).
    """

    def __init__(self, errors: Tensor, features: Tensor) -> None:
        self.errors = errors
        self.features = features

        # (N,) squared norms of the embeddings: |a z'|^2 = |a|^2 |z|^2.
        error_squares = errors.square().sum(dim=1)
        self.squares = error_squares * features.square().sum(dim=1)

    def between(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Return the distances of all pairs: positions (A,) and (B,) -> (A, B)."""
        # Inner products of embeddings: (a.a') (z.z').
        with full_precision_matmul():
            products = self.features[rows] @ self.features[columns].T
            products *= self.errors[rows] @ self.errors[columns].T

        squared = squared_distances(
            self.squares[rows][:, None],
            self.squares[columns][None],
            products,
        )
        return self._refine(squared, rows, columns).sqrt_()

    def nearest(self, picks: Tensor) -> Tensor:
        """Return every row's distance to the nearest pick: positions (B,) -> (N,)."""
        pick_features = self.features[picks]  # (B, D)
        pick_errors = self.errors[picks]  # (B, C)
        pick_squares = self.squares[picks][:, None]  # (B, 1)
        nearest = self.squares.new_empty(len(self.squares))  # (N,) squared, until the end
        all_rows = torch.arange(len(nearest), device=nearest.device)

        for tile in distance_tiles(self.features, 2 * len(picks)):
            with full_precision_matmul():
                products = pick_features @ pad_to_tile(self.features[tile]).T
                products *= pick_errors @ pad_to_tile(self.errors[tile]).T

            size = tile.stop - tile.start
            products = products[:, :size]  # without the padding
            squared = squared_distances(pick_squares, self.squares[tile][None], products)
            squared = self._refine(squared, picks, all_rows[tile])
            nearest[tile] = squared.amin(dim=0)

        return nearest.sqrt_()

    def _refine(
        self,
        squared: Tensor,
        rows: Tensor,
        columns: Tensor,
    ) -> Tensor:
        """Compute distances that cancelled again, from ``a z - b y = (a - b) z + b (z - y)``."""

        def exact(i: Tensor, j: Tensor) -> Tensor:
            a = self.errors[rows[i]]
            z = self.features[rows[i]]
            b = self.errors[columns[j]]
            y = self.features[columns[j]]
            error_change = a - b
            feature_change = z - y

            # |(a - b) z'|^2 + |b (z - y)'|^2 + 2 ((a - b).b) (z.(z - y))
            error_part = error_change.square().sum(dim=1) * z.square().sum(dim=1)
            feature_part = b.square().sum(dim=1) * feature_change.square().sum(dim=1)
            error_product = (error_change * b).sum(dim=1)
            feature_product = (z * feature_change).sum(dim=1)
            cross_part = 2 * error_product * feature_product
            return error_part + feature_part + cross_part

        def norms(i: Tensor, j: Tensor) -> Tensor:
            left = self.squares[rows[i]]
            right = self.squares[columns[j]]
            return left + right

        return refine_cancelled(squared, exact, norms)


def seed_gradients(
    logits: Tensor,
    features: Tensor,
    n: int,
    *,
    generator: Generator,
    several: bool = False,
) -> Tensor:
    """Pick n rows by BADGE: k-means++ on the gradient embeddings.

    The first pick is the row with the largest gradient. Each next one is drawn with probability
    proportional to its squared distance to the nearest pick.

    Args:
        logits: (N, C).
        features: (N, D).
        n: number of picks, 1 to N.
        generator: source of randomness.
        several: whether a row may have several labels.

    Returns:
        (n,) int64 positions in the order of picking.
    """
    distance = GradientDistance(gradient_errors(logits, several=several), features)
    descending_norms = (-distance.squares).argsort(stable=True)
    largest_gradient = int(descending_norms[0])

    # Plain k-means++: all rows have weight 1.
    log_weights = features.new_zeros(len(features), dtype=torch.float64)
    return seed_rows(
        distance,
        n,
        first=largest_gradient,
        log_weights=log_weights,
        preference=-distance.squares,
        generator=generator,
    )
