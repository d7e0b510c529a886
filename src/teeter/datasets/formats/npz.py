"""A dataset from one .npz file: x_train, y_train, x_test and y_test, or x and y."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from teeter.datasets.array_files import Arrays, read_arrays
from teeter.datasets.class_numbers import class_indices_from_array
from teeter.datasets.splits import LabelledRows, RawDataset
from teeter.errors import FileError

__all__ = ["npz_reader"]

_PARTS = ("x_train", "y_train", "x_test", "y_test")


def npz_reader(classes: Sequence[str] | int) -> Callable[[Sequence[Sequence[Path]]], RawDataset]:
    """Return a reader of arrays; ``classes`` are those that labels may have, unless the file names its own."""

    def read(found: Sequence[Sequence[Path]]) -> RawDataset:
        path = found[0][0]
        arrays = read_arrays(path)
        own = (
            tuple(str(name) for name in arrays["classes"].tolist()) if "classes" in arrays else None
        )
        known = own or classes
        if "x_e4" in arrays:  # ten-thousandths as whole numbers, which pack better
            arrays["x"] = arrays.pop("x_e4").astype(np.float32) / 10_000
        if set(_PARTS) <= arrays.keys():
            train, test = (
                _part(arrays, f"x_{one}", f"y_{one}", known, path) for one in ("train", "test")
            )
            return RawDataset(train, test, own)
        if {"x", "y"} <= arrays.keys():
            return RawDataset(_part(arrays, "x", "y", known, path), None, own)
        raise FileError(
            f"{path} holds {', '.join(arrays) or 'nothing'}: name its arrays {', '.join(_PARTS)}, or x and y."
        )

    return read


def _part(
    arrays: Arrays, inputs: str, labels: str, classes: Sequence[str] | int, path: Path
) -> LabelledRows:
    rows: Any = arrays[inputs]
    numbers = class_indices_from_array(arrays[labels], labels, classes, path)
    if not rows.ndim or len(rows) != len(numbers):
        raise FileError(
            f"{path} holds {inputs} {rows.shape} and {len(numbers)} labels in {labels}: one a row is needed."
        )
    return LabelledRows(rows, numbers)
