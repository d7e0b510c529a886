"""Read images and labels from IDX files, as MNIST and Fashion-MNIST are published.

An IDX file is two zero bytes, a byte for the type of the values, a byte for the number of axes, the
length of each axis as a big-endian 32-bit integer, and the values in row-major order.
"""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import numpy.typing as npt

from teeter.data.file_checks import parse_errors
from teeter.datasets.classes import class_indices_from_array
from teeter.datasets.locate import MatchedFiles
from teeter.datasets.splits import LabelledRows, RawDataset
from teeter.errors import FileError

__all__ = ["IDX_FILES", "read_idx", "read_idx_files"]

IDX_FILES = (
    "train-images?idx3-ubyte",  # Some copies have a dot before idx3 instead of a hyphen.
    "train-labels?idx1-ubyte",
    "t10k-images?idx3-ubyte",
    "t10k-labels?idx1-ubyte",
)

_UNSIGNED_BYTE = 0x08


def read_idx_files(files: MatchedFiles) -> RawDataset:
    """Read the training and test images, (N, 28, 28) uint8, with their labels."""
    # In the order of IDX_FILES. Each pattern matches one file.
    train_images, train_labels, test_images, test_labels = (paths[0] for paths in files)
    train = _read_images_and_labels(train_images, train_labels)
    test = _read_images_and_labels(test_images, test_labels)
    return RawDataset(train, test)


def read_idx(path: Path) -> npt.NDArray[np.uint8]:
    """Read an IDX file of bytes, gzipped or not.

    Raises:
        FileError: if it is not an IDX file, or longer or shorter than its header says.
    """
    with parse_errors(path, "IDX file"):
        data = path.read_bytes()
        if path.suffix == ".gz":
            data = gzip.decompress(data)

        has_magic_bytes = data[:2] == b"\0\0"
        value_type = data[2]
        axis_count = data[3]
        if not has_magic_bytes or value_type != _UNSIGNED_BYTE or axis_count == 0:
            raise FileError(
                f"{path} is not an IDX file of bytes: it is damaged or of another type."
            )

        start = 4 + 4 * axis_count
        axis_lengths = np.frombuffer(data[4:start], dtype=">u4")
        shape = axis_lengths.astype(int).tolist()

        # Python integers, because the product of a damaged header may overflow int64.
        expected = int(np.prod(shape, dtype=object))
        actual = len(data) - start
        if actual != expected:
            shape_text = " x ".join(str(length) for length in shape)
            raise FileError(
                f"The header of {path} declares {shape_text} bytes, but the file has {actual} "
                "after the header: it is incomplete or damaged."
            )

        values = np.frombuffer(data, dtype=np.uint8, offset=start)
        return values.reshape(shape)


def _read_images_and_labels(images_path: Path, labels_path: Path) -> LabelledRows:
    images = read_idx(images_path)
    labels = read_idx(labels_path)

    have_right_axes = images.ndim == 3 and labels.ndim == 1
    if not have_right_axes or len(images) != len(labels):
        raise FileError(
            f"{images_path} has the shape {images.shape} and {labels_path} the shape "
            f"{labels.shape}: images (N, height, width) and labels (N,) are needed."
        )

    class_indices = class_indices_from_array(labels, "labels", 10, labels_path)
    return LabelledRows(images, class_indices)
