"""Clusters of rows: average linkage, typical rows of clusters, and picking from clusters in turn.

Used by Cluster-Margin (``average_linkage``, ``round_robin``) and TypiClust (``typical_rows``).

References: Citovsky et al., Batch Active Learning at Scale, NeurIPS 2021 (Cluster-Margin). Hacohen
et al., Active Learning on a Budget, ICML 2022 (TypiClust).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Generator, Tensor

from teeter.base.arrays import TILE, full_precision_matmul, pad_to_tile, tiles
from teeter.base.seeds import uniform
from teeter.kernels.distances import Euclidean, squared_distances
from teeter.kernels.kmeans import assign_to_nearest

__all__ = [
    "MIN_CLUSTER_ROWS",
    "IntArray",
    "average_linkage",
    "round_robin",
    "typical_rows",
]

IntArray = npt.NDArray[np.int64]

MIN_CLUSTER_ROWS = 5
"""Clusters with fewer rows are hardly clusters: their typical rows come last."""

_SMALL_CLUSTER = TILE // 2
"""Clusters with at most this many rows are compared several at a time."""

_LINKAGE_TILE_ROWS = 5 * TILE
"""Rows whose distances to all others are computed at once, at most."""

_SMALL_CLUSTERS_PER_PRODUCT = 8
"""A constant, so that the memory budget does not change how products round."""


def average_linkage(
    features: Tensor,
    clusters: int,
    *,
    sample: int,
    generator: Generator,
) -> Tensor:
    """Cluster rows by average linkage: join the two nearest clusters until K are left.

    The distance of two clusters is the mean Euclidean distance of their rows.

    Args:
        features: (N, D).
        clusters: K, the number of clusters.
        sample: most rows to cluster. Of more rows, this many are drawn and clustered, and the
            others go to the cluster with the nearest mean; then K is at most ``sample``. Memory
            grows with its square.
        generator: source of randomness for the sample.

    Returns:
        (N,) int64 cluster of each row, from 0 to K - 1.
    """
    device = features.device
    if len(features) <= sample:
        return _link(features, clusters).to(device)

    # A random sample, in ascending order.
    draws = uniform((len(features),), generator, torch.device("cpu"))
    shuffled = draws.argsort(stable=True)
    rows = shuffled[:sample].sort().values.to(device)

    labels = _link(features[rows], min(clusters, sample))
    return assign_to_nearest(features, rows, labels.to(device))


def typical_rows(
    features: Tensor,
    clusters: Tensor,
    free: Tensor,
    n: int,
    *,
    neighbours: int,
) -> Tensor:
    """Pick n free rows: the most typical row of the least covered cluster, again and again.

    A cluster is covered by its rows that are picked or not free. Among equally covered clusters the
    largest comes first, then the one with the lowest number. Clusters of fewer than 5 rows come
    after all others. The most typical row has the smallest mean distance to its nearest neighbours
    in the cluster.

    Args:
        features: (N, D).
        clusters: (N,) cluster of each row.
        free: (N,) bool, whether a row may be picked.
        n: number of picks, at most the number of free rows.
        neighbours: number of nearest neighbours; half of the cluster if that is less.

    Returns:
        (n,) int64 positions in the order of picking.
    """
    # (K,) rows of each cluster, and those of them that are not free.
    sizes = torch.bincount(clusters).cpu().numpy()
    covered_clusters = clusters[~free]
    covered = torch.bincount(covered_clusters, minlength=len(sizes)).cpu().numpy()

    # The k-th free row of a cluster stands for the cluster's k-th pick. Sorting these turns by the
    # cluster's coverage at that time gives the order of the clusters, before any row is chosen.
    turn_clusters = clusters[free].cpu().numpy()
    turns = _occurrence_numbers(turn_clusters)
    turn_sizes = sizes[turn_clusters]
    is_small = turn_sizes < MIN_CLUSTER_ROWS
    coverage = covered[turn_clusters] + turns

    # lexsort takes the most important key last.
    order = np.lexsort((turn_clusters, -turn_sizes, coverage, is_small))
    order = order[:n]

    # Now rank the rows of the clusters that have a turn, the most typical first.
    members = clusters.argsort(stable=True).split(sizes.tolist())
    needed = np.unique(turn_clusters[order]).tolist()
    needed_members = [members[cluster] for cluster in needed]
    distances = _neighbour_distances(features, needed_members, neighbours)
    ranked: dict[int, list[int]] = {}
    for cluster, cluster_distances in zip(needed, distances, strict=True):
        by_distance = members[cluster][cluster_distances.argsort(stable=True)]
        ranked[cluster] = by_distance[free[by_distance]].tolist()

    picks = []
    for j in order.tolist():
        free_rows = ranked[turn_clusters[j]]
        picks.append(free_rows[turns[j]])
    return torch.tensor(picks)


def round_robin(clusters: Tensor, n: int) -> Tensor:
    """Pick n rows, one from each cluster in turn, smallest cluster first.

    Args:
        clusters: (A,) cluster of each row, best row first.
        n: number of picks, 1 to A.

    Returns:
        (n,) int64 positions in the order of picking. Among clusters of equal size, the cluster of
        the best row comes first.

    Example:
        >>> import torch
        >>> round_robin(torch.tensor([7, 7, 7, 3, 3]), 4)
        tensor([3, 0, 4, 1])
    """
    groups = clusters.cpu().numpy()
    _, first_row, inverse, sizes = np.unique(
        groups,
        return_index=True,
        return_inverse=True,
        return_counts=True,
    )

    # The most important key last: the round, then the size of the cluster, then its best row.
    rounds = _occurrence_numbers(groups)
    best_rows = first_row[inverse]
    group_sizes = sizes[inverse]
    order = np.lexsort((best_rows, group_sizes, rounds))
    return torch.from_numpy(order[:n].copy())


def _link(features: Tensor, clusters: int) -> Tensor:
    """Return the clusters of scipy's average linkage: (A, D) -> (A,)."""
    rows = len(features)
    if clusters >= rows:
        return torch.arange(rows)

    from scipy.cluster.hierarchy import linkage

    distances = _condensed_distances(Euclidean(features))
    tree = linkage(distances, method="average")

    # Merge k creates node `rows + k` from two older nodes. Going back from the last merge that was
    # made, every node inherits the cluster of the node it was merged into.
    merges = rows - clusters
    cluster = np.arange(rows + merges)
    for k in reversed(range(merges)):
        merged_nodes = tree[k, :2].astype(int)
        cluster[merged_nodes] = cluster[rows + k]

    _, labels = np.unique(cluster[:rows], return_inverse=True)
    return torch.from_numpy(labels)


def _condensed_distances(points: Euclidean) -> npt.NDArray[np.float64]:
    """Return the distances of all pairs in scipy's order: (0, 1), (0, 2), ..., (1, 2), ..."""
    A = len(points.features)
    rows = torch.arange(A, device=points.features.device)
    all_rows = _pad_positions(rows)
    pair_count = A * (A - 1) // 2
    condensed = np.empty(pair_count)
    filled = 0

    for tile in tiles(A, A * 8 * 3, rows.device, at_most=_LINKAGE_TILE_ROWS):
        size = tile.stop - tile.start
        some_rows = _pad_positions(rows[tile])
        block = points.between(some_rows, all_rows)
        block = block[:size, :A]

        # Row by row, the distances to all later rows: scipy's order.
        is_later = rows > rows[tile, None]
        above_diagonal = block[is_later].cpu().numpy()
        end = filled + len(above_diagonal)
        condensed[filled:end] = above_diagonal
        filled = end

    return condensed


def _neighbour_distances(
    features: Tensor,
    members: list[Tensor],
    neighbours: int,
) -> list[Tensor]:
    """Return, per cluster, its rows' mean distances to their nearest neighbours in it: (A,).

    Args:
        features: (N, D).
        members: the rows of each cluster, (A,) with an A of its own.
        neighbours: number of nearest neighbours; half of the cluster if that is less.
    """
    distances: dict[int, Tensor] = {}

    small = [k for k, rows in enumerate(members) if len(rows) <= _SMALL_CLUSTER]
    for start in range(0, len(small), _SMALL_CLUSTERS_PER_PRODUCT):
        batch = small[start : start + _SMALL_CLUSTERS_PER_PRODUCT]
        batch_members = [members[k] for k in batch]
        batch_distances = _small_cluster_distances(features, batch_members, neighbours)
        distances.update(zip(batch, batch_distances, strict=True))

    for k, rows in enumerate(members):
        if k not in distances:
            count = _neighbour_count(len(rows), neighbours)
            distances[k] = _large_cluster_distances(features[rows], count)

    return [distances[k] for k in range(len(members))]


def _neighbour_count(rows: int, neighbours: int) -> int:
    half = rows // 2
    return max(1, min(neighbours, half))


def _small_cluster_distances(
    features: Tensor,
    members: list[Tensor],
    neighbours: int,
) -> list[Tensor]:
    """Do what ``_large_cluster_distances`` does, for several small clusters in one product."""
    # (clusters, _SMALL_CLUSTER, D), each cluster centred on its mean, zeros after its last row.
    shape = (len(members), _SMALL_CLUSTER, features.shape[1])
    blocks = features.new_zeros(shape)
    for block, rows in zip(blocks, members, strict=True):
        cluster_features = features[rows]
        mean = cluster_features.mean(dim=0)
        torch.sub(cluster_features, mean, out=block[: len(rows)])

    squares = blocks.square().sum(dim=2)  # (clusters, _SMALL_CLUSTER)
    with full_precision_matmul():
        products = blocks @ blocks.mT
    distances = squared_distances(squares[:, :, None], squares[:, None], products)
    distances.diagonal(dim1=1, dim2=2).fill_(torch.inf)  # a row is not its own neighbour

    means = []
    for cluster_distances, rows in zip(distances, members, strict=True):
        row_count = len(rows)
        count = _neighbour_count(row_count, neighbours)
        nearest = _smallest(cluster_distances[:row_count, :row_count], count)
        if row_count > 1:
            means.append(nearest.sqrt_().mean(dim=1))
        else:
            means.append(features.new_zeros(1))  # it has no neighbour to be far from
    return means


def _large_cluster_distances(features: Tensor, count: int) -> Tensor:
    """Return the mean distance of each row to the ``count`` nearest others: (A, D) -> (A,)."""
    A = len(features)
    # Centred on this cluster, however far it is from the others: products cancel less.
    centred = pad_to_tile(features - features.mean(dim=0))
    squares = centred.square().sum(dim=1)[:A]
    means = torch.empty_like(squares)

    bytes_per_row = len(centred) * features.element_size() * 4
    for tile in tiles(A, bytes_per_row, features.device):
        padded_stop = tile.stop + -tile.stop % TILE
        with full_precision_matmul():
            products = centred[tile.start : padded_stop] @ centred.T

        size = tile.stop - tile.start
        products = products[:size, :A]  # without the padding
        distances = squared_distances(squares[tile, None], squares, products)
        distances.diagonal(tile.start).fill_(torch.inf)  # a row is not its own neighbour
        nearest = _smallest(distances, count)
        means[tile] = nearest.sqrt_().mean(dim=1)

    return means


def _smallest(values: Tensor, count: int) -> Tensor:
    """Return the smallest values of each row, ascending: (A, B) -> (A, count)."""
    if values.is_cuda:
        return values.topk(count, dim=1, largest=False).values

    # On rows of some hundreds of values torch.topk takes five times as long.
    partitioned = np.partition(values.numpy(), count - 1, axis=1)
    smallest = np.sort(partitioned[:, :count], axis=1)
    return torch.from_numpy(smallest)


def _pad_positions(rows: Tensor) -> Tensor:
    """Return positions padded with 0 up to full tiles, in which products of copies are equal."""
    missing = -len(rows) % TILE
    return torch.nn.functional.pad(rows, (0, missing))


def _occurrence_numbers(groups: IntArray) -> IntArray:
    """Return for each entry how many earlier entries are of its group."""
    order = groups.argsort(kind="stable")
    sorted_groups = groups[order]

    # In sorted order: the position, minus the position of the first entry of the group.
    group_starts = np.searchsorted(sorted_groups, sorted_groups)
    numbers = np.empty_like(order)
    numbers[order] = np.arange(len(groups)) - group_starts
    return numbers
