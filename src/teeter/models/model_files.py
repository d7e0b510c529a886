"""Model files: a trained network as one file that holds weights and a description, never code.

The file is safetensors. Its header names the network (ours, or one that another package registers
under ``teeter.networks``), the shape of a row, the classes, and the options of the network.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from teeter.base.arrays import TILE, as_tensor, full_precision_matmul
from teeter.base.files import load_weights, read_state, write_state
from teeter.base.registry import require_known
from teeter.base.seeds import stream
from teeter.data.array_files import Head
from teeter.errors import FileError, InputError, PluginError, UnknownNameError
from teeter.models import NETWORKS, network_names
from teeter.models.label_encoding import class_names
from teeter.models.networks import build_network
from teeter.models.torch_model import (
    LinearHead,
    NotTheHeadError,
    evaluation_mode,
    find_head,
    forward_logits,
    forward_with_features,
    linear_layer,
)

PROBE_ROWS = 8
"""Random rows that a network is run on before it is written, and after it is read."""
MAX_PROBE_WIDTH = 1 << 22
"""Numbers in a row above which a network that was read is not run, to save memory."""
CHUNK_BYTES = 1 << 20
"""Bytes of rows that go through a network at once, unless 8 rows are more already."""

_WEIGHT_PREFIX = "network."
_MISMATCH_ERRORS = (InputError, RuntimeError, TypeError, ValueError, ArithmeticError)
"""What torch and our networks raise about sizes and options that no network has."""
_PICKLE_STARTS = (b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
"""The first bytes of files of torch.save and pickle. A safetensors file may start so too, but then
has a brace at byte 8."""


@dataclass(frozen=True, eq=False)
class SavedModel:
    """A network that was read from a model file, and the description in the file."""

    path: str
    name: str
    """The name of the network, as ``network_names()`` lists it."""
    network: nn.Module
    shape: tuple[int, ...]
    """The shape of a row that the network takes."""
    classes: tuple[str, ...]
    layer: str
    """The name of the last linear layer."""

    @property
    def width(self) -> int:
        """The number of numbers in a row."""
        return math.prod(self.shape)

    @property
    def chunk(self) -> int:
        """The rows that go through the network at once.

        It depends on the width only, so that the features of a row never depend on the rows beside
        it: matrix products round differently for other numbers of rows.
        """
        bytes_per_row = 4 * self.width  # float32
        for divisor in (1, 2, 4, 8):
            rows = TILE // divisor
            if rows * bytes_per_row <= CHUNK_BYTES:
                return rows
        return 8

    @property
    def description(self) -> str:
        """The model in words, to begin an error message with."""
        return f"The model in {self.path} ({self.name})"

    def head(self) -> Head:
        """Return the last layer."""
        layer = linear_layer(self.network, self.layer)
        weight = layer.weight.detach()
        bias = None
        if layer.bias is not None:
            bias = layer.bias.detach()
        return Head(weight, bias, self.classes)

    def features(self, rows: Tensor) -> Tensor:
        """Return the input of the last layer.

        Args:
            rows: (N, ...) rows of the network's shape, flat or not. N is 1 or more.

        Returns:
            (N, D) float32 features.

        Raises:
            InputError: if the rows have another number of numbers than the network takes.
        """
        if rows[0].numel() != self.width:
            raise InputError(
                f"{self.description} takes rows of shape {self.shape}, but these have the shape "
                f"{tuple(rows.shape[1:])}."
            )

        head = LinearHead(self.layer)
        pieces = []
        with evaluation_mode(self.network, None) as device, full_precision_matmul():
            for start in range(0, len(rows), self.chunk):
                stop = start + self.chunk
                chunk = rows[start:stop].float()
                chunk = chunk.reshape(-1, *self.shape)

                # Repeats of the last row fill the last chunk, so that all are of one size.
                missing = self.chunk - len(chunk)
                full_chunk = chunk
                if missing:
                    repeats = chunk[-1:].expand(missing, *self.shape)
                    full_chunk = torch.cat([chunk, repeats])

                _, features = forward_with_features(self.network, full_chunk, device, head)
                pieces.append(features[: len(chunk)].float())
        return torch.cat(pieces)


def save_model(
    path: str | Path,
    model: nn.Module,
    network: str,
    *,
    shape: Sequence[int],
    classes: int | Sequence[Any],
    head: str | None = None,
    **options: Any,
) -> None:
    """Write a trained network to a model file, atomically, for ``teeter select --model``.

    The network is built again from the description and must give the same logits as ``model``.

    Args:
        path: the file, which ends in .safetensors.
        model: the trained network; ``learner.models[0]`` is that of a learner.
        network: its name: linear, mlp, s-cnn, k-cnn, wrn-16-8, resnet-18, or one that another
            package registers.
        shape: the shape of one row that it takes, such as (784,) or (3, 32, 32).
        classes: their names, or their number.
        head: the name of the last linear layer, if it cannot be found.
        **options: the options that the network was built with, such as ``hidden=64`` of an mlp.
    """
    path = Path(path)
    if path.suffix.lower() != ".safetensors":
        raise InputError(f"The name of a model file must end in .safetensors, but this is {path}.")

    # Built again from nothing but the description, as read_model will do.
    names = class_names(classes)
    row_shape = tuple(int(size) for size in shape)
    rebuilt = _build_network(network, row_shape, len(names), options)

    weights = {}
    for name, value in model.state_dict().items():
        weights[_WEIGHT_PREFIX + name] = value.detach().cpu()
    try:
        load_weights(rebuilt, weights, _WEIGHT_PREFIX)
    except InputError:
        raise InputError(
            f"These weights are not those of {network} for rows of shape {row_shape} and "
            f"{len(names)} classes: give the shape, the classes and the options that the network "
            f"was created with."
        ) from None

    layer = _find_layer(rebuilt, network, row_shape, classes=len(names), head=head)
    _require_same_logits(rebuilt, model, network, row_shape, layer)

    description = {
        "network": network,
        "shape": row_shape,
        "classes": [str(name) for name in names],
        "head": layer,
        "options": options,
    }
    write_state(path, {"model": description}, weights)


def read_model(path: str | Path) -> SavedModel:
    """Read a model file that ``save_model`` wrote.

    Raises:
        FileError: if there is no such file, or if it is damaged, a pickle, or not a model file.
        UnknownNameError: if it holds a network of a package that is not installed.
    """
    path = Path(path)
    # First, because safetensors would only say that the header is invalid.
    with _read_errors(path), path.open("rb") as file:
        start = file.read(9)

    if start.startswith(_PICKLE_STARTS) and start[8:] != b"{":
        raise FileError(
            f"{path} is a pickle, which teeter never loads because it can run code: load it "
            f"yourself with torch.load(..., weights_only=True), and save the network with "
            f"teeter.save_model."
        )
    header, tensors = read_state(path, "a model that teeter.save_model wrote")

    description = header.get("model")
    if not isinstance(description, dict):
        raise FileError(
            f"{path} was written by teeter, but it is not a model file: write one with "
            f"teeter.save_model, for example from learner.models[0]."
        )
    try:
        name = str(description["network"])
        options = dict(description["options"])
        shape = tuple(map(int, description["shape"]))
        classes = tuple(map(str, description["classes"]))
        layer = str(description["head"])
    except (KeyError, TypeError, ValueError, OverflowError):
        raise FileError(
            f"The description of the network in {path} is damaged: save the model again."
        ) from None

    try:
        network = _load_network(name, shape, len(classes), options, tensors)
    except UnknownNameError as error:
        raise UnknownNameError(
            f"The network of {path} is from a package that is not installed, or its name is "
            f"misspelt: {error}"
        ) from None
    except PluginError:
        # It is a RuntimeError too, but names the package to blame already.
        raise
    except _MISMATCH_ERRORS:
        raise FileError(
            f"The weights in {path} are not those of {name} for rows of shape {shape} and "
            f"{len(classes)} classes."
        ) from None

    for value in network.state_dict().values():
        if not bool(torch.isfinite(value).all()):
            raise FileError(
                f"The weights in {path} contain NaN or infinity, so the training of this model "
                f"failed."
            )

    has_outputs = _count_outputs(network, layer) == len(classes)
    if not has_outputs or not _may_be_head(network, layer, shape):
        raise FileError(
            f"The network in {path} has no last layer {layer!r} for {len(classes)} classes."
        )
    return SavedModel(
        path=str(path),
        name=name,
        network=network,
        shape=shape,
        classes=classes,
        layer=layer,
    )


def file_digest(path: str | Path) -> str:
    """Return a BLAKE2b hash of a file's content, as 32 hexadecimal digits.

    Raises:
        FileError: if the file cannot be read.
    """
    with _read_errors(path), Path(path).open("rb") as file:
        digest = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16))
    return digest.hexdigest()


@contextmanager
def _read_errors(path: str | Path) -> Iterator[None]:
    """Turn an ``OSError`` inside the block into a ``FileError`` that names the file."""
    try:
        yield
    except FileNotFoundError:
        raise FileError(f"There is no file {path}.") from None
    except OSError as error:
        reason = error.strerror or error
        raise FileError(f"Cannot read {path}: {reason}.") from None


def _build_network(
    network: str,
    shape: tuple[int, ...],
    classes: int,
    options: dict[str, Any],
) -> nn.Module:
    """Build a network, after checking what ``build_network`` takes on trust."""
    require_known("network", network, network_names())
    if not shape or min(shape) < 1:
        raise InputError(
            f"A row of shape {shape} has no values: give the shape of one row, such as (784,)."
        )
    return build_network(network, shape, classes, **options)


def _load_network(
    name: str,
    shape: tuple[int, ...],
    classes: int,
    options: dict[str, Any],
    tensors: dict[str, Tensor],
) -> nn.Module:
    """Build the network of a description and give it the weights in ``tensors``."""
    if name in NETWORKS:
        # A header may ask for any size. On the meta device a network takes no memory, so its
        # shapes are compared with those in the file before it is built.
        with torch.device("meta"):
            planned = _build_network(name, shape, classes, options)
        expected_shapes = {}
        for part, value in planned.state_dict().items():
            expected_shapes[_WEIGHT_PREFIX + part] = value.shape
        file_shapes = {part: value.shape for part, value in tensors.items()}
        if expected_shapes != file_shapes:
            raise InputError(f"These are not the weights of {name}.")

    network = _build_network(name, shape, classes, options)
    load_weights(network, tensors, _WEIGHT_PREFIX)
    return network


def _count_outputs(network: nn.Module, layer: str) -> int | None:
    """Return the number of outputs of a linear layer, or None if there is no such layer."""
    modules = dict(network.named_modules())
    module = modules.get(layer)
    if isinstance(module, nn.Linear):
        return len(module.weight)
    return None


def _may_be_head(
    network: nn.Module,
    layer: str,
    shape: tuple[int, ...],
) -> bool:
    """Return False if running the network shows that another layer is its last one."""
    if math.prod(shape) > MAX_PROBE_WIDTH:
        return True

    try:
        with evaluation_mode(network, None) as device:
            head = find_head(network, _random_rows(shape), device)
            if head is None:
                return False
            return head.layer == layer and head.is_plain
    except InputError:
        # Several layers could be: the author of the file named one.
        return True
    except RuntimeError:
        # The network cannot take such rows.
        return False


def _find_layer(
    network: nn.Module,
    name: str,
    shape: tuple[int, ...],
    *,
    classes: int,
    head: str | None,
) -> str:
    """Return the name of the last linear layer, which must have one output for each class."""
    with evaluation_mode(network, None) as device:
        found_head = find_head(network, _random_rows(shape), device, named=head)

    if found_head is None:
        raise InputError(
            f"{name} does not end in a linear layer, so it has no features and cannot be saved "
            f"as a model file."
        )
    layer = found_head.layer
    if not found_head.is_plain:
        raise InputError(
            f"{name} scales or shifts the output of its last layer {layer!r}, which a model file "
            f"cannot hold: make the scale part of the weights of that layer."
        )
    outputs = _count_outputs(network, layer)
    if outputs != classes:
        raise InputError(
            f"The layer {layer!r} of {name} has {outputs} outputs, but there are {classes} classes."
        )
    return layer


def _require_same_logits(
    rebuilt: nn.Module,
    model: nn.Module,
    network: str,
    shape: tuple[int, ...],
    layer: str,
) -> None:
    """Refuse a model that computes something else than the network of that name."""
    rows = _random_rows(shape)
    with evaluation_mode(rebuilt, None) as device:
        rebuilt_logits = forward_logits(rebuilt, rows, device, LinearHead(layer))
    try:
        with evaluation_mode(model, None) as device:
            logits = forward_logits(model, rows, device, LinearHead(layer))

        # The model may be on a GPU or in half precision, so they are equal up to rounding.
        logits = as_tensor(logits, "logits").cpu().float()
        is_same = torch.allclose(rebuilt_logits, logits, rtol=1e-3, atol=1e-3)
    except NotTheHeadError:
        is_same = False
    if not is_same:
        raise InputError(
            f"This model is not {network}: with the same weights, {network} returns different "
            f"logits."
        )


def _random_rows(shape: tuple[int, ...]) -> Tensor:
    generator = stream(0, "model file")
    return torch.randn(PROBE_ROWS, *shape, generator=generator)
