"""Directions from a Laplace posterior of the last layer, instead of isotropic noise.

Around the trained head ``(W, b)`` the loss is curved like ``sum of (diag(p) - p p') (x) (z z')``
over the labelled rows. Its Kronecker factors are ``A = sum of z z'`` and
``B = mean of diag(p) - p p'``. They give the posterior's covariance
``(B + t I)^-1 (x) (A + t I)^-1``, with ``t`` the square root of the prior's precision.

Reference: Ritter et al., A Scalable Laplace Approximation for Neural Networks, ICLR 2018.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import sqrt

import torch
from torch import Tensor

from teeter.base.arrays import full_precision_matmul
from teeter.kernels.directions import ray_directions

__all__ = ["laplace_directions", "laplace_factors"]


def laplace_factors(
    features: Tensor,
    logits: Tensor,
    *,
    bias: bool,
    prior: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """Return the Cholesky factors of the two sides of the posterior's precision.

    Args:
        features: (L, D) of the labelled rows.
        logits: (L, C) of the labelled rows.
        bias: whether the head has a bias; it is one more feature that is always 1.
        prior: precision of the Gaussian prior on the head.

    Returns:
        Two lower triangular matrices in float64: (C, C) for the classes, and (D, D) for the
        features, or (D + 1, D + 1) with a bias.
    """
    rows = features.double()
    p = logits.double().softmax(dim=1)
    if bias:
        rows = torch.cat([rows, rows.new_ones(len(rows), 1)], dim=1)

    # B (C, C), the mean over the rows, and A (D, D), the sum.
    class_side = torch.diag(p.mean(dim=0)) - p.T @ p / len(p)
    feature_side = rows.T @ rows
    class_factor = _damped_cholesky(class_side, prior)
    feature_factor = _damped_cholesky(feature_side, prior)
    return class_factor, feature_factor


def laplace_directions(
    seed: int,
    count: int,
    weight: Tensor,
    bias: Tensor | None,
    *,
    factors: tuple[Tensor, Tensor],
) -> Iterator[tuple[Tensor, Tensor | None]]:
    """Yield directions of the posterior, from the same random draws as ``ray_directions``.

    Args:
        seed: seed of the random streams.
        count: number of directions.
        weight: (C, D).
        bias: (C,) or None.
        factors: what ``laplace_factors`` returned.

    Yields:
        Blocks of weight noise (B, C, D) and bias noise (B, C), or None without a bias.
    """
    class_factor, feature_factor = factors

    for weight_noise, bias_noise in ray_directions(seed, count, weight, bias):
        # (B, C, D), or (B, C, D + 1): the bias is the weight of a feature that is always 1.
        noise = weight_noise
        if bias_noise is not None:
            noise = torch.cat([weight_noise, bias_noise[:, :, None]], dim=2)
        noise = noise.double()

        # With Cholesky factors L of B and K of A, L'^-1 noise K^-1 has the covariance
        # B^-1 (x) A^-1 if the noise is white.
        with full_precision_matmul():
            noise = torch.linalg.solve_triangular(class_factor.T, noise, upper=True)
            noise = torch.linalg.solve_triangular(feature_factor, noise, upper=False, left=False)
        noise = noise.to(weight.dtype)

        if bias_noise is None:
            yield noise, None
        else:
            weight_part = noise[:, :, :-1].contiguous()
            bias_part = noise[:, :, -1].contiguous()
            yield weight_part, bias_part


def _damped_cholesky(matrix: Tensor, prior: float) -> Tensor:
    """Return the lower Cholesky factor of ``matrix + t I``, positive definite for any prior > 0."""
    identity = torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device)
    damped = matrix + sqrt(prior) * identity
    factor: Tensor = torch.linalg.cholesky(damped)
    return factor
