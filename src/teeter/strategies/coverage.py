"""Rows that cover the pool: coreset, ProbCover, TypiClust."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from teeter.errors import InputError, MissingOutputError
from teeter.kernels.clustering import typical_rows
from teeter.kernels.distances import Cosine
from teeter.kernels.kcenter import k_center
from teeter.kernels.kmeans import k_means
from teeter.kernels.probcover import probcover, purity_radius
from teeter.strategies.base import Context, Strategy, registry
from teeter.strategies.validation import is_count, is_number

__all__ = ["CoreSet", "ProbCover", "TypiClust"]


@registry.register("coreset")
@dataclass(frozen=True, kw_only=True)
class CoreSet(Strategy):
    """Rows that are each the farthest from the labelled rows and earlier picks: k-center [Sener and Savarese 2018]."""

    needs = frozenset({"features", "labelled"})

    def choose(self, context: Context, n: int) -> Tensor:
        """Return the farthest row, then the farthest from both, and so on."""
        return k_center(context.features, _labelled_features(context), n)


@registry.register("probcover")
@dataclass(frozen=True, kw_only=True)
class ProbCover(Strategy):
    """Rows in whose balls most rows are not covered yet by a labelled row or a pick [Yehuda et al. 2022]."""

    needs = frozenset({"features"})
    uses = frozenset({"labelled"})
    radius: float | None = None
    """Of the balls, between rows of length 1; found from the rows' clusters if left out."""
    purity: float = 0.95
    """The share of balls that hold rows of one cluster only."""

    def __post_init__(self) -> None:
        """Refuse options that mean nothing."""
        if self.radius is not None and not (is_number(self.radius) and 0 < self.radius < math.inf):
            raise InputError(f"radius is {self.radius!r}: it must be a positive number.")
        if not (is_number(self.purity) and 0 < self.purity <= 1):
            raise InputError(f"purity is {self.purity!r}: it must be a share above 0, up to 1.")

    def choose(self, context: Context, n: int) -> Tensor:
        """Return the row that covers most, then the row that covers most of what is left, and so on."""
        radius = self._found_radius(context) if self.radius is None else self.radius
        return probcover(context.features, radius, n, centres=_labelled_features(context))

    def _found_radius(self, context: Context) -> float:
        if context.n_classes is None:
            raise InputError(
                "probcover finds its radius from the number of classes, and nothing tells it: pass radius=."
            )
        clusters = min(context.n_classes, len(context))
        labels, _, _ = k_means(
            Cosine(context.features).units, clusters, generator=context.generator
        )
        return purity_radius(context.features, labels, self.purity)


@registry.register("typiclust")
@dataclass(frozen=True, kw_only=True)
class TypiClust(Strategy):
    """The most typical rows of the clusters that have the fewest labelled rows, a cold start [Hacohen et al. 2022]."""

    needs = frozenset({"features"})
    uses = frozenset({"labelled"})
    neighbours: int = 20
    """A row is typical if these many rows of its cluster are near."""
    max_clusters: int = 500

    def __post_init__(self) -> None:
        """Refuse options that mean nothing."""
        for name in ("neighbours", "max_clusters"):
            if not is_count(getattr(self, name)):
                raise InputError(
                    f"{name} is {getattr(self, name)!r}: it must be a whole number from 1 up."
                )

    def choose(self, context: Context, n: int) -> Tensor:
        """Return a row of each cluster, one cluster for each labelled row and each pick."""
        labelled = _labelled_features(context)
        features = torch.cat([context.features, labelled])
        clusters, _, _ = k_means(
            features,
            min(len(labelled) + n, self.max_clusters, len(features)),
            generator=context.generator,
        )
        free = torch.arange(len(features), device=features.device) < len(context)
        return typical_rows(features, clusters, free, n, neighbours=self.neighbours)


def _labelled_features(context: Context) -> Tensor:
    """Return the labelled rows' features, none if there are no labelled rows: (L, D)."""
    if context.labelled is None:
        return context.features[:0]
    features = context.labelled.features
    if features is None:
        raise MissingOutputError(
            "The labelled rows have no features, and the candidates have: give both."
        )
    return features.to(context.features)
