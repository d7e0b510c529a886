"""LDM-Seeding by equations 5 and 6, one pick at a time, and the exact law of its picks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


def gammas(ldm: Array, n: int) -> Array:
    """Equation 5, with ties to the lowest row and the least positive LDM where L_q is 0."""
    order = sorted(range(len(ldm)), key=lambda i: (ldm[i], i))
    near, far = order[:n], order[n:]
    l_q = max(ldm[i] for i in near)
    if l_q == 0:
        l_q = min((value for value in ldm if value > 0), default=1.0)
    weight = np.array([np.exp(-max(0.0, value - l_q) / l_q) for value in ldm])
    gamma = np.empty(len(ldm))
    for part in (near, far):
        for i in part:
            gamma[i] = weight[i] / sum(weight[j] for j in part)
    return gamma


def cosine_distance(a: Array, b: Array) -> float:
    if not a.any() or not b.any():
        return 0.0 if not a.any() and not b.any() else 1.0
    distance = 1 - float(a @ b) / float(np.linalg.norm(a) * np.linalg.norm(b))
    return distance if distance >= 1e-5 else 0.0


def next_law(picked: tuple[int, ...], gamma: Array, distances: Array) -> Array:
    """Equation 6: the probability of every row to be picked next; all zero without weights."""
    p = np.array(
        [
            0.0 if x in picked else gamma[x] * min(distances[x, other] for other in picked)
            for x in range(len(gamma))
        ]
    )
    squared = p**2
    return squared / squared.sum() if squared.sum() > 0 else squared


def sequence_law(
    first: int, n: int, gamma: Array, distances: Array
) -> dict[tuple[int, ...], float]:
    """The exact probability of every sequence of n picks."""
    return dict(_sequences((first,), 1.0, n, gamma, distances))


def _sequences(
    picked: tuple[int, ...], probability: float, n: int, gamma: Array, distances: Array
) -> Iterator[tuple[tuple[int, ...], float]]:
    if len(picked) == n:
        yield picked, probability
        return
    for x, chance in enumerate(next_law(picked, gamma, distances)):
        if chance > 0:
            yield from _sequences((*picked, x), probability * chance, n, gamma, distances)


def one_at_a_time(
    first: int, n: int, gamma: Array, distances: Array, rng: np.random.Generator
) -> tuple[int, ...]:
    """Draw n picks by equation 6, one after the other."""
    picked: tuple[int, ...] = (first,)
    while len(picked) < n:
        law = next_law(picked, gamma, distances)
        picked = (*picked, int(rng.choice(len(gamma), p=law)))
    return picked
