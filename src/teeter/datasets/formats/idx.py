"""Images and labels from IDX files, packed by gzip or not, as MNIST and Fashion-MNIST are published."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from teeter.datasets.class_numbers import class_indices_from_array
from teeter.datasets.file_checks import parse_errors
from teeter.datasets.splits import LabelledRows, RawDataset
from teeter.errors import FileError

__all__ = ["IDX_FILES", "read_idx", "read_idx_files"]

IDX_FILES = (
    "train-images?idx3-ubyte",
    "train-labels?idx1-ubyte",
    "t10k-images?idx3-ubyte",
    "t10k-labels?idx1-ubyte",
)

_UNSIGNED_BYTE = 0x08


def read_idx_files(found: Sequence[Sequence[Path]]) -> RawDataset:
    """Return the training and the test images, (N, 28, 28) uint8, with their labels."""
    train_images, train_labels, test_images, test_labels = (paths[0] for paths in found)
    return RawDataset(_part(train_images, train_labels), _part(test_images, test_labels))


def read_idx(path: Path) -> npt.NDArray[np.uint8]:
    """Return the array of bytes in an IDX file, refusing one that is longer or shorter than it says."""
    with parse_errors(path, "IDX"):
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        kind, dimensions = data[2], data[3]
        if data[:2] != b"\0\0" or kind != _UNSIGNED_BYTE or dimensions == 0:
            raise FileError(f"{path} is not an IDX file of bytes: it is damaged or something else.")
        start = 4 + 4 * dimensions
        shape = np.frombuffer(data[4:start], dtype=">u4").astype(int).tolist()
        if len(data) - start != (size := int(np.prod(shape, dtype=object))):
            raise FileError(
                f"{path} says it holds {' x '.join(map(str, shape))} = {size} bytes and holds {len(data) - start}: "
                "it is cut short or damaged."
            )
        return np.frombuffer(data, dtype=np.uint8, offset=start).reshape(shape)


def _part(images: Path, labels: Path) -> LabelledRows:
    pixels: Any = read_idx(images)
    classes = read_idx(labels)
    if pixels.ndim != 3 or classes.ndim != 1 or len(pixels) != len(classes):
        raise FileError(
            f"{images} is of shape {pixels.shape} and {labels} of shape {classes.shape}: images (N, height, width) and "
            "labels (N,) are needed."
        )
    return LabelledRows(pixels, class_indices_from_array(classes, "labels", 10, labels))
