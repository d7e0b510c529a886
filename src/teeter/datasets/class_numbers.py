"""Labels as numbers of classes, or a sentence about those that are no class."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from teeter.errors import FileError

__all__ = ["class_indices_from_array", "class_indices_from_text"]

Numbers = npt.NDArray[np.int64]


def class_indices_from_text(
    texts: Sequence[str], classes: Sequence[str], path: Path, *, first: int = 0
) -> Numbers:
    """Return the number of each text: the name of a class, or a number from ``first`` up, or from 0 if one is 0."""
    places = {name: place for place, name in enumerate(classes)}
    plain = [text.strip() for text in texts]
    if any(_whole(text) == 0 for text in set(plain) - places.keys()):
        first = 0
    for row, text in enumerate(plain):
        if text not in places:
            number = _whole(text)
            if number is None or not 0 <= number - first < len(classes):
                raise FileError(
                    f"Row {row + 1} of {path} has the class {text!r}: known are {_few(classes)}."
                )
            places[text] = number - first
    return np.array([places[text] for text in plain], dtype=np.int64)


def class_indices_from_array(
    array: Any, name: str, classes: Sequence[str] | int, path: Path
) -> Numbers:
    """Return an array of class numbers from 0 up, or of names, as (N,) numbers."""
    labels = np.asarray(array)
    labels = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    if labels.ndim != 1 or labels.dtype.kind not in "iufU":
        raise FileError(
            f"{name!r} in {path} is {labels.dtype} of shape {labels.shape}: one class a row is needed."
        )
    if labels.dtype.kind == "U" and not isinstance(classes, int):
        return class_indices_from_text(labels.tolist(), classes, path)
    count = classes if isinstance(classes, int) else len(classes)
    if labels.dtype.kind == "U" or not ((labels >= 0) & (labels < count) & (labels % 1 == 0)).all():
        raise FileError(
            f"{name!r} in {path} must hold class numbers from 0 to {count - 1}, and it holds others."
        )
    return labels.astype(np.int64)


def _whole(text: str) -> int | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return int(number) if number.is_integer() else None


def _few(classes: Sequence[str]) -> str:
    return (
        ", ".join(classes) if len(classes) <= 6 else f"{classes[0]}, {classes[1]} to {classes[-1]}"
    )
