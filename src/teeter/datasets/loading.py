"""The door to the named datasets: found, read, checked, divided."""

from __future__ import annotations

import logging
from pathlib import Path

from torch.utils.data import Dataset

from teeter.datasets.catalogue import DatasetSpec, find_spec
from teeter.datasets.embeddings import find_embeddings, with_embeddings
from teeter.datasets.locate import LocatedFiles, candidate_folders, locate_files, search_folders
from teeter.datasets.splits import DatasetSplit, LabelledDataset, LabelledRows, RawDataset, hold_out
from teeter.datasets.tensors import images, rows
from teeter.errors import FileError

__all__ = ["load_dataset", "locate_dataset"]

logger = logging.getLogger(__name__)


def load_dataset(
    name: str,
    *,
    folder: str | Path | None = None,
    validation: int = 0,
    seed: int = 0,
    embeddings: bool | str | Path = False,
) -> DatasetSplit:
    """Return a dataset, with ``validation`` of its training rows drawn by the seed and set apart.

    It is looked for in ``folder``, or else in the folder that TEETER_DATA names and in the cache. The seed moves
    rows between training and validation only: the test rows are always the same. ``embeddings`` puts features from
    a file in place of the inputs: from that path, or with True from embeddings.npz in the dataset's folder.
    """
    entry = find_spec(name)

    def read() -> LabelledDataset:
        return _read(entry, _require(entry, folder))

    if embeddings is False:
        dataset = read()
    else:
        path = find_embeddings(name, folder) if embeddings is True else Path(embeddings)
        dataset = with_embeddings(path, name, entry.classes, read)
    train, held = hold_out(dataset.train, validation, name, seed)
    return DatasetSplit(name, train, held, dataset.test, dataset.classes)


def locate_dataset(entry: DatasetSpec, folder: str | Path | None = None) -> LocatedFiles | None:
    """Return the files of a dataset, or None where they are not all there."""
    if entry.layouts[0].patterns == ():
        return LocatedFiles(entry.layouts[0], ())
    return locate_files((entry.name, *entry.folders), entry.layouts, folder)


def _require(entry: DatasetSpec, folder: str | Path | None) -> LocatedFiles:
    found = locate_dataset(entry, folder)
    if found is not None:
        return found
    for root in search_folders(folder):
        for place in candidate_folders(root, (entry.name, *entry.folders)):
            for pattern, instead in entry.refused:
                for path in sorted(place.glob(pattern)):
                    raise FileError(f"{path} is {instead}.")
    looked = " or ".join(str(root) for root in search_folders(folder))
    raise FileError(
        f"There is no {entry.name} in {looked}: run teeter datasets get {entry.name}, or see teeter datasets."
    )


def _read(entry: DatasetSpec, found: LocatedFiles) -> LabelledDataset:
    contents = found.layout.read(found.files)
    where = str(found.first.parent if found.files else entry.name)
    test = None if contents.test is None else _ready(entry, contents.test, where)
    contents = RawDataset(_ready(entry, contents.train, where), test, contents.classes)
    train, test = entry.divide(contents)
    _require_shape(entry, train, where)
    _require_shape(entry, test, where)
    if (len(train), len(test)) != (entry.train, entry.test):
        logger.warning(
            "%s has %d training and %d test rows here, and %d and %d are published.",
            *(entry.name, len(train), len(test), entry.train, entry.test),
        )
    return LabelledDataset(entry.name, train, test, _class_names(entry, contents))


def _ready(entry: DatasetSpec, part: LabelledRows, where: str) -> LabelledRows:
    what = f"{entry.name} in {where}"
    if len(entry.shape) == 1:
        return LabelledRows(rows(part.inputs, what), part.labels)
    return LabelledRows(
        images(part.inputs, entry.shape, what, as_bytes=entry.keep_bytes), part.labels
    )


def _require_shape(entry: DatasetSpec, part: LabelledRows, where: str) -> None:
    if not len(part):
        raise FileError(
            f"{entry.name} in {where} is too small: a training or a test part of it has no rows."
        )
    if not isinstance(part.inputs, Dataset) and part.inputs.shape[1:] != entry.shape:
        raise FileError(
            f"{entry.name} in {where} has rows of shape {tuple(part.inputs.shape[1:])}: {entry.shape} is needed."
        )


def _class_names(entry: DatasetSpec, contents: RawDataset) -> tuple[str, ...]:
    if contents.classes is not None:
        return contents.classes
    return (
        entry.classes
        if not isinstance(entry.classes, int)
        else tuple(map(str, range(entry.classes)))
    )
