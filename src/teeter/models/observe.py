"""observe: what a model tells of some rows, whoever made the model."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from teeter.errors import InputError
from teeter.models.inputs import BatchedInputs, batches, count_rows
from teeter.models.outputs import OUTPUTS, Outputs
from teeter.models.posterior import PASSES, dropout_logits, stacked_logits
from teeter.models.sklearn_model import observe_sklearn
from teeter.models.skorch_model import is_skorch, unwrap_network
from teeter.models.torch_model import observe_torch

__all__ = ["is_estimator", "is_network", "observe"]


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
    """Return what ``model`` tells of the rows of ``data``: as much of ``needs`` as it has, in one pass.

    Args:
        model: a torch module that ends in a linear layer, Lightning's and Hugging Face's among them; a fitted
            scikit-learn classifier or pipeline, which may end in skorch's; a callable from a batch to logits, to
            (logits, features) or to a dictionary of what ``Outputs`` takes; or a list of models, whose logits become
            the posterior (``ensemble_logits``) while the first one tells the rest.
        data: an array, a tensor, a dictionary of them, a dataset, texts or images of ``teeter.adapters.huggingface``;
            for scikit-learn whatever the model takes.
        needs: a subset of logits, features, head, dropout_logits, ensemble_logits.
        batch_size: rows at a time; it changes nothing.
        device: where to run a torch module, which is moved there and back; its own device if left out.
        seed: decides the dropout passes.
        head: the name of a torch module's last linear layer, where it cannot be found by itself.
        passes: how many dropout passes.
    """
    unknown = set(needs) - (OUTPUTS - {"labelled"})
    if unknown:
        raise InputError(
            f"Nobody can tell {sorted(unknown)}: needs are among {sorted(OUTPUTS - {'labelled'})}."
        )
    if isinstance(model, list | tuple):
        return _ensemble(
            model,
            data,
            needs,
            batch_size=batch_size,
            device=device,
            seed=seed,
            head=head,
            passes=passes,
        )
    if is_estimator(model) and is_skorch(model):
        model, data = unwrap_network(model, data)
    if isinstance(model, nn.Module):
        outputs = observe_torch(model, data, batch_size=batch_size, device=device, head=head)
        if "dropout_logits" in needs:
            posterior = dropout_logits(
                model, data, passes=passes, seed=seed, device=device, head=head
            )
            outputs = outputs.with_posterior(posterior)
    elif is_estimator(model):
        if isinstance(data, BatchedInputs):
            raise InputError(
                f"{type(data).__name__} are a network's inputs: give a {type(model).__name__} the columns."
            )
        outputs = observe_sklearn(model, data)
    elif callable(model):
        outputs = _observe_callable(model, data, batch_size)
    else:
        raise InputError(
            f"Cannot observe a {type(model).__name__}: give a torch module that ends in a linear layer, a fitted "
            "scikit-learn classifier, or a callable that returns logits and features."
        )
    if not isinstance(data, DataLoader) and len(outputs) != count_rows(data):
        raise InputError(
            f"The model told of {len(outputs)} rows, and the data has {count_rows(data)}."
        )
    return outputs


def is_estimator(model: object) -> bool:
    """Tell whether ``model`` is scikit-learn's kind, without importing scikit-learn for those who do not use it."""
    base = sys.modules.get("sklearn.base")
    return base is not None and isinstance(model, base.BaseEstimator)


def is_network(model: object) -> bool:
    """Tell whether the classes that ``model`` tells of are the outputs of a network, whichever it has seen."""
    return isinstance(model, nn.Module) or (is_estimator(model) and is_skorch(model))


def _ensemble(models: Sequence[Any], data: Any, needs: Collection[str], **options: Any) -> Outputs:
    if not models:
        raise InputError("An ensemble needs one model or more, and this list is empty.")
    first = observe(models[0], data, needs, **options)
    others = [observe(model, data, ("logits",), **options) for model in models[1:]]
    return first.with_posterior(stacked_logits([first, *others]))


def _observe_callable(model: Callable[[Any], Any], data: Any, batch_size: int) -> Outputs:
    answers = [_named(model(batch)) for batch in batches(data, batch_size)]
    if not answers:
        raise InputError("Cannot observe an empty pool: the data has no rows.")
    head = {
        name: answers[0][name] for name in ("weight", "bias") if answers[0].get(name) is not None
    }
    rows = {
        name: _joined([answer[name] for answer in answers], 0)
        for name in ("logits", "features")
        if name in answers[0]
    }
    if "posterior_logits" in answers[0]:
        rows["posterior_logits"] = _joined([answer["posterior_logits"] for answer in answers], 1)
    return Outputs(**rows, **head)


def _named(answer: Any) -> Mapping[str, Any]:
    """Return a callable's answer by name."""
    if isinstance(answer, Outputs):
        return {name: value for name, value in vars(answer).items() if isinstance(value, Tensor)}
    if isinstance(answer, Mapping):
        known = {"logits", "features", "weight", "bias", "posterior_logits"}
        if not answer or set(answer) - known:
            raise InputError(
                f"The model answered {sorted(answer)}: name parts as in {sorted(known)}."
            )
        return {name: value for name, value in answer.items() if value is not None}
    if isinstance(answer, tuple | list):
        if len(answer) != 2:
            raise InputError(
                f"The model answered {len(answer)} things: a pair is (logits, features)."
            )
        return {"logits": answer[0], "features": answer[1]}
    return {"logits": answer}


def _joined(pieces: list[Any], axis: int) -> Any:
    if isinstance(pieces[0], Tensor):
        return torch.cat([piece.detach() for piece in pieces], dim=axis)
    return np.concatenate([np.asarray(piece) for piece in pieces], axis=axis)
