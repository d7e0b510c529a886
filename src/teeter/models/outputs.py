"""Outputs: all that a strategy sees of a model."""

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

_ROW_AXES = {"logits": 0, "features": 0, "posterior_logits": 1}
_CLASS_AXES = {"logits": 1, "weight": 0, "bias": 0, "posterior_logits": 2}

_COMPARED_ROWS = 64
"""Rows, evenly spread, on which given logits are compared with those of features and head."""
_LOGITS_TOLERANCE = 0.02
"""Relative to the largest logit: half precision and fused layers round as coarsely as that."""


class Outputs:
    """What a model says about N rows, as tensors. NumPy arrays of floats are not copied.

    If logits, features and head are all given, ``features @ weight.T + bias`` must equal the
    logits, which is checked on 64 rows.

    Args:
        logits: (N, C) scores of the classes before the softmax.
        features: (N, D) the input of the last layer.
        weight: (C, D) the weight of the last layer.
        bias: (C,) the bias of the last layer.
        posterior_logits: (S, N, C) the logits of S samples of the model.

    Raises:
        InputError: if a shape is wrong, if shapes contradict each other, or if a value is NaN,
            infinite, or too large or small to multiply.

    Example:
        >>> import numpy as np
        >>> from teeter import Outputs
        >>> outputs = Outputs(features=np.eye(3), weight=np.ones((2, 3)))
        >>> outputs
        Outputs(features=(3, 3), weight=(2, 3))
        >>> outputs.has("logits"), outputs.has("dropout_logits")
        (True, False)
    """

    logits: Tensor | None
    features: Tensor | None
    weight: Tensor | None
    bias: Tensor | None
    posterior_logits: Tensor | None
    from_numpy: bool
    """Whether no tensor was given, so that the caller has not chosen a device either."""

    def __init__(
        self,
        logits: Array | None = None,
        features: Array | None = None,
        weight: Array | None = None,
        bias: Array | None = None,
        posterior_logits: Array | None = None,
    ) -> None:
        given = (logits, features, weight, bias, posterior_logits)
        self.from_numpy = not any(isinstance(value, Tensor) for value in given)

        self.logits = _as_valid_tensor(logits, "logits")
        self.features = _as_valid_tensor(features, "features")
        self.weight = _as_valid_tensor(weight, "weight")
        self.bias = _as_valid_tensor(bias, "bias")
        self.posterior_logits = _as_valid_tensor(posterior_logits, "posterior_logits")

        self._check_rows()
        self._check_classes()
        self._check_head()

    def __repr__(self) -> str:
        shapes = [f"{name}={tuple(value.shape)}" for name, value in self._tensors().items()]
        return f"Outputs({', '.join(shapes)})"

    def __len__(self) -> int:
        """Return N, the number of rows."""
        _, rows = self._row_counts()[0]
        return rows

    @property
    def n_classes(self) -> int | None:
        """C, or None if only features are given."""
        counts = self._class_counts()
        if not counts:
            return None
        _, classes = counts[0]
        return classes

    @property
    def device(self) -> torch.device:
        """The device of the tensors."""
        return self.any_tensor.device

    @property
    def any_tensor(self) -> Tensor:
        """The first tensor that is given, to read a device from."""
        return next(iter(self._tensors().values()))

    def has(self, need: str) -> bool:
        """Return whether ``need`` is given or can be computed from what is given.

        Args:
            need: one of ``OUTPUTS`` except ``labelled``.
        """
        has_head = self.features is not None and self.weight is not None

        if need == "logits":
            return self.logits is not None or has_head
        if need == "head":
            return has_head
        if need in ("dropout_logits", "ensemble_logits"):
            return self.posterior_logits is not None
        return self.features is not None

    def with_logits(self) -> Outputs:
        """Return the same outputs with logits, computed from features and head if not given."""
        if self.logits is not None or self.features is None or self.weight is None:
            return self
        return self._replace(logits=_compute_logits(self.features, self.weight, self.bias))

    def with_posterior(self, posterior_logits: Tensor) -> Outputs:
        """Return the same outputs with the logits of S samples of the model: (S, N, C)."""
        return Outputs(
            self.logits,
            self.features,
            self.weight,
            self.bias,
            posterior_logits.to(self.device),
        )

    def take(self, rows: Tensor | np.ndarray[Any, np.dtype[np.int64]]) -> Outputs:
        """Return the outputs of the rows at these positions (K,), with the same head."""
        positions = torch.as_tensor(rows, device=self.device)
        taken: dict[str, Tensor | None] = {}
        if self.logits is not None:
            taken["logits"] = self.logits[positions]
        if self.features is not None:
            taken["features"] = self.features[positions]
        if self.posterior_logits is not None:
            taken["posterior_logits"] = self.posterior_logits[:, positions]
        return self._replace(**taken)

    def to(self, device: torch.device) -> Outputs:
        """Return the same outputs on ``device``, all in the precision of the rows.

        A float64 head is rounded if the features are float32.
        """
        # Features come first: strategies multiply them by the head.
        per_row = [self.features, self.logits, self.posterior_logits]
        dtype = next(value.dtype for value in per_row if value is not None)

        moved: dict[str, Tensor | None] = {}
        for name, value in self._tensors().items():
            moved[name] = value.to(device=device, dtype=dtype)

        outputs = self._replace(**moved)
        outputs.from_numpy = False
        return outputs

    def _replace(self, **changes: Tensor | None) -> Outputs:
        """Return a copy with other tensors, which are not checked again."""
        # Not Outputs(...), which would look for NaN in all rows again.
        copy = object.__new__(Outputs)
        copy.from_numpy = self.from_numpy
        for name in _DIMENSIONS:
            setattr(copy, name, changes.get(name, getattr(self, name)))
        return copy

    def _tensors(self) -> dict[str, Tensor]:
        """Return the tensors that are given, by name."""
        values = {name: getattr(self, name) for name in _DIMENSIONS}
        return {name: value for name, value in values.items() if value is not None}

    def _row_counts(self) -> list[tuple[str, int]]:
        return self._sizes(_ROW_AXES)

    def _class_counts(self) -> list[tuple[str, int]]:
        return self._sizes(_CLASS_AXES)

    def _sizes(self, axes: dict[str, int]) -> list[tuple[str, int]]:
        """Return the size of one axis of each tensor that has it."""
        return [
            (name, value.shape[axes[name]])
            for name, value in self._tensors().items()
            if name in axes
        ]

    def _check_rows(self) -> None:
        counts = self._row_counts()
        if not counts:
            raise InputError(
                "Outputs need logits, features or posterior_logits: a head alone has no rows."
            )
        _require_same_size(counts, "rows")

        if self.posterior_logits is not None and len(self.posterior_logits) < 1:
            raise InputError(
                "posterior_logits holds no sample: its shape is (samples, rows, classes)."
            )

    def _check_classes(self) -> None:
        counts = self._class_counts()
        _require_same_size(counts, "classes")

        if counts:
            name, classes = counts[0]
            if classes < 2:
                raise InputError(
                    f"{name} has {classes} class: at least 2 are needed (a binary head [w] is "
                    "[0; w])."
                )

    def _check_head(self) -> None:
        if self.bias is not None and self.weight is None:
            raise InputError("A bias without a weight is not a head: give both, or neither.")

        if self.features is None or self.weight is None:
            return

        if self.features.shape[1] != self.weight.shape[1]:
            raise InputError(
                f"features has {self.features.shape[1]} columns and weight has "
                f"{self.weight.shape[1]}: a head's weight is (classes, features)."
            )

        if self.logits is not None and len(self):
            self._check_logits(self.logits, self.features, self.weight)

    def _check_logits(self, logits: Tensor, features: Tensor, weight: Tensor) -> None:
        """Compare the logits with those of features and head on some rows."""
        rows = torch.linspace(0, len(self) - 1, min(len(self), _COMPARED_ROWS)).long()
        rows = rows.to(self.device)
        logits = logits[rows]

        features = features[rows].to(self.device)
        weight = weight.to(features)
        bias = None if self.bias is None else self.bias.to(features)
        computed = _compute_logits(features, weight, bias)

        largest_difference = (logits - computed).abs().max()
        if largest_difference > _LOGITS_TOLERANCE * (1 + logits.abs().max()):
            raise InputError(
                f"logits differ from features @ weight.T + bias by up to "
                f"{float(largest_difference):.3g}: the features must be the input of the head that "
                "gives these logits."
            )


def _compute_logits(features: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    with full_precision_matmul():
        logits = features @ weight.T
    if bias is not None:
        logits.add_(bias)
    return logits


def _as_valid_tensor(value: object, name: str) -> Tensor | None:
    if value is None:
        return None

    tensor = as_tensor(value, name)
    if tensor.ndim != _DIMENSIONS[name]:
        raise InputError(f"{name} has shape {tuple(tensor.shape)}: it should be {_SHAPES[name]}.")

    is_multiplied = name in ("features", "weight")
    if is_multiplied and tensor.shape[1] == 0:
        raise InputError(f"{name} has no columns.")

    require_finite(tensor, name)
    if is_multiplied and len(tensor):
        _require_safe_range(tensor, name)
    return tensor


def _require_safe_range(tensor: Tensor, name: str) -> None:
    """Refuse numbers whose squares and products would overflow or underflow."""
    low, high = torch.aminmax(tensor)
    peak = max(-float(low), float(high))

    # float32 reaches 3e38 and float64 1.8e308: the limits leave room for a sum of many products.
    limit = 1e15 if tensor.dtype == torch.float32 else 1e150
    if peak > limit or 0 < peak < 1 / limit:
        size = "large" if peak > 1 else "small"
        raise InputError(
            f"{name} has values up to {peak:.3g}, too {size} to be multiplied: scale them "
            "towards 1."
        )


def _require_same_size(counts: list[tuple[str, int]], unit: str) -> None:
    for name, count in counts[1:]:
        first_name, first_count = counts[0]
        if count != first_count:
            raise InputError(
                f"{first_name} has {first_count} {unit} and {name} has {count}: they must be the "
                "same."
            )
