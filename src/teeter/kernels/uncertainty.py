"""How unsure a model is of each row, from its logits."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["entropy", "least_confidence", "margin"]


def entropy(logits: Tensor) -> Tensor:
    """Return the entropy of the predicted probabilities in nats: (N, C) -> (N,)."""
    p = logits.softmax(dim=1)
    return -torch.xlogy(p, p).sum(dim=1)


def margin(logits: Tensor) -> Tensor:
    """Return the difference of the two largest probabilities: (N, C) -> (N,)."""
    top = logits.softmax(dim=1).topk(2, dim=1).values
    return top[:, 0] - top[:, 1]


def least_confidence(logits: Tensor) -> Tensor:
    """Return one minus the largest probability: (N, C) -> (N,)."""
    return 1 - logits.softmax(dim=1).amax(dim=1)
