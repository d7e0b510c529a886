"""Networks by the names that settings give them: ours, and those of other packages."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
from torch import Tensor, nn

from teeter.errors import InputError, PluginError, TeeterError
from teeter.models.networks import k_cnn, linear, mlp, resnet_18, s_cnn, wrn_16_8
from teeter.registry import Plugins, did_you_mean

__all__ = ["NETWORKS", "build_network", "build_network_like", "network_names", "plugins"]

NETWORKS = ("linear", "mlp", "s-cnn", "k-cnn", "wrn-16-8", "resnet-18")

Maker = Callable[..., nn.Module]
"""make(shape, classes, seed=0): a network that ends in a linear layer, for rows of that shape."""

plugins: Plugins[Maker] = Plugins(
    "network",
    "teeter.networks",
    is_valid=callable,
    expected="a function make(shape, classes, *, seed) that gives a torch module",
)
"""Networks of other packages, through the entry-point group ``teeter.networks``."""


def network_names() -> list[str]:
    """Return the names of ours, then those of other packages, which are not imported for it."""
    return list(dict.fromkeys([*NETWORKS, *plugins.names()]))


def build_network_like(name: str, inputs: Any, classes: int, seed: int) -> nn.Module:
    """Return the network called ``name``, one of network_names(), for inputs like these."""
    shape = tuple(inputs.shape[1:]) if isinstance(inputs, Tensor) else tuple(inputs[0][0].shape)
    return build_network(name, shape, classes, seed=seed)


def build_network(
    name: str, shape: tuple[int, ...], classes: int, *, seed: int = 0, **options: Any
) -> nn.Module:
    """Return the network called ``name``, one of network_names(), for rows of a shape, with options of its own."""
    if name not in NETWORKS:
        return _of_a_plugin(name, shape, classes, seed, options)
    if name in ("linear", "mlp"):
        make: Maker = linear if name == "linear" else mlp
        return make(int(np.prod(shape)), classes, seed=seed, **_known(name, make, options))
    if len(shape) != 3 or shape[1] != shape[2]:
        raise InputError(
            f"{name} takes square images, and the rows are of shape {shape}: choose mlp or linear."
        )
    if name == "resnet-18":
        return resnet_18(shape[0], classes, seed=seed, **_known(name, resnet_18, options))
    made: dict[str, Maker] = {"s-cnn": s_cnn, "k-cnn": k_cnn, "wrn-16-8": wrn_16_8}
    return made[name](shape[0], shape[1], classes, seed=seed, **_known(name, made[name], options))


def _known(name: str, make: Maker, options: dict[str, Any]) -> dict[str, Any]:
    parameters = inspect.signature(make).parameters.values()
    names = [one.name for one in parameters if one.kind is one.KEYWORD_ONLY and one.name != "seed"]
    for option in options:
        if option not in names:
            hint = did_you_mean(option, names) if names else "It has none."
            raise InputError(f"The network {name} has no option {option!r}. {hint}")
    return options


def _of_a_plugin(
    name: str, shape: tuple[int, ...], classes: int, seed: int, options: dict[str, Any]
) -> nn.Module:
    make, told = plugins.get(name), f"The network {name!r} of {plugins.package(name)}"
    try:
        network = make(shape, classes, seed=seed, **options)
    except TeeterError:
        raise
    except Exception as error:
        raise PluginError(
            f"{told} cannot be made for rows of shape {shape} and {classes} classes: {error}."
        ) from error
    if not isinstance(network, nn.Module):
        raise PluginError(f"{told} made a {type(network).__name__}: it must make a torch module.")
    return network
