"""k-means against its definition, and against scikit-learn's."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.cluster import KMeans
from torch import Generator, Tensor

from reference import clustering as literal
from teeter.base.arrays import working_memory
from teeter.base.seeds import stream
from teeter.kernels import kmeans
from teeter.kernels.kmeans import assign_to_nearest, k_means


def greedy_start(features: Tensor, clusters: int, *, generator: Generator) -> Tensor:
    return kmeans._greedy_start(kmeans._centre_points(features), clusters, generator)


def lloyd(features: Tensor, centres: Tensor) -> tuple[Tensor, Tensor, float]:
    offset = features.mean(dim=0)
    return kmeans._lloyd(kmeans._centre_points(features), centres - offset, offset)


def draw(rows: int, width: int, seed: int, name: str = "features") -> Tensor:
    return torch.randn(rows, width, generator=stream(seed, name), dtype=torch.float64)


def blobs(rows: int, width: int, classes: int, seed: int) -> Tensor:
    return 3 * draw(classes, width, seed, "centres")[torch.arange(rows) % classes] + draw(
        rows, width, seed
    )


@pytest.mark.checks("typiclust", "probcover", against="k-means by its definition, in float64")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("seed", range(4))
def test_k_means_is_lloyd_s(dtype: torch.dtype, seed: int) -> None:
    features = blobs(60, 3, 4, seed).add(5).to(dtype)
    centres = features[:: 60 // 7][:7]
    labels, found_centres, inertia = lloyd(features, centres)
    expected, means = literal.lloyd(features.double().numpy(), centres.double().numpy())
    assert labels.tolist() == expected
    np.testing.assert_allclose(found_centres, means, rtol=1e-5 if dtype == torch.float32 else 1e-12)
    assert inertia == pytest.approx(
        literal.inertia(features.double().numpy(), means, expected), rel=1e-5
    )


def test_empty_clusters_get_the_farthest_rows() -> None:
    features = torch.cat(
        [blobs(30, 2, 3, 0), torch.tensor([[40.0, 40], [-50, 50]], dtype=torch.float64)]
    )
    centres = torch.cat([features[:2], torch.full((3, 2), 1000.0, dtype=torch.float64)])
    labels, found_centres, _ = lloyd(features, centres)
    expected, means = literal.lloyd(features.numpy(), centres.numpy())
    assert labels.tolist() == expected
    assert len(set(expected)) == 5
    np.testing.assert_allclose(found_centres, means)


def test_a_cluster_of_one_row_keeps_it() -> None:
    """The farthest row of all is alone in its cluster, so the empty one gets the next."""
    features = torch.tensor([[0.0], [0.1], [0.3], [100.0]], dtype=torch.float64)
    centres = torch.tensor([[0.1], [90.0], [1000.0]], dtype=torch.float64)
    assert (
        lloyd(features, centres)[0].tolist()
        == [0, 0, 2, 1]
        == literal.lloyd(features.numpy(), centres.numpy())[0]
    )


def test_fewer_different_rows_than_clusters_leave_clusters_empty() -> None:
    features = draw(3, 2, 0).repeat(4, 1)
    labels, _, inertia = k_means(features, 8, generator=stream(0, "start"))
    assert len(set(labels.tolist())) == 3
    assert labels.view(4, 3).unique(dim=0).shape[0] == 1, "copies share a cluster"
    assert inertia == pytest.approx(0, abs=1e-20)


def test_one_row_and_as_many_clusters_as_rows() -> None:
    assert k_means(torch.ones(1, 2), 1, generator=stream(0, "start"))[0].tolist() == [0]
    labels, centres, inertia = k_means(draw(9, 2, 0), 9, generator=stream(0, "start"))
    assert sorted(labels.tolist()) == list(range(9))
    np.testing.assert_allclose(centres[labels], draw(9, 2, 0))
    assert inertia == pytest.approx(0, abs=1e-20)


@pytest.mark.checks(
    "typiclust",
    "probcover",
    against="the exact distribution of greedy k-means++ (chi-squared test)",
)
@pytest.mark.parametrize("draws", [250, pytest.param(2000, marks=pytest.mark.slow)])
def test_the_start_follows_the_law_of_greedy_k_means(draws: int) -> None:
    features = draw(6, 2, 2)
    law = literal.start_law(features.numpy(), 3)
    assert sum(law.values()) == pytest.approx(1)

    counts = Counter(
        tuple(greedy_start(features, 3, generator=stream(k, "start")).tolist())
        for k in range(draws)
    )

    assert set(counts) <= set(law)
    common = [sequence for sequence in law if law[sequence] * draws >= 5]
    observed = [counts[sequence] for sequence in common]
    expected = [law[sequence] * draws for sequence in common]
    rest = [draws - sum(observed)], [draws - sum(expected)]
    assert stats.chisquare(observed + rest[0], expected + rest[1]).pvalue > 0.001


@pytest.mark.parametrize("seeds", [5, pytest.param(20, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["noise", "blobs"])
def test_inertia_is_no_worse_than_scikit_learn_s(kind: str, seeds: int) -> None:
    features = draw(1000, 8, 0) if kind == "noise" else blobs(1000, 8, 12, 0)
    ours = [k_means(features, 25, generator=stream(seed, "start"))[2] for seed in range(seeds)]
    theirs = [
        KMeans(25, n_init=1, random_state=seed).fit(features.numpy()).inertia_
        for seed in range(seeds)
    ]
    assert np.mean(ours) <= 1.01 * np.mean(theirs)


def test_from_the_same_start_it_ends_where_scikit_learn_does() -> None:
    features = blobs(500, 5, 9, 1)
    centres = features[:9]
    labels, _, inertia = lloyd(features, centres)
    theirs = KMeans(9, init=centres.numpy(), n_init=1).fit(features.numpy())
    assert inertia == pytest.approx(theirs.inertia_)
    assert labels.tolist() == theirs.labels_.tolist()


def test_working_memory_changes_nothing() -> None:
    features = blobs(5000, 6, 9, 0).float()
    labels, centres, inertia = k_means(features, 30, generator=stream(0, "start"))
    for memory in (1, 100_000):
        with working_memory(memory):
            again = k_means(features, 30, generator=stream(0, "start"))
        assert torch.equal(labels, again[0])
        assert torch.equal(centres, again[1])
        assert inertia == again[2]


def test_the_others_join_the_nearest_mean() -> None:
    features = blobs(300, 3, 4, 0)
    rows = torch.arange(0, 300, 7)
    clusters = rows % 4
    means = torch.stack([features[rows[clusters == k]].mean(dim=0) for k in range(4)])
    expected = torch.cdist(features, means).argmin(dim=1).index_copy_(0, rows, clusters)
    assert torch.equal(assign_to_nearest(features, rows, clusters), expected)


@pytest.mark.gpu
def test_gpu_repeats_itself_in_float32() -> None:
    features = draw(20_000, 64, 0).float().cuda()
    first = k_means(features, 100, generator=stream(0, "start"))
    again = k_means(features, 100, generator=stream(0, "start"))
    assert torch.equal(first[0], again[0])
    assert torch.equal(first[1], again[1])
