"""Strategies that rank rows by predicted probabilities, and the baseline Random."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from teeter.base.seeds import uniform
from teeter.kernels import uncertainty
from teeter.strategies.base import Context, Strategy, TopKStrategy, registry

__all__ = ["Entropy", "LeastConfidence", "Margin", "Random"]


@registry.register("random")
@dataclass(frozen=True, kw_only=True)
class Random(Strategy):
    """Pick rows uniformly at random, without replacement."""

    needs = frozenset()

    def choose(self, context: Context, n: int) -> Tensor:
        """Return the positions of the n smallest of N uniform draws."""
        # Sorting one draw per row, instead of drawing n rows, keeps the picks nested: with the same
        # seed the picks for n are the first n of the picks for any larger number.
        draws = uniform((len(context),), context.generator, torch.device("cpu"))
        order = draws.argsort(stable=True)
        return order[:n]


@registry.register("entropy")
@dataclass(frozen=True, kw_only=True)
class Entropy(TopKStrategy):
    """Pick the rows whose predicted probabilities have the largest entropy [Shannon 1948]."""

    needs = frozenset({"logits"})
    best: ClassVar[Literal["largest"]] = "largest"
    row_independent: ClassVar[bool] = True

    def score(self, context: Context) -> Tensor:
        """Return the entropy in nats."""
        # H(y | x) = -sum over c of p_c log p_c, at most log C.
        return uncertainty.entropy(context.logits)


@registry.register("margin")
@dataclass(frozen=True, kw_only=True)
class Margin(TopKStrategy):
    """Pick the rows whose two most probable classes are closest [Scheffer et al. 2001]."""

    needs = frozenset({"logits"})
    best: ClassVar[Literal["smallest"]] = "smallest"
    row_independent: ClassVar[bool] = True

    def score(self, context: Context) -> Tensor:
        """Return the difference between the two largest probabilities."""
        # p_(1) - p_(2), the most probable class minus the second. With two classes the order is
        # that of the entropy.
        return uncertainty.margin(context.logits)


@registry.register("least-confidence")
@dataclass(frozen=True, kw_only=True)
class LeastConfidence(TopKStrategy):
    """Pick the rows whose predicted class is least probable [Lewis and Gale 1994]."""

    needs = frozenset({"logits"})
    best: ClassVar[Literal["largest"]] = "largest"
    row_independent: ClassVar[bool] = True

    def score(self, context: Context) -> Tensor:
        """Return one minus the largest probability."""
        # 1 - p_(1), the probability that the prediction is wrong if the model is calibrated.
        return uncertainty.least_confidence(context.logits)
