"""What a torch module tells: the linear layer it ends in, that layer's input as features, its output as logits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from teeter.arrays import choose_device
from teeter.errors import InputError
from teeter.models.inputs import BatchedInputs, adapt_to, batches
from teeter.models.outputs import Outputs

__all__ = [
    "call_model",
    "evaluation_mode",
    "extract_logits",
    "find_head",
    "forward_with_features",
    "observe_torch",
    "prepare_batch",
    "probe_batch",
]

_TRIED = 8
"""Texts or images that a head is looked for with: the outputs of every linear layer are kept meanwhile."""


def observe_torch(
    model: nn.Module,
    data: Any,
    *,
    batch_size: int,
    device: torch.device | str | None,
    head: str | None = None,
) -> Outputs:
    """Return logits, features and head of a module that ends in a linear layer; logits alone of one that does not."""
    with evaluation_mode(model, device) as where:
        found: str | None = None
        pieces: list[tuple[Tensor, Tensor | None]] = []
        rows = adapt_to(data, model)
        for batch in batches(rows, batch_size):
            if not pieces:
                found = find_head(model, probe_batch(rows, batch), where, named=head)
            pieces.append(forward_with_features(model, batch, where, found))
        if not pieces:
            raise InputError("Cannot observe an empty pool: the data has no rows.")
        logits = torch.cat([piece[0] for piece in pieces])
        if found is None:
            return Outputs(logits=logits)
        features = torch.cat([piece[1] for piece in pieces if piece[1] is not None])
        layer = _layer(model, found)
        weight, bias = (
            layer.weight.detach().clone(),
            None if layer.bias is None else layer.bias.detach().clone(),
        )
        if len(weight) == 1:
            weight, bias = _two_classes(weight, 0), None if bias is None else _two_classes(bias, 0)
        return Outputs(logits=logits, features=features, weight=weight, bias=bias)


@contextmanager
def evaluation_mode(model: nn.Module, device: torch.device | str | None) -> Iterator[torch.device]:
    """Within it, the module is in evaluation mode on ``device`` and tracks no gradients; all is put back after."""
    parameter = next(iter([*model.parameters(), *model.buffers()]), None)
    home = torch.device("cpu") if parameter is None else parameter.device
    where = home if device is None else choose_device(device)
    modes = {module: module.training for module in model.modules()}
    try:
        if where != home:
            model.to(where)
        model.eval()
        with torch.no_grad():  # not inference_mode: its tensors could not be trained on later
            yield where
    finally:
        for module, mode in modes.items():
            module.training = mode
        if where != home:
            model.to(home)


def call_model(model: nn.Module, batch: Any) -> Any:
    """Return what the module says to a batch that is ``ready``; a mapping becomes keyword arguments."""
    return model(**batch) if isinstance(batch, Mapping) else model(batch)


def extract_logits(answered: Any) -> Any:
    """Return the logits among what a module answered: those called so in a mapping, as Hugging Face's models have."""
    return answered.get("logits", answered) if isinstance(answered, Mapping) else answered


def probe_batch(data: Any, batch: Any) -> Any:
    """Return what to look for a head with: the first batch, or a few rows of those that make their own."""
    return (
        data.take(np.arange(min(_TRIED, len(data)))).together()
        if isinstance(data, BatchedInputs)
        else batch
    )


def prepare_batch(model: nn.Module, batch: Any, device: torch.device) -> Any:
    """Return a copy of a batch (a module may work in place) as tensors on ``device``, in the module's precision."""
    if isinstance(batch, Mapping):
        return {name: prepare_batch(model, part, device) for name, part in batch.items()}
    tensor = batch.clone() if isinstance(batch, Tensor) else _numbers(batch)
    if not tensor.is_floating_point():
        return tensor.to(device)
    dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), tensor.dtype)
    return tensor.to(device=device, dtype=dtype)


def _numbers(batch: Any) -> Tensor:
    try:
        array = np.array(batch)
    except ValueError:
        raise InputError(
            "The rows of the data differ in shape: a torch module takes them in batches."
        ) from None
    if array.dtype.kind == "U":
        raise InputError(
            "The data hold texts, and a torch module takes numbers: Texts of teeter.adapters.huggingface makes them."
        )
    if array.dtype.kind not in "biuf":
        raise InputError(f"The data hold {array.dtype} values: a torch module takes numbers.")
    return torch.from_numpy(array)


@dataclass
class _Call:
    name: str
    output: Tensor


def find_head(
    model: nn.Module, batch: Any, device: torch.device, *, named: str | None = None
) -> str | None:
    """Return the name of the linear layer whose output the module's answer is (or is the softmax of).

    None where no linear layer is; a sentence where several could be and none is ``named``.
    """
    if named is not None:
        _layer(model, named)
        return named
    calls: list[_Call] = []
    hooks = [
        module.register_forward_hook(_recorder(calls, name))
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear)
    ]
    try:
        answers = _tensors(call_model(model, prepare_batch(model, batch, device)))
    finally:
        for hook in hooks:
            hook.remove()
    if not calls:
        return None
    exact = {call.name for call in calls for one in answers if _comes_from(one, call.output)}
    if len(exact) > 1:
        raise InputError(
            f"{type(model).__name__} answers with several linear layers ({', '.join(sorted(exact))}): "
            "name the one to look at with head=."
        )
    if exact:
        return exact.pop()
    last = calls[-1]
    if any(one.shape == last.output.shape and _same_order(one, last.output) for one in answers):
        return last.name
    raise InputError(
        f"None of the linear layers of {type(model).__name__} ({', '.join(call.name for call in calls)}) gives its "
        "answer: name the one to look at with head=."
    )


def _recorder(calls: list[_Call], name: str) -> Callable[[nn.Module, Any, Tensor], None]:
    def record(module: nn.Module, inputs: Any, output: Tensor) -> None:
        calls.append(_Call(name, output.detach().clone()))

    return record


def _tensors(answered: Any) -> list[Tensor]:
    if isinstance(answered, Tensor):
        return [answered]
    if isinstance(answered, Mapping):
        return _tensors(list(answered.values()))
    if isinstance(answered, tuple | list):
        return [tensor for part in answered for tensor in _tensors(part)]
    return []


def _comes_from(answered: Tensor, output: Tensor) -> bool:
    if output.ndim == 3 and answered.ndim == 2:
        return _position(answered, output) is not None
    if output.shape[-1] == 1 and answered.numel() == output.numel():
        answered = answered.reshape(output.shape)
    if answered.shape != output.shape:
        return False
    ends = [output, output.softmax(dim=-1), output.log_softmax(dim=-1), output.sigmoid()]
    return any(torch.allclose(answered, end, rtol=1e-3, atol=1e-5, equal_nan=True) for end in ends)


def _position(answered: Tensor, output: Tensor) -> Tensor | None:
    """Return where each row's answer (B, C) stands in the outputs (B, T, C) of a head for every token: (B,), or None.

    Decoders classify a text by its last token that is not padding, and apply their head to all of them.
    """
    if answered.shape != (output.shape[0], output.shape[2]):
        return None
    away = (
        (output - answered.unsqueeze(1)).abs().amax(dim=2).nan_to_num(float("inf"))
    )  # padding may give NaN
    nearest, rows = away.argmin(dim=1), torch.arange(len(output), device=output.device)
    return (
        nearest if torch.allclose(output[rows, nearest], answered, rtol=1e-3, atol=1e-5) else None
    )


def _same_order(answered: Tensor, output: Tensor) -> bool:
    """Tell whether larger outputs never give smaller answers; a softmax rounds small ones to the same."""
    return bool((answered.gather(-1, output.argsort(dim=-1)).diff(dim=-1) >= 0).all())


def _layer(model: nn.Module, name: str) -> nn.Linear:
    found = dict(model.named_modules()).get(name)
    if not isinstance(found, nn.Linear):
        linear = [n for n, module in model.named_modules() if isinstance(module, nn.Linear)]
        raise InputError(
            f"{type(model).__name__} has no linear layer called {name!r}. It has: {', '.join(linear)}."
        )
    return found


def forward_with_features(
    model: nn.Module, batch: Any, device: torch.device, head: str | None
) -> tuple[Tensor, Tensor | None]:
    """Return the logits of a batch, and the features where there is a head: (B, C), (B, D).

    A single logit z becomes the two classes [0, z].
    """
    if head is None:
        return _answered_logits(call_model(model, prepare_batch(model, batch, device)), model), None
    seen: list[tuple[Tensor, Tensor]] = []

    def keep(module: nn.Module, inputs: Any, named: dict[str, Any], output: Tensor) -> None:
        given = inputs[0] if inputs else named["input"]
        seen.append(
            (output.detach().clone(), given.detach().clone())
        )  # what follows may work in place

    hook = _layer(model, head).register_forward_hook(keep, with_kwargs=True)
    try:
        answers = _tensors(call_model(model, prepare_batch(model, batch, device)))
    finally:
        hook.remove()
    if not seen:
        raise InputError(
            f"The layer {head!r} of {type(model).__name__} was not used for this data."
        )
    logits, features = _of_each_row(*seen[-1], answers)
    if features.ndim != 2:
        raise InputError(
            f"The layer {head!r} of {type(model).__name__} gets features of shape {tuple(features.shape)}: "
            "one vector a row is needed."
        )
    return logits if logits.shape[1] > 1 else _two_classes(logits, 1), features


def _of_each_row(logits: Tensor, features: Tensor, answers: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Return the logits and features at the positions that the answer is of, where a head looks at every token."""
    if logits.ndim != 3:
        return logits, features
    found = (_position(one, logits) for one in answers if one.ndim == 2)
    position = next((one for one in found if one is not None), None)
    if position is None:
        return logits, features
    rows = torch.arange(len(logits), device=logits.device)
    return logits[rows, position], features[rows, position]


def _answered_logits(told: Any, model: nn.Module) -> Tensor:
    tensors = _tensors(told)
    if len(tensors) != 1 or tensors[0].ndim != 2:
        shapes = [tuple(tensor.shape) for tensor in tensors]
        raise InputError(
            f"{type(model).__name__} has no linear layer and answers {shapes}: logits are (rows, classes)."
        )
    answered = tensors[0].detach()
    if bool((answered >= 0).all()) and torch.allclose(
        answered.sum(dim=1), answered.new_ones(()), atol=1e-3
    ):
        return answered.clamp_min(torch.finfo(answered.dtype).tiny).log()
    return answered.clone()


def _two_classes(tensor: Tensor, dim: int) -> Tensor:
    return torch.cat([torch.zeros_like(tensor), tensor], dim=dim)
