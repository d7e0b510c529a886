"""Read items from tables, JSON lines, arrays and folders of images, and export labels."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np

from teeter.base.files import LfCsvStream, atomic_open, atomic_write
from teeter.base.registry import did_you_mean
from teeter.campaigns.enums import ItemKind
from teeter.campaigns.export.image_folders import write_image_folder
from teeter.campaigns.export.parquet_rows import ParquetRows, choose_arrow_columns, require_pyarrow
from teeter.campaigns.export.rows import ExportColumns, ExportRow, shown_content
from teeter.campaigns.export.tool_exports import (
    CLEANLAB_NEEDS_LABELS,
    write_cleanlab,
    write_label_studio,
    write_spacy,
)
from teeter.campaigns.items.columns import (
    ImportedTable,
    TableRow,
    decode_cells,
    format_cell,
    require_columns,
    rows_from_mappings,
)
from teeter.campaigns.items.image_links import ImageFetcher, is_link
from teeter.campaigns.items.item import Item, format_card_cell, parse_items, read_image_items
from teeter.campaigns.items.source_tables import SourceTable, read_source_table
from teeter.data.file_checks import require_file
from teeter.data.json_lines import JSONL_SUFFIXES, read_json_objects
from teeter.data.spreadsheet_cells import escape_formula
from teeter.data.table_files import TABLE_SUFFIXES, Table, is_missing, read_table
from teeter.data.text_templates import (
    TEXT_COLUMNS,
    TextTemplate,
    find_label_column,
    find_text_column,
    parse_text_template,
)
from teeter.encoders import format_card
from teeter.errors import FileError, InputError, MissingExtraError, UnknownNameError

__all__ = [
    "ARRAY_SUFFIXES",
    "FORMATS",
    "ExportRow",
    "UnusedLabels",
    "detect_kind",
    "find_unused_labels",
    "format_suffix",
    "read_items",
    "require_format",
    "write_export",
]

ARRAY_SUFFIXES = (".npz", ".npy", ".safetensors")


def detect_kind(path: Path) -> ItemKind:
    """Return the kind of the items at a path, from its type and suffix.

    Example:
        >>> detect_kind(Path("reviews.csv")).value, detect_kind(Path("vectors.npz")).value
        ('text', 'features')
    """
    if path.is_dir():
        return ItemKind.IMAGE
    if path.suffix.lower() in ARRAY_SUFFIXES:
        return ItemKind.FEATURES

    return ItemKind.TEXT


def read_items(
    path: Path,
    *,
    text: str | None = None,
    key: str | None = None,
    label: str | None = None,
    folder: Path | None = None,
    first: int = 0,
    image: str | None = None,
    fetcher: ImageFetcher | None = None,
    rows: bool = False,
) -> Sequence[Item]:
    """Read items from a CSV, Parquet, JSONL or array file, or from a folder of images.

    All columns of a table stay with its items, and an export returns them. A cell of a CSV file or
    a field of a JSONL file may have at most 10 million characters.

    Args:
        path: The file or folder.
        text: The column or field of the texts, several separated by commas, or a template such as
            ``"{title}: {body}"``. By default the first column with a usual name.
        key: The column or field of the ids; ``id`` by default, if there is one.
        label: The column or field of labels that are known already.
        folder: The campaign's folder of images, if images are added to it.
        first: The number of the first row of an array file without ids; rows are numbered.
        image: The column of images: paths inside ``folder``, or links.
        fetcher: Fetches links. Rows whose images it cannot fetch are left out, and stand in its
            ``errors``.
        rows: Whether items are the rows of a table, with all columns but those of ids and labels.

    Raises:
        FileError: If the file cannot be read.
        InputError: If texts are missing, or their column is not clear.
        UnknownNameError: If there is no column or field of the given name.
    """
    kind = detect_kind(path)
    if kind == ItemKind.IMAGE:
        return list(read_image_items(path, folder))
    if kind == ItemKind.FEATURES:
        return _read_array_items(path, first)

    if image is not None:
        file = require_file(path, (*TABLE_SUFFIXES, *JSONL_SUFFIXES), "a table of images")
        return _read_image_table(file, image, key, label, folder=folder, fetcher=fetcher)
    if rows:
        file = require_file(path, (*TABLE_SUFFIXES, *JSONL_SUFFIXES), "a table")
        return _read_row_items(file, key=key, label=label)
    if path.suffix.lower() in JSONL_SUFFIXES:
        return _read_jsonl_items(path, text=text, key=key, label=label)

    file = require_file(path, (*TABLE_SUFFIXES, *JSONL_SUFFIXES), "a file of items")
    return _read_table_items(read_source_table(file), text=text, key=key, label=label)


def _read_image_table(
    path: Path,
    image: str,
    key: str | None,
    label: str | None,
    *,
    folder: Path | None,
    fetcher: ImageFetcher | None,
) -> list[Item]:
    """Read a table with a column of images. Those of links are fetched."""
    # As texts first: what they are called, where they are, and all their columns.
    items = read_items(path, text=image, key=key, label=label)

    links = [item.content for item in items if item.content and is_link(item.content)]
    paths: dict[str, str] = {}
    if links:
        if fetcher is None:
            raise InputError(f"Column {image!r} of {path} holds links: give a fetcher for them.")
        paths = fetcher.fetch_all(links)

    entries = []
    rows = []
    for item in items:
        content = str(item.content)
        if is_link(content) and content not in paths:
            continue
        # Without an id of its own, an item would be known by the hash of its link.
        has_id = item.row is not None and item.row.table.id_column is not None
        entry = {"id": item.key if has_id else content, "label": item.label}
        entries.append({**entry, "image": paths.get(content, content)})
        rows.append(item.row)

    if not entries:
        failed = next(iter(fetcher.errors.values())) if fetcher is not None else ""
        raise InputError(f"None of the images in {path} could be fetched: {failed}")
    parsed = parse_items(entries, ItemKind.IMAGE, folder)
    return [replace(item, row=row) for item, row in zip(parsed, rows, strict=True)]


def _read_row_items(path: Path, *, key: str | None, label: str | None) -> list[Item]:
    """Read a table whose rows are the items, each as a card with a line per column."""
    if path.suffix.lower() in JSONL_SUFFIXES:
        objects = [fields for _, fields in read_json_objects(path)]
        id_column = key or ("id" if any("id" in fields for fields in objects) else None)
        rows = rows_from_mappings(objects, id_column)
    else:
        source = read_source_table(path)
        id_column = key or _find_id_column(source.table, None)
        rows = source.rows(id_column)

    names = rows[0].table.names
    require_columns([name for name in (key, label) if name is not None], names)
    entries = []
    for row in rows:
        cells = dict(zip(names, map(format_cell, decode_cells(row.cells)), strict=True))
        entry: dict[str, Any] = {}
        if id_column is not None:
            entry["id"] = cells.pop(id_column) or None
        if label is not None:
            entry["label"] = cells.pop(label, None)
        # A column without a name is an index, such as pandas writes.
        card = {name: format_card_cell(cell) for name, cell in cells.items() if name}
        entries.append({**entry, "text": format_card(card)})

    return _attach_rows(parse_items(entries, ItemKind.TEXT), rows)


@dataclass(frozen=True)
class UnusedLabels:
    """A column of a file that seems to hold labels."""

    column: str
    filled: int
    """Number of rows with a value."""
    values: tuple[str, ...]
    """The different values, in the order in which they first occur."""


def find_unused_labels(path: Path) -> UnusedLabels | None:
    """Return the column of a file that seems to hold labels, or None.

    Args:
        path: A file that ``read_items`` reads without ``label``.
    """
    suffix = path.suffix.lower()
    if path.is_dir() or suffix not in (*TABLE_SUFFIXES, *JSONL_SUFFIXES):
        return None

    if suffix in JSONL_SUFFIXES:
        objects = [fields for _, fields in read_json_objects(path)]
        column = find_label_column(list(dict.fromkeys(name for row in objects for name in row)))
        cells = [row.get(column or "") for row in objects]
        texts = ["" if cell is None else str(cell) for cell in cells]
    else:
        table = read_table(path)
        column = find_label_column(list(table.columns))
        texts = [] if column is None else table.texts(column)

    filled = [text for text in texts if not is_missing(text)]
    if column is None or not filled:
        return None
    return UnusedLabels(column, len(filled), tuple(dict.fromkeys(filled)))


def _read_array_items(path: Path, first: int) -> list[Item]:
    # Loads torch, which reading tables does without.
    from teeter.data.array_files import read_pool

    pool = read_pool(path)
    features = np.asarray(pool.features)

    ids = pool.ids
    if ids is None:
        ids = [str(first + k) for k in range(len(features))]

    entries = []
    for item_id, row in zip(ids, features, strict=True):
        entries.append({"id": item_id, "features": row})
    return parse_items(entries, ItemKind.FEATURES)


def _read_table_items(
    source: SourceTable, *, text: str | None, key: str | None, label: str | None
) -> list[Item]:
    table = source.table
    for name in (key, label):
        if name is not None:
            table.require(name)

    names = list(table.columns)
    template = parse_text_template(
        text or find_text_column(names, table.path), [*names, *table.nested], table.path
    )
    texts = _fill_template(template, table)

    id_column = key or _find_id_column(table, template.only_column)
    ids = None if id_column is None else table.ids(id_column)
    labels = None if label is None else table.texts(label)

    entries = []
    for row, content in enumerate(texts):
        entry: dict[str, Any] = {"text": content}
        if ids is not None:
            entry["id"] = ids[row]
        if labels is not None:
            entry["label"] = labels[row]
        entries.append(entry)

    items = parse_items(entries, ItemKind.TEXT)
    return _attach_rows(items, source.rows(id_column), template.only_column)


def _fill_template(template: TextTemplate, table: Table) -> list[str]:
    """Return the text of every row.

    Raises:
        InputError: If a column has no texts, or if a row has none.
    """
    for name in template.columns:
        if name in table.nested:
            raise InputError(
                f"Column {name!r} of {table.path} holds lists, objects or bytes: choose a column "
                f"of texts."
            )

    columns = {name: table.texts(name) for name in template.columns}
    texts = []
    for row in range(len(table)):
        content = template.fill({name: cells[row] for name, cells in columns.items()})
        if not content.strip():
            described = " and ".join(repr(name) for name in template.columns)
            subject = "Column" if len(columns) == 1 else "Columns"
            are_blank = "is blank" if len(columns) == 1 else "are blank"
            raise InputError(
                f"{subject} {described} of {table.path} {are_blank} in {table.place(row)}: give "
                "every row a text."
            )
        texts.append(content)
    return texts


def _attach_rows(
    items: Sequence[Item], rows: Sequence[TableRow], text_column: str | None = None
) -> list[Item]:
    """Return items with the rows of the one table that they came from."""
    if rows and text_column is not None:
        table = replace(rows[0].table, text_column=text_column)
        rows = [replace(row, table=table) for row in rows]
    return [replace(item, row=row) for item, row in zip(items, rows, strict=True)]


def _find_id_column(table: Table, text_column: str | None) -> str | None:
    for name in table.columns:
        if name.lower() in ("id", "ids") and name != text_column:
            return name

    return None


def _read_jsonl_items(
    path: Path, *, text: str | None, key: str | None, label: str | None
) -> list[Item]:
    objects = list(read_json_objects(require_file(path, JSONL_SUFFIXES, "a file of JSON lines")))

    # A dict keeps the order of the fields, for the hint in the error message.
    field_names = dict.fromkeys(name for _, fields in objects for name in fields)
    for name in (key, label):
        if name is not None and name not in field_names:
            raise UnknownNameError(
                f"No line of {path} has a field {name!r}. {did_you_mean(name, list(field_names))}"
            )

    template = None
    if text is not None and text not in field_names and ("{" in text or "," in text):
        template = parse_text_template(text, list(field_names), path)

    entries = []
    for line, fields in objects:
        if template is None:
            content = _text_of_line(fields, text, line, path)
        else:
            cells = {name: format_cell(fields.get(name)) for name in template.columns}
            content = template.fill(cells)

        entries.append(
            {
                "id": fields.get(key or "id"),
                "text": content,
                "label": fields.get(label) if label else None,
            }
        )

    id_column = key or ("id" if "id" in field_names else None)
    rows = rows_from_mappings([fields for _, fields in objects], id_column)
    text_fields = {text or _find_text_field(fields) for _, fields in objects}
    has_text_field = template is None and len(text_fields) == 1
    text_column = text_fields.pop() if has_text_field else None
    return _attach_rows(parse_items(entries, ItemKind.TEXT), rows, text_column)


def _text_of_line(fields: Mapping[str, Any], text: str | None, line: int, path: Path) -> str:
    text_field = text or _find_text_field(fields)
    content = fields.get(text_field)
    if not isinstance(content, str):
        raise InputError(
            f"Line {line} of {path} has no text in {text_field!r}: choose another text column "
            "(text=)."
        )
    return content


def _find_text_field(fields: Mapping[str, Any]) -> str:
    for name in TEXT_COLUMNS:
        if name in fields:
            return name

    return "text"


def require_format(form: str, kind: str, labelled_classes: int) -> None:
    """Check that a campaign can be exported in a format.

    Args:
        form: One of ``FORMATS``.
        kind: What the items are, one of ``ItemKind``.
        labelled_classes: How many classes have a label.

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
    if form == "cleanlab" and labelled_classes < 2:
        raise InputError(CLEANLAB_NEEDS_LABELS)

    if form == "spacy" and find_spec("spacy") is None:
        raise MissingExtraError("Writing this format needs spaCy: pip install spacy.")
    if form in ("parquet", "datasets"):
        require_pyarrow()


Writer: TypeAlias = Callable[[Iterable[ExportRow], ExportColumns, Path], None]


def write_export(
    rows: Iterable[ExportRow],
    path: Path,
    form: str | None = None,
    *,
    tables: Sequence[ImportedTable] = (),
) -> None:
    """Write items with their labels and predictions to a file or folder.

    ``csv`` writes every cell exactly as it is, for programs. Spreadsheet programs run a cell that
    begins with ``=``, ``+``, ``-`` or ``@`` as a formula, and an annotated text may be such a cell
    on purpose. ``spreadsheet`` is the same table for people to open: it puts an apostrophe
    before every such cell and column name, but not before numbers.

    Args:
        rows: The items. A few are in memory at a time. Parquet and ``datasets`` read them twice,
            and an iterator, which can be read only once, into memory.
        path: The file, or the folder for ``datasets`` and ``image-folder``.
        form: One of ``FORMATS``. By default it follows from the suffix of the path: .csv, .jsonl,
            .parquet, or none for ``datasets``.
        tables: The tables that the items came from. Their columns come first, in their order.

    Raises:
        InputError: If no form is given and the suffix is of none.
        UnknownNameError: If no form has this name.
        FileError: If the file cannot be written.
        MissingExtraError: If Parquet is written and pyarrow is not installed.
    """
    if form is not None and form not in FORMATS:
        raise UnknownNameError(f"No format is called {form!r}. {did_you_mean(form, FORMATS)}")

    if form is None:
        form = _FORM_OF_SUFFIX.get(path.suffix.lower())
    if form is None:
        raise InputError(
            f"Cannot tell the format of {path}: use the suffix .csv, .jsonl or .parquet, or choose "
            f"a format from "
            f"{', '.join(FORMATS)}."
        )

    try:
        FORMATS[form](rows, ExportColumns(tables, _COLUMNS), path)
    except OSError as error:
        raise FileError(f"Cannot write {path}: {error.strerror or error}.") from None


def format_suffix(form: str) -> str:
    """Return the suffix of files of a format; empty for a folder.

    Example:
        >>> format_suffix("spreadsheet"), format_suffix("prodigy"), format_suffix("datasets")
        ('.csv', '.jsonl', '')
    """
    return _SUFFIX_OF_FORM[form]


def _to_dict(row: ExportRow) -> dict[str, Any]:
    """Return an item for JSON."""
    return {
        "id": row.id,
        "content": row.content,
        "label": row.label,
        "annotators": row.annotators,
        "predicted": row.predicted,
        "confidence": row.confidence,
        "left_out": row.left_out,
        "agreement": row.agreement,
        "decided_by": row.decided_by,
        "answers": dict(row.answers),
        "final_label": row.final_label,
        "labelled_by": str(row.labelled_by),
        "certificate": row.certificate,
    }


def _to_cells(row: ExportRow) -> dict[str, Any]:
    """Return an item for a table, in which the answers of all annotators are one JSON text."""
    cells = _to_dict(row)
    cells["answers"] = None
    if row.answers:
        cells["answers"] = json.dumps(dict(row.answers), ensure_ascii=False)

    return cells


_COLUMNS = tuple(
    _to_cells(
        ExportRow(
            id="",
            content=None,
            label=None,
            annotators=0,
            predicted=None,
            confidence=None,
            left_out=False,
        )
    )
)


def _write_csv(rows: Iterable[ExportRow], columns: ExportColumns, path: Path) -> None:
    _write_csv_rows(path, columns.names, (_csv_cells(row, columns) for row in rows))


def _write_spreadsheet(rows: Iterable[ExportRow], columns: ExportColumns, path: Path) -> None:
    escaped_rows = (_escape_formulas(_csv_cells(row, columns)) for row in rows)
    _write_csv_rows(path, columns.names, escaped_rows, write_name=escape_formula)


def _csv_cells(row: ExportRow, columns: ExportColumns) -> dict[str, Any]:
    imported = columns.text_cells(row.row, row.id)
    return {**imported, **columns.rename_added(_to_cells(row))}


def _escape_formulas(cells: Mapping[str, Any]) -> dict[str, Any]:
    """Escape the texts of a row that a spreadsheet program would run as formulas."""
    escaped = {}
    for name, value in cells.items():
        escaped[name] = escape_formula(value) if isinstance(value, str) else value
    return escaped


def _write_csv_rows(
    path: Path,
    names: Sequence[str],
    rows: Iterable[Mapping[str, Any]],
    write_name: Callable[[str], str] = str,
) -> None:
    with atomic_open(path) as file:
        text = _open_text(file)
        writer = csv.DictWriter(LfCsvStream(text), names)
        writer.writerow({name: write_name(name) for name in names})
        writer.writerows(rows)
        text.detach()


def _open_text(file: BinaryIO) -> io.TextIOWrapper:
    # A lone surrogate, which only JSON can write, becomes a question mark in other files.
    return io.TextIOWrapper(
        file, encoding="utf-8", errors="replace", newline="", write_through=True
    )


def _write_jsonl(rows: Iterable[ExportRow], columns: ExportColumns, path: Path) -> None:
    _write_json_lines(path, (_json_fields(row, columns) for row in rows))


def _json_fields(row: ExportRow, columns: ExportColumns) -> dict[str, Any]:
    imported = columns.json_cells(row.row, row.id)
    return {**imported, **columns.rename_added(_to_dict(row))}


def _write_json_lines(path: Path, objects: Iterable[Mapping[str, Any]]) -> None:
    with atomic_open(path) as file:
        text = _open_text(file)
        for fields in objects:
            text.write(_json_line(fields))
        text.detach()


def _json_line(fields: Mapping[str, Any]) -> str:
    line = json.dumps(fields, ensure_ascii=False)
    try:
        line.encode()
    except UnicodeEncodeError:
        line = json.dumps(fields)
    return line + "\n"


def _write_parquet(rows: Iterable[ExportRow], columns: ExportColumns, path: Path) -> None:
    rows = _make_rereadable(rows)
    arrow_columns = choose_arrow_columns(columns, rows)

    with (
        atomic_open(path) as file,
        ParquetRows(file, columns, arrow_columns, _ADDED_TYPES) as writer,
    ):
        for row in rows:
            writer.write(row.row, row.id, _to_cells(row))


def _make_rereadable(rows: Iterable[ExportRow]) -> Iterable[ExportRow]:
    return list(rows) if isinstance(rows, Iterator) else rows


# A column that is empty in all rows would have the type null, so the types are given.
_ADDED_TYPES = {
    "annotators": "int64",
    "left_out": "bool",
    "confidence": "float64",
    "agreement": "float64",
}


def _write_datasets(rows: Iterable[ExportRow], columns: ExportColumns, path: Path) -> None:
    """Write a folder for ``datasets.load_dataset``, with labelled items as the split train."""
    rows = _make_rereadable(rows)
    arrow_columns = choose_arrow_columns(columns, rows)
    path.mkdir(parents=True, exist_ok=True)

    with ExitStack() as stack:
        writers = {}
        for split in ("train", "unlabelled"):
            file = stack.enter_context(atomic_open(path / f"{split}.parquet"))
            writer = ParquetRows(file, columns, arrow_columns, _ADDED_TYPES)
            writers[split] = stack.enter_context(writer)

        for row in rows:
            if row.left_out:
                continue
            # A missing label would be a class of its own for most trainers, hence two splits.
            split = "unlabelled" if row.label is None else "train"
            writers[split].write(row.row, row.id, _to_cells(row))

    atomic_write(path / "README.md", _DATASET_CARD.encode())


def _write_prodigy(rows: Iterable[ExportRow], columns: ExportColumns, path: Path) -> None:
    _write_json_lines(path, _prodigy_examples(rows, columns))


def _prodigy_examples(
    rows: Iterable[ExportRow], columns: ExportColumns
) -> Iterator[dict[str, Any]]:
    for row in rows:
        if row.label is None and not row.left_out:
            continue
        # Prodigy rejects an example, where a campaign flags an item.
        answer = "reject" if row.left_out else "accept"
        meta = {"id": row.id}
        yield {
            **shown_content(row),
            "label": row.label,
            "answer": answer,
            "meta": {**columns.json_cells_beside(meta, row.row, row.id), **meta},
        }


def _write_doccano(rows: Iterable[ExportRow], columns: ExportColumns, path: Path) -> None:
    _write_json_lines(path, _doccano_examples(rows, columns))


def _doccano_examples(
    rows: Iterable[ExportRow], columns: ExportColumns
) -> Iterator[dict[str, Any]]:
    for row in rows:
        if row.label is None or row.left_out:
            continue
        fields = {"id": row.id, **shown_content(row), "label": [row.label]}
        # doccano shows all other fields beside the text.
        yield {**columns.json_cells_beside(fields, row.row, row.id), **fields}


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
them.
"""

FORMATS: dict[str, Writer] = {
    "csv": _write_csv,
    "spreadsheet": _write_spreadsheet,
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
    ".jsonl": "jsonl",
    ".parquet": "parquet",
    "": "datasets",
}

_SUFFIX_OF_FORM = {
    "csv": ".csv",
    "spreadsheet": ".csv",
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
