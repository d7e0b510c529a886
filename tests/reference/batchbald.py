"""BatchBALD as the paper writes it: joint probabilities of label tuples, one tuple at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

import numpy as np
import numpy.typing as npt

from reference.bald import entropy

Array = npt.NDArray[np.float64]


def joint_entropy(p: Array, batch: Sequence[int]) -> float:
    """H(y_1, ..., y_k) of the rows of a batch, over all tuples of labels: (S, N, C)."""
    samples, _, classes = p.shape
    total = 0.0

    for labels in product(range(classes), repeat=len(batch)):
        chance = (
            sum(
                math.prod(p[s, i, y] for i, y in zip(batch, labels, strict=True))
                for s in range(samples)
            )
            / samples
        )

        if chance > 0:
            total -= chance * math.log(chance)
    return total


def joint_information(p: Array, batch: Sequence[int]) -> float:
    """I(y_1, ..., y_k; w) = H(y_1, ..., y_k) - sum over i of the mean over w of H(y_i | w)."""
    return joint_entropy(p, batch) - sum(entropy(sample[i]) for i in batch for sample in p) / len(p)


def gains(p: Array, batch: Sequence[int], rows: Sequence[int]) -> list[float]:
    """What each row adds to the joint information of a batch."""
    before = joint_information(p, batch)
    return [joint_information(p, [*batch, row]) - before for row in rows]


def greedy(p: Array, n: int) -> list[int]:
    """The n rows that each add the most to those before; equal gains go to the lowest row."""
    batch: list[int] = []
    while len(batch) < n:
        rows = [row for row in range(p.shape[1]) if row not in batch]
        added = gains(p, batch, rows)
        batch.append(
            next(row for row, gain in zip(rows, added, strict=True) if gain >= max(added) - 1e-13)
        )
    return batch


def sampled_joint_entropy(
    p: Array, batch: Sequence[int], labels: npt.NDArray[np.int64], row: int
) -> float:
    """The paper's importance-weighted estimate of H(batch, row) from drawn labels (M, k)."""
    samples, _, classes = p.shape
    total = 0.0

    for drawn in labels:
        likelihood = [
            math.prod(p[s, i, y] for i, y in zip(batch, drawn, strict=True)) for s in range(samples)
        ]
        proposal = sum(likelihood) / samples

        for y in range(classes):
            chance = sum(likelihood[s] * p[s, row, y] for s in range(samples)) / samples
            if chance > 0:
                total -= chance / proposal * math.log(chance)
    return total / len(labels)
