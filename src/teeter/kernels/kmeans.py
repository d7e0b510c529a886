"""k-means: a greedy k-means++ start, then Lloyd's iterations.

References: Arthur and Vassilvitskii, k-means++: The Advantages of Careful Seeding, SODA 2007.
Lloyd, Least Squares Quantization in PCM, 1982.

Why not scikit-learn's
----------------------
This one also runs on GPUs, its results do not depend on the memory budget, and it is faster.
Measured by TypiClust, which is k-means and a search for neighbours within the clusters, beside that
of scikit-activeml, which calls ``sklearn.cluster.KMeans``; one thread, D = 128, 100 labelled rows,
n = 100, 200 clusters (``benchmarks/speed/results/peers_cpu.json``):

=======  ===============  ========================  ============
N        teeter           through scikit-learn      times faster
=======  ===============  ========================  ============
10,000   0.21 s, 19 MB    0.64 s, 30 MB             3.1
100,000  10 s, 148 MB     22 s, 296 MB              2.2
=======  ===============  ========================  ============

The clusters are as good: the mean inertia over 20 seeds is 985,300 here and 985,336 with
scikit-learn.

How it works
------------
Every step is made of matrix products with all rows, which are centred once and padded to full tiles
(``_Points``).

*The start* is greedy k-means++: for each next centre, ``2 + log K`` rows are drawn by their squared
distance to the nearest centre, and the one that lowers the sum of these distances most is taken. As
in ``kernels.seeding``, a block is drawn from the weights as they were, and a draw counts with
probability ``weight now / weight when drawn``; this keeps the sequential law and needs one product
per block.

*Lloyd's iterations* avoid most distances. Late in k-means few centres move and few rows change
their cluster. Half squared distances without the row's own square, ``|c|^2 / 2 - c.x``, rank the
centres of a row as distances do; here they are called *scores*. ``_Assignments`` keeps two numbers
per row:

- ``least``: the score of the row's own centre,
- ``bound``: no other centre scores less than this.

After some centres moved, products with these alone update both. Only rows with ``least > bound``
may have to leave, and only they are compared with all centres again. ``_Centroids`` in turn updates
the means by the rows that changed their cluster, with sums in float64, so that the updates do not
drift.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt
import torch
from torch import Generator, Tensor

from teeter.arrays import TILE, full_precision_matmul, pad_to_tile, tiles
from teeter.kernels.distances import NEGLIGIBLE, squared_distances, squared_lengths
from teeter.seeds import uniform

__all__ = ["assign_to_nearest", "k_means"]

ITERATIONS = 300
"""Most iterations, as in scikit-learn."""

TOLERANCE = 1e-4
"""k-means stops when the squared moves of the centres add up to this share of the mean variance."""

_CPU = torch.device("cpu")

_START_BLOCK_ENTRIES = 1 << 20
"""Distances of drawn rows to all rows that the start keeps at once, if a trial needs no more."""

_CACHE_ENTRIES = 1 << 18
"""Scores computed at once on a CPU, so that they stay in the cache."""

_ROWS_PER_CHUNK = 1024
"""Rows gathered at once. A constant, so that the memory budget does not change how sums round."""


def k_means(
    features: Tensor,
    clusters: int,
    *,
    generator: Generator,
) -> tuple[Tensor, Tensor, float]:
    """Cluster rows by k-means.

    If fewer than K rows differ, some clusters stay empty.

    Args:
        features: (N, D).
        clusters: K, the number of clusters, 1 to N.
        generator: source of randomness for the start.

    Returns:
        The cluster of each row (N,) int64, the centres (K, D), and the inertia: the sum of squared
        distances of the rows to their centres.
    """
    with full_precision_matmul():  # entered once here, instead of thousands of times below
        points = _centre_points(features)
        start = _greedy_start(points, clusters, generator)
        return _lloyd(points, points.features[start], features.mean(dim=0))


def assign_to_nearest(features: Tensor, rows: Tensor, clusters: Tensor) -> Tensor:
    """Extend the clusters of some rows to all rows: every other row joins the nearest mean.

    Args:
        features: (N, D).
        rows: (A,) positions of the rows that have a cluster.
        clusters: (A,) their clusters, numbered from 0, none empty.

    Returns:
        (N,) int64 cluster of every row.
    """
    points = _centre_points(features)
    cluster_count = int(clusters.max()) + 1

    # The first centres are replaced at once, because no cluster is empty.
    centroids = _Centroids(points.features[rows], points.features[:cluster_count])
    centroids.update(clusters)

    assignments = _Assignments(points, centroids.centres)
    return assignments.labels.index_copy_(0, rows, clusters)


@dataclass(frozen=True)
class _Points:
    """Rows centred on their mean, ready for many products."""

    padded: Tensor  # (N rounded up to full tiles, D), zeros after the last row
    squares: Tensor  # (N,) squared lengths

    @property
    def features(self) -> Tensor:
        """The rows without padding: (N, D)."""
        return self.padded[: len(self.squares)]


def _centre_points(features: Tensor) -> _Points:
    """Centre and pad the rows with a single copy of them."""
    N, D = features.shape
    padded = features.new_zeros((N + -N % TILE, D))
    torch.sub(features, features.mean(dim=0), out=padded[:N])
    return _Points(padded, squared_lengths(padded)[:N])


def _greedy_start(points: _Points, clusters: int, generator: Generator) -> Tensor:
    """Return K rows by greedy k-means++: (K,) int64.

    The first row is drawn uniformly. When every row is a copy of a pick, the lowest rows fill up.
    """
    N = len(points.features)
    device = points.features.device
    trials = 2 + int(math.log(clusters))
    picks = (uniform((1,), generator, device) * N).long()

    # Squared distances are compared without the rows' own squares, which they all have in common:
    # see _partial_distances. `squares` is lowered by as much as rounding may raise the sum of both.
    resolution = max(NEGLIGIBLE**2, 16 * torch.finfo(points.squares.dtype).eps)
    squares = points.squares * (1 - 2 * resolution)
    # (N,) partial distance to the nearest pick; never below -squares, which is distance 0.
    nearest = torch.maximum(_partial_distances(points, picks)[0], -squares)

    while len(picks) < clusters:
        cumulative = (nearest + squares).cumsum(dim=0, dtype=torch.float64)
        if cumulative[-1] == 0:
            is_free = torch.ones_like(nearest, dtype=torch.bool).index_fill_(0, picks, False)
            return torch.cat([picks, is_free.nonzero().flatten()])[:clusters]

        missing = clusters - len(picks)
        block = max(trials, min(TILE, _START_BLOCK_ENTRIES // N, 2 * trials * missing))
        points_on_line = uniform((block,), generator, device) * cumulative[-1]
        drawn = torch.searchsorted(cumulative, points_on_line, right=True).clamp_max_(N - 1)
        chances = uniform((block,), generator, _CPU).numpy()

        chosen, nearest = _greedy_picks(
            _partial_distances(points, drawn),
            nearest,
            squares,
            drawn,
            chances,
            trials=trials,
        )
        new_picks = drawn[torch.tensor(chosen, dtype=torch.int64, device=drawn.device)]
        picks = torch.cat([picks, new_picks])[:clusters]

    return picks


def _greedy_picks(
    partial: Tensor,
    nearest: Tensor,
    squares: Tensor,
    drawn: Tensor,
    chances: npt.NDArray[np.float64],
    *,
    trials: int,
) -> tuple[list[int], Tensor]:
    """Choose among drawn rows, ``trials`` of them at a time.

    Args:
        partial: (B, N) partial distances of the drawn rows to all rows.
        nearest: (N,) partial distances to the nearest pick.
        squares: (N,) what turns partial distances into distances.
        drawn: (B,) rows.
        chances: (B,) uniform draws that decide whether a draw still counts.
        trials: draws per pick.

    Returns:
        Positions in ``drawn``, at least one, and ``nearest`` after these picks. Draws left over are
        too few for another pick.
    """
    pairs = (partial[:, drawn] + squares[drawn]).clamp_min_(0).cpu().numpy()
    when_drawn = (nearest[drawn] + squares[drawn]).cpu().numpy()
    now = when_drawn

    # Lazy: a draw is judged by `now` as it is when its turn comes, after the picks before it.
    accepted = (j for j in range(len(drawn)) if chances[j] * when_drawn[j] < now[j])

    chosen: list[int] = []
    while len(tried := list(islice(accepted, trials))) == trials:
        # A slice, which may include draws that do not count, is faster than gathering rows.
        offset = tried[0]
        lowered = torch.minimum(nearest, partial[offset : tried[-1] + 1])
        sums = lowered.sum(dim=1).tolist()

        best = tried[0]
        for j in tried[1:]:
            if sums[j - offset] < sums[best - offset]:
                best = j

        nearest = lowered[best - offset]
        now = np.minimum(now, pairs[best])
        chosen.append(best)

    return chosen, torch.maximum(nearest, -squares)


def _partial_distances(points: _Points, rows: Tensor) -> Tensor:
    """Return ``|c|^2 - 2 c.x`` of some rows c and all rows x: positions (B,) -> (B, N).

    Adding ``|x|^2`` gives squared distances. ``distances.squared_distances`` would take twice as
    long.
    """
    centres = points.features[rows]
    centre_squares = points.squares[rows][:, None]
    partial = centre_squares.new_empty((len(rows), len(points.features)))

    for tile in _score_tiles(points.features, len(rows)):
        size = tile.stop - tile.start
        padded = points.padded[tile.start : tile.stop + -tile.stop % TILE]
        with full_precision_matmul():
            if len(padded) == size:
                torch.addmm(centre_squares, centres, padded.T, alpha=-2, out=partial[:, tile])
            else:
                products = torch.addmm(centre_squares, centres, padded.T, alpha=-2)
                partial[:, tile] = products[:, :size]

    return partial


def _lloyd(points: _Points, centres: Tensor, offset: Tensor) -> tuple[Tensor, Tensor, float]:
    """Run Lloyd's iterations from centres (K, D) of centred rows; see ``k_means`` for the result.

    A row stays in its cluster while no other centre is nearer. An empty cluster gets the row that
    is farthest from its centre. Stops when no row moves, or by ``TOLERANCE`` as scikit-learn does.
    """
    assignments = _Assignments(points, centres)
    centroids = _Centroids(points.features, centres)
    small_move = TOLERANCE * float(points.squares.mean()) / centres.shape[1]

    labels = assignments.labels
    for _ in range(ITERATIONS):
        labels = _refill_empty_clusters(points, assignments.labels, centroids.centres)
        if torch.equal(labels, centroids.labels):
            break

        previous_centres = centroids.centres
        moved = centroids.update(labels)
        assignments.update(centroids.centres, moved)
        labels = assignments.labels
        if float((centroids.centres - previous_centres).square().sum()) <= small_move:
            break

    return labels, centroids.centres + offset, _inertia(points, labels, centroids.centres)


class _Assignments:
    """Every row's nearest centre, updated as centres move.

    ``labels`` is replaced by each update, never changed in place: ``_lloyd`` compares old and new.
    ``least`` and ``bound`` are changed in place, and nothing else refers to them.
    """

    def __init__(self, points: _Points, centres: Tensor) -> None:
        self.points = points
        N = len(points.features)
        self.labels = torch.zeros(N, dtype=torch.int64, device=centres.device)  # (N,)
        self.least = torch.empty_like(points.squares)  # (N,) score of the own centre
        self.bound = torch.empty_like(points.squares)  # (N,) no other centre scores less

        half_squares = _half_squares(centres)
        for tile in _score_tiles(points.features, len(centres)):
            self._assign(tile, self._tile_scores(half_squares, centres, tile))

    def update(self, centres: Tensor, moved: Tensor) -> None:
        """Update all arrays for centres (K, D), of which those at ``moved`` (A,) have moved."""
        self.labels = self.labels.clone()
        half_squares = _half_squares(centres)
        features = self.points.features

        for rows in self._update_bounds(half_squares, centres, moved).split(_ROWS_PER_CHUNK):
            scores = _scores(half_squares, centres, pad_to_tile(features[rows]))
            self._assign(rows, scores[:, : len(rows)])

    def _assign(self, rows: slice | Tensor, scores: Tensor) -> None:
        """Give rows the centre of least score: (K, A). Changes ``scores``."""
        self.least[rows], labels = scores.min(dim=0)
        self.labels[rows] = labels
        self.bound[rows] = scores.scatter_(0, labels[None], torch.inf).amin(dim=0)

    def _update_bounds(self, half_squares: Tensor, centres: Tensor, moved: Tensor) -> Tensor:
        """Update ``least`` and ``bound``; return the rows that may have to leave their centre."""
        # (K,) position of each centre among those that moved; len(moved) for the others.
        position = moved.new_full((len(centres),), len(moved))
        position[moved] = torch.arange(len(moved), device=moved.device)

        # One more centre, which scores infinity, stands for the own centre of rows whose own did
        # not move. So the gather and the scatter below need no mask.
        moved_centres = torch.cat([centres[moved], torch.zeros_like(centres[:1])])
        moved_squares = torch.cat(
            [half_squares[moved], torch.full_like(half_squares[:1], torch.inf)]
        )

        leaving = []
        for tile in _score_tiles(self.points.features, len(moved_centres)):
            own_position = position[self.labels[tile]]
            scores = self._tile_scores(moved_squares, moved_centres, tile)

            own_score = scores.gather(0, own_position[None])[0]
            least = torch.where(own_position < len(moved), own_score, self.least[tile])
            bound = scores.scatter_(0, own_position[None], torch.inf).amin(dim=0)
            if len(moved) < len(centres):  # centres that did not move still have the old bound
                bound = bound.minimum(self.bound[tile])

            self.least[tile] = least
            self.bound[tile] = bound
            leaving.append((least > bound).nonzero().flatten() + tile.start)
        return torch.cat(leaving)

    def _tile_scores(self, half_squares: Tensor, centres: Tensor, tile: slice) -> Tensor:
        padded = self.points.padded[tile.start : tile.stop + -tile.stop % TILE]
        return _scores(half_squares, centres, padded)[:, : tile.stop - tile.start]


class _Centroids:
    """The means of clusters, updated as rows change their cluster.

    ``centres`` and ``labels`` are replaced by each update, never changed in place. ``sums`` is
    changed in place, and nothing else refers to it.
    """

    def __init__(self, features: Tensor, centres: Tensor) -> None:
        self.features = features  # (N, D)
        self.centres = centres  # (K, D)
        # (N,) the labels that `sums` is made of; -1 before the first update.
        self.labels = torch.full((len(features),), -1, device=features.device)
        self.sums = torch.zeros_like(centres, dtype=torch.float64)  # (K, D)

    def update(self, labels: Tensor) -> Tensor:
        """Update the centres for labels (N,); return which clusters changed: (A,)."""
        is_first_update = int(self.labels[0]) < 0
        is_changed = torch.zeros(len(self.sums), dtype=torch.bool, device=labels.device)

        for rows in (labels != self.labels).nonzero().flatten().split(_ROWS_PER_CHUNK):
            features = self.features[rows].double()
            _add_by_cluster(self.sums, labels[rows], features, 1)
            is_changed[labels[rows]] = True
            if not is_first_update:
                _add_by_cluster(self.sums, self.labels[rows], features, -1)
                is_changed[self.labels[rows]] = True

        counts = torch.bincount(labels, minlength=len(self.centres))[:, None]
        means = (self.sums / counts.clamp_min(1)).to(self.centres)
        # An empty cluster keeps its centre.
        self.centres = torch.where(counts > 0, means, self.centres)
        self.labels = labels
        return is_changed.nonzero().flatten()


def _add_by_cluster(sums: Tensor, clusters: Tensor, rows: Tensor, sign: int) -> None:
    """Add ``sign`` times rows (A, D) to the sums (K, D) of their clusters (A,), in place."""
    if not rows.is_cuda:
        sums.index_add_(0, clusters, rows, alpha=sign)
        return
    # On a GPU index_add_ adds in any order. A product with indicators is the same every time.
    indicators = rows.new_zeros((len(sums), len(rows))).scatter_(0, clusters[None], sign)
    sums += indicators @ rows


def _refill_empty_clusters(points: _Points, labels: Tensor, centres: Tensor) -> Tensor:
    """Move the farthest rows into empty clusters. A cluster of one row keeps it."""
    counts = torch.bincount(labels, minlength=len(centres))
    if bool(counts.all()):
        return labels

    own_centres = centres[labels]
    squares = squared_distances(
        own_centres.square().sum(dim=1),
        points.squares,
        (own_centres * points.features).sum(dim=1),
    )
    by_distance = squares.argsort(descending=True, stable=True)
    distinct = by_distance[squares[by_distance] > 0].tolist()  # not copies of their centre

    sizes = counts.tolist()
    empty = (counts == 0).nonzero().flatten().tolist()
    old_labels = labels.tolist()
    labels = labels.clone()
    for row in distinct:
        if empty and sizes[old_labels[row]] > 1:
            sizes[old_labels[row]] -= 1
            labels[row] = empty.pop(0)
    return labels


def _inertia(points: _Points, labels: Tensor, centres: Tensor) -> float:
    squares = torch.empty_like(points.squares)
    for tile in _score_tiles(points.features, centres.shape[1]):
        squares[tile] = (points.features[tile] - centres[labels[tile]]).square().sum(dim=1)
    return float(squares.sum(dtype=torch.float64))


def _score_tiles(rows: Tensor, columns: int) -> list[slice]:
    """Return slices of the rows: the fewer the columns, the larger the slices."""
    at_most = None if rows.is_cuda else max(1920, _CACHE_ENTRIES // columns)
    return list(tiles(len(rows), columns * rows.element_size() * 3, rows.device, at_most=at_most))


def _half_squares(centres: Tensor) -> Tensor:
    return centres.square().sum(dim=1, keepdim=True) / 2


def _scores(half_squares: Tensor, centres: Tensor, rows: Tensor) -> Tensor:
    """Return ``|c|^2 / 2 - c.x``: (K, 1), centres (K, D), rows (A, D) -> (K, A)."""
    with full_precision_matmul():
        return torch.addmm(half_squares, centres, rows.T, alpha=-1)
