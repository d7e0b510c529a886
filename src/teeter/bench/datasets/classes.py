"""The class names of the named datasets, and the conversion of labels to class indices."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from string import ascii_uppercase
from typing import Any

import numpy as np
import numpy.typing as npt

from teeter.errors import FileError

__all__ = [
    "CIFAR10",
    "CIFAR100",
    "DIGITS",
    "FASHION",
    "LETTERS",
    "RANDOM_RBF",
    "class_indices_from_array",
    "class_indices_from_text",
]

# Each tuple is in the order of the class indices.
DIGITS = tuple("0123456789")
LETTERS = tuple(ascii_uppercase)
RANDOM_RBF = ("class1", "class2", "class3", "class4", "class5")
FASHION = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_CIFAR100_NAMES = """
    apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly
    camel can castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile
    cup dinosaur dolphin elephant flatfish forest fox girl hamster house kangaroo keyboard lamp
    lawn_mower leopard lion lizard lobster man maple_tree motorcycle mountain mouse mushroom
    oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine
    possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake
    spider squirrel streetcar sunflower sweet_pepper table tank telephone television tiger tractor
    train trout tulip turtle wardrobe whale willow_tree wolf woman worm
"""
CIFAR100 = tuple(_CIFAR100_NAMES.split())

ClassIndices = npt.NDArray[np.int64]


def class_indices_from_text(
    labels: Sequence[str], classes: Sequence[str], path: Path, *, first: int = 0
) -> ClassIndices:
    """Return the class index of each label.

    Args:
        labels: N texts, each a class name or a whole number.
        classes: the class names in the order of their indices.
        path: the file that the labels come from, for error messages.
        first: the number of the first class. If any label is 0, numbers count from 0 instead.

    Returns:
        (N,) indices into ``classes``.

    Raises:
        FileError: if a label is not a class.
    """
    labels = [label.strip() for label in labels]
    index_of = {name: index for index, name in enumerate(classes)}

    # Names come first: "0" is the name of a digit's class and not a number.
    unnamed = set(labels) - index_of.keys()
    numbers = {_parse_whole_number(label) for label in unnamed}
    if 0 in numbers:
        first = 0

    for row, label in enumerate(labels):
        if label in index_of:
            continue

        number = _parse_whole_number(label)
        if number is None or not 0 <= number - first < len(classes):
            raise FileError(
                f"Row {row + 1} of {path} has the unknown class {label!r}: "
                f"the classes are {_summarize_names(classes)}."
            )
        # Remembered, so that each distinct label is parsed once.
        index_of[label] = number - first

    indices = [index_of[label] for label in labels]
    return np.array(indices, dtype=np.int64)


def class_indices_from_array(
    array: Any, name: str, classes: Sequence[str] | int, path: Path
) -> ClassIndices:
    """Return the class index of each label in an array.

    Args:
        array: (N,) or (N, 1) class indices from 0, or class names.
        name: the name of the array, for error messages.
        classes: the class names, or their number.
        path: the file that the array comes from, for error messages.

    Returns:
        (N,) class indices.

    Raises:
        FileError: if the array has another shape or type, or holds something that is not a class.
    """
    labels = np.asarray(array)

    # MATLAB saves a vector as a matrix of one column.
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]

    if labels.ndim != 1 or labels.dtype.kind not in "iufU":
        raise FileError(
            f"{name!r} in {path} is {labels.dtype} of shape {labels.shape}: "
            "give one class per row, as (N,) class indices or names."
        )

    has_names = labels.dtype.kind == "U"
    if has_names and not isinstance(classes, int):
        return class_indices_from_text(labels.tolist(), classes, path)

    class_count = classes if isinstance(classes, int) else len(classes)
    if has_names or not _are_indices(labels, class_count):
        raise FileError(
            f"{name!r} in {path} must hold class indices from 0 to {class_count - 1}, but it "
            f"holds other values."
        )

    return labels.astype(np.int64)


def _are_indices(labels: npt.NDArray[Any], class_count: int) -> bool:
    # Floating-point labels are fine if they are whole. NaN fails every comparison.
    is_in_range = (labels >= 0) & (labels < class_count)
    is_whole = labels % 1 == 0
    return bool((is_in_range & is_whole).all())


def _parse_whole_number(text: str) -> int | None:
    # By way of float, because some tables hold "3.0" for the class 3.
    try:
        number = float(text)
    except ValueError:
        return None

    if not number.is_integer():
        return None
    return int(number)


def _summarize_names(classes: Sequence[str]) -> str:
    if len(classes) <= 6:
        return ", ".join(classes)

    first, second, *_, last = classes
    return f"{first}, {second} to {last}"
