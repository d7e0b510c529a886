"""SVHN's cropped digits from train_32x32.mat and test_32x32.mat."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from teeter.datasets.class_numbers import class_indices_from_array
from teeter.datasets.file_checks import parse_errors
from teeter.datasets.splits import LabelledRows, RawDataset
from teeter.errors import FileError

__all__ = ["SVHN_FILES", "read_svhn"]

SVHN_FILES = ("train_32x32.mat", "test_32x32.mat")


def read_svhn(found: Sequence[Sequence[Path]]) -> RawDataset:
    """Return the images, (N, 3, 32, 32) uint8, with the digit 0 as class 0, which the files call 10."""
    train, test = (_part(paths[0]) for paths in found)
    return RawDataset(train, test)


def _part(path: Path) -> LabelledRows:
    from scipy.io import loadmat

    with parse_errors(path, "MATLAB"):
        arrays = loadmat(path, variable_names=("X", "y"))
    images, labels = (arrays.get(name) for name in ("X", "y"))
    if images is None or labels is None:
        raise FileError(f"{path} does not hold X and y: it is not a file of SVHN's cropped digits.")
    if images.ndim != 4 or images.shape[:3] != (32, 32, 3) or images.dtype != np.uint8:
        raise FileError(
            f"X in {path} is {images.dtype} of shape {images.shape}: bytes (32, 32, 3, N) are needed."
        )
    digits = class_indices_from_array(labels, "y", 11, path)
    if len(digits) != images.shape[3]:
        raise FileError(
            f"{path} has {images.shape[3]} images and {len(digits)} labels: one a row is needed."
        )
    return LabelledRows(np.ascontiguousarray(images.transpose(3, 2, 0, 1)), digits % 10)
