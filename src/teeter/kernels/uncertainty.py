"""How unsure a model is of each row, from its logits: entropy, margin and least confidence.

With ``several``, the C classes are independent labels, each with the sigmoid of its logit as its
probability.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = [
    "class_weights",
    "entropy",
    "least_confidence",
    "margin",
]


def entropy(logits: Tensor, *, several: bool = False) -> Tensor:
    """Return the entropy of the predicted class probabilities.

    Args:
        logits: (N, C).
        several: whether the classes are independent labels, whose entropies are added.

    Returns:
        (N,) in nats, from 0 (certain) to log C (every class equally probable), or to C log 2.

    Example:
        >>> import torch
        >>> entropy(torch.tensor([[0.0, 0.0], [2.0, 0.0]]))
        tensor([0.6931, 0.3653])
    """
    if several:
        p = logits.sigmoid()
        q = (-logits).sigmoid()
        return -(torch.xlogy(p, p) + torch.xlogy(q, q)).sum(dim=1)

    # xlogy is 0 where p is 0, also where p underflows.
    p = logits.softmax(dim=1)
    return -torch.xlogy(p, p).sum(dim=1)


def margin(logits: Tensor, *, several: bool = False) -> Tensor:
    """Return the difference between the two largest class probabilities.

    Args:
        logits: (N, C) with C >= 2.
        several: whether the classes are independent labels. The margin is then that of the least
            certain label, between having it and not having it.

    Returns:
        (N,) from 0 (a tie between two classes) to 1 (certain). The smallest values are the least
        certain rows.

    Example:
        >>> import torch
        >>> margin(torch.tensor([[1.0, 1.0, 0.0], [9.0, 0.0, 0.0]]))
        tensor([0.0000, 0.9996])
    """
    if several:
        # p - (1 - p) = tanh(logit / 2)
        return (logits / 2).tanh().abs().amin(dim=1)

    p = logits.softmax(dim=1)
    top_two = p.topk(2, dim=1).values  # (N, 2), largest first
    return top_two[:, 0] - top_two[:, 1]


def least_confidence(logits: Tensor) -> Tensor:
    """Return one minus the largest class probability.

    Args:
        logits: (N, C).

    Returns:
        (N,) from 0 (certain) to 1 - 1 / C.
    """
    p = logits.softmax(dim=1)
    return 1 - p.amax(dim=1)


def class_weights(logits: Tensor) -> Tensor:
    """Return weights with which every predicted class has about the same total.

    Args:
        logits: (N, C).

    Returns:
        (N,) the sum over classes of ``p_c / (1 + P_c)``, with ``P_c`` the sum of ``p_c`` over rows.

    Example:
        >>> import torch
        >>> class_weights(torch.tensor([[9.0, 0.0], [9.0, 0.0], [0.0, 9.0]])).round(decimals=2)
        tensor([0.3300, 0.3300, 0.5000])
    """
    p = logits.softmax(dim=1)
    totals = p.sum(dim=0, dtype=torch.float64).to(p.dtype)
    return p @ (1 / (1 + totals))
