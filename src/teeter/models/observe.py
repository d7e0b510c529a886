"""observe: one function that fills ``Outputs`` from any kind of model."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from teeter.base.arrays import as_tensor
from teeter.base.seeds import validate_seed
from teeter.errors import InputError
from teeter.models.inputs import BatchedInputs, batches, count_rows
from teeter.models.outputs import OUTPUTS, Outputs, are_probabilities
from teeter.models.posterior import PASSES, dropout_logits, stacked_logits
from teeter.models.sklearn_model import (
    has_predictions,
    observe_predictions,
    observe_sklearn,
    require_classifier,
    split_pipeline,
)
from teeter.models.torch_model import observe_torch

__all__ = ["is_estimator", "is_estimator_class", "is_network", "observe"]

_NEEDS = OUTPUTS - {"labelled"}
"""What can be asked of a model. The labelled rows come from the caller."""


def observe(
    model: Any,
    data: Any,
    needs: Collection[str] = ("logits", "features", "head"),
    *,
    batch_size: int = 1024,
    device: torch.device | str | None = None,
    seed: int = 0,
    head: str | None = None,
    passes: int = PASSES,
) -> Outputs:
    """Return what ``model`` says about the rows of ``data``: as much of ``needs`` as it has.

    Args:
        model: a torch module that ends in a linear layer, such as those of Lightning and Hugging
            Face, with or without a constant scale and a softmax after it; a fitted scikit-learn
            classifier or pipeline, which may end in one of skorch; another object with
            ``predict_proba`` or ``decision_function``; a callable from a batch to logits, to
            (logits, features) or to a dictionary of what ``Outputs`` takes; or a list of models,
            whose logits become the posterior (``ensemble_logits``) while the first one gives all
            else.
        data: an array, a tensor, a dictionary of them, a dataset, ``Texts`` or
            ``Images`` of ``teeter.models.adapters``; for scikit-learn whatever the model takes.
        needs: a subset of logits, features, head, dropout_logits, ensemble_logits.
        batch_size: rows at a time. It does not change the result.
        device: where to run a torch module, which is moved there and back; its own device if left
            out.
        seed: decides the dropout passes.
        head: the name of a torch module's last linear layer, if it cannot be found.
        passes: the number of dropout passes.

    Example:
        >>> import numpy as np
        >>> from teeter import observe
        >>> from sklearn.linear_model import LogisticRegression
        >>> rows = np.array([[0.0, 1.0], [1.0, 0.0], [0.5, 0.5]])
        >>> model = LogisticRegression().fit(rows, ["a", "b", "c"])
        >>> observe(model, rows)
        Outputs(logits=(3, 3), features=(3, 2), weight=(3, 2), bias=(3,))
    """
    unknown = sorted(set(needs) - _NEEDS)
    if unknown:
        raise InputError(f"Unknown outputs requested: {unknown}. Choose from {sorted(_NEEDS)}.")

    seed = validate_seed(seed)

    if isinstance(model, list | tuple):
        return _observe_ensemble(
            model,
            data,
            needs,
            batch_size=batch_size,
            device=device,
            seed=seed,
            head=head,
            passes=passes,
        )

    # The network inside an estimator shows its head; the estimator around it shows probabilities
    # only.
    network = _inner_network(model)
    if network is not None:
        steps, classifier = split_pipeline(model)
        require_classifier(classifier)
        for step in steps:
            data = step.transform(data)
        model = network

    outputs = _observe_model(
        model,
        data,
        needs,
        batch_size=batch_size,
        device=device,
        head=head,
    )
    if isinstance(model, nn.Module) and "dropout_logits" in needs:
        posterior = dropout_logits(
            model,
            data,
            passes=passes,
            seed=seed,
            device=device,
            head=head,
        )
        outputs = outputs.with_posterior(posterior)

    _require_all_rows(outputs, data)
    return outputs


def is_estimator(model: object) -> bool:
    """Return whether ``model`` is a scikit-learn estimator, without importing scikit-learn."""
    # If nothing has imported scikit-learn yet, no estimator can exist.
    base = sys.modules.get("sklearn.base")
    return base is not None and isinstance(model, base.BaseEstimator)


def is_estimator_class(model: object) -> bool:
    """Return whether ``model`` is a class of scikit-learn estimators instead of an instance."""
    base = sys.modules.get("sklearn.base")
    return base is not None and isinstance(model, type) and issubclass(model, base.BaseEstimator)


def is_network(model: object) -> bool:
    """Return whether ``model`` has an output for every class, also for those it never saw.

    So has a torch module, alone or inside a fitted estimator. Other estimators have columns for the
    classes of their training labels only.
    """
    return isinstance(model, nn.Module) or _inner_network(model) is not None


def _inner_network(model: object) -> nn.Module | None:
    """Return the torch module that a fitted estimator or the end of a pipeline wraps, or None.

    The estimators of skorch have it as ``module_``. That is all that teeter knows about skorch.
    """
    if not is_estimator(model):
        return None

    _, classifier = split_pipeline(model)
    network = getattr(classifier, "module_", None)
    return network if isinstance(network, nn.Module) else None


def _observe_model(
    model: Any,
    data: Any,
    needs: Collection[str],
    *,
    batch_size: int,
    device: torch.device | str | None,
    head: str | None,
) -> Outputs:
    """Observe one model in the way that fits its kind.

    Raises:
        InputError: if the model is of no kind that can be observed, or ``data`` is not for it.
    """
    # The most specific first: torch modules and estimators can be called, too.
    if isinstance(model, nn.Module):
        return observe_torch(
            model,
            data,
            batch_size=batch_size,
            device=device,
            needs=needs,
            head=head,
        )

    if is_estimator(model):
        if isinstance(data, BatchedInputs):
            raise InputError(
                f"{type(data).__name__} are inputs for a network: give the columns themselves to "
                f"a {type(model).__name__}."
            )
        return observe_sklearn(model, data)

    if is_estimator_class(model):
        raise InputError(
            f"The model is the class {model.__name__}: give a fitted instance of it instead."
        )
    if has_predictions(model):
        return observe_predictions(model, data)
    if callable(model):
        return _observe_callable(model, data, batch_size)

    raise InputError(
        f"Cannot observe an object of type {type(model).__name__}: give a torch module that "
        "ends in a linear layer, a fitted scikit-learn classifier, an object with "
        "predict_proba or decision_function, or a callable that returns logits and features."
    )


def _require_all_rows(outputs: Outputs, data: Any) -> None:
    """Check that a model returned a row for each row of ``data``."""
    # The dataset of a data loader need not have a length.
    if isinstance(data, DataLoader):
        return

    row_count = count_rows(data)
    if len(outputs) != row_count:
        raise InputError(
            f"The model returned {len(outputs)} rows, but the data has {row_count}: it must "
            f"return one row for each."
        )


def _observe_ensemble(
    models: Sequence[Any],
    data: Any,
    needs: Collection[str],
    **options: Any,
) -> Outputs:
    """Observe several models: all that is needed of the first, and logits of the others."""
    if not models:
        raise InputError("An ensemble needs at least one model, but this list is empty.")

    first = observe(models[0], data, needs, **options)
    other_outputs = [observe(model, data, ("logits",), **options) for model in models[1:]]
    posterior = stacked_logits([first, *other_outputs])
    return first.with_posterior(posterior)


def _observe_callable(
    model: Callable[[Any], Any],
    data: Any,
    batch_size: int,
) -> Outputs:
    """Observe a function from a batch to outputs, and put its results together."""
    results = [_name_parts(model(batch)) for batch in batches(data, batch_size)]
    if not results:
        raise InputError("Cannot observe an empty pool: the data has no rows.")

    parts: dict[str, Any] = {}
    for name in results[0]:
        if name in ("weight", "bias"):
            # The head is the same for all rows, so that of the first batch is enough.
            parts[name] = results[0][name]
        else:
            row_axis = 0
            if name == "posterior_logits":  # (S, N, C)
                row_axis = 1

            pieces = [result[name] for result in results]
            parts[name] = _concatenate(pieces, row_axis)

    # The message of ``Outputs`` names its arguments, which a callable does not have.
    if "logits" in parts and "weight" not in parts:
        logits = as_tensor(parts["logits"], "logits")
        if are_probabilities(logits):
            raise InputError(
                "The model returned rows that are non-negative and sum to 1, as probabilities do: "
                'return {"probabilities": p} instead, or return logits.'
            )
    return Outputs(**parts)


def _name_parts(result: Any) -> Mapping[str, Any]:
    """Return what a callable returned for a batch, by the names that ``Outputs`` uses."""
    if isinstance(result, Outputs):
        values = vars(result)
        return {name: value for name, value in values.items() if isinstance(value, Tensor)}

    if isinstance(result, Mapping):
        names = {"logits", "features", "weight", "bias", "posterior_logits", "probabilities"}
        if not result or set(result) - names:
            raise InputError(
                f"The model returned {sorted(result)}: use names from {sorted(names)}."
            )
        return {name: value for name, value in result.items() if value is not None}

    if isinstance(result, tuple | list):
        if len(result) != 2:
            raise InputError(
                f"The model returned {len(result)} values: return logits, or a pair (logits, "
                "features)."
            )
        logits, features = result
        return {"logits": logits, "features": features}

    return {"logits": result}


def _concatenate(pieces: list[Any], axis: int) -> Any:
    """Concatenate tensors, or whatever NumPy takes for arrays."""
    if isinstance(pieces[0], Tensor):
        return torch.cat([piece.detach() for piece in pieces], dim=axis)
    return np.concatenate([np.asarray(piece) for piece in pieces], axis=axis)
