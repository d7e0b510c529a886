"""Strategies for rows that may have several labels, beside those that take such rows too."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from teeter.errors import MissingOutputError
from teeter.kernels.several_labels import (
    loss_reduction,
    rank_by_margins,
    rarity_weighted_uncertainty,
    vector_inconsistency,
)
from teeter.strategies.base import Context, TopKStrategy, registry

__all__ = ["Cvirs", "Mmc", "RareLabels"]


@registry.register("mmc")
class Mmc(TopKStrategy):
    """Pick rows whose labels would lower the loss most, if as predicted [Yang et al. 2009]."""

    needs = frozenset({"logits"})
    optional_needs = frozenset({"labelled"})
    labels_per_row = "several"
    best: ClassVar[Literal["largest"]] = "largest"

    def score(self, context: Context) -> Tensor:
        """Return the loss reduction with maximal confidence."""
        # sum over labels of (1 - y f) / 2 with f = 2 p - 1. y is 1 for the predicted labels, whose
        # number a regression on the sorted probabilities of labelled rows predicts, else -1.
        counts = _predict_counts(context).to(context.logits.device)
        return loss_reduction(context.logits, counts)


def _predict_counts(context: Context) -> Tensor:
    """Return how many labels each candidate is predicted to have: (N,) int64.

    Without labels, it is the sum of the probabilities, rounded.
    """
    if context.labels is None or context.labelled is None or not len(context.labels):
        expected = context.logits.sigmoid().sum(dim=1)
        return expected.round().long()

    counts = context.labels.sum(dim=1).cpu().numpy()
    if len(np.unique(counts)) == 1:
        return torch.full((len(context),), int(counts[0]))

    from sklearn.linear_model import LogisticRegression

    labelled = context.labelled.logits
    if labelled is None:
        raise MissingOutputError("The candidates have logits, but the labelled rows have none.")
    model = LogisticRegression(max_iter=1000)
    model.fit(_sorted_shares(labelled), counts)
    predicted = model.predict(_sorted_shares(context.logits))
    return torch.from_numpy(predicted.astype(np.int64))


def _sorted_shares(logits: Tensor) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Return the probabilities of labels, largest first, as shares of their sum: (N, C)."""
    # A sum of 0 would divide by 0.
    p = logits.double().sigmoid().sort(dim=1, descending=True).values
    sums = p.sum(dim=1, keepdim=True)
    shares = p / sums.clamp_min(torch.finfo(p.dtype).tiny)
    return shares.cpu().numpy()


@registry.register("cvirs")
class Cvirs(TopKStrategy):
    """Pick rows of uncertain labels that differ from the labels so far [Reyes et al. 2018]."""

    needs = frozenset({"logits"})
    optional_needs = frozenset({"labelled"})
    labels_per_row = "several"
    best: ClassVar[Literal["largest"]] = "largest"

    def score(self, context: Context) -> Tensor:
        """Return the category vector inconsistency times the rank of the margins."""
        ranks = rank_by_margins(context.logits)
        if context.labels is None or not len(context.labels):
            return ranks
        inconsistency = vector_inconsistency(context.logits > 0, context.labels > 0)
        return ranks * inconsistency.to(ranks)


@registry.register("rare-labels")
class RareLabels(TopKStrategy):
    """Pick rows of uncertain labels, of which those that were seen least count most."""

    needs = frozenset({"logits"})
    optional_needs = frozenset({"labelled"})
    labels_per_row = "several"
    best: ClassVar[Literal["largest"]] = "largest"

    def score(self, context: Context) -> Tensor:
        """Return the sum over labels of p (1 - p) / (1 + how often the label was seen)."""
        times_seen = context.logits.new_zeros(context.logits.shape[1])
        if context.labels is not None:
            times_seen = context.labels.sum(dim=0).to(times_seen)
        return rarity_weighted_uncertainty(context.logits, times_seen)
