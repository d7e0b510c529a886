"""The paper's networks. Each ends in a linear layer, and starts from He-normal weights drawn from a seed."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Generator, Tensor, nn

from teeter.seeds import seeded_global_rng, stream

__all__ = ["WideResNet", "he_normal", "k_cnn", "linear", "mlp", "resnet_18", "s_cnn", "wrn_16_8"]

Network = TypeVar("Network", bound=nn.Module)

_undisturbed = seeded_global_rng(0, torch.device("cpu"))
"""Layers draw a start of their own, which he_normal writes over: the global stream is not to notice."""


@_undisturbed
def mlp(
    inputs: int, classes: int, *, seed: int = 0, hidden: int = 128, dropout: float = 0.3
) -> nn.Sequential:
    """Return [hidden - dropout - hidden - dropout - classes] with ReLU; inputs of any shape are flattened."""
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
    return he_normal(network, stream(seed, "start"))


@_undisturbed
def linear(inputs: int, classes: int, *, seed: int = 0) -> nn.Sequential:
    """Return a linear head alone, for features that are given."""
    return he_normal(nn.Sequential(nn.Flatten(), nn.Linear(inputs, classes)), stream(seed, "start"))


@_undisturbed
def s_cnn(channels: int, side: int, classes: int, *, seed: int = 0) -> nn.Sequential:
    """Return [3x3x32 - 3x3x64 - pool - dropout - 128 - dropout - classes], not padded, for square images."""
    after = (side - 4) // 2
    network = nn.Sequential(
        nn.Conv2d(channels, 32, 3),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Dropout(0.25),
        nn.Flatten(),
        nn.Linear(64 * after**2, 128),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(128, classes),
    )
    return he_normal(network, stream(seed, "start"))


@_undisturbed
def k_cnn(channels: int, side: int, classes: int, *, seed: int = 0) -> nn.Sequential:
    """Return [two 3x3x32 - pool - dropout - two 3x3x64 - pool - dropout - 512 - dropout - classes], padded."""
    layers: list[nn.Module] = []
    before = channels
    for width in (32, 64):
        layers += [
            nn.Conv2d(before, width, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1),
            nn.ReLU(),
        ]
        layers += [nn.MaxPool2d(2), nn.Dropout(0.25)]
        before = width
    layers += [
        nn.Flatten(),
        nn.Linear(64 * (side // 4) ** 2, 512),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(512, classes),
    ]
    return he_normal(nn.Sequential(*layers), stream(seed, "start"))


class _WideBlock(nn.Module):
    """Two convolutions before which the input is normalised, with dropout between them and a way past."""

    def __init__(self, before: int, width: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.norm1, self.conv1 = (
            nn.BatchNorm2d(before),
            nn.Conv2d(before, width, 3, stride, padding=1, bias=False),
        )
        self.norm2, self.conv2 = (
            nn.BatchNorm2d(width),
            nn.Conv2d(width, width, 3, padding=1, bias=False),
        )
        self.dropout = nn.Dropout(dropout)
        self.past = nn.Conv2d(before, width, 1, stride, bias=False) if before != width else None

    def forward(self, x: Tensor) -> Tensor:
        ready = self.norm1(x).relu()
        past = x if self.past is None else self.past(ready)
        answer: Tensor = past + self.conv2(self.dropout(self.norm2(self.conv1(ready)).relu()))
        return answer


class WideResNet(nn.Module):
    """A wide residual network [Zagoruyko and Komodakis 2016] with an 8 x 8 average pool before its head."""

    def __init__(
        self,
        depth: int,
        factor: int,
        channels: int,
        side: int,
        classes: int,
        *,
        dropout: float = 0.3,
    ) -> None:
        super().__init__()
        blocks = (depth - 4) // 6
        widths = [16, 16 * factor, 32 * factor, 64 * factor]
        self.first = nn.Conv2d(channels, 16, 3, padding=1, bias=False)
        self.groups = nn.Sequential(
            *[
                _WideBlock(
                    widths[g] if b == 0 else widths[g + 1],
                    widths[g + 1],
                    2 if b == 0 and g else 1,
                    dropout,
                )
                for g in range(3)
                for b in range(blocks)
            ]
        )
        self.norm = nn.BatchNorm2d(widths[3])
        self.pool = nn.AvgPool2d(8)
        after = (
            (side + 3) // 4 // 8
        )  # two strides of 2 that round up, then a pool of 8 that rounds down
        self.head = nn.Linear(widths[3] * after**2, classes)

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = self.head(
            self.pool(self.norm(self.groups(self.first(x))).relu()).flatten(1)
        )
        return answer


@_undisturbed
def wrn_16_8(
    channels: int, side: int, classes: int, *, seed: int = 0, dropout: float = 0.3
) -> WideResNet:
    """Return WRN-16-8; images of 64 x 64 and 75 x 75 give 2,048 features, those of 32 x 32 give 512."""
    return he_normal(
        WideResNet(16, 8, channels, side, classes, dropout=dropout), stream(seed, "start")
    )


class _Block(nn.Module):
    """Two normalised convolutions and a way past."""

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = (
            nn.Conv2d(before, width, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(width),
        )
        self.conv2, self.norm2 = (
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
        )
        self.past = (
            nn.Sequential(nn.Conv2d(before, width, 1, stride, bias=False), nn.BatchNorm2d(width))
            if stride > 1 or before != width
            else nn.Identity()
        )

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = (
            self.norm2(self.conv2(self.norm1(self.conv1(x)).relu())) + self.past(x)
        ).relu()
        return answer


@_undisturbed
def resnet_18(channels: int, classes: int, *, seed: int = 0) -> nn.Sequential:
    """Return ResNet-18 [He et al. 2016] for images of any size, 224 x 224 in the paper."""
    widths = [64, 64, 128, 256, 512]
    blocks = [
        _Block(widths[g] if b == 0 else widths[g + 1], widths[g + 1], 2 if b == 0 and g else 1)
        for g in range(4)
        for b in range(2)
    ]
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
    return he_normal(network, stream(seed, "start"))


def he_normal(network: Network, generator: Generator) -> Network:
    """Draw every linear and convolutional weight from N(0, 2 / inputs), set biases to 0, and return the network."""
    for module in network.modules():
        if isinstance(module, nn.Linear | nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu", generator=generator)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    return network
