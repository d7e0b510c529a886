"""Read letter, RandomRBF and ISOLET from tables (ARFF, CSV, Parquet) and from UCI's own files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from teeter.data.file_checks import parse_errors
from teeter.data.table_features import parse_numbers
from teeter.data.table_files import Table, read_table
from teeter.datasets.classes import LETTERS, class_indices_from_text
from teeter.datasets.formats.arff import read_arff
from teeter.datasets.locate import MatchedFiles, Reader
from teeter.datasets.splits import LabelledRows, RawDataset
from teeter.errors import FileError

__all__ = [
    "ISOLET_DROPPED_COLUMNS",
    "read_isolet_files",
    "read_letter_file",
    "table_reader",
]

ISOLET_DROPPED_COLUMNS = (577, 578, 579, 584)
"""The indices of the columns of UCI's 617 that OpenML #44135 drops. Each has only two values."""

_CLASS_COLUMNS = ("class", "target", "label", "letter", "lettr")


def table_reader(
    classes: Sequence[str], *, first_class: int = 0, rows: int | None = None
) -> Reader:
    """Return a reader of one ARFF, CSV or Parquet file.

    The class is the column called class, target, label, letter or lettr, or else the last column.
    All other columns must be numbers.

    Args:
        classes: the class names in the order of their indices.
        first_class: the number of the first class, if the file has numbers for classes.
        rows: read only that many rows of an ARFF file.
    """

    def read(files: MatchedFiles) -> RawDataset:
        path = files[0][0]
        if path.suffix.lower() == ".arff":
            table = read_arff(path, rows=rows)
        else:
            table = read_table(path)

        class_column = _find_class_column(table)
        feature_columns = [name for name in table.columns if name != class_column]
        features = [_require_numbers(table, name) for name in feature_columns]
        if not features:
            raise FileError(f"{path} has no column besides the class {class_column!r}.")

        texts = table.texts(class_column)
        labels = class_indices_from_text(texts, classes, path, first=first_class)
        matrix = np.stack(features, axis=1)  # (N, D)
        return RawDataset(_labelled_rows(matrix, labels))

    return read


def read_letter_file(files: MatchedFiles) -> RawDataset:
    """Read UCI's letter-recognition.data: the letter and 16 numbers per line."""
    path = files[0][0]
    # A line is T,2,8,3,5,1,8,13,0,6,6,10,8,0,8,0,8.
    letters = []
    measurements = []
    for fields in _read_lines(path):
        letters.append(fields[0])
        measurements.append(fields[1:])

    numbers = _parse_floats(measurements, path)
    labels = class_indices_from_text(letters, LETTERS, path)
    return RawDataset(_labelled_rows(numbers, labels))


def read_isolet_files(files: MatchedFiles) -> RawDataset:
    """Read UCI's isolet1+2+3+4.data and isolet5.data as one set of rows.

    Each line has 617 numbers, then the letter as a number from 1 to 26.
    """
    # The catalogue makes a split of its own, so that OpenML's file gives the same one.
    numbers = []
    labels = []
    for paths in files:
        path = paths[0]
        letters = []
        measurements = []
        for fields in _read_lines(path):
            letters.append(fields[-1])
            measurements.append(fields[:-1])

        numbers.append(_parse_floats(measurements, path))
        labels.append(class_indices_from_text(letters, LETTERS, path, first=1))

    first_width, second_width = (part.shape[1] for part in numbers)
    if first_width != second_width:
        raise FileError(
            f"{files[0][0]} has {first_width} columns of numbers and {files[1][0]} has "
            f"{second_width}: they must have the same number."
        )

    rows = _labelled_rows(np.concatenate(numbers), np.concatenate(labels))
    return RawDataset(rows)


def _find_class_column(table: Table) -> str:
    for name in table.columns:
        if name.lower() in _CLASS_COLUMNS:
            return name

    # OpenML puts the target last, whatever it is called.
    return list(table.columns)[-1]


def _require_numbers(table: Table, name: str) -> npt.NDArray[np.float64]:
    numbers = parse_numbers(table.columns[name])
    if numbers is None or numbers.ndim != 1 or not np.isfinite(numbers).all():
        raise FileError(
            f"Column {name!r} of {table.path} has missing values or values that are not numbers."
        )

    return numbers


def _read_lines(path: Path) -> list[list[str]]:
    """Return the comma-separated fields of each line. ISOLET's lines end in a full stop."""
    with parse_errors(path, "UCI data file"), path.open(encoding="ascii") as stream:
        filled = [line.rstrip(",. \n") for line in stream if line.strip()]
    lines = [line.split(",") for line in filled]

    if not lines:
        raise FileError(f"{path} has no rows.")

    widths = {len(fields) for fields in lines}
    if len(widths) != 1:
        raise FileError(
            f"{path} has rows of {min(widths)} to {max(widths)} fields: it is incomplete or "
            "damaged."
        )

    return lines


def _parse_floats(lines: list[list[str]], path: Path) -> npt.NDArray[np.float64]:
    with parse_errors(path, "UCI data file"):
        return np.array([[float(field) for field in fields] for fields in lines])


def _labelled_rows(features: npt.NDArray[Any], labels: npt.NDArray[np.int64]) -> LabelledRows:
    import torch

    contiguous = np.ascontiguousarray(features, dtype=np.float32)
    return LabelledRows(torch.from_numpy(contiguous), labels)
