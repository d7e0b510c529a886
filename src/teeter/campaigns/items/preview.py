"""Look into a file of items before a campaign is made of it: its columns, first rows and labels.

Only the beginning of a file is kept in memory. The labels are counted row by row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from teeter.base.registry import require_known
from teeter.base.wording import pluralize
from teeter.campaigns.items.columns import format_cell
from teeter.campaigns.items.image_archives import ARCHIVE_SUFFIX, list_archived_images
from teeter.campaigns.items.image_links import is_link
from teeter.campaigns.items.read_items import ENCODING_NAMES
from teeter.campaigns.records import ItemColumns, SourcePreview
from teeter.data.table_columns import TEXT_COLUMNS, find_label_column
from teeter.data.table_files import (
    JSON_SUFFIXES,
    OpenCells,
    convert_arrow_table,
    is_missing,
    iterate_json_objects,
    open_cells,
    open_parquet,
)
from teeter.data.workbooks import split_sheet
from teeter.encoders.images import describe_left_out_files
from teeter.errors import FileError

_ROWS = 8
"""Rows that are shown."""

_SHOWN_COLUMNS = 50
"""Columns whose cells are shown."""

_SHOWN_CHARACTERS = 200
"""Characters of a cell that are shown."""

_MAX_CLASSES = 200
"""More different values than this are no classes."""


def preview_source(path: Path, labels: str | None = None) -> SourcePreview:
    """Return the columns and the first rows of a file, and the values of its column of labels.

    Args:
        path: a table, JSON or an archive of images. ``book.xlsx#Sheet`` names a sheet; by default
            it is the first one with cells.
        labels: the column to count the values of; by default one with a usual name for labels.

    Raises:
        FileError: if the file cannot be read.
        MissingExtraError: if it needs a package that is not installed.
        UnknownNameError: if there is no such column or sheet.
    """
    file, _ = split_sheet(path)
    suffix = file.suffix.lower()
    if suffix == ARCHIVE_SUFFIX:
        images, left_out = list_archived_images(file)
        notes = [f"The archive has {pluralize(len(images), 'image')}."]
        others = describe_left_out_files(left_out)
        if others:
            notes.append(others)
        return SourcePreview(notes=tuple(notes))
    if suffix in JSON_SUFFIXES:
        return _preview_json(file, labels)
    if suffix == ".parquet":
        return _preview_parquet(file, labels)
    with open_cells(path) as cells:
        return _preview_cells(cells, path, labels)


def _preview_cells(cells: OpenCells, path: Path, labels: str | None) -> SourcePreview:
    rows = (fields for _, fields in cells.rows if fields)
    first = list(islice(rows, _ROWS))
    names = [name for name in cells.names if name]
    shown = [dict(zip(cells.names, fields, strict=True)) for fields in first]
    column = _find_labels(names, labels)
    values: Iterator[str] = iter(())
    if column is not None:
        position = cells.names.index(column)
        values = (fields[position] for part in (first, rows) for fields in part)

    notes = []
    if cells.encoding in ENCODING_NAMES:
        notes.append(f"The file was read as {ENCODING_NAMES[cells.encoding]}, not as UTF-8.")
    return _describe(path, names, shown, column, values, notes=notes, sheets=cells.sheets)


def _preview_json(path: Path, labels: str | None) -> SourcePreview:
    objects = (fields for _, fields in iterate_json_objects(path))
    first = list(islice(objects, _ROWS))
    names = list(dict.fromkeys(name for fields in first for name in fields))
    column = _find_labels(names, labels)
    values: Iterator[str] = iter(())
    if column is not None:
        values = (format_cell(fields.get(column)) for part in (first, objects) for fields in part)
    return _describe(path, names, first, column, values)


def _preview_parquet(path: Path, labels: str | None) -> SourcePreview:
    import pyarrow

    with open_parquet(path) as file:
        batch = next(file.iter_batches(_ROWS), None)
        if batch is None:
            raise FileError(f"{path} has no rows.")
        table = convert_arrow_table(pyarrow.Table.from_batches([batch]), path)
        names = [name for name, column in table.columns.items() if column.ndim == 1]
        cells = [table.texts(name) for name in names]
        first = [dict(zip(names, row, strict=True)) for row in zip(*cells, strict=True)]
        column = _find_labels(names, labels)
        values: Iterator[str] = iter(())
        if column is not None:
            batches = file.iter_batches(columns=[column])
            values = (
                text
                for part in batches
                for text in convert_arrow_table(pyarrow.Table.from_batches([part]), path).texts(
                    column
                )
            )
        return _describe(path, names, first, column, values)


def _find_labels(names: list[str], labels: str | None) -> str | None:
    if labels is not None:
        require_known("column of the file", labels, names)
    return labels or find_label_column(names)


def _describe(
    path: Path,
    names: list[str],
    first: list[dict[str, Any]],
    labels: str | None,
    values: Iterator[str],
    *,
    notes: list[str] | None = None,
    sheets: tuple[str, ...] = (),
) -> SourcePreview:
    """Return a preview. ``values`` are all values in the column of labels."""
    if not first:
        raise FileError(f"{path} has a header ({', '.join(names)}) and no rows.")

    if notes is None:
        notes = []
    counts: Counter[str] = Counter()
    for value in values:
        if not is_missing(value):
            counts[value.strip()] += 1
        if len(counts) > _MAX_CLASSES:
            notes.append(
                f"Column {labels!r} has more than {_MAX_CLASSES} different values: "
                "choose another column of labels, or none."
            )
            counts.clear()
            break

    shown = names[:_SHOWN_COLUMNS]
    rows = []
    for fields in first:
        cells = [format_cell(fields.get(name)) for name in shown]
        rows.append(tuple(cell[:_SHOWN_CHARACTERS] for cell in cells))
    links = []
    for name, *column in zip(shown, *rows, strict=True):
        has_links = all(map(is_link, column))
        if has_links:
            links.append(name)

    by_lower_case = {name.lower(): name for name in reversed(names)}
    texts = [by_lower_case[name] for name in TEXT_COLUMNS if name in by_lower_case]
    image = None
    text = _find_longest(shown, rows, {labels, *links})
    if texts:
        text = texts[0]
    if links and text is None:
        image = links[0]
    if not counts:
        labels = None
    proposed = ItemColumns(
        text=text,
        id=by_lower_case.get("id", by_lower_case.get("ids")),
        labels=labels,
        image=image,
    )
    return SourcePreview(
        columns=tuple(names),
        rows=tuple(rows),
        proposed=proposed,
        classes=tuple(counts.most_common()),
        sheets=sheets,
        links=tuple(links),
        notes=tuple(notes),
    )


def _find_longest(
    names: list[str], rows: list[tuple[str, ...]], taken: set[str | None]
) -> str | None:
    """Return the column with the longest texts, if it is neither labels nor links."""
    lengths = {
        name: sum(map(len, cells))
        for name, *cells in zip(names, *rows, strict=True)
        if name not in taken
    }
    return max(lengths, key=lambda name: lengths[name], default=None)
