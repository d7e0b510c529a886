"""The front door: ``teeter.ldm``, ``teeter.select`` and ``teeter.scores`` check what they are handed, once."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, Literal, overload

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from teeter.arrays import (
    Array,
    as_input_type,
    as_integers,
    as_tensor,
    choose_device,
    require_finite,
)
from teeter.errors import InputError
from teeter.models.outputs import Outputs
from teeter.registry import did_you_mean
from teeter.seeds import stream
from teeter.strategies.base import Context, ScoringStrategy, Strategy, registry
from teeter.strategies.ldm import LdmEstimator

__all__ = [
    "build_context",
    "ldm",
    "make_strategy",
    "option_names",
    "scores",
    "select",
    "strategy_options",
]


@overload
def ldm(
    features: Tensor,
    weight: Array,
    bias: Array | None = ...,
    *,
    reference: Array | None = ...,
    method: Literal["rays", "gaussian"] = ...,
    rays: int | None = ...,
    sigmas: Sequence[float] | None = ...,
    patience: int = ...,
    sigma_max: float | None = ...,
    seed: int = ...,
    device: torch.device | str | None = ...,
) -> Tensor: ...
@overload
def ldm(
    features: npt.NDArray[Any],
    weight: Array,
    bias: Array | None = ...,
    *,
    reference: Array | None = ...,
    method: Literal["rays", "gaussian"] = ...,
    rays: int | None = ...,
    sigmas: Sequence[float] | None = ...,
    patience: int = ...,
    sigma_max: float | None = ...,
    seed: int = ...,
    device: torch.device | str | None = ...,
) -> npt.NDArray[np.floating[Any]]: ...
def ldm(
    features: Array,
    weight: Array,
    bias: Array | None = None,
    *,
    reference: Array | None = None,
    method: Literal["rays", "gaussian"] = "rays",
    rays: int | None = None,
    sigmas: Sequence[float] | None = None,
    patience: int = 10,
    sigma_max: float | None = None,
    seed: int = 0,
    device: torch.device | str | None = None,
) -> Array:
    """Return the least disagree metric of each row: the smallest share of rows that change label along with it.

    Args:
        features: (N, D) the input of the model's last layer.
        weight: (C, D) the last layer's weight.
        bias: (C,) its bias; a head without one is perturbed in its weight alone.
        reference: (M, D) features of the rows that disagreement is measured on; the candidates if left out.
        method: "rays" follows random directions, exact along each; "gaussian" is the paper's Algorithm 1.
        rays: how many rays; 512, or 1,024 where C * D > 20,000.
        sigmas: Algorithm 1's strengths; 51 from 1e-5 to 1 if left out.
        patience: Algorithm 1 goes on to the next strength after so many draws in vain.
        sigma_max: discard flips on a ray beyond this strength.
        seed: same seed, same directions.
        device: where to compute; a tensor's own device, or a GPU if there is one.

    Returns:
        (N,) in [0, 1], NumPy for NumPy and a tensor for a tensor; 1 where a row never flipped.
    """
    estimator = LdmEstimator(
        method=method, rays=rays, sigmas=sigmas, patience=patience, sigma_max=sigma_max
    )
    where = choose_device(device, features, weight)
    outputs = Outputs(features=features, weight=weight, bias=bias).to(where)
    if outputs.features is None or outputs.weight is None:
        raise InputError("The least disagree metric needs features and weight.")
    if not len(outputs):
        raise InputError("Cannot compute the LDM of an empty pool: it has no rows.")
    others = None if reference is None else _reference(reference, outputs.features)
    answer = estimator.ldm(
        outputs.features, outputs.weight, outputs.bias, seed=_seed(seed), reference=others
    )
    return as_input_type(answer, features)


def _reference(reference: Array, features: Tensor) -> Tensor:
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
    seed: int = 0,
    device: torch.device | str | None = None,
    **options: Any,
) -> npt.NDArray[np.int64]:
    """Return the n rows of ``outputs`` to label next, all different, best first.

    Args:
        strategy: a name of ``teeter.strategies.names()``, with its options as keywords; or a strategy.
        outputs: what the model tells of the N candidates.
        n: how many rows, 1 to N.
        labelled: what the model tells of the L labelled rows, for strategies that ask.
        labels: (L,) their classes, 0 to C - 1; only for strategies that read ``Context.labels``.
        seed: same seed, same picks.
        device: where to compute; the outputs' own device, or a GPU if they came from NumPy and there is one.
        **options: the strategy's own.
    """
    chosen = make_strategy(strategy, options)
    return chosen.select(
        build_context(outputs, labelled=labelled, labels=labels, seed=seed, device=device), n
    )


def scores(
    strategy: str | Strategy,
    outputs: Outputs,
    *,
    labelled: Outputs | None = None,
    labels: Array | Sequence[int] | None = None,
    seed: int = 0,
    device: torch.device | str | None = None,
    **options: Any,
) -> npt.NDArray[np.floating[Any]]:
    """Return the score that ``strategy`` gives each row, (N,); its ``best`` says which end is picked first."""
    chosen = make_strategy(strategy, options)
    if not isinstance(chosen, ScoringStrategy):
        raise InputError(
            f"{chosen.name} picks rows together and has no score for one alone: use teeter.select."
        )
    context = build_context(outputs, labelled=labelled, labels=labels, seed=seed, device=device)
    if not len(context):
        raise InputError("Cannot score an empty pool: it has no rows.")
    answer: npt.NDArray[np.floating[Any]] = chosen.scores(context).cpu().numpy()
    return answer


def make_strategy(strategy: str | Strategy, options: Mapping[str, Any] | None = None) -> Strategy:
    """Return the strategy called so with these options, refusing options that it does not have."""
    options = options or {}
    if isinstance(strategy, Strategy):
        if options:
            raise InputError(f"{strategy.name} is made already: give its options when you make it.")
        return strategy
    if not isinstance(strategy, str):
        raise InputError(f"{strategy!r} is neither the name of a strategy nor a strategy.")
    cls = registry.get(strategy)
    known = option_names(cls)
    for option in options:
        if option not in known:
            hint = did_you_mean(option, known) if known else "It has none."
            raise InputError(f"{strategy} has no option {option!r}. {hint}")
    return cls(**options)


def strategy_options(strategy: Strategy) -> dict[str, Any]:
    """Return the options that a strategy was made with."""
    return {name: getattr(strategy, name) for name in option_names(type(strategy))}


def option_names(cls: type[Strategy]) -> list[str]:
    """Return the names of a strategy's options."""
    return list(inspect.signature(cls).parameters)


def build_context(
    outputs: Outputs,
    *,
    labelled: Outputs | None = None,
    labels: Array | Sequence[int] | None = None,
    seed: int = 0,
    device: torch.device | str | None = None,
) -> Context:
    """Return the context of a bare selection: the candidates are the rows of ``outputs``."""
    if not isinstance(outputs, Outputs):
        raise InputError(
            f"outputs is a {type(outputs).__name__}: wrap what the model gives in teeter.Outputs."
        )
    where = choose_device(device, *(() if outputs.from_numpy else (outputs.any_tensor,)))
    n_classes = outputs.n_classes
    _check_labelled(outputs, labelled)
    known = None if labels is None else _labels(labels, labelled, n_classes, where)
    return Context(
        candidates=np.arange(len(outputs)),
        outputs=outputs.to(where),
        generator=stream(_seed(seed), "select"),
        labelled=None if labelled is None else labelled.to(where).with_logits(),
        labels=known,
        n_classes=n_classes,
    )


def _check_labelled(outputs: Outputs, labelled: object) -> None:
    """Refuse labelled rows that are not of the model that the candidates are of."""
    if labelled is None:
        return
    if not isinstance(labelled, Outputs):
        raise InputError(
            f"labelled is a {type(labelled).__name__}: wrap what the model gives in teeter.Outputs."
        )
    for name, axis in (("features", 1), ("logits", 1), ("posterior_logits", 2)):
        ours, theirs = getattr(outputs, name), getattr(labelled, name)
        if ours is not None and theirs is not None and ours.shape[axis] != theirs.shape[axis]:
            raise InputError(
                f"The candidates' {name} have {ours.shape[axis]} columns and the labelled rows' {theirs.shape[axis]}."
            )


def _labels(
    labels: object, labelled: Outputs | None, n_classes: int | None, device: torch.device
) -> Tensor:
    known = as_integers(labels, "labels", device)
    if known.ndim != 1:
        raise InputError(
            f"labels has shape {tuple(known.shape)}: one class a labelled row is needed."
        )
    if labelled is not None and len(labelled) != len(known):
        raise InputError(
            f"There are {len(labelled)} labelled rows and {len(known)} labels: one a row is needed."
        )
    if len(known) and (
        int(known.min()) < 0 or (n_classes is not None and int(known.max()) >= n_classes)
    ):
        bound = "" if n_classes is None else f" to {n_classes - 1}"
        raise InputError(
            f"labels run from {int(known.min())} to {int(known.max())}: classes are 0{bound}."
        )
    return known


def _seed(seed: object) -> int:
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
        raise InputError(f"The seed is {seed!r}: give a whole number.")
    return int(seed)
