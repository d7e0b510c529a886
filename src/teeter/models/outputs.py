"""Outputs: all that a strategy sees of a model."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from teeter.base.arrays import Array, as_tensor, full_precision_matmul, require_finite
from teeter.errors import InputError

OUTPUTS = frozenset(
    {
        "logits",
        "features",
        "head",
        "dropout_logits",
        "ensemble_logits",
        "labelled",
    }
)
"""What a strategy may need."""

_AXES = {
    "logits": ("rows", "classes"),
    "features": ("rows", "features"),
    "weight": ("classes", "features"),
    "bias": ("classes",),
    "posterior_logits": ("samples", "rows", "classes"),
}
"""The axes of each tensor of ``Outputs``. Axes of the same name must have the same size."""

_ARGUMENT_AXES = {**_AXES, "probabilities": _AXES["logits"]}
"""The axes of each argument of ``Outputs``."""

_COMPARED_ROWS = 64
"""Rows, evenly spread, on which given logits are compared with those of features and head."""
_LOGITS_TOLERANCE = 0.02
"""Relative to the largest logit: half precision and fused layers round as coarsely as that."""

_SUM_TOLERANCE = 5e-3
"""How far the probabilities of a row may be from a sum of 1, as bfloat16 rounds them."""


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
        probabilities: (N, C) the probabilities of the classes, for a model that has no logits.
            Their logarithms become the logits, or their log odds if rows have several labels.
        several: whether a row may have several labels, or none. The C classes are then labels that
            are independent of each other: the probability of one is the sigmoid of its logit.

    Raises:
        InputError: if a shape is wrong, if shapes contradict each other, if a value is NaN,
            infinite, or too large or small to multiply, or if probabilities are passed as logits
            or the other way round.

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
    several: bool
    """Whether a row may have several labels, or none."""
    from_numpy: bool
    """Whether no tensor was given, so that the caller has not chosen a device either."""

    def __init__(
        self,
        logits: Array | None = None,
        features: Array | None = None,
        weight: Array | None = None,
        bias: Array | None = None,
        posterior_logits: Array | None = None,
        *,
        probabilities: Array | None = None,
        several: bool = False,
    ) -> None:
        self.several = several
        given = (logits, features, weight, bias, posterior_logits, probabilities)
        has_tensor = any(isinstance(value, Tensor) for value in given)
        self.from_numpy = not has_tensor

        if probabilities is not None and logits is not None:
            raise InputError("Both logits and probabilities are given: pass one of them.")

        self.logits = _as_valid_tensor(logits, "logits")
        self.features = _as_valid_tensor(features, "features")
        self.weight = _as_valid_tensor(weight, "weight")
        self.bias = _as_valid_tensor(bias, "bias")
        self.posterior_logits = _as_valid_tensor(posterior_logits, "posterior_logits")
        if probabilities is not None:
            compute_logits = _log_odds if several else _log_probabilities
            self.logits = compute_logits(probabilities)

        self._check_rows()
        self._check_widths()

        sizes = self._sizes("classes")
        _require_same_size(sizes, "classes")
        fewest_classes = 1 if several else 2
        if sizes and sizes[0][1] < fewest_classes:
            name, classes = sizes[0]
            if several:
                raise InputError(f"{name} has no labels: at least 1 is needed.")
            raise InputError(
                f"{name} has {classes} class: at least 2 are needed (a binary head [w] is [0; w])."
            )

        self._check_head()
        if several:
            self._check_independent_logits(has_probabilities=probabilities is not None)
            return

        # Probabilities instead of logits: their softmax would rank rows wrongly. With features and
        # head, the logits were compared with those of the head.
        if self.logits is not None and not self.has("head") and are_probabilities(self.logits):
            raise InputError(
                "All rows of logits are non-negative and sum to 1, as probabilities do: pass them "
                "as probabilities= instead. If they are logits, subtract 1 from all of them, which "
                "changes no pick."
            )
        if self.posterior_logits is not None and are_probabilities(self.posterior_logits):
            raise InputError(
                "All rows of posterior_logits are non-negative and sum to 1, as probabilities do: "
                "pass their logarithms instead."
            )

    def __repr__(self) -> str:
        shapes = []
        for name, value in self._tensors().items():
            shape = tuple(value.shape)
            shapes.append(f"{name}={shape}")
        if self.several:
            shapes.append("several=True")
        return f"Outputs({', '.join(shapes)})"

    def __len__(self) -> int:
        """Return N, the number of rows."""
        _, rows = self._sizes("rows")[0]
        return rows

    @property
    def n_classes(self) -> int | None:
        """C, or None if only features are given."""
        sizes = self._sizes("classes")
        if not sizes:
            return None
        _, classes = sizes[0]
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
        logits = _compute_logits(self.features, self.weight, self.bias)
        return self._replace(logits=logits)

    def with_posterior(self, posterior_logits: Tensor) -> Outputs:
        """Return the same outputs with the logits of S samples of the model: (S, N, C)."""
        # Not _replace: the posterior comes from outside and must be checked.
        return Outputs(
            logits=self.logits,
            features=self.features,
            weight=self.weight,
            bias=self.bias,
            posterior_logits=posterior_logits.to(self.device),
            several=self.several,
        )

    def take(self, rows: Tensor | np.ndarray[Any, np.dtype[np.int64]]) -> Outputs:
        """Return the outputs of the rows at these positions (K,), with the same head."""
        # The head is the same for all rows, so weight and bias stay.
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
        # The first one given decides. Features come first: strategies multiply them by the head.
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
        copy.several = self.several
        copy.from_numpy = self.from_numpy
        for name in _AXES:
            value = changes.get(name, getattr(self, name))
            setattr(copy, name, value)
        return copy

    def _tensors(self) -> dict[str, Tensor]:
        """Return the tensors that are given, by name."""
        given = {}
        for name in _AXES:
            value = getattr(self, name)
            if value is not None:
                given[name] = value
        return given

    def _sizes(self, axis: str) -> list[tuple[str, int]]:
        """Return the size of an axis in each tensor that has it, with the tensor's name."""
        sizes = []
        for name, value in self._tensors().items():
            if axis in _AXES[name]:
                position = _AXES[name].index(axis)
                sizes.append((name, value.shape[position]))
        return sizes

    def _check_rows(self) -> None:
        sizes = self._sizes("rows")
        if not sizes:
            raise InputError(
                "Outputs need logits, features or posterior_logits: a head alone has no rows."
            )
        _require_same_size(sizes, "rows")

        if self.posterior_logits is not None and len(self.posterior_logits) < 1:
            raise InputError(
                "posterior_logits holds no samples: its shape must be (samples, rows, classes)."
            )

    def _check_widths(self) -> None:
        """Refuse a weight that does not fit the features, before its rows count as classes."""
        if self.features is None or self.weight is None:
            return

        feature_columns = self.features.shape[1]
        weight_columns = self.weight.shape[1]
        if feature_columns != weight_columns:
            raise InputError(
                f"features has {feature_columns} columns and weight has {weight_columns}: the "
                f"weight of a head must have the shape (classes, features)."
            )

    def _check_head(self) -> None:
        if self.bias is not None and self.weight is None:
            raise InputError("A bias without a weight is not a head: give both, or neither.")

        if self.features is None or self.weight is None:
            return

        if self.logits is not None and len(self):
            self._check_logits(self.logits, self.features, self.weight)

    def _check_independent_logits(self, *, has_probabilities: bool) -> None:
        """Refuse probabilities that were passed as logits of several labels."""
        if self.logits is None or has_probabilities or self.has("head"):
            return

        if not self.logits.numel():
            return
        highest = self.logits.max()
        # All zeros are the logits of a model that knows nothing.
        if self.logits.min() >= 0 and 0 < highest <= 1:
            raise InputError(
                "All logits are between 0 and 1, as probabilities are: pass them as "
                "probabilities= instead. If they are logits, pass their sigmoid as probabilities=."
            )

    def _check_logits(
        self,
        logits: Tensor,
        features: Tensor,
        weight: Tensor,
    ) -> None:
        """Compare the logits with those of features and head on some rows."""
        row_count = min(len(self), _COMPARED_ROWS)
        rows = torch.linspace(0, len(self) - 1, row_count).long()
        rows = rows.to(self.device)
        logits = logits[rows]

        # Everything in the precision and on the device of the features.
        features = features[rows].to(self.device)
        weight = weight.to(features)
        bias = self.bias
        if bias is not None:
            bias = bias.to(features)
        computed = _compute_logits(features, weight, bias)

        largest_difference = (logits - computed).abs().max()
        tolerance = _LOGITS_TOLERANCE * (1 + logits.abs().max())
        if largest_difference > tolerance:
            raise InputError(
                f"logits differ from features @ weight.T + bias by up to "
                f"{float(largest_difference):.3g}: the features must be the inputs of the head "
                f"that computes these logits."
            )


def are_probabilities(values: Tensor) -> bool:
    """Return whether all rows (..., C) are non-negative and sum to 1.

    Example:
        >>> are_probabilities(torch.tensor([[0.25, 0.75], [1.0, 0.0]]))
        True
        >>> are_probabilities(torch.tensor([[0.25, 0.75], [1.0, 2.0]]))
        False
    """
    if values.numel() == 0:
        return False
    # The first row decides nearly always, without a pass over all rows.
    first_row = (0,) * (values.ndim - 1)
    return _rows_sum_to_one(values[first_row]) and _rows_sum_to_one(values)


def _rows_sum_to_one(values: Tensor) -> bool:
    if values.min() < 0:
        return False
    distances = (values.sum(dim=-1) - 1).abs()
    return bool((distances < _SUM_TOLERANCE).all())


def _log_probabilities(probabilities: Array) -> Tensor:
    """Return the logarithms of probabilities (N, C), all finite."""
    tensor = _as_valid_tensor(probabilities, "probabilities")
    if tensor is None or not are_probabilities(tensor):
        raise InputError(
            "The rows of probabilities must be non-negative and sum to 1: pass scores of another "
            "kind as logits=."
        )
    # log 0 would be infinite.
    smallest = torch.finfo(tensor.dtype).tiny
    return tensor.clamp_min(smallest).log_()


def _log_odds(probabilities: Array) -> Tensor:
    """Return the log odds of independent probabilities (N, C), all finite."""
    tensor = _as_valid_tensor(probabilities, "probabilities")
    if tensor is None or (tensor < 0).any() or (tensor > 1).any():
        raise InputError(
            "The probabilities of several labels must be from 0 to 1: pass scores of another kind "
            "as logits=."
        )
    # The log odds of 0 and 1 would be infinite.
    return tensor.logit(eps=torch.finfo(tensor.dtype).eps)


def _compute_logits(
    features: Tensor,
    weight: Tensor,
    bias: Tensor | None,
) -> Tensor:
    """Return the logits of a head: (N, D), (C, D), (C,) -> (N, C)."""
    with full_precision_matmul():
        logits = features @ weight.T
    if bias is not None:
        logits.add_(bias)
    return logits


def _as_valid_tensor(value: object, name: str) -> Tensor | None:
    """Return one of the arguments of ``Outputs`` as a tensor, after checking it on its own."""
    if value is None:
        return None

    tensor = as_tensor(value, name)
    axes = _ARGUMENT_AXES[name]
    if tensor.ndim != len(axes):
        expected = f"({', '.join(axes)})"
        if len(axes) == 1:
            expected = f"({axes[0]},)"
        raise InputError(f"{name} has shape {tuple(tensor.shape)}: it should be {expected}.")

    is_multiplied = name in ("features", "weight")
    if is_multiplied and tensor.shape[1] == 0:
        raise InputError(f"{name} has no columns.")

    require_finite(tensor, name)
    if is_multiplied and len(tensor):
        # Squares and products must not overflow or underflow. One pass and no copy, unlike
        # abs().max().
        low, high = torch.aminmax(tensor)
        peak = max(-float(low), float(high))

        # float32 reaches 3e38 and float64 1.8e308: the limits leave room for a sum of many
        # products.
        limit = 1e150
        if tensor.dtype == torch.float32:
            limit = 1e15

        is_large = peak > limit
        is_small = 0 < peak < 1 / limit
        if is_large or is_small:
            size = "large" if is_large else "small"
            raise InputError(
                f"{name} has values up to {peak:.3g}, too {size} to be multiplied: scale them to "
                f"about 1."
            )
    return tensor


def _require_same_size(sizes: list[tuple[str, int]], axis: str) -> None:
    """Refuse tensors, given by name and size of an axis, that differ in it."""
    for name, size in sizes[1:]:
        first_name, first_size = sizes[0]
        if size != first_size:
            raise InputError(
                f"{first_name} has {first_size} {axis} and {name} has {size}: they must be the "
                "same."
            )
