"""The public functions ``teeter.ldm``, ``teeter.select`` and ``teeter.scores``.

Arguments are validated here, once. The strategies and kernels below trust them.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from teeter.base.arrays import (
    Array,
    as_integers,
    as_tensor,
    choose_device,
    require_finite,
)
from teeter.base.registry import require_options
from teeter.base.seeds import derive_seed, stream, validate_seed
from teeter.errors import InputError
from teeter.kernels.directions import DEFAULT_SUBSPACE
from teeter.models.outputs import Outputs
from teeter.strategies.base import Context, ScoringStrategy, Strategy, registry
from teeter.strategies.ldm import DEFAULT_PATIENCE, LdmEstimator

__all__ = [
    "build_context",
    "ldm",
    "make_strategy",
    "option_names",
    "scores",
    "select",
    "strategy_options",
]

Rows = TypeVar("Rows", Tensor, npt.NDArray[Any])
"""Rows as they were given: a tensor or a NumPy array."""


def ldm(
    features: Rows,
    weight: Array,
    bias: Array | None = None,
    *,
    reference: Array | None = None,
    method: Literal["rays", "gaussian"] = "rays",
    rays: int | None = None,
    subspace: int | None = DEFAULT_SUBSPACE,
    sigmas: Sequence[float] | None = None,
    patience: int = DEFAULT_PATIENCE,
    sigma_max: float | None = None,
    seed: int = 0,
    device: torch.device | str | None = None,
) -> Rows:
    """Estimate the least disagree metric (LDM) of each row.

    The LDM of a row is the smallest share of rows whose predicted label changes together with its
    own, over random perturbations of the last layer. Small values mean easily flipped predictions.

    Args:
        features: (N, D) inputs of the last layer.
        weight: (C, D) weight of the last layer.
        bias: (C,) its bias. A head without a bias is perturbed in its weight only.
        reference: (M, D) features on which disagreement is measured. By default the candidates.
        method: "rays" follows random directions and is exact along each; "gaussian" is Algorithm 1
            of the paper with one stop counter for all rows, as its authors run it. For a single
            row it is Algorithm 1 as printed; a counter per row stops earlier, and its mean LDM was
            1.4 to 1.6 times as large on pools of 500 rows.
        rays: the number of rays. By default 512, or 1,024 if C * D > 20,000.
        subspace: dimensions of the random subspace that every 16 directions of rays share. Fewer
            are faster. None: isotropic directions, which are slower.
        sigmas: perturbation strengths of Algorithm 1. By default 51 from 1e-5 to 1.
        patience: draws in a row that lower no row's estimate, after which Algorithm 1 moves to the
            next strength.
        sigma_max: ignore flips on a ray beyond this strength.
        seed: the same seed gives the same directions, as in ``scores("ldm", ...)``.
        device: where to compute. By default the device of the tensors, or a GPU if there is one.

    Returns:
        (N,) estimates in [0, 1], a NumPy array for NumPy input and a tensor for tensors. A row that
        never flipped has 1.

    Raises:
        InputError: if shapes do not match, values are not finite or an option is invalid.

    Example:
        >>> import numpy as np
        >>> features = np.array([[0.1, 1.0], [2.0, 0.0], [-2.0, 0.5]])
        >>> weight = np.array([[1.0, 0.0], [-1.0, 0.0]])
        >>> int(ldm(features, weight, rays=64).argmin())
        0
    """
    estimator = LdmEstimator(
        method=method,
        rays=rays,
        subspace=subspace,
        sigmas=sigmas,
        patience=patience,
        sigma_max=sigma_max,
    )
    compute_device = choose_device(device, features, weight)
    outputs = Outputs(features=features, weight=weight, bias=bias).to(compute_device)
    if outputs.features is None or outputs.weight is None:
        raise InputError("The least disagree metric needs features and weight.")
    if not len(outputs):
        raise InputError("Cannot compute the LDM of an empty pool: it has no rows.")

    reference_rows = None
    if reference is not None:
        reference_rows = _validate_reference(reference, outputs.features)

    # The directions of ``scores("ldm", ...)`` with this seed, so that values agree.
    directions_seed = derive_seed(stream(validate_seed(seed), "select"))
    estimates = estimator.ldm(
        outputs.features,
        outputs.weight,
        outputs.bias,
        seed=directions_seed,
        reference=reference_rows,
    )

    # In the type of the input: NumPy, or a tensor on its device.
    if isinstance(features, Tensor):
        return estimates.to(features.device)
    return estimates.cpu().numpy()


def _validate_reference(reference: Array, features: Tensor) -> Tensor:
    rows = as_tensor(reference, "reference", features.device).to(features.dtype)
    if rows.ndim != 2:
        raise InputError(f"reference has shape {tuple(rows.shape)}: it should be (rows, features).")
    if rows.shape[1] != features.shape[1]:
        raise InputError(
            f"reference has {rows.shape[1]} columns and features has {features.shape[1]}."
        )
    if not len(rows):
        raise InputError("The reference has no rows: leave it out to use the candidates.")
    require_finite(rows, "reference")
    return rows


def select(
    strategy: str | Strategy,
    outputs: Outputs,
    n: int,
    *,
    labelled: Outputs | None = None,
    labels: Array | Sequence[int] | None = None,
    options: Mapping[str, Any] | None = None,
    seed: int = 0,
    device: torch.device | str | None = None,
) -> npt.NDArray[np.int64]:
    """Select the rows to label next.

    Args:
        strategy: a name of ``teeter.strategies.names()``, or a strategy.
        outputs: model outputs of the N candidates.
        n: the number of rows, 1 to N.
        labelled: model outputs of the L labelled rows, for strategies that use them.
        labels: (L,) classes of the labelled rows, 0 to C - 1, for strategies that use them; (L, C)
            of 0 and 1 if rows may have several labels.
        options: options of the strategy, if it is given by its name: ``{"rays": 1024}``.
        seed: the same seed gives the same picks.
        device: where to compute. By default the device of the outputs, or a GPU if they came from
            NumPy and there is one.

    Returns:
        (n,) different row numbers of ``outputs``, best first.

    Raises:
        UnknownNameError: if no strategy has this name.
        MissingOutputError: if the strategy needs outputs that are not there.
        InputError: if n, labels or an option is invalid.

    Example:
        >>> import numpy as np
        >>> outputs = Outputs(logits=np.array([[3.0, 0.0], [0.1, 0.0], [0.0, 2.0]]))
        >>> select("margin", outputs, 2).tolist()
        [1, 2]
    """
    chosen = make_strategy(strategy, options)
    context = build_context(outputs, labelled=labelled, labels=labels, seed=seed, device=device)
    return chosen.select(context, n)


def scores(
    strategy: str | Strategy,
    outputs: Outputs,
    *,
    labelled: Outputs | None = None,
    labels: Array | Sequence[int] | None = None,
    options: Mapping[str, Any] | None = None,
    seed: int = 0,
    device: torch.device | str | None = None,
) -> npt.NDArray[np.floating[Any]]:
    """Return the score that a strategy gives each row.

    Arguments are those of ``select``.

    Returns:
        (N,) scores. ``teeter.strategies.get(name).best`` says whether the smallest or the largest
        are picked first, and so does ``teeter strategies``.

    Raises:
        InputError: if the strategy picks rows jointly and has no score for a single row.

    Example:
        >>> import numpy as np
        >>> outputs = Outputs(logits=np.array([[0.0, 0.0], [8.0, 0.0]]))
        >>> scores("entropy", outputs).round(2).tolist(), registry.get("entropy").best
        ([0.69, 0.0], 'largest')
    """
    chosen = make_strategy(strategy, options)
    if not isinstance(chosen, ScoringStrategy):
        raise InputError(
            f"{chosen.name} picks rows jointly and has no score for a single row: "
            "use teeter.select."
        )

    context = build_context(outputs, labelled=labelled, labels=labels, seed=seed, device=device)
    if not len(context):
        raise InputError("Cannot score an empty pool: it has no rows.")
    scored = chosen.scores(context).cpu()
    values: npt.NDArray[np.floating[Any]] = scored.numpy()
    return values


def make_strategy(
    strategy: str | type[Strategy] | Strategy, options: Mapping[str, Any] | None = None
) -> Strategy:
    """Return a strategy, made from its name or class and options if it is not one already.

    Raises:
        UnknownNameError: if no strategy has this name.
        InputError: if the strategy does not have one of the options.
    """
    options = options or {}
    if isinstance(strategy, Strategy):
        if options:
            raise InputError(
                f"{strategy.name} is already an instance: pass the options when you create it."
            )
        return strategy
    if isinstance(strategy, str):
        cls = registry.get(strategy)
    elif isinstance(strategy, type) and issubclass(strategy, Strategy):
        cls = strategy
    else:
        raise InputError(f"{strategy!r} is neither the name of a strategy nor a strategy.")

    name = registry.name_of(cls) or cls.__name__
    require_options(name, options, option_names(cls))
    return cls(**options)


def strategy_options(strategy: Strategy) -> dict[str, Any]:
    """Return the options of a strategy by name."""
    return {name: getattr(strategy, name) for name in option_names(type(strategy))}


def option_names(cls: type[Strategy]) -> list[str]:
    """Return the names of the options of a strategy class."""
    return list(inspect.signature(cls).parameters)


def build_context(
    outputs: Outputs,
    *,
    labelled: Outputs | None = None,
    labels: Array | Sequence[int] | None = None,
    seed: int = 0,
    device: torch.device | str | None = None,
) -> Context:
    """Return the context of a selection in which every row of ``outputs`` is a candidate."""
    if not isinstance(outputs, Outputs):
        raise InputError(
            f"outputs is a {type(outputs).__name__}: wrap the model outputs in teeter.Outputs."
        )
    _validate_labelled(outputs, labelled)

    # Tensors stay on their device. NumPy arrays go to a GPU if there is one.
    tensors = () if outputs.from_numpy else (outputs.any_tensor,)
    compute_device = choose_device(device, *tensors)

    # Logits of the labelled rows are computed here. Those of the candidates may be large, so
    # ``Strategy.select`` computes them, and only for a strategy that needs them.
    labelled_outputs = None
    if labelled is not None:
        labelled_outputs = labelled.to(compute_device).with_logits()

    label_tensor = None
    if labels is not None:
        validate = _validate_marks if outputs.several else _validate_labels
        label_tensor = validate(labels, labelled, outputs.n_classes, compute_device)

    return Context(
        candidates=np.arange(len(outputs)),
        outputs=outputs.to(compute_device),
        generator=stream(validate_seed(seed), "select"),
        labelled=labelled_outputs,
        labels=label_tensor,
        n_classes=outputs.n_classes,
    )


def _validate_labelled(outputs: Outputs, labelled: object) -> None:
    """Refuse labelled rows that cannot come from the model of the candidates."""
    if labelled is None:
        return
    if not isinstance(labelled, Outputs):
        raise InputError(
            f"labelled is a {type(labelled).__name__}: wrap the model outputs in teeter.Outputs."
        )

    if labelled.several != outputs.several:
        raise InputError(
            "The candidates and the labelled rows must both be Outputs(several=True), or neither."
        )

    # Features are (N, D), logits (N, C) and posterior logits (S, N, C): the row counts may differ,
    # D and C may not.
    for name, axis in (("features", 1), ("logits", 1), ("posterior_logits", 2)):
        candidates_value = getattr(outputs, name)
        labelled_value = getattr(labelled, name)
        if candidates_value is None or labelled_value is None:
            continue

        width = candidates_value.shape[axis]
        labelled_width = labelled_value.shape[axis]
        if width != labelled_width:
            raise InputError(
                f"The {name} of the candidates have {width} columns, but those of the labelled "
                f"rows have {labelled_width}."
            )


def _validate_labels(
    labels: object, labelled: Outputs | None, n_classes: int | None, device: torch.device
) -> Tensor:
    classes = as_integers(labels, "labels", device)
    if classes.ndim != 1:
        raise InputError(
            f"labels has shape {tuple(classes.shape)}: pass one class per labelled row."
        )
    if labelled is not None and len(labelled) != len(classes):
        raise InputError(
            f"There are {len(labelled)} labelled rows and {len(classes)} labels: pass one per row."
        )
    if not len(classes):
        return classes

    lowest = int(classes.min())
    highest = int(classes.max())
    if lowest < 0 or (n_classes is not None and highest >= n_classes):
        bound = ""
        if n_classes is not None:
            bound = f" to {n_classes - 1}"
        raise InputError(f"labels range from {lowest} to {highest}: classes are 0{bound}.")
    return classes


def _validate_marks(
    labels: object, labelled: Outputs | None, n_classes: int | None, device: torch.device
) -> Tensor:
    """Return which of several labels each labelled row has: (L, C) of 0 and 1."""
    marks = as_integers(labels, "labels", device)
    if marks.ndim != 2 or n_classes not in (None, marks.shape[1]):
        raise InputError(
            f"labels has shape {tuple(marks.shape)}: for several labels per row, pass a matrix of "
            f"0 and 1 with a column for each of the {n_classes or ''} labels."
        )
    if labelled is not None and len(labelled) != len(marks):
        raise InputError(
            f"There are {len(labelled)} labelled rows and {len(marks)} rows of labels: pass one "
            "per row."
        )
    if bool(((marks != 0) & (marks != 1)).any()):
        raise InputError("labels must be 0 or 1 if rows may have several of them.")
    return marks
