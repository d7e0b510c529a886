"""Outputs: all that a strategy may learn from a model."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from teeter.arrays import Array, as_tensor, full_precision_matmul, require_finite
from teeter.errors import InputError

__all__ = ["OUTPUTS", "Outputs"]

OUTPUTS = frozenset({"logits", "features", "head", "dropout_logits", "ensemble_logits", "labelled"})
"""What a strategy may need."""

_DIMENSIONS = {"logits": 2, "features": 2, "weight": 2, "bias": 1, "posterior_logits": 3}
_SHAPES = {
    "logits": "(rows, classes)",
    "features": "(rows, features)",
    "weight": "(classes, features)",
    "bias": "(classes,)",
    "posterior_logits": "(samples, rows, classes)",
}


class Outputs:
    """What a model tells of N rows, as tensors; plain NumPy arrays of floats are taken without a copy.

    logits (N, C), features (N, D), weight (C, D) and bias (C,) of the last layer, posterior_logits (S, N, C).
    ``features @ weight.T + bias`` are the logits; where all are given, that is checked on some rows.
    """

    logits: Tensor | None
    features: Tensor | None
    weight: Tensor | None
    bias: Tensor | None
    posterior_logits: Tensor | None
    from_numpy: bool
    """Whether no tensor was given, so that no device was chosen either."""

    def __init__(
        self,
        logits: Array | None = None,
        features: Array | None = None,
        weight: Array | None = None,
        bias: Array | None = None,
        posterior_logits: Array | None = None,
    ) -> None:
        """Turn what is given into tensors, and refuse what does not fit."""
        given = dict(
            logits=logits,
            features=features,
            weight=weight,
            bias=bias,
            posterior_logits=posterior_logits,
        )
        self.from_numpy = not any(isinstance(value, Tensor) for value in given.values())
        for name, value in given.items():
            setattr(self, name, None if value is None else _checked(value, name))
        self._check_rows()
        self._check_classes()
        self._check_head()

    def __repr__(self) -> str:
        """Return the shapes."""
        return f"Outputs({', '.join(f'{name}={tuple(value.shape)}' for name, value in self._given().items())})"

    def __len__(self) -> int:
        """Return N."""
        return self._rows()[0][1]

    @property
    def n_classes(self) -> int | None:
        """C, or None where nothing tells."""
        counts = self._classes()
        return counts[0][1] if counts else None

    @property
    def device(self) -> torch.device:
        """Where the tensors are."""
        return self.any_tensor.device

    @property
    def any_tensor(self) -> Tensor:
        """One of the tensors."""
        return next(iter(self._given().values()))

    def has(self, need: str) -> bool:
        """Tell whether ``need`` (one of OUTPUTS but ``labelled``) is here or follows from what is."""
        if need == "logits":
            return self.logits is not None or (
                self.features is not None and self.weight is not None
            )
        if need == "head":
            return self.features is not None and self.weight is not None
        if need in ("dropout_logits", "ensemble_logits"):
            return self.posterior_logits is not None
        return self.features is not None

    def with_logits(self) -> Outputs:
        """Return the same with logits, computed from features and head where they were not given."""
        if self.logits is not None or self.features is None or self.weight is None:
            return self
        with full_precision_matmul():
            logits = self.features @ self.weight.T
        return self._rebuilt(logits=logits if self.bias is None else logits.add_(self.bias))

    def with_posterior(self, posterior_logits: Tensor) -> Outputs:
        """Return the same with the logits of several samples: (S, N, C)."""
        posterior = _checked(posterior_logits, "posterior_logits").to(self.device)
        return Outputs(self.logits, self.features, self.weight, self.bias, posterior)

    def take(self, rows: Tensor | np.ndarray[Any, np.dtype[np.int64]]) -> Outputs:
        """Return the outputs of some rows: positions (K,) -> Outputs of K rows, under the same head."""
        chosen = torch.as_tensor(rows, device=self.device)
        return self._rebuilt(
            logits=None if self.logits is None else self.logits[chosen],
            features=None if self.features is None else self.features[chosen],
            posterior_logits=None
            if self.posterior_logits is None
            else self.posterior_logits[:, chosen],
        )

    def to(self, device: torch.device) -> Outputs:
        """Return the same on ``device``, all in the precision of the rows: a float64 head serves float32 features."""
        given = self._given()
        rows = [self.features, self.logits, self.posterior_logits]
        dtype = next(value.dtype for value in rows if value is not None)
        there = self._rebuilt(
            **{name: value.to(device=device, dtype=dtype) for name, value in given.items()}
        )
        there.from_numpy = False
        return there

    def _rebuilt(self, **changes: Tensor | None) -> Outputs:
        """Return a copy with changes that need no checking again."""
        copy = object.__new__(Outputs)
        copy.from_numpy = self.from_numpy
        for name in _DIMENSIONS:
            setattr(copy, name, changes.get(name, getattr(self, name)))
        return copy

    def _given(self) -> dict[str, Tensor]:
        values = {name: getattr(self, name) for name in _DIMENSIONS}
        return {name: value for name, value in values.items() if value is not None}

    def _rows(self) -> list[tuple[str, int]]:
        axes = {"logits": 0, "features": 0, "posterior_logits": 1}
        return [
            (name, value.shape[axes[name]]) for name, value in self._given().items() if name in axes
        ]

    def _classes(self) -> list[tuple[str, int]]:
        axes = {"logits": 1, "weight": 0, "bias": 0, "posterior_logits": 2}
        return [
            (name, value.shape[axes[name]]) for name, value in self._given().items() if name in axes
        ]

    def _check_rows(self) -> None:
        rows = self._rows()
        if not rows:
            raise InputError(
                "Outputs need logits, features or posterior_logits: nothing tells of any row."
            )
        _same(rows, "rows")
        if self.posterior_logits is not None and len(self.posterior_logits) < 1:
            raise InputError(
                "posterior_logits holds no sample: its shape is (samples, rows, classes)."
            )

    def _check_classes(self) -> None:
        classes = self._classes()
        _same(classes, "classes")
        if classes and classes[0][1] < 2:
            raise InputError(
                f"{classes[0][0]} has {classes[0][1]} class: at least 2 are needed (a binary head [w] is [0; w])."
            )

    def _check_head(self) -> None:
        if self.bias is not None and self.weight is None:
            raise InputError("A bias without a weight is no head: give both, or neither.")
        if self.features is None or self.weight is None:
            return
        if self.features.shape[1] != self.weight.shape[1]:
            raise InputError(
                f"features has {self.features.shape[1]} columns and weight has {self.weight.shape[1]}: "
                "a head's weight is (classes, features)."
            )
        if self.logits is not None:
            self._check_logits()

    def _check_logits(self) -> None:
        rows = torch.linspace(0, len(self) - 1, min(len(self), 64)).long()
        some = self.take(rows.to(self.device)) if len(self) else self
        told = some.logits
        computed = some._rebuilt(logits=None).to(self.device).with_logits().logits
        if told is None or computed is None or not len(self):
            return
        worst = (told - computed).abs().max()
        if worst > 0.02 * (1 + told.abs().max()):
            raise InputError(
                f"logits differ from features @ weight.T + bias by up to {float(worst):.3g}: "
                "the features must be the input of the head that gives these logits."
            )


def _checked(given: object, name: str) -> Tensor:
    tensor = as_tensor(given, name)
    if tensor.ndim != _DIMENSIONS[name]:
        raise InputError(f"{name} has shape {tuple(tensor.shape)}: it should be {_SHAPES[name]}.")
    if name in ("features", "weight") and tensor.shape[1] == 0:
        raise InputError(f"{name} has no columns.")
    require_finite(tensor, name)
    if name in ("features", "weight") and len(tensor):
        _require_measurable(tensor, name)
    return tensor


def _require_measurable(tensor: Tensor, name: str) -> None:
    """Refuse numbers whose squares and products would overflow or vanish."""
    low, high = torch.aminmax(tensor)
    peak, limit = max(-float(low), float(high)), 1e15 if tensor.dtype == torch.float32 else 1e150
    if peak > limit or 0 < peak < 1 / limit:
        raise InputError(
            f"{name} has values up to {peak:.3g}, too {'large' if peak > 1 else 'small'} to be multiplied: "
            "scale them towards 1."
        )


def _same(counts: list[tuple[str, int]], what: str) -> None:
    for name, count in counts[1:]:
        if count != counts[0][1]:
            raise InputError(
                f"{counts[0][0]} has {counts[0][1]} {what} and {name} has {count}: they must be the same."
            )
