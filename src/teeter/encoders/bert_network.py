"""BERT as a sentence encoder, for inference: the mean of all tokens, scaled to length 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["BertSentenceEncoder"]

_NORM_EPSILON = 1e-12


class _Layer(nn.Module):
    """One layer of the transformer: attention, then a network for each token."""

    def __init__(self, weights: Mapping[str, Tensor], prefix: str, heads: int) -> None:
        super().__init__()
        # One product for query, key and value is faster than three.
        self.query_key_value = _stack(
            [
                _make_linear(weights, f"{prefix}.attention.self.query"),
                _make_linear(weights, f"{prefix}.attention.self.key"),
                _make_linear(weights, f"{prefix}.attention.self.value"),
            ]
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
        head_width: The width of each attention head.
    """

    def __init__(self, weights: Mapping[str, Tensor], head_width: int = 32) -> None:
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
        heads = words.shape[1] // head_width
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


def _make_linear(weights: Mapping[str, Tensor], name: str) -> nn.Linear:
    weight = weights[f"{name}.weight"]
    bias = weights[f"{name}.bias"]
    outputs, inputs = weight.shape

    # On the "meta" device no random weights are drawn only to be replaced.
    linear = nn.Linear(inputs, outputs, device="meta")
    linear.load_state_dict({"weight": weight, "bias": bias}, assign=True)
    return linear


def _make_norm(weights: Mapping[str, Tensor], name: str) -> nn.LayerNorm:
    weight = weights[f"{name}.weight"]
    bias = weights[f"{name}.bias"]

    norm = nn.LayerNorm(weight.shape, eps=_NORM_EPSILON)
    norm.load_state_dict({"weight": weight, "bias": bias})
    return norm


def _stack(layers: Sequence[nn.Linear]) -> nn.Linear:
    """Return one linear layer with the outputs of several."""
    weight = torch.cat([layer.weight.detach() for layer in layers])
    bias = torch.cat([layer.bias.detach() for layer in layers])
    outputs, inputs = weight.shape

    stacked = nn.Linear(inputs, outputs, device="meta")
    stacked.load_state_dict({"weight": weight, "bias": bias}, assign=True)
    return stacked
