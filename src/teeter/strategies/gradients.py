"""Rows by what they would teach the last layer: BADGE, BAIT."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from teeter.errors import InputError, MissingOutputError
from teeter.kernels.badge import seed_gradients
from teeter.kernels.bait import Form, bait
from teeter.strategies.base import Context, Strategy, registry
from teeter.strategies.validation import is_count, is_positive

__all__ = ["Badge", "Bait"]


@registry.register("badge")
@dataclass(frozen=True, kw_only=True)
class Badge(Strategy):
    """Rows whose loss gradients are large and point apart [Ash et al. 2020]."""

    needs = frozenset({"logits", "features"})

    def choose(self, context: Context, n: int) -> Tensor:
        """Return the largest gradient, then gradients drawn by their distance to those picked."""
        return seed_gradients(context.logits, context.features, n, generator=context.generator)


@registry.register("bait")
@dataclass(frozen=True, kw_only=True)
class Bait(Strategy):
    """Rows that bring the last layer's Fisher information nearest to the pool's [Ash et al. 2021]."""

    form: Form = "exact"
    top: int = 2
    regularisation: float = 1.0

    needs = frozenset({"logits", "features", "labelled"})

    def __post_init__(self) -> None:
        """Refuse options that mean nothing."""
        if self.form not in ("exact", "top", "binary"):
            raise InputError(f"bait has no form {self.form!r}: choose 'exact', 'top' or 'binary'.")
        if not is_count(self.top):
            raise InputError(f"top is {self.top!r}: it must be a whole number from 1 up.")
        if not is_positive(self.regularisation):
            raise InputError(
                f"regularisation is {self.regularisation!r}: it must be a positive number."
            )

    def choose(self, context: Context, n: int) -> Tensor:
        """Return what is left of 2n greedy picks after pruning."""
        return bait(
            context.logits,
            context.features,
            n,
            labelled=_labelled(context),
            regularisation=self.regularisation,
            form=self.form,
            top=self.top,
        )


def _labelled(context: Context) -> tuple[Tensor, Tensor] | None:
    """Return the labelled rows' logits (L, C) and features (L, D), None if there are no labelled rows."""
    if context.labelled is None or not len(context.labelled):
        return None
    known = context.labelled.with_logits()
    if known.logits is None or known.features is None:
        missing = "logits" if known.logits is None else "features"
        raise MissingOutputError(
            f"The labelled rows have no {missing}, and the candidates have: give both."
        )
    return known.logits, known.features
