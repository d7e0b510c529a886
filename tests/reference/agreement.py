"""Agreement between annotators as the papers write it, one pair of answers at a time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]


def kappa(first: Integers, second: Integers) -> float:
    """(p_o - p_e) / (1 - p_e) over items that both answered [Cohen 1960, equation 1]."""
    pairs = [(int(a), int(b)) for a, b in zip(first, second, strict=True) if a >= 0 and b >= 0]
    total = len(pairs)
    agreed = sum(a == b for a, b in pairs) / total
    by_chance = 0.0
    for k in {a for a, _ in pairs} | {b for _, b in pairs}:
        by_chance += sum(a == k for a, _ in pairs) / total * sum(b == k for _, b in pairs) / total
    return (agreed - by_chance) / (1 - by_chance)


def alpha(ratings: Integers) -> float:
    """1 - D_o / D_e by the matrix of coincidences [Krippendorff 2011, section C]."""
    units = [[int(k) for k in line if k >= 0] for line in ratings]
    units = [line for line in units if len(line) > 1]
    classes = sorted({k for line in units for k in line})
    coincidences = {(c, k): 0.0 for c in classes for k in classes}

    for line in units:
        for i, c in enumerate(line):
            for j, k in enumerate(line):
                if i != j:
                    coincidences[c, k] += 1 / (len(line) - 1)

    totals = {c: sum(coincidences[c, k] for k in classes) for c in classes}
    n_answers = sum(totals.values())
    observed_disagreements = sum(coincidences[c, k] for c in classes for k in classes if c != k)
    expected_disagreements = sum(
        totals[c] * totals[k] for c in classes for k in classes if c != k
    ) / (n_answers - 1)
    return 1 - observed_disagreements / expected_disagreements


def observed(ratings: Integers) -> float:
    """The share of all pairs of answers to one item that are the same."""
    same = total = 0
    for line in ratings:
        answers = [int(k) for k in line if k >= 0]
        for i in range(len(answers)):
            for j in range(i):
                total += 1
                same += answers[i] == answers[j]
    return same / total
