"""Read a dataset from one .npz file: x_train, y_train, x_test and y_test, or x and y."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from teeter.datasets.classes import class_indices_from_array
from teeter.datasets.locate import MatchedFiles, Reader
from teeter.datasets.splits import LabelledRows, RawDataset
from teeter.errors import FileError

if TYPE_CHECKING:
    from teeter.data.array_files import Arrays

__all__ = ["npz_reader"]

_SPLIT_NAMES = ("x_train", "y_train", "x_test", "y_test")


def npz_reader(classes: Sequence[str] | int) -> Reader:
    """Return a reader of one .npz file.

    Args:
        classes: the class names, or their number. An array ``classes`` in the file replaces them.
    """

    def read(files: MatchedFiles) -> RawDataset:
        from teeter.data.array_files import read_arrays  # loads torch

        path = files[0][0]
        arrays = read_arrays(path)

        # Our copy of ISOLET stores ten-thousandths as int16, which compress better.
        if "x_e4" in arrays:
            ten_thousandths = arrays.pop("x_e4")
            arrays["x"] = ten_thousandths.astype(np.float32) / 10_000

        class_names = None
        if "classes" in arrays:
            names = arrays["classes"].tolist()
            class_names = tuple(str(name) for name in names)
        allowed = class_names or classes

        if set(_SPLIT_NAMES) <= arrays.keys():
            train = _labelled_rows(arrays, "x_train", "y_train", allowed, path)
            test = _labelled_rows(arrays, "x_test", "y_test", allowed, path)
            return RawDataset(train, test, class_names)

        # Without a test set, the catalogue's split function makes one.
        if {"x", "y"} <= arrays.keys():
            rows = _labelled_rows(arrays, "x", "y", allowed, path)
            return RawDataset(rows, None, class_names)

        contents = ", ".join(arrays) or "nothing"
        wanted = ", ".join(_SPLIT_NAMES)
        raise FileError(f"{path} holds {contents}: name its arrays {wanted}, or x and y.")

    return read


def _labelled_rows(
    arrays: Arrays, x_name: str, y_name: str, classes: Sequence[str] | int, path: Path
) -> LabelledRows:
    rows = arrays[x_name]
    labels = class_indices_from_array(arrays[y_name], y_name, classes, path)

    if rows.ndim == 0 or len(rows) != len(labels):
        raise FileError(
            f"{path} holds {x_name} {rows.shape} and {len(labels)} labels in {y_name}: "
            "one label per row is needed."
        )

    return LabelledRows(rows, labels)
