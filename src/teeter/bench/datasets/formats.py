"""The file formats of published datasets: images as arrays, and tables.

Images come as IDX (MNIST), CIFAR's batches, SVHN's MATLAB files and NPZ. Tables come as UCI's text
files, CSV, Parquet and ARFF, dense or sparse, as OpenML publishes them. SciPy's reader of ARFF
accepts neither sparse rows nor rows that end in a comma, and OpenML has both.
"""

from __future__ import annotations

import csv
import gzip
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from math import nan
from pathlib import Path
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

import numpy as np
import numpy.typing as npt

from teeter.base.files import parse_errors
from teeter.bench.datasets.locate import MatchedFiles, Reader
from teeter.bench.datasets.splits import (
    LabelledRows,
    RawDataset,
    class_indices_from_array,
    class_indices_from_text,
)
from teeter.data.table_columns import parse_numbers
from teeter.data.table_files import Column, Table, read_table, text_column
from teeter.errors import FileError

if TYPE_CHECKING:
    from teeter.data.array_files import Arrays

__all__ = [
    "CIFAR10_FILES",
    "CIFAR100_FILES",
    "IDX_FILES",
    "ISOLET_DROPPED_COLUMNS",
    "SVHN_FILES",
    "cifar_reader",
    "npz_reader",
    "read_arff",
    "read_idx",
    "read_idx_files",
    "read_isolet_files",
    "read_letter_file",
    "read_svhn",
    "table_reader",
]


IDX_FILES = (
    "train-images?idx3-ubyte",  # Some copies have a dot before idx3 instead of a hyphen.
    "train-labels?idx1-ubyte",
    "t10k-images?idx3-ubyte",
    "t10k-labels?idx1-ubyte",
)

_UNSIGNED_BYTE = 0x08


def read_idx_files(files: MatchedFiles) -> RawDataset:
    """Read the training and test images, (N, 28, 28) uint8, with their labels."""
    # In the order of IDX_FILES. Each pattern matches one file.
    train_images, train_labels, test_images, test_labels = (paths[0] for paths in files)
    train = _read_images_and_labels(train_images, train_labels)
    test = _read_images_and_labels(test_images, test_labels)
    return RawDataset(train, test)


def read_idx(path: Path) -> npt.NDArray[np.uint8]:
    """Read an IDX file of bytes, gzipped or not.

    Raises:
        FileError: if it is not an IDX file, or longer or shorter than its header says.
    """
    with parse_errors(path, "IDX file"):
        data = path.read_bytes()
        if path.suffix == ".gz":
            data = gzip.decompress(data)

        has_magic_bytes = data[:2] == b"\0\0"
        value_type = data[2]
        axis_count = data[3]
        if not has_magic_bytes or value_type != _UNSIGNED_BYTE or axis_count == 0:
            raise FileError(
                f"{path} is not an IDX file of bytes: it is damaged or of another type."
            )

        start = 4 + 4 * axis_count
        axis_lengths = np.frombuffer(data[4:start], dtype=">u4")
        shape = axis_lengths.astype(int).tolist()

        # Python integers, because the product of a damaged header may overflow int64.
        expected = int(np.prod(shape, dtype=object))
        actual = len(data) - start
        if actual != expected:
            shape_text = " x ".join(str(length) for length in shape)
            raise FileError(
                f"The header of {path} declares {shape_text} bytes, but the file has {actual} "
                "after the header: it is incomplete or damaged."
            )

        values = np.frombuffer(data, dtype=np.uint8, offset=start)
        return values.reshape(shape)


def _read_images_and_labels(images_path: Path, labels_path: Path) -> LabelledRows:
    images = read_idx(images_path)
    labels = read_idx(labels_path)

    have_right_axes = images.ndim == 3 and labels.ndim == 1
    if not have_right_axes or len(images) != len(labels):
        raise FileError(
            f"{images_path} has the shape {images.shape} and {labels_path} the shape "
            f"{labels.shape}: images (N, height, width) and labels (N,) are needed."
        )

    class_indices = class_indices_from_array(labels, "labels", 10, labels_path)
    return LabelledRows(images, class_indices)


CIFAR10_FILES = (
    "data_batch_1.bin",
    "data_batch_2.bin",
    "data_batch_3.bin",
    "data_batch_4.bin",
    "data_batch_5.bin",
    "test_batch.bin",
)
CIFAR100_FILES = ("train.bin", "test.bin")

_IMAGE_BYTES = 3 * 32 * 32


def cifar_reader(*, label_bytes: int, class_count: int) -> Reader:
    """Return a reader of CIFAR's training batches and its test batch: (N, 3, 32, 32) uint8.

    Args:
        label_bytes: bytes before each image; the last of them is the class.
        class_count: the number of classes.
    """

    def read(files: MatchedFiles) -> RawDataset:
        batches = [_read_cifar_batch(path, label_bytes, class_count) for path, *_ in files]
        # In the order of the patterns: the test batch is the last.
        *training, test = batches
        train = LabelledRows(
            inputs=np.concatenate([batch.inputs for batch in training]),
            labels=np.concatenate([batch.labels for batch in training]),
        )
        return RawDataset(train, test)

    return read


def _read_cifar_batch(path: Path, label_bytes: int, class_count: int) -> LabelledRows:
    with parse_errors(path, "CIFAR binary file"):
        data = np.fromfile(path, dtype=np.uint8)

    record_bytes = label_bytes + _IMAGE_BYTES
    if len(data) == 0 or len(data) % record_bytes != 0:
        raise FileError(
            f"{path} has {len(data)} bytes, which is not a multiple of {record_bytes} bytes per "
            "image: it is incomplete or not CIFAR's binary version."
        )

    records = data.reshape(-1, record_bytes)

    # The last label byte is the class. CIFAR-100 has its superclass before it.
    class_bytes = records[:, label_bytes - 1]
    labels = class_indices_from_array(class_bytes, "labels", class_count, path)

    # The red plane, then green, then blue, each row by row: channels first already.
    pixels = records[:, label_bytes:]
    images = pixels.reshape(-1, 3, 32, 32)
    return LabelledRows(images, labels)


SVHN_FILES = ("train_32x32.mat", "test_32x32.mat")


def read_svhn(files: MatchedFiles) -> RawDataset:
    """Read training and test images, (N, 3, 32, 32) uint8, with their digits as labels."""
    train_paths, test_paths = files
    train = _read_svhn_file(train_paths[0])
    test = _read_svhn_file(test_paths[0])
    return RawDataset(train, test)


def _read_svhn_file(path: Path) -> LabelledRows:
    from scipy.io import loadmat

    with parse_errors(path, "MATLAB file"):
        arrays = loadmat(path, variable_names=("X", "y"))

    images = arrays.get("X")
    labels = arrays.get("y")
    if images is None or labels is None:
        raise FileError(f"{path} does not hold X and y: it is not a file of SVHN's cropped digits.")

    # MATLAB counts columns first, so the image is the last axis.
    has_right_shape = images.ndim == 4 and images.shape[:3] == (32, 32, 3)
    if not has_right_shape or images.dtype != np.uint8:
        raise FileError(
            f"X in {path} is {images.dtype} of shape {images.shape}: "
            "bytes (32, 32, 3, N) are needed."
        )

    # Eleven classes, because the files call the digit 0 the class 10.
    digits = class_indices_from_array(labels, "y", 11, path)
    image_count = images.shape[3]
    if len(digits) != image_count:
        raise FileError(
            f"{path} has {image_count} images and {len(digits)} labels: one label per image is "
            "needed."
        )

    channels_first = np.ascontiguousarray(images.transpose(3, 2, 0, 1))
    return LabelledRows(channels_first, digits % 10)


_SPLIT_NAMES = ("x_train", "y_train", "x_test", "y_test")


def npz_reader(classes: Sequence[str] | int) -> Reader:
    """Return a reader of one .npz file.

    Args:
        classes: the class names, or their number. An array ``classes`` in the file replaces them.
    """

    def read(files: MatchedFiles) -> RawDataset:
        from teeter.data.array_files import read_arrays  # loads torch

        path = files[0][0]
        arrays = read_arrays(path)

        # Our copy of ISOLET stores ten-thousandths as int16, which compress better.
        if "x_e4" in arrays:
            ten_thousandths = arrays.pop("x_e4")
            arrays["x"] = ten_thousandths.astype(np.float32) / 10_000

        class_names = None
        if "classes" in arrays:
            names = arrays["classes"].tolist()
            class_names = tuple(str(name) for name in names)
        allowed = class_names or classes

        if set(_SPLIT_NAMES) <= arrays.keys():
            train = _rows_of_arrays(arrays, "x_train", "y_train", allowed, path)
            test = _rows_of_arrays(arrays, "x_test", "y_test", allowed, path)
            return RawDataset(train, test, class_names)

        # Without a test set, the catalogue's split function makes one.
        if {"x", "y"} <= arrays.keys():
            rows = _rows_of_arrays(arrays, "x", "y", allowed, path)
            return RawDataset(rows, None, class_names)

        contents = ", ".join(arrays) or "nothing"
        wanted = ", ".join(_SPLIT_NAMES)
        raise FileError(f"{path} holds {contents}: name its arrays {wanted}, or x and y.")

    return read


def _rows_of_arrays(
    arrays: Arrays, x_name: str, y_name: str, classes: Sequence[str] | int, path: Path
) -> LabelledRows:
    rows = arrays[x_name]
    labels = class_indices_from_array(arrays[y_name], y_name, classes, path)

    if rows.ndim == 0 or len(rows) != len(labels):
        raise FileError(
            f"{path} holds {x_name} {rows.shape} and {len(labels)} labels in {y_name}: "
            "one label per row is needed."
        )

    return LabelledRows(rows, labels)


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
            if not line.endswith("}"):
                raise FileError(f"{path} has a sparse row without a closing brace: {line[:60]!r}.")

            fields = [attribute.default for attribute in attributes]
            inner = line.removeprefix("{").removesuffix("}").strip()
            for index, single, double, bare in _SPARSE_FIELD.findall(inner):
                # findall returns empty texts, not None, for groups that do not match.
                value = bare or _unescape(single or double)
                fields[int(index)] = value
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
        number = nan
        if text != "?":
            number = float(text)
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
        *_, class_column = table.columns
        if named:
            class_column = named[0]
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
    rows = []
    with parse_errors(path, "UCI data file"):
        for fields in lines:
            numbers = [float(field) for field in fields]
            rows.append(numbers)
    return np.array(rows)


def _labelled_rows(features: npt.NDArray[Any], labels: npt.NDArray[np.int64]) -> LabelledRows:
    import torch

    contiguous = np.ascontiguousarray(features, dtype=np.float32)
    return LabelledRows(torch.from_numpy(contiguous), labels)
