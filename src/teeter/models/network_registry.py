"""Networks by name: ours, and those that other packages register as ``teeter.networks``.

Their names are listed without torch, which the functions that build them load.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from teeter.base.registry import Plugins, did_you_mean
from teeter.errors import InputError, PluginError, TeeterError

if TYPE_CHECKING:
    from torch import nn

__all__ = ["NETWORKS", "build_network", "build_network_like", "network_names", "plugins"]

NETWORKS = ("linear", "mlp", "s-cnn", "k-cnn", "wrn-16-8", "resnet-18")

NetworkBuilder: TypeAlias = "Callable[..., nn.Module]"
"""build(shape, classes, seed=0): a network for rows of that shape that ends in a linear layer."""

plugins: Plugins[NetworkBuilder] = Plugins(
    "network",
    "teeter.networks",
    is_valid=callable,
    expected="a function make(shape, classes, *, seed) that gives a torch module",
)
"""Networks of other packages, through the entry-point group ``teeter.networks``."""


def network_names() -> list[str]:
    """Return the names of our networks, then those of other packages, without importing these."""
    # A dictionary keeps the order and drops a plugin with a name of ours.
    names = dict.fromkeys([*NETWORKS, *plugins.names()])
    return list(names)


def build_network_like(
    name: str,
    inputs: Any,
    classes: int,
    seed: int,
) -> nn.Module:
    """Build a network for rows like ``inputs``.

    Args:
        name: one of ``network_names()``.
        inputs: a tensor (N, ...), or a dataset of rows or of pairs (row, label).
        classes: the number of outputs.
        seed: decides the initial weights.
    """
    from torch import Tensor

    if isinstance(inputs, Tensor):
        shape = tuple(inputs.shape[1:])
    else:
        first_row = inputs[0]
        if isinstance(first_row, tuple):
            first_row = first_row[0]
        shape = tuple(first_row.shape)

    return build_network(name, shape, classes, seed=seed)


def build_network(
    name: str,
    shape: tuple[int, ...],
    classes: int,
    *,
    seed: int = 0,
    **options: Any,
) -> nn.Module:
    """Build a network by its name.

    Args:
        name: one of ``network_names()``.
        shape: the shape of one row, such as (784,) or (3, 32, 32).
        classes: the number of outputs.
        seed: decides the initial weights.
        **options: options of this network, such as ``hidden`` of an mlp.

    Raises:
        InputError: if the network does not take such rows, or has no such option.
        PluginError: if the network of another package cannot be built.

    Example:
        >>> build_network("linear", (4,), 3)
        Sequential(
          (0): Flatten(start_dim=1, end_dim=-1)
          (1): Linear(in_features=4, out_features=3, bias=True)
        )
    """
    from teeter.models.networks import k_cnn, linear, mlp, resnet_18, s_cnn, wrn_16_8

    if name not in NETWORKS:
        return _build_plugin_network(name, shape, classes, seed, options)

    # These flatten their rows, so rows of any shape will do.
    flat_builders: dict[str, NetworkBuilder] = {
        "linear": linear,
        "mlp": mlp,
    }
    if name in flat_builders:
        build = flat_builders[name]
        _require_known_options(name, build, options)
        width = int(np.prod(shape))
        return build(width, classes, seed=seed, **options)

    if len(shape) != 3 or shape[1] != shape[2]:
        raise InputError(
            f"{name} takes square images, but the rows have the shape {shape}: choose mlp or "
            f"linear."
        )

    # ResNet-18 ends in an average over the whole image, so it needs no side.
    channels, side, _ = shape
    if name == "resnet-18":
        _require_known_options(name, resnet_18, options)
        return resnet_18(channels, classes, seed=seed, **options)

    image_builders: dict[str, NetworkBuilder] = {
        "s-cnn": s_cnn,
        "k-cnn": k_cnn,
        "wrn-16-8": wrn_16_8,
    }
    build = image_builders[name]
    _require_known_options(name, build, options)
    return build(channels, side, classes, seed=seed, **options)


def _require_known_options(
    name: str,
    build: NetworkBuilder,
    options: dict[str, Any],
) -> None:
    """Refuse options that the function of a network does not take as keywords."""
    option_names = []
    for parameter in inspect.signature(build).parameters.values():
        is_option = parameter.kind is parameter.KEYWORD_ONLY
        if is_option and parameter.name != "seed":
            option_names.append(parameter.name)

    for option in options:
        if option not in option_names:
            hint = "It has none."
            if option_names:
                hint = did_you_mean(option, option_names)
            raise InputError(f"The network {name} has no option {option!r}. {hint}")


def _build_plugin_network(
    name: str,
    shape: tuple[int, ...],
    classes: int,
    seed: int,
    options: dict[str, Any],
) -> nn.Module:
    """Build a network of another package, and name that package if it fails."""
    from torch import nn

    build = plugins.get(name)
    description = f"The network {name!r} of {plugins.package(name)}"

    # Code of others may raise anything: the message must name their package.
    try:
        network = build(shape, classes, seed=seed, **options)
    except TeeterError:
        raise
    except Exception as error:
        raise PluginError(
            f"{description} cannot be created for rows of shape {shape} and {classes} classes: "
            f"{error}."
        ) from error

    if not isinstance(network, nn.Module):
        raise PluginError(
            f"{description} returned a {type(network).__name__}: it must return a torch module."
        )
    return network
