"""The networks of the paper, each with a linear last layer and He-normal initial weights.

Every function takes a ``seed``, which alone decides the initial weights: torch's global generator
is neither read nor moved. The names of layers are part of the format of model files.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from teeter.base.registry import require_options
from teeter.base.seeds import seeded_global_rng, stream, validate_seed
from teeter.errors import InputError, PluginError, TeeterError
from teeter.models import NETWORKS, plugins

if TYPE_CHECKING:
    from torch import nn


Network = TypeVar("Network", bound=nn.Module)

# torch's layers draw initial weights from the global generator, which he_normal then overwrites.
_preserve_global_rng = seeded_global_rng(0, torch.device("cpu"))


@_preserve_global_rng
def mlp(
    inputs: int,
    classes: int,
    *,
    seed: int = 0,
    hidden: int = 128,
    dropout: float = 0.3,
) -> nn.Sequential:
    """Build a perceptron with two hidden layers, ReLU and dropout after each.

    Args:
        inputs: numbers in a row. Rows of any shape are flattened.
        classes: the number of outputs.
        seed: decides the initial weights.
        hidden: units in each hidden layer.
        dropout: probability of dropping a unit.

    Example:
        >>> network = mlp(4, 3, hidden=8)
        >>> network(torch.zeros(5, 2, 2)).shape
        torch.Size([5, 3])
    """
    network = nn.Sequential(
        nn.Flatten(),
        nn.Linear(inputs, hidden),
        nn.ReLU(),
        nn.Dropout(dropout),
        nn.Linear(hidden, hidden),
        nn.ReLU(),
        nn.Dropout(dropout),
        nn.Linear(hidden, classes),
    )
    return he_normal(network, seed)


@_preserve_global_rng
def linear(
    inputs: int,
    classes: int,
    *,
    seed: int = 0,
) -> nn.Sequential:
    """Build a linear layer alone, for rows that are features already.

    Args:
        inputs: numbers in a row. Rows of any shape are flattened.
        classes: the number of outputs.
        seed: decides the initial weights.
    """
    network = nn.Sequential(
        nn.Flatten(),
        nn.Linear(inputs, classes),
    )
    return he_normal(network, seed)


@_preserve_global_rng
def s_cnn(
    channels: int,
    side: int,
    classes: int,
    *,
    seed: int = 0,
) -> nn.Sequential:
    """Build S-CNN, without padding.

    Its layers are [3x3x32 - 3x3x64 - pool - dropout - 128 - dropout - classes].

    Args:
        channels: channels of the square images.
        side: their height and width.
        classes: the number of outputs.
        seed: decides the initial weights.
    """
    # Each of the two convolutions takes 2 pixels from a side, and the pool halves it.
    pooled_side = (side - 4) // 2
    flat_width = 64 * pooled_side**2

    network = nn.Sequential(
        nn.Conv2d(channels, 32, 3),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Dropout(0.25),
        nn.Flatten(),
        nn.Linear(flat_width, 128),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(128, classes),
    )
    return he_normal(network, seed)


@_preserve_global_rng
def k_cnn(
    channels: int,
    side: int,
    classes: int,
    *,
    seed: int = 0,
) -> nn.Sequential:
    """Build K-CNN, with padding.

    Its layers are [two 3x3x32 - pool - dropout - two 3x3x64 - pool - dropout - 512 - dropout -
    classes].

    Args:
        channels: channels of the square images.
        side: their height and width.
        classes: the number of outputs.
        seed: decides the initial weights.
    """
    layers: list[nn.Module] = []
    in_channels = channels
    for out_channels in (32, 64):
        layers += [
            nn.Conv2d(in_channels, out_channels, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(out_channels, out_channels, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Dropout(0.25),
        ]
        in_channels = out_channels

    # Padding keeps the side, and each of the two pools halves it.
    pooled_side = side // 4
    flat_width = 64 * pooled_side**2
    layers += [
        nn.Flatten(),
        nn.Linear(flat_width, 512),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(512, classes),
    ]
    network = nn.Sequential(*layers)
    return he_normal(network, seed)


# In both kinds of blocks the order of the layers decides which weights he_normal draws first.


class _WideBlock(nn.Module):
    """A residual block that normalises before each convolution, with dropout between the two."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        stride: int,
        dropout: float,
    ) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(in_channels)
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(out_channels)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False)
        self.dropout = nn.Dropout(dropout)

        self.past: nn.Module | None = None
        if in_channels != out_channels:
            self.past = nn.Conv2d(in_channels, out_channels, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        activated = self.norm1(x).relu()

        # A block that changes the number of channels projects what goes past it, too.
        shortcut = x
        if self.past is not None:
            shortcut = self.past(activated)

        hidden = self.norm2(self.conv1(activated)).relu()
        hidden = self.dropout(hidden)
        output: Tensor = shortcut + self.conv2(hidden)
        return output


class WideResNet(nn.Module):
    """A wide residual network [Zagoruyko and Komodakis 2016] with an 8 x 8 average pool.

    Args:
        depth: the number of layers, 6 k + 4.
        factor: how many times as many channels as a plain residual network has.
        channels: channels of the square images.
        side: their height and width.
        classes: the number of outputs.
        dropout: probability of dropping a value between the convolutions of a block.
    """

    def __init__(
        self,
        depth: int,
        factor: int,
        channels: int,
        side: int,
        classes: int,
        *,
        dropout: float,
    ) -> None:
        super().__init__()
        first_width = 16
        group_widths = [16 * factor, 32 * factor, 64 * factor]
        last_width = group_widths[-1]

        # Two layers in each block, three groups of them, and four layers around.
        blocks_per_group = (depth - 4) // 6

        self.first = nn.Conv2d(channels, first_width, 3, padding=1, bias=False)

        blocks = []
        in_channels = first_width
        for group, out_channels in enumerate(group_widths):
            for block in range(blocks_per_group):
                # The first group keeps the size of the image, the others halve it once.
                stride = 1
                if block == 0 and group > 0:
                    stride = 2
                blocks.append(_WideBlock(in_channels, out_channels, stride, dropout))
                in_channels = out_channels
        self.groups = nn.Sequential(*blocks)

        self.norm = nn.BatchNorm2d(last_width)
        self.pool = nn.AvgPool2d(8)

        # Two strides of 2 that round up, then a pool of 8 that rounds down.
        pooled_side = (side + 3) // 4 // 8
        flat_width = last_width * pooled_side**2
        self.head = nn.Linear(flat_width, classes)

    def forward(self, x: Tensor) -> Tensor:
        maps = self.groups(self.first(x))
        maps = self.norm(maps).relu()
        features = self.pool(maps).flatten(1)
        logits: Tensor = self.head(features)
        return logits


@_preserve_global_rng
def wrn_16_8(
    channels: int,
    side: int,
    classes: int,
    *,
    seed: int = 0,
    dropout: float = 0.3,
) -> WideResNet:
    """Build WRN-16-8. Images of 32 x 32 give 512 features, those of 64 x 64 or 75 x 75 give 2,048.

    Args:
        channels: channels of the square images.
        side: their height and width.
        classes: the number of outputs.
        seed: decides the initial weights.
        dropout: probability of dropping a value between the convolutions of a block.
    """
    network = WideResNet(16, 8, channels, side, classes, dropout=dropout)
    return he_normal(network, seed)


class _ResidualBlock(nn.Module):
    """Two convolutions, each normalised, with a shortcut around them."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        stride: int,
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(out_channels)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(out_channels)

        self.past: nn.Module = nn.Identity()
        if stride > 1 or in_channels != out_channels:
            self.past = nn.Sequential(
                nn.Conv2d(in_channels, out_channels, 1, stride, bias=False),
                nn.BatchNorm2d(out_channels),
            )

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.norm1(self.conv1(x)).relu()
        hidden = self.norm2(self.conv2(hidden))
        output: Tensor = (hidden + self.past(x)).relu()
        return output


@_preserve_global_rng
def resnet_18(
    channels: int,
    classes: int,
    *,
    seed: int = 0,
) -> nn.Sequential:
    """Build ResNet-18 [He et al. 2016] for images of any size, 224 x 224 in the paper.

    Args:
        channels: channels of the images.
        classes: the number of outputs.
        seed: decides the initial weights.
    """
    blocks = []
    in_channels = 64
    for out_channels in (64, 128, 256, 512):
        # The first group keeps the size of the image and the channels, the others halve the one
        # and double the other.
        stride = 1
        if out_channels != in_channels:
            stride = 2
        blocks.append(_ResidualBlock(in_channels, out_channels, stride))
        blocks.append(_ResidualBlock(out_channels, out_channels, 1))
        in_channels = out_channels

    network = nn.Sequential(
        nn.Conv2d(channels, 64, 7, 2, padding=3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, padding=1),
        *blocks,
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(512, classes),
    )
    return he_normal(network, seed)


def he_normal(network: Network, seed: int) -> Network:
    """Initialise a network in place by a seed, and return it.

    Weights of linear and convolutional layers are drawn from N(0, 2 / inputs), layer by layer in
    the order of ``network.modules()``. Biases become 0.
    """
    generator = stream(validate_seed(seed), "start")
    for module in network.modules():
        if isinstance(module, nn.Linear | nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu", generator=generator)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    return network


NetworkBuilder: TypeAlias = "Callable[..., nn.Module]"
"""build(shape, classes, seed=0): a network for rows of that shape that ends in a linear layer."""


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
    if name not in NETWORKS:
        return _build_plugin_network(name, shape, classes, seed, options)

    if name in ("linear", "mlp"):
        # These flatten their rows, so rows of any shape will do.
        sizes: tuple[int, ...] = (int(np.prod(shape)),)
    elif len(shape) != 3 or shape[1] != shape[2]:
        raise InputError(
            f"{name} takes square images, but the rows have the shape {shape}: choose mlp or "
            f"linear."
        )
    else:
        sizes = shape[:2]
        # ResNet-18 ends in an average over the whole image, so it needs no side.
        if name == "resnet-18":
            sizes = shape[:1]

    builders: dict[str, NetworkBuilder] = {
        "linear": linear,
        "mlp": mlp,
        "s-cnn": s_cnn,
        "k-cnn": k_cnn,
        "wrn-16-8": wrn_16_8,
        "resnet-18": resnet_18,
    }
    build = builders[name]
    option_names = []
    for parameter in inspect.signature(build).parameters.values():
        is_option = parameter.kind is parameter.KEYWORD_ONLY
        if is_option and parameter.name != "seed":
            option_names.append(parameter.name)
    require_options(f"The network {name}", options, option_names)
    return build(*sizes, classes, seed=seed, **options)


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
