"""Bayesian strategies: rows on which samples of the model disagree (DBAL, BatchBALD, ensembles)."""

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
    """BALD with dropout: the labels that inform most about the model [Houlsby 2011, Gal 2017]."""

    needs = frozenset({"dropout_logits"})
    best: ClassVar[Literal["largest"]] = "largest"

    def score(self, context: Context) -> Tensor:
        """Return the mutual information between the label and the dropout mask, in nats."""
        return mutual_information(context.posterior_logits)


@registry.register("ensemble")
@dataclass(frozen=True, kw_only=True)
class Ensemble(TopKStrategy):
    """Variation ratio: rows on which an ensemble of networks agrees least [Beluch et al. 2018]."""

    needs = frozenset({"ensemble_logits"})
    best: ClassVar[Literal["largest"]] = "largest"

    def score(self, context: Context) -> Tensor:
        """Return the share of networks outside the majority."""
        return variation_ratio(context.posterior_logits)


@registry.register("batchbald")
@dataclass(frozen=True, kw_only=True)
class BatchBald(ScoringStrategy):
    """BatchBALD: rows whose joint labels inform most about the model [Kirsch et al. 2019]."""

    needs = frozenset({"dropout_logits"})
    best: ClassVar[Literal["largest"]] = "largest"

    configurations: int = 100_000
    """The most label configurations of a batch to enumerate. Beyond it, this many are sampled."""

    def __post_init__(self) -> None:
        """Validate the options."""
        if not is_count(self.configurations):
            raise InputError(
                f"configurations is {self.configurations!r}: it must be a whole number from 1 up."
            )

    def score(self, context: Context) -> Tensor:
        """Return the mutual information between a row's own label and the dropout mask, in nats."""
        return mutual_information(context.posterior_logits)

    def choose(self, context: Context, n: int) -> Tensor:
        """Return the row of largest score, then the rows that add most to those before them."""
        context.notes["score"] = self.score(context)
        return batch_bald(
            context.posterior_logits,
            n,
            generator=context.generator,
            configurations=int(self.configurations),
        )
