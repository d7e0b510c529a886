"""Load a named dataset: locate its files, read them, convert them to tensors and split them."""

from __future__ import annotations

import logging
from pathlib import Path

from torch.utils.data import Dataset

from teeter.base.seeds import validate_seed
from teeter.datasets.catalogue import DatasetSpec, find_spec, locate_dataset
from teeter.datasets.embeddings import find_embeddings, with_embeddings
from teeter.datasets.locate import LocatedFiles, candidate_folders, search_folders
from teeter.datasets.splits import DatasetSplit, LabelledDataset, LabelledRows, RawDataset, hold_out
from teeter.datasets.tensors import image_tensor, row_tensor
from teeter.errors import FileError

__all__ = ["load_dataset"]

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
        name: one of ``teeter.datasets.names()``.
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
    spec = find_spec(name)
    seed = validate_seed(seed)

    # A function, because embeddings with labels do not need the dataset's files.
    def read_dataset() -> LabelledDataset:
        return _read_dataset(spec, _require_files(spec, folder))

    if embeddings is False:
        dataset = read_dataset()
    else:
        path = find_embeddings(name, folder) if embeddings is True else Path(embeddings)
        dataset = with_embeddings(path, spec, read_dataset)

    train, validation_rows = hold_out(dataset.train, validation, name, seed)
    return DatasetSplit(
        name=name,
        train=train,
        validation=validation_rows,
        test=dataset.test,
        classes=dataset.classes,
    )


def _require_files(spec: DatasetSpec, folder: str | Path | None) -> LocatedFiles:
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
        f"There is no {spec.name} in {searched}: run teeter datasets get {spec.name}, or run "
        f"teeter datasets to see other ways."
    )


def _read_dataset(spec: DatasetSpec, located: LocatedFiles) -> LabelledDataset:
    # A dataset that comes with a package has no folder to name in messages.
    source = spec.name
    if located.files:
        source = str(located.first.parent)

    contents = located.layout.read(located.files)

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

    return LabelledDataset(
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
