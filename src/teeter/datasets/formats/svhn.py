"""Read SVHN's cropped digits from train_32x32.mat and test_32x32.mat."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from teeter.data.file_checks import parse_errors
from teeter.datasets.classes import class_indices_from_array
from teeter.datasets.locate import MatchedFiles
from teeter.datasets.splits import LabelledRows, RawDataset
from teeter.errors import FileError

__all__ = ["SVHN_FILES", "read_svhn"]

SVHN_FILES = ("train_32x32.mat", "test_32x32.mat")


def read_svhn(files: MatchedFiles) -> RawDataset:
    """Read training and test images, (N, 3, 32, 32) uint8, with their digits as labels."""
    train_paths, test_paths = files
    train = _read_images_and_labels(train_paths[0])
    test = _read_images_and_labels(test_paths[0])
    return RawDataset(train, test)


def _read_images_and_labels(path: Path) -> LabelledRows:
    from scipy.io import loadmat

    with parse_errors(path, "MATLAB file"):
        arrays = loadmat(path, variable_names=("X", "y"))

    images = arrays.get("X")
    labels = arrays.get("y")
    if images is None or labels is None:
        raise FileError(f"{path} does not hold X and y: it is not a file of SVHN's cropped digits.")

    # MATLAB counts columns first, so the image is the last axis.
    has_right_shape = images.ndim == 4 and images.shape[:3] == (32, 32, 3)
    if not has_right_shape or images.dtype != np.uint8:
        raise FileError(
            f"X in {path} is {images.dtype} of shape {images.shape}: "
            "bytes (32, 32, 3, N) are needed."
        )

    # Eleven classes, because the files call the digit 0 the class 10.
    digits = class_indices_from_array(labels, "y", 11, path)
    image_count = images.shape[3]
    if len(digits) != image_count:
        raise FileError(
            f"{path} has {image_count} images and {len(digits)} labels: one label per image is "
            "needed."
        )

    channels_first = np.ascontiguousarray(images.transpose(3, 2, 0, 1))
    return LabelledRows(channels_first, digits % 10)
