"""Outputs of a torch module: find the linear layer that it ends in, and record what goes into it.

The last linear layer is the head, and its input is the features. Nothing in a module says which
layer that is, so ``find_head`` runs a batch and compares what each linear layer returned with what
the module returned: the output of the head, its softmax, log-softmax or sigmoid, or any of these
after a constant scale and shift, which become part of the head. Later passes record the input and
the output of the head by a hook, and compare again. If a module does anything else with the output
of its last layer, then it has no head, and what it returns are its logits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset

from teeter.base.arrays import choose_device
from teeter.errors import InputError
from teeter.models.inputs import (
    adapt_to,
    as_one_batch,
    batches,
    count_rows,
    is_stream,
    take_rows,
)
from teeter.models.outputs import Outputs, are_probabilities

_PROBE_ROWS = 8
"""Rows to find a head with: the outputs of every linear layer are in memory then."""
_PROBE_VECTORS = 256
"""The same for rows of numbers, which take little memory. The more rows, the surer the head."""

_TOLERANCE = 1e-5
"""How far a result may be from the logits of the head, relative to the largest logit of the row."""
_HALF_PRECISION_UNITS = 2
"""The same for half precision, in machine epsilons: a scale and a shift round once each."""
_TOKEN_TOLERANCE = 1e-3
"""How far the result of a decoder may be from the output of one of its tokens."""
_LEAST_SPREAD = 1e-6
"""The least variance of outputs, relative to their mean square, to find a scale from."""
_LARGEST_SIGMOID = 0.9
"""Sigmoids above say little about their logits: 1 - p has few digits."""


class NotTheHeadError(InputError):
    """A module returned something for a batch that does not come from its head alone."""


@dataclass(frozen=True, eq=False)
class LinearHead:
    """The linear layer that a module ends in, and the constants that the module applies to it."""

    layer: str
    """The name of the layer."""
    scale: float = 1.0
    """What the module multiplies the output of the layer by, such as an inverse temperature."""
    shift: Tensor | None = None
    """(C,) float64, what the module adds then. None: nothing."""

    @property
    def is_plain(self) -> bool:
        """Whether the output of the layer is the logits as it is."""
        return self.scale == 1 and self.shift is None

    def logits(self, output: Tensor) -> Tensor:
        """Return the logits for what the layer returned: (..., C) -> (..., C)."""
        if self.scale != 1:
            output = output * self.scale
        if self.shift is not None:
            output = output + self.shift.to(output)
        return output


def observe_torch(
    model: nn.Module,
    data: Any,
    *,
    batch_size: int,
    device: torch.device | str | None,
    needs: Collection[str],
    head: str | None,
) -> Outputs:
    """Return logits, features and head of a module; logits alone if it ends in no linear layer.

    Args:
        model: the module. A single logit z counts as the two classes [0, z].
        data: N rows in any form that ``observe`` takes.
        needs: what is wanted. If that is features alone, a module that does more than a scale and a
            shift to the output of its last layer gives the input of that layer.
        batch_size: rows at a time.
        device: where to run. The module is moved there and back. Its own device if None.
        head: the name of the last linear layer, if it cannot be found.

    Raises:
        InputError: if the data have no rows, or if it is not clear which layer is the head.
    """
    with evaluation_mode(model, device) as run_device:
        rows = adapt_to(data, model)
        all_batches = iter(batches(rows, batch_size))
        first_batch = next(all_batches, None)
        if first_batch is None:
            raise InputError("Cannot observe an empty pool: the data has no rows.")

        probe = probe_batch(rows, first_batch)
        linear_head = find_head(model, probe, run_device, named=head)
        all_batches = chain([first_batch], all_batches)
        if linear_head is not None:
            try:
                return _observe_head(model, all_batches, run_device, linear_head)
            except NotTheHeadError:
                # Only some rows show what a module does to its logits, as a ReLU does.
                if head is not None or is_stream(rows):
                    raise
                all_batches = batches(rows, batch_size)

        # The input of the last layer is exact whatever the module does with the output. It is given
        # only to those who need nothing else, because no logits belong to it.
        last_layer = None
        if set(needs) == {"features"}:
            last_layer = _find_last_layer(model, probe, run_device)
        if last_layer is not None:
            pieces = [
                _run_and_record(model, batch, run_device, last_layer)[0] for batch in all_batches
            ]
            return Outputs(features=torch.cat(pieces))

        pieces = [forward_logits(model, batch, run_device, None) for batch in all_batches]
        return Outputs(logits=as_logits(torch.cat(pieces)))


def _observe_head(
    model: nn.Module,
    all_batches: Iterable[Any],
    device: torch.device,
    head: LinearHead,
) -> Outputs:
    """Return the outputs of a module that ends in this head."""
    logit_pieces = []  # (B, C) each
    feature_pieces = []  # (B, D) each
    for batch in all_batches:
        logits, features = forward_with_features(model, batch, device, head)
        logit_pieces.append(logits)
        feature_pieces.append(features)

    weight, bias = _copy_head(linear_layer(model, head.layer), head)
    return Outputs(
        logits=torch.cat(logit_pieces),
        features=torch.cat(feature_pieces),
        weight=weight,
        bias=bias,
    )


def _find_last_layer(model: nn.Module, batch: Any, device: torch.device) -> str | None:
    """Return the linear layer that ran last, if the module returns its output changed.

    None if the module returns something of another shape, or the layer gets several vectors per
    row.
    """
    calls, results = _record_linear_layers(model, batch, device)
    if not calls:
        return None
    last_call = calls[-1]
    output = last_call.output
    if output.ndim != 2:
        return None
    if all(_align(result, output) is None for result in results):
        return None
    return last_call.layer


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
) -> LinearHead | None:
    """Return the linear layer whose output, scaled and shifted or not, the module returns.

    The module may return the logits themselves, up to a number per row, or their softmax,
    log-softmax or sigmoid. If its output is of another kind, as after a ReLU, there is no head.

    Args:
        model: the module, in evaluation mode.
        batch: rows to run it on.
        device: where the module is.
        named: the name of the layer, if the caller knows it. Its output is checked against what
            the module returns.

    Returns:
        The layer with its constants, or None if the module returns the logits of none.

    Raises:
        InputError: if several layers match and none is named, if the named one does not match, or
            if the module returns several tensors and another one may be the logits.

    Example:
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3), nn.Softmax(dim=1))
        >>> find_head(model, torch.zeros(2, 4), torch.device("cpu")).layer
        '2'
    """
    if named is not None:
        linear_layer(model, named)

    calls, results = _record_linear_layers(model, batch, device)
    if named is not None:
        return _require_head(model, named, calls, results)

    # By name, because a layer that runs twice is still one layer.
    heads: dict[str, LinearHead] = {}
    call_of_layer: dict[str, _LayerCall] = {}
    for call in calls:
        head = _match_head(call, results)
        # A later call of the same layer counts, because its output is what is recorded.
        if head is not None:
            heads[call.layer] = head
            call_of_layer[call.layer] = call

    # Layers whose output is returned as it is come before those with a scale.
    plain_heads = [head for head in heads.values() if head.is_plain]
    matching_heads = plain_heads or list(heads.values())
    if len(matching_heads) > 1:
        names = ", ".join(sorted(head.layer for head in matching_heads))
        raise InputError(
            f"{type(model).__name__} computes its output with several linear layers ({names}): "
            f"pass the name of one as head=."
        )
    if not matching_heads:
        return None

    (head,) = matching_heads
    _require_clear_logits(model, results, call_of_layer[head.layer], head)
    return head


def _require_clear_logits(
    model: nn.Module, results: list[Tensor], call: _LayerCall, head: LinearHead
) -> None:
    """Refuse a head if a tensor that is returned before its output may be the logits instead.

    So it is with a cosine classifier that also returns the embedding, which a linear layer made.
    """
    for result in results:
        if _shows_head(result, call.output, head):
            return

        may_be_logits = (
            result.is_floating_point() and result.ndim == 2 and len(result) == len(call.output)
        )
        is_layer_input = result.shape == call.layer_input.shape and torch.equal(
            result.to(call.layer_input), call.layer_input
        )
        if may_be_logits and not is_layer_input:
            shapes = ", ".join(str(tuple(tensor.shape)) for tensor in results)
            raise InputError(
                f"{type(model).__name__} returns several tensors ({shapes}), and it is not clear "
                f'which one holds the logits: let it return {{"logits": ...}}, or the logits '
                f"alone, or name the linear layer whose output they are by head=."
            )


def forward_with_features(
    model: nn.Module,
    batch: Any,
    device: torch.device,
    head: LinearHead,
) -> tuple[Tensor, Tensor]:
    """Run a batch and return the logits (B, C), and what enters the head: (B, D) features.

    A single logit z becomes the two classes [0, z].

    Raises:
        NotTheHeadError: if the module returns anything but these logits, their softmax, log-softmax
            or sigmoid.
        InputError: if the batch does not reach the head, or reaches it with more than one vector
            per row.
    """
    features, output, results = _run_and_record(model, batch, device, head.layer)

    # An object without tensors that can be found says nothing against the head.
    if results and not any(_shows_head(result, output, head) for result in results):
        raise NotTheHeadError(
            f"{type(model).__name__} does not return the output of its layer {head.layer!r} times "
            f"one constant for all rows, so that layer is not its head: leave out head= and pass "
            f"rows that can be read twice, to use the logits only."
        )

    logits = None
    if _is_half_precision(output):
        logits = _own_logits(results, output, head)
    if not head.is_plain:
        features = _at_least_float32(features)
        output = _at_least_float32(output)
    if logits is None:
        logits = head.logits(output)
    if logits.shape[1] == 1:
        logits = _add_zero_class(logits, 1)
    return logits, features


def _own_logits(results: list[Tensor], output: Tensor, head: LinearHead) -> Tensor | None:
    """Return the logits (B, C) that a module returned itself; None if it returned no logits.

    Half precision is so coarse that the head's logits may differ from them by more than a percent.
    """
    for result in results:
        is_alike = result.numel() == output.numel() and result.is_floating_point()
        if not is_alike:
            continue
        pair = _align(result, output)
        if pair is not None and _is_image(*pair, head, _Ending.NONE):
            return result.detach().reshape(output.shape).clone()
    return None


def _is_half_precision(tensor: Tensor) -> bool:
    if not tensor.is_floating_point():
        return False
    return torch.finfo(tensor.dtype).bits < 32


def _at_least_float32(tensor: Tensor) -> Tensor:
    """Return a tensor in which a scale does not overflow, as it may in half precision."""
    if _is_half_precision(tensor):
        return tensor.float()
    return tensor


def _run_and_record(
    model: nn.Module,
    batch: Any,
    device: torch.device,
    layer: str,
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Run a batch and record one vector per row of what enters and leaves a linear layer.

    Returns:
        What the layer got (B, D), what it returned (B, C), and what the module returned.

    Raises:
        InputError: if the batch does not reach the layer, or reaches it with more than one vector
            per row.
    """
    layers = {layer: linear_layer(model, layer)}
    calls, results = _record_layers(model, batch, device, layers)
    if not calls:
        raise InputError(
            f"The layer {layer!r} of {type(model).__name__} was not used for this data."
        )

    # A layer may run several times, as in a recurrent module. The last time gives the result.
    features = calls[-1].layer_input
    output = calls[-1].output
    if output.ndim == 3:
        output, features = _take_result_tokens(output, features, results)
    if features.ndim != 2:
        raise InputError(
            f"The layer {layer!r} of {type(model).__name__} gets features of shape "
            f"{tuple(features.shape)}: it must get one vector per row."
        )
    return features, output, results


def forward_logits(
    model: nn.Module,
    batch: Any,
    device: torch.device,
    head: LinearHead | None,
) -> Tensor:
    """Run a batch and return its logits (B, C).

    Without a head they are what the module returns, for ``as_logits``.

    Raises:
        NotTheHeadError: as ``forward_with_features``.
        InputError: if there is no head and the module does not return one matrix.
    """
    if head is not None:
        logits, _ = forward_with_features(model, batch, device, head)
        return logits

    results = _run_batch(model, batch, device)
    if len(results) != 1 or results[0].ndim != 2:
        shapes = [tuple(result.shape) for result in results]
        raise InputError(
            f"{type(model).__name__} does not end in a linear layer and returns {shapes}: it must "
            f"return logits of shape (rows, classes), or one of its layers must be named by head=."
        )

    return results[0].detach().clone()


def as_logits(results: Tensor) -> Tensor:
    """Return what a module without a linear head returned for all rows (..., C) as logits.

    Probabilities are turned into their logarithms, and a single logit z into the two classes
    [0, z]. All rows decide together, since a single batch may look like probabilities by chance or
    by rounding.

    Raises:
        InputError: if there is one number per row, and it may be a logit or a probability.
    """
    if results.shape[-1] == 1:
        if bool(((results >= 0) & (results <= 1)).all()):
            raise InputError(
                "The module returns one number per row, all from 0 to 1, which may be logits or "
                "probabilities: let it return a column for each of the two classes."
            )
        return _add_zero_class(results, results.ndim - 1)

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
    """Return rows to find a head with: the first few, whatever the size of the batches is.

    Args:
        data: all rows.
        batch: the first batch, for data that cannot be indexed.
    """
    if isinstance(data, DataLoader | IterableDataset):
        return batch

    most_rows = _PROBE_ROWS
    is_floating = False
    if isinstance(data, Tensor):
        is_floating = data.is_floating_point()
    if isinstance(data, np.ndarray):
        is_floating = data.dtype.kind == "f"
    if is_floating and data.ndim == 2:
        most_rows = _PROBE_VECTORS
    row_count = min(most_rows, count_rows(data))
    return as_one_batch(take_rows(data, np.arange(row_count)))


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
                "teeter.models.Texts."
            )
        if array.dtype.kind not in "biuf":
            raise InputError(f"The data hold {array.dtype} values: a torch module takes numbers.")
        tensor = torch.from_numpy(array)

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


def _copy_head(layer: nn.Linear, head: LinearHead) -> tuple[Tensor, Tensor | None]:
    """Return copies of weight and bias, which training the module later does not change.

    The scale and the shift of the head become part of them. A layer with a single output becomes
    that of two classes, [0, w].
    """
    weight = layer.weight.detach().clone()
    bias = None
    if layer.bias is not None:
        bias = layer.bias.detach().clone()

    if not head.is_plain:
        weight = _at_least_float32(weight)
        if bias is not None:
            bias = _at_least_float32(bias)
    if head.scale != 1:
        weight *= head.scale
        if bias is not None:
            bias *= head.scale
    if head.shift is not None:
        shift = head.shift.to(weight)
        if bias is not None:
            shift = bias + shift
        bias = shift

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
    """Run a module on a batch and return all tensors in what it returned as its logits."""
    result = call_model(model, prepare_batch(model, batch, device))
    return _collect_tensors(extract_logits(result))


@dataclass(frozen=True)
class _LayerCall:
    """One call of a linear layer: its name, and copies of what it got and returned."""

    layer: str
    layer_input: Tensor
    output: Tensor


def _record_linear_layers(
    model: nn.Module,
    batch: Any,
    device: torch.device,
) -> tuple[list[_LayerCall], list[Tensor]]:
    """Run a batch and return the calls of linear layers in order, and the tensors returned.

    Raises:
        InputError: if rows are too wide or too narrow for a layer.
    """
    layers = {}
    with ExitStack() as hooks:
        for name, module in model.named_modules():
            if isinstance(module, nn.Linear):
                layers[name] = module
                check = partial(_check_width, f"{name!r} of {type(model).__name__}")
                hooks.enter_context(module.register_forward_pre_hook(check, with_kwargs=True))
        return _record_layers(model, batch, device, layers)


def _record_layers(
    model: nn.Module,
    batch: Any,
    device: torch.device,
    layers: Mapping[str, nn.Module],
) -> tuple[list[_LayerCall], list[Tensor]]:
    """Run a batch and return the calls of some layers in order, and the tensors returned."""
    # The hooks append to the list, because they cannot return anything to here.
    calls: list[_LayerCall] = []

    def record(
        layer: str,
        module: nn.Module,
        args: Any,
        kwargs: dict[str, Any],
        output: Tensor,
    ) -> None:
        layer_input = args[0] if args else kwargs["input"]
        # Copies, because later layers may work in place.
        copy_of_input = layer_input.detach().clone()
        copy_of_output = output.detach().clone()
        calls.append(_LayerCall(layer, copy_of_input, copy_of_output))

    with ExitStack() as hooks:
        for name, module in layers.items():
            hook = module.register_forward_hook(partial(record, name), with_kwargs=True)
            hooks.enter_context(hook)
        results = _run_batch(model, batch, device)
    return calls, results


def _check_width(name: str, layer: nn.Linear, args: Any, kwargs: dict[str, Any]) -> None:
    """Refuse rows which are too wide or too narrow for a linear layer."""
    layer_input = args[0] if args else kwargs["input"]
    width = layer_input.shape[-1]
    if width != layer.in_features:
        raise InputError(
            f"The linear layer {name} takes {layer.in_features} numbers per row, but gets {width}: "
            "check the width of the data."
        )


def _require_head(
    model: nn.Module,
    name: str,
    calls: list[_LayerCall],
    results: list[Tensor],
) -> LinearHead:
    """Return a named layer as the head, or refuse it if the module returns something else."""
    layer_calls = [call for call in calls if call.layer == name]
    if not layer_calls:
        raise InputError(
            f"The layer {name!r} of {type(model).__name__} was not used for this data."
        )

    # An object without tensors that can be found says nothing against the layer.
    if not results:
        return LinearHead(name)

    # The last call that matches, as in ``find_head``.
    for call in reversed(layer_calls):
        head = _match_head(call, results)
        if head is not None:
            return head

    layer_width = layer_calls[-1].output.shape[-1]
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


class _Ending(StrEnum):
    """What a module may do with its logits before it returns them."""

    NONE = "none"
    ROW_SHIFT = "row shift"  # a number added to each row, as by a log-softmax
    SOFTMAX = "softmax"
    SIGMOID = "sigmoid"


def _match_head(call: _LayerCall, results: list[Tensor]) -> LinearHead | None:
    """Return the head that explains the first of the results that the call can explain."""
    for result in results:
        pair = _align(result, call.output)
        if pair is None:
            continue

        for ending in _possible_endings(*pair):
            for scale, shift in _possible_constants(*pair, ending):
                head = LinearHead(call.layer, scale, shift)
                if _is_image(*pair, head, ending):
                    return head
    return None


def _shows_head(result: Tensor, output: Tensor, head: LinearHead) -> bool:
    """Return whether a result is what a module with this head may return for a layer's output."""
    if head.is_plain and torch.equal(result, output):
        return True

    pair = _align(result, output)
    if pair is None:
        return False
    endings = _possible_endings(*pair)
    return any(_is_image(*pair, head, ending) for ending in endings)


def _align(result: Tensor, output: Tensor) -> tuple[Tensor, Tensor] | None:
    """Return a result and a layer's output in one shape, (B, C), or None if they have none.

    Rows with NaN or infinity in the output say nothing about what the module does with it.
    """
    if output.ndim == 3 and result.ndim == 2:
        tokens = _result_tokens(result, output)
        if tokens is None:
            return None
        rows = torch.arange(len(output), device=output.device)
        output = output[rows, tokens]

    # A binary module may return its single logit as (B,) instead of (B, 1).
    if output.shape[-1] == 1 and result.numel() == output.numel():
        result = result.reshape(output.shape)
    if result.shape != output.shape:
        return None

    classes = output.shape[-1]
    output = output.reshape(-1, classes)
    result = result.detach().reshape(-1, classes)
    is_finite = output.isfinite().all(dim=1)
    return result[is_finite], output[is_finite]


def _possible_endings(result: Tensor, output: Tensor) -> list[_Ending]:
    """Return what a module may have done to logits (B, C) if it returned this result (B, C)."""
    endings = [_Ending.NONE]
    if output.shape[1] > 1:
        endings.append(_Ending.ROW_SHIFT)
        if are_probabilities(result.float()):
            endings.append(_Ending.SOFTMAX)
    is_share = (result >= 0) & (result <= 1)
    if bool(is_share.all()):
        endings.append(_Ending.SIGMOID)
    return endings


def _possible_constants(
    result: Tensor,
    output: Tensor,
    ending: _Ending,
) -> Iterator[tuple[float, Tensor | None]]:
    """Yield the scale and shift that bring a layer's output nearest to a result.

    The simplest come first: no scale, a scale alone, a scale and a shift per class. Each is fitted
    by least squares, and only if more numbers speak for it than it has. In half precision a scale
    comes first, because a result with a scale of 1.01 would pass for one without.
    """
    is_coarse = _is_half_precision(result) or _is_half_precision(output)
    is_plain_first = not is_coarse or torch.equal(result, output)
    epsilon = _epsilon(result, output)
    if is_plain_first:
        yield 1.0, None

    output = output.double()
    scores, is_known = _invert(result, ending)
    # Before centering, which leaves nothing but rounding errors of equal scores.
    smallest = epsilon * float(scores.where(is_known, 0).norm())
    has_row_shift = ending in (_Ending.ROW_SHIFT, _Ending.SOFTMAX)
    if has_row_shift:
        output = _center(output, is_known)
        scores = _center(scores, is_known)

    # Each row with an unknown number of its own has one number less to say.
    numbers = int(is_known.sum())
    if has_row_shift:
        numbers -= int(is_known.any(dim=1).sum())
    known_scores = scores.where(is_known, 0)
    known_output = output.where(is_known, 0)
    square = float((known_output**2).sum())
    if numbers > 1 and square > 0:
        scale = float((known_output * known_scores).sum()) / square
        # Rounding alone explains a scale as near to 1 as this.
        rounding = 2 * epsilon / np.sqrt(numbers)
        is_none = is_coarse and abs(scale - 1) <= rounding
        # What the output contributes must be more than a rounding error of the result.
        if abs(scale) * np.sqrt(square) > smallest and not is_none:
            yield scale, None

    if not is_plain_first:
        yield 1.0, None

    # A shift per class, from the rows in which all classes are known.
    is_complete = is_known.all(dim=1)
    scores = scores[is_complete]
    output = output[is_complete]
    rows, classes = output.shape
    free_classes = classes - 1 if has_row_shift else classes
    if rows * free_classes <= 1 + free_classes:
        return

    output_spread = output - output.mean(dim=0)
    square = float((output_spread**2).sum())
    if square > _LEAST_SPREAD * float((output**2).sum()):
        scale = float((output_spread * scores).sum()) / square
        if abs(scale) * np.sqrt(square) > smallest:
            shift = scores.mean(dim=0) - scale * output.mean(dim=0)
            yield scale, shift


def _invert(result: Tensor, ending: _Ending) -> tuple[Tensor, Tensor]:
    """Return the logits that an ending turned into a result, and which of them can be known.

    Both are (B, C), the logits in float64. Those of a row shift or softmax are known up to a number
    per row.
    """
    values = result.double()
    if ending in (_Ending.NONE, _Ending.ROW_SHIFT):
        return values, torch.ones_like(values, dtype=torch.bool)

    # Smaller ones were rounded to zero, or lost their digits.
    is_known = values >= _smallest(result)
    if ending is _Ending.SOFTMAX:
        return values.log(), is_known
    return values.logit(), is_known & (values <= _LARGEST_SIGMOID)


def _center(values: Tensor, is_known: Tensor) -> Tensor:
    """Subtract from each row (B, C) the mean of what is known of it."""
    known_count = is_known.sum(dim=1, keepdim=True).clamp_min(1)
    known_sum = values.where(is_known, 0).sum(dim=1, keepdim=True)
    return values - known_sum / known_count


def _is_image(
    result: Tensor,
    output: Tensor,
    head: LinearHead,
    ending: _Ending,
) -> bool:
    """Return whether a result (B, C) is what an ending makes of a head's logits, up to rounding."""
    epsilon = _epsilon(result, output)
    tolerance = max(_TOLERANCE, _HALF_PRECISION_UNITS * epsilon)
    observed = result.double()
    expected = head.logits(output.double())
    allowed = tolerance * expected.abs().amax(dim=1, keepdim=True)

    if ending is _Ending.ROW_SHIFT:
        allowed = allowed + epsilon * observed.abs().amax(dim=1, keepdim=True)
        difference = observed - expected
        difference = difference - difference.mean(dim=1, keepdim=True)
    elif ending is _Ending.NONE:
        difference = observed - expected
    else:
        # By logarithms, because all values of a saturated softmax are close to 0 or 1.
        if ending is _Ending.SOFTMAX:
            expected = expected.log_softmax(dim=1)
        else:
            expected = nn.functional.logsigmoid(expected)
        allowed = allowed + tolerance
        smallest = _smallest(result)
        log_observed = observed.clamp_min(smallest).log()
        log_expected = expected.clamp_min(np.log(smallest))
        difference = log_observed - log_expected

    return bool((difference.abs() <= allowed).all())


def _epsilon(result: Tensor, output: Tensor) -> float:
    """Return the rounding error of the coarser of two tensors."""
    floats = [tensor for tensor in (result, output) if tensor.is_floating_point()]
    return max(torch.finfo(tensor.dtype).eps for tensor in floats)


def _smallest(result: Tensor) -> float:
    """Return the smallest probability that a result states with all its digits."""
    if result.is_floating_point():
        return float(torch.finfo(result.dtype).tiny)
    return float(torch.finfo(torch.float64).tiny)


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
        rtol=_TOKEN_TOLERANCE,
        atol=_TOLERANCE,
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


def _add_zero_class(tensor: Tensor, dim: int) -> Tensor:
    """Return a binary head or logit [z] as that of two classes, [0, z]."""
    zeros = torch.zeros_like(tensor)
    return torch.cat([zeros, tensor], dim=dim)
