"""Read CIFAR-10 and CIFAR-100 from their binary version.

A file is a sequence of records: one label byte (two for CIFAR-100: coarse, then fine) and an image
of 3 x 32 x 32 bytes.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from teeter.data.file_checks import parse_errors
from teeter.datasets.classes import class_indices_from_array
from teeter.datasets.locate import MatchedFiles
from teeter.datasets.splits import LabelledRows, RawDataset
from teeter.errors import FileError

__all__ = ["CIFAR10_FILES", "CIFAR100_FILES", "read_cifar10", "read_cifar100"]

CIFAR10_FILES = (
    "data_batch_1.bin",
    "data_batch_2.bin",
    "data_batch_3.bin",
    "data_batch_4.bin",
    "data_batch_5.bin",
    "test_batch.bin",
)
CIFAR100_FILES = ("train.bin", "test.bin")

_IMAGE_BYTES = 3 * 32 * 32


def read_cifar10(files: MatchedFiles) -> RawDataset:
    """Read the five training batches and the test batch: (N, 3, 32, 32) uint8."""
    # In the order of CIFAR10_FILES: the test batch is the last.
    batches = [_read_records(paths[0], label_bytes=1, class_count=10) for paths in files]
    *training, test = batches

    train = LabelledRows(
        inputs=np.concatenate([batch.inputs for batch in training]),
        labels=np.concatenate([batch.labels for batch in training]),
    )
    return RawDataset(train, test)


def read_cifar100(files: MatchedFiles) -> RawDataset:
    """Read training and test images with their fine labels: (N, 3, 32, 32) uint8."""
    train_paths, test_paths = files
    train = _read_records(train_paths[0], label_bytes=2, class_count=100)
    test = _read_records(test_paths[0], label_bytes=2, class_count=100)
    return RawDataset(train, test)


def _read_records(path: Path, *, label_bytes: int, class_count: int) -> LabelledRows:
    with parse_errors(path, "CIFAR binary file"):
        data = np.fromfile(path, dtype=np.uint8)

    record_bytes = label_bytes + _IMAGE_BYTES
    if len(data) == 0 or len(data) % record_bytes != 0:
        raise FileError(
            f"{path} has {len(data)} bytes, which is not a multiple of {record_bytes} bytes per "
            "image: it is incomplete or not CIFAR's binary version."
        )

    records = data.reshape(-1, record_bytes)

    # The last label byte is the class. CIFAR-100 has its superclass before it.
    class_bytes = records[:, label_bytes - 1]
    labels = class_indices_from_array(class_bytes, "labels", class_count, path)

    # The red plane, then green, then blue, each row by row: channels first already.
    pixels = records[:, label_bytes:]
    images = pixels.reshape(-1, 3, 32, 32)
    return LabelledRows(images, labels)
