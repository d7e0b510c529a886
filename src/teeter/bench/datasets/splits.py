"""Rows with their labels, and the ways to divide them into training, validation and test rows.

A reader returns a `RawDataset`: the rows as the files hold them, with their labels as class indices
(`class_indices_from_text`, `class_indices_from_array`). A split function turns it into
training and test rows (`published_split`, `shuffled_split`, ...); the catalogue names one for each
dataset. `hold_out` then draws validation rows from the training rows.

torch is loaded by the functions that need it, so that the catalogue can be listed without it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from teeter.base.seeds import stream, validate_seed
from teeter.errors import FileError, InputError

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "DatasetSplit",
    "LabelledRows",
    "RawDataset",
    "SplitFunction",
    "class_indices_from_array",
    "class_indices_from_text",
    "hold_out",
    "letter_split",
    "make_long_tailed",
    "published_split",
    "shuffle",
    "shuffled_split",
    "split_at",
    "take",
    "without_columns",
]


@dataclass(frozen=True, eq=False)
class LabelledRows:
    """N rows with their class indices.

    Example:
        >>> len(LabelledRows(np.zeros((3, 2)), np.array([0, 1, 0])))
        3
    """

    inputs: Any
    """A float32 tensor (N, D) or (N, channels, height, width), or a torch Dataset of N rows.
    In a raw dataset also an array, or image files."""
    labels: npt.NDArray[np.int64]
    """(N,) class indices."""

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, eq=False)
class RawDataset:
    """The contents of a dataset's files, before they are split and converted to tensors."""

    train: LabelledRows
    """The training rows, or all rows if the files have no test set."""
    test: LabelledRows | None = None
    """The test rows, or None if the files have no test set."""
    classes: tuple[str, ...] | None = None
    """The class names, or None if the files do not name them."""


SplitFunction: TypeAlias = Callable[[RawDataset], tuple[LabelledRows, LabelledRows]]
"""Returns the training and the test rows of a raw dataset."""


@dataclass(frozen=True, eq=False)
class DatasetSplit:
    """A dataset ready for a network, with its training, validation and test rows."""

    name: str
    train: LabelledRows
    """The training rows without the validation rows."""
    test: LabelledRows
    """The same rows for every seed."""
    classes: tuple[str, ...]
    """The class names in the order of their indices."""
    validation: LabelledRows | None = None
    """Rows drawn from the training rows by the seed, or None if none were asked for."""


def class_indices_from_text(
    labels: Sequence[str], classes: Sequence[str], path: Path, *, first: int = 0
) -> npt.NDArray[np.int64]:
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
) -> npt.NDArray[np.int64]:
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
    if not has_names:
        # Floating-point labels are fine if they are whole. NaN fails every comparison.
        is_whole = labels % 1 == 0
        is_index = is_whole & (labels >= 0) & (labels < class_count)
        if is_index.all():
            return labels.astype(np.int64)

    raise FileError(
        f"{name!r} in {path} must hold class indices from 0 to {class_count - 1}, but it holds "
        f"other values."
    )


def take(part: LabelledRows, rows: npt.NDArray[np.int64]) -> LabelledRows:
    """Return the given rows of ``part``, in the given order."""
    from teeter.models.inputs import take_rows

    return LabelledRows(
        inputs=take_rows(part.inputs, rows),
        labels=part.labels[rows],
    )


def shuffle(part: LabelledRows, name: str) -> LabelledRows:
    """Return the rows in a fixed random order, which depends on ``name`` and their number only."""
    # Seed 0 whatever the experiment's: the split is a part of the dataset.
    order = _permutation(len(part), 0, "order", name)
    return take(part, order)


def split_at(part: LabelledRows, first: int) -> tuple[LabelledRows, LabelledRows]:
    """Return the ``first`` rows and the remaining rows."""
    # Rows and not slices, because inputs may be a torch Dataset.
    rows = np.arange(len(part))
    head = take(part, rows[:first])
    tail = take(part, rows[first:])
    return head, tail


def hold_out(
    part: LabelledRows, count: int, name: str, seed: int
) -> tuple[LabelledRows, LabelledRows | None]:
    """Draw ``count`` validation rows from ``part``.

    Args:
        part: the training rows.
        count: the number of validation rows.
        name: the name of the dataset. Different datasets draw different rows.
        seed: the seed of the draw.

    Returns:
        The remaining rows and the validation rows, each in their original order. The validation
        rows are None if ``count`` is 0.

    Raises:
        InputError: if no training row would remain.
    """
    if not 0 <= count < len(part):
        raise InputError(
            f"Cannot draw {count} validation rows out of {len(part)} training rows of {name}: "
            f"ask for 0 to {len(part) - 1}."
        )
    if count == 0:
        return part, None

    # Sorted, so that rows keep the published order whatever the seed.
    order = _permutation(len(part), seed, "validation", name)
    validation_rows = np.sort(order[:count])
    remaining_rows = np.sort(order[count:])
    return take(part, remaining_rows), take(part, validation_rows)


def published_split(contents: RawDataset) -> tuple[LabelledRows, LabelledRows]:
    """Return the training and test rows as they are published.

    Raises:
        FileError: if the files have no test set.
    """
    if contents.test is None:
        raise FileError(
            "This dataset has a published test set, but the file has none: name the arrays in "
            "the file x_train, y_train, x_test and y_test."
        )

    return contents.train, contents.test


def letter_split(contents: RawDataset) -> tuple[LabelledRows, LabelledRows]:
    """Split in published order, 4 to 1, and scale to [0, 1] by the range of the training rows."""
    import torch

    if contents.test is not None:
        train = contents.train
        test = contents.test
    else:
        train, test = _split_four_to_one(contents.train)

    # (D,) each. Test rows may fall outside [0, 1], because their range is not used.
    low = train.inputs.amin(0)
    high = train.inputs.amax(0)

    # A column that never varies would divide by zero.
    width = torch.where(high > low, high - low, 1.0)

    def scale(part: LabelledRows) -> LabelledRows:
        scaled = (part.inputs - low) / width
        return LabelledRows(scaled, part.labels)

    return scale(train), scale(test)


def shuffled_split(
    name: str, *, first: int | None = None, limit: int | None = None, sort: bool = False
) -> SplitFunction:
    """Return a function that shuffles the rows in a fixed order and splits them 4 to 1.

    A test set in the files is kept instead.

    Args:
        name: the name of the dataset, which decides the order.
        first: use only that many rows from the start of the file.
        limit: keep only that many of the shuffled rows.
        sort: sort the rows before shuffling, so that their order in the file does not matter.
    """

    def split(contents: RawDataset) -> tuple[LabelledRows, LabelledRows]:
        if contents.test is not None:
            return contents.train, contents.test

        rows = contents.train
        if first is not None:
            rows, _ = split_at(rows, first)
        if sort:
            # By class, then by the features from left to right.
            features: Tensor = rows.inputs
            columns = list(features.numpy().T)
            columns.reverse()

            # The last key of lexsort is the primary one.
            keys = (*columns, rows.labels)
            rows = take(rows, np.lexsort(keys))

        rows = shuffle(rows, name)
        if limit is not None:
            rows, _ = split_at(rows, limit)

        return _split_four_to_one(rows)

    return split


def without_columns(
    columns: Collection[int], column_count: int, split: SplitFunction
) -> SplitFunction:
    """Return a function that drops columns and then applies ``split``.

    Args:
        columns: the indices of the columns to drop.
        column_count: the number of columns before. Rows with another number are left as they are.
        split: the split function to apply to the narrower rows.
    """
    remaining = [column for column in range(column_count) if column not in columns]

    def drop_columns(part: LabelledRows) -> LabelledRows:
        if part.inputs.shape[1] != column_count:
            return part
        return LabelledRows(part.inputs[:, remaining], part.labels)

    def drop_and_split(contents: RawDataset) -> tuple[LabelledRows, LabelledRows]:
        train = drop_columns(contents.train)
        test = None
        if contents.test is not None:
            test = drop_columns(contents.test)

        narrower = RawDataset(train, test, contents.classes)
        return split(narrower)

    return drop_and_split


def make_long_tailed(
    part: LabelledRows,
    *,
    imbalance: float,
    seed: int = 0,
) -> LabelledRows:
    """Return a long-tailed subset of the rows, with fewer rows of each next class.

    A class with fewer rows than asked for keeps all it has.

    Args:
        part: the rows to draw from.
        imbalance: the size of the first class divided by that of the last. The first class keeps
            as many rows as the largest class has, and the sizes fall exponentially
            [Cui et al. 2019].
        seed: the seed that draws the rows.

    Returns:
        The drawn rows in their original order.

    Raises:
        InputError: if ``imbalance`` is less than 1.

    Example:
        >>> rows = LabelledRows(np.zeros((300, 2)), np.arange(300) % 3)
        >>> np.bincount(make_long_tailed(rows, imbalance=100).labels).tolist()
        [100, 10, 1]
    """
    # A negated comparison, because NaN must be refused as well.
    if not imbalance >= 1:
        raise InputError(f"Cannot make an imbalance of {imbalance}: give a number of 1 or more.")

    class_sizes = np.bincount(part.labels)
    largest = class_sizes.max()
    steps = max(len(class_sizes) - 1, 1)

    seed = validate_seed(seed)
    drawn = []
    for label in range(len(class_sizes)):
        # n_k = n_max * imbalance^(-k / (C - 1)) for class k of C, and at least one row.
        share = imbalance ** (-label / steps)
        size = max(int(largest * share), 1)

        rows = np.flatnonzero(part.labels == label)
        # A stream per class: the rows drawn from one do not depend on the sizes of the others.
        order = _permutation(len(rows), seed, "thinned", label)
        drawn.append(rows[order[:size]])

    drawn_rows = np.sort(np.concatenate(drawn))
    return take(part, drawn_rows)


def _split_four_to_one(part: LabelledRows) -> tuple[LabelledRows, LabelledRows]:
    if len(part) < 2:
        raise FileError(
            f"The file has {len(part)} rows: it is too small to be split into training and test "
            "rows."
        )

    # Whole numbers, so that rounding is the same everywhere.
    train_count = len(part) * 4 // 5
    return split_at(part, train_count)


def _permutation(size: int, seed: int, *name: str | int) -> npt.NDArray[np.int64]:
    import torch

    # A stream of its own for each purpose: drawing for one does not change the others.
    generator = stream(seed, *name)
    permutation = torch.randperm(size, generator=generator)
    order: npt.NDArray[np.int64] = permutation.numpy()
    return order


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
