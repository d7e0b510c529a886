"""Rows whose predicted label flips under the smallest change of the model: LDM alone, and LDM-S, which spreads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from teeter.errors import InputError
from teeter.kernels.ldm import (
    default_rays,
    ldm_by_gaussian,
    ldm_by_rays,
    paper_sigmas,
    ray_directions,
)
from teeter.kernels.seeding import ldm_seeding
from teeter.seeds import derive_seed, stream
from teeter.strategies.base import Context, ScoringStrategy, TopKStrategy, registry
from teeter.strategies.validation import is_count, is_positive

__all__ = ["Ldm", "LdmEstimator", "LdmS", "estimate_ldm"]


@dataclass(frozen=True, kw_only=True)
class LdmEstimator:
    """How the least disagree metric is estimated; the options of ``teeter.ldm``."""

    method: Literal["rays", "gaussian"] = "rays"
    rays: int | None = None
    sigmas: Sequence[float] | None = None
    patience: int = 10
    sigma_max: float | None = None
    reference_rows: int | None = None
    """Candidates, drawn at random, on which flips are counted when a strategy picks; all of them if left out."""

    def __post_init__(self) -> None:
        """Refuse options that mean nothing."""
        if self.method not in ("rays", "gaussian"):
            raise InputError(
                f"No estimator is called {self.method!r}: choose 'rays' or 'gaussian'."
            )
        if self.reference_rows is not None and not is_count(self.reference_rows):
            raise InputError(
                f"reference_rows is {self.reference_rows!r}: it must be a whole number from 1 up."
            )
        self._check_rays()
        self._check_gaussian()

    def _check_rays(self) -> None:
        if self.rays is not None and not is_count(self.rays):
            raise InputError(f"Cannot follow {self.rays!r} rays: ask for a whole number from 1 up.")
        if self.sigma_max is not None and not is_positive(self.sigma_max):
            raise InputError(f"sigma_max is {self.sigma_max!r}: it must be a positive number.")
        if self.method == "gaussian" and (self.rays is not None or self.sigma_max is not None):
            raise InputError(
                "rays= and sigma_max= belong to method='rays': leave them out for 'gaussian'."
            )

    def _check_gaussian(self) -> None:
        if self.sigmas is not None:
            if self.method == "rays":
                raise InputError(
                    "sigmas= belongs to method='gaussian': 'rays' looks at every strength."
                )
            if (
                np.ndim(self.sigmas) != 1
                or not len(self.sigmas)
                or not all(map(is_positive, self.sigmas))
            ):
                raise InputError(
                    f"sigmas is {self.sigmas!r}: it must be a list of positive numbers."
                )
        if not is_count(self.patience):
            raise InputError(f"patience is {self.patience!r}: it must be a whole number from 1 up.")

    def ldm(
        self,
        features: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        *,
        seed: int,
        reference: Tensor | None = None,
    ) -> Tensor:
        """Return the LDM of each row: (N, D), (C, D), (C,) or None -> (N,) in [0, 1]."""
        if self.method == "gaussian":
            sigmas = sorted(self.sigmas) if self.sigmas is not None else paper_sigmas()
            return ldm_by_gaussian(
                features,
                weight,
                bias,
                sigmas=sigmas,
                patience=self.patience,
                seed=seed,
                reference=reference,
            )
        rays = self.rays or default_rays(*weight.shape)
        directions = ray_directions(seed, (rays + 1) // 2, weight, bias)
        return ldm_by_rays(
            features,
            weight,
            bias,
            directions=directions,
            rays=rays,
            reference=reference,
            sigma_max=self.sigma_max,
        )


@registry.register("ldm")
@dataclass(frozen=True, kw_only=True)
class Ldm(LdmEstimator, TopKStrategy):
    """Rows of the smallest least disagree metric, however much they resemble each other [Cho et al. 2024]."""

    needs = frozenset({"features", "head"})
    best: ClassVar[Literal["smallest"]] = "smallest"

    def score(self, context: Context) -> Tensor:
        """Return the least disagree metric."""
        return estimate_ldm(self, context)


@registry.register("ldm-s")
@dataclass(frozen=True, kw_only=True)
class LdmS(LdmEstimator, ScoringStrategy):
    """Rows of small least disagree metric that are spread in the features: LDM-Seeding [Cho et al. 2024]."""

    needs = frozenset({"features", "head"})
    best: ClassVar[Literal["smallest"]] = "smallest"

    def score(self, context: Context) -> Tensor:
        """Return the least disagree metric."""
        return estimate_ldm(self, context)

    def choose(self, context: Context, n: int) -> Tensor:
        """Return the row of least LDM, then rows drawn by their weight and their distance to those picked."""
        return ldm_seeding(self.score(context), context.features, n, generator=context.generator)


def estimate_ldm(estimator: LdmEstimator, context: Context) -> Tensor:
    """Return the candidates' LDM, and leave it in the context's notes."""
    seed = derive_seed(context.generator)
    reference = None
    if estimator.reference_rows is not None:
        drawn = torch.randperm(len(context.features), generator=stream(seed, "reference"))[
            : estimator.reference_rows
        ]
        reference = context.features[drawn.to(context.features.device)]
    ldm = estimator.ldm(
        context.features, context.weight, context.bias, seed=seed, reference=reference
    )
    context.notes["ldm"] = ldm
    return ldm
