"""The pool head, row by row in float64, with a logistic regression that is solved directly."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


def weighted_regression(
    rows: Floats, classes: Integers, weights: Floats, n_classes: int, strength: float
) -> tuple[Floats, Floats]:
    """Return the weight (K, D) and bias (K,) that minimise the penalised weighted log loss.

    The penalty is half the squared weights divided by ``strength``; all classes get the same total
    weight. With two classes, one direction tells them apart and the first has the logit 0.
    """
    totals = np.array([weights[classes == k].sum() for k in range(n_classes)])
    balanced = weights * totals.sum() / (n_classes * totals[classes])
    width = rows.shape[1]
    n_directions = 1 if n_classes == 2 else n_classes

    def split(parameters: Floats) -> tuple[Floats, Floats, Floats]:
        directions = parameters.reshape(n_directions, width + 1)
        if n_classes == 2:
            directions = np.vstack([np.zeros(width + 1), directions])
        return directions[:, :width], directions[:, width], parameters

    def loss(parameters: Floats) -> tuple[float, Floats]:
        weight, bias, _ = split(parameters)
        value = 0.0
        gradient = np.zeros((n_classes, width + 1))
        for row, k, importance in zip(rows, classes, balanced, strict=True):
            logits = weight @ row + bias
            logits = logits - logits.max()
            probabilities = np.exp(logits) / np.exp(logits).sum()
            value -= importance * np.log(probabilities[k])
            error = importance * (probabilities - np.eye(n_classes)[k])
            gradient[:, :width] += np.outer(error, row)
            gradient[:, width] += error
        value += (weight**2).sum() / (2 * strength)
        gradient[:, :width] += weight / strength
        return value, gradient[n_classes - n_directions :].ravel()

    start = np.zeros(n_directions * (width + 1))
    result = minimize(loss, start, jac=True, method="BFGS", options={"gtol": 1e-8, "maxiter": 5000})
    weight, bias, _ = split(result.x)
    return weight, bias


def pool_head(
    rows: Floats,
    classes: Integers,
    pool: Floats,
    n_classes: int,
    *,
    examples: tuple[Floats, Integers] | None = None,
    iterations: int = 4,
    strength: float = 0.1,
) -> tuple[Floats, Floats]:
    """Return the weight (K, D) and bias (K,) of the pool head; every class must have a row."""
    K = n_classes
    everything = np.concatenate([rows, pool])
    N = len(everything)
    training_rows: list[Floats] = list(rows)
    training_classes: list[int] = [int(k) for k in classes]
    if examples is not None:
        training_rows += list(examples[0])
        training_classes += [int(k) for k in examples[1]]

    def fit(means: Sequence[tuple[int, Floats, float]]) -> tuple[Floats, Floats]:
        return weighted_regression(
            np.array([*training_rows, *(mean for _, mean, _ in means)]),
            np.array([*training_classes, *(k for k, _, _ in means)]),
            np.array([*np.ones(len(training_rows)), *(labels for _, _, labels in means)]),
            K,
            strength,
        )

    weight, bias = fit([])
    shift = np.zeros(K)
    prior_rows = max(0.5 * N / K, 20.0)
    for _ in range(iterations):
        shares = np.zeros((N, K))
        for position, row in enumerate(everything):
            if position < len(rows):
                shares[position, classes[position]] = 1.0
                continue
            logits = (weight @ row + bias) / 0.35 + shift
            exponentials = np.exp(logits - logits.max())
            shares[position] = exponentials / exponentials.sum()

        means = []
        for k in range(K):
            mass = shares[:, k].sum()
            labelled = (classes == k).sum()
            shift[k] = np.log(K * (mass + prior_rows) / (N + K * prior_rows))
            if mass > 0.5:
                mean = sum(shares[i, k] * everything[i] for i in range(N)) / mass
                size = min(max(K * mass / N, 0.05), 20.0)
                labels = min(4.0 * size**0.5, 0.25 * (mass - labelled))
                means.append((k, mean, labels))
        weight, bias = fit(means)
    return weight, bias + 0.35 * shift
