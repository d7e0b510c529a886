"""Directions from a Laplace posterior have the covariance that its curvature says, written out row
by row.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
import torch
from torch import Tensor

from ldm_cases import make_case
from research.paper.laplace import laplace_directions, laplace_factors
from teeter.kernels.directions import ray_directions
from teeter.kernels.ldm import ldm_by_rays


def precision(features: np.ndarray, logits: np.ndarray, *, bias: bool, prior: float) -> np.ndarray:
    """(B + t I) (x) (A + t I), summed one labelled row after the other."""
    width, classes = features.shape[1] + bias, logits.shape[1]
    of_rows, of_classes = np.zeros((width, width)), np.zeros((classes, classes))
    for z, line in zip(features, logits, strict=True):
        row = np.append(z, 1.0) if bias else z
        p = np.exp(line) / np.exp(line).sum()
        of_rows += np.outer(row, row)
        of_classes += (np.diag(p) - np.outer(p, p)) / len(logits)
    root = prior**0.5
    return np.kron(of_classes + root * np.eye(classes), of_rows + root * np.eye(width))


@pytest.mark.parametrize("bias", [True, False])
def test_directions_have_the_posterior_s_covariance(bias: bool) -> None:
    case = make_case(40, 4, 3)
    shift = case.bias if bias else None
    logits = case.features @ case.weight.T + (case.bias if bias else 0)
    factors = laplace_factors(case.features, logits, bias=bias, prior=0.5)
    expected = np.linalg.inv(
        precision(case.features.double().numpy(), logits.double().numpy(), bias=bias, prior=0.5)
    )

    def join_blocks(blocks: Iterable[tuple[Tensor, Tensor | None]]) -> np.ndarray:
        parts = []
        for move, shift_noise in blocks:
            if shift_noise is None:
                parts.append(move)
            else:
                parts.append(torch.cat([move, shift_noise[:, :, None]], 2))

        return torch.cat(parts).flatten(1).double().numpy()

    count = len(expected) + 3
    noise = join_blocks(ray_directions(7, count, case.weight, shift))
    drawn = join_blocks(laplace_directions(7, count, case.weight, shift, factors=factors))
    change = np.linalg.lstsq(noise, drawn, rcond=None)[
        0
    ].T  # the map from one noise to the other is linear
    np.testing.assert_allclose(noise @ change.T, drawn, atol=1e-5)
    np.testing.assert_allclose(change @ change.T, expected, atol=1e-5)


def test_a_strong_prior_is_isotropic_noise() -> None:
    case = make_case(40, 4, 3)
    logits = case.features @ case.weight.T + case.bias
    factors = laplace_factors(case.features, logits, bias=True, prior=1e16)
    alike = [
        ldm_by_rays(case.features, *case.head(), directions=directions)
        for directions in (
            ray_directions(1, 32, *case.head()),
            laplace_directions(1, 32, *case.head(), factors=factors),
        )
    ]
    assert torch.equal(*alike)
