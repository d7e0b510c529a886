"""Average linkage, typical rows and turns, each against its definition."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.cluster.hierarchy import fcluster, linkage
from torch import Tensor

from reference import clustering as literal
from teeter.base.arrays import working_memory
from teeter.base.seeds import stream
from teeter.kernels.clustering import average_linkage, round_robin, typical_rows
from teeter.kernels.kmeans import k_means


def draw(rows: int, width: int, seed: int, name: str = "features") -> Tensor:
    return torch.randn(rows, width, generator=stream(seed, name), dtype=torch.float64)


def blobs(rows: int, width: int, classes: int, seed: int) -> Tensor:
    return 3 * draw(classes, width, seed, "centres")[torch.arange(rows) % classes] + draw(
        rows, width, seed
    )


@pytest.mark.checks(
    "typiclust",
    against="picks made one at a time from the cluster with the fewest labels",
)
@given(
    rows=st.integers(1, 40),
    clusters=st.integers(1, 6),
    neighbours=st.integers(1, 25),
    copies=st.integers(1, 2),
    seed=st.integers(0, 10**6),
)
def test_typical_rows_are_the_definition(
    rows: int, clusters: int, neighbours: int, copies: int, seed: int
) -> None:
    features = draw(rows, 3, seed).repeat(copies, 1)
    labels = torch.randint(clusters, (rows,), generator=stream(seed, "labels")).repeat(copies)
    free = torch.rand(len(features), generator=stream(seed, "free")) < 0.7
    free[0] = True
    for n in {1, int(free.sum())}:
        picks = typical_rows(features, labels, free, n, neighbours=neighbours).tolist()
        assert picks == literal.typical_rows(
            features.numpy(), labels.tolist(), free.tolist(), n, neighbours
        )


def test_typical_rows_of_a_large_cluster_do_not_depend_on_memory() -> None:
    features = draw(1000, 4, 0).float()
    free = torch.ones(1000, dtype=torch.bool)
    labels = torch.zeros(1000, dtype=torch.int64)
    expected = typical_rows(features, labels, free, 50, neighbours=20)
    with working_memory(1):
        assert torch.equal(typical_rows(features, labels, free, 50, neighbours=20), expected)


def groups(labels: Tensor) -> set[frozenset[int]]:
    return {
        frozenset(row for row, label in enumerate(labels.tolist()) if label == k)
        for k in set(labels.tolist())
    }


@pytest.mark.checks(
    "cluster-margin",
    "ldm-cluster-margin",
    against="average linkage that recomputes all mean distances after each merge",
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("clusters", [1, 2, 5, 12, 20])
def test_average_linkage_is_the_definition(dtype: torch.dtype, clusters: int) -> None:
    features = draw(20, 3, 0).to(dtype)
    labels = average_linkage(features, clusters, sample=5000, generator=stream(0, "sample"))
    assert groups(labels) == {
        frozenset(group) for group in literal.average_linkage(features.double().numpy(), clusters)
    }
    assert sorted(set(labels.tolist())) == list(range(clusters))


def test_average_linkage_of_many_tiles_is_scipy_s() -> None:
    features = draw(1100, 5, 0)
    tree = linkage(features.numpy(), method="average")
    expected = torch.from_numpy(fcluster(tree, 110, criterion="maxclust"))
    for memory in (1, 1 << 30):
        with working_memory(memory):
            labels = average_linkage(features, 110, sample=5000, generator=stream(0, "sample"))
        assert groups(labels) == groups(expected)


def test_equal_distances_still_give_so_many_clusters() -> None:
    labels = average_linkage(torch.eye(12), 5, sample=5000, generator=stream(0, "sample"))
    assert len(set(labels.tolist())) == 5
    assert average_linkage(
        torch.ones(1, 3), 1, sample=2, generator=stream(0, "sample")
    ).tolist() == [0]


def test_rows_beyond_the_sample_join_the_nearest_cluster() -> None:
    centres = 100 * torch.eye(4, dtype=torch.float64)
    features = centres[torch.arange(400) % 4] + draw(400, 4, 0)
    labels = average_linkage(features, 4, sample=50, generator=stream(0, "sample"))
    assert groups(labels) == groups(torch.arange(400) % 4)

    assert (
        len(set(average_linkage(features, 40, sample=50, generator=stream(0, "sample")).tolist()))
        == 40
    )
    assert (
        len(set(average_linkage(features, 399, sample=50, generator=stream(0, "sample")).tolist()))
        == 50
    )


@pytest.mark.checks(
    "cluster-margin",
    "ldm-cluster-margin",
    against="picks made from the clusters in turn, one row at a time",
)
@given(clusters=st.lists(st.integers(0, 6), min_size=1, max_size=40), share=st.floats(0, 1))
def test_round_robin_is_the_definition(clusters: list[int], share: float) -> None:
    n = max(1, round(share * len(clusters)))
    assert round_robin(torch.tensor(clusters), n).tolist() == literal.round_robin(clusters, n)


@pytest.mark.gpu
def test_gpu_equals_cpu() -> None:
    features = blobs(5000, 16, 9, 0)
    labels, centres, inertia = k_means(features, 50, generator=stream(0, "start"))
    again = k_means(features.cuda(), 50, generator=stream(0, "start"))
    assert torch.equal(again[0].cpu(), labels)
    np.testing.assert_allclose(again[1].cpu(), centres, atol=1e-9)
    assert again[2] == pytest.approx(inertia)

    free = torch.ones(5000, dtype=torch.bool)
    expected = typical_rows(features, labels, free, 200, neighbours=20).tolist()
    assert (
        typical_rows(features.cuda(), labels.cuda(), free.cuda(), 200, neighbours=20).tolist()
        == expected
    )

    linked = average_linkage(features, 60, sample=2000, generator=stream(0, "sample"))
    assert torch.equal(
        average_linkage(features.cuda(), 60, sample=2000, generator=stream(0, "sample")).cpu(),
        linked,
    )
