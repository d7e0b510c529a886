"""LDM-S: diverse rows whose predicted label flips under the smallest change of the model.

LDM-S draws rows of small least disagree metric (LDM) that are also diverse, by LDM-Seeding. The
strategy ``ldm``, which ranks rows by the metric alone, is one of the ``ablations``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from teeter.base.seeds import derive_seed, stream
from teeter.errors import InputError
from teeter.kernels.directions import DEFAULT_SUBSPACE, default_rays, draw_directions
from teeter.kernels.ldm import ldm_by_gaussian, ldm_by_rays, paper_sigmas
from teeter.kernels.seeding import ldm_seeding
from teeter.strategies.base import (
    Context,
    ScoringStrategy,
    is_count,
    is_positive,
    registry,
    require_counts,
)

__all__ = [
    "DEFAULT_PATIENCE",
    "LdmEstimator",
    "LdmS",
    "estimate_ldm",
]

DEFAULT_PATIENCE = 10
"""Perturbations without a smaller disagreement before the next strength: the paper's s."""


@dataclass(frozen=True, kw_only=True)
class LdmEstimator:
    """Options of the estimate of the least disagree metric, as in ``teeter.ldm``."""

    method: Literal["rays", "gaussian"] = "rays"
    """"rays" is exact along every sampled direction. "gaussian" is the algorithm of the paper,
    with one stop counter for all rows."""
    rays: int | None = None
    """The number of rays. By default 512, or 1,024 for a large head."""
    subspace: int | None = DEFAULT_SUBSPACE
    """Dimensions of the random subspace of every 16 directions. None: isotropic directions."""
    sigmas: Sequence[float] | None = None
    """Strengths of the Gaussian perturbations. By default those of the paper."""
    patience: int = DEFAULT_PATIENCE
    """Gaussian perturbations without a smaller disagreement after which the strength rises."""
    sigma_max: float | None = None
    """The largest strength along a ray. By default there is no limit."""
    reference_rows: int | None = None
    """The number of candidates, drawn at random, on which flips are counted. By default all."""

    def __post_init__(self) -> None:
        """Validate the options."""
        if self.method not in ("rays", "gaussian"):
            raise InputError(f"method is {self.method!r}: choose 'rays' or 'gaussian'.")
        require_counts(self, "reference_rows")
        require_counts(self, "rays")
        if self.subspace is not None and not is_count(self.subspace):
            raise InputError(
                f"subspace is {self.subspace!r}: it must be a whole number of 1 or more, or None "
                "for isotropic rays."
            )
        if self.sigma_max is not None and not is_positive(self.sigma_max):
            raise InputError(f"sigma_max is {self.sigma_max!r}: it must be a positive number.")

        # An option that has its default value may have been left out.
        has_ray_options = (
            self.rays is not None or self.sigma_max is not None or self.subspace != DEFAULT_SUBSPACE
        )
        if self.method == "gaussian" and has_ray_options:
            raise InputError(
                "rays=, subspace= and sigma_max= work only with method='rays': leave them out for "
                "'gaussian'."
            )
        if self.sigmas is not None:
            if self.method == "rays":
                raise InputError(
                    "sigmas= works only with method='gaussian', because 'rays' covers every "
                    "strength."
                )

            is_list = np.ndim(self.sigmas) == 1 and len(self.sigmas) > 0
            if not is_list or not all(map(is_positive, self.sigmas)):
                raise InputError(
                    f"sigmas is {self.sigmas!r}: it must be a list of positive numbers."
                )
        require_counts(self, "patience")
        if self.method == "rays" and self.patience != DEFAULT_PATIENCE:
            raise InputError(
                "patience= works only with method='gaussian': for 'rays', rays= says how many "
                "directions are followed."
            )

    def ldm(
        self,
        features: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        *,
        seed: int,
        reference: Tensor | None = None,
        several: bool = False,
    ) -> Tensor:
        """Estimate the least disagree metric of each row.

        Args:
            features: (N, D) inputs of the last layer.
            weight: (C, D) weight of the last layer.
            bias: (C,) its bias, or None.
            seed: the seed of the directions.
            reference: (M, D) rows on which flips are counted. By default the candidates.
            several: whether a row may have several labels, of which any flips it.

        Returns:
            (N,) estimates in [0, 1].
        """
        # Both methods estimate L(g, x) = inf of rho(h, g) over heads h with h(x) != g(x), where rho
        # is the share of reference rows on which h and g, the trained head, disagree.
        if self.method == "gaussian":
            if several:
                raise InputError(
                    "method='gaussian' is for rows that have one label each: use 'rays' for rows "
                    "that may have several."
                )
            sigmas = paper_sigmas()
            if self.sigmas is not None:
                sigmas = sorted(self.sigmas)  # Algorithm 1 goes from small strengths to large ones

            return ldm_by_gaussian(
                features,
                weight,
                bias,
                sigmas=sigmas,
                patience=self.patience,
                seed=seed,
                reference=reference,
            )

        # Every direction is followed both ways, so it gives two rays.
        rays = self.rays or default_rays(*weight.shape)
        n_directions = (rays + 1) // 2
        directions = draw_directions(seed, n_directions, weight, bias, subspace=self.subspace)
        return ldm_by_rays(
            features,
            weight,
            bias,
            directions=directions,
            rays=rays,
            reference=reference,
            sigma_max=self.sigma_max,
            several=several,
        )


@registry.register("ldm-s")
class LdmS(LdmEstimator, ScoringStrategy):
    """Pick diverse rows of small least disagree metric by LDM-Seeding [Cho et al. 2024]."""

    needs = frozenset({"features", "head"})
    labels_per_row = "any"
    best: ClassVar[Literal["smallest"]] = "smallest"

    def score(self, context: Context) -> Tensor:
        """Return the least disagree metric."""
        return estimate_ldm(self, context)

    def choose(self, context: Context, n: int) -> Tensor:
        """Return the row of least LDM, then rows drawn by weight and distance to earlier picks."""
        # Algorithm 2 of the paper for one step t: the LDM of each candidate x, then the first pick
        # argmin L_x, then picks with probability proportional to (gamma_x d_cos(x, picks))^2.
        ldm = self.score(context)
        return ldm_seeding(ldm, context.features, n, generator=context.generator)


def estimate_ldm(estimator: LdmEstimator, context: Context) -> Tensor:
    """Return the LDM of the candidates, (N,), and record it in the notes of the context."""
    # One draw from the context's generator seeds all directions, so the number of rays does not
    # change what LDM-Seeding draws next from the same generator.
    seed = derive_seed(context.generator)

    # The paper's M samples for rho. By default they are the candidates themselves, M = N.
    reference = None
    if estimator.reference_rows is not None:
        order = torch.randperm(len(context.features), generator=stream(seed, "reference"))
        sample = order[: estimator.reference_rows].to(context.features.device)
        reference = context.features[sample]

    ldm = estimator.ldm(
        context.features,
        context.weight,
        context.bias,
        seed=seed,
        reference=reference,
        several=context.outputs.several,
    )
    context.notes["ldm"] = ldm
    return ldm
