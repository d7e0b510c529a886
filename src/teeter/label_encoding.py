"""What people hand a learner, as numbers: rows, classes and labels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from teeter.errors import InputError
from teeter.registry import did_you_mean

__all__ = ["as_list", "as_row_indices", "class_array", "class_names", "encode_labels"]

Rows = npt.NDArray[np.int64]


def class_names(classes: int | Sequence[Any]) -> tuple[Any, ...]:
    """Return the names of classes, from their names or their number."""
    if isinstance(classes, int | np.integer):
        classes = range(classes)
    names = tuple(map(_plain, classes))
    if len(names) < 2 or len(set(names)) < len(names):
        raise InputError(
            f"The classes are {list(names)}: give two or more different names, or their number."
        )
    return names


def class_array(names: tuple[Any, ...]) -> npt.NDArray[Any]:
    """Return class names as an array, which keeps numbers and words apart where there are both."""
    return np.asarray(names, dtype=None if len(set(map(type, names))) == 1 else object)


def encode_labels(labels: Iterable[Any], classes: tuple[Any, ...]) -> Rows:
    """Return the numbers of the classes that labels name."""
    if (
        isinstance(labels, np.ndarray)
        and labels.dtype.kind in "iu"
        and _are_numbers(labels, classes)
    ):
        return labels.astype(np.int64)
    labels = list(labels)
    numbers = {name: number for number, name in enumerate(classes)}
    answer = np.empty(len(labels), dtype=np.int64)
    for k, label in enumerate(map(_plain, labels)):
        try:
            answer[k] = numbers[label]
        except (KeyError, TypeError):
            hint = did_you_mean(str(label), [str(name) for name in classes])
            raise InputError(f"No class is called {label!r}. {hint}") from None
    return answer


def _are_numbers(labels: npt.NDArray[Any], classes: tuple[Any, ...]) -> bool:
    """Tell whether labels are the numbers of classes that are called by their numbers."""
    inside = labels.size == 0 or 0 <= labels.min() <= labels.max() < len(classes)
    return bool(inside) and classes == tuple(range(len(classes)))


def as_list(value: Any) -> list[Any]:
    """Return a list of what may be one thing or several; a text is one."""
    alone = (
        isinstance(value, str) or not isinstance(value, Iterable) or getattr(value, "ndim", 1) == 0
    )
    return [value] if alone else list(value)


def as_row_indices(values: list[Any]) -> Rows:
    """Return rows as numbers, refusing what is not whole."""
    rows = np.asarray(values)
    if (rows.dtype.kind not in "iu" or rows.ndim != 1) and len(rows):
        raise InputError(f"Rows are whole numbers, and these are {rows.dtype}.")
    return rows.astype(np.int64)


def _plain(label: Any) -> Any:
    """Return a NumPy or torch number as Python's own, so that labels can be looked up."""
    return label.item() if isinstance(label, np.generic | Tensor) else label
