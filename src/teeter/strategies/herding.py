"""Herding: rows that cover the pool, or what the model is unsure of, with few labels.

A label tells most about rows that are like it. MaxHerding picks the rows that are like the most
others, and UHerding those that are like the most uncertain others. Both leave out what labelled
rows cover.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from teeter.base.seeds import uniform
from teeter.errors import InputError
from teeter.kernels.facility_location import herd
from teeter.kernels.uncertainty import class_weights, margin
from teeter.strategies.base import Context, Strategy, registry, require_counts
from teeter.strategies.ldm import LdmS

__all__ = [
    "HerdingLdmS",
    "HerdingOptions",
    "MaxHerding",
    "UHerding",
]

_UNCERTAIN = 0.5
"""Rows of at least this uncertainty are counted in the notes."""


@dataclass(frozen=True, kw_only=True)
class HerdingOptions:
    """Pick rows that cover the rows of large weight."""

    sample: int = 20_000
    """The most rows to pick from and to cover, in O(sample²) time. More rows are sampled."""

    def __post_init__(self) -> None:
        """Validate the options."""
        require_counts(self, "sample")

    def cover(
        self,
        weights: Tensor,
        uncertainty: Tensor,
        context: Context,
        n: int,
    ) -> Tensor:
        """Return n rows that cover the others, and note how many uncertain rows each covers.

        Args:
            weights: (N,) how much it matters that a row is covered.
            uncertainty: (N,) from 0 to 1.
            context: the candidates, and the rows that cover others already.
            n: the number of picks.

        Returns:
            (n,) positions.
        """
        features = context.features
        rows = torch.arange(len(context), device=features.device)
        n_rows = max(self.sample, n)
        if len(context) > n_rows:
            draws = uniform((len(context),), context.generator, torch.device("cpu"))
            shuffled = draws.argsort(stable=True)
            rows = shuffled[:n_rows].sort().values.to(features.device)

        centres = context.labelled_features
        if context.waiting is not None:
            centres = torch.cat([centres, context.waiting.to(features)])
        picks, covered_by = herd(features[rows], n, weights=weights[rows], centres=centres)

        # How many uncertain rows are nearer to a pick than to a label or another pick.
        is_counted = (uncertainty[rows] >= _UNCERTAIN) & (covered_by >= 0)
        counts = torch.bincount(covered_by[is_counted], minlength=n)
        covers = torch.zeros(len(context), device=features.device)
        covers[rows[picks]] = counts.to(covers)
        context.notes["covers"] = covers
        return rows[picks]


@registry.register("maxherding")
@dataclass(frozen=True, kw_only=True)
class MaxHerding(HerdingOptions, Strategy):
    """Pick rows that are similar to the most rows not covered yet [Bae et al. 2024]."""

    needs = frozenset({"features"})
    optional_needs = frozenset({"labelled", "waiting"})
    labels_per_row = "any"

    def choose(self, context: Context, n: int) -> Tensor:
        """Return the row that covers most, then the row that covers most of the rest, and so on."""
        # Algorithm 1 of the paper with a Gaussian kernel on rows of length 1. All rows count the
        # same.
        equal = torch.ones(len(context), device=context.features.device)
        return self.cover(equal, equal, context, n)


@registry.register("uherding")
@dataclass(frozen=True, kw_only=True)
class UHerding(HerdingOptions, Strategy):
    """Pick rows that are similar to the most uncertain rows not covered yet [Bae et al. 2025]."""

    needs = frozenset({"logits", "features"})
    optional_needs = frozenset({"labelled", "waiting"})

    class_weights: bool = True
    """Whether rows of classes that are seldom predicted count more. The paper has no such weights.
    """

    def __post_init__(self) -> None:
        """Validate the options."""
        super().__post_init__()
        if not isinstance(self.class_weights, bool):
            raise InputError(f"class_weights is {self.class_weights!r}: it must be True or False.")

    def choose(self, context: Context, n: int) -> Tensor:
        """Return the row that covers most, then the row that covers most of the rest, and so on."""
        # Algorithm 1 of the paper with the margin as uncertainty, at temperature 1 and with a
        # kernel of constant width: the paper fits both to the labels, of which there are few.
        uncertainty = 1 - margin(context.logits)
        weights = uncertainty
        if self.class_weights:
            weights = uncertainty * class_weights(context.logits)
        return self.cover(weights, uncertainty, context, n)


@registry.register("herding-ldm-s")
@dataclass(frozen=True, kw_only=True)
class HerdingLdmS(UHerding):
    """Pick by uncertainty herding while labels are few, then by LDM-S [Cho et al. 2024]."""

    needs = frozenset({"logits", "features", "head"})

    labels_per_class: int = 8
    """LDM-S picks from this many labels per class on, on average over the classes of the model."""

    def __post_init__(self) -> None:
        """Validate the options."""
        super().__post_init__()
        require_counts(self, "labels_per_class")

    def choose(self, context: Context, n: int) -> Tensor:
        """Return the rows that the strategy for this number of labels picks."""
        n_labels = len(context.labelled_features)
        n_classes = context.logits.shape[1]
        if n_labels >= self.labels_per_class * n_classes:
            return LdmS().choose(context, n)
        return super().choose(context, n)
