"""Rows that are far apart in the features: k-means++ seeding, without weights and with an uncertainty for LDM."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from teeter.kernels.distances import Cosine, Distance, Euclidean
from teeter.kernels.seeding import ldm_seeding, seed_rows
from teeter.kernels.uncertainty import entropy, margin
from teeter.strategies.base import Context, ScoringStrategy, Strategy, registry

__all__ = ["EntropyS", "MarginS", "SeedingCosine", "SeedingL2"]


@registry.register("seeding-cosine")
@dataclass(frozen=True, kw_only=True)
class SeedingCosine(Strategy):
    """Rows drawn by their squared cosine distance to those picked [Arthur and Vassilvitskii 2007]."""

    needs = frozenset({"features"})

    def choose(self, context: Context, n: int) -> Tensor:
        """Return a uniform first row, then rows drawn by distance."""
        return _spread(Cosine(context.features), context, n)


@registry.register("seeding-l2")
@dataclass(frozen=True, kw_only=True)
class SeedingL2(Strategy):
    """Rows drawn by their squared Euclidean distance to those picked [Arthur and Vassilvitskii 2007]."""

    needs = frozenset({"features"})

    def choose(self, context: Context, n: int) -> Tensor:
        """Return a uniform first row, then rows drawn by distance."""
        return _spread(Euclidean(context.features), context, n)


@registry.register("entropy-s")
@dataclass(frozen=True, kw_only=True)
class EntropyS(ScoringStrategy):
    """Rows of large entropy that are spread: LDM-Seeding with entropy in the place of LDM [Cho et al. 2024]."""

    needs = frozenset({"logits", "features"})
    best: ClassVar[Literal["smallest"]] = "smallest"

    def score(self, context: Context) -> Tensor:
        """Return one minus the entropy over its largest value."""
        return (1 - entropy(context.logits) / math.log(context.logits.shape[1])).clamp_min(0)

    def choose(self, context: Context, n: int) -> Tensor:
        """Return the most uncertain row, then rows drawn by weight and distance."""
        context.notes["score"] = scores = self.score(context)
        return ldm_seeding(scores, context.features, n, generator=context.generator)


@registry.register("margin-s")
@dataclass(frozen=True, kw_only=True)
class MarginS(ScoringStrategy):
    """Rows of small margin that are spread: LDM-Seeding with the margin in the place of LDM [Cho et al. 2024]."""

    needs = frozenset({"logits", "features"})
    best: ClassVar[Literal["smallest"]] = "smallest"

    def score(self, context: Context) -> Tensor:
        """Return the difference of the two largest probabilities."""
        return margin(context.logits)

    def choose(self, context: Context, n: int) -> Tensor:
        """Return the most uncertain row, then rows drawn by weight and distance."""
        context.notes["score"] = scores = self.score(context)
        return ldm_seeding(scores, context.features, n, generator=context.generator)


def _spread(distance: Distance, context: Context, n: int) -> Tensor:
    even = torch.zeros(len(context), dtype=torch.float64, device=context.features.device)
    first = int(
        torch.randint(
            len(context), (), generator=context.generator, device=context.generator.device
        )
    )
    return seed_rows(
        distance, n, first=first, log_weights=even, preference=even, generator=context.generator
    )
