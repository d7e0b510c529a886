"""Load a named dataset, ready for a network, or the embeddings that stand for it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import Dataset

from teeter.base.files import require_file
from teeter.base.seeds import validate_seed
from teeter.bench.datasets.catalogue import DatasetSpec, find_spec, locate_dataset
from teeter.bench.datasets.formats import npz_reader
from teeter.bench.datasets.images import ImageFiles, ParquetImages
from teeter.bench.datasets.locate import Layout, MatchedFiles, candidate_folders, search_folders
from teeter.bench.datasets.splits import (
    DatasetSplit,
    LabelledRows,
    RawDataset,
    class_indices_from_array,
    hold_out,
    shuffled_split,
)
from teeter.data.array_files import Arrays, read_arrays
from teeter.errors import FileError

__all__ = [
    "ByteImages",
    "find_embeddings",
    "image_tensor",
    "load_dataset",
    "row_tensor",
    "with_embeddings",
]


class ByteImages(Dataset[Tensor]):
    """Images kept as bytes, in memory or in files: each is converted to float32 in [0, 1].

    As float32, all images together would take four times the memory.

    Args:
        pixels: (N, channels, height, width) uint8, or N image files.
    """

    def __init__(self, pixels: Tensor | ImageFiles | ParquetImages) -> None:
        self.pixels = pixels

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, row: int) -> Tensor:
        return torch.as_tensor(self.pixels[row]).float() / 255


def row_tensor(array: Any, source: str) -> Tensor:
    """Return an array of numbers as a float32 tensor (N, D).

    Args:
        array: (N, D) numbers.
        source: where the array comes from, for error messages.

    Raises:
        FileError: if the array has another shape or type, no row, or values that are not finite.
    """
    numbers = np.asarray(array)
    is_matrix = numbers.ndim == 2 and len(numbers) > 0
    is_number = numbers.dtype.kind in "iufb"  # signed, unsigned, floating or boolean
    if not is_matrix or not is_number:
        raise FileError(
            f"{source} is {numbers.dtype} of shape {numbers.shape}: numbers (N, D) are needed."
        )

    contiguous = np.ascontiguousarray(numbers, dtype=np.float32)
    tensor = torch.from_numpy(contiguous)
    if not tensor.isfinite().all():
        raise FileError(f"{source} has missing values: some of its numbers are NaN or infinite.")

    return tensor


def image_tensor(
    array: Any, shape: Sequence[int], source: str, *, keep_bytes: bool
) -> Tensor | ByteImages:
    """Return images as float32 (N, channels, height, width) in [0, 1].

    Args:
        array: images as uint8 or as fractions in [0, 1], with their channels first or last, flat,
            or without the channel axis if there is one channel; or image files. A torch Dataset is
            returned as it is.
        shape: (channels, height, width).
        source: where the images come from, for error messages.
        keep_bytes: return uint8 images as ``ByteImages``.

    Raises:
        FileError: if the array has another shape or type, or no image.
    """
    if isinstance(array, Dataset):
        return array  # type: ignore[return-value]
    if isinstance(array, ImageFiles | ParquetImages):
        return ByteImages(array)

    pixels = _with_channels_first(np.asarray(array), tuple(shape), source)

    if pixels.dtype == np.uint8:
        # torch.from_numpy warns about arrays that it may not write to.
        writable = np.require(pixels, requirements=["C", "W"])
        tensor = torch.from_numpy(writable)
        if keep_bytes:
            return ByteImages(tensor)
        return tensor.to(torch.float32).div_(255)

    # Bytes saved as floats, 0 to 255, are refused: dividing them would be a guess.
    is_floating = pixels.dtype.kind == "f"
    is_fraction = is_floating and pixels.min() >= 0 and pixels.max() <= 1
    if not is_fraction:
        raise FileError(
            f"{source} is {pixels.dtype}: save images as bytes (uint8), or as fractions from 0 to "
            "1."
        )

    return torch.from_numpy(np.ascontiguousarray(pixels, dtype=np.float32))


def _with_channels_first(
    array: npt.NDArray[Any], shape: tuple[int, ...], source: str
) -> npt.NDArray[Any]:
    if array.ndim == 0 or len(array) == 0:
        raise FileError(f"{source} holds no images.")

    channels, height, width = shape
    image_shape = array.shape[1:]

    if image_shape == shape:
        return array
    if image_shape == (height, width, channels):
        return array.transpose(0, 3, 1, 2)

    is_flat = image_shape == (prod(shape),)
    is_grey = channels == 1 and image_shape == (height, width)
    if is_flat or is_grey:
        return array.reshape(-1, *shape)

    raise FileError(
        f"{source} has the shape {array.shape}: "
        f"images (N, {channels}, {height}, {width}) are needed."
    )


_SUFFIXES = (".npz", ".safetensors")


def find_embeddings(name: str, folder: str | Path | None = None) -> Path:
    """Return the path of embeddings.npz or embeddings.safetensors in the dataset's folder.

    Raises:
        FileError: if there is no such file.
    """
    for root in search_folders(folder):
        for candidate in candidate_folders(root, (name,)):
            for suffix in _SUFFIXES:
                path = candidate / f"embeddings{suffix}"
                if path.is_file():
                    return path

    folders = [str(root / name) for root in search_folders(folder)]
    searched = " or ".join(folders)
    raise FileError(
        f"There is no embeddings.npz or embeddings.safetensors in {searched}: "
        "give the path of a file as embeddings."
    )


def with_embeddings(
    path: Path, spec: DatasetSpec, read_dataset: Callable[[], DatasetSplit]
) -> DatasetSplit:
    """Return a dataset with the arrays x_train and x_test of a file as its inputs.

    Args:
        path: a .npz or .safetensors file. It may also hold the labels, y_train and y_test.
        spec: the dataset.
        read_dataset: reads the dataset itself. Called only if the file holds no labels.

    Raises:
        FileError: if arrays are missing or do not fit the dataset.
    """
    path = require_file(path, _SUFFIXES, "a file of embeddings")
    arrays = read_arrays(path)
    if not {"x_train", "x_test"} <= arrays.keys():
        contents = ", ".join(arrays) or "nothing"
        raise FileError(f"{path} holds {contents}: x_train and x_test are needed.")

    # With labels in the file, the dataset itself need not be there.
    if {"y_train", "y_test"} <= arrays.keys():
        names = spec.class_names
        train_labels = class_indices_from_array(arrays["y_train"], "y_train", spec.classes, path)
        test_labels = class_indices_from_array(arrays["y_test"], "y_test", spec.classes, path)
    else:
        dataset = read_dataset()
        names = dataset.classes
        train_labels = dataset.train.labels
        test_labels = dataset.test.labels

    train = _labelled_rows(arrays, "x_train", train_labels, path)
    test = _labelled_rows(arrays, "x_test", test_labels, path)

    train_width = train.inputs.shape[1]
    test_width = test.inputs.shape[1]
    if train_width != test_width:
        raise FileError(
            f"x_train in {path} has {train_width} features and x_test has {test_width}: "
            "they must have the same number."
        )

    return DatasetSplit(spec.name, train, test, names)


def _labelled_rows(
    arrays: Arrays, name: str, labels: npt.NDArray[np.int64], path: Path
) -> LabelledRows:
    inputs = row_tensor(arrays[name], f"{name} in {path}")

    # Nothing else ties a row of features to its label, so at least the numbers must agree.
    if len(inputs) != len(labels):
        raise FileError(
            f"{name} in {path} has {len(inputs)} rows, but the dataset has {len(labels)}."
        )

    return LabelledRows(inputs, labels)


logger = logging.getLogger(__name__)


def load_dataset(
    name: str,
    *,
    folder: str | Path | None = None,
    validation: int = 0,
    seed: int = 0,
    embeddings: bool | str | Path = False,
) -> DatasetSplit:
    """Load a named dataset with its training, validation and test rows.

    Args:
        name: one of ``teeter.bench.datasets.names()``; or a .npz or .safetensors file with the
            arrays x_train, y_train, x_test and y_test, or x and y, of which a fifth is tested on.
        folder: the folder to search for the dataset's files. By default these are the folder named
            by the environment variable TEETER_DATA, and the cache.
        validation: the number of training rows to set apart for validation.
        seed: the seed that draws the validation rows. The test rows are always the same.
        embeddings: a .npz or .safetensors file of features x_train and x_test to use instead of
            the inputs, or True for embeddings.npz in the dataset's folder.

    Returns:
        The rows with their class indices, and the class names.

    Raises:
        UnknownNameError: if there is no dataset of that name.
        FileError: if its files are missing or damaged.
        InputError: if there are not enough training rows for ``validation``.

    Example:
        >>> split = load_dataset("digits", validation=200)
        >>> split.train.inputs.shape, split.train.labels.shape
        (torch.Size([1237, 64]), (1237,))
        >>> len(split.validation), len(split.test), split.classes[3]
        (200, 360, '3')
    """
    seed = validate_seed(seed)
    if Path(name).suffix in _SUFFIXES:
        dataset = _read_array_file(Path(folder or ".") / name)
        train, validation_rows = hold_out(dataset.train, validation, name, seed)
        return replace(dataset, train=train, validation=validation_rows)

    spec = find_spec(name)

    # A function, because embeddings with labels do not need the dataset's files.
    def read_dataset() -> DatasetSplit:
        layout, files = _require_files(spec, folder)
        return _read_dataset(spec, layout, files)

    if embeddings is False:
        dataset = read_dataset()
    else:
        if embeddings is True:
            path = find_embeddings(name, folder)
        else:
            path = Path(embeddings)
        dataset = with_embeddings(path, spec, read_dataset)

    train, validation_rows = hold_out(dataset.train, validation, name, seed)
    return replace(dataset, name=name, train=train, validation=validation_rows)


def _read_array_file(path: Path) -> DatasetSplit:
    """Return the rows of a file of arrays. Its labels are class names, or numbers from 0."""
    arrays = read_arrays(require_file(path, _SUFFIXES, "a file of arrays"))
    all_labels = []
    for name in ("y", "y_train", "y_test"):
        if name in arrays:
            array = np.asarray(arrays[name])
            all_labels.append(array.ravel())
    labels = np.zeros(0)
    if all_labels:
        labels = np.concatenate(all_labels)

    classes: tuple[str, ...] | int
    if labels.dtype.kind == "U":
        classes = tuple(np.unique(labels).tolist())
    else:
        classes = 1 + int(labels.max(initial=0))
    contents = npz_reader(classes)(((path,),))
    train, test = shuffled_split(path.stem)(contents)

    if isinstance(classes, int):
        classes = contents.classes or tuple(str(number) for number in range(classes))
    rows = []
    for part in (train, test):
        source = f"the array of {path.name}"
        inputs: Any = np.asarray(part.inputs)
        if inputs.ndim == 4:
            inputs = image_tensor(inputs, inputs.shape[1:], source, keep_bytes=False)
        else:
            inputs = row_tensor(inputs, source)
        rows.append(LabelledRows(inputs, part.labels))
    return DatasetSplit(path.name, rows[0], rows[1], classes)


def _require_files(spec: DatasetSpec, folder: str | Path | None) -> tuple[Layout, MatchedFiles]:
    located = locate_dataset(spec, folder)
    if located is not None:
        return located

    # Files in a format that teeter does not read deserve a better message than "not found".
    for root in search_folders(folder):
        for candidate in candidate_folders(root, (spec.name, *spec.folder_names)):
            for pattern, advice in spec.unsupported_files:
                for path in sorted(candidate.glob(pattern)):
                    raise FileError(f"{path} is {advice}.")

    folders = [str(root) for root in search_folders(folder)]
    searched = " or ".join(folders)
    raise FileError(
        f"There is no {spec.name} in {searched}: run teeter bench datasets {spec.name}, or run "
        f"teeter bench datasets to see other ways."
    )


def _read_dataset(spec: DatasetSpec, layout: Layout, files: MatchedFiles) -> DatasetSplit:
    # A dataset that comes with a package has no folder to name in messages.
    source = spec.name
    if files:
        source = str(files[0][0].parent)

    contents = layout.read(files)

    # Tensors first: split functions sort and scale them.
    train_tensors = _to_tensors(spec, contents.train, source)
    test_tensors = None
    if contents.test is not None:
        test_tensors = _to_tensors(spec, contents.test, source)

    tensors = RawDataset(train_tensors, test_tensors, contents.classes)
    train, test = spec.split(tensors)

    _require_shape(spec, train, source)
    _require_shape(spec, test, source)

    # Users may load their own subset under the name of a dataset, so this is no error.
    if len(train) != spec.train or len(test) != spec.test:
        logger.warning(
            "%s has %d training rows and %d test rows here, but the published dataset has %d and "
            "%d.",
            spec.name,
            len(train),
            len(test),
            spec.train,
            spec.test,
        )

    return DatasetSplit(
        name=spec.name,
        train=train,
        test=test,
        classes=contents.classes or spec.class_names,
    )


def _to_tensors(spec: DatasetSpec, part: LabelledRows, source: str) -> LabelledRows:
    description = f"{spec.name} in {source}"
    if len(spec.shape) == 1:
        inputs = row_tensor(part.inputs, description)
        return LabelledRows(inputs, part.labels)

    images = image_tensor(part.inputs, spec.shape, description, keep_bytes=spec.keep_bytes)
    return LabelledRows(images, part.labels)


def _require_shape(spec: DatasetSpec, part: LabelledRows, source: str) -> None:
    if len(part) == 0:
        raise FileError(
            f"{spec.name} in {source} is too small: its training or its test set has no rows."
        )

    # The images of a torch Dataset are fitted to the shape when they are decoded.
    if isinstance(part.inputs, Dataset):
        return

    shape = tuple(part.inputs.shape[1:])
    if shape != spec.shape:
        raise FileError(
            f"{spec.name} in {source} has rows of shape {shape}: {spec.shape} is needed."
        )
