"""Tiny ImageNet, FOOD101 and ImageNet from the folders that they are published in. Pictures stay on disk."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from teeter.datasets.class_numbers import numbers_of_texts
from teeter.datasets.files import parsing
from teeter.datasets.parts import Contents, Part
from teeter.datasets.pictures import CentreCrop, Fit, Pictures, Resized
from teeter.datasets.places import Layout
from teeter.errors import FileError

__all__ = ["CROPPED", "FOOD101", "IMAGENET", "SMALL", "TINY_IMAGENET"]

CROPPED = CentreCrop(256, 224)
SMALL = Resized(75)

_SUFFIXES = (".jpeg", ".jpg", ".png")
_DEVKIT = "ILSVRC2012_devkit_t12/data"


def _class_folders(fit: Fit) -> Callable[[Sequence[Sequence[Path]]], Contents]:
    """Return a reader of two folders, training and test, with a folder for each class in them."""

    def read(found: Sequence[Sequence[Path]]) -> Contents:
        train, test = (paths[0] for paths in found)
        classes = _classes_in(train)
        _require_known(_classes_in(test), classes, test)
        return Contents(_in_class_folders(train, classes, fit), _in_class_folders(test, classes, fit), classes)

    return read


def _read_tiny_imagenet(found: Sequence[Sequence[Path]]) -> Contents:
    """Return train/CLASS/images/, and val/images/ by its list of annotations."""
    train, annotations = (paths[0] for paths in found)
    classes = _classes_in(train)
    lines = [line.split("\t") for line in _lines(annotations)]
    if any(len(line) < 2 for line in lines):
        raise FileError(f"{annotations} has lines without a class: a file name, a tab and a class are needed.")
    paths = [annotations.parent / "images" / line[0] for line in lines]
    labels = numbers_of_texts([line[1] for line in lines], classes, annotations)
    return Contents(_in_class_folders(train, classes, Resized(64)), Part(Pictures(paths, Resized(64)), labels), classes)


def _read_food101(found: Sequence[Sequence[Path]]) -> Contents:
    """Return images/CLASS/NUMBER.jpg as meta/train.txt and meta/test.txt list them."""
    listed, train, test, images = (paths[0] for paths in found)
    classes = tuple(_lines(listed))

    def part(listing: Path) -> Part:
        entries = _lines(listing)
        labels = numbers_of_texts([entry.split("/")[0] for entry in entries], classes, listing)
        return Part(Pictures([images / f"{entry}.jpg" for entry in entries], SMALL), labels)

    return Contents(part(train), part(test), classes)


def _read_imagenet_listed(found: Sequence[Sequence[Path]]) -> Contents:
    """Return ImageNet as Kaggle has it: the classes of the validation pictures stand in a CSV file."""
    train, test, listing = (paths[0] for paths in found)
    classes = _classes_in(train)
    with parsing(listing, "CSV"), listing.open(encoding="utf-8", newline="") as stream:
        rows = sorted((row["ImageId"], row["PredictionString"].split()[0]) for row in csv.DictReader(stream))
    labels = numbers_of_texts([row[1] for row in rows], classes, listing)
    paths = [test / f"{row[0]}.JPEG" for row in rows]
    return Contents(_in_class_folders(train, classes, CROPPED), Part(Pictures(paths, CROPPED), labels), classes)


def _read_imagenet_devkit(found: Sequence[Sequence[Path]]) -> Contents:
    """Return ImageNet as it is unpacked: the classes of the validation pictures stand in the development kit."""
    from scipy.io import loadmat

    train, test, meta, truth = (paths[0] for paths in found)
    classes = _classes_in(train)
    with parsing(meta, "MATLAB"):
        names = {int(synset[0]): str(synset[1]) for synset in loadmat(meta, squeeze_me=True)["synsets"]}
    with parsing(truth, "list of numbers"):
        labels = numbers_of_texts([names[int(line)] for line in _lines(truth)], classes, truth)
    paths = _pictures_in(test)
    if len(paths) != len(labels):
        raise FileError(f"{test} has {len(paths)} pictures and {truth} {len(labels)} classes: one a picture is needed.")
    return Contents(_in_class_folders(train, classes, CROPPED), Part(Pictures(paths, CROPPED), labels), classes)


def _classes_in(folder: Path) -> tuple[str, ...]:
    with parsing(folder, "folder of classes"), os.scandir(folder) as entries:
        classes = tuple(sorted(entry.name for entry in entries if entry.is_dir()))
    if not classes:
        raise FileError(f"{folder} has no folders in it: one for each class is needed.")
    return classes


def _require_known(some: Sequence[str], classes: Sequence[str], where: Path) -> None:
    strange = sorted(set(some) - set(classes))
    if strange:
        raise FileError(f"{where} has a class {strange[0]!r} that the training folder does not have.")


def _in_class_folders(folder: Path, classes: Sequence[str], fit: Fit) -> Part:
    paths: list[str] = []
    counts = []
    for name in classes:
        inner = folder / name / "images"
        here = _pictures_in(inner if inner.is_dir() else folder / name)
        paths += here
        counts.append(len(here))
    if not paths:
        raise FileError(f"{folder} has {len(classes)} classes and no picture in {', '.join(_SUFFIXES)}.")
    return Part(Pictures(paths, fit), np.repeat(np.arange(len(classes), dtype=np.int64), counts))


def _pictures_in(folder: Path) -> list[str]:
    if not folder.is_dir():
        return []
    with os.scandir(folder) as entries:
        return sorted(entry.path for entry in entries if entry.name.lower().endswith(_SUFFIXES))


def _lines(path: Path) -> list[str]:
    with parsing(path, "text"):
        lines = [line.strip("\n") for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    if not lines:
        raise FileError(f"{path} is empty.")
    return lines


TINY_IMAGENET = (
    Layout(("train", "val/val_annotations.txt"), _read_tiny_imagenet, tells_name=False),
    Layout(("train", "val"), _class_folders(Resized(64)), tells_name=False),
)
FOOD101 = (Layout(("meta/classes.txt", "meta/train.txt", "meta/test.txt", "images"), _read_food101, tells_name=False),)
IMAGENET = (
    Layout(
        ("train", "val", f"{_DEVKIT}/meta.mat", f"{_DEVKIT}/ILSVRC2012_validation_ground_truth.txt"),
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
