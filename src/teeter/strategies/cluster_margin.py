"""Uncertain rows from different clusters: Cluster-Margin, and the same with LDM."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from teeter.errors import InputError
from teeter.kernels.clustering import average_linkage, round_robin
from teeter.kernels.uncertainty import margin
from teeter.strategies.base import Context, ScoringStrategy, registry
from teeter.strategies.ldm import LdmEstimator, estimate_ldm
from teeter.strategies.validation import is_count

__all__ = ["ClusterMargin", "ClusterOptions", "LdmClusterMargin"]

_ROWS, _CLUSTERS = "clustered_rows", "clusters"


@dataclass(frozen=True, kw_only=True)
class ClusterOptions:
    """How uncertain rows are spread over clusters."""

    cluster_size: int = 10
    """Rows of a cluster, on average."""
    sample: int = 5000
    """Clusters are made from so many rows at most, whose distances are all held; the others join the nearest."""
    candidates_per_pick: int = 10
    """For each pick so many of the most uncertain rows are looked at."""

    def __post_init__(self) -> None:
        """Refuse options that mean nothing."""
        for name in ("cluster_size", "candidates_per_pick"):
            if not is_count(getattr(self, name)):
                raise InputError(
                    f"{name} is {getattr(self, name)!r}: it must be a whole number from 1 up."
                )
        if not is_count(self.sample) or self.sample < 2:
            raise InputError(f"sample is {self.sample!r}: it must be a whole number from 2 up.")

    def spread(self, uncertainty: Tensor, context: Context, n: int) -> Tensor:
        """Return n of the rows of least ``uncertainty``, from their clusters in turn, the smallest first."""
        ranked = uncertainty.argsort(stable=True)[: self.candidates_per_pick * n]
        clusters = self._clusters(context).to(ranked.device)
        return ranked[round_robin(clusters[ranked], n).to(ranked.device)]

    def _clusters(self, context: Context) -> Tensor:
        """Return the candidates' clusters, (N,): those remembered, or new ones where a candidate has none."""
        known = context.memory.get(_ROWS)
        if known is not None:
            places = np.searchsorted(known.numpy(), context.candidates).clip(max=len(known) - 1)
            if (known.numpy()[places] == context.candidates).all():
                remembered: Tensor = context.memory[_CLUSTERS]
                return remembered[places]
        wanted = max(1, len(context) // self.cluster_size)
        clusters = average_linkage(
            context.features, wanted, sample=self.sample, generator=context.generator
        ).cpu()
        order = context.candidates.argsort()
        context.memory[_ROWS] = torch.from_numpy(context.candidates[order])
        context.memory[_CLUSTERS] = clusters[torch.from_numpy(order)]
        return clusters


@registry.register("cluster-margin")
@dataclass(frozen=True, kw_only=True)
class ClusterMargin(ClusterOptions, ScoringStrategy):
    """Rows of small margin taken from different clusters of the features, the smallest first [Citovsky et al. 2021]."""

    needs = frozenset({"logits", "features"})
    best: ClassVar[Literal["smallest"]] = "smallest"

    def score(self, context: Context) -> Tensor:
        """Return the difference of the two largest probabilities."""
        return margin(context.logits)

    def choose(self, context: Context, n: int) -> Tensor:
        """Return the rows of least margin, from their clusters in turn."""
        context.notes["score"] = self.score(context)
        return self.spread(context.notes["score"], context, n)


@registry.register("ldm-cluster-margin")
@dataclass(frozen=True, kw_only=True)
class LdmClusterMargin(ClusterOptions, LdmEstimator, ScoringStrategy):
    """Cluster-Margin with the least disagree metric in the place of the margin [Cho et al. 2024]."""

    needs = frozenset({"features", "head"})
    best: ClassVar[Literal["smallest"]] = "smallest"

    def __post_init__(self) -> None:
        """Refuse options that mean nothing."""
        ClusterOptions.__post_init__(self)
        LdmEstimator.__post_init__(self)

    def score(self, context: Context) -> Tensor:
        """Return the least disagree metric."""
        return estimate_ldm(self, context)

    def choose(self, context: Context, n: int) -> Tensor:
        """Return the rows of least LDM, from their clusters in turn."""
        return self.spread(self.score(context), context, n)
