"""Strategies over the gradient of the last layer: BADGE and BAIT."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from teeter.errors import InputError, MissingOutputError
from teeter.kernels.badge import seed_gradients
from teeter.kernels.bait import Form, bait
from teeter.strategies.base import Context, Strategy, is_count, is_positive, registry

__all__ = ["Badge", "Bait"]


@registry.register("badge")
@dataclass(frozen=True, kw_only=True)
class Badge(Strategy):
    """Pick rows whose loss gradients are large and diverse [Ash et al. 2020]."""

    needs = frozenset({"logits", "features"})

    def choose(self, context: Context, n: int) -> Tensor:
        """Return the row of largest gradient, then rows drawn by distance to earlier picks."""
        # Algorithm 1 of the paper: the gradient embedding of a row is (p - onehot(argmax p)) (x) z,
        # and k-means++ picks among the embeddings. Plain k-means++ starts with a random row; the
        # authors' code starts with the largest norm, and so does this one.
        return seed_gradients(context.logits, context.features, n, generator=context.generator)


@registry.register("bait")
@dataclass(frozen=True, kw_only=True)
class Bait(Strategy):
    """Pick rows whose Fisher information for the head is nearest the pool's [Ash et al. 2021]."""

    form: Form = "exact"
    """The Fisher information: "exact", of the ``top`` classes only, or "binary"."""
    top: int = 2
    """The number of most probable classes of ``form="top"``."""
    regularisation: float = 1.0
    """Added to the diagonal of the labelled rows' Fisher information."""

    needs = frozenset({"logits", "features", "labelled"})

    def __post_init__(self) -> None:
        """Validate the options."""
        if self.form not in ("exact", "top", "binary"):
            raise InputError(f"bait has no form {self.form!r}: choose 'exact', 'top' or 'binary'.")
        if not is_count(self.top):
            raise InputError(f"top is {self.top!r}: it must be a whole number of 1 or more.")
        if not is_positive(self.regularisation):
            raise InputError(
                f"regularisation is {self.regularisation!r}: it must be a positive number."
            )

    def choose(self, context: Context, n: int) -> Tensor:
        """Return n rows: 2n greedy picks, pruned back to n."""
        # Algorithm 1 of the paper: minimise tr((M + sum over picks of I(x))^-1 F), with F the
        # Fisher information of all rows and M that of the labelled ones plus lambda I.
        return bait(
            context.logits,
            context.features,
            n,
            labelled=_labelled_outputs(context),
            regularisation=self.regularisation,
            form=self.form,
            top=self.top,
        )


def _labelled_outputs(context: Context) -> tuple[Tensor, Tensor] | None:
    """Return logits (L, C) and features (L, D) of the labelled rows, or None if there are none."""
    if context.labelled is None or not len(context.labelled):
        return None

    labelled = context.labelled.with_logits()
    if labelled.logits is None:
        raise MissingOutputError("The candidates have logits, but the labelled rows have none.")
    if labelled.features is None:
        raise MissingOutputError("The candidates have features, but the labelled rows have none.")
    return labelled.logits, labelled.features
