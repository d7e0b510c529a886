"""Read tables from ARFF files, dense or sparse, as OpenML publishes them.

SciPy's reader accepts neither sparse rows nor rows that end in a comma, and OpenML has both.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from math import nan
from pathlib import Path
from string import ascii_uppercase
from typing import Any, NamedTuple, TextIO

import numpy as np
import numpy.typing as npt

from teeter.base.files import parse_errors
from teeter.bench.datasets.locate import MatchedFiles, Reader
from teeter.bench.datasets.splits import LabelledRows, RawDataset, class_indices_from_text
from teeter.data.table_columns import parse_numbers
from teeter.data.table_files import Column, Table, read_table, text_column
from teeter.errors import FileError

# Each of these has the groups (single-quoted, double-quoted, bare) for a value.
_QUOTED = r"""'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)\""""
_ATTRIBUTE = re.compile(
    rf"@attribute\s+(?:{_QUOTED}|([^\s{{]+))\s*(.*)",
    flags=re.IGNORECASE,
)
_FIELD = re.compile(rf"\s*(?:{_QUOTED}|([^,'\"]*?))\s*(,|$)")
_SPARSE_FIELD = re.compile(rf"(\d+)\s+(?:{_QUOTED}|([^,'\"\s]+))")

# What the faster csv module reads differently: escapes, spaces around commas, two kinds of quotes.
_NOT_CSV = re.compile(r"""\\|\s,|,\s|'.*"|".*'""")

_NUMERIC_TYPES = ("numeric", "real", "integer")


class _Attribute(NamedTuple):
    name: str
    values: tuple[str, ...] | None
    """The values of a nominal attribute, or None for other types."""
    is_number: bool

    @property
    def default(self) -> str:
        """The value in a sparse row that does not mention the attribute."""
        # The first value of a nominal attribute has the code 0, which sparse rows leave out.
        if self.values:
            return self.values[0]
        return "0"


def read_arff(path: Path, *, rows: int | None = None) -> Table:
    """Read an ARFF file.

    Args:
        path: the file.
        rows: read only that many rows.

    Returns:
        A table with a column per attribute: float64 for numbers, NaN where missing, and texts for
        other types.

    Raises:
        FileError: if the file is not valid ARFF or has no rows.
    """
    with parse_errors(path, "ARFF file"), path.open(encoding="utf-8", errors="replace") as stream:
        attributes = _read_header(stream, path)
        all_records = _read_records(stream, attributes, path)
        records = list(islice(all_records, rows))
        if not records:
            raise FileError(f"{path} has {len(attributes)} attributes and no rows.")

        columns = {}
        texts_by_attribute = zip(*records, strict=True)
        for attribute, texts in zip(attributes, texts_by_attribute, strict=True):
            columns[attribute.name] = _make_column(attribute, texts)
        return Table(path, columns)


def _read_header(stream: TextIO, path: Path) -> list[_Attribute]:
    """Read the attributes and leave the stream after the line @data."""
    attributes = []
    for line in map(str.strip, stream):
        if not line:
            continue

        keyword = line.split(maxsplit=1)[0].lower()
        if keyword == "@data":
            break
        if keyword == "@attribute":
            attributes.append(_parse_attribute(line, path))
        elif not keyword.startswith(("%", "@relation")):
            start = line[:40]
            raise FileError(f"{path} is not an ARFF file: it has {start!r} before @data.")
    else:
        raise FileError(f"{path} is not a valid ARFF file: it has no @data.")

    names = {attribute.name for attribute in attributes}
    if not attributes or len(names) != len(attributes):
        raise FileError(
            f"{path} has {len(attributes)} attributes: at least one is needed, and their names "
            f"must be unique."
        )

    return attributes


def _parse_attribute(line: str, path: Path) -> _Attribute:
    match = _ATTRIBUTE.fullmatch(line)
    if match is None:
        raise FileError(f"{path} has an attribute that cannot be read: {line[:60]!r}.")

    single, double, bare, declared_type = match.groups()
    name = _unquote(single, double, bare)

    if declared_type.startswith("{"):
        values = _split_fields(declared_type.strip("{} "), line, path)
        return _Attribute(name, tuple(values), is_number=False)

    # Only the first word is the type: a date has its format after it, and some files a comment.
    type_words = declared_type.lower().split()
    is_number = bool(type_words) and type_words[0] in _NUMERIC_TYPES
    return _Attribute(name, values=None, is_number=is_number)


def _read_records(stream: TextIO, attributes: list[_Attribute], path: Path) -> Iterator[list[str]]:
    """Yield the fields of each row, one per attribute."""
    row = 0
    for line in map(str.strip, stream):
        if not line or line.startswith("%"):
            continue

        row += 1
        if line.startswith("{"):
            fields = _split_sparse_fields(line, attributes, path)
        else:
            fields = _split_fields(line, f"Row {row}", path)

        # MOA, which generated RandomRBF, ends its rows with a comma.
        has_one_more = len(fields) == len(attributes) + 1
        if has_one_more and not fields[-1]:
            fields.pop()

        if len(fields) != len(attributes):
            raise FileError(
                f"Row {row} of {path} has {len(fields)} fields for {len(attributes)} attributes: "
                "the file is incomplete or damaged."
            )
        yield fields


def _split_fields(line: str, description: str, path: Path) -> list[str]:
    if "'" not in line and '"' not in line:
        return [field.strip() for field in line.split(",")]

    if _NOT_CSV.search(line) is None:
        quote = "'" if "'" in line else '"'
        # If csv cannot read the line, the slower code below can, or says what is wrong.
        with suppress(csv.Error):
            return next(csv.reader([line], quotechar=quote, strict=True))

    fields = []
    position = 0
    separator = ","
    while separator:
        match = _FIELD.match(line, position)
        if match is None:
            raise FileError(f"{description} of {path} cannot be read: check its quotes.")

        single, double, bare, separator = match.groups()
        fields.append(_unquote(single, double, bare))
        position = match.end()

    return fields


def _split_sparse_fields(line: str, attributes: list[_Attribute], path: Path) -> list[str]:
    """Return the fields of a row such as ``{0 1.5, 3 'red'}``: attribute index, then value."""
    if not line.endswith("}"):
        raise FileError(f"{path} has a sparse row without a closing brace: {line[:60]!r}.")

    fields = [attribute.default for attribute in attributes]
    inner = line.removeprefix("{").removesuffix("}").strip()
    for index, single, double, bare in _SPARSE_FIELD.findall(inner):
        # findall returns empty texts, not None, for groups that do not match.
        value = bare or _unescape(single or double)
        fields[int(index)] = value
    return fields


def _unquote(single: str | None, double: str | None, bare: str | None) -> str:
    """Return the value of a field from the three groups that may have matched it."""
    if bare is not None:
        return bare
    if single is not None:
        return _unescape(single)
    return _unescape(double or "")


def _unescape(quoted: str) -> str:
    return re.sub(r"\\(.)", r"\1", quoted)


def _make_column(attribute: _Attribute, texts: tuple[str, ...]) -> Column:
    if not attribute.is_number:
        return text_column(texts)

    numbers = []
    for text in texts:
        # ARFF writes a missing value as a question mark.
        number = nan if text == "?" else float(text)
        numbers.append(number)
    return np.array(numbers)


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

        # OpenML puts the target last, whatever it is called.
        named = [name for name in table.columns if name.lower() in _CLASS_COLUMNS]
        class_column = named[0] if named else list(table.columns)[-1]
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
    labels = class_indices_from_text(letters, ascii_uppercase, path)
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
        labels.append(class_indices_from_text(letters, ascii_uppercase, path, first=1))

    first_width, second_width = (part.shape[1] for part in numbers)
    if first_width != second_width:
        raise FileError(
            f"{files[0][0]} has {first_width} columns of numbers and {files[1][0]} has "
            f"{second_width}: they must have the same number."
        )

    rows = _labelled_rows(np.concatenate(numbers), np.concatenate(labels))
    return RawDataset(rows)


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
