"""Mixing and dropout by their definitions, and central rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from reference import perturbation as literal
from teeter.base.arrays import working_memory
from teeter.base.seeds import stream, uniform
from teeter.kernels.distances import Cosine
from teeter.kernels.kmeans import k_means
from teeter.kernels.perturbation import central_rows, dropout_disagreement, mixing_needed


def draw(name: str, *shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=stream(seed, name), dtype=torch.float64)


@pytest.mark.checks("alfa-mix", against="mixtures with every anchor, one row at a time")
@given(
    rows=st.integers(1, 8),
    width=st.integers(1, 5),
    classes=st.integers(2, 4),
    seed=st.integers(0, 10**6),
)
def test_mixing_by_its_formula(rows: int, width: int, classes: int, seed: int) -> None:
    features = draw("features", rows, width, seed=seed)
    weight = draw("weight", classes, width, seed=seed)
    bias = draw("bias", classes, seed=seed)
    anchors = draw("anchors", 3, width, seed=seed)
    needed = mixing_needed(features, weight, bias, anchors)

    for row, threshold in zip(features.numpy(), needed.tolist(), strict=True):
        for eps in (0.5 * threshold, 2 * threshold, 0.1, 1.0):
            if not np.isfinite(eps) or abs(eps - threshold) < 1e-9:
                continue
            changes = [
                literal.changes_by_mixing(row, anchor, weight.numpy(), bias.numpy(), eps)
                for anchor in anchors.numpy()
            ]
            assert any(changes) == (eps > threshold)


@pytest.mark.checks("dropquery", against="predictions with each mask, one row at a time")
@pytest.mark.parametrize("rate", [0.25, 0.75])
def test_dropout_by_its_definition(rate: float) -> None:
    features = draw("features", 30, 6, seed=0)
    weight = draw("weight", 4, 6, seed=0)
    bias = draw("bias", 4, seed=0)
    counts = dropout_disagreement(
        features, weight, bias, rate=rate, passes=5, generator=stream(1, "masks")
    )

    generator = stream(1, "masks")
    masks = [
        (uniform((30, 6), generator, torch.device("cpu")) >= rate).double().numpy()
        for _ in range(5)
    ]
    for row in range(30):
        expected = literal.dropout_changes(
            features[row].numpy(),
            [mask[row] for mask in masks],
            weight.numpy(),
            bias.numpy(),
            rate,
        )
        assert counts[row] == expected
    assert 0 < counts.sum() < 150


@pytest.mark.checks("alfa-mix", "dropquery", against="the row nearest the mean of each cluster")
def test_central_rows_are_nearest_to_their_centres() -> None:
    features = draw("features", 200, 5, seed=0)
    picks = central_rows(features, 7, generator=stream(0, "k-means"))
    units = Cosine(features).units
    clusters, _, _ = k_means(units, 7, generator=stream(0, "k-means"))
    expected = literal.nearest_to_centres(units.numpy(), clusters.numpy(), 7)
    assert set(picks.tolist()) == expected
    sizes = torch.bincount(clusters)[clusters[picks]]
    assert sizes.tolist() == sorted(sizes.tolist(), reverse=True)


def test_central_rows_are_different_even_among_copies() -> None:
    copies = draw("features", 3, 4, seed=0).repeat(5, 1)
    for n in (1, 3, 8, 15):
        assert len(set(central_rows(copies, n, generator=stream(n, "k")).tolist())) == n


@pytest.mark.parametrize("size", [1, 1_000_000])
def test_the_working_memory_changes_nothing(size: int) -> None:
    features = draw("features", 500, 6, seed=0)
    weight = draw("weight", 4, 6, seed=0)
    anchors = draw("anchors", 4, 6, seed=0)
    expected = mixing_needed(features, weight, None, anchors)
    with working_memory(size):
        assert torch.equal(mixing_needed(features, weight, None, anchors), expected)
