"""Read the weights of an ONNX file, without the library that runs it.

An ONNX file is a message in the protocol buffers format: a sequence of fields, each with a number,
a type and a value. Only the fields that hold weights are read:

=====================  ============================================================
model, field 7         the graph
graph, field 5         a tensor, once for each
tensor, field 1        a dimension, once for each
tensor, field 2        the type of its numbers
tensor, field 8        its name
tensor, field 9        its numbers, little-endian
=====================  ============================================================
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from teeter.errors import FileError

__all__ = ["read_onnx_weights"]

_GRAPH = 7
_TENSOR = 5
_DIMENSION, _TYPE, _NAME, _NUMBERS = 1, 2, 8, 9

_VARINT, _FIXED_64, _BYTES, _FIXED_32 = 0, 1, 2, 5
"""The types of fields in the protocol buffers format."""

_NUMBER_TYPES = {1: "<f4", 3: "<i1", 7: "<i8", 10: "<f2"}
"""NumPy's names of the types of numbers that weights have."""


def read_onnx_weights(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Return the weights of an ONNX file by name, in the order of the file.

    Tensors of other types than floats and integers of 8 and 64 bits are left out.

    Raises:
        FileError: If the file is not an ONNX file.
    """
    # A view, so that cutting fields out of it copies nothing.
    content = memoryview(path.read_bytes())
    weights = {}
    try:
        for graph in _fields(content, _GRAPH):
            for tensor in _fields(graph, _TENSOR):
                name = bytes(next(_fields(tensor, _NAME))).decode()
                number_type = next(_fields(tensor, _TYPE))
                numbers = list(_fields(tensor, _NUMBERS))
                if number_type in _NUMBER_TYPES and numbers:
                    array = np.frombuffer(numbers[0], dtype=_NUMBER_TYPES[number_type])
                    weights[name] = array.reshape(list(_fields(tensor, _DIMENSION)))
    except (IndexError, KeyError, ValueError, StopIteration, TypeError):
        raise FileError(f"{path} is not an ONNX file that can be read.") from None

    return weights


def _fields(message: Any, number: int) -> Iterator[Any]:
    """Yield the values of all fields of a message that have a number."""
    position = 0
    while position < len(message):
        key, position = _read_varint(message, position)
        field_number, field_type = key >> 3, key & 7

        value: Any
        if field_type == _VARINT:
            value, position = _read_varint(message, position)
        else:
            if field_type == _BYTES:
                length, position = _read_varint(message, position)
            else:
                length = {_FIXED_64: 8, _FIXED_32: 4}[field_type]
            value = message[position : position + length]
            position += length

        # Other fields are skipped: readers ignore what they do not know.
        if field_number == number:
            yield value


def _read_varint(message: Any, position: int) -> tuple[int, int]:
    """Return an integer of 7 bits per byte, the lowest first, and the position after it."""
    value = 0
    shift = 0
    while True:
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, position
