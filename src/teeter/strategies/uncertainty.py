"""Rows of which the model is unsure, by its probabilities alone; and Random, which everything is measured against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from teeter.kernels import uncertainty
from teeter.seeds import uniform
from teeter.strategies.base import Context, Strategy, TopKStrategy, registry

__all__ = ["Entropy", "LeastConfidence", "Margin", "Random"]


@registry.register("random")
@dataclass(frozen=True, kw_only=True)
class Random(Strategy):
    """Rows drawn uniformly, without replacement."""

    needs = frozenset()

    def choose(self, context: Context, n: int) -> Tensor:
        """Return the rows of the n smallest uniform draws."""
        return uniform((len(context),), context.generator, torch.device("cpu")).argsort(
            stable=True
        )[:n]


@registry.register("entropy")
@dataclass(frozen=True, kw_only=True)
class Entropy(TopKStrategy):
    """Rows whose predicted probabilities have the largest entropy [Shannon 1948]."""

    needs = frozenset({"logits"})
    best: ClassVar[Literal["largest"]] = "largest"
    alone: ClassVar[bool] = True

    def score(self, context: Context) -> Tensor:
        """Return the entropy in nats."""
        return uncertainty.entropy(context.logits)


@registry.register("margin")
@dataclass(frozen=True, kw_only=True)
class Margin(TopKStrategy):
    """Rows whose two most probable classes are the closest [Scheffer et al. 2001]."""

    needs = frozenset({"logits"})
    best: ClassVar[Literal["smallest"]] = "smallest"
    alone: ClassVar[bool] = True

    def score(self, context: Context) -> Tensor:
        """Return the difference of the two largest probabilities."""
        return uncertainty.margin(context.logits)


@registry.register("least-confidence")
@dataclass(frozen=True, kw_only=True)
class LeastConfidence(TopKStrategy):
    """Rows whose most probable class is the least probable [Lewis and Gale 1994]."""

    needs = frozenset({"logits"})
    best: ClassVar[Literal["largest"]] = "largest"
    alone: ClassVar[bool] = True

    def score(self, context: Context) -> Tensor:
        """Return one minus the largest probability."""
        return uncertainty.least_confidence(context.logits)
