"""Features that another model computed for the rows of a dataset, to be used in place of its inputs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from teeter.datasets.array_files import Arrays, read_arrays
from teeter.datasets.class_numbers import class_indices_from_array
from teeter.datasets.file_checks import require_file
from teeter.datasets.locate import candidate_folders, search_folders
from teeter.datasets.splits import LabelledDataset, LabelledRows
from teeter.datasets.tensors import rows
from teeter.errors import FileError

__all__ = ["find_embeddings", "with_embeddings"]

_SUFFIXES = (".npz", ".safetensors")


def find_embeddings(name: str, folder: str | Path | None = None) -> Path:
    """Return embeddings.npz or embeddings.safetensors in the dataset's folder."""
    for root in search_folders(folder):
        for place in candidate_folders(root, (name,)):
            for suffix in _SUFFIXES:
                if (path := place / f"embeddings{suffix}").is_file():
                    return path
    looked = " or ".join(str(root / name) for root in search_folders(folder))
    raise FileError(
        f"There is no embeddings.npz or embeddings.safetensors in {looked}: name a file."
    )


def with_embeddings(
    path: Path, name: str, classes: tuple[str, ...] | int, read: Callable[[], LabelledDataset]
) -> LabelledDataset:
    """Return a dataset whose inputs are x_train and x_test; it is read for its labels only if the file has none."""
    arrays = read_arrays(require_file(path, _SUFFIXES, "a file of embeddings"))
    if not {"x_train", "x_test"} <= arrays.keys():
        raise FileError(
            f"{path} holds {', '.join(arrays) or 'nothing'}: x_train and x_test are needed."
        )
    if {"y_train", "y_test"} <= arrays.keys():
        names = classes if not isinstance(classes, int) else tuple(map(str, range(classes)))
        train, test = (
            class_indices_from_array(arrays[one], one, classes, path)
            for one in ("y_train", "y_test")
        )
    else:
        dataset = read()
        names, train, test = dataset.classes, dataset.train.labels, dataset.test.labels
    parts = [
        _part(arrays, f"x_{one}", labels, path)
        for one, labels in (("train", train), ("test", test))
    ]
    if parts[0].inputs.shape[1] != parts[1].inputs.shape[1]:
        raise FileError(f"x_train and x_test in {path} differ in features.")
    return LabelledDataset(name, parts[0], parts[1], names)


def _part(arrays: Arrays, inputs: str, labels: npt.NDArray[np.int64], path: Path) -> LabelledRows:
    part = LabelledRows(rows(arrays[inputs], f"{inputs} in {path}"), labels)
    if len(part.inputs) != len(part):
        raise FileError(
            f"{inputs} in {path} has {len(part.inputs)} rows, and the dataset has {len(part)}."
        )
    return part
