"""Training as it is written on paper: a perceptron of one hidden layer, its gradient by hand, and
Adam's equations.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from teeter.base.seeds import stream

Array = npt.NDArray[np.float64]


def perceptron_logits(parameters: list[Array], rows: Array) -> Array:
    weight, bias, head, shift = parameters
    return np.maximum(rows @ weight.T + bias, 0) @ head.T + shift


def loss_and_gradients(
    parameters: list[Array], rows: Array, labels: npt.NDArray[np.int64]
) -> tuple[float, list[Array]]:
    weight, bias, head, _ = parameters
    hidden = rows @ weight.T + bias
    features = np.maximum(hidden, 0)

    logits = perceptron_logits(parameters, rows)
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    probabilities = odds / odds.sum(axis=1, keepdims=True)

    every_row = np.arange(len(rows))
    loss = -np.log(probabilities[every_row, labels]).mean()

    error = probabilities.copy()
    error[every_row, labels] -= 1
    error /= len(rows)
    inner = (error @ head) * (hidden > 0)
    return float(loss), [inner.T @ rows, inner.sum(axis=0), error.T @ features, error.sum(axis=0)]


def adam(
    parameters: list[Array],
    rows: Array,
    labels: npt.NDArray[np.int64],
    *,
    seed: int,
    epochs: int,
    batch_size: int,
    rates: list[float],
) -> tuple[list[Array], list[float]]:
    """Return the parameters after training, and each epoch's mean loss; ``rates`` has a learning
    rate an epoch.
    """
    parameters = [parameter.copy() for parameter in parameters]
    first = [np.zeros_like(parameter) for parameter in parameters]
    second = [np.zeros_like(parameter) for parameter in parameters]
    order = stream(seed, "order")
    losses = []
    step = 0

    for epoch in range(epochs):
        shuffled = torch.randperm(len(rows), generator=order).numpy()
        cuts = list(range(0, len(rows), batch_size))
        if len(cuts) > 1 and len(rows) - cuts[-1] == 1:
            cuts.pop()

        total = 0.0
        for start, end in zip(cuts, [*cuts[1:], len(rows)], strict=True):
            batch = shuffled[start:end]
            loss, gradients = loss_and_gradients(parameters, rows[batch], labels[batch])
            total += loss * len(batch)
            step += 1
            for k, gradient in enumerate(gradients):
                first[k] = 0.9 * first[k] + 0.1 * gradient
                second[k] = 0.999 * second[k] + 0.001 * gradient**2
                mean = first[k] / (1 - 0.9**step)
                spread = second[k] / (1 - 0.999**step)
                parameters[k] -= rates[epoch] * mean / (np.sqrt(spread) + 1e-8)

        losses.append(total / len(rows))
    return parameters, losses
