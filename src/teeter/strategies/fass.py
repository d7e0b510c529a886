"""FASS: the rows that best represent the most uncertain ones, by entropy or by LDM."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from teeter.errors import InputError
from teeter.kernels import uncertainty
from teeter.kernels.facility_location import facility_location
from teeter.strategies.base import Context, ScoringStrategy, is_count, registry
from teeter.strategies.ldm import LdmEstimator, estimate_ldm

__all__ = ["CandidateFilter", "Fass", "LdmFass"]


@dataclass(frozen=True, kw_only=True)
class CandidateFilter:
    """Reduce a pool to its most uncertain rows, then pick the rows that represent them."""

    candidates_per_pick: int = 5
    """The number of most uncertain rows to consider for each pick."""

    def __post_init__(self) -> None:
        """Validate the options."""
        if not is_count(self.candidates_per_pick):
            raise InputError(
                f"candidates_per_pick is {self.candidates_per_pick!r}: "
                "it must be a whole number of 1 or more."
            )

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
@dataclass(frozen=True, kw_only=True)
class Fass(CandidateFilter, ScoringStrategy):
    """Pick rows that represent those with the largest entropy [Wei et al. 2015]."""

    needs = frozenset({"logits", "features"})
    best: ClassVar[Literal["largest"]] = "largest"

    def score(self, context: Context) -> Tensor:
        """Return the entropy in nats."""
        return uncertainty.entropy(context.logits)

    def choose(self, context: Context, n: int) -> Tensor:
        """Return the rows that best represent the most uncertain ones."""
        scores = self.score(context)
        context.notes["score"] = scores

        order = scores.argsort(stable=True, descending=True)
        return self.representatives(order, context.features, n)


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
