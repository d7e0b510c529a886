"""Rows that are far apart in the features and nothing else: k-means++ seeding without weights."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from teeter.kernels.distances import Cosine, Distance, Euclidean
from teeter.kernels.seeding import seed_rows
from teeter.strategies.base import Context, Strategy, registry

__all__ = ["SeedingCosine", "SeedingL2"]


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


def _spread(distance: Distance, context: Context, n: int) -> Tensor:
    even = torch.zeros(len(context), dtype=torch.float64, device=context.features.device)
    first = int(torch.randint(len(context), (), generator=context.generator))
    return seed_rows(distance, n, first=first, log_weights=even, preference=even, generator=context.generator)
