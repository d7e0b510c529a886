"""Uncertain rows first, then those that represent them: FASS, and the same with LDM."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from teeter.errors import InputError
from teeter.kernels import uncertainty
from teeter.kernels.facility_location import facility_location
from teeter.strategies.base import Context, ScoringStrategy, registry
from teeter.strategies.ldm import LdmEstimator, estimate_ldm
from teeter.strategies.validation import is_count

__all__ = ["CandidateFilter", "Fass", "LdmFass"]


@dataclass(frozen=True, kw_only=True)
class CandidateFilter:
    """How many uncertain rows there are to represent."""

    candidates_per_pick: int = 5
    """For each pick so many of the most uncertain rows are looked at."""

    def __post_init__(self) -> None:
        """Refuse options that mean nothing."""
        if not is_count(self.candidates_per_pick):
            raise InputError(
                f"candidates_per_pick is {self.candidates_per_pick!r}: it must be a whole number from 1 up."
            )

    def representatives(self, order: Tensor, features: Tensor, n: int) -> Tensor:
        """Return n of the first rows in ``order``, those that represent them all: (N,), (N, D) -> (n,)."""
        first = order[: int(self.candidates_per_pick) * n].sort().values
        return first[facility_location(features[first], n)]


@registry.register("fass")
@dataclass(frozen=True, kw_only=True)
class Fass(CandidateFilter, ScoringStrategy):
    """Rows that represent those of largest entropy, by facility location in the features [Wei et al. 2015]."""

    needs = frozenset({"logits", "features"})
    best: ClassVar[Literal["largest"]] = "largest"

    def score(self, context: Context) -> Tensor:
        """Return the entropy in nats."""
        return uncertainty.entropy(context.logits)

    def choose(self, context: Context, n: int) -> Tensor:
        """Return the rows that cover the most of the uncertain ones, in the order of picking."""
        context.notes["score"] = scores = self.score(context)
        return self.representatives(
            scores.argsort(stable=True, descending=True), context.features, n
        )


@registry.register("ldm-fass")
@dataclass(frozen=True, kw_only=True)
class LdmFass(CandidateFilter, LdmEstimator, ScoringStrategy):
    """Rows that represent those of smallest least disagree metric [Wei et al. 2015, Cho et al. 2024]."""

    needs = frozenset({"features", "head"})
    best: ClassVar[Literal["smallest"]] = "smallest"

    def __post_init__(self) -> None:
        """Refuse options that mean nothing."""
        CandidateFilter.__post_init__(self)
        LdmEstimator.__post_init__(self)

    def score(self, context: Context) -> Tensor:
        """Return the least disagree metric."""
        return estimate_ldm(self, context)

    def choose(self, context: Context, n: int) -> Tensor:
        """Return the rows that cover the most of the uncertain ones, in the order of picking."""
        return self.representatives(self.score(context).argsort(stable=True), context.features, n)
