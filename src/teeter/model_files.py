"""A trained network as one file: its weights, and which network they are of. No code is ever loaded from it.

The file is safetensors, and its header says the network's name (ours, or one that another package registers under
``teeter.networks``), the shape of a row, the classes, and the network's own options.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from teeter.arrays import TILE, as_tensor, full_precision_matmul
from teeter.datasets.array_files import Head
from teeter.errors import FileError, InputError, PluginError, UnknownNameError
from teeter.files import load_weights, read_state, write_state
from teeter.label_encoding import class_names
from teeter.models.network_registry import NETWORKS, build_network, network_names
from teeter.models.torch_model import evaluation_mode, find_head, forward_with_features
from teeter.registry import did_you_mean
from teeter.seeds import stream

__all__ = ["SavedModel", "file_digest", "read_model", "save_model"]

TRIED = 8
"""Random rows that a network is tried on before it is written, and after it is read."""
LARGEST = 1 << 22
"""Numbers of a row, at most, where a network is tried after it is read."""
CHUNK = 1 << 20
"""Bytes of rows that go through a network at once, where 8 rows are not more already."""

_PREFIX = "network."
_UNFIT = (InputError, RuntimeError, TypeError, ValueError, ArithmeticError)
"""What torch raises over sizes and options that no network has; InputError is our own word for it."""
_PICKLES = (b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
"""How files of torch.save and pickle begin; so may safetensors, which has a brace at byte 8."""


@dataclass(frozen=True, eq=False)
class SavedModel:
    """A network that was read from a file, and what the file says of it."""

    path: str
    name: str
    """The network's, as in settings of the benchmark."""
    network: nn.Module
    shape: tuple[int, ...]
    """Of a row that the network takes."""
    classes: tuple[str, ...]
    layer: str
    """The name of the last linear layer."""

    @property
    def width(self) -> int:
        """Numbers in a row."""
        return math.prod(self.shape)

    @property
    def chunk(self) -> int:
        """Rows that go through the network at once, always: then no row's features depend on its neighbours."""
        for rows in (TILE, TILE // 2, TILE // 4, TILE // 8):
            if 4 * self.width * rows <= CHUNK:
                return rows
        return 8

    def head(self) -> Head:
        """Return the last layer."""
        layer = self.network.get_submodule(self.layer)
        weight, bias = layer.weight, layer.bias
        if not isinstance(weight, Tensor):
            raise InputError(f"{self.told} has no weight in its last layer, {self.layer}.")
        return Head(
            weight.detach(), bias.detach() if isinstance(bias, Tensor) else None, self.classes
        )

    def features(self, rows: Tensor) -> Tensor:
        """Return what goes into the last layer: rows (n, ...) of the network's shape, flat or not -> (n, D)."""
        if rows[0].numel() != self.width:
            raise InputError(
                f"{self.told} takes rows of shape {self.shape}, and these are {tuple(rows.shape[1:])}."
            )
        pieces = []
        with evaluation_mode(self.network, None) as where, full_precision_matmul():
            for start in range(0, len(rows), self.chunk):
                chunk = rows[start : start + self.chunk].float().reshape(-1, *self.shape)
                short = self.chunk - len(chunk)
                whole = (
                    torch.cat([chunk, chunk[-1:].expand(short, *self.shape)]) if short else chunk
                )
                _, features = forward_with_features(self.network, whole, where, self.layer)
                if features is None:
                    raise InputError(f"{self.told} answers without its last layer, {self.layer}.")
                pieces.append(features[: len(chunk)].float())
        return torch.cat(pieces)

    @property
    def told(self) -> str:
        """The model in words, for sentences."""
        return f"The model in {self.path} ({self.name})"


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
    """Write a trained network to one safe file, whole or not at all, for ``teeter select --model``.

    Args:
        path: the file, which ends in .safetensors.
        model: the network; ``learner.models[0]`` is that of a learner.
        network: its name: linear, mlp, s-cnn, k-cnn, wrn-16-8, resnet-18, or one that another package registers.
        shape: of one row that it takes, such as (784,) or (3, 32, 32).
        classes: their names, or how many there are.
        head: the name of the last linear layer, where it cannot be found by itself.
        **options: what the network was made with, such as ``hidden=64`` of an mlp.
    """
    path, names = _target(path), class_names(classes)
    sizes = tuple(int(size) for size in shape)
    made = _made(network, sizes, len(names), options)
    weights = {_PREFIX + name: value.detach().cpu() for name, value in model.state_dict().items()}
    try:
        load_weights(made, weights, _PREFIX)
    except InputError:
        raise InputError(
            f"These weights are not those of {network} for rows of shape {sizes} and {len(names)} classes: give the "
            "shape, the classes and the options that it was made with."
        ) from None
    layer = _tried(made, model, network, sizes, classes=len(names), head=head)
    described = {
        "network": network,
        "shape": sizes,
        "classes": [str(name) for name in names],
        "head": layer,
    }
    write_state(path, {"model": {**described, "options": options}}, weights)


def read_model(path: str | Path) -> SavedModel:
    """Return the network in a file that ``save_model`` wrote."""
    path = Path(path)
    _refuse_pickles(path)
    header, tensors = read_state(path, "a model that teeter.save_model wrote")
    told = header.get("model")
    if not isinstance(told, dict):
        raise FileError(
            f"{path} was written by teeter, but holds no model: write one by teeter.save_model, which takes "
            "learner.models[0] of a learner."
        )
    try:
        name, options = str(told["network"]), dict(told["options"])
        shape, classes = tuple(map(int, told["shape"])), tuple(map(str, told["classes"]))
        layer = str(told["head"])
    except (KeyError, TypeError, ValueError, OverflowError):
        raise FileError(
            f"The description of the network in {path} is damaged: write it again."
        ) from None
    try:
        network = _filled(name, shape, len(classes), options, tensors)
    except UnknownNameError as error:
        raise UnknownNameError(
            f"{path} is of another package's network, or misspelt: {error}"
        ) from None
    except PluginError:
        raise
    except _UNFIT:
        raise FileError(
            f"The weights in {path} are not those of {name} for rows of shape {shape} and {len(classes)} classes."
        ) from None
    if not all(bool(torch.isfinite(value).all()) for value in network.state_dict().values()):
        raise FileError(
            f"The weights in {path} hold NaN or infinity: the training of this model failed."
        )
    if _outputs_of(network, layer) != len(classes) or not _is_last(network, layer, shape):
        raise FileError(
            f"The network in {path} has no last layer {layer!r} for {len(classes)} classes."
        )
    return SavedModel(str(path), name, network, shape, classes, layer)


def _filled(
    name: str,
    shape: tuple[int, ...],
    classes: int,
    options: dict[str, Any],
    tensors: dict[str, Tensor],
) -> nn.Module:
    """Return the network with its weights; one of ours is first made without memory, lest a file ask for too much."""
    if name in NETWORKS:
        with torch.device("meta"):
            planned = _made(name, shape, classes, options).state_dict()
        wanted = {_PREFIX + part: value.shape for part, value in planned.items()}
        if wanted != {part: value.shape for part, value in tensors.items()}:
            raise InputError(f"These are not the weights of {name}.")
    network = _made(name, shape, classes, options)
    load_weights(network, tensors, _PREFIX)
    return network


def _is_last(network: nn.Module, layer: str, shape: tuple[int, ...]) -> bool:
    """Tell whether the network answers by this layer, as far as that can be seen; rows of millions are not tried."""
    if math.prod(shape) > LARGEST:
        return True
    try:
        with evaluation_mode(network, None) as where:
            return find_head(network, _random_rows(shape), where) == layer
    except InputError:  # several could be: whoever wrote the file named one
        return True
    except RuntimeError:  # it cannot take such rows
        return False


def file_digest(path: str | Path) -> str:
    """Return a hash of what a file holds."""
    try:
        with Path(path).open("rb") as file:
            return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
    except FileNotFoundError:
        raise FileError(f"There is no file {path}.") from None
    except OSError as error:
        raise FileError(f"Cannot read {path}: {error.strerror or error}.") from None


def _target(path: str | Path) -> Path:
    path = Path(path)
    if path.suffix.lower() != ".safetensors":
        raise InputError(f"A model is written to a file that ends in .safetensors, not to {path}.")
    return path


def _made(network: str, shape: tuple[int, ...], classes: int, options: dict[str, Any]) -> nn.Module:
    if network not in network_names():
        raise UnknownNameError(
            f"No network is called {network!r}. {did_you_mean(network, network_names())}"
        )
    if not shape or min(shape) < 1:
        raise InputError(
            f"A row of shape {shape} holds nothing: give the sizes of one row, such as (784,)."
        )
    return build_network(network, shape, classes, **options)


def _outputs_of(network: nn.Module, layer: str) -> int | None:
    found = dict(network.named_modules()).get(layer)
    return len(found.weight) if isinstance(found, nn.Linear) else None


def _tried(
    made: nn.Module,
    model: nn.Module,
    network: str,
    shape: tuple[int, ...],
    *,
    classes: int,
    head: str | None,
) -> str:
    """Return the name of the last layer, once the network that will be read answers as the one that was given."""
    rows = _random_rows(shape)
    with evaluation_mode(made, None) as where:
        layer = find_head(made, rows, where, named=head)
        if layer is None:
            raise InputError(
                f"{network} does not end in a linear layer: what goes into it would be the features."
            )
        if _outputs_of(made, layer) != classes:
            raise InputError(
                f"The layer {layer!r} of {network} does not tell of {classes} classes, one each."
            )
        found, _ = forward_with_features(made, rows, where, layer)
    with evaluation_mode(model, None) as where:
        given, _ = forward_with_features(model, rows, where, layer)
    if not torch.allclose(found, as_tensor(given, "logits").cpu().float(), rtol=1e-3, atol=1e-3):
        raise InputError(
            f"This model answers otherwise than {network} with its weights: it is another network."
        )
    return layer


def _random_rows(shape: tuple[int, ...]) -> Tensor:
    return torch.randn(TRIED, *shape, generator=stream(0, "model file"))


def _refuse_pickles(path: Path) -> None:
    try:
        with path.open("rb") as file:
            begin = file.read(9)
    except FileNotFoundError:
        raise FileError(f"There is no file {path}.") from None
    except OSError as error:
        raise FileError(f"Cannot read {path}: {error.strerror or error}.") from None
    if begin.startswith(_PICKLES) and begin[8:] != b"{":
        raise FileError(
            f"{path} is a pickle, which can run code and which teeter never loads: load it yourself by "
            "torch.load(..., weights_only=True), and write the network by teeter.save_model."
        )
