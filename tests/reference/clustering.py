"""Clustering by definition: k-means and its start, linkage, typical rows, round robin."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


def square(a: Array, b: Array) -> float:
    return float(((a - b) ** 2).sum())


def inertia(features: Array, centres: Array, labels: list[int]) -> float:
    return sum(square(row, centres[label]) for row, label in zip(features, labels, strict=True))


def lloyd(features: Array, centres: Array) -> tuple[list[int], Array]:
    """k-means from these centres on: a row leaves its cluster only for a centre that is nearer."""
    centres = centres.copy()
    clusters = range(len(centres))
    enough = 1e-4 * float(features.var(axis=0).mean())
    labels: list[int] = [-1] * len(features)

    for _ in range(300):
        before = labels
        labels = refill_empty_clusters(
            features, centres, assign_to_nearest(features, centres, labels)
        )
        if labels == before:
            break

        moved = centres.copy()
        for cluster in clusters:
            members = [row for row, label in enumerate(labels) if label == cluster]
            if members:
                moved[cluster] = np.mean([features[row] for row in members], axis=0)

        shift = sum(square(moved[c], centres[c]) for c in clusters)
        centres = moved
        if shift <= enough:
            return assign_to_nearest(features, centres, labels), centres
    return labels, centres


def assign_to_nearest(features: Array, centres: Array, labels: list[int]) -> list[int]:
    nearest_clusters = []
    for row, current in zip(features, labels, strict=True):
        squares = [square(row, centre) for centre in centres]
        nearest = squares.index(min(squares))
        nearest_clusters.append(
            current if current >= 0 and squares[current] <= squares[nearest] else nearest
        )
    return nearest_clusters


def refill_empty_clusters(features: Array, centres: Array, labels: list[int]) -> list[int]:
    labels = list(labels)
    squares = [square(row, centres[label]) for row, label in zip(features, labels, strict=True)]
    order = sorted(range(len(features)), key=lambda row: (-squares[row], row))

    for cluster in range(len(centres)):
        if cluster in labels:
            continue
        for row in order:
            if squares[row] > 1e-12 and labels.count(labels[row]) > 1:
                labels[row] = cluster
                order.remove(row)
                break
    return labels


def start_law(features: Array, clusters: int) -> dict[tuple[int, ...], float]:
    """The exact probability of every sequence of greedy k-means++, without equal sums."""
    trials = 2 + int(math.log(clusters))
    law: dict[tuple[int, ...], float] = {}
    for first in range(len(features)):
        for sequence, probability in _start_sequences(
            (first,), 1 / len(features), clusters, features, trials
        ):
            law[sequence] = law.get(sequence, 0.0) + probability
    return law


def _start_sequences(
    picked: tuple[int, ...], probability: float, clusters: int, features: Array, trials: int
) -> Iterator[tuple[tuple[int, ...], float]]:
    if len(picked) == clusters:
        yield picked, probability
        return

    squares = [min(square(row, features[pick]) for pick in picked) for row in features]
    sums = [
        sum(min(old, square(row, new)) for old, row in zip(squares, features, strict=True))
        for new in features
    ]

    order = sorted(range(len(features)), key=lambda row: sums[row])
    for place, row in enumerate(order):
        # The best of the draws is this row: all draws are this one or worse, and not all are worse.
        at_best = sum(squares[other] for other in order[place:]) / sum(squares)
        below = sum(squares[other] for other in order[place + 1 :]) / sum(squares)
        chance = at_best**trials - below**trials
        if chance > 0:
            yield from _start_sequences(
                (*picked, row), probability * chance, clusters, features, trials
            )


def average_linkage(features: Array, clusters: int) -> list[set[int]]:
    """Join the two groups of least mean distance until ``clusters`` are left."""
    groups = [{row} for row in range(len(features))]

    def mean_distance_between(a: set[int], b: set[int]) -> float:
        return float(np.mean([math.sqrt(square(features[x], features[y])) for x in a for y in b]))

    while len(groups) > clusters:
        pairs = [(a, b) for a in range(len(groups)) for b in range(a + 1, len(groups))]
        a, b = min(pairs, key=lambda pair: mean_distance_between(groups[pair[0]], groups[pair[1]]))
        groups[a] |= groups.pop(b)
    return groups


def mean_distance(row: int, members: list[int], features: Array, neighbours: int) -> float:
    distances = sorted(
        math.sqrt(square(features[row], features[other])) for other in members if other != row
    )
    count = max(1, min(neighbours, len(members) // 2))
    return sum(distances[:count]) / count if distances else 0.0


def typical_rows(
    features: Array, clusters: list[int], free: list[bool], n: int, neighbours: int
) -> list[int]:
    """One pick at a time: the most typical row of the cluster with the fewest rows taken."""
    members = {
        c: [row for row, cluster in enumerate(clusters) if cluster == c] for c in set(clusters)
    }
    used = {row for row, is_free in enumerate(free) if not is_free}
    picks: list[int] = []

    while len(picks) < n:
        left = {c: [row for row in rows if row not in used] for c, rows in members.items()}
        cluster = min(
            (c for c in members if left[c]),
            key=lambda c: (
                len(members[c]) < 5,
                len(members[c]) - len(left[c]),
                -len(members[c]),
                c,
            ),
        )

        rows = members[cluster]
        best = min(
            left[cluster],
            key=lambda row: (round(mean_distance(row, rows, features, neighbours), 9), row),
        )
        picks.append(best)
        used.add(best)
    return picks


def round_robin(clusters: list[int], n: int) -> list[int]:
    """Go round the clusters, smallest first, and take the best row that is left of each."""
    queues: dict[int, list[int]] = {}
    for row, cluster in enumerate(clusters):
        queues.setdefault(cluster, []).append(row)
    order = sorted(queues, key=lambda cluster: (len(queues[cluster]), queues[cluster][0]))
    picks: list[int] = []
    while len(picks) < n:
        for cluster in order:
            if queues[cluster] and len(picks) < n:
                picks.append(queues[cluster].pop(0))
    return picks
