"""How much samples of a model disagree about each row: mutual information and variation ratio."""

from __future__ import annotations

import torch
from torch import Tensor

from teeter.arrays import tiles

__all__ = ["mutual_information", "p_log_p", "variation_ratio"]


def mutual_information(logits: Tensor) -> Tensor:
    """Return what a row's label would tell of the sample, in nats: the entropy of the mean less the mean entropy.

    logits (S, N, C) -> (N,) at or above 0.

    Reference: Houlsby et al., Bayesian Active Learning for Classification and Preference Learning, 2011.
    """
    samples, rows, classes = logits.shape
    information = logits.new_empty(rows)
    for where in tiles(rows, 4 * samples * classes * logits.element_size(), logits.device):
        p = logits[:, where].permute(1, 2, 0).softmax(dim=1).contiguous()
        of_each = p_log_p(p).sum(dim=1).mean(dim=1)
        information[where] = of_each - p_log_p(p.mean(dim=2)).sum(dim=1)
    return information.clamp_min_(0)


def variation_ratio(logits: Tensor) -> Tensor:
    """Return the share of samples that do not predict the class most samples predict: (S, N, C) -> (N,)."""
    votes = logits.new_zeros(logits.shape[1:])
    for sample in logits:
        predicted = sample.argmax(dim=1, keepdim=True)
        votes.scatter_add_(1, predicted, votes.new_ones(predicted.shape))
    return 1 - votes.amax(dim=1) / len(logits)


def p_log_p(p: Tensor) -> Tensor:
    """Return ``p log p`` of each probability, 0 where p is 0; torch.xlogy does the same three times slower."""
    return p.clamp_min(torch.finfo(p.dtype).tiny).log_().mul_(p)
