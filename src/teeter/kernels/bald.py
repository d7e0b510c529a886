"""How much posterior samples disagree about each row: BALD and the variation ratio."""

from __future__ import annotations

import torch
from torch import Tensor

from teeter.base.arrays import tiles

__all__ = ["mutual_information", "p_log_p", "variation_ratio"]


def mutual_information(logits: Tensor) -> Tensor:
    """Return BALD: the mutual information between a row's label and the posterior sample.

    It is the entropy of the mean prediction minus the mean entropy of the predictions.
    Probabilities are averaged, never logits.

    Reference: Houlsby et al., Bayesian Active Learning for Classification and Preference Learning,
    2011.

    Args:
        logits: (S, N, C) of S posterior samples.

    Returns:
        (N,) in nats, at least 0.
    """
    S, N, C = logits.shape
    information = logits.new_empty(N)
    bytes_per_row = 4 * S * C * logits.element_size()

    for tile in tiles(N, bytes_per_row, logits.device):
        # (tile, C, S): the axis that is reduced last is contiguous.
        p = logits[:, tile].permute(1, 2, 0).softmax(dim=1).contiguous()

        # (tile,) both, with the sign that p log p has: minus the entropy.
        negative_mean_entropy = p_log_p(p).sum(dim=1).mean(dim=1)
        negative_entropy_of_mean = p_log_p(p.mean(dim=2)).sum(dim=1)
        information[tile] = negative_mean_entropy - negative_entropy_of_mean

    return information.clamp_min_(0)


def variation_ratio(logits: Tensor) -> Tensor:
    """Return the share of posterior samples that do not predict the majority class.

    Args:
        logits: (S, N, C) of S posterior samples.

    Returns:
        (N,) from 0 (all samples agree) to below 1.
    """
    votes = logits.new_zeros(logits.shape[1:])  # (N, C)

    for sample in logits:
        predicted = sample.argmax(dim=1, keepdim=True)
        one_vote = votes.new_ones(predicted.shape)
        votes.scatter_add_(1, predicted, one_vote)

    majority = votes.amax(dim=1)
    return 1 - majority / len(logits)


def p_log_p(p: Tensor) -> Tensor:
    """Return ``p log p`` elementwise, with 0 at p = 0.

    ``torch.xlogy`` gives the same values and takes three times as long.
    """
    # tiny * log(tiny) would not be 0, but p itself is the second factor.
    smallest = torch.finfo(p.dtype).tiny
    return p.clamp_min(smallest).log_().mul_(p)
