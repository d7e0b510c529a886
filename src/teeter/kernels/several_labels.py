"""Scores of rows that may have several labels, each independent of the others.

The probability of a label is the sigmoid of its logit, and a row is predicted to have the labels
whose logit is above 0.

- Maximum loss reduction with maximal confidence (MMC): Yang et al., Effective Multi-Label Active
  Learning for Text Classification, KDD 2009.
- Category vector inconsistency and ranking of scores (CVIRS): Reyes et al., Effective Active
  Learning Strategy for Multi-Label Learning, Neurocomputing 2018.
"""

from __future__ import annotations

import torch
from torch import Tensor

from teeter.base.arrays import tiles

__all__ = [
    "loss_reduction",
    "rank_by_margins",
    "rarity_weighted_uncertainty",
    "vector_inconsistency",
]


def loss_reduction(logits: Tensor, counts: Tensor) -> Tensor:
    """Return how much the loss would fall if the most probable labels were the true ones (MMC).

    Args:
        logits: (N, C).
        counts: (N,) how many labels each row is predicted to have, from 0 to C.

    Returns:
        (N,) the sum of 1 - p over the ``counts`` most probable labels, and of p over the others.
    """
    p = logits.sigmoid()
    descending = p.sort(dim=1, descending=True).values
    places = torch.arange(p.shape[1], device=p.device)
    is_predicted = places < counts[:, None]
    return torch.where(is_predicted, 1 - descending, descending).sum(dim=1)


def rarity_weighted_uncertainty(logits: Tensor, times_seen: Tensor) -> Tensor:
    """Return the sum over labels of ``p (1 - p) / (1 + times seen)``: (N, C), (C,) -> (N,)."""
    variance = logits.sigmoid() * (-logits).sigmoid()
    return (variance / (1 + times_seen)).sum(dim=1)


def rank_by_margins(logits: Tensor) -> Tensor:
    """Return how unsure the model is of each row's labels by their ranks (the ``s`` of CVIRS).

    For each label, rows are ranked by the margin ``|p - (1 - p)|``, the smallest first. Equal
    margins share the best of their ranks.

    Args:
        logits: (N, C).

    Returns:
        (N,) the mean over labels of ``(N - rank) / (N - 1)``, from 0 to 1 (most uncertain).
    """
    N, C = logits.shape
    # The margin grows with the absolute logit.
    margins = logits.abs().T.contiguous()  # (C, N)
    smaller = torch.searchsorted(margins.sort(dim=1).values, margins)  # rank - 1
    behind = (N - 1 - smaller).sum(dim=0)
    return behind.to(logits.dtype) / (C * max(1, N - 1))


def vector_inconsistency(predicted: Tensor, labels: Tensor) -> Tensor:
    """Return how far each row's predicted labels are from those of the labelled rows (``v``).

    The distance of two rows of labels is 1 if they differ in every label. Otherwise it is the
    normalized information distance ``(2 H(a, b) - H(a) - H(b)) / H(a, b)``, with the entropies of
    the shares of their labels that agree and disagree.

    Args:
        predicted: (N, C) bool, the predicted labels of the candidates.
        labels: (L, C) bool, the labels of the labelled rows, L >= 1.

    Returns:
        (N,) in double precision, the mean distance to the labelled rows.
    """
    C = predicted.shape[1]
    labelled_on = labels.double()
    labelled_off = 1 - labelled_on
    labelled_entropy = _binary_entropy(labelled_on.sum(dim=1) / C)  # (L,)
    inconsistency = labelled_on.new_empty(len(predicted))

    # Ten arrays of (rows, L) at once.
    bytes_per_row = 10 * 8 * len(labels)
    for tile in tiles(len(predicted), bytes_per_row, predicted.device):
        on = predicted[tile].double()
        off = 1 - on
        # How many labels both have, only the candidate, only the labelled row, and neither.
        both = on @ labelled_on.T
        candidate_only = on @ labelled_off.T
        labelled_only = off @ labelled_on.T
        neither = off @ labelled_off.T

        differing = candidate_only + labelled_only
        agreeing = both + neither
        joint = _binary_entropy(differing / C)
        entropy_of_differing = _binary_entropy(candidate_only / differing.clamp_min(1))
        entropy_of_agreeing = _binary_entropy(both / agreeing.clamp_min(1))
        joint += differing / C * entropy_of_differing
        joint += agreeing / C * entropy_of_agreeing

        candidate_entropy = _binary_entropy(on.sum(dim=1) / C)
        shared = candidate_entropy[:, None] + labelled_entropy
        # Two constant rows that agree everywhere have no entropy, and no distance.
        smallest = torch.finfo(joint.dtype).tiny
        distance = (2 * joint - shared) / joint.clamp_min(smallest)
        distance = distance.where(differing < C, 1.0)
        inconsistency[tile] = distance.mean(dim=1)

    return inconsistency


def _binary_entropy(share: Tensor) -> Tensor:
    rest = 1 - share
    return -torch.xlogy(share, share) - torch.xlogy(rest, rest)
