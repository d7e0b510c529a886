"""OpenML's letter, RandomRBF and ISOLET: from ARFF, CSV, Parquet and UCI's own files, and how they are divided."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from teeter.datasets.class_numbers import class_indices_from_text
from teeter.datasets.file_checks import parse_errors
from teeter.datasets.formats.arff import read_arff
from teeter.datasets.splits import LabelledRows, RawDataset, shuffle, split_at, take
from teeter.datasets.table_features import numbers_in
from teeter.datasets.table_files import Table, read_table
from teeter.errors import FileError

__all__ = [
    "ISOLET_LEFT_OUT",
    "letter_split",
    "read_isolet_files",
    "read_letter_file",
    "read_tables",
    "shuffled_split",
    "without_columns",
]

ISOLET_LEFT_OUT = (577, 578, 579, 584)
"""The columns of UCI's 617 that OpenML #44135 does without, counted from 0; each has two values."""

_TARGETS = ("class", "target", "label", "letter", "lettr")


def read_tables(
    classes: Sequence[str], *, first: int = 0, rows: int | None = None
) -> Callable[[Sequence[Sequence[Path]]], RawDataset]:
    """Return a reader of one ARFF, CSV or Parquet file whose class is the column called so, or else the last."""

    def read(found: Sequence[Sequence[Path]]) -> RawDataset:
        path = found[0][0]
        table = read_arff(path, rows=rows) if path.suffix.lower() == ".arff" else read_table(path)
        target = _target(table)
        features = [_numbers(table, name) for name in table.columns if name != target]
        if not features:
            raise FileError(f"{path} has no column beside the class {target!r}.")
        labels = class_indices_from_text(table.texts(target), classes, path, first=first)
        return RawDataset(_part(np.stack(features, axis=1), labels))

    return read


def read_letter_file(found: Sequence[Sequence[Path]]) -> RawDataset:
    """Return UCI's letter-recognition.data: the letter, then 16 numbers, a line."""
    from teeter.datasets.class_names import LETTERS

    path = found[0][0]
    rows = _split_lines(path)
    numbers = _floats([row[1:] for row in rows], path)
    return RawDataset(
        _part(numbers, class_indices_from_text([row[0] for row in rows], LETTERS, path))
    )


def read_isolet_files(found: Sequence[Sequence[Path]]) -> RawDataset:
    """Return UCI's isolet1+2+3+4.data and isolet5.data together: 617 numbers, then the letter as 1 to 26, a line."""
    from teeter.datasets.class_names import LETTERS

    numbers, labels = [], []
    for path in (paths[0] for paths in found):
        rows = _split_lines(path)
        numbers.append(_floats([row[:-1] for row in rows], path))
        labels.append(class_indices_from_text([row[-1] for row in rows], LETTERS, path, first=1))
    if numbers[0].shape[1] != numbers[1].shape[1]:
        raise FileError(f"{found[0][0]} and {found[1][0]} differ in columns.")
    return RawDataset(_part(np.concatenate(numbers), np.concatenate(labels)))


def letter_split(contents: RawDataset) -> tuple[LabelledRows, LabelledRows]:
    """Return the first 4 of 5 rows and the rest, as published, scaled to [0, 1] by the first part's range."""
    train, test = _divided(contents, contents.train)
    low, high = train.inputs.amin(0), train.inputs.amax(0)
    width = torch.where(high > low, high - low, 1.0)
    return LabelledRows((train.inputs - low) / width, train.labels), LabelledRows(
        (test.inputs - low) / width, test.labels
    )


def shuffled_split(
    name: str, *, first: int | None = None, kept: int | None = None, sort: bool = False
) -> Callable[[RawDataset], tuple[LabelledRows, LabelledRows]]:
    """Return what takes the ``first`` rows, shuffles them in a fixed order, keeps some, and cuts them 4 to 1.

    With ``sort`` the rows are sorted before, so that files in different orders give the same parts.
    """

    def prepare(contents: RawDataset) -> tuple[LabelledRows, LabelledRows]:
        if contents.test is not None:
            return contents.train, contents.test
        whole = contents.train if first is None else split_at(contents.train, first)[0]
        whole = shuffle(_sorted(whole) if sort else whole, name)
        return _divided(contents, whole if kept is None else split_at(whole, kept)[0])

    return prepare


def without_columns(
    columns: Sequence[int], of: int, then: Callable[[RawDataset], tuple[LabelledRows, LabelledRows]]
) -> Callable[[RawDataset], tuple[LabelledRows, LabelledRows]]:
    """Return what leaves out ``columns`` where there are as many as ``of``, and goes on with ``then``."""

    def prepare(contents: RawDataset) -> tuple[LabelledRows, LabelledRows]:
        test = None if contents.test is None else narrowed(contents.test)
        return then(RawDataset(narrowed(contents.train), test, contents.classes))

    def narrowed(part: LabelledRows) -> LabelledRows:
        if part.inputs.shape[1] != of:
            return part
        kept = [column for column in range(of) if column not in columns]
        return LabelledRows(part.inputs[:, kept], part.labels)

    return prepare


def _sorted(part: LabelledRows) -> LabelledRows:
    """Return the rows by class and, within it, by their numbers from left to right."""
    return take(part, np.lexsort((*part.inputs.numpy().T[::-1], part.labels)))


def _divided(contents: RawDataset, whole: LabelledRows) -> tuple[LabelledRows, LabelledRows]:
    if contents.test is not None:
        return contents.train, contents.test
    if len(whole) < 2:
        raise FileError(
            f"The file has {len(whole)} rows: it is too small to be divided into training and test rows."
        )
    return split_at(whole, len(whole) * 4 // 5)


def _target(table: Table) -> str:
    named = [name for name in table.columns if name.lower() in _TARGETS]
    return named[0] if named else list(table.columns)[-1]


def _numbers(table: Table, name: str) -> npt.NDArray[np.float64]:
    numbers = numbers_in(table.columns[name])
    if numbers is None or numbers.ndim != 1 or not np.isfinite(numbers).all():
        raise FileError(f"Column {name!r} of {table.path} has gaps or is not all numbers.")
    return numbers


def _split_lines(path: Path) -> list[list[str]]:
    with parse_errors(path, "UCI data"), path.open(encoding="ascii") as stream:
        rows = [line.rstrip(",. \n").split(",") for line in stream if line.strip()]
    widths = {len(row) for row in rows}
    if len(widths) != 1:
        found = "no rows" if not rows else f"rows of {min(widths)} to {max(widths)} fields"
        raise FileError(f"{path} has {found}: it is cut short or damaged.")
    return rows


def _floats(rows: list[list[str]], path: Path) -> npt.NDArray[np.float64]:
    with parse_errors(path, "UCI data"):
        return np.array([[float(field) for field in row] for row in rows])


def _part(features: npt.NDArray[Any], labels: npt.NDArray[np.int64]) -> LabelledRows:
    tensor: Tensor = torch.from_numpy(np.ascontiguousarray(features, dtype=np.float32))
    return LabelledRows(tensor, labels)
