"""Strategies that cover the pool: CoreSet, ProbCover and TypiClust."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from teeter.errors import InputError, MissingOutputError
from teeter.kernels.clustering import typical_rows
from teeter.kernels.distances import Cosine
from teeter.kernels.kcenter import k_center
from teeter.kernels.kmeans import k_means
from teeter.kernels.probcover import probcover, purity_radius
from teeter.strategies.base import Context, Strategy, is_count, is_number, is_positive, registry


@registry.register("coreset")
class CoreSet(Strategy):
    """Pick the row farthest from labelled rows and earlier picks, each time [Sener 2018]."""

    needs = frozenset({"features", "labelled"})

    def choose(self, context: Context, n: int) -> Tensor:
        """Return the farthest row, then the row farthest from all before it, and so on."""
        # Algorithm 1 of the paper (k-Center-Greedy): u = argmax over i of the minimum over labelled
        # rows and picks j of |z_i - z_j|.
        return k_center(context.features, _labelled_features(context), n)


@registry.register("probcover")
@dataclass(frozen=True, kw_only=True)
class ProbCover(Strategy):
    """Pick rows whose ball covers the most rows not covered yet [Yehuda et al. 2022]."""

    needs = frozenset({"features"})
    optional_needs = frozenset({"labelled"})
    radius: float | None = None
    """Radius of the balls, for features scaled to length 1. By default from ``purity``."""
    purity: float = 0.95
    """The share of balls whose rows must all be of one cluster, which sets the default radius."""

    def __post_init__(self) -> None:
        """Validate the options."""
        if self.radius is not None and not is_positive(self.radius):
            raise InputError(f"radius is {self.radius!r}: it must be a positive number.")
        if not (is_number(self.purity) and 0 < self.purity <= 1):
            raise InputError(f"purity is {self.purity!r}: it must be greater than 0 and at most 1.")

    def choose(self, context: Context, n: int) -> Tensor:
        """Return the row that covers most, then the row that covers most of the rest, and so on."""
        radius = self.radius
        if radius is None:
            radius = self._estimate_radius(context)

        # Algorithm 1 of the paper: in the graph that joins rows closer than the radius, drop the
        # edges into covered rows and pick the row of largest out-degree.
        return probcover(
            context.features,
            radius,
            n,
            centres=_labelled_features(context),
        )

    def _estimate_radius(self, context: Context) -> float:
        if context.n_classes is None:
            raise InputError(
                "probcover derives its radius from the number of classes, which is unknown: pass "
                "radius=."
            )

        # The paper's estimate of delta: the largest radius at which the share ``purity`` of balls
        # holds one pseudo-class, with k-means clusters of the unit vectors as pseudo-classes.
        n_clusters = min(context.n_classes, len(context))
        units = Cosine(context.features).units
        clusters, _, _ = k_means(units, n_clusters, generator=context.generator)
        return purity_radius(context.features, clusters, self.purity)


@registry.register("typiclust")
@dataclass(frozen=True, kw_only=True)
class TypiClust(Strategy):
    """Pick typical rows of clusters with few labels, for a cold start [Hacohen et al. 2022]."""

    needs = frozenset({"features"})
    optional_needs = frozenset({"labelled"})
    neighbours: int = 20
    """A row is typical if this many rows of its cluster are near."""
    max_clusters: int = 500
    """The most clusters, which bounds the cost of k-means."""

    def __post_init__(self) -> None:
        """Validate the options."""
        for name in ("neighbours", "max_clusters"):
            value = getattr(self, name)
            if not is_count(value):
                raise InputError(f"{name} is {value!r}: it must be a whole number of 1 or more.")

    def choose(self, context: Context, n: int) -> Tensor:
        """Return one row per cluster. There is a cluster for each labelled row and each pick."""
        labelled = _labelled_features(context)
        features = torch.cat([context.features, labelled])

        # Step 2 of TypiClust: |L| + B clusters, so at least B of them hold no labelled row.
        n_clusters = min(len(labelled) + n, self.max_clusters, len(features))
        clusters, _, _ = k_means(features, n_clusters, generator=context.generator)

        # The candidates come first, the labelled rows after them.
        positions = torch.arange(len(features), device=features.device)
        is_candidate = positions < len(context)

        # Step 3: from the largest uncovered clusters, the row of largest typicality, the inverse of
        # the mean distance to its nearest neighbours.
        return typical_rows(
            features,
            clusters,
            is_candidate,
            n,
            neighbours=self.neighbours,
        )


def _labelled_features(context: Context) -> Tensor:
    """Return the features of the labelled rows, (L, D), with L = 0 if there are none."""
    if context.labelled is None:
        return context.features[:0]
    features = context.labelled.features
    if features is None:
        raise MissingOutputError("The candidates have features, but the labelled rows have none.")
    return features.to(context.features)
