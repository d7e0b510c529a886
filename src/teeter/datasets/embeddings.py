"""Replace the inputs of a dataset by features that another model computed for its rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from teeter.data.array_files import Arrays, read_arrays
from teeter.data.file_checks import require_file
from teeter.datasets.catalogue import DatasetSpec
from teeter.datasets.classes import class_indices_from_array
from teeter.datasets.locate import candidate_folders, search_folders
from teeter.datasets.splits import LabelledDataset, LabelledRows
from teeter.datasets.tensors import row_tensor
from teeter.errors import FileError

__all__ = ["find_embeddings", "with_embeddings"]

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
    path: Path, spec: DatasetSpec, read_dataset: Callable[[], LabelledDataset]
) -> LabelledDataset:
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

    return LabelledDataset(spec.name, train, test, names)


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
