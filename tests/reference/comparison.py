"""The performance profile and the penalty matrix, written out as the paper defines them, in exact
fractions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

Counts = dict[str, list[list[int]]]
"""Right answers by strategy, repetition and step, of 1,000."""

CRITICAL = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}


def profile(datasets: Sequence[Counts], strategy: str, delta: Fraction) -> Fraction:
    """R_A(delta) = 1/n_D sum_D [ sum_{r,t} I(max_A' acc - acc_A <= delta) / (R T_D) ]."""
    total = Fraction(0)
    for dataset in datasets:
        ours = dataset[strategy]
        repetitions, steps = len(ours), len(ours[0]) - 1
        count = 0
        for r in range(repetitions):
            for t in range(1, steps + 1):
                best = max(runs[r][t] for runs in dataset.values())
                count += Fraction(best - ours[r][t], 10) <= delta
        total += Fraction(count, repetitions * steps)
    return total / len(datasets)


def penalty(datasets: Sequence[Counts], i: str, j: str) -> float:
    """P_ij: 1 / T_D for every step in which t = sqrt(R) mean / sd passes the critical value."""
    total = 0.0
    for dataset in datasets:
        repetitions, steps = len(dataset[i]), len(dataset[i][0]) - 1
        for t in range(1, steps + 1):
            differences = [dataset[i][r][t] - dataset[j][r][t] for r in range(repetitions)]
            mean = sum(differences) / repetitions
            sd = math.sqrt(sum((d - mean) ** 2 for d in differences) / (repetitions - 1))
            if sd > 0 and math.sqrt(repetitions) * mean / sd > CRITICAL[repetitions]:
                total += 1 / steps
    return total
