"""LDM-S along directions of a Laplace posterior: a try at the paper's open question.

LDM-S moves the model in all directions alike. Here it moves in those that the labelled rows leave
open. The strategy is not registered in teeter: only the settings of the reproduction know it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from research.paper.laplace import laplace_directions, laplace_factors
from teeter.base.seeds import derive_seed
from teeter.bench.experiments.settings import Setting
from teeter.errors import InputError, MissingOutputError
from teeter.kernels.directions import default_rays, ray_directions
from teeter.kernels.ldm import ldm_by_rays
from teeter.kernels.seeding import ldm_seeding
from teeter.strategies.base import Context, ScoringStrategy, Strategy, is_count, is_positive

__all__ = ["LAPLACE", "LaplaceSetting", "LdmSLaplace"]

LAPLACE = "ldm-s-laplace"


@dataclass(frozen=True, kw_only=True)
class LdmSLaplace(ScoringStrategy):
    """LDM-S with directions from a Laplace posterior of the last layer [Ritter et al. 2018]."""

    needs = frozenset({"features", "head", "labelled"})
    best: ClassVar[Literal["smallest"]] = "smallest"

    rays: int | None = None
    prior: float = 1.0
    """The prior's precision: larger is nearer to isotropic noise."""

    def __post_init__(self) -> None:
        """Refuse options that mean nothing."""
        if self.rays is not None and not is_count(self.rays):
            raise InputError(f"Cannot follow {self.rays!r} rays: ask for a whole number from 1 up.")
        if not is_positive(self.prior):
            raise InputError(f"prior is {self.prior!r}: it must be a positive number.")

    def score(self, context: Context) -> Tensor:
        """Return the least disagreement along directions of the posterior.

        Without a labelled row there is no posterior, and the directions are isotropic.
        """
        weight = context.weight
        bias = context.bias
        seed = derive_seed(context.generator)
        rays = self.rays or default_rays(*weight.shape)
        direction_count = (rays + 1) // 2  # each direction is followed both ways

        # In the first round there may be no label yet.
        if context.labelled is None or not len(context.labelled):
            directions = ray_directions(seed, direction_count, weight, bias)
        else:
            features = context.labelled.features
            if features is None:
                raise MissingOutputError(
                    "The labelled rows have no features, but the candidates have: give both."
                )

            # The curvature of the loss depends on the predictions for the labelled rows.
            logits = features @ weight.T
            if bias is not None:
                logits = logits + bias
            factors = laplace_factors(features, logits, bias=bias is not None, prior=self.prior)
            directions = laplace_directions(seed, direction_count, weight, bias, factors=factors)

        ldm = ldm_by_rays(context.features, weight, bias, directions=directions, rays=rays)
        context.notes["ldm"] = ldm
        return ldm

    def choose(self, context: Context, n: int) -> Tensor:
        """Return the row of least LDM, then rows drawn by weight and distance to earlier picks."""
        return ldm_seeding(self.score(context), context.features, n, generator=context.generator)


@dataclass(frozen=True, kw_only=True)
class LaplaceSetting(Setting):
    """A setting that also knows the strategy ``LAPLACE``."""

    def strategy(self, name: str) -> Strategy:
        """Return the strategy called ``name``, with the options of this setting."""
        if name == LAPLACE:
            return LdmSLaplace(**self.options.get(name, {}))
        return Setting.strategy(self, name)
