"""k-means: a greedy k-means++ start, then Lloyd's iterations.

References: Arthur and Vassilvitskii, k-means++: The Advantages of Careful Seeding, SODA 2007.
Lloyd, Least Squares Quantization in PCM, 1982.

Why not scikit-learn's
----------------------
This one also runs on GPUs, its results do not depend on the memory budget, and it is faster.
Measured by TypiClust, which is k-means and a search for neighbours within the clusters, beside that
of scikit-activeml, which calls ``sklearn.cluster.KMeans``; one thread, D = 128, 100 labelled rows,
n = 100, 200 clusters (``research/speed/results/peers_cpu.json``):

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

State
-----
``_Points`` never changes. ``_Assignments`` and ``_Centroids`` update their large arrays in place,
and only in their own methods. ``_lloyd`` passes labels from the first to the second, and centres
and the numbers of those that moved back. What is passed is never written to afterwards: the next
update replaces it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Generator, Tensor

from teeter.base.arrays import TILE, full_precision_matmul, pad_to_tile, tiles
from teeter.base.seeds import uniform
from teeter.kernels.distances import NEGLIGIBLE, squared_distances, squared_lengths

__all__ = [
    "ITERATIONS",
    "TOLERANCE",
    "assign_to_nearest",
    "k_means",
]

ITERATIONS = 300
"""Most iterations, as in scikit-learn."""

TOLERANCE = 1e-4
"""k-means stops when the squared moves of the centres add up to this share of the mean variance."""

_CPU = torch.device("cpu")

_START_BLOCK_ENTRIES = 1 << 20
"""Distances of drawn rows to all rows that the start keeps at once, if a trial needs no more."""

_CACHE_ENTRIES = 1 << 18
"""Scores computed at once on a CPU, so that they stay in the cache."""

_MIN_CPU_TILE_ROWS = 10 * TILE
"""Fewer rows at once would make the products too small, whatever the cache."""

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
        return _lloyd(
            points,
            centres=points.features[start],
            offset=features.mean(dim=0),
        )


def assign_to_nearest(
    features: Tensor,
    rows: Tensor,
    clusters: Tensor,
) -> Tensor:
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

    # Any first centres will do: they are replaced at once, because no cluster is empty.
    clustered_features = points.features[rows]
    centroids = _Centroids(clustered_features, points.features[:cluster_count])
    centroids.update(clusters)

    assignments = _Assignments(points, centroids.centres)
    return assignments.labels.index_copy_(0, rows, clusters)


@dataclass(frozen=True)
class _Points:
    """Rows centred on their mean, ready for many products."""

    padded: Tensor
    """(N rounded up to full tiles, D), zeros after the last row."""
    squares: Tensor
    """(N,) squared lengths."""

    @property
    def features(self) -> Tensor:
        """The rows without padding: (N, D), a view."""
        return self.padded[: len(self.squares)]

    def padded_tile(self, tile: slice) -> Tensor:
        """Return the rows of a tile and, after the last row, padding up to a full tile: a view."""
        padded_stop = tile.stop + -tile.stop % TILE
        return self.padded[tile.start : padded_stop]


def _centre_points(features: Tensor) -> _Points:
    """Centre and pad the rows with a single copy of them."""
    N, D = features.shape
    padded_rows = N + -N % TILE
    padded = features.new_zeros((padded_rows, D))
    torch.sub(features, features.mean(dim=0), out=padded[:N])

    squares = squared_lengths(padded)[:N]
    return _Points(padded, squares)


def _greedy_start(
    points: _Points,
    clusters: int,
    generator: Generator,
) -> Tensor:
    """Return K rows by greedy k-means++: (K,) int64.

    The first row is drawn uniformly. When every row is a copy of a pick, the lowest rows fill up.
    """
    N = len(points.features)
    device = points.features.device
    trials = 2 + int(math.log(clusters))
    picks = (uniform((1,), generator, device) * N).long()

    # Squared distances are compared without the rows' own squares, which they all have in common:
    # see _partial_distances. `squares` is lowered by as much as rounding may raise the sum of both.
    rounding = 16 * torch.finfo(points.squares.dtype).eps
    resolution = max(NEGLIGIBLE**2, rounding)
    squares = points.squares * (1 - 2 * resolution)

    # (N,) partial distance to the nearest pick; never below -squares, which is distance 0.
    nearest = _partial_distances(points, picks)[0]
    nearest = torch.maximum(nearest, -squares)

    while len(picks) < clusters:
        cumulative = (nearest + squares).cumsum(dim=0, dtype=torch.float64)
        if cumulative[-1] == 0:  # every row is a copy of a pick
            is_free = torch.ones_like(nearest, dtype=torch.bool)
            is_free.index_fill_(0, picks, False)
            free_rows = is_free.nonzero().flatten()
            return torch.cat([picks, free_rows])[:clusters]

        # Twice the trials that the missing picks need, because not every draw will count.
        missing = clusters - len(picks)
        block = min(TILE, _START_BLOCK_ENTRIES // N, 2 * trials * missing)
        block = max(trials, block)
        points_on_line = uniform((block,), generator, device) * cumulative[-1]
        drawn = torch.searchsorted(cumulative, points_on_line, right=True)
        drawn.clamp_max_(N - 1)  # a point that rounding put at the very end
        chances = uniform((block,), generator, _CPU).numpy()

        chosen, nearest = _greedy_picks(
            _partial_distances(points, drawn),
            nearest,
            squares,
            drawn,
            chances,
            trials=trials,
        )
        positions = torch.tensor(chosen, dtype=torch.int64, device=device)
        picks = torch.cat([picks, drawn[positions]])
        picks = picks[:clusters]

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
    # (B, B) squared distances between the drawn rows.
    pair_squares = partial[:, drawn] + squares[drawn]
    pairs = pair_squares.clamp_min_(0).cpu().numpy()

    # (B,) squared distance of each drawn row to the nearest pick: before the block, and after each
    # pick. `now` is replaced, so that `when_drawn` stays.
    drawn_distances = nearest[drawn] + squares[drawn]
    when_drawn = drawn_distances.cpu().numpy()
    now = when_drawn

    chosen: list[int] = []
    tried: list[int] = []  # draws that count, for the next pick
    for j in range(len(drawn)):
        # Judged by `now` as it is when the turn of the draw comes, after the picks before it.
        still_counts = chances[j] * when_drawn[j] < now[j]
        if not still_counts:
            continue

        tried.append(j)
        if len(tried) < trials:
            continue

        # `lowered` (draws, N): `nearest` if a draw were picked. A slice of the draws, which may
        # include some that do not count, is faster than gathering rows.
        offset = tried[0]
        lowered = torch.minimum(nearest, partial[offset : j + 1])
        sums = lowered.sum(dim=1).tolist()

        # The first of those that lower the sum most.
        best = min(tried, key=lambda draw: sums[draw - offset])
        nearest = lowered[best - offset]
        now = np.minimum(now, pairs[best])
        chosen.append(best)
        tried = []

    return chosen, torch.maximum(nearest, -squares)


def _partial_distances(points: _Points, rows: Tensor) -> Tensor:
    """Return ``|c|^2 - 2 c.x`` of some rows c and all rows x: positions (B,) -> (B, N).

    Adding ``|x|^2`` gives squared distances. ``distances.squared_distances`` would take twice as
    long.
    """
    centres = points.features[rows]  # (B, D)
    centre_squares = points.squares[rows][:, None]  # (B, 1)
    partial = centre_squares.new_empty((len(rows), len(points.features)))

    for tile in _score_tiles(points.features, len(rows)):
        size = tile.stop - tile.start
        padded = points.padded_tile(tile)
        with full_precision_matmul():
            if len(padded) == size:
                torch.addmm(centre_squares, centres, padded.T, alpha=-2, out=partial[:, tile])
            else:
                products = torch.addmm(centre_squares, centres, padded.T, alpha=-2)
                partial[:, tile] = products[:, :size]

    return partial


def _lloyd(
    points: _Points,
    centres: Tensor,
    offset: Tensor,
) -> tuple[Tensor, Tensor, float]:
    """Run Lloyd's iterations.

    A row stays in its cluster while no other centre is nearer. An empty cluster gets the row that
    is farthest from its centre. Stops when no row moves, or by ``TOLERANCE`` as scikit-learn does.

    Args:
        points: the rows, centred on ``offset``.
        centres: (K, D) to start from, centred like the rows.
        offset: (D,) the mean that was subtracted from the rows.

    Returns:
        What ``k_means`` returns.
    """
    assignments = _Assignments(points, centres)
    centroids = _Centroids(points.features, centres)

    # The mean variance of a column: the rows are centred, so their mean square is the sum of all D.
    mean_square = float(points.squares.mean())
    small_move = TOLERANCE * mean_square / centres.shape[1]

    labels = assignments.labels
    for _ in range(ITERATIONS):
        labels = _refill_empty_clusters(points, assignments.labels, centroids.centres)
        if torch.equal(labels, centroids.labels):  # the centres are the means of these already
            break

        previous_centres = centroids.centres
        moved = centroids.update(labels)
        assignments.update(centroids.centres, moved)
        labels = assignments.labels

        moves = centroids.centres - previous_centres
        if float(moves.square().sum()) <= small_move:
            break

    final_centres = centroids.centres
    # From differences: no cancellation.
    squares = torch.empty_like(points.squares)
    for tile in _score_tiles(points.features, final_centres.shape[1]):
        differences = points.features[tile] - final_centres[labels[tile]]
        squares[tile] = differences.square().sum(dim=1)
    inertia = float(squares.sum(dtype=torch.float64))
    return labels, final_centres + offset, inertia


class _Assignments:
    """Every row's nearest centre, updated as centres move.

    ``labels`` is replaced by each update, never changed in place: ``_lloyd`` compares old and new.
    ``least`` and ``bound`` are changed in place, and nothing else refers to them.

    Invariants between updates, for every row i: ``least[i]`` is the score of centre ``labels[i]``,
    no other centre scores less than ``bound[i]``, and ``least[i] <= bound[i]``. So the own centre
    is the nearest one.
    """

    def __init__(self, points: _Points, centres: Tensor) -> None:
        self.points = points
        N = len(points.features)
        self.labels = centres.new_zeros(N, dtype=torch.int64)
        self.least = torch.empty_like(points.squares)  # (N,)
        self.bound = torch.empty_like(points.squares)  # (N,)

        half_squares = _half_squares(centres)
        for tile in _score_tiles(points.features, len(centres)):
            scores = self._tile_scores(half_squares, centres, tile)
            self._assign(tile, scores)

    def update(self, centres: Tensor, moved: Tensor) -> None:
        """Update all arrays for centres (K, D), of which those at ``moved`` (A,) have moved."""
        self.labels = self.labels.clone()
        half_squares = _half_squares(centres)
        features = self.points.features

        leaving = self._update_bounds(half_squares, centres, moved)
        for rows in leaving.split(_ROWS_PER_CHUNK):
            chunk = pad_to_tile(features[rows])
            scores = _scores(half_squares, centres, chunk)
            self._assign(rows, scores[:, : len(rows)])

    def _assign(self, rows: slice | Tensor, scores: Tensor) -> None:
        """Give A rows the centre of least score: (K, A). Changes ``scores``."""
        self.least[rows], labels = scores.min(dim=0)
        self.labels[rows] = labels

        # The own centre out of the way, the least score is the bound of all others.
        other_scores = scores.scatter_(0, labels[None], torch.inf)
        self.bound[rows] = other_scores.amin(dim=0)

    def _update_bounds(
        self,
        half_squares: Tensor,
        centres: Tensor,
        moved: Tensor,
    ) -> Tensor:
        """Update ``least`` and ``bound`` for all rows with their labels as they are.

        Args:
            half_squares: (K, 1) half squared lengths of the centres.
            centres: (K, D).
            moved: (A,) numbers of the centres that moved.

        Returns:
            (E,) the rows with ``least > bound``: another centre may be nearer.
        """
        # (K,) position of each centre among those that moved; len(moved) for the others.
        moved_count = len(moved)
        position = moved.new_full((len(centres),), moved_count)
        position[moved] = torch.arange(moved_count, device=moved.device)

        # (A + 1, D): one more centre, which scores infinity, stands for the own centre of rows
        # whose own did not move. So the gather and the scatter below need no mask.
        moved_centres = centres[moved]
        zeros = torch.zeros_like(centres[:1])
        moved_centres = torch.cat([moved_centres, zeros])
        moved_squares = half_squares[moved]
        infinity = torch.full_like(half_squares[:1], torch.inf)
        moved_squares = torch.cat([moved_squares, infinity])

        leaving = []
        for tile in _score_tiles(self.points.features, len(moved_centres)):
            own_position = position[self.labels[tile]]
            scores = self._tile_scores(moved_squares, moved_centres, tile)  # (A + 1, tile)

            # The own centre's score is new if it moved, and as it was otherwise.
            own_score = scores.gather(0, own_position[None])[0]
            has_moved = own_position < moved_count
            least = torch.where(has_moved, own_score, self.least[tile])

            # Others that moved score as they do now; those that did not still have the old bound.
            other_scores = scores.scatter_(0, own_position[None], torch.inf)
            bound = other_scores.amin(dim=0)
            if moved_count < len(centres):
                bound = bound.minimum(self.bound[tile])

            self.least[tile] = least
            self.bound[tile] = bound
            leaving_in_tile = (least > bound).nonzero().flatten()
            leaving.append(leaving_in_tile + tile.start)

        return torch.cat(leaving)

    def _tile_scores(
        self,
        half_squares: Tensor,
        centres: Tensor,
        tile: slice,
    ) -> Tensor:
        """Return the scores of the rows of a tile: (K, 1), (K, D) -> (K, tile)."""
        size = tile.stop - tile.start
        scores = _scores(half_squares, centres, self.points.padded_tile(tile))
        return scores[:, :size]


class _Centroids:
    """The means of clusters, updated as rows change their cluster.

    ``centres`` and ``labels`` are replaced by each update, never changed in place. ``sums`` is
    changed in place, and nothing else refers to it.

    Invariants after the first update: ``sums`` is the sum of the rows of each cluster of
    ``labels``, and ``centres`` is their mean. The centre of an empty cluster stays where it was.
    """

    def __init__(self, features: Tensor, centres: Tensor) -> None:
        self.features = features  # (N, D)
        self.centres = centres  # (K, D)
        # (N,) -1 before the first update.
        self.labels = features.new_full((len(features),), -1, dtype=torch.int64)
        self.sums = torch.zeros_like(centres, dtype=torch.float64)  # (K, D)

    def update(self, labels: Tensor) -> Tensor:
        """Update the centres for labels (N,); return which clusters changed: (A,)."""
        is_first_update = int(self.labels[0]) < 0
        is_changed = labels.new_zeros(len(self.sums), dtype=torch.bool)

        changed_rows = (labels != self.labels).nonzero().flatten()
        for rows in changed_rows.split(_ROWS_PER_CHUNK):
            features = self.features[rows].double()
            _add_by_cluster(self.sums, labels[rows], features, 1)
            is_changed[labels[rows]] = True
            if not is_first_update:
                _add_by_cluster(self.sums, self.labels[rows], features, -1)
                is_changed[self.labels[rows]] = True

        counts = torch.bincount(labels, minlength=len(self.centres))
        counts = counts[:, None]  # (K, 1)
        means = (self.sums / counts.clamp_min(1)).to(self.centres)
        self.centres = torch.where(counts > 0, means, self.centres)
        self.labels = labels
        return is_changed.nonzero().flatten()


def _add_by_cluster(
    sums: Tensor,
    clusters: Tensor,
    rows: Tensor,
    sign: int,
) -> None:
    """Add ``sign`` times rows (A, D) to the sums (K, D) of their clusters (A,), in place."""
    if not rows.is_cuda:
        sums.index_add_(0, clusters, rows, alpha=sign)
        return

    # On a GPU index_add_ adds in any order. A product with indicators is the same every time.
    indicators = rows.new_zeros((len(sums), len(rows)))  # (K, A)
    indicators.scatter_(0, clusters[None], sign)
    sums += indicators @ rows


def _refill_empty_clusters(
    points: _Points,
    labels: Tensor,
    centres: Tensor,
) -> Tensor:
    """Return labels (N,) with the farthest rows in the empty clusters, if there are any.

    A cluster of one row keeps it. The labels given do not change.
    """
    counts = torch.bincount(labels, minlength=len(centres))
    if bool(counts.all()):
        return labels

    # (N,) squared distance of each row to its own centre.
    own_centres = centres[labels]
    squares = squared_distances(
        own_centres.square().sum(dim=1),
        points.squares,
        (own_centres * points.features).sum(dim=1),
    )

    # Copies of their centre would not make another cluster.
    by_distance = squares.argsort(descending=True, stable=True)
    is_distinct = squares[by_distance] > 0
    distinct_rows = by_distance[is_distinct].tolist()

    sizes = counts.tolist()
    empty = (counts == 0).nonzero().flatten().tolist()
    old_labels = labels.tolist()
    labels = labels.clone()
    for row in distinct_rows:
        old_label = old_labels[row]
        if empty and sizes[old_label] > 1:
            sizes[old_label] -= 1
            labels[row] = empty.pop(0)
    return labels


def _score_tiles(rows: Tensor, columns: int) -> list[slice]:
    """Return slices of the rows: the fewer the columns, the larger the slices."""
    bytes_per_row = columns * rows.element_size() * 3
    at_most = None
    if not rows.is_cuda:
        at_most = max(_MIN_CPU_TILE_ROWS, _CACHE_ENTRIES // columns)
    return list(tiles(len(rows), bytes_per_row, rows.device, at_most=at_most))


def _half_squares(centres: Tensor) -> Tensor:
    """Return ``|c|^2 / 2`` of every centre: (K, D) -> (K, 1)."""
    squares = centres.square().sum(dim=1, keepdim=True)
    return squares / 2


def _scores(
    half_squares: Tensor,
    centres: Tensor,
    rows: Tensor,
) -> Tensor:
    """Return ``|c|^2 / 2 - c.x``: (K, 1), centres (K, D), rows (A, D) -> (K, A)."""
    with full_precision_matmul():
        return torch.addmm(half_squares, centres, rows.T, alpha=-1)
