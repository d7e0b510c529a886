"""Read the weights of an ONNX file without onnxruntime.

An ONNX file is a message in the format of protocol buffers: a sequence of fields, each with a
number, a type and a value. Only the fields that hold weights are read:

=====================  ============================================================
model, field 7         the graph
graph, field 5         a tensor (repeated)
tensor, field 1        a dimension (repeated)
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
"""The types of fields in the format of protocol buffers."""

_NUMBER_TYPES = {1: "<f4", 3: "<i1", 7: "<i8", 10: "<f2"}
"""NumPy's names for the types of numbers that weights have."""


def read_onnx_weights(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Return the weights of an ONNX file by name, in the order of the file.

    Only tensors of floats, 8-bit integers and 64-bit integers are returned.

    Raises:
        FileError: If the file is not an ONNX file.
    """
    # Slices of a view are not copied.
    content = memoryview(path.read_bytes())
    weights = {}

    try:
        for graph in _fields(content, _GRAPH):
            for tensor in _fields(graph, _TENSOR):
                array = _read_tensor(tensor)
                if array is not None:
                    name = next(_fields(tensor, _NAME))
                    weights[bytes(name).decode()] = array
    except (IndexError, KeyError, ValueError, StopIteration, TypeError):
        raise FileError(f"{path} cannot be read as an ONNX file.") from None

    return weights


def _read_tensor(tensor: Any) -> npt.NDArray[Any] | None:
    """Return a tensor as an array, or None if it is of another type or stored elsewhere."""
    number_type = next(_fields(tensor, _TYPE))
    numbers = list(_fields(tensor, _NUMBERS))
    if number_type not in _NUMBER_TYPES or not numbers:
        return None

    array = np.frombuffer(numbers[0], dtype=_NUMBER_TYPES[number_type])
    shape = list(_fields(tensor, _DIMENSION))
    return array.reshape(shape)


def _fields(message: Any, number: int) -> Iterator[Any]:
    """Yield the values of all fields of a message with the given number."""
    position = 0
    while position < len(message):
        key, position = _read_varint(message, position)
        # The three lowest bits of a key are the type, the others the number.
        field_type = key & 7
        field_number = key >> 3

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

        # Any other field is skipped, also one that a later version of the format added.
        if field_number == number:
            yield value


def _read_varint(message: Any, position: int) -> tuple[int, int]:
    """Return an integer with 7 bits per byte, lowest first, and the position after it."""
    value = 0
    shift = 0

    while True:
        byte = message[position]
        position += 1

        # The highest bit of a byte tells whether another byte follows.
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, position
