"""BAIT as usually written: every row's Fisher factor, and a trace for every row and pick."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from reference.uncertainty import probabilities

Array = npt.NDArray[np.float64]


def factor(p: Array, z: Array, form: str, top: int) -> Array:
    """(C D, K): columns whose squares add up to the Fisher information of one row."""
    if form == "binary":
        best = max(p)
        return np.sqrt(best * (1 - best)) * np.array(z)[:, None]
    classes = range(len(p)) if form == "exact" else np.argsort(-p, kind="stable")[:top]
    columns = []
    for c in classes:
        direction = -p.copy()
        direction[c] += 1
        columns.append(np.sqrt(p[c]) * np.kron(direction, z))
    return np.array(columns).T


def objective(
    chosen: list[int], factors: list[Array], start: Array, fisher: Array, scale: float
) -> float:
    """tr((M + sum of the chosen rows' information)^-1 F)."""
    information = start + scale * sum(
        (factors[i] @ factors[i].T for i in chosen), np.zeros_like(start)
    )
    return float(np.trace(np.linalg.inv(information) @ fisher))


def bait(
    logits: Array,
    features: Array,
    n: int,
    *,
    labelled_logits: Array,
    labelled_features: Array,
    form: str = "exact",
    top: int = 2,
    regularisation: float = 1.0,
) -> list[int]:
    """Forward greedy to 2n, then backward pruning to n, by the objective itself."""
    factors = [
        factor(p, z, form, top) for p, z in zip(probabilities(logits), features, strict=True)
    ]
    labelled = [
        factor(p, z, form, top)
        for p, z in zip(probabilities(labelled_logits), labelled_features, strict=True)
    ]

    L, N = len(labelled), len(factors)
    side = len(factors[0])
    start = regularisation * np.eye(side)
    if L:
        start = start + L / (L + n) * np.mean([u @ u.T for u in labelled], axis=0)
    fisher = np.mean([u @ u.T for u in [*factors, *labelled]], axis=0)
    scale = n / (L + n)

    picks: list[int] = []
    for _ in range(min(2 * n, N)):
        left = [i for i in range(N) if i not in picks]
        picks.append(
            min(left, key=lambda i: (objective([*picks, i], factors, start, fisher, scale), i))
        )

    while len(picks) > n:
        dropped = min(
            picks,
            key=lambda i: objective([k for k in picks if k != i], factors, start, fisher, scale),
        )
        picks.remove(dropped)
    return picks
