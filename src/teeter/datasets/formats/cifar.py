"""CIFAR-10 and CIFAR-100 from their binary version: a label or two, then 3 x 32 x 32 bytes, an image."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from teeter.datasets.class_numbers import class_indices_from_array
from teeter.datasets.file_checks import parse_errors
from teeter.datasets.splits import LabelledRows, RawDataset
from teeter.errors import FileError

__all__ = ["CIFAR10_FILES", "CIFAR100_FILES", "read_cifar10", "read_cifar100"]

CIFAR10_FILES = (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin")
CIFAR100_FILES = ("train.bin", "test.bin")

_PIXELS = 3 * 32 * 32


def read_cifar10(found: Sequence[Sequence[Path]]) -> RawDataset:
    """Return the five training batches together, and the test batch: (N, 3, 32, 32) uint8."""
    *training, test = (_records(paths[0], label_bytes=1, classes=10) for paths in found)
    images = np.concatenate([part.inputs for part in training])
    return RawDataset(
        LabelledRows(images, np.concatenate([part.labels for part in training])), test
    )


def read_cifar100(found: Sequence[Sequence[Path]]) -> RawDataset:
    """Return training and test images with their fine labels, of 100 classes: (N, 3, 32, 32) uint8."""
    train, test = (_records(paths[0], label_bytes=2, classes=100) for paths in found)
    return RawDataset(train, test)


def _records(path: Path, *, label_bytes: int, classes: int) -> LabelledRows:
    """Return the images of a file; of two labels the second counts, the first is CIFAR-100's coarse class."""
    with parse_errors(path, "CIFAR binary"):
        data = np.fromfile(path, dtype=np.uint8)
    width = label_bytes + _PIXELS
    if len(data) % width or not len(data):
        raise FileError(
            f"{path} has {len(data)} bytes, which are not whole images of {width} bytes: it is cut short or not "
            "CIFAR's binary version."
        )
    records = data.reshape(-1, width)
    labels = class_indices_from_array(records[:, label_bytes - 1], "labels", classes, path)
    return LabelledRows(records[:, label_bytes:].reshape(-1, 3, 32, 32), labels)
