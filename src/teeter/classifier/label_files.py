"""Label the rows of a table, the objects of a JSONL file or the images of a folder.

The output has all columns of the input, in their order and types, and three more: the class, its
calibrated probability, and the number of the model. A column of the input that has the name of one
of them stays, and ours is called ``teeter_NAME``. A row that cannot be read has an empty class.
"""

from __future__ import annotations

import csv
import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from teeter.base.files import LfCsvStream, atomic_open, require_file, write_errors
from teeter.classifier.classifier import Classifier, Prediction, ProgressReport
from teeter.data.table_columns import find_text_column, parse_text_template, rename_added
from teeter.data.table_files import (
    JSON_SUFFIXES,
    JSONL_SUFFIXES,
    TABLE_SUFFIXES,
    CsvRows,
    escape_formula,
    read_cells,
    read_json_objects,
    read_parquet,
)
from teeter.data.workbooks import split_sheet
from teeter.encoders import ContentKind
from teeter.encoders.images import find_images
from teeter.errors import FileError, InputError, MissingExtraError

__all__ = [
    "OUTPUT_COLUMNS",
    "PROBABILITY_DIGITS",
    "label_file",
]

OUTPUT_COLUMNS = ("predicted", "confidence", "model")
"""The columns that are added: the class, its calibrated probability and the number of the model."""

PROBABILITY_DIGITS = 6
"""Decimal places of a probability in CSV and JSONL files."""


def label_file(
    classifier: Classifier,
    source: str | Path,
    target: str | Path,
    *,
    text: str | None = None,
    spreadsheet: bool = False,
    progress: ProgressReport | None = None,
) -> list[Prediction]:
    """Label what a file or a folder contains, and write a file with the classes added.

    Args:
        classifier: predicts the classes.
        source: a CSV, JSONL or Parquet file of texts, or a folder of images.
        target: the file to write: .csv, .jsonl or .parquet. The file must not exist.
        text: the column or field of the texts, several separated by commas, or a template such as
            ``"{title}: {body}"``. Default: the first one with a usual name.
        spreadsheet: put an apostrophe before texts in a .csv file that a spreadsheet program would
            run as formulas. Without it, every value is unchanged.
        progress: called with the number of labelled rows and the number of all rows.

    Returns:
        The prediction of each row.

    Raises:
        FileError: the source cannot be read, or the target exists or cannot be written.
        InputError: the classifier reads another kind of content, or the column is not clear.
    """
    source = Path(source)
    target = Path(target)
    # The target is checked first: labelling may take hours, and nothing should be lost at its end.
    if target.exists():
        raise FileError(f"{target} already exists: choose another file.")
    if target.suffix.lower() not in (".csv", *JSONL_SUFFIXES, ".parquet"):
        raise InputError(f"Cannot write {target}: use the suffix .csv, .jsonl or .parquet.")
    if spreadsheet and target.suffix.lower() != ".csv":
        raise InputError(f"Only a .csv file can be written for spreadsheet programs, not {target}.")
    if not target.parent.is_dir():
        raise FileError(f"Cannot write {target}: there is no folder {target.parent}.")
    if target.suffix.lower() == ".parquet":
        _import_pyarrow()

    table = _read_rows(source)
    # After the rows are read, so that a source that does not exist is reported as missing.
    if classifier.encoder is None:
        raise InputError(
            "This classifier was trained on features: compute the features of the new items, and "
            "call predict_proba."
        )

    is_folder = source.is_dir()
    reads_images = classifier.encoder.kind is ContentKind.IMAGE
    if reads_images and not is_folder:
        raise InputError(f"This classifier reads images: give a folder of images, not {source}.")
    if is_folder and not reads_images:
        raise InputError(f"This classifier reads texts: give a file of texts, not {source}.")
    contents = table.contents(text)
    predictions = classifier.label(contents, progress)
    with write_errors(target):
        table.write(target, predictions, classifier.info.model, spreadsheet=spreadsheet)
    return predictions


class _Rows(ABC):
    """The rows of a source, and how they are written with predictions."""

    path: Path
    names: list[str]
    """The columns, in their order."""

    @abstractmethod
    def texts(self, name: str) -> list[str]:
        """Return a column as texts."""

    @abstractmethod
    def as_dicts(self) -> list[dict[str, Any]]:
        """Return the rows as they are written to CSV and JSONL files."""

    def contents(self, text: str | None) -> list[str]:
        """Return the text of each row.

        Raises:
            UnknownNameError: there is no such column.
            InputError: the column is not clear.
        """
        if text is None:
            text = find_text_column(self.names, self.path)

        template = parse_text_template(text, self.names, self.path)
        columns = {name: self.texts(name) for name in template.columns}
        texts = []
        for cells in zip(*columns.values(), strict=True):
            cell_by_column = dict(zip(columns, cells, strict=True))
            texts.append(template.fill(cell_by_column))
        return texts

    def write(
        self,
        target: Path,
        predictions: Sequence[Prediction],
        model: int,
        *,
        spreadsheet: bool = False,
    ) -> None:
        """Write the rows with their predictions."""
        added = [rename_added(name, self.names) for name in OUTPUT_COLUMNS]
        if target.suffix.lower() == ".parquet":
            _write_parquet(self.as_arrow(), target, added, predictions, model)
            return
        if target.suffix.lower() == ".csv":
            rows = self.as_cells()
            for cells, prediction in zip(rows, predictions, strict=True):
                cells += [prediction.label, _rounded(prediction), model]
            _write_csv([self.names + added, *rows], target, spreadsheet=spreadsheet)
            return

        objects = self.as_dicts()
        for row, prediction in zip(objects, predictions, strict=True):
            values = (prediction.label, _rounded(prediction), model)
            row |= dict(zip(added, values, strict=True))

        with atomic_open(target, "w") as file:
            for row in objects:
                # Parquet files have dates and decimals, which JSON has no types for.
                file.write(json.dumps(row, ensure_ascii=False, default=str) + "\n")

    def as_cells(self) -> list[list[Any]]:
        """Return the rows as they are written to a CSV file."""
        rows = []
        for row in self.as_dicts():
            cells = [row.get(name) for name in self.names]
            for column, value in enumerate(cells):
                if isinstance(value, dict | list):
                    cells[column] = json.dumps(value, ensure_ascii=False, default=str)
            rows.append(cells)
        return rows

    def as_arrow(self) -> Any:
        """Return the rows as a table of pyarrow."""
        pyarrow = _import_pyarrow()
        rows = self.as_dicts()

        columns = {}
        for name in self.names:
            values = [row.get(name) for row in rows]
            try:
                columns[name] = pyarrow.array(values)
            except (pyarrow.ArrowException, OverflowError):
                raise InputError(
                    f"The field {name!r} of {self.path} has values of different types, which a "
                    f"Parquet file cannot hold: write a .jsonl file."
                ) from None

        return pyarrow.table(columns)


def _rounded(prediction: Prediction) -> float | None:
    if prediction.probability is None:
        return None
    return round(prediction.probability, PROBABILITY_DIGITS)


def _write_csv(rows: Sequence[Sequence[Any]], target: Path, *, spreadsheet: bool) -> None:
    """Write rows, the first of which has the names of the columns."""
    with atomic_open(target, "w") as file:
        writer = csv.writer(LfCsvStream(file))
        for row in rows:
            if spreadsheet:
                row = [escape_formula(cell) if isinstance(cell, str) else cell for cell in row]
            writer.writerow(row)


class _CsvTable(_Rows):
    """Rows of a CSV file, cell by cell as they are."""

    def __init__(self, path: Path, content: CsvRows) -> None:
        self.path = path
        self.names = content.names
        self._rows = content.rows

    def texts(self, name: str) -> list[str]:
        column = self.names.index(name)
        return [row[column] for row in self._rows]

    def as_dicts(self) -> list[dict[str, Any]]:
        return [dict(zip(self.names, row, strict=True)) for row in self._rows]

    def as_cells(self) -> list[list[Any]]:
        # Not from dictionaries: several columns may have no name.
        return [list(row) for row in self._rows]


class _JsonLines(_Rows):
    """Objects of a JSONL file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._objects = [fields for _, fields in read_json_objects(path)]
        # Objects may have different fields. A dictionary keeps them in the order of appearance.
        names: dict[str, None] = {}
        for fields in self._objects:
            names |= dict.fromkeys(fields)
        self.names = list(names)

    def texts(self, name: str) -> list[str]:
        texts = []
        for line, fields in enumerate(self._objects, start=1):
            value = fields.get(name)
            if not isinstance(value, str):
                raise InputError(f"Object {line} of {self.path} has no text in {name!r}.")
            texts.append(value)
        return texts

    def as_dicts(self) -> list[dict[str, Any]]:
        # Copies, because write adds the prediction to them.
        return [dict(fields) for fields in self._objects]


class _ParquetTable(_Rows):
    """Rows of a Parquet file. Written to Parquet, they keep their types."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._table = read_parquet(path)
        self.names = list(self._table.column_names)

    def texts(self, name: str) -> list[str]:
        values = self._table.column(name).to_pylist()
        # A CSV file has an empty cell here, and the same row should get the same class.
        return ["" if value is None else str(value) for value in values]

    def as_dicts(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self._table.to_pylist()
        return rows

    def as_arrow(self) -> Any:
        return self._table


class _ImageFolder(_Rows):
    """The images of a folder and of the folders inside it, in the order of their paths."""

    names = ["image"]  # noqa: RUF012 - never changed

    def __init__(self, folder: Path) -> None:
        self.path = folder
        self._paths = find_images(folder)

    def contents(self, text: str | None) -> list[str]:
        if text is not None:
            raise InputError(f"{self.path} is a folder of images and has no column {text!r}.")
        return self.texts("image")

    def texts(self, name: str) -> list[str]:
        return [str(path) for path in self._paths]

    def as_dicts(self) -> list[dict[str, Any]]:
        # Relative paths, which stay valid when the folder is moved.
        return [{"image": path.relative_to(self.path).as_posix()} for path in self._paths]


def _read_rows(source: Path) -> _Rows:
    if source.is_dir():
        return _ImageFolder(source)

    file, _ = split_sheet(source)
    require_file(file, (*TABLE_SUFFIXES, *JSON_SUFFIXES), "a file of texts")
    suffix = file.suffix.lower()
    if suffix in JSON_SUFFIXES:
        return _JsonLines(file)
    if suffix == ".parquet":
        return _ParquetTable(file)
    return _CsvTable(file, read_cells(source))


def _import_pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError:
        raise MissingExtraError(
            "Writing Parquet needs pyarrow: pip install 'teeter[parquet]'."
        ) from None
    return pyarrow


def _write_parquet(
    table: Any,
    target: Path,
    names: Sequence[str],
    predictions: Sequence[Prediction],
    model: int,
) -> None:
    pyarrow = _import_pyarrow()
    from pyarrow import parquet

    labels = [prediction.label for prediction in predictions]
    probabilities = [prediction.probability for prediction in predictions]
    # The types are given, because pyarrow cannot infer one if no row could be read.
    added = (
        pyarrow.array(labels, pyarrow.string()),
        pyarrow.array(probabilities, pyarrow.float64()),
        pyarrow.array([model] * len(labels), pyarrow.int64()),
    )
    for name, column in zip(names, added, strict=True):
        table = table.append_column(name, column)

    with atomic_open(target) as file:
        parquet.write_table(table, file)
