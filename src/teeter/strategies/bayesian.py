"""Rows on which samples of the model disagree: DBAL, BatchBALD, ensembles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from teeter.errors import InputError
from teeter.kernels.bald import mutual_information, variation_ratio
from teeter.kernels.batchbald import batch_bald
from teeter.strategies.base import Context, ScoringStrategy, TopKStrategy, registry
from teeter.strategies.validation import is_count

__all__ = ["BatchBald", "Dbal", "Ensemble"]


@registry.register("dbal")
@dataclass(frozen=True, kw_only=True)
class Dbal(TopKStrategy):
    """Rows whose label would tell the most of the model, by dropout passes [Houlsby et al. 2011, Gal et al. 2017]."""

    needs = frozenset({"dropout_logits"})
    best: ClassVar[Literal["largest"]] = "largest"

    def score(self, context: Context) -> Tensor:
        """Return the mutual information of label and dropout pass in nats."""
        return mutual_information(context.posterior_logits)


@registry.register("ensemble")
@dataclass(frozen=True, kw_only=True)
class Ensemble(TopKStrategy):
    """Rows on which the fewest networks of an ensemble agree: variation ratio [Beluch et al. 2018]."""

    needs = frozenset({"ensemble_logits"})
    best: ClassVar[Literal["largest"]] = "largest"

    def score(self, context: Context) -> Tensor:
        """Return the share of networks outvoted."""
        return variation_ratio(context.posterior_logits)


@registry.register("batchbald")
@dataclass(frozen=True, kw_only=True)
class BatchBald(ScoringStrategy):
    """Rows whose labels would, together, tell the most of the model [Kirsch et al. 2019]."""

    needs = frozenset({"dropout_logits"})
    best: ClassVar[Literal["largest"]] = "largest"

    configurations: int = 100_000
    """Labels that a batch may turn out to have: all of them if they are as many at most, else so many drawn."""

    def __post_init__(self) -> None:
        """Refuse options that mean nothing."""
        if not is_count(self.configurations):
            raise InputError(
                f"Cannot try {self.configurations!r} configurations: ask for a whole number from 1 up."
            )

    def score(self, context: Context) -> Tensor:
        """Return the mutual information of a row's own label and the dropout pass in nats."""
        return mutual_information(context.posterior_logits)

    def choose(self, context: Context, n: int) -> Tensor:
        """Return the row of largest score, then those that add the most to the rows before them."""
        context.notes["score"] = self.score(context)
        return batch_bald(
            context.posterior_logits,
            n,
            generator=context.generator,
            configurations=int(self.configurations),
        )
