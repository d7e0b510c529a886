"""Columns of a ``datasets.Dataset``: find those of texts and images, and read them and labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import datasets
import numpy as np
import numpy.typing as npt

from teeter.base.registry import did_you_mean
from teeter.errors import InputError
from teeter.models.inputs import take_rows

__all__ = ["Table", "columns_of", "labels_of", "read_cells"]

Integers: TypeAlias = npt.NDArray[np.int64]
Table: TypeAlias = datasets.Dataset


def labels_of(
    table: Table, column: str = "label", *, classes: Sequence[str] | None = None
) -> Integers:
    """Return the class number of each row of a table, and -1 for rows without a label: (N,).

    Args:
        table: a ``datasets.Dataset``.
        column: the column of labels: class numbers, or names. None, NaN and -1 mean no label.
        classes: the names in the order of the model's outputs; those of the column, if it has them,
            if left out.

    Raises:
        InputError: if there is no such column, or a value in it is not a class.
    """
    _require_table(table)
    _require_column(table, column)
    feature = table.features[column]
    if not isinstance(feature, datasets.ClassLabel | datasets.Value):
        raise InputError(
            f"Column {column!r} holds {_type_name(feature)}: it must hold one label per row."
        )

    # Without a format, which might turn values into tensors. [:] reads all rows at once.
    unformatted = table.with_format(None)
    values = unformatted[column][:]
    if _type_name(feature) == "string":
        return _encode_names(values, classes, column)

    # Numbers. A ClassLabel column names its classes; of other numbers only ``classes`` may.
    column_names: list[str] | None = None
    if isinstance(feature, datasets.ClassLabel):
        column_names = feature.names

    class_count = None
    if column_names is not None:
        class_count = len(column_names)
    elif classes is not None:
        class_count = len(classes)

    labels = _require_class_numbers(values, column, class_count)
    if column_names is None or classes is None:
        return labels

    # The column and the model may number the same names differently.
    label_names: list[str | None] = []
    for label in labels.tolist():
        is_labelled = label >= 0
        label_names.append(column_names[label] if is_labelled else None)
    return _encode_names(label_names, classes, column)


def columns_of(table: Any, named: Any, kind: str, plural: str) -> tuple[Any, list[str]]:
    """Return the rows to read, and the columns to read of them.

    Args:
        table: a ``datasets.Dataset``, or a list of texts or images.
        named: the column, or two for pairs of texts. If None, the only column of this kind is used,
            or the one called ``text``.
        kind: what the columns must hold: ``"string"`` or ``"image"``.
        plural: the kind in words, for error messages.

    Returns:
        A table of these columns and their names, or the list unchanged and no names.

    Raises:
        InputError: if a column is missing or of another kind, or there is no row.
    """
    if not isinstance(table, datasets.Dataset):
        _require_list(table, named, plural)
        return table, []

    _require_table(table)
    types = {name: _type_name(feature) for name, feature in table.features.items()}
    candidates = [name for name in types if types[name] == kind]

    if named is None:
        columns = [_choose_column(table, candidates, kind, plural)]
    elif isinstance(named, tuple | list):
        columns = list(named)
    else:
        columns = [named]

    if not 1 <= len(columns) <= 2:
        raise InputError(f"{len(columns)} columns are named: give one, or two for pairs of texts.")
    for name in columns:
        _require_column(table, name)
        if name not in candidates:
            raise InputError(f"Column {name!r} holds {types[name]} values: {plural} are needed.")

    selected = table.select_columns(columns).with_format(None)

    # A column that is not decoded gives bytes and paths instead of images.
    if kind == "image":
        column = columns[0]
        if not table.features[column].decode:
            selected = selected.cast_column(column, datasets.Image())
    return selected, columns


def read_cells(table: Any, columns: list[str], rows: Integers) -> list[list[Any]]:
    """Return the values of some rows, one list per column.

    Args:
        table: a table or a list, as ``columns_of`` returned it.
        columns: the columns to read; empty for a list, which counts as one column.
        rows: (K,) positions.

    Raises:
        InputError: if the file of an image cannot be read. The message has its row.
    """
    if not columns:
        return [take_rows(table, rows)]

    try:
        values = table[rows.tolist()]
    except OSError as error:  # an image is read from its file only now
        row = _first_unreadable_row(table, rows)
        raise InputError(f"Row {row} of the table cannot be read: {error}.") from None
    return [values[name] for name in columns]


def _choose_column(table: Table, candidates: list[str], kind: str, plural: str) -> str:
    """Return the column to read if the caller names none."""
    if kind == "string" and "text" in candidates:
        return "text"
    if len(candidates) == 1:
        return candidates[0]

    if candidates:
        raise InputError(
            f"The table has several columns of {plural} ({', '.join(candidates)}): name the one "
            f"to use."
        )
    raise InputError(
        f"The table has no column of {plural}: name the column to use. It has: "
        f"{', '.join(table.column_names)}."
    )


def _require_class_numbers(values: Sequence[Any], column: str, classes: int | None) -> Integers:
    """Return class numbers as an array, with -1 for None and NaN."""
    labels = np.full(len(values), -1, dtype=np.int64)
    for row, value in enumerate(values):
        is_missing = value is None or value != value  # NaN differs from itself
        if is_missing:
            continue

        # A column with missing values holds floats, of which 3.0 is the class 3.
        is_whole_float = isinstance(value, float) and value.is_integer()
        is_integer = isinstance(value, int) or is_whole_float
        is_too_large = is_integer and classes is not None and value >= classes

        if not is_integer or value < -1 or is_too_large:
            last = ""
            if classes is not None:
                last = f" to {classes - 1}"
            raise InputError(
                f"Row {row} of column {column!r} holds {value!r}: classes are whole numbers from "
                f"0{last}, or -1 if unknown."
            )
        labels[row] = value
    return labels


def _encode_names(
    values: Sequence[str | None], names: Sequence[str] | None, column: str
) -> Integers:
    """Return the position of each value among the names, and -1 for None."""
    if names is None:
        raise InputError(
            f"Column {column!r} holds names: give them in the order of the model's outputs as "
            f"classes= (for a classifier, list(model.config.id2label.values()))."
        )
    if len(set(names)) < len(names):
        raise InputError(f"A name occurs twice in classes, {list(names)}: give each once.")

    number_of: dict[str | None, int] = {name: number for number, name in enumerate(names)}
    number_of[None] = -1

    labels = np.empty(len(values), dtype=np.int64)
    for row, value in enumerate(values):
        if value not in number_of:
            hint = did_you_mean(str(value), list(names))
            raise InputError(f"Row {row} of column {column!r} is {value!r}. {hint}")
        labels[row] = number_of[value]
    return labels


def _require_list(values: Any, named: Any, plural: str) -> None:
    if isinstance(values, Mapping):  # such as a DatasetDict
        parts = ", ".join(map(str, values))
        raise InputError(
            f"This is a {type(values).__name__} of several parts ({parts}): give one of them."
        )

    # A text is a sequence of letters, and no list of texts.
    is_list = isinstance(values, Sequence | np.ndarray) and not isinstance(values, str)
    if not is_list:
        raise InputError(
            f"This is a {type(values).__name__}: give a table of datasets, or a list of {plural}."
        )
    if named is not None:
        raise InputError(
            f"A list has no column {named!r}: give a table of datasets, or leave columns out."
        )
    if not len(values):
        raise InputError("The list is empty: it has no rows.")


def _require_table(table: Any) -> None:
    if not isinstance(table, datasets.Dataset):
        raise InputError(f"This is a {type(table).__name__}: give a table of datasets.")
    if not len(table):
        raise InputError("The table is empty: it has no rows.")


def _require_column(table: Table, name: str) -> None:
    if name not in table.column_names:
        hint = did_you_mean(str(name), table.column_names)
        raise InputError(f"The table has no column {name!r}. {hint}")


def _type_name(feature: Any) -> str:
    """Return what a column holds: string, image, or the name of another type."""
    if isinstance(feature, datasets.Image):
        return "image"
    if isinstance(feature, datasets.Value):
        if feature.dtype in ("string", "large_string"):
            return "string"
        return str(feature.dtype)
    return type(feature).__name__


def _first_unreadable_row(table: Any, rows: Integers) -> int | None:
    """Return the first row that raises when it is read alone, for an error message."""
    # Reading many rows at once does not tell which of them failed.
    for row in rows.tolist():
        try:
            table[row]
        except OSError:
            return int(row)
    return None
