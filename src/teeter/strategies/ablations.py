"""The ablations of the LDM paper: LDM-S without one of its parts, or LDM in another strategy.

``ldm`` leaves out the seeding, ``seeding-cosine`` and ``seeding-l2`` leave out the metric,
``entropy-s`` and ``margin-s`` replace it by another score, and ``ldm-fass`` and
``ldm-cluster-margin`` put it into strategies of others. They show what each part adds; listings
group them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from teeter.kernels.distances import Cosine, Distance, Euclidean
from teeter.kernels.seeding import ldm_seeding, seed_rows
from teeter.kernels.uncertainty import entropy, margin
from teeter.strategies.base import Context, ScoringStrategy, Strategy, TopKStrategy, registry
from teeter.strategies.diverse import CandidateFilter, ClusterOptions
from teeter.strategies.ldm import LdmEstimator, estimate_ldm

__all__ = [
    "EntropyS",
    "Ldm",
    "LdmClusterMargin",
    "LdmFass",
    "MarginS",
    "SeedingCosine",
    "SeedingL2",
]


@registry.register("ldm")
class Ldm(LdmEstimator, TopKStrategy):
    """Pick the rows with the smallest least disagree metric, even if similar [Cho et al. 2024]."""

    needs = frozenset({"features", "head"})
    labels_per_row = "any"
    best: ClassVar[Literal["smallest"]] = "smallest"

    def score(self, context: Context) -> Tensor:
        """Return the least disagree metric."""
        return estimate_ldm(self, context)


@registry.register("seeding-cosine")
class SeedingCosine(Strategy):
    """Draw rows by squared cosine distance to earlier picks [Arthur and Vassilvitskii 2007]."""

    needs = frozenset({"features"})
    labels_per_row = "any"

    def choose(self, context: Context, n: int) -> Tensor:
        """Return a uniformly drawn first row, then rows drawn by distance."""
        return _seed_by_distance(Cosine(context.features), context, n)


@registry.register("seeding-l2")
class SeedingL2(Strategy):
    """Draw rows by squared Euclidean distance to earlier picks [Arthur and Vassilvitskii 2007]."""

    needs = frozenset({"features"})
    labels_per_row = "any"

    def choose(self, context: Context, n: int) -> Tensor:
        """Return a uniformly drawn first row, then rows drawn by distance."""
        return _seed_by_distance(Euclidean(context.features), context, n)


class _ScoreSeeding(ScoringStrategy):
    """LDM-Seeding with another score instead of LDM."""

    needs = frozenset({"logits", "features"})
    best: ClassVar[Literal["smallest"]] = "smallest"

    def choose(self, context: Context, n: int) -> Tensor:
        """Return the most uncertain row, then rows drawn by weight and distance."""
        scores = self.score(context)
        context.notes["score"] = scores
        return ldm_seeding(scores, context.features, n, generator=context.generator)


@registry.register("entropy-s")
class EntropyS(_ScoreSeeding):
    """LDM-Seeding with entropy instead of LDM [Cho et al. 2024]."""

    def score(self, context: Context) -> Tensor:
        """Return one minus the normalised entropy: 0 if all classes are equally probable."""
        # LDM-Seeding prefers small scores in [0, 1], like an LDM. The entropy is at most log C, so
        # 1 - H / log C is such a score; rounding can push it just below 0.
        n_classes = context.logits.shape[1]
        normalised_entropy = entropy(context.logits) / math.log(n_classes)
        return (1 - normalised_entropy).clamp_min(0)


@registry.register("margin-s")
class MarginS(_ScoreSeeding):
    """LDM-Seeding with the margin instead of LDM [Cho et al. 2024]."""

    def score(self, context: Context) -> Tensor:
        """Return the difference between the two largest probabilities."""
        return margin(context.logits)


@registry.register("ldm-fass")
@dataclass(frozen=True, kw_only=True)
class LdmFass(CandidateFilter, LdmEstimator, ScoringStrategy):
    """FASS with the least disagree metric instead of entropy [Cho et al. 2024]."""

    needs = frozenset({"features", "head"})
    best: ClassVar[Literal["smallest"]] = "smallest"

    def __post_init__(self) -> None:
        """Validate the options."""
        CandidateFilter.__post_init__(self)
        LdmEstimator.__post_init__(self)

    def score(self, context: Context) -> Tensor:
        """Return the least disagree metric."""
        return estimate_ldm(self, context)

    def choose(self, context: Context, n: int) -> Tensor:
        """Return the rows that best represent the most uncertain ones."""
        order = self.score(context).argsort(stable=True)
        return self.representatives(order, context.features, n)


@registry.register("ldm-cluster-margin")
@dataclass(frozen=True, kw_only=True)
class LdmClusterMargin(ClusterOptions, LdmEstimator, ScoringStrategy):
    """Cluster-Margin with the least disagree metric instead of the margin [Cho et al. 2024]."""

    needs = frozenset({"features", "head"})
    best: ClassVar[Literal["smallest"]] = "smallest"

    def __post_init__(self) -> None:
        """Validate the options."""
        ClusterOptions.__post_init__(self)
        LdmEstimator.__post_init__(self)

    def score(self, context: Context) -> Tensor:
        """Return the least disagree metric."""
        return estimate_ldm(self, context)

    def choose(self, context: Context, n: int) -> Tensor:
        """Return rows of small LDM, round-robin over their clusters."""
        return self.spread(self.score(context), context, n)


def _seed_by_distance(distance: Distance, context: Context, n: int) -> Tensor:
    """Return n positions by k-means++ seeding in which every row has the same weight."""
    generator = context.generator

    # Step 1a of k-means++: the first centre is uniform over the rows.
    first = int(torch.randint(len(context), (), generator=generator, device=generator.device))

    # Step 1b: each next centre is x with probability d(x)^2 / sum of d^2, where d is the distance
    # to the nearest centre. Weight 1, so logarithm 0, leaves only the distances.
    equal = torch.zeros(len(context), dtype=torch.float64, device=context.features.device)
    return seed_rows(
        distance,
        n,
        first=first,
        log_weights=equal,
        preference=equal,
        generator=generator,
    )
