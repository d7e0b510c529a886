"""Weights out of an ONNX file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from encoders.tiny_weights import to_onnx
from teeter.encoders import MiniLMEncoder
from teeter.encoders.minilm import read_onnx_weights
from teeter.errors import FileError


def test_tensors_come_back_with_names_shapes_and_types(tmp_path: Path) -> None:
    tensors = {
        "a": np.arange(6, dtype=np.float32).reshape(2, 3),
        "b_q": np.array([[-128, 127]], dtype=np.int8),
        "c": np.arange(300, dtype=np.int64),
    }
    (tmp_path / "a.onnx").write_bytes(to_onnx(tensors))

    weights = read_onnx_weights(tmp_path / "a.onnx")

    assert list(weights) == list(tensors)
    for name, array in tensors.items():
        assert weights[name].dtype == array.dtype
        np.testing.assert_array_equal(weights[name], array)


@pytest.mark.parametrize("content", [b"\x3a\xff\xff", b"\x07", b"\x3a\x02\x2a\x05"])
def test_another_file_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.onnx").write_bytes(content)

    with pytest.raises(FileError, match="cannot be read as an ONNX file"):
        read_onnx_weights(tmp_path / "a.onnx")


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.onnx").write_bytes(to_onnx({"a": np.ones(3, np.float32)}))

    with pytest.raises(FileError, match="does not hold the weights of all-MiniLM-L6-v2"):
        MiniLMEncoder(tmp_path / "a.onnx")
