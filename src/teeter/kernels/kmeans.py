"""k-means: a greedy start, then Lloyd's iterations, in which products with the centres that moved tell who stays.

References: Arthur and Vassilvitskii, k-means++: The Advantages of Careful Seeding, SODA 2007; Lloyd, Least Squares
Quantization in PCM, 1982.
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

__all__ = ["assign_to_nearest", "greedy_start", "k_means", "lloyd"]

ITERATIONS = 300
TOLERANCE = 1e-4
"""k-means stops when the squares of the centres' moves add up to this share of the features' mean variance."""

_CPU = torch.device("cpu")

_BLOCK = 1 << 20
"""Distances of drawn rows to all rows held at once, where there are more than a trial needs."""

_IN_CACHE = 1 << 18
"""Scores computed at once on a CPU."""

_ROWS = 1024
"""Rows gathered at a time: a fixed number, so that the working memory does not decide how sums and products round."""


def k_means(
    features: Tensor, clusters: int, *, generator: Generator
) -> tuple[Tensor, Tensor, float]:
    """Return each row's cluster, the centres, and the sum of squared distances to them.

    features (N, D) -> (N,) int64, (K, D), inertia. Where fewer than K rows differ, some clusters stay empty.
    """
    with full_precision_matmul():  # entered here once, instead of thousands of times below
        points = _filled_up(features)
        start = _greedy_start(points, clusters, generator)
        return _lloyd(points, points.features[start], features.mean(dim=0))


@dataclass(frozen=True)
class _Points:
    """Rows about their mean, and their squared lengths (N,); ``whole`` has them filled up to full tiles."""

    whole: Tensor
    squares: Tensor

    @property
    def features(self) -> Tensor:
        """The rows: (N, D)."""
        return self.whole[: len(self.squares)]


def _filled_up(features: Tensor) -> _Points:
    """Return rows ready for many products, with no more than one copy of them in between."""
    whole = features.new_zeros((len(features) + -len(features) % TILE, features.shape[1]))
    torch.sub(features, features.mean(dim=0), out=whole[: len(features)])
    return _Points(whole, squared_lengths(whole)[: len(features)])


def greedy_start(features: Tensor, clusters: int, *, generator: Generator) -> Tensor:
    """Return K rows to start k-means from, by greedy k-means++ [Arthur and Vassilvitskii 2007].

    features (N, D) -> (K,) int64. The first is drawn uniformly. For each next one ``2 + log K`` rows are drawn by their
    squared distance to the nearest pick, and the one that lowers the sum of these squares most is taken. As in
    ``seed_rows``, a block is drawn from the weights as they stood, and a draw counts with probability ``its weight now
    / its weight then``: the sequential law. When every row is a copy of a pick, the lowest rows fill up.
    """
    return _greedy_start(_filled_up(features), clusters, generator)


def _greedy_start(points: _Points, clusters: int, generator: Generator) -> Tensor:
    features = points.features
    trials = 2 + int(math.log(clusters))
    picks = (uniform((1,), generator, features.device) * len(features)).long()
    # What is compared are squared distances without the rows' own squares, which all have in common.
    own = points.squares * (1 - 2 * max(NEGLIGIBLE**2, 16 * torch.finfo(points.squares.dtype).eps))
    nearest = torch.maximum(_parts_to(points, picks)[0], -own)
    while len(picks) < clusters:
        cumulative = (nearest + own).cumsum(dim=0, dtype=torch.float64)
        if cumulative[-1] == 0:
            rest = torch.ones_like(nearest, dtype=torch.bool).index_fill_(0, picks, False)
            return torch.cat([picks, rest.nonzero().flatten()])[:clusters]
        block = max(
            trials, min(TILE, _BLOCK // len(features), 2 * trials * (clusters - len(picks)))
        )
        places = uniform((block,), generator, features.device) * cumulative[-1]
        drawn = torch.searchsorted(cumulative, places, right=True).clamp_max_(len(features) - 1)
        chances = uniform((block,), generator, _CPU).numpy()
        chosen, nearest = _greedy_picks(
            _parts_to(points, drawn), nearest, own, drawn, chances, trials=trials
        )
        picks = torch.cat(
            [picks, drawn[torch.tensor(chosen, dtype=torch.int64, device=drawn.device)]]
        )[:clusters]
    return picks


def _greedy_picks(
    parts: Tensor,
    nearest: Tensor,
    own: Tensor,
    drawn: Tensor,
    chances: npt.NDArray[np.float64],
    *,
    trials: int,
) -> tuple[list[int], Tensor]:
    """Return which of the drawn rows are taken, at least one, and all rows' distances to the nearest pick, in parts.

    parts (B, N), nearest (N,), own (N,), drawn (B,), chances (B,). Draws left over are too few for another trial.
    """
    pairs = (parts[:, drawn] + own[drawn]).clamp_min_(0).cpu().numpy()
    then = now = (nearest[drawn] + own[drawn]).cpu().numpy()
    accepted = (j for j in range(len(drawn)) if chances[j] * then[j] < now[j])
    chosen: list[int] = []
    while len(tried := list(islice(accepted, trials))) == trials:
        lowered = torch.minimum(
            nearest, parts[tried[0] : tried[-1] + 1]
        )  # a slice, with some that do not count
        sums = lowered.sum(dim=1).tolist()
        best = min(tried, key=lambda j: sums[j - tried[0]])
        nearest, now = lowered[best - tried[0]], np.minimum(now, pairs[best])
        chosen.append(best)
    return chosen, torch.maximum(nearest, -own)


def _parts_to(points: _Points, rows: Tensor) -> Tensor:
    """Return ``|c|^2 - 2 c.x`` of some rows c and all rows x: positions (B,) -> (B, N).

    With the squares of x, lowered by as much as rounding may raise them, they are squared distances, those of copies at
    0 or below; ``squared_distances``, which spares the others, takes twice as long.
    """
    centres, own = points.features[rows], points.squares[rows][:, None]
    parts = own.new_empty((len(rows), len(points.features)))
    for where in _tiles(points.features, len(rows)):
        full = points.whole[where.start : where.stop + -where.stop % TILE]
        with full_precision_matmul():
            if len(full) == where.stop - where.start:
                torch.addmm(own, centres, full.T, alpha=-2, out=parts[:, where])
            else:
                parts[:, where] = torch.addmm(own, centres, full.T, alpha=-2)[
                    :, : where.stop - where.start
                ]
    return parts


def lloyd(features: Tensor, centres: Tensor) -> tuple[Tensor, Tensor, float]:
    """Return clusters, centres and inertia of k-means from these centres on.

    features (N, D), centres (K, D) -> (N,) int64, (K, D), inertia. A row stays in its cluster while no other centre is
    nearer. An empty cluster gets the row that is farthest from its centre. Stops when no row moves, or by
    ``TOLERANCE`` as scikit-learn does.
    """
    offset = features.mean(dim=0)
    return _lloyd(_filled_up(features), centres - offset, offset)


def _lloyd(points: _Points, centres: Tensor, offset: Tensor) -> tuple[Tensor, Tensor, float]:
    nearest, means = _Nearest(points, centres), _Means(points.features, centres)
    enough = TOLERANCE * float(points.squares.mean()) / centres.shape[1]
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


def assign_to_nearest(features: Tensor, rows: Tensor, clusters: Tensor) -> Tensor:
    """Return the clusters of some rows, and for every other row that of the nearest mean.

    features (N, D), rows (A,), clusters (A,) from 0 up, none empty -> (N,) int64.
    """
    points = _filled_up(features)
    means = _Means(points.features[rows], points.features[: int(clusters.max()) + 1])
    means.follow(clusters)
    return _Nearest(points, means.centres).labels.index_copy_(0, rows, clusters)


class _Nearest:
    """Every row's nearest centre, followed as centres move; late in k-means most stay where they are.

    Scores are half of ``|c|^2 - 2 c.x``, which rank centres as distances do. ``least`` is the score of a row's own
    centre, and no other scores less than ``bound``. So products with the centres that moved tell which rows stay.
    """

    def __init__(self, points: _Points, centres: Tensor) -> None:
        self.whole, self.features = points.whole, points.features
        self.labels = torch.zeros(len(self.features), dtype=torch.int64, device=centres.device)
        self.least = torch.empty_like(points.squares)
        self.bound = torch.empty_like(points.squares)
        half = centres.square().sum(dim=1, keepdim=True) / 2
        for where in _tiles(self.features, len(centres)):
            self._settle(where, self._scores(half, centres, where))

    def follow(self, centres: Tensor, moved: Tensor) -> None:
        """Bring ``labels``, a new tensor, up to date with centres (K, D) of which some (A,) moved."""
        self.labels = self.labels.clone()
        half = centres.square().sum(dim=1, keepdim=True) / 2
        for rows in self._leaving(half, centres, moved).split(_ROWS):
            self._settle(
                rows, _scores(half, centres, pad_to_tile(self.features[rows]))[:, : len(rows)]
            )

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
        for where in _tiles(self.features, len(some)):
            own = place[self.labels[where]]
            scores = self._scores(offsets, some, where)
            now = torch.where(own < len(moved), scores.gather(0, own[None])[0], self.least[where])
            others = scores.scatter_(0, own[None], torch.inf).amin(dim=0)
            if len(moved) < len(centres):
                others = others.minimum(self.bound[where])
            self.least[where], self.bound[where] = now, others
            leaving.append((now > others).nonzero().flatten() + where.start)
        return torch.cat(leaving)

    def _scores(self, half: Tensor, centres: Tensor, where: slice) -> Tensor:
        full = self.whole[where.start : where.stop + -where.stop % TILE]
        return _scores(half, centres, full)[:, : where.stop - where.start]


def _tiles(rows: Tensor, columns: int) -> list[slice]:
    """Return slices of ``rows`` that are larger the fewer the columns are, of which there is less to do."""
    most = None if rows.is_cuda else max(1920, _IN_CACHE // columns)
    return list(tiles(len(rows), columns * rows.element_size() * 3, rows.device, at_most=most))


def _scores(half: Tensor, centres: Tensor, rows: Tensor) -> Tensor:
    """Return ``|c|^2 / 2 - c.x``: half (K, 1) of the squared norms, centres (K, D), rows (A, D) -> (K, A)."""
    with full_precision_matmul():
        return torch.addmm(half, centres, rows.T, alpha=-1)


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
        self.centres = torch.where(
            counts > 0, means, self.centres
        )  # an empty cluster keeps its centre
        self.labels = labels
        return touched.nonzero().flatten()


def _add_by_cluster(sums: Tensor, clusters: Tensor, rows: Tensor, sign: int) -> None:
    if not rows.is_cuda:
        sums.index_add_(0, clusters, rows, alpha=sign)
    else:  # there index_add_ adds in any order; a product with indicators does not
        sums += rows.new_zeros((len(sums), len(rows))).scatter_(0, clusters[None], sign) @ rows


def _refilled(points: _Points, labels: Tensor, centres: Tensor) -> Tensor:
    """Return labels with the farthest rows in the empty clusters; a cluster of one row keeps it."""
    counts = torch.bincount(labels, minlength=len(centres))
    if bool(counts.all()):
        return labels
    sizes, empty = counts.tolist(), (counts == 0).nonzero().flatten().tolist()
    own = centres[labels]
    squares = squared_distances(
        own.square().sum(dim=1), points.squares, (own * points.features).sum(dim=1)
    )
    farthest = squares.argsort(descending=True, stable=True)
    labels, of = labels.clone(), labels.tolist()
    for row in farthest[squares[farthest] > 0].tolist():
        if empty and sizes[of[row]] > 1:
            sizes[of[row]] -= 1
            labels[row] = empty.pop(0)
    return labels


def _inertia(points: _Points, labels: Tensor, centres: Tensor) -> float:
    squares = torch.empty_like(points.squares)
    for where in _tiles(points.features, centres.shape[1]):
        squares[where] = (points.features[where] - centres[labels[where]]).square().sum(dim=1)
    return float(squares.sum(dtype=torch.float64))
