"""Rows whose predicted class changes when their features do, from different regions.

ALFA-Mix mixes the features with those of labelled rows, DropQuery leaves some of them out. Both
were proposed for the frozen features of a pretrained model.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from teeter.base.seeds import uniform
from teeter.errors import InputError, MissingOutputError
from teeter.kernels.perturbation import central_rows, dropout_disagreement, mixing_needed
from teeter.strategies.base import Context, Strategy, is_number, registry, require_counts

__all__ = [
    "AlfaMix",
    "DropQuery",
]

_CAPS = (0.2, 0.4, 0.6, 0.8, 1.0)
"""How much ALFA-Mix mixes, relative to the square root of D; more only if candidates are few."""


@registry.register("alfa-mix")
class AlfaMix(Strategy):
    """Pick rows whose class changes when they are mixed with labelled rows [Parvaneh 2022]."""

    needs = frozenset({"features", "head", "labelled"})

    def choose(self, context: Context, n: int) -> Tensor:
        """Return central rows of the clusters of those that change their class."""
        # Section 3.2 of the paper, with alpha in closed form (equation 5). As in the authors' code,
        # the cap of alpha grows until there are more candidates than picks.
        anchors = _class_means(context)
        needed = mixing_needed(context.features, context.weight, context.bias, anchors)
        scale = context.features.shape[1] ** -0.5
        for cap in _CAPS:
            is_candidate = needed < cap * scale
            if int(is_candidate.sum()) > n:
                break
        return _spread(is_candidate, context, n)


@registry.register("dropquery")
@dataclass(frozen=True, kw_only=True)
class DropQuery(Strategy):
    """Pick rows whose class changes when features are left out [Gupte et al. 2024]."""

    needs = frozenset({"features", "head"})

    passes: int = 3
    """The number of passes. A row is a candidate if its class changes in more than half of them."""
    rate: float = 0.75
    """The share of the features that a pass leaves out."""

    def __post_init__(self) -> None:
        """Validate the options."""
        require_counts(self, "passes")
        if not (is_number(self.rate) and 0 < self.rate < 1):
            raise InputError(f"rate is {self.rate!r}: it must be between 0 and 1.")

    def choose(self, context: Context, n: int) -> Tensor:
        """Return central rows of the clusters of those that change their class."""
        # Section 4 of the paper: Z_c = {i : more than M / 2 of M dropout predictions differ}, then
        # k-means with a cluster for each pick, and the row nearest each centre.
        changes = dropout_disagreement(
            context.features,
            context.weight,
            context.bias,
            rate=self.rate,
            passes=self.passes,
            generator=context.generator,
        )
        context.notes["score"] = changes
        return _spread(2 * changes > self.passes, context, n)


def _class_means(context: Context) -> Tensor:
    """Return the mean features of the labelled rows of each class, (C, D).

    A class without labels has the mean of all of them, as in the authors' code.
    """
    features = context.labelled_features
    if context.labels is None:
        raise MissingOutputError(
            "alfa-mix mixes rows with those of each class: pass labels= beside labelled=."
        )
    if not len(features):
        raise MissingOutputError("alfa-mix needs labelled rows to mix others with: there are none.")

    n_classes = len(context.weight)
    totals = features.new_zeros((n_classes, features.shape[1]))
    totals.index_add_(0, context.labels, features)
    counts = torch.bincount(context.labels, minlength=n_classes)[:, None]
    means = totals / counts.clamp_min(1)
    return torch.where(counts > 0, means, features.mean(dim=0))


def _spread(is_candidate: Tensor, context: Context, n: int) -> Tensor:
    """Return n different positions: central candidates, or all of them and random other rows."""
    candidates = is_candidate.nonzero()[:, 0]
    missing = n - len(candidates)
    if missing <= 0:
        picks = central_rows(context.features[candidates], n, generator=context.generator)
        return candidates[picks]

    others = (~is_candidate).nonzero()[:, 0]
    draws = uniform((len(others),), context.generator, torch.device("cpu"))
    order = draws.argsort(stable=True)[:missing].to(others.device)
    return torch.cat([candidates, others[order]])
