"""LDM-S along directions that the labelled rows leave open: the paper's open question, tried."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from teeter.errors import InputError, MissingOutputError
from teeter.experiments.settings import Setting
from teeter.kernels.laplace import laplace_directions, laplace_factors
from teeter.kernels.ldm import default_rays, ldm_by_rays, ray_directions
from teeter.kernels.seeding import ldm_seeding
from teeter.seeds import derive_seed
from teeter.strategies.base import Context, ScoringStrategy, Strategy
from teeter.strategies.validation import is_count, is_positive

__all__ = ["LAPLACE", "LaplaceSetting", "LdmSLaplace"]

LAPLACE = "ldm-s-laplace"


@dataclass(frozen=True, kw_only=True)
class LdmSLaplace(ScoringStrategy):
    """LDM-S with the model moved by draws from a Laplace posterior of its last layer [Ritter et al. 2018]."""

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
        """Return the least disagreement along directions of the posterior; isotropic ones without a labelled row."""
        weight, bias, seed = context.weight, context.bias, derive_seed(context.generator)
        rays = self.rays or default_rays(*weight.shape)
        count = (rays + 1) // 2
        if context.labelled is None or not len(context.labelled):
            directions = ray_directions(seed, count, weight, bias)
        else:
            features = context.labelled.features
            if features is None:
                raise MissingOutputError(
                    "The labelled rows have no features, and the candidates have: give both."
                )
            logits = features @ weight.T if bias is None else features @ weight.T + bias
            factors = laplace_factors(features, logits, bias=bias is not None, prior=self.prior)
            directions = laplace_directions(seed, count, weight, bias, factors=factors)
        context.notes["ldm"] = ldm = ldm_by_rays(
            context.features, weight, bias, directions=directions, rays=rays
        )
        return ldm

    def choose(self, context: Context, n: int) -> Tensor:
        """Return the row of least LDM, then rows drawn by their weight and their distance to those picked."""
        return ldm_seeding(self.score(context), context.features, n, generator=context.generator)


@dataclass(frozen=True, kw_only=True)
class LaplaceSetting(Setting):
    """A setting that knows one strategy more, which is tried here and is not in the registry."""

    def strategy(self, name: str) -> Strategy:
        """Return the strategy called so here, with its options."""
        return (
            LdmSLaplace(**self.options.get(name, {}))
            if name == LAPLACE
            else Setting.strategy(self, name)
        )
