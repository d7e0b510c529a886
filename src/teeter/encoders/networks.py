"""The networks of built-in encoders, for inference. Importing this module loads torch.

``BertSentenceEncoder`` is BERT with the mean of all tokens, scaled to length 1.

``EfficientNetLite0`` has no classifier. It is EfficientNet (Tan and Le, 2019) without
squeeze-and-excitation and with ReLU6: a stem, 16 inverted residual blocks and a head, each made of
convolutions. Batch normalisation is folded into the convolutions when the weights are loaded, so
that it costs no time later.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = [
    "FEATURES",
    "SIDE",
    "BertSentenceEncoder",
    "EfficientNetLite0",
    "to_best_device",
]

_LAYER_NORM_EPSILON = 1e-12

_HEAD_WIDTH = 32
"""The width of each attention head."""


class _Layer(nn.Module):
    """One layer of the transformer: attention, then a network for each token."""

    def __init__(self, weights: Mapping[str, Tensor], prefix: str, heads: int) -> None:
        super().__init__()
        # One product for query, key and value is faster than three.
        self.query_key_value = _make_linear(
            weights,
            f"{prefix}.attention.self.query",
            f"{prefix}.attention.self.key",
            f"{prefix}.attention.self.value",
        )

        self.attention = _make_linear(weights, f"{prefix}.attention.output.dense")
        self.attention_norm = _make_norm(weights, f"{prefix}.attention.output.LayerNorm")

        self.wide = _make_linear(weights, f"{prefix}.intermediate.dense")
        self.narrow = _make_linear(weights, f"{prefix}.output.dense")
        self.norm = _make_norm(weights, f"{prefix}.output.LayerNorm")

        self.heads = heads

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Return new tokens: (B, T, D) and a mask (B, 1, 1, T) -> (B, T, D)."""
        batch, length, width = tokens.shape
        parts = self.query_key_value(tokens)
        parts = parts.view(batch, length, 3, self.heads, -1)

        # Attention expects heads before tokens: three times (B, heads, T, width / heads).
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=mask,
        )
        attended = attended.transpose(1, 2)
        attended = attended.reshape(batch, length, width)

        # BERT normalises after each sum, unlike most later models.
        attended = self.attention(attended)
        tokens = self.attention_norm(tokens + attended)
        hidden = functional.gelu(self.wide(tokens))
        narrowed = self.narrow(hidden)
        normed: Tensor = self.norm(tokens + narrowed)
        return normed


class BertSentenceEncoder(nn.Module):
    """A BERT model whose features are the mean of all tokens.

    Args:
        weights: The tensors by the names that Hugging Face gives them, without a prefix.
    """

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        super().__init__()
        words = weights["embeddings.word_embeddings.weight"]
        positions = weights["embeddings.position_embeddings.weight"]
        segments = weights["embeddings.token_type_embeddings.weight"]

        self.words = nn.Embedding.from_pretrained(words)
        # Every text is a single segment, so the first segment's vector is added to all tokens.
        self.positions = nn.Embedding.from_pretrained(positions + segments[0])
        self.norm = _make_norm(weights, "embeddings.LayerNorm")
        self.layers = nn.ModuleList()

        # The number of layers is not stored: there are as many as there are weights for.
        heads = words.shape[1] // _HEAD_WIDTH
        prefix = "encoder.layer.0"
        while f"{prefix}.output.dense.weight" in weights:
            self.layers.append(_Layer(weights, prefix, heads))
            prefix = f"encoder.layer.{len(self.layers)}"

    @property
    def max_tokens(self) -> int:
        """The largest number of tokens that a text may have."""
        return int(self.positions.num_embeddings)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Return features of length 1.

        Args:
            ids: Word pieces, (B, T).
            mask: True for word pieces and False for padding, (B, T).

        Returns:
            Shape (B, D).
        """
        positions = torch.arange(ids.shape[1], device=ids.device)
        embedded = self.words(ids) + self.positions(positions)
        tokens = self.norm(embedded)

        # The same for all heads and for all tokens that attend: (B, 1, 1, T).
        attention_mask = mask[:, None, None, :]
        for layer in self.layers:
            tokens = layer(tokens, attention_mask)

        # The sum is enough: it has the direction of the mean, and its length becomes 1.
        without_padding = tokens * mask[..., None]
        pooled = without_padding.sum(dim=1)
        return functional.normalize(pooled, dim=1)


def to_best_device(network: nn.Module) -> tuple[nn.Module, str]:
    """Return a network ready to encode, and the device that it is on: a GPU if there is one."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return network.eval().to(device), device


def _make_linear(weights: Mapping[str, Tensor], *names: str) -> nn.Linear:
    """Return one linear layer with the outputs of all that are named."""
    all_weights = [weights[f"{name}.weight"] for name in names]
    all_biases = [weights[f"{name}.bias"] for name in names]
    weight = torch.cat(all_weights)
    bias = torch.cat(all_biases)
    outputs, inputs = weight.shape

    # On the "meta" device no random weights are drawn only to be replaced.
    linear = nn.Linear(inputs, outputs, device="meta")
    linear.load_state_dict({"weight": weight, "bias": bias}, assign=True)
    return linear


def _make_norm(weights: Mapping[str, Tensor], name: str) -> nn.LayerNorm:
    weight = weights[f"{name}.weight"]
    bias = weights[f"{name}.bias"]

    norm = nn.LayerNorm(weight.shape, eps=_LAYER_NORM_EPSILON)
    norm.load_state_dict({"weight": weight, "bias": bias})
    return norm


SIDE = 224
"""Pixels along each side of the images that the network was trained on."""

FEATURES = 1280
"""Channels of the head, which are the features of an image."""

_BATCH_NORM_EPSILON = 1e-3
"""The constant that training added to variances."""


class _Stage(NamedTuple):
    """Blocks of one width."""

    blocks: int
    kernel: int
    stride: int
    """The stride of the first block; the other blocks have stride 1."""
    expansion: int
    """The ratio of the depthwise convolution's channels to those of the block's input."""
    channels: int


_STAGES = (
    _Stage(blocks=1, kernel=3, stride=1, expansion=1, channels=16),
    _Stage(blocks=2, kernel=3, stride=2, expansion=6, channels=24),
    _Stage(blocks=2, kernel=5, stride=2, expansion=6, channels=40),
    _Stage(blocks=3, kernel=3, stride=2, expansion=6, channels=80),
    _Stage(blocks=3, kernel=5, stride=1, expansion=6, channels=112),
    _Stage(blocks=4, kernel=5, stride=2, expansion=6, channels=192),
    _Stage(blocks=1, kernel=3, stride=1, expansion=6, channels=320),
)

_STEM_CHANNELS = 32


class _FoldedConvolution(nn.Module):
    """A convolution with the batch normalisation that follows it, padded as in TensorFlow."""

    def __init__(
        self, weights: Mapping[str, Tensor], convolution: str, norm: str, *, stride: int = 1
    ) -> None:
        super().__init__()
        kernel = weights[f"{convolution}.weight"]
        mean = weights[f"{norm}.running_mean"]
        variance = weights[f"{norm}.running_var"]

        # norm(k * x) = (k * x - mean) * factor + bias = (k * factor) * x + (bias - mean * factor)
        deviation = torch.sqrt(variance + _BATCH_NORM_EPSILON)
        factor = weights[f"{norm}.weight"] / deviation
        bias = weights[f"{norm}.bias"] - mean * factor
        folded = kernel * factor.view(-1, 1, 1, 1)

        # Channels last is the faster order for convolutions on a CPU.
        channels_last = folded.contiguous(memory_format=torch.channels_last)
        self.register_buffer("kernel", channels_last)
        self.register_buffer("bias", bias)
        self.stride = stride

        # The kernel of a depthwise convolution has a single input channel per group.
        outputs, inputs_per_group, *_ = kernel.shape
        self.groups = outputs if inputs_per_group == 1 else 1

    def forward(self, images: Tensor) -> Tensor:
        kernel = self.get_buffer("kernel")
        padding = kernel.shape[-1] // 2
        if self.stride == 2:
            # TensorFlow pads an even number of pixels by one less on the left and top.
            less = padding - 1
            images = functional.pad(images, (less, padding, less, padding))
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

        # The first block has nothing to widen.
        self.expand: _FoldedConvolution | None = None
        if stage.expansion > 1:
            self.expand = _FoldedConvolution(
                weights,
                f"{name}._expand_conv",
                f"{name}._bn0",
            )

        self.depthwise = _FoldedConvolution(
            weights,
            f"{name}._depthwise_conv",
            f"{name}._bn1",
            stride=stride,
        )

        self.project = _FoldedConvolution(
            weights,
            f"{name}._project_conv",
            f"{name}._bn2",
        )

    def forward(self, images: Tensor) -> Tensor:
        hidden = images
        if self.expand is not None:
            widened = self.expand(hidden)
            hidden = functional.relu6(widened, inplace=True)

        convolved = self.depthwise(hidden)
        hidden = functional.relu6(convolved, inplace=True)
        # No activation here: it would lose too much of so few channels.
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
            stride = stage.stride
            for _ in range(stage.blocks):
                # The checkpoint numbers the blocks of all stages together.
                name = f"_blocks.{len(blocks)}"
                blocks.append(_Block(weights, name, stage, stride))
                stride = 1

        self.blocks = nn.Sequential(*blocks)
        self.head = _FoldedConvolution(weights, "_conv_head", "_bn1")

    def forward(self, images: Tensor) -> Tensor:
        """Return features: (B, 3, 224, 224), colours from -1 to 1 -> (B, 1280)."""
        stem = self.stem(images)
        hidden = functional.relu6(stem, inplace=True)
        hidden = self.blocks(hidden)

        head = self.head(hidden)
        hidden = functional.relu6(head, inplace=True)
        # Over height and width.
        pooled: Tensor = hidden.mean(dim=(2, 3))
        return pooled
