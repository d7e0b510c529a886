"""Uncertain rows: by the probabilities of one model, or by how much samples of it disagree.

GALAXY looks for the boundary of each class by bisection between its labels and others.

Random, which every strategy is compared with, is here too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from teeter.base.seeds import uniform
from teeter.errors import MissingOutputError
from teeter.kernels import uncertainty
from teeter.kernels.bald import batch_bald, mutual_information, variation_ratio
from teeter.kernels.galaxy import bisect_lines
from teeter.strategies.base import (
    Context,
    ScoringStrategy,
    Strategy,
    TopKStrategy,
    registry,
    require_counts,
)

__all__ = [
    "BatchBald",
    "Dbal",
    "Ensemble",
    "Entropy",
    "Galaxy",
    "LeastConfidence",
    "Margin",
    "Random",
]


@registry.register("random")
class Random(Strategy):
    """Pick rows uniformly at random, without replacement."""

    needs = frozenset()
    labels_per_row = "any"

    def choose(self, context: Context, n: int) -> Tensor:
        """Return the positions of the n smallest of N uniform draws."""
        # Sorting one draw per row, instead of drawing n rows, keeps the picks nested: with the same
        # seed the picks for n are the first n of the picks for any larger number.
        draws = uniform((len(context),), context.generator, torch.device("cpu"))
        order = draws.argsort(stable=True)
        return order[:n]


@registry.register("entropy")
class Entropy(TopKStrategy):
    """Pick the rows whose predicted probabilities have the largest entropy [Shannon 1948]."""

    needs = frozenset({"logits"})
    labels_per_row = "any"
    best: ClassVar[Literal["largest"]] = "largest"
    row_independent: ClassVar[bool] = True

    def score(self, context: Context) -> Tensor:
        """Return the entropy in nats."""
        # H(y | x) = -sum over c of p_c log p_c, at most log C.
        return uncertainty.entropy(context.logits, several=context.outputs.several)


@registry.register("margin")
class Margin(TopKStrategy):
    """Pick the rows whose two most probable classes are closest [Scheffer et al. 2001]."""

    needs = frozenset({"logits"})
    labels_per_row = "any"
    best: ClassVar[Literal["smallest"]] = "smallest"
    row_independent: ClassVar[bool] = True

    def score(self, context: Context) -> Tensor:
        """Return the difference between the two largest probabilities."""
        # p_(1) - p_(2), the most probable class minus the second. With two classes the order is
        # that of the entropy. With several labels, the smallest |p_c - (1 - p_c)|.
        return uncertainty.margin(context.logits, several=context.outputs.several)


@registry.register("least-confidence")
class LeastConfidence(TopKStrategy):
    """Pick the rows whose predicted class is least probable [Lewis and Gale 1994]."""

    needs = frozenset({"logits"})
    best: ClassVar[Literal["largest"]] = "largest"
    row_independent: ClassVar[bool] = True

    def score(self, context: Context) -> Tensor:
        """Return one minus the largest probability."""
        # 1 - p_(1), the probability that the prediction is wrong if the model is calibrated.
        return uncertainty.least_confidence(context.logits)


@registry.register("galaxy")
class Galaxy(Strategy):
    """Pick rows between labels of a class and of others, class by class [Zhang et al. 2022]."""

    needs = frozenset({"logits", "labelled"})

    def choose(self, context: Context, n: int) -> Tensor:
        """Return the middle of the shortest path on the line of each class in turn."""
        if context.labelled is None or context.labelled.logits is None or context.labels is None:
            raise MissingOutputError(
                "galaxy looks between labels: pass labelled= with logits, and labels=."
            )

        # Algorithm 2 of the paper for one batch. Candidates come first, labelled rows after them.
        logits = torch.cat([context.logits, context.labelled.logits.to(context.logits)])
        probabilities = logits.double().softmax(dim=1).cpu().numpy()
        no_label = torch.full((len(context),), -1)
        labels = torch.cat([no_label, context.labels.cpu()]).numpy()

        draws = uniform((len(context),), context.generator, torch.device("cpu"))
        fallback = draws.argsort(stable=True).numpy()
        picks = bisect_lines(probabilities, labels, n, fallback=fallback)
        return torch.from_numpy(picks).to(context.logits.device)


@registry.register("dbal")
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
        require_counts(self, "configurations")

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
