"""Tiny ImageNet, FOOD101 and ImageNet from the folders that they are published in. Pictures stay on disk."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from teeter.datasets.class_numbers import class_indices_from_text
from teeter.datasets.file_checks import parse_errors
from teeter.datasets.image_files import CentreCrop, Fit, ImageFiles, Resize
from teeter.datasets.locate import Layout
from teeter.datasets.splits import LabelledRows, RawDataset
from teeter.errors import FileError

__all__ = ["CROPPED", "FOOD101", "IMAGENET", "SMALL", "TINY_IMAGENET"]

CROPPED = CentreCrop(256, 224)
SMALL = Resize(75)

_SUFFIXES = (".jpeg", ".jpg", ".png")
_DEVKIT = "ILSVRC2012_devkit_t12/data"


def _class_folders(fit: Fit) -> Callable[[Sequence[Sequence[Path]]], RawDataset]:
    """Return a reader of two folders, training and test, with a folder for each class in them."""

    def read(found: Sequence[Sequence[Path]]) -> RawDataset:
        train, test = (paths[0] for paths in found)
        classes = _classes_in(train)
        _require_known(_classes_in(test), classes, test)
        return RawDataset(
            _in_class_folders(train, classes, fit), _in_class_folders(test, classes, fit), classes
        )

    return read


def _read_tiny_imagenet(found: Sequence[Sequence[Path]]) -> RawDataset:
    """Return train/CLASS/images/, and val/images/ by its list of annotations."""
    train, annotations = (paths[0] for paths in found)
    classes = _classes_in(train)
    lines = [line.split("\t") for line in _lines(annotations)]
    if any(len(line) < 2 for line in lines):
        raise FileError(
            f"{annotations} has lines without a class: a file name, a tab and a class are needed."
        )
    paths = [annotations.parent / "images" / line[0] for line in lines]
    labels = class_indices_from_text([line[1] for line in lines], classes, annotations)
    return RawDataset(
        _in_class_folders(train, classes, Resize(64)),
        LabelledRows(ImageFiles(paths, Resize(64)), labels),
        classes,
    )


def _read_food101(found: Sequence[Sequence[Path]]) -> RawDataset:
    """Return images/CLASS/NUMBER.jpg as meta/train.txt and meta/test.txt list them."""
    listed, train, test, images = (paths[0] for paths in found)
    classes = tuple(_lines(listed))

    def part(listing: Path) -> LabelledRows:
        entries = _lines(listing)
        labels = class_indices_from_text(
            [entry.split("/")[0] for entry in entries], classes, listing
        )
        return LabelledRows(
            ImageFiles([images / f"{entry}.jpg" for entry in entries], SMALL), labels
        )

    return RawDataset(part(train), part(test), classes)


def _read_imagenet_listed(found: Sequence[Sequence[Path]]) -> RawDataset:
    """Return ImageNet as Kaggle has it: the classes of the validation pictures stand in a CSV file."""
    train, test, listing = (paths[0] for paths in found)
    classes = _classes_in(train)
    with parse_errors(listing, "CSV"), listing.open(encoding="utf-8", newline="") as stream:
        rows = sorted(
            (row["ImageId"], row["PredictionString"].split()[0]) for row in csv.DictReader(stream)
        )
    labels = class_indices_from_text([row[1] for row in rows], classes, listing)
    paths = [test / f"{row[0]}.JPEG" for row in rows]
    return RawDataset(
        _in_class_folders(train, classes, CROPPED),
        LabelledRows(ImageFiles(paths, CROPPED), labels),
        classes,
    )


def _read_imagenet_devkit(found: Sequence[Sequence[Path]]) -> RawDataset:
    """Return ImageNet as it is unpacked: the classes of the validation pictures stand in the development kit."""
    from scipy.io import loadmat

    train, test, meta, truth = (paths[0] for paths in found)
    classes = _classes_in(train)
    with parse_errors(meta, "MATLAB"):
        names = {
            int(synset[0]): str(synset[1]) for synset in loadmat(meta, squeeze_me=True)["synsets"]
        }
    with parse_errors(truth, "list of numbers"):
        labels = class_indices_from_text(
            [names[int(line)] for line in _lines(truth)], classes, truth
        )
    paths = _pictures_in(test)
    if len(paths) != len(labels):
        raise FileError(
            f"{test} has {len(paths)} pictures and {truth} {len(labels)} classes: one a picture is needed."
        )
    return RawDataset(
        _in_class_folders(train, classes, CROPPED),
        LabelledRows(ImageFiles(paths, CROPPED), labels),
        classes,
    )


def _classes_in(folder: Path) -> tuple[str, ...]:
    with parse_errors(folder, "folder of classes"), os.scandir(folder) as entries:
        classes = tuple(sorted(entry.name for entry in entries if entry.is_dir()))
    if not classes:
        raise FileError(f"{folder} has no folders in it: one for each class is needed.")
    return classes


def _require_known(some: Sequence[str], classes: Sequence[str], where: Path) -> None:
    strange = sorted(set(some) - set(classes))
    if strange:
        raise FileError(
            f"{where} has a class {strange[0]!r} that the training folder does not have."
        )


def _in_class_folders(folder: Path, classes: Sequence[str], fit: Fit) -> LabelledRows:
    paths: list[str] = []
    counts = []
    for name in classes:
        inner = folder / name / "images"
        here = _pictures_in(inner if inner.is_dir() else folder / name)
        paths += here
        counts.append(len(here))
    if not paths:
        raise FileError(
            f"{folder} has {len(classes)} classes and no picture in {', '.join(_SUFFIXES)}."
        )
    return LabelledRows(
        ImageFiles(paths, fit), np.repeat(np.arange(len(classes), dtype=np.int64), counts)
    )


def _pictures_in(folder: Path) -> list[str]:
    if not folder.is_dir():
        return []
    with os.scandir(folder) as entries:
        return sorted(entry.path for entry in entries if entry.name.lower().endswith(_SUFFIXES))


def _lines(path: Path) -> list[str]:
    with parse_errors(path, "text"):
        lines = [
            line.strip("\n")
            for line in path.read_text(encoding="utf-8").splitlines()
            if line.strip()
        ]
    if not lines:
        raise FileError(f"{path} is empty.")
    return lines


TINY_IMAGENET = (
    Layout(("train", "val/val_annotations.txt"), _read_tiny_imagenet, tells_name=False),
    Layout(("train", "val"), _class_folders(Resize(64)), tells_name=False),
)
FOOD101 = (
    Layout(
        ("meta/classes.txt", "meta/train.txt", "meta/test.txt", "images"),
        _read_food101,
        tells_name=False,
    ),
)
IMAGENET = (
    Layout(
        (
            "train",
            "val",
            f"{_DEVKIT}/meta.mat",
            f"{_DEVKIT}/ILSVRC2012_validation_ground_truth.txt",
        ),
        _read_imagenet_devkit,
        tells_name=False,
    ),
    Layout(
        ("ILSVRC/Data/CLS-LOC/train", "ILSVRC/Data/CLS-LOC/val", "LOC_val_solution.csv"),
        _read_imagenet_listed,
        tells_name=False,
    ),
    Layout(("train", "val"), _class_folders(CROPPED), tells_name=False),
)
