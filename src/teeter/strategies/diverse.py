"""Picks that differ from each other: rows that cover the pool, and uncertain rows that are diverse.

CoreSet, ProbCover and TypiClust look at the features alone. Cluster-Margin takes uncertain rows
from different clusters, FASS takes those that best represent the others. BADGE and BAIT compare
rows by the gradient of the last layer, which is large for uncertain rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from teeter.errors import InputError, MissingOutputError
from teeter.kernels.badge import seed_gradients
from teeter.kernels.bait import Form, bait
from teeter.kernels.clustering import average_linkage, round_robin, typical_rows
from teeter.kernels.distances import Cosine
from teeter.kernels.facility_location import facility_location
from teeter.kernels.kcenter import k_center
from teeter.kernels.kmeans import k_means
from teeter.kernels.probcover import probcover, purity_radius
from teeter.kernels.uncertainty import entropy, margin
from teeter.strategies.base import (
    Context,
    ScoringStrategy,
    Strategy,
    is_count,
    is_number,
    is_positive,
    registry,
    require_counts,
)

__all__ = [
    "Badge",
    "Bait",
    "CandidateFilter",
    "ClusterMargin",
    "ClusterOptions",
    "CoreSet",
    "Fass",
    "ProbCover",
    "TypiClust",
]


@registry.register("coreset")
class CoreSet(Strategy):
    """Pick the row farthest from labelled rows and earlier picks, each time [Sener 2018]."""

    needs = frozenset({"features", "labelled"})
    labels_per_row = "any"

    def choose(self, context: Context, n: int) -> Tensor:
        """Return the farthest row, then the row farthest from all before it, and so on."""
        # Algorithm 1 of the paper (k-Center-Greedy): u = argmax over i of the minimum over labelled
        # rows and picks j of |z_i - z_j|.
        return k_center(context.features, context.labelled_features, n)


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
            if context.n_classes is None:
                raise InputError(
                    "probcover derives its radius from the number of classes, which is unknown: "
                    "pass radius=."
                )

            # The paper's estimate of delta: the largest radius at which the share ``purity`` of
            # balls holds one pseudo-class, with k-means clusters of the unit vectors as
            # pseudo-classes.
            n_clusters = min(context.n_classes, len(context))
            units = Cosine(context.features).units
            clusters, _, _ = k_means(units, n_clusters, generator=context.generator)
            radius = purity_radius(context.features, clusters, self.purity)

        # Algorithm 1 of the paper: in the graph that joins rows closer than the radius, drop the
        # edges into covered rows and pick the row of largest out-degree.
        return probcover(
            context.features,
            radius,
            n,
            centres=context.labelled_features,
        )


@registry.register("typiclust")
@dataclass(frozen=True, kw_only=True)
class TypiClust(Strategy):
    """Pick typical rows of clusters with few labels, for a cold start [Hacohen et al. 2022]."""

    needs = frozenset({"features"})
    optional_needs = frozenset({"labelled"})
    labels_per_row = "any"
    neighbours: int = 20
    """A row is typical if this many rows of its cluster are near."""
    max_clusters: int = 500
    """The most clusters, which bounds the cost of k-means."""

    def __post_init__(self) -> None:
        """Validate the options."""
        require_counts(self, "neighbours", "max_clusters")

    def choose(self, context: Context, n: int) -> Tensor:
        """Return one row per cluster. There is a cluster for each labelled row and each pick."""
        labelled = context.labelled_features
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


# Keys of the memory that lasts from round to round.
_ROWS = "clustered_rows"
_CLUSTERS = "clusters"


@dataclass(frozen=True, kw_only=True)
class ClusterOptions:
    """Spread the most uncertain rows over clusters of the features."""

    cluster_size: int = 10
    """The average number of rows in a cluster."""
    sample: int = 5000
    """The most rows to cluster, in O(sample²) memory. Other rows join the nearest cluster."""
    candidates_per_pick: int = 10
    """The number of most uncertain rows to consider for each pick."""

    def __post_init__(self) -> None:
        """Validate the options."""
        require_counts(self, "cluster_size", "candidates_per_pick")

        # The distances to link need at least two rows.
        if not is_count(self.sample) or self.sample < 2:
            raise InputError(f"sample is {self.sample!r}: it must be a whole number of 2 or more.")

    def spread(self, uncertainty: Tensor, context: Context, n: int) -> Tensor:
        """Pick n uncertain rows round-robin from their clusters, smallest cluster first.

        Args:
            uncertainty: (N,) scores; the smallest is the most uncertain.
            context: the candidates.
            n: the number of picks.

        Returns:
            (n,) positions.
        """
        # Algorithm 1 of Citovsky et al., step 1: the k_m most uncertain rows, k_m a multiple of n.
        n_uncertain = self.candidates_per_pick * n
        ranked = uncertainty.argsort(stable=True)[:n_uncertain]

        # Step 2: round-robin over the clusters of these rows. Cluster sizes count only the
        # uncertain rows, so a crowded region does not fill the batch.
        clusters = self._clusters(context).to(ranked.device)
        picks = round_robin(clusters[ranked], n).to(ranked.device)
        return ranked[picks]

    def _clusters(self, context: Context) -> Tensor:
        """Return the cluster of each candidate, (N,).

        The paper clusters once, in the first round. Clusters are made again only if a candidate was
        not in the pool then.
        """
        clustered_rows = context.memory.get(_ROWS)
        if clustered_rows is not None:
            rows = clustered_rows.numpy()  # ascending, so that searchsorted finds a row's position

            # A row number above all clustered ones gets the position len(rows): clip it, and the
            # comparison below finds that it is a new row.
            positions = np.searchsorted(rows, context.candidates).clip(max=len(rows) - 1)
            if (rows[positions] == context.candidates).all():
                clusters_before: Tensor = context.memory[_CLUSTERS]
                return clusters_before[positions]

        n_clusters = max(1, len(context) // self.cluster_size)
        clusters = average_linkage(
            context.features,
            n_clusters,
            sample=self.sample,
            generator=context.generator,
        ).cpu()

        # Keyed by row number, because positions among the candidates change from round to round.
        order = context.candidates.argsort()
        context.memory[_ROWS] = torch.from_numpy(context.candidates[order])
        context.memory[_CLUSTERS] = clusters[torch.from_numpy(order)]
        return clusters


@registry.register("cluster-margin")
class ClusterMargin(ClusterOptions, ScoringStrategy):
    """Pick rows with small margins from different clusters [Citovsky et al. 2021]."""

    needs = frozenset({"logits", "features"})
    best: ClassVar[Literal["smallest"]] = "smallest"

    def score(self, context: Context) -> Tensor:
        """Return the difference between the two largest probabilities."""
        return margin(context.logits)

    def choose(self, context: Context, n: int) -> Tensor:
        """Return rows of small margin, round-robin over their clusters."""
        scores = self.score(context)
        context.notes["score"] = scores
        return self.spread(scores, context, n)


@dataclass(frozen=True, kw_only=True)
class CandidateFilter:
    """Reduce a pool to its most uncertain rows, then pick the rows that represent them."""

    candidates_per_pick: int = 5
    """The number of most uncertain rows to consider for each pick."""

    def __post_init__(self) -> None:
        """Validate the options."""
        require_counts(self, "candidates_per_pick")

    def representatives(self, order: Tensor, features: Tensor, n: int) -> Tensor:
        """Pick the n rows that best represent the most uncertain ones.

        Args:
            order: (N,) positions, most uncertain first.
            features: (N, D).
            n: the number of picks.

        Returns:
            (n,) positions, in the order of picking.
        """
        # Filter: only the most uncertain rows can be picked, and only they need representing.
        # Ascending positions, because facility location gives ties to its lowest row.
        n_uncertain = int(self.candidates_per_pick) * n
        uncertain = order[:n_uncertain].sort().values

        # Subset: greedily maximise f(A) = sum over i of max over j in A of the similarity of i, j.
        picks = facility_location(features[uncertain], n)
        return uncertain[picks]


@registry.register("fass")
class Fass(CandidateFilter, ScoringStrategy):
    """Pick rows that represent those with the largest entropy [Wei et al. 2015]."""

    needs = frozenset({"logits", "features"})
    best: ClassVar[Literal["largest"]] = "largest"

    def score(self, context: Context) -> Tensor:
        """Return the entropy in nats."""
        return entropy(context.logits)

    def choose(self, context: Context, n: int) -> Tensor:
        """Return the rows that best represent the most uncertain ones."""
        scores = self.score(context)
        context.notes["score"] = scores

        order = scores.argsort(stable=True, descending=True)
        return self.representatives(order, context.features, n)


@registry.register("badge")
class Badge(Strategy):
    """Pick rows whose loss gradients are large and diverse [Ash et al. 2020]."""

    needs = frozenset({"logits", "features"})
    labels_per_row = "any"

    def choose(self, context: Context, n: int) -> Tensor:
        """Return the row of largest gradient, then rows drawn by distance to earlier picks."""
        # Algorithm 1 of the paper: the gradient embedding of a row is (p - onehot(argmax p)) (x) z,
        # and k-means++ picks among the embeddings. Plain k-means++ starts with a random row; the
        # authors' code starts with the largest norm, and so does this one.
        # With several labels it is (p - [p > 1/2]) (x) z.
        return seed_gradients(
            context.logits,
            context.features,
            n,
            generator=context.generator,
            several=context.outputs.several,
        )


@registry.register("bait")
@dataclass(frozen=True, kw_only=True)
class Bait(Strategy):
    """Pick rows whose Fisher information for the head is nearest the pool's [Ash et al. 2021]."""

    form: Form = "exact"
    """The Fisher information: "exact", of the ``top`` classes only, or "binary"."""
    top: int = 2
    """The number of most probable classes of ``form="top"``."""
    regularisation: float = 1.0
    """Added to the diagonal of the labelled rows' Fisher information."""

    needs = frozenset({"logits", "features", "labelled"})

    def __post_init__(self) -> None:
        """Validate the options."""
        if self.form not in ("exact", "top", "binary"):
            raise InputError(f"bait has no form {self.form!r}: choose 'exact', 'top' or 'binary'.")
        require_counts(self, "top")
        if not is_positive(self.regularisation):
            raise InputError(
                f"regularisation is {self.regularisation!r}: it must be a positive number."
            )

    def choose(self, context: Context, n: int) -> Tensor:
        """Return n rows: 2n greedy picks, pruned back to n."""
        # Algorithm 1 of the paper: minimise tr((M + sum over picks of I(x))^-1 F), with F the
        # Fisher information of all rows and M that of the labelled ones plus lambda I.
        return bait(
            context.logits,
            context.features,
            n,
            labelled=_labelled_outputs(context),
            regularisation=self.regularisation,
            form=self.form,
            top=self.top,
        )


def _labelled_outputs(context: Context) -> tuple[Tensor, Tensor] | None:
    """Return logits (L, C) and features (L, D) of the labelled rows, or None if there are none."""
    if context.labelled is None or not len(context.labelled):
        return None

    labelled = context.labelled.with_logits()
    if labelled.logits is None:
        raise MissingOutputError("The candidates have logits, but the labelled rows have none.")
    if labelled.features is None:
        raise MissingOutputError("The candidates have features, but the labelled rows have none.")
    return labelled.logits, labelled.features
