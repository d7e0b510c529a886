"""Clusters of rows: average linkage, the most typical rows of clusters, and clusters taken in turns."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Generator, Tensor

from teeter.arrays import TILE, full_precision_matmul, pad_to_tile, tiles
from teeter.kernels.distances import Euclidean, squared_distances
from teeter.kernels.kmeans import assign_to_nearest
from teeter.seeds import uniform

__all__ = ["average_linkage", "round_robin", "typical_rows"]

Integers = npt.NDArray[np.int64]

SMALL = 5
"""Clusters of fewer rows are hardly clusters: their typical rows come last."""

_TOGETHER = TILE // 2
"""Clusters of so many rows at most are compared together."""

_AT_ONCE = 8
"""Small clusters compared at once: a fixed number, so that the working memory does not decide how products round."""


def average_linkage(
    features: Tensor, clusters: int, *, sample: int, generator: Generator
) -> Tensor:
    """Return each row's cluster when the two clusters of least mean Euclidean distance are joined until K are left.

    features (N, D) -> (N,) int64 from 0 to K - 1. Of more than ``sample`` rows so many are drawn and clustered, and the
    others go to the cluster of the nearest mean; then K is at most ``sample``. All distances of those drawn are held.
    """
    if len(features) <= sample:
        return _linked(features, clusters).to(features.device)
    order = uniform((len(features),), generator, torch.device("cpu")).argsort(stable=True)
    rows = order[:sample].sort().values.to(features.device)
    linked = _linked(features[rows], min(clusters, sample)).to(features.device)
    return assign_to_nearest(features, rows, linked)


def _linked(features: Tensor, clusters: int) -> Tensor:
    if clusters >= len(features):
        return torch.arange(len(features))
    from scipy.cluster.hierarchy import linkage

    tree = linkage(_condensed(Euclidean(features)), method="average")
    # Every merge makes a new node; a node's cluster is that of the merge it went into, if that was made.
    merges = len(features) - clusters
    cluster = np.arange(len(features) + merges)
    for k in reversed(range(merges)):
        cluster[tree[k, :2].astype(int)] = cluster[len(features) + k]
    _, labels = np.unique(cluster[: len(features)], return_inverse=True)
    return torch.from_numpy(labels)


def _condensed(points: Euclidean) -> npt.NDArray[np.float64]:
    """Return the distances of all pairs as scipy wants them: (0, 1), (0, 2), ..., (1, 2), ..."""
    rows = torch.arange(len(points.features), device=points.features.device)
    pairs = np.empty(len(rows) * (len(rows) - 1) // 2)
    filled = 0
    for where in tiles(len(rows), len(rows) * 8 * 3, rows.device, at_most=960):
        some = points.between(_even(rows[where]), _even(rows))[
            : where.stop - where.start, : len(rows)
        ]
        above = some[rows > rows[where, None]].cpu().numpy()
        pairs[filled : filled + len(above)] = above
        filled += len(above)
    return pairs


def typical_rows(
    features: Tensor, clusters: Tensor, free: Tensor, n: int, *, neighbours: int
) -> Tensor:
    """Return n free rows, each the most typical of the cluster with the fewest rows that are picked or not free.

    features (M, D), clusters (M,), free (M,) bool -> (n,) int64. Of such clusters the largest comes first, then the
    lowest number; clusters of fewer than 5 rows come after all others. The most typical row has the least mean distance
    to its nearest neighbours in the cluster, ``neighbours`` of them or half the cluster where that is less.
    """
    sizes = torch.bincount(clusters).cpu().numpy()
    taken = torch.bincount(clusters[~free], minlength=len(sizes)).cpu().numpy()
    groups = clusters[free].cpu().numpy()
    turns = _turns(groups)
    order = np.lexsort((groups, -sizes[groups], taken[groups] + turns, sizes[groups] < SMALL))[:n]
    members = clusters.argsort(stable=True).split(sizes.tolist())
    wanted = np.unique(groups[order]).tolist()
    ranked: dict[int, list[int]] = {}
    for group, distances in zip(
        wanted, _within(features, [members[one] for one in wanted], neighbours), strict=True
    ):
        by_distance = members[group][distances.argsort(stable=True)]
        ranked[group] = by_distance[free[by_distance]].tolist()
    return torch.tensor([ranked[groups[j]][turns[j]] for j in order.tolist()])


def _within(features: Tensor, members: list[Tensor], neighbours: int) -> list[Tensor]:
    """Return for each cluster (A,) of rows their mean distances to their nearest neighbours in it: (A,) each."""
    found: dict[int, Tensor] = {}
    small = [k for k, rows in enumerate(members) if len(rows) <= _TOGETHER]
    for k in range(0, len(small), _AT_ONCE):
        some = small[k : k + _AT_ONCE]
        found |= zip(
            some, _small_ones(features, [members[one] for one in some], neighbours), strict=True
        )
    for k in set(range(len(members))) - set(small):
        found[k] = _mean_distances(features[members[k]], _count(len(members[k]), neighbours))
    return [found[k] for k in range(len(members))]


def _count(rows: int, neighbours: int) -> int:
    return max(1, min(neighbours, rows // 2))


def _small_ones(features: Tensor, members: list[Tensor], neighbours: int) -> list[Tensor]:
    """Return ``_mean_distances`` of clusters of at most ``_TOGETHER`` rows each, computed together."""
    blocks = features.new_zeros((len(members), _TOGETHER, features.shape[1]))
    for block, rows in zip(blocks, members, strict=True):
        own = features[rows]
        torch.sub(own, own.mean(dim=0), out=block[: len(rows)])
    squares = blocks.square().sum(dim=2)
    with full_precision_matmul():
        products = blocks @ blocks.mT
    distances = squared_distances(squares[:, :, None], squares[:, None], products)
    distances.diagonal(dim1=1, dim2=2).fill_(torch.inf)
    means = []
    for every, rows in zip(distances, members, strict=True):
        nearest = _smallest(every[: len(rows), : len(rows)], _count(len(rows), neighbours))
        means.append(nearest.sqrt_().mean(dim=1) if len(rows) > 1 else features.new_zeros(1))
    return means


def _mean_distances(features: Tensor, count: int) -> Tensor:
    """Return the mean distance of each row to the ``count`` nearest others: (A, D) -> (A,)."""
    rows = len(features)
    centred = pad_to_tile(
        features - features.mean(dim=0)
    )  # on this cluster, however far it is from the others
    squares = centred.square().sum(dim=1)[:rows]
    means = torch.empty_like(squares)
    for where in tiles(rows, len(centred) * features.element_size() * 4, features.device):
        with full_precision_matmul():
            products = centred[where.start : where.stop + -where.stop % TILE] @ centred.T
        distances = squared_distances(
            squares[where, None], squares, products[: where.stop - where.start, :rows]
        )
        distances.diagonal(where.start).fill_(torch.inf)
        means[where] = _smallest(distances, count).sqrt_().mean(dim=1)
    return means


def _smallest(values: Tensor, count: int) -> Tensor:
    """Return the smallest numbers of each row, ascending: (A, B) -> (A, count)."""
    if values.is_cuda:
        return values.topk(count, dim=1, largest=False).values
    # On rows of some hundreds topk takes five times as long.
    return torch.from_numpy(
        np.sort(np.partition(values.numpy(), count - 1, axis=1)[:, :count], axis=1)
    )


def _even(rows: Tensor) -> Tensor:
    """Return positions filled up to full tiles, in which products of copies are equal."""
    return torch.nn.functional.pad(rows, (0, -len(rows) % TILE))


def round_robin(clusters: Tensor, n: int) -> Tensor:
    """Return n positions, one from each cluster in turn, smallest cluster first, and so on with what is left.

    clusters (A,) of rows, best first -> (n,) int64. Of clusters of one size that of the best row comes first.
    """
    groups = clusters.cpu().numpy()
    _, first, inverse, sizes = np.unique(
        groups, return_index=True, return_inverse=True, return_counts=True
    )
    order = np.lexsort((first[inverse], sizes[inverse], _turns(groups)))
    return torch.from_numpy(order[:n].copy())


def _turns(groups: Integers) -> Integers:
    """Return how many entries before each one are of its group."""
    order = groups.argsort(kind="stable")
    turns = np.empty_like(order)
    turns[order] = np.arange(len(groups)) - np.searchsorted(groups[order], groups[order])
    return turns
