"""Accuracy and loss of a model on labelled rows."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

__all__ = ["Evaluation", "evaluate_logits"]


@dataclass(frozen=True)
class Evaluation:
    """How well a model classifies labelled rows."""

    accuracy: float
    """The share of rows whose most probable class is the true one."""
    loss: float
    """The mean cross-entropy in nats: minus the log-probability of the true class."""
    rows: int
    """The number of rows evaluated."""
    vote: float | None = None
    """The accuracy of an ensemble's mean probabilities. None for a single model."""


def evaluate_logits(
    logits: Tensor,
    labels: Tensor,
    posterior: Tensor | None = None,
) -> Evaluation:
    """Compare logits with the true classes.

    Args:
        logits: (N, C) of the model, or of the first member of an ensemble.
        labels: (N,) the true class numbers.
        posterior: (S, N, C) the logits of all S members of an ensemble.

    Example:
        >>> import torch
        >>> evaluate_logits(torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 0])).accuracy
        0.5
    """
    # In float64: the mean of many float32 losses would round.
    predictions = logits.argmax(dim=1)
    accuracy = (predictions == labels).double().mean()
    loss = nn.functional.cross_entropy(logits.double(), labels)

    vote = None
    if posterior is not None:
        # The mean of probabilities, not of logits: a member that is sure counts more.
        mean_probabilities = posterior.softmax(dim=2).mean(dim=0)
        voted_classes = mean_probabilities.argmax(dim=1)
        vote = float((voted_classes == labels).double().mean())

    return Evaluation(
        accuracy=float(accuracy),
        loss=float(loss),
        rows=len(labels),
        vote=vote,
    )
