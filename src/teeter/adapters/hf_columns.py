"""The columns of a table of Hugging Face's datasets: texts, images and labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import datasets
import numpy as np
import numpy.typing as npt

from teeter.errors import InputError
from teeter.models.inputs import take_rows
from teeter.registry import did_you_mean

__all__ = ["Table", "cells", "columns_of", "labels_of"]

Numbers = npt.NDArray[np.int64]
Table: TypeAlias = datasets.Dataset


def labels_of(
    table: Table, column: str = "label", *, classes: Sequence[str] | None = None
) -> Numbers:
    """Return the class of each row of a table, -1 where it has none (None, NaN or -1): (N,).

    Args:
        table: of ``datasets``.
        column: the column of labels: class numbers, or names.
        classes: the names in the order of the model's outputs; those of the column, if it has them, if left out.
    """
    _require_table(table)
    _require_column(table, column)
    feature = table.features[column]
    if not isinstance(feature, datasets.ClassLabel | datasets.Value):
        raise InputError(f"Column {column!r} holds {_kind(feature)}: one label a row is needed.")
    values = table.with_format(None)[column][:]  # a list, which is read at once
    own = feature.names if isinstance(feature, datasets.ClassLabel) else None
    if _kind(feature) == "string":
        return _numbers_of_names(values, classes, column)
    top = own if own is not None else classes
    labels = _checked_numbers(values, column, None if top is None else len(top) - 1)
    if own is None or classes is None:
        return labels
    return _numbers_of_names(
        [None if label < 0 else own[label] for label in labels], classes, column
    )


def _checked_numbers(values: Sequence[Any], column: str, top: int | None) -> Numbers:
    expected = "whole numbers from 0" + ("" if top is None else f" to {top}")
    labels = np.full(len(values), -1, dtype=np.int64)
    for row, value in enumerate(values):
        if value is None or value != value:
            continue
        whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        if not whole or value < -1 or (top is not None and value > top):
            raise InputError(
                f"Row {row} of column {column!r} holds {value!r}: classes are {expected}, or -1 if unknown."
            )
        labels[row] = value
    return labels


def _numbers_of_names(
    values: Sequence[str | None], names: Sequence[str] | None, column: str
) -> Numbers:
    if names is None:
        raise InputError(
            f"Column {column!r} holds names: give them in the order of the model's outputs by classes= "
            "(for a classifier, list(model.config.id2label.values()))."
        )
    if len(set(names)) < len(names):
        raise InputError(f"A name stands twice in classes, {list(names)}: give each once.")
    places: dict[str | None, int] = {**{name: place for place, name in enumerate(names)}, None: -1}
    for row, value in enumerate(values):
        if value not in places:
            raise InputError(
                f"Row {row} of column {column!r} is {value!r}. {did_you_mean(str(value), list(names))}"
            )
    return np.array([places[value] for value in values], dtype=np.int64)


def columns_of(table: Any, named: Any, kind: str, things: str) -> tuple[Any, list[str]]:
    """Return a table of the columns to look at and their names; none of a list."""
    if not isinstance(table, datasets.Dataset):
        return _listed(table, named, things), []
    _require_table(table)
    fitting = [name for name, feature in table.features.items() if _kind(feature) == kind]
    if named is None:
        named = (
            "text"
            if "text" in fitting and kind == "string"
            else (fitting[0] if len(fitting) == 1 else None)
        )
    if named is None:
        found = (
            f"several columns of {things} ({', '.join(fitting)})"
            if fitting
            else f"no column of {things}"
        )
        has = "" if fitting else f" It has: {', '.join(table.column_names)}."
        raise InputError(f"The table has {found}: name the one to look at.{has}")
    columns = list(named) if isinstance(named, tuple | list) else [named]
    if not 1 <= len(columns) <= 2:
        raise InputError(f"{len(columns)} columns are named: give one, or two for pairs of texts.")
    for name in columns:
        _require_column(table, name)
        if name not in fitting:
            raise InputError(
                f"Column {name!r} holds {_kind(table.features[name])} values: {things} are needed."
            )
    chosen = table.select_columns(columns).with_format(None)
    if kind == "image" and not table.features[columns[0]].decode:
        chosen = chosen.cast_column(columns[0], datasets.Image())
    return chosen, columns


def _listed(table: Any, named: Any, things: str) -> Any:
    """Return a list of texts or images, refusing what has no rows to pick from."""
    if isinstance(table, Mapping):  # a DatasetDict is one
        parts = ", ".join(map(str, table))
        raise InputError(
            f"This is a {type(table).__name__} of several parts ({parts}): give one of them."
        )
    if isinstance(table, str) or not isinstance(table, Sequence | np.ndarray):
        raise InputError(
            f"This is a {type(table).__name__}: give a table of datasets, or a list of {things}."
        )
    if named is not None:
        raise InputError(
            f"A list has no column {named!r}: give a table of datasets, or leave columns out."
        )
    if not len(table):
        raise InputError("The list is empty: there is no row to look at.")
    return table


def _require_table(table: Any) -> None:
    if not isinstance(table, datasets.Dataset):
        raise InputError(f"This is a {type(table).__name__}: give a table of datasets.")
    if not len(table):
        raise InputError("The table is empty: there is no row to look at.")


def _require_column(table: Table, name: str) -> None:
    if name not in table.column_names:
        raise InputError(
            f"The table has no column {name!r}. {did_you_mean(str(name), table.column_names)}"
        )


def _kind(feature: Any) -> str:
    """Return what a column holds: string, image, or another type's name."""
    if isinstance(feature, datasets.Image):
        return "image"
    if isinstance(feature, datasets.Value):
        return "string" if feature.dtype in ("string", "large_string") else str(feature.dtype)
    return type(feature).__name__


def cells(table: Any, columns: list[str], rows: Numbers) -> list[list[Any]]:
    """Return some rows of each column; a list is one column."""
    if not columns:
        return [take_rows(table, rows)]
    try:
        found = table[rows.tolist()]
    except OSError as error:  # of an image, which is read from its file only now
        raise InputError(
            f"Row {_unreadable(table, rows)} of the table cannot be read: {error}."
        ) from None
    return [found[name] for name in columns]


def _unreadable(table: Any, rows: Numbers) -> int | None:
    for row in rows.tolist():
        try:
            table[row]
        except OSError:
            return int(row)
    return None
