"""Directions from a Laplace posterior of the last layer, in the place of isotropic noise.

Around the trained head ``(W, b)`` the loss is curved like ``sum of (diag(p) - p p') (x) (z z')`` over the labelled
rows. Its Kronecker factors, ``A = sum of z z'`` and ``B = mean of diag(p) - p p'``, give the posterior's covariance
``(B + t I)^-1 (x) (A + t I)^-1`` with ``t`` the root of the prior's precision.

Reference: Ritter et al., A Scalable Laplace Approximation for Neural Networks, ICLR 2018.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import sqrt

import torch
from torch import Tensor

from teeter.arrays import full_precision_matmul
from teeter.kernels.ldm import ray_directions

__all__ = ["laplace_directions", "laplace_factors"]


def laplace_factors(
    features: Tensor, logits: Tensor, *, bias: bool, prior: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Return the Cholesky factors, lower, of the classes' and the features' side of the posterior's precision.

    features (L, D), logits (L, C) of the labelled rows -> (C, C), (D, D) or (D + 1, D + 1) with a bias; float64.
    """
    rows, p = features.double(), logits.double().softmax(dim=1)
    if bias:
        rows = torch.cat([rows, rows.new_ones(len(rows), 1)], dim=1)
    of_classes = torch.diag(p.mean(dim=0)) - p.T @ p / len(p)
    sides = (of_classes, rows.T @ rows)
    classes, width = (
        torch.linalg.cholesky(
            side + sqrt(prior) * torch.eye(len(side), dtype=side.dtype, device=side.device)
        )
        for side in sides
    )
    return classes, width


def laplace_directions(
    seed: int, count: int, weight: Tensor, bias: Tensor | None, *, factors: tuple[Tensor, Tensor]
) -> Iterator[tuple[Tensor, Tensor | None]]:
    """Yield ``count`` directions of the posterior with these factors, from the same draws as ``ray_directions``.

    weight (C, D), bias (C,) or None -> blocks of E (B, C, D) and e (B, C).
    """
    classes, width = factors
    for moves, shifts in ray_directions(seed, count, weight, bias):
        noise = (
            moves if shifts is None else torch.cat([moves, shifts[:, :, None]], dim=2)
        ).double()
        with full_precision_matmul():
            turned = torch.linalg.solve_triangular(classes.T, noise, upper=True)
            turned = torch.linalg.solve_triangular(width, turned, upper=False, left=False).to(
                weight.dtype
            )
        yield (
            (turned, None)
            if shifts is None
            else (turned[:, :, :-1].contiguous(), turned[:, :, -1].contiguous())
        )
