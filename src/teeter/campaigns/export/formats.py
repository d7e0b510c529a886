"""The formats of an export: tables and lines that any program reads, and those of other tools."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import date, datetime
from importlib.util import find_spec
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from teeter.base.files import LfCsvStream, atomic_open, atomic_write
from teeter.base.registry import require_known
from teeter.campaigns.export.image_folders import write_image_folder
from teeter.campaigns.export.parquet_rows import require_pyarrow, write_parquet
from teeter.campaigns.export.rows import (
    ADDED_CELLS,
    LABEL_CELLS,
    ExportColumns,
    ExportRow,
    shown_content,
)
from teeter.campaigns.items.columns import (
    ADDED_COLUMNS,
    SHORT_COLUMNS,
    ImportedTable,
    fits_type,
    format_cell,
    map_json,
    replace_surrogates,
    typed_value,
)
from teeter.campaigns.records import AnswerKind, ColumnType, ItemKind, split_labels
from teeter.data.table_files import escape_formula
from teeter.data.workbooks import format_sheet_cell
from teeter.errors import FileError, InputError, MissingExtraError

CLEANLAB_NEEDS_LABELS = "cleanlab needs labels of two or more classes: label some items first."

_MAX_SPACY_CHARACTERS = 50_000_000

_MESSAGE_PACK = range(-(2**63), 2**64)
"""The integers of MessagePack, in which spaCy stores what belongs to a document."""


def require_format(form: str, kind: str, labelled_classes: int, *, several: bool = False) -> None:
    """Check that a campaign can be exported in a format.

    Args:
        form: One of ``FORMATS``.
        kind: What the items are, one of ``ItemKind``.
        labelled_classes: How many classes have a label.
        several: Whether items may have several labels.

    Raises:
        InputError: If the format does not fit the items or their labels.
        MissingExtraError: If a package that writes it is not installed.
    """
    if form == "spacy" and kind != ItemKind.TEXT:
        raise InputError(
            "The format spacy is only for texts: export images or features in another format."
        )
    if form == "image-folder" and kind != ItemKind.IMAGE:
        raise InputError(
            "The format image-folder is only for images: export other items in another format."
        )
    if several and form in ("cleanlab", "image-folder"):
        raise InputError(
            f"The format {form} is for items that have one label: choose another format for items "
            "that may have several."
        )
    if form == "cleanlab" and labelled_classes < 2:
        raise InputError(CLEANLAB_NEEDS_LABELS)

    if form == "spacy" and find_spec("spacy") is None:
        raise MissingExtraError("Writing this format needs spaCy: pip install spacy.")
    if form in ("parquet", "datasets"):
        require_pyarrow()
    if form == "xlsx" and find_spec("xlsxwriter") is None:
        raise MissingExtraError("Writing .xlsx needs XlsxWriter: pip install XlsxWriter.")


Writer: TypeAlias = Callable[[Iterable[ExportRow], ExportColumns, Path], None]


def write_export(
    rows: Iterable[ExportRow],
    path: Path,
    form: str | None = None,
    *,
    tables: Sequence[ImportedTable] = (),
    content: str | None = "text",
    has_ids: bool = True,
    labels: Sequence[str] = (),
) -> None:
    """Write items with their labels and predictions to a file or folder.

    Tables have the columns of the user, then those of ``ADDED_COLUMNS``. Files that people open
    have only the short ones: ``csv``, ``spreadsheet`` and ``xlsx``.

    ``csv`` writes every cell exactly as it is, for programs. Spreadsheet programs run a cell that
    begins with ``=``, ``+``, ``-`` or ``@`` as a formula, and an annotated text may be such a cell
    on purpose. ``spreadsheet`` is the same table for people to open: it puts an apostrophe
    before every such cell and column name, but not before numbers.

    Args:
        rows: The items. A few are in memory at a time. Parquet and ``datasets`` may read them
            twice, and read an iterator, which can be read only once, into memory.
        path: The file, or the folder for ``datasets`` and ``image-folder``.
        form: One of ``FORMATS``. By default it follows from the suffix of the path: .csv, .jsonl,
            .parquet, .xlsx, or none for ``datasets``.
        tables: The tables that the items came from. Their columns come first, in their order.
        content: What the content of an item is called: text, image, or None if it is not exported.
        has_ids: Whether items have ids other than the hashes of their contents.

    Raises:
        InputError: If no form is given and the suffix is of none.
        UnknownNameError: If no form has this name.
        FileError: If the file cannot be written.
        MissingExtraError: If a package that writes the format is not installed.
    """
    if form is not None:
        require_known("format", form, FORMATS)
    else:
        form = _FORM_OF_SUFFIX.get(path.suffix.lower())
    if form is None:
        raise InputError(
            f"Cannot tell the format of {path}: use the suffix .csv, .xlsx, .jsonl or .parquet, or "
            f"choose a format from {', '.join(FORMATS)}."
        )

    added = tuple(ADDED_COLUMNS)
    if form in ("csv", "spreadsheet", "xlsx"):
        added = SHORT_COLUMNS
    columns = ExportColumns(tables, added, content=content, has_ids=has_ids, labels=labels)
    try:
        FORMATS[form](rows, columns, path)
    except OSError as error:
        raise FileError(f"Cannot write {path}: {error.strerror or error}.") from None


def format_suffix(form: str) -> str:
    """Return the suffix of files of a format; empty for a folder.

    Example:
        >>> format_suffix("spreadsheet"), format_suffix("prodigy"), format_suffix("datasets")
        ('.csv', '.jsonl', '')
    """
    return _SUFFIX_OF_FORM[form]


def _write_csv(
    rows: Iterable[ExportRow],
    columns: ExportColumns,
    path: Path,
    escape: Callable[[Any], Any] | None = None,
) -> None:
    added_cells = attrgetter(*(ADDED_CELLS[column] for column in columns.name_of))

    def lines() -> Iterator[list[Any]]:
        yield [*columns.names, *columns.mark_names]
        for row in rows:
            yield [*columns.text_cells(row), *added_cells(row), *columns.marks(row)]

    with atomic_open(path) as file:
        # A lone surrogate, which only JSON can write, becomes a question mark.
        text = io.TextIOWrapper(
            file, encoding="utf-8", errors="replace", newline="", write_through=True
        )
        writer = csv.writer(LfCsvStream(text))
        for line in lines():
            cells: Iterable[Any] = line
            if escape is not None:
                cells = map(escape, line)
            writer.writerow(cells)
        text.detach()


def _write_spreadsheet(rows: Iterable[ExportRow], columns: ExportColumns, path: Path) -> None:
    """Write a table without texts that a spreadsheet program would run as formulas."""

    def escape(value: Any) -> Any:
        if isinstance(value, str):
            return escape_formula(value)
        return value

    _write_csv(rows, columns, path, escape)


_MAX_SHEET_ROWS = 1_048_576
_MAX_SHEET_COLUMNS = 16_384
_MAX_SHEET_CELL = 32_767
"""What a sheet of Excel holds: rows with the header, columns, and characters of a cell."""

_FIRST_SHEET_MONTH = (1900, 3)
"""Excel takes 1900 for a leap year, so its days before are not ours."""


class _ExactFloat(float):
    """A number that XlsxWriter writes with all its digits, and not with the first 16."""

    def __format__(self, _: str) -> str:
        return repr(self)


def _write_xlsx(rows: Iterable[ExportRow], columns: ExportColumns, path: Path) -> None:
    """Write a workbook with one sheet. Rows go to a temporary file, so few are in memory.

    Numbers, dates and times are cells of their types if they are read as they were: 007 is a text.

    Raises:
        InputError: If a sheet cannot hold the rows.
        MissingExtraError: If XlsxWriter is not installed.
    """
    require_format("xlsx", ItemKind.TEXT, 0)
    import xlsxwriter

    added_cells = attrgetter(*(ADDED_CELLS[column] for column in columns.name_of))
    names = [*columns.names, *columns.mark_names]
    if len(names) > _MAX_SHEET_COLUMNS:
        raise InputError(
            f"A sheet of Excel has {_MAX_SHEET_COLUMNS:,} columns at most, not "
            f"{len(names):,}: export to .csv or .parquet."
        )

    with atomic_open(path) as file:
        workbook = xlsxwriter.Workbook(file, {"constant_memory": True})
        try:
            sheet = workbook.add_worksheet("Labels")
            sheet.freeze_panes(1, 0)
            styles = {
                date: workbook.add_format({"num_format": "yyyy-mm-dd"}),
                datetime: workbook.add_format({"num_format": "yyyy-mm-dd hh:mm:ss"}),
            }
            for position, name in enumerate(names):
                sheet.write_string(0, position, replace_surrogates(name))

            for number, row in enumerate(rows, start=1):
                if number >= _MAX_SHEET_ROWS:
                    raise InputError(
                        f"A sheet of Excel has {_MAX_SHEET_ROWS - 1:,} rows below its header at "
                        "most: export to .csv or .parquet."
                    )
                cells = columns.cells(row.row)
                types = columns.types(row.row)
                values = [
                    _sheet_value(cell, column_type)
                    for cell, column_type in zip(cells, types, strict=True)
                ]
                for position, text in columns.missing_cells(row, cells).items():
                    values[position] = text
                values += [*added_cells(row), *columns.marks(row)]

                for position, value in enumerate(values):
                    if isinstance(value, str) and len(value) > _MAX_SHEET_CELL:
                        raise InputError(
                            f"A cell of Excel holds {_MAX_SHEET_CELL:,} characters, and "
                            f"{names[position]!r} of {row.id!r:.80} has {len(value):,}: "
                            "export to .csv or .parquet."
                        )
                    if isinstance(value, bool):
                        sheet.write_boolean(number, position, value)
                    elif isinstance(value, float):
                        sheet.write_number(number, position, _ExactFloat(value))
                    elif isinstance(value, int):  # whether the row has a label
                        sheet.write_number(number, position, value)
                    elif isinstance(value, date):
                        sheet.write_datetime(number, position, value, styles[type(value)])
                    elif value:
                        sheet.write_string(number, position, replace_surrogates(value))
        finally:
            workbook.close()


def _sheet_value(cell: Any, column_type: ColumnType) -> Any:
    """Return a cell as a number, boolean, date or time if it is read as it was, or else a text.

    Example:
        >>> [_sheet_value(cell, ColumnType.NUMBER) for cell in ("12.5", "1.50", 2**53 + 1)]
        [12.5, '1.50', '9007199254740993']
    """
    text = format_cell(cell)
    value = typed_value(cell, column_type)
    if not text or value is None:
        return text

    if isinstance(value, str) and column_type in (ColumnType.DATE, ColumnType.TIMESTAMP):
        # Arrow writes all digits of its unit, which are zeros.
        text = re.sub(r"[.]0+$", "", text)
        moment = datetime.min
        if fits_type(text, column_type):
            moment = datetime.fromisoformat(text)
        is_exact = moment.tzinfo is None and not moment.microsecond
        if is_exact and (moment.year, moment.month) >= _FIRST_SHEET_MONTH:
            value = moment
            if column_type is ColumnType.DATE:
                value = moment.date()
    if isinstance(value, bool) or not isinstance(value, int | float):
        if format_sheet_cell(value) == text:
            return value
        return text
    # Excel shows 15 digits. What a text says must be written as it is; a number, be the same one.
    if not math.isfinite(value):
        return text
    number = float(value)
    if number.is_integer() and abs(value) >= 1e15:
        return text
    if isinstance(cell, str) and format_sheet_cell(number) != text:
        return text
    return number


def _write_jsonl(rows: Iterable[ExportRow], columns: ExportColumns, path: Path) -> None:
    attributes = ADDED_CELLS | {"answers": "answers"}

    def objects() -> Iterator[dict[str, Any]]:
        for row in rows:
            cells = columns.json_cells(row)
            for column, name in columns.name_of.items():
                value = getattr(row, attributes[column])
                if columns.labels and attributes[column] in LABEL_CELLS:
                    value = columns.label_value(value)
                elif columns.labels and column == "answers":
                    value = {who: _list_labels(said) for who, said in row.answers.items()}
                cells[name] = value
            yield cells

    _write_json_lines(path, objects())


def _list_labels(said: str) -> Any:
    """Return what an annotator said of an item with several labels: a list, or the kind."""
    if said in set(AnswerKind):
        return said
    return split_labels(said)


def _write_json_lines(path: Path, objects: Iterable[Mapping[str, Any]]) -> None:
    encoder = json.JSONEncoder(ensure_ascii=False)
    with atomic_open(path) as file:
        for fields in objects:
            try:
                line = encoder.encode(fields).encode()
            except UnicodeEncodeError:  # a lone surrogate
                line = json.dumps(fields).encode()
            file.write(line + b"\n")


def _write_parquet(rows: Iterable[ExportRow], columns: ExportColumns, path: Path) -> None:
    with atomic_open(path) as file:
        write_parquet(
            [file],
            rows,
            columns,
            choose_file=lambda row: 0,
        )


def _write_datasets(rows: Iterable[ExportRow], columns: ExportColumns, path: Path) -> None:
    """Write a folder for ``datasets.load_dataset``, with labelled items as the split train."""
    require_pyarrow()  # before there is a folder
    splits = ("train", "unlabelled")

    def choose_split(row: ExportRow) -> int | None:
        # A missing label would be a class of its own for most trainers, hence two splits.
        if row.left_out:
            return None
        if row.final_label is None:
            return splits.index("unlabelled")
        return splits.index("train")

    path.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        files = []
        for split in splits:
            file = atomic_open(path / f"{split}.parquet")
            files.append(stack.enter_context(file))
        write_parquet(
            files,
            rows,
            columns,
            choose_file=choose_split,
        )

    card = _DATASET_CARD + "| column | meaning |\n| --- | --- |\n"
    for column, name in columns.name_of.items():
        card += f"| {name} | {ADDED_COLUMNS[column]} |\n"
    atomic_write(path / "README.md", card.encode(errors="replace"))


def _write_prodigy(rows: Iterable[ExportRow], columns: ExportColumns, path: Path) -> None:
    def examples() -> Iterator[dict[str, Any]]:
        for row in rows:
            if row.label is None and not row.left_out:
                continue
            answer = "accept"
            if row.left_out:
                # Prodigy rejects an example, where a campaign flags an item.
                answer = "reject"
            meta = {"id": row.id}
            labels: dict[str, Any] = {"label": row.label}
            if columns.labels:
                labels = {
                    "options": [{"id": name, "text": name} for name in columns.labels],
                    "accept": columns.label_value(row.label) or [],
                }
            yield {
                **shown_content(row),
                **labels,
                "answer": answer,
                "meta": {**columns.json_cells_beside(meta, row), **meta},
            }

    _write_json_lines(path, examples())


def _choices(label: str, columns: ExportColumns) -> list[str]:
    """Return all labels of an item as a list, also if it can have one only."""
    if columns.labels:
        return split_labels(label)
    return [label]


def _write_doccano(rows: Iterable[ExportRow], columns: ExportColumns, path: Path) -> None:
    def examples() -> Iterator[dict[str, Any]]:
        for row in rows:
            if row.label is None or row.left_out:
                continue
            fields = {"id": row.id, **shown_content(row), "label": _choices(row.label, columns)}
            # doccano shows all other fields beside the text.
            yield {**columns.json_cells_beside(fields, row), **fields}

    _write_json_lines(path, examples())


_DATASET_CARD = """---
configs:
- config_name: default
  data_files:
  - split: train
    path: train.parquet
  - split: unlabelled
    path: unlabelled.parquet
---

Labels and predictions from a teeter campaign.

Most labelled items were chosen by active learning, not at random, so do not measure accuracy on
them. These columns were added to those of the items:

"""


def write_label_studio(rows: Iterable[ExportRow], columns: ExportColumns, path: Path) -> None:
    """Write tasks with annotations and predictions, as Label Studio's import takes them.

    They fit a project that ``teeter campaign sync`` creates, and any whose choices are called
    ``label``. Columns are fields of a task's data. One that has the name of a field of teeter, such
    as ``text``, is called ``text_imported``, unless it is the text that annotators see.
    """
    # Imported here: the package talks to servers, and its modules import campaigns.
    from teeter.campaigns.integrations.label_studio.payloads import (
        CHOICES_TAG,
        ITEM_FIELD,
        MODEL_VERSION,
        OBJECT_TAG,
    )

    def choose(label: str) -> list[dict[str, Any]]:
        value = {"choices": _choices(label, columns)}
        return [
            {"from_name": CHOICES_TAG, "to_name": OBJECT_TAG, "type": "choices", "value": value}
        ]

    with atomic_open(path, "w") as file:
        file.write("[")
        separator = "\n"
        for row in rows:
            if row.left_out:
                continue
            fields = {**shown_content(row), ITEM_FIELD: row.id}
            cells = columns.json_cells_beside(fields, row)
            task: dict[str, Any] = {"data": {**cells, **fields}}
            if row.label is not None:
                task["annotations"] = [{"result": choose(row.label)}]
            if row.predicted is not None:
                prediction = {"model_version": MODEL_VERSION, "score": row.confidence}
                task["predictions"] = [{**prediction, "result": choose(row.predicted)}]

            # ASCII, so that a lone surrogate in a column is no obstacle.
            file.write(separator + json.dumps(task))
            separator = ",\n"
        file.write("\n]\n")


def write_spacy(rows: Iterable[ExportRow], columns: ExportColumns, path: Path) -> None:
    """Write labelled texts as a ``DocBin``, with their classes as ``doc.cats`` for ``textcat``.

    The id of an item is in ``doc.user_data["id"]``, its columns are in
    ``doc.user_data["columns"]``.

    The items must be texts.
    """
    import spacy
    from spacy.tokens import DocBin

    labelled = [row for row in rows if row.label is not None and not row.left_out]
    # Only its tokenizer is used, which knows no language in particular.
    pipeline = spacy.blank("xx")
    pipeline.max_length = _MAX_SPACY_CHARACTERS
    classes = columns.labels or sorted({str(row.label) for row in labelled})
    documents = DocBin(store_user_data=True)
    for row in labelled:
        document = pipeline.make_doc(row.content or "")
        names = _choices(str(row.label), columns)
        document.cats = {name: float(name in names) for name in classes}
        document.user_data["id"] = row.id
        cells = columns.json_cells(row)
        document.user_data["columns"] = map_json(replace_surrogates(cells), _to_message_pack)
        documents.add(document)

    atomic_write(path, documents.to_bytes())


def _to_message_pack(value: Any) -> Any:
    """Return a part of a JSON value that spaCy can store: a text if an integer is over 64 bits."""
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    if is_integer and value not in _MESSAGE_PACK:
        return str(value)
    return value


def write_cleanlab(rows: Iterable[ExportRow], columns: ExportColumns, path: Path) -> None:
    """Write labels with out-of-fold probabilities as arrays, for ``cleanlab``'s functions.

    The file has ``ids``, ``labels`` (positions in ``classes``), ``pred_probs`` (N, C) from models
    that were not trained on the item, and ``classes``. ``table`` holds the bytes of a JSONL file
    with the id, the label and the columns of each item, for ``cleanlab.Datalab``.

    Raises:
        InputError: If fewer than two classes have labels.
    """
    ids = []
    labels = []
    probabilities = []
    lines = []
    classes: list[str] = []
    for row in rows:
        if row.out_of_fold is None or row.label is None or row.left_out:
            continue
        classes = list(row.out_of_fold)
        ids.append(row.id)
        labels.append(classes.index(row.label))
        probabilities.append(list(row.out_of_fold.values()))

        fields = {"id": row.id, "label": row.label}
        line = replace_surrogates({**fields, **columns.json_cells_beside(fields, row)})
        text = json.dumps(line, ensure_ascii=False)
        lines.append(f"{text}\n")

    if not ids:
        raise InputError(CLEANLAB_NEEDS_LABELS)
    file = io.BytesIO()
    np.savez(
        file,
        ids=np.array(ids),
        labels=np.array(labels),
        pred_probs=np.array(probabilities),
        classes=np.array(classes),
        # Bytes: in an array of texts, all would take the space of the longest one.
        table=np.frombuffer("".join(lines).encode(), dtype=np.uint8),
    )
    atomic_write(path, file.getvalue())


FORMATS: dict[str, Writer] = {
    "csv": _write_csv,
    "spreadsheet": _write_spreadsheet,
    "xlsx": _write_xlsx,
    "jsonl": _write_jsonl,
    "parquet": _write_parquet,
    "datasets": _write_datasets,
    "prodigy": _write_prodigy,
    "doccano": _write_doccano,
    "label-studio": write_label_studio,
    "spacy": write_spacy,
    "image-folder": write_image_folder,
    "cleanlab": write_cleanlab,
}
"""The formats of an export by name, and the functions that write them."""

_FORM_OF_SUFFIX = {
    ".csv": "csv",
    ".xlsx": "xlsx",
    ".jsonl": "jsonl",
    ".parquet": "parquet",
    "": "datasets",
}

_SUFFIX_OF_FORM = {
    "csv": ".csv",
    "spreadsheet": ".csv",
    "xlsx": ".xlsx",
    "jsonl": ".jsonl",
    "parquet": ".parquet",
    "datasets": "",
    "prodigy": ".jsonl",
    "doccano": ".jsonl",
    "label-studio": ".json",
    "spacy": ".spacy",
    "image-folder": "",
    "cleanlab": ".npz",
}
