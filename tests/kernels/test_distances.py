"""Distances: the formulas, rows far from the origin, zero rows, and rows of any size."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

import teeter
from reference import seeding as literal
from teeter import Outputs
from teeter.base.seeds import stream
from teeter.kernels.distances import Cosine, Euclidean


def draw(rows: int, width: int, seed: int) -> Tensor:
    return torch.randn(rows, width, generator=stream(seed, "features"), dtype=torch.float64)


def test_zero_rows_are_at_distance_1_from_others_and_0_from_each_other() -> None:
    features = torch.tensor([[0.0, 0], [1, 1], [0, 0], [2, 2], [-1, 1]])
    distances = Cosine(features).between(torch.arange(5), torch.arange(5))
    expected = [
        [literal.cosine_distance(a, b) for b in features.double().numpy()]
        for a in features.double().numpy()
    ]
    np.testing.assert_allclose(distances, expected, atol=1e-6)
    assert distances[0].tolist() == [0, 1, 0, 1, 1]


@pytest.mark.checks("seeding-cosine", "seeding-l2", against="distances computed pair by pair")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_distances_are_the_formulas(dtype: torch.dtype) -> None:
    features = draw(300, 17, 5)
    rows = torch.arange(0, 300, 7)
    other_rows = torch.arange(0, 300, 11)
    literal_cosine = [
        [literal.cosine_distance(a, b) for b in features[other_rows].numpy()]
        for a in features[rows].numpy()
    ]

    tolerance = 1e-5 if dtype == torch.float32 else 1e-12
    cosine, euclidean = Cosine(features.to(dtype)), Euclidean(features.to(dtype) + 3)
    np.testing.assert_allclose(cosine.between(rows, other_rows), literal_cosine, atol=tolerance)

    direct = torch.cdist(
        features[rows], features[other_rows], compute_mode="donot_use_mm_for_euclid_dist"
    )
    np.testing.assert_allclose(euclidean.between(rows, other_rows), direct, atol=100 * tolerance)

    for distance in (cosine, euclidean):
        everything = distance.between(torch.arange(300), other_rows).amin(dim=1)
        np.testing.assert_allclose(distance.nearest(other_rows), everything, atol=100 * tolerance)


def test_a_far_away_pool_is_measured_from_its_centre() -> None:
    features = (draw(100, 8, 0) + 1000).float()
    distances = Euclidean(features).between(torch.arange(100), torch.arange(100))
    direct = torch.cdist(
        features.double(), features.double(), compute_mode="donot_use_mm_for_euclid_dist"
    )
    np.testing.assert_allclose(distances, direct, atol=0.02)


def test_rows_far_from_the_origin_are_not_taken_for_copies() -> None:
    features = np.random.default_rng(0).normal(size=(1000, 16)).astype(np.float32)
    features[500:] += 4000
    picks = teeter.select("seeding-l2", Outputs(features=features), 12)
    assert (np.sort(picks)[:6] != np.arange(6)).any()

    points = Euclidean(torch.from_numpy(features[:300]))
    direct = torch.cdist(
        *[torch.from_numpy(features[:300]).double()] * 2,
        compute_mode="donot_use_mm_for_euclid_dist",
    )
    np.testing.assert_allclose(
        points.between(torch.arange(300), torch.arange(300)), direct, atol=0.01
    )


def test_one_outlier_does_not_make_the_others_copies() -> None:
    features = np.random.default_rng(0).normal(size=(200, 16)).astype(np.float32)
    features[77] *= 200_000
    picks = teeter.select("seeding-l2", Outputs(features=features), 12)
    assert sorted(picks)[1:6] != [0, 1, 2, 3, 4]
    nearest = Euclidean(torch.from_numpy(features)).nearest(torch.tensor([5]))
    assert int((nearest == 0).sum()) == 1


def test_tiny_and_huge_rows_keep_their_angles() -> None:
    plain = torch.from_numpy(np.random.default_rng(0).normal(size=(20, 5)).astype(np.float32))
    scaled = plain * torch.logspace(-25, 25, 20)[:, None]
    rows = torch.arange(20)
    np.testing.assert_allclose(
        Cosine(scaled).between(rows, rows), Cosine(plain).between(rows, rows), atol=1e-5
    )
