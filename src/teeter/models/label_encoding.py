"""Encode what users pass to a learner: class names and labels as class numbers, rows as indices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from teeter.base.registry import did_you_mean
from teeter.errors import InputError

IntegerArray = npt.NDArray[np.int64]


def class_names(classes: int | Sequence[Any]) -> tuple[Any, ...]:
    """Return the names of classes; C classes given by their number are called 0 to C - 1.

    Raises:
        InputError: if there are fewer than two classes, or two have the same name.

    Example:
        >>> class_names(3), class_names(["cat", "dog"])
        ((0, 1, 2), ('cat', 'dog'))
    """
    if isinstance(classes, int | np.integer):
        classes = range(classes)
    # A text is a sequence too, and each of its letters would become a class.
    if isinstance(classes, str):
        raise InputError(f"The classes are the string {classes!r}: give a list of names.")

    names = tuple(_as_python_scalar(name) for name in classes)
    has_duplicates = len(set(names)) < len(names)
    if len(names) < 2 or has_duplicates:
        raise InputError(
            f"The classes are {list(names)}: give two or more different names, or their number."
        )
    return names


def class_array(names: tuple[Any, ...]) -> npt.NDArray[Any]:
    """Return class names as an array (C,), of objects if their types differ.

    NumPy would turn numbers into texts where there are both.
    """
    types = {type(name) for name in names}
    if len(types) > 1:
        return np.asarray(names, dtype=object)
    return np.asarray(names)


def encode_labels(
    labels: Iterable[Any],
    classes: tuple[Any, ...],
    *,
    rows: IntegerArray | None = None,
) -> IntegerArray:
    """Return the class number of each label.

    Args:
        labels: N class names.
        classes: the names of all classes; their positions are the class numbers.
        rows: the row of the pool that each label is for, to name it in an error.

    Returns:
        (N,) class numbers.

    Raises:
        InputError: if no class has that name.

    Example:
        >>> encode_labels(["dog", "cat", "dog"], ("cat", "dog")).tolist()
        [1, 0, 1]
    """
    # The short way for large arrays of class numbers.
    if isinstance(labels, np.ndarray) and _are_class_numbers(labels, classes):
        return labels.astype(np.int64)

    labels = list(labels)
    number_of = {name: number for number, name in enumerate(classes)}
    numbers = np.empty(len(labels), dtype=np.int64)
    for position, label in enumerate(labels):
        name = _as_python_scalar(label)
        try:
            numbers[position] = number_of[name]
        except (KeyError, TypeError):  # TypeError: a list, which cannot be looked up
            place = f"labels[{position}]"
            if rows is not None and position < len(rows):
                place += f" for row {rows[position]}"
            raise InputError(f"{place}: {_explain_unknown_class(name, classes)}") from None
    return numbers


def _explain_unknown_class(name: Any, classes: tuple[Any, ...]) -> str:
    """Return a sentence about a label that is no class, and what to pass instead."""
    names_by_text = {str(class_name): class_name for class_name in classes}
    same_text = names_by_text.get(str(name))
    if same_text is not None:
        return (
            f"No class is called {name!r}, a {_type_name(name)}: the class is {same_text!r}, a "
            f"{_type_name(same_text)}."
        )
    if not isinstance(name, str):
        # Numbers that look alike, such as 1 and 10, are not misspelt.
        return f"No class is called {name!r}. Known: {', '.join(names_by_text)}."
    return f"No class is called {name!r}. {did_you_mean(name, names_by_text)}"


def _type_name(value: Any) -> str:
    if isinstance(value, str):
        return "text"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    return type(value).__name__


def _are_class_numbers(labels: npt.NDArray[Any], classes: tuple[Any, ...]) -> bool:
    """Return whether the classes are called 0 to C - 1 and all labels are among them."""
    numbered_classes = tuple(range(len(classes)))
    if labels.dtype.kind not in "iu" or classes != numbered_classes:
        return False
    if labels.size == 0:
        return True
    is_known = (labels >= 0) & (labels < len(classes))
    return bool(is_known.all())


def as_list(value: Any) -> list[Any]:
    """Return one value or several as a list; a text is one value.

    Raises:
        InputError: if it is a data frame, which would be read as its column names.
    """
    if hasattr(value, "columns"):
        raise InputError(
            f"This is a {type(value).__name__}: give one column of it, such as frame['label']."
        )
    if isinstance(value, str) or not isinstance(value, Iterable):
        return [value]
    if getattr(value, "ndim", 1) == 0:  # an array or tensor of a single number
        return [value]
    return list(value)


def as_row_indices(values: list[Any]) -> IntegerArray:
    """Return row numbers as an array (N,).

    Raises:
        InputError: if they are not a list of whole numbers.
    """
    # An empty list has no type of its own: NumPy makes it floats.
    rows = np.asarray(values)
    if rows.ndim > 1:
        raise InputError(
            f"Rows must be a list of whole numbers, but these have the shape {rows.shape}: give "
            f"one number per row."
        )
    if len(rows) and rows.dtype.kind not in "iu":
        kind = str(rows.dtype)
        if rows.dtype.kind in "SU":
            kind = "texts"
        raise InputError(f"Rows must be whole numbers, but these are {kind}.")
    return rows.astype(np.int64)


def is_whole_numbers(value: Any) -> bool:
    """Return whether a value is a whole number or a sequence of them.

    Example:
        >>> is_whole_numbers([3, 1]), is_whole_numbers([[3.0, 1.0]]), is_whole_numbers(["a text"])
        (True, False, False)
    """
    if isinstance(value, bool | str):
        return False
    if isinstance(value, int | np.integer):
        return True

    if isinstance(value, Tensor):
        value = value.cpu()

    # Arrays, tensors, and columns of a table.
    if hasattr(value, "dtype"):
        array = np.asarray(value)
        return array.ndim == 1 and array.dtype.kind in "iu"

    if not isinstance(value, list | tuple | range | set | frozenset):
        return False
    if any(isinstance(part, bool) for part in value):
        return False
    return all(isinstance(part, int | np.integer) for part in value)


def _as_python_scalar(label: Any) -> Any:
    """Return a NumPy or torch scalar as a Python one, so that it can be looked up by value."""
    if isinstance(label, np.generic | Tensor):
        return label.item()
    return label
