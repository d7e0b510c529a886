"""Clusters of rows: k-means, average linkage, the most typical rows of clusters, and clusters taken in turns."""

from __future__ import annotations

import math
from itertools import islice

import numpy as np
import numpy.typing as npt
import torch
from torch import Generator, Tensor

from teeter.arrays import TILE, exact_products, padded, tiles
from teeter.kernels.distances import NEGLIGIBLE, Euclidean, distance_tiles, squared_distances
from teeter.seeds import uniform

__all__ = ["average_linkage", "greedy_start", "k_means", "lloyd", "round_robin", "typical_rows"]

Integers = npt.NDArray[np.int64]

ITERATIONS = 300
TOLERANCE = 1e-4
"""k-means stops when the squares of the centres' moves add up to this share of the features' mean variance."""

SMALL = 5
"""Clusters of fewer rows are hardly clusters: their typical rows come last."""

_CPU = torch.device("cpu")
_ROWS = 4096
"""Rows gathered at a time: a fixed number, so that the working memory does not decide how sums and products round."""


def k_means(features: Tensor, clusters: int, *, generator: Generator) -> tuple[Tensor, Tensor, float]:
    """Return each row's cluster, the centres, and the sum of squared distances to them.

    features (N, D) -> (N,) int64, (K, D), inertia. Where fewer than K rows differ, some clusters stay empty.
    """
    return lloyd(features, features[greedy_start(features, clusters, generator=generator)])


def greedy_start(features: Tensor, clusters: int, *, generator: Generator) -> Tensor:
    """Return K rows to start k-means from, by greedy k-means++ [Arthur and Vassilvitskii 2007].

    features (N, D) -> (K,) int64. The first is drawn uniformly. For each next one ``2 + log K`` rows are drawn by their
    squared distance to the nearest pick, and the one that lowers the sum of these squares most is taken. As in
    ``seed_rows``, a block is drawn from the weights as they stood, and a draw counts with probability ``its weight now
    / its weight then``: the sequential law. When every row is a copy of a pick, the lowest rows fill up.
    """
    points = Euclidean(features)
    trials = 2 + int(math.log(clusters))
    picks = (uniform((1,), generator, features.device) * len(features)).long()
    nearest = _squares_to(points, picks)[0].clamp_min_(0)
    while len(picks) < clusters:
        cumulative = nearest.cumsum(dim=0, dtype=torch.float64)
        if cumulative[-1] == 0:
            rest = torch.ones_like(nearest, dtype=torch.bool).index_fill_(0, picks, False)
            return torch.cat([picks, rest.nonzero().flatten()])[:clusters]
        block = max(trials, min(TILE, (1 << 25) // len(features), 2 * trials * (clusters - len(picks))))
        places = uniform((block,), generator, features.device) * cumulative[-1]
        drawn = torch.searchsorted(cumulative, places, right=True).clamp_max_(len(features) - 1)
        chances = uniform((block,), generator, _CPU).numpy()
        chosen, nearest = _greedy_picks(_squares_to(points, drawn), nearest, drawn, chances, trials=trials)
        picks = torch.cat([picks, drawn[torch.tensor(chosen, dtype=torch.int64, device=drawn.device)]])[:clusters]
    return picks


def _greedy_picks(
    squares: Tensor, nearest: Tensor, drawn: Tensor, chances: npt.NDArray[np.float64], *, trials: int
) -> tuple[list[int], Tensor]:
    """Return which of the drawn rows are taken, at least one, and all rows' squared distances to the nearest pick.

    squares (B, N), nearest (N,), drawn (B,), chances (B,). Draws left over are too few for another trial.
    """
    pairs = squares[:, drawn].clamp_min_(0).cpu().numpy()
    then = now = nearest[drawn].cpu().numpy()
    accepted = (j for j in range(len(drawn)) if chances[j] * then[j] < now[j])
    chosen: list[int] = []
    while len(tried := list(islice(accepted, trials))) == trials:
        lowered = torch.minimum(nearest, squares[tried[0] : tried[-1] + 1])  # a slice, with some that do not count
        sums = lowered.sum(dim=1).tolist()
        best = min(tried, key=lambda j: sums[j - tried[0]])
        nearest, now = lowered[best - tried[0]], np.minimum(now, pairs[best])
        chosen.append(best)
    return chosen, nearest.clamp_min(0)


def _squares_to(points: Euclidean, rows: Tensor) -> Tensor:
    """Return the squared distances of all rows to some: positions (B,) -> (B, N).

    They are lowered by as much as rounding may raise them, so that copies are at 0 or below; ``squared_distances``,
    which spares the others, takes twice as long.
    """
    centres, own = points.features[rows], points.squares[rows][:, None]
    lowered = points.squares * (1 - 2 * max(NEGLIGIBLE**2, 16 * torch.finfo(own.dtype).eps))
    squares = own.new_empty((len(rows), len(lowered)))
    for where in distance_tiles(points.features, len(rows)):
        with exact_products():
            products = torch.addmm(own, centres, padded(points.features[where]).T, alpha=-2)
        torch.add(products[:, : where.stop - where.start], lowered[where], out=squares[:, where])
    return squares


def lloyd(features: Tensor, centres: Tensor) -> tuple[Tensor, Tensor, float]:
    """Return clusters, centres and inertia of k-means from these centres on.

    features (N, D), centres (K, D) -> (N,) int64, (K, D), inertia. A row stays in its cluster while no other centre is
    nearer. An empty cluster gets the row that is farthest from its centre. Stops when no row moves, or by
    ``TOLERANCE`` as scikit-learn does.
    """
    points, offset = Euclidean(features), features.mean(dim=0)
    nearest, means = _Nearest(points, centres - offset), _Means(points.features, centres - offset)
    enough = TOLERANCE * float(points.squares.mean()) / features.shape[1]
    labels = nearest.labels
    for _ in range(ITERATIONS):
        labels = _refilled(points, nearest.labels, means.centres)
        if torch.equal(labels, means.labels):
            break
        before = means.centres
        moved = means.follow(labels)
        nearest.follow(means.centres, moved)
        labels = nearest.labels
        if float((means.centres - before).square().sum()) <= enough:
            break
    return labels, means.centres + offset, _inertia(points, labels, means.centres)


class _Nearest:
    """Every row's nearest centre, followed as centres move; late in k-means most stay where they are.

    Scores are half of ``|c|^2 - 2 c.x``, which rank centres as distances do. ``least`` is the score of a row's own
    centre, and no other scores less than ``bound``. So products with the centres that moved tell which rows stay.
    """

    def __init__(self, points: Euclidean, centres: Tensor) -> None:
        self.features = points.features
        self.labels = torch.zeros(len(self.features), dtype=torch.int64, device=centres.device)
        self.least = torch.empty_like(points.squares)
        self.bound = torch.empty_like(points.squares)
        half = centres.square().sum(dim=1, keepdim=True) / 2
        for where in distance_tiles(self.features, len(centres)):
            self._settle(where, _scores(half, centres, self.features[where]))

    def follow(self, centres: Tensor, moved: Tensor) -> None:
        """Bring ``labels``, a new tensor, up to date with centres (K, D) of which some (A,) moved."""
        self.labels = self.labels.clone()
        half = centres.square().sum(dim=1, keepdim=True) / 2
        for rows in self._leaving(half, centres, moved).split(_ROWS):
            self._settle(rows, _scores(half, centres, self.features[rows]))

    def _settle(self, rows: slice | Tensor, scores: Tensor) -> None:
        """Give rows the centre of their least score: (K, A)."""
        self.least[rows], labels = scores.min(dim=0)
        self.labels[rows] = labels
        self.bound[rows] = scores.scatter_(0, labels[None], torch.inf).amin(dim=0)

    def _leaving(self, half: Tensor, centres: Tensor, moved: Tensor) -> Tensor:
        """Return the rows whose own centre may not be the nearest any more, with the others' scores up to date."""
        place = moved.new_full((len(centres),), len(moved))
        place[moved] = torch.arange(len(moved), device=moved.device)
        # One centre more, which scores infinity, stands for the own centre of rows whose own did not move.
        some = torch.cat([centres[moved], torch.zeros_like(centres[:1])])
        offsets = torch.cat([half[moved], torch.full_like(half[:1], torch.inf)])
        leaving = []
        for where in distance_tiles(self.features, len(some)):
            own = place[self.labels[where]]
            scores = _scores(offsets, some, self.features[where])
            now = torch.where(own < len(moved), scores.gather(0, own[None])[0], self.least[where])
            others = scores.scatter_(0, own[None], torch.inf).amin(dim=0)
            if len(moved) < len(centres):
                others = others.minimum(self.bound[where])
            self.least[where], self.bound[where] = now, others
            leaving.append((now > others).nonzero().flatten() + where.start)
        return torch.cat(leaving)


def _scores(half: Tensor, centres: Tensor, rows: Tensor) -> Tensor:
    """Return ``|c|^2 / 2 - c.x``: half (K, 1) of the squared norms, centres (K, D), rows (A, D) -> (K, A)."""
    with exact_products():
        return torch.addmm(half, centres, padded(rows).T, alpha=-1)[:, : len(rows)]


class _Means:
    """The means of clusters, followed as rows change cluster; their sums are kept in float64."""

    def __init__(self, features: Tensor, centres: Tensor) -> None:
        self.features, self.centres = features, centres
        self.labels = torch.full((len(features),), -1, device=features.device)
        self.sums = torch.zeros_like(centres, dtype=torch.float64)

    def follow(self, labels: Tensor) -> Tensor:
        """Bring ``centres``, a new tensor, up to date with labels (N,); return which clusters changed: (A,)."""
        touched = torch.zeros(len(self.sums), dtype=torch.bool, device=labels.device)
        signs = {1: labels, -1: self.labels} if int(self.labels[0]) >= 0 else {1: labels}
        for rows in (labels != self.labels).nonzero().flatten().split(_ROWS):
            features = self.features[rows].double()
            for sign, clusters in signs.items():
                _add_by_cluster(self.sums, clusters[rows], features, sign)
                touched[clusters[rows]] = True
        counts = torch.bincount(labels, minlength=len(self.centres))[:, None]
        means = (self.sums / counts.clamp_min(1)).to(self.centres)
        self.centres = torch.where(counts > 0, means, self.centres)  # an empty cluster keeps its centre
        self.labels = labels
        return touched.nonzero().flatten()


def _add_by_cluster(sums: Tensor, clusters: Tensor, rows: Tensor, sign: int) -> None:
    if not rows.is_cuda:
        sums.index_add_(0, clusters, rows, alpha=sign)
    else:  # there index_add_ adds in any order; a product with indicators does not
        sums += rows.new_zeros((len(sums), len(rows))).scatter_(0, clusters[None], sign) @ rows


def _refilled(points: Euclidean, labels: Tensor, centres: Tensor) -> Tensor:
    """Return labels with the farthest rows in the empty clusters; a cluster of one row keeps it."""
    counts = torch.bincount(labels, minlength=len(centres))
    if bool(counts.all()):
        return labels
    sizes, empty = counts.tolist(), (counts == 0).nonzero().flatten().tolist()
    own = centres[labels]
    squares = squared_distances(own.square().sum(dim=1), points.squares, (own * points.features).sum(dim=1))
    farthest = squares.argsort(descending=True, stable=True)
    labels, of = labels.clone(), labels.tolist()
    for row in farthest[squares[farthest] > 0].tolist():
        if empty and sizes[of[row]] > 1:
            sizes[of[row]] -= 1
            labels[row] = empty.pop(0)
    return labels


def _inertia(points: Euclidean, labels: Tensor, centres: Tensor) -> float:
    squares = torch.empty_like(points.squares)
    for where in distance_tiles(points.features, centres.shape[1]):
        squares[where] = (points.features[where] - centres[labels[where]]).square().sum(dim=1)
    return float(squares.sum(dtype=torch.float64))


def average_linkage(features: Tensor, clusters: int, *, sample: int, generator: Generator) -> Tensor:
    """Return each row's cluster when the two clusters of least mean Euclidean distance are joined until K are left.

    features (N, D) -> (N,) int64 from 0 to K - 1. Of more than ``sample`` rows so many are drawn and clustered, and the
    others go to the cluster of the nearest mean; then K is at most ``sample``. Half of ``sample`` squared distances are
    held.
    """
    if len(features) <= sample:
        return _linked(features, clusters).to(features.device)
    rows = uniform((len(features),), generator, _CPU).argsort(stable=True)[:sample].sort().values.to(features.device)
    linked = _linked(features[rows], min(clusters, sample)).to(features.device)
    points = Euclidean(features)
    means = _Means(points.features[rows], points.features[: int(linked.max()) + 1])
    means.follow(linked)
    labels = _Nearest(points, means.centres).labels
    return labels.index_copy_(0, rows, linked)


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
        some = points.between(_even(rows[where]), _even(rows))[: where.stop - where.start, : len(rows)]
        above = some[rows > rows[where, None]].cpu().numpy()
        pairs[filled : filled + len(above)] = above
        filled += len(above)
    return pairs


def typical_rows(features: Tensor, clusters: Tensor, free: Tensor, n: int, *, neighbours: int) -> Tensor:
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
    ranked: dict[int, list[int]] = {}
    for group in np.unique(groups[order]).tolist():
        rows = members[group]
        distances = _mean_distances(features[rows], max(1, min(neighbours, len(rows) // 2)))
        by_distance = rows[distances.argsort(stable=True)]
        ranked[group] = by_distance[free[by_distance]].tolist()
    return torch.tensor([ranked[groups[j]][turns[j]] for j in order.tolist()])


def _mean_distances(features: Tensor, count: int) -> Tensor:
    """Return the mean distance of each row to the ``count`` nearest others: (A, D) -> (A,)."""
    rows = len(features)
    if rows == 1:
        return features.new_zeros(1)
    centred = padded(features - features.mean(dim=0))  # on this cluster, however far it is from the others
    squares = centred.square().sum(dim=1)[:rows]
    means = torch.empty_like(squares)
    for where in tiles(rows, len(centred) * features.element_size() * 4, features.device):
        with exact_products():
            products = centred[where.start : where.stop + -where.stop % TILE] @ centred.T
        distances = squared_distances(squares[where, None], squares, products[: where.stop - where.start, :rows])
        distances.diagonal(where.start).fill_(torch.inf)
        means[where] = _smallest(distances, count).sqrt_().mean(dim=1)
    return means


def _smallest(values: Tensor, count: int) -> Tensor:
    """Return the smallest numbers of each row, ascending: (A, B) -> (A, count)."""
    if values.is_cuda:
        return values.topk(count, dim=1, largest=False).values
    # On rows of some hundreds topk takes five times as long.
    return torch.from_numpy(np.sort(np.partition(values.numpy(), count - 1, axis=1)[:, :count], axis=1))


def _even(rows: Tensor) -> Tensor:
    """Return positions filled up to full tiles, in which products of copies are equal."""
    return torch.nn.functional.pad(rows, (0, -len(rows) % TILE))


def round_robin(clusters: Tensor, n: int) -> Tensor:
    """Return n positions, one from each cluster in turn, smallest cluster first, and so on with what is left.

    clusters (A,) of rows, best first -> (n,) int64. Of clusters of one size that of the best row comes first.
    """
    groups = clusters.cpu().numpy()
    _, first, inverse, sizes = np.unique(groups, return_index=True, return_inverse=True, return_counts=True)
    order = np.lexsort((first[inverse], sizes[inverse], _turns(groups)))
    return torch.from_numpy(order[:n].copy())


def _turns(groups: Integers) -> Integers:
    """Return how many entries before each one are of its group."""
    order = groups.argsort(kind="stable")
    turns = np.empty_like(order)
    turns[order] = np.arange(len(groups)) - np.searchsorted(groups[order], groups[order])
    return turns
