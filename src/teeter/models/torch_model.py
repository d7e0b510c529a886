"""Outputs of a torch module: find the linear layer that it ends in, and record what goes into it.

The last linear layer is the head. Its input is the features, and its output the logits, whatever
the module does with them afterwards. Nothing in a module says which layer that is, so ``find_head``
runs a batch and compares what each linear layer returned with what the module returned. Later
passes record the input and the output of the head by a hook.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from teeter.arrays import choose_device
from teeter.errors import InputError
from teeter.models.inputs import BatchedInputs, adapt_to, batches
from teeter.models.outputs import Outputs, are_probabilities

__all__ = [
    "as_logits",
    "call_model",
    "evaluation_mode",
    "extract_logits",
    "find_head",
    "forward_logits",
    "forward_with_features",
    "linear_layer",
    "observe_torch",
    "prepare_batch",
    "probe_batch",
]

_PROBE_ROWS = 8
"""Texts or images to find a head with: the outputs of every linear layer are in memory then."""

# A module may compute its result by a fused softmax or in another order than we do.
_RELATIVE_TOLERANCE = 1e-3
_ABSOLUTE_TOLERANCE = 1e-5


def observe_torch(
    model: nn.Module,
    data: Any,
    *,
    batch_size: int,
    device: torch.device | str | None,
    head: str | None = None,
) -> Outputs:
    """Return logits, features and head of a module; logits alone if it ends in no linear layer.

    Args:
        model: the module. A single logit z counts as the two classes [0, z].
        data: N rows in any form that ``observe`` takes.
        batch_size: rows at a time.
        device: where to run. The module is moved there and back. Its own device if None.
        head: the name of the last linear layer, if it cannot be found.

    Raises:
        InputError: if the data have no rows, or if it is not clear which layer is the head.
    """
    logit_pieces: list[Tensor] = []  # (B, C) each
    feature_pieces: list[Tensor] = []  # (B, D) each

    with evaluation_mode(model, device) as run_device:
        head_name: str | None = None
        rows = adapt_to(data, model)

        for batch in batches(rows, batch_size):
            if not logit_pieces:
                probe = probe_batch(rows, batch)
                head_name = find_head(model, probe, run_device, named=head)

            if head_name is None:
                logits = forward_logits(model, batch, run_device, None)
                logit_pieces.append(logits)
            else:
                logits, features = forward_with_features(model, batch, run_device, head_name)
                logit_pieces.append(logits)
                feature_pieces.append(features)

        if not logit_pieces:
            raise InputError("Cannot observe an empty pool: the data has no rows.")

        all_logits = torch.cat(logit_pieces)
        if head_name is None:
            return Outputs(logits=as_logits(all_logits))

        weight, bias = _copy_head(linear_layer(model, head_name))
        return Outputs(
            logits=all_logits,
            features=torch.cat(feature_pieces),
            weight=weight,
            bias=bias,
        )


@contextmanager
def evaluation_mode(
    model: nn.Module,
    device: torch.device | str | None,
) -> Iterator[torch.device]:
    """Run a module in evaluation mode on ``device`` without gradients, then restore it.

    Yields:
        The device that the module is on. Its own device if ``device`` is None.
    """
    # A module without any tensor can run anywhere.
    own_device = torch.device("cpu")
    first_tensor = next(chain(model.parameters(), model.buffers()), None)
    if first_tensor is not None:
        own_device = first_tensor.device

    run_device = own_device
    if device is not None:
        run_device = choose_device(device)

    # The modules inside may be in different modes, as batch norm of a frozen body is.
    modes = {module: module.training for module in model.modules()}
    try:
        if run_device != own_device:
            model.to(run_device)
        model.eval()
        # Not inference_mode: its tensors could not be trained on later.
        with torch.no_grad():
            yield run_device
    finally:
        for module, mode in modes.items():
            module.training = mode
        if run_device != own_device:
            model.to(own_device)


def find_head(
    model: nn.Module,
    batch: Any,
    device: torch.device,
    *,
    named: str | None = None,
) -> str | None:
    """Return the name of the linear layer whose output the module returns.

    The module may return that output unchanged, or its softmax, log-softmax, sigmoid, or anything
    else that keeps the order of the classes.

    Args:
        model: the module, in evaluation mode.
        batch: rows to run it on.
        device: where the module is.
        named: the name of the layer, if the caller knows it. Its output is checked against what
            the module returns.

    Returns:
        The name of the layer, or None if the module returns the output of none.

    Raises:
        InputError: if several layers match and none is named, or if the named one does not match.

    Example:
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3), nn.Softmax(dim=1))
        >>> find_head(model, torch.zeros(2, 4), torch.device("cpu"))
        '2'
    """
    if named is not None:
        linear_layer(model, named)

    calls, results = _record_linear_layers(model, batch, device)
    if named is not None:
        _require_head(model, named, calls, results)
        return named
    if not calls:
        return None

    # A set, because a layer that runs twice is still one layer.
    matching_names = set()
    for call in calls:
        if any(_is_output_or_softmax(result, call.output) for result in results):
            matching_names.add(call.layer)

    if len(matching_names) > 1:
        names = ", ".join(sorted(matching_names))
        raise InputError(
            f"{type(model).__name__} computes its output with several linear layers ({names}): "
            f"pass the name of one as head=."
        )
    if matching_names:
        return matching_names.pop()

    # A temperature, alone or inside a softmax, changes the values and keeps their order.
    last_call = calls[-1]
    for result in results:
        if _has_same_order(result, last_call.output):
            return last_call.layer

    return None


def forward_with_features(
    model: nn.Module,
    batch: Any,
    device: torch.device,
    head: str,
) -> tuple[Tensor, Tensor]:
    """Run a batch and return what leaves and what enters the head: (B, C) logits, (B, D) features.

    A single logit z becomes the two classes [0, z].

    Raises:
        InputError: if the batch does not reach the head, or reaches it with more than one vector
            per row.
    """
    # Output and input of each call of the head. The hook appends to the list, because it cannot
    # return anything to here.
    recorded: list[tuple[Tensor, Tensor]] = []

    def record(
        module: nn.Module,
        args: Any,
        kwargs: dict[str, Any],
        output: Tensor,
    ) -> None:
        head_input = args[0] if args else kwargs["input"]
        # Copies, because later layers may work in place.
        logits = output.detach().clone()
        features = head_input.detach().clone()
        recorded.append((logits, features))

    hook = linear_layer(model, head).register_forward_hook(record, with_kwargs=True)
    try:
        results = _run_batch(model, batch, device)
    finally:
        hook.remove()

    if not recorded:
        raise InputError(
            f"The layer {head!r} of {type(model).__name__} was not used for this data."
        )

    # A layer may run several times, as in a recurrent module. The last time gives the result.
    logits, features = recorded[-1]
    if logits.ndim == 3:
        logits, features = _take_result_tokens(logits, features, results)
    if features.ndim != 2:
        raise InputError(
            f"The layer {head!r} of {type(model).__name__} gets features of shape "
            f"{tuple(features.shape)}: it must get one vector per row."
        )

    if logits.shape[1] == 1:
        logits = _add_zero_class(logits, 1)
    return logits, features


def forward_logits(
    model: nn.Module,
    batch: Any,
    device: torch.device,
    head: str | None,
) -> Tensor:
    """Run a batch and return its logits (B, C).

    Without a head they are what the module returns; see ``as_logits``.

    Raises:
        InputError: if there is no head and the module does not return one matrix.
    """
    if head is not None:
        logits, _ = forward_with_features(model, batch, device, head)
        return logits

    returned = call_model(model, prepare_batch(model, batch, device))
    results = _collect_tensors(extract_logits(returned))
    if len(results) != 1 or results[0].ndim != 2:
        shapes = [tuple(result.shape) for result in results]
        raise InputError(
            f"{type(model).__name__} does not end in a linear layer and returns {shapes}: it must "
            f"return logits of shape (rows, classes), or one of its layers must be named by head=."
        )

    result = results[0].detach()
    if result.shape[1] == 1:
        return _add_zero_class(result, 1)
    return result.clone()


def as_logits(results: Tensor) -> Tensor:
    """Return what a module without a linear head returned for all rows (..., C) as logits.

    Probabilities are turned into their logarithms. All rows decide together, since a single batch
    may look like probabilities by chance or by rounding.
    """
    if not are_probabilities(results.float()):
        return results
    smallest = torch.finfo(results.dtype).tiny  # log 0 would be -inf
    return results.clamp_min(smallest).log_()


def call_model(model: nn.Module, batch: Any) -> Any:
    """Run a module on a batch of ``prepare_batch``. A mapping becomes keyword arguments."""
    if isinstance(batch, Mapping):
        return model(**batch)
    return model(batch)


def extract_logits(result: Any) -> Any:
    """Return ``logits`` of a mapping, as Hugging Face's models return, and other values as is."""
    if isinstance(result, Mapping):
        return result.get("logits", result)
    return result


def probe_batch(data: Any, batch: Any) -> Any:
    """Return rows to find a head with: the first batch, or a few rows of ``BatchedInputs``."""
    if isinstance(data, BatchedInputs):
        row_count = min(_PROBE_ROWS, len(data))
        first_rows = data.take(np.arange(row_count))
        return first_rows.as_one_batch()
    return batch


def prepare_batch(
    model: nn.Module,
    batch: Any,
    device: torch.device,
) -> Any:
    """Copy a batch to tensors on ``device``, floats in the precision of the module.

    A copy, because a module may work in place.

    Raises:
        InputError: if the rows are not numbers, or differ in shape.
    """
    if isinstance(batch, Mapping):
        return {name: prepare_batch(model, part, device) for name, part in batch.items()}

    if isinstance(batch, Tensor):
        tensor = batch.clone()
    else:
        tensor = _copy_to_tensor(batch)

    # Integers are tokens or categories, for an embedding: only floats follow the module.
    if not tensor.is_floating_point():
        return tensor.to(device)

    # The first parameter of floats decides: a module may have others among its parameters.
    dtype = tensor.dtype
    for parameter in model.parameters():
        if parameter.is_floating_point():
            dtype = parameter.dtype
            break
    return tensor.to(device=device, dtype=dtype)


def linear_layer(model: nn.Module, name: str) -> nn.Linear:
    """Return the linear layer of that name.

    Raises:
        InputError: if the module has no such layer. The message lists those that it has.
    """
    layers = {
        layer_name: module
        for layer_name, module in model.named_modules()
        if isinstance(module, nn.Linear)
    }
    if name not in layers:
        layer_names = ", ".join(layers)
        raise InputError(
            f"{type(model).__name__} has no linear layer called {name!r}. It has: {layer_names}."
        )
    return layers[name]


def _copy_head(layer: nn.Linear) -> tuple[Tensor, Tensor | None]:
    """Return copies of weight and bias, which training the module later does not change.

    A layer with a single output becomes that of two classes, [0, w].
    """
    weight = layer.weight.detach().clone()
    bias = None
    if layer.bias is not None:
        bias = layer.bias.detach().clone()

    if len(weight) == 1:
        weight = _add_zero_class(weight, 0)
        if bias is not None:
            bias = _add_zero_class(bias, 0)
    return weight, bias


def _run_batch(
    model: nn.Module,
    batch: Any,
    device: torch.device,
) -> list[Tensor]:
    """Run a module on a batch and return all tensors in what it returned."""
    result = call_model(model, prepare_batch(model, batch, device))
    return _collect_tensors(result)


@dataclass(frozen=True)
class _LayerCall:
    """One call of a linear layer: its name, and a copy of what it returned."""

    layer: str
    output: Tensor


def _record_linear_layers(
    model: nn.Module,
    batch: Any,
    device: torch.device,
) -> tuple[list[_LayerCall], list[Tensor]]:
    """Run a batch and return the calls of linear layers in order, and the tensors returned."""
    calls: list[_LayerCall] = []

    def recorder(layer: str) -> Callable[[nn.Module, Any, Tensor], None]:
        def record(
            module: nn.Module,
            args: Any,
            output: Tensor,
        ) -> None:
            # A copy, because later layers may work in place.
            copy = output.detach().clone()
            calls.append(_LayerCall(layer, copy))

        return record

    hooks = []
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            width_check = _width_check(model, name)
            hooks.append(module.register_forward_pre_hook(width_check, with_kwargs=True))
            hooks.append(module.register_forward_hook(recorder(name)))

    try:
        results = _run_batch(model, batch, device)
    finally:
        for hook in hooks:
            hook.remove()
    return calls, results


def _width_check(model: nn.Module, name: str) -> Callable[[nn.Module, Any, dict[str, Any]], None]:
    """Return a hook that refuses rows which are too wide or too narrow for a linear layer."""

    def check(layer: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        layer_input = args[0] if args else kwargs["input"]
        width = layer_input.shape[-1]
        if width != layer.in_features:
            raise InputError(
                f"The linear layer {name!r} of {type(model).__name__} takes {layer.in_features} "
                f"numbers per row, but gets {width}: check the width of the data."
            )

    return check


def _require_head(
    model: nn.Module,
    name: str,
    calls: list[_LayerCall],
    results: list[Tensor],
) -> None:
    """Refuse a linear layer whose output is not what the module returns."""
    outputs = [call.output for call in calls if call.layer == name]
    if not outputs:
        raise InputError(
            f"The layer {name!r} of {type(model).__name__} was not used for this data."
        )

    # An object without tensors that can be found says nothing against the layer.
    if not results:
        return

    for output in outputs:
        for result in results:
            if _is_output_or_softmax(result, output) or _has_same_order(result, output):
                return

    layer_width = outputs[-1].shape[-1]
    shapes = ", ".join(str(tuple(result.shape)) for result in results)
    raise InputError(
        f"{type(model).__name__} does not return the output of its layer {name!r} ({layer_width} "
        f"numbers per row), but a tensor of shape {shapes}: that layer is not its head. Leave out "
        f"head= to use the logits only."
    )


def _collect_tensors(result: Any) -> list[Tensor]:
    """Return all tensors in what a module returned, however nested."""
    if isinstance(result, Tensor):
        return [result]
    if isinstance(result, Mapping):
        return _collect_tensors(list(result.values()))

    tensors: list[Tensor] = []
    if isinstance(result, tuple | list):
        for part in result:
            tensors.extend(_collect_tensors(part))
    return tensors


def _is_output_or_softmax(result: Tensor, output: Tensor) -> bool:
    """Return whether ``result`` is a layer's output, or its softmax, log-softmax or sigmoid."""
    if output.ndim == 3 and result.ndim == 2:
        return _result_tokens(result, output) is not None

    # A binary module may return its single logit as (B,) instead of (B, 1).
    if output.shape[-1] == 1 and result.numel() == output.numel():
        result = result.reshape(output.shape)
    if result.shape != output.shape:
        return False

    candidates = [
        output,
        output.softmax(dim=-1),
        output.log_softmax(dim=-1),
        output.sigmoid(),
    ]
    return any(_is_close(result, candidate) for candidate in candidates)


def _is_close(result: Tensor, expected: Tensor) -> bool:
    return torch.allclose(
        result,
        expected,
        rtol=_RELATIVE_TOLERANCE,
        atol=_ABSOLUTE_TOLERANCE,
        equal_nan=True,
    )


def _has_same_order(result: Tensor, output: Tensor) -> bool:
    """Return whether a result has the shape of an output, and larger outputs never smaller results.

    Equal results are allowed: a softmax rounds small ones to the same number.
    """
    if result.shape != output.shape:
        return False

    ascending = output.argsort(dim=-1)
    sorted_results = result.gather(-1, ascending)
    differences = sorted_results.diff(dim=-1)
    return bool((differences >= 0).all())


def _result_tokens(result: Tensor, output: Tensor) -> Tensor | None:
    """Return the token whose output became the result of each row: (B,), or None if none did.

    Decoders apply their head to every token and return the output of the last one that is not
    padding.

    Args:
        result: (B, C) what the module returned.
        output: (B, T, C) what its head returned for each token.
    """
    B, _, C = output.shape
    if result.shape != (B, C):
        return None

    # (B, T) the largest difference of each token's output from the result.
    differences = (output - result.unsqueeze(1)).abs().amax(dim=2)
    differences = differences.nan_to_num(float("inf"))  # padding may give NaN
    nearest = differences.argmin(dim=1)

    rows = torch.arange(B, device=output.device)
    is_equal = torch.allclose(
        output[rows, nearest],
        result,
        rtol=_RELATIVE_TOLERANCE,
        atol=_ABSOLUTE_TOLERANCE,
    )
    if not is_equal:
        return None
    return nearest


def _take_result_tokens(
    logits: Tensor,
    features: Tensor,
    results: list[Tensor],
) -> tuple[Tensor, Tensor]:
    """Return logits and features of the token that gave each result: (B, T, C) -> (B, C)."""
    for result in results:
        if result.ndim != 2:
            continue
        tokens = _result_tokens(result, logits)
        if tokens is not None:
            rows = torch.arange(len(logits), device=logits.device)
            return logits[rows, tokens], features[rows, tokens]

    return logits, features


def _copy_to_tensor(batch: Any) -> Tensor:
    """Return a batch that is not a tensor as one of its own, in its own type of numbers."""
    try:
        array = np.array(batch)
    except ValueError:
        raise InputError(
            "The rows of the data differ in shape, so they cannot be put into batches for a "
            "torch module."
        ) from None

    if array.dtype.kind == "U":
        raise InputError(
            "The data hold texts, but a torch module takes numbers: convert them with "
            "teeter.adapters.Texts."
        )
    if array.dtype.kind not in "biuf":
        raise InputError(f"The data hold {array.dtype} values: a torch module takes numbers.")
    return torch.from_numpy(array)


def _add_zero_class(tensor: Tensor, dim: int) -> Tensor:
    """Return a binary head or logit [z] as that of two classes, [0, z]."""
    zeros = torch.zeros_like(tensor)
    return torch.cat([zeros, tensor], dim=dim)
