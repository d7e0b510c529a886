"""Bayesian strategies: rows on which samples of the model disagree (DBAL, BatchBALD, ensembles)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from teeter.errors import InputError
from teeter.kernels.bald import batch_bald, mutual_information, variation_ratio
from teeter.strategies.base import Context, ScoringStrategy, TopKStrategy, is_count, registry

__all__ = ["BatchBald", "Dbal", "Ensemble"]


@registry.register("dbal")
@dataclass(frozen=True, kw_only=True)
class Dbal(TopKStrategy):
    """Pick rows whose labels tell most about the model, by dropout [Houlsby 2011, Gal 2017]."""

    needs = frozenset({"dropout_logits"})
    best: ClassVar[Literal["largest"]] = "largest"

    def score(self, context: Context) -> Tensor:
        """Return the mutual information between the label and the dropout mask, in nats."""
        # I(y; w) = H(mean over w of p(y | w)) - mean over w of H(p(y | w)), over S dropout masks w.
        # Large if each mask is sure of a class and the masks disagree. At most log S.
        return mutual_information(context.posterior_logits)


@registry.register("ensemble")
@dataclass(frozen=True, kw_only=True)
class Ensemble(TopKStrategy):
    """Pick rows on which an ensemble of networks agrees least [Beluch et al. 2018]."""

    needs = frozenset({"ensemble_logits"})
    best: ClassVar[Literal["largest"]] = "largest"

    def score(self, context: Context) -> Tensor:
        """Return the share of networks outside the majority."""
        # v = 1 - (votes of the most frequent class) / S. It has fewer than S different values, so
        # many rows tie; ties go to the lowest row.
        return variation_ratio(context.posterior_logits)


@registry.register("batchbald")
@dataclass(frozen=True, kw_only=True)
class BatchBald(ScoringStrategy):
    """Pick rows whose labels together tell most about the model [Kirsch et al. 2019]."""

    needs = frozenset({"dropout_logits"})
    best: ClassVar[Literal["largest"]] = "largest"

    configurations: int = 100_000
    """The most label configurations of a batch to enumerate. Beyond it, this many are sampled."""

    def __post_init__(self) -> None:
        """Validate the options."""
        if not is_count(self.configurations):
            raise InputError(
                f"configurations is {self.configurations!r}: it must be a whole number of 1 or "
                f"more."
            )

    def score(self, context: Context) -> Tensor:
        """Return the mutual information between a row's own label and the dropout mask, in nats."""
        # What a row is worth alone, and so its gain as the first pick of a batch.
        return mutual_information(context.posterior_logits)

    def choose(self, context: Context, n: int) -> Tensor:
        """Return the row of largest score, then the rows that add most to those before them."""
        context.notes["score"] = self.score(context)

        # Algorithm 1 of the paper: greedily add the row that maximises I(y_1, ..., y_n; w). The
        # information is submodular, so this reaches at least 1 - 1/e of the best batch.
        return batch_bald(
            context.posterior_logits,
            n,
            generator=context.generator,
            max_configurations=int(self.configurations),
        )
