"""Images published as arrays: IDX (MNIST), CIFAR's batches, SVHN's MATLAB files and NPZ."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from teeter.base.files import parse_errors
from teeter.bench.datasets.locate import MatchedFiles, Reader
from teeter.bench.datasets.splits import LabelledRows, RawDataset, class_indices_from_array
from teeter.errors import FileError

if TYPE_CHECKING:
    from teeter.data.array_files import Arrays


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


def cifar_reader(*, label_bytes: int, class_count: int) -> Reader:
    """Return a reader of CIFAR's training batches and its test batch: (N, 3, 32, 32) uint8.

    Args:
        label_bytes: bytes before each image; the last of them is the class.
        class_count: the number of classes.
    """

    def read(files: MatchedFiles) -> RawDataset:
        # In the order of the patterns: the test batch is the last.
        *training, test = [_read_records(paths[0], label_bytes, class_count) for paths in files]
        train = LabelledRows(
            inputs=np.concatenate([batch.inputs for batch in training]),
            labels=np.concatenate([batch.labels for batch in training]),
        )
        return RawDataset(train, test)

    return read


def _read_records(path: Path, label_bytes: int, class_count: int) -> LabelledRows:
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


SVHN_FILES = ("train_32x32.mat", "test_32x32.mat")


def read_svhn(files: MatchedFiles) -> RawDataset:
    """Read training and test images, (N, 3, 32, 32) uint8, with their digits as labels."""
    train_paths, test_paths = files
    train = _read_svhn_file(train_paths[0])
    test = _read_svhn_file(test_paths[0])
    return RawDataset(train, test)


def _read_svhn_file(path: Path) -> LabelledRows:
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
