"""EfficientNet-Lite0 without its classifier, for inference.

The network is that of Tan and Le (2019) without squeeze-and-excitation and with ReLU6: a stem, 16
inverted residual blocks and a head, each a chain of convolutions. Batch normalisation is folded
into the convolutions when the weights are loaded, which saves a third of the time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["FEATURES", "SIDE", "EfficientNetLite0"]

SIDE = 224
"""Pixels along each side of the images that the network was trained on."""

FEATURES = 1280
"""Channels of the head, which are the features of an image."""

_NORM_EPSILON = 1e-3
"""What was added to variances in training."""


class _Stage(NamedTuple):
    """Blocks of one width."""

    blocks: int
    kernel: int
    stride: int
    """Of the first block; the others have 1."""
    expansion: int
    """How many times wider the depthwise convolution is than the block's input."""
    channels: int


_STAGES = (
    _Stage(1, 3, 1, 1, 16),
    _Stage(2, 3, 2, 6, 24),
    _Stage(2, 5, 2, 6, 40),
    _Stage(3, 3, 2, 6, 80),
    _Stage(3, 5, 1, 6, 112),
    _Stage(4, 5, 2, 6, 192),
    _Stage(1, 3, 1, 6, 320),
)

_STEM_CHANNELS = 32


class _FoldedConvolution(nn.Module):
    """A convolution with the batch normalisation that follows it, padded as in TensorFlow."""

    def __init__(
        self, weights: Mapping[str, Tensor], convolution: str, norm: str, *, stride: int = 1
    ) -> None:
        super().__init__()
        kernel = weights[f"{convolution}.weight"]

        # norm(k * x) = (k * x - mean) * factor + bias = (k * factor) * x + (bias - mean * factor)
        factor = weights[f"{norm}.weight"] / torch.sqrt(
            weights[f"{norm}.running_var"] + _NORM_EPSILON
        )
        bias = weights[f"{norm}.bias"] - weights[f"{norm}.running_mean"] * factor

        # Channels last is the faster order for convolutions on a CPU.
        folded = kernel * factor.view(-1, 1, 1, 1)
        self.register_buffer("kernel", folded.contiguous(memory_format=torch.channels_last))
        self.register_buffer("bias", bias)
        self.stride = stride
        # A depthwise convolution has one input channel per group.
        self.groups = kernel.shape[0] if kernel.shape[1] == 1 else 1

    def forward(self, images: Tensor) -> Tensor:
        kernel = self.get_buffer("kernel")
        size = kernel.shape[-1]
        padding = size // 2
        if self.stride == 2:
            # With an even number of pixels, TensorFlow pads one pixel less before than after.
            images = functional.pad(images, (padding - 1, padding, padding - 1, padding))
            padding = 0

        return functional.conv2d(
            images,
            kernel,
            self.get_buffer("bias"),
            stride=self.stride,
            padding=padding,
            groups=self.groups,
        )


class _Block(nn.Module):
    """An inverted residual block: widen, convolve each channel, narrow."""

    def __init__(
        self, weights: Mapping[str, Tensor], name: str, stage: _Stage, stride: int
    ) -> None:
        super().__init__()
        self.expand: _FoldedConvolution | None = None
        if stage.expansion > 1:
            self.expand = _FoldedConvolution(weights, f"{name}._expand_conv", f"{name}._bn0")
        self.depthwise = _FoldedConvolution(
            weights, f"{name}._depthwise_conv", f"{name}._bn1", stride=stride
        )
        self.project = _FoldedConvolution(weights, f"{name}._project_conv", f"{name}._bn2")

    def forward(self, images: Tensor) -> Tensor:
        hidden = images
        if self.expand is not None:
            hidden = functional.relu6(self.expand(hidden), inplace=True)
        hidden = functional.relu6(self.depthwise(hidden), inplace=True)
        # Linear: an activation would lose too much of so few channels.
        narrowed: Tensor = self.project(hidden)

        # Only blocks that keep the size of their input add it to their output.
        if narrowed.shape == images.shape:
            narrowed = narrowed + images
        return narrowed


class EfficientNetLite0(nn.Module):
    """The network up to its pooled features.

    Args:
        weights: The tensors of a checkpoint by name.

    Raises:
        KeyError: If a tensor is missing.
    """

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.stem = _FoldedConvolution(weights, "_conv_stem", "_bn0", stride=2)

        blocks: list[nn.Module] = []
        for stage in _STAGES:
            for position in range(stage.blocks):
                stride = stage.stride if position == 0 else 1
                blocks.append(_Block(weights, f"_blocks.{len(blocks)}", stage, stride))
        self.blocks = nn.Sequential(*blocks)
        self.head = _FoldedConvolution(weights, "_conv_head", "_bn1")

    def forward(self, images: Tensor) -> Tensor:
        """Return features: (B, 3, 224, 224), colours from -1 to 1 -> (B, 1280)."""
        hidden = functional.relu6(self.stem(images), inplace=True)
        hidden = self.blocks(hidden)
        hidden = functional.relu6(self.head(hidden), inplace=True)
        pooled: Tensor = hidden.mean(dim=(2, 3))
        return pooled
