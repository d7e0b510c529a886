"""Rows of several independent labels as the papers write them, one row and one label at a time."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Marks = npt.NDArray[np.bool_]
Direction = tuple[Array, Array]


def sigmoid(logit: float) -> float:
    if logit < 0:
        return math.exp(logit) / (1 + math.exp(logit))
    return 1 / (1 + math.exp(-logit))


def binary_entropy(p: float) -> float:
    return -sum(q * math.log(q) for q in (p, 1 - p) if q > 0)


def entropy(logits: Array) -> Array:
    return np.array([sum(binary_entropy(sigmoid(value)) for value in row) for row in logits])


def margin(logits: Array) -> Array:
    return np.array([min(abs(2 * sigmoid(value) - 1) for value in row) for row in logits])


def rarity_weighted_uncertainty(logits: Array, times_seen: Array) -> Array:
    answer = []
    for row in logits:
        terms = [
            sigmoid(value) * (1 - sigmoid(value)) / (1 + seen)
            for value, seen in zip(row, times_seen, strict=True)
        ]
        answer.append(sum(terms))
    return np.array(answer)


def loss_reduction(logits: Array, counts: list[int]) -> Array:
    """MMC: the sum of (1 - y f) / 2, with f = 2 p - 1 and y = 1 for the most probable labels."""
    answer = []
    for row, count in zip(logits, counts, strict=True):
        f = [2 * sigmoid(value) - 1 for value in row]
        ranked = sorted(range(len(f)), key=lambda k: -f[k])
        y = [1 if k in ranked[:count] else -1 for k in range(len(f))]
        answer.append(sum((1 - y[k] * f[k]) / 2 for k in range(len(f))))
    return np.array(answer)


def margin_ranks(logits: Array) -> Array:
    """CVIRS: the mean over labels of (N - rank) / (N - 1), with rank 1 for the smallest margin."""
    n_rows, n_labels = logits.shape
    answer = np.zeros(n_rows)
    for k in range(n_labels):
        # Rounded, because opposite logits have the same margin.
        margins = [round(abs(2 * sigmoid(value) - 1), 12) for value in logits[:, k]]
        for i in range(n_rows):
            rank = 1 + sum(other < margins[i] for other in margins)
            answer[i] += (n_rows - rank) / (n_labels * (n_rows - 1))
    return answer


def entropy_distance(ours: Marks, theirs: Marks) -> float:
    """The distance of two rows of labels, from their table of agreement."""
    q = len(ours)
    a = int((ours & theirs).sum())
    b = int((ours & ~theirs).sum())
    c = int((~ours & theirs).sum())
    d = int((~ours & ~theirs).sum())
    if b + c == q:
        return 1.0

    own = binary_entropy((a + b) / q)
    other = binary_entropy((a + c) / q)
    joint = binary_entropy((b + c) / q)
    if b + c:
        joint += (b + c) / q * binary_entropy(b / (b + c))
    if a + d:
        joint += (a + d) / q * binary_entropy(a / (a + d))
    return (2 * joint - own - other) / joint if joint else 0.0


def vector_inconsistency(predicted: Marks, labels: Marks) -> Array:
    return np.array(
        [np.mean([entropy_distance(row, other) for other in labels]) for row in predicted]
    )


def gradient_embeddings(logits: Array, features: Array) -> Array:
    """(N, C D): the outer product of p - [p > 1/2] and z."""
    rows = []
    for row, z in zip(logits, features, strict=True):
        errors = [sigmoid(value) - (1.0 if sigmoid(value) > 0.5 else 0.0) for value in row]
        rows.append([error * value for error in errors for value in z])
    return np.array(rows)


def label_sets(features: Array, weight: Array, bias: Array) -> Marks:
    """The labels of each row: those whose logit is above 0."""
    answer: Marks = features @ weight.T + bias > 0
    return answer


def ldm_along_directions(
    features: Array,
    weight: Array,
    bias: Array,
    directions: Iterable[Direction],
    *,
    reference: Array,
) -> Array:
    """The least share of reference rows whose set changes, over heads that change the row's set.

    Along a direction sets change only where a logit crosses 0, so trying one strength in every gap
    between two crossings tries them all.
    """
    before = label_sets(features, weight, bias)
    reference_before = label_sets(reference, weight, bias)
    rows = np.concatenate([features, reference])
    least = np.ones(len(features))

    for move, shift in directions:
        logits = rows @ weight.T + bias
        change = rows @ move.T + shift
        crossings = {0.0}
        for i in range(len(rows)):
            for k in range(len(weight)):
                if change[i, k] != 0 and -logits[i, k] / change[i, k] > 0:
                    crossings.add(-logits[i, k] / change[i, k])

        edges = np.array([*sorted(crossings), max(crossings) * 2 + 1])
        for sigma in (edges[1:] + edges[:-1]) / 2:
            moved = weight + sigma * move
            shifted = bias + sigma * shift
            is_changed = (label_sets(reference, moved, shifted) != reference_before).any(axis=1)
            flipped = (label_sets(features, moved, shifted) != before).any(axis=1)
            least[flipped] = np.minimum(least[flipped], is_changed.mean())
    return least


def best_cuts(logits: Array, marks: Marks, candidates: Array, prior: float) -> Array:
    """The candidate that maximises each label's F1, averaged with the mean F1 of all labels."""

    def f1(k: int, cut: float) -> float:
        hits = sum(1 for i in range(len(logits)) if logits[i, k] > cut and marks[i, k])
        predicted = sum(1 for i in range(len(logits)) if logits[i, k] > cut)
        actual = int(marks[:, k].sum())
        return 2 * hits / (predicted + actual) if predicted + actual else 0.0

    labels = [k for k in range(marks.shape[1]) if marks[:, k].any() and not marks[:, k].all()]
    labels = labels or [k for k in range(marks.shape[1]) if marks[:, k].any()]
    answer = []
    for k in range(marks.shape[1]):
        count = int(marks[:, k].sum())
        values = []
        for cut in candidates:
            mean = sum(f1(other, cut) for other in labels) / len(labels)
            values.append((count * f1(k, cut) + prior * mean) / (count + prior))
        answer.append(candidates[int(np.argmax(values))])
    return np.array(answer)
