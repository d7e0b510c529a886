"""Read items from tables, data frames, JSON, arrays and folders of images or texts.

A table is read once: for texts, ids and labels, and for the columns to store beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from teeter.base.files import require_file
from teeter.base.registry import did_you_mean
from teeter.base.wording import list_some, pluralize
from teeter.campaigns.items.arrow_columns import read_arrow_rows, select_fields
from teeter.campaigns.items.columns import (
    ImportedTable,
    TableRow,
    csv_column_type,
    decode_cells,
    encode_cells,
    find_added_columns,
    format_cell,
    require_columns,
    rows_from_mappings,
)
from teeter.campaigns.items.image_links import ImageFetcher, is_link
from teeter.campaigns.items.item import Item, format_card_cell, parse_items, read_image_items
from teeter.campaigns.records import ItemColumns, ItemKind, TableColumn
from teeter.data.table_columns import (
    TEXT_COLUMNS,
    TextTemplate,
    find_label_column,
    find_text_column,
    parse_text_template,
)
from teeter.data.table_files import (
    JSON_SUFFIXES,
    TABLE_SUFFIXES,
    CsvRows,
    Table,
    convert_arrow_table,
    convert_csv_rows,
    find_encoding,
    is_missing,
    read_arrow_table,
    read_cells,
    read_json_objects,
    read_table,
)
from teeter.data.workbooks import split_sheet
from teeter.encoders import format_card
from teeter.encoders.images import is_image_name
from teeter.errors import FileError, InputError, UnknownNameError

ARRAY_SUFFIXES = (".npz", ".npy", ".safetensors")


def detect_kind(path: Path) -> ItemKind:
    """Return the kind of the items at a path, from its type and suffix.

    Example:
        >>> detect_kind(Path("reviews.csv")).value, detect_kind(Path("vectors.npz")).value
        ('text', 'features')
    """
    if path.is_dir() and not _is_folder_of_texts(path):
        return ItemKind.IMAGE
    if not path.is_dir() and path.suffix.lower() in ARRAY_SUFFIXES:
        return ItemKind.FEATURES

    return ItemKind.TEXT


def _is_folder_of_texts(folder: Path) -> bool:
    """Return whether a folder has .txt files and no images."""
    has_texts = False
    for file in folder.rglob("*"):
        if is_image_name(file.name):
            return False
        has_texts = has_texts or file.suffix.lower() == ".txt"
    return has_texts


def read_items(
    source: Path | Any,
    columns: ItemColumns | None = None,
    *,
    folder: Path | None = None,
    first: int = 0,
    fetcher: ImageFetcher | None = None,
    rows: bool = False,
    notes: list[str] | None = None,
) -> Sequence[Item]:
    """Read items from a table, a data frame, JSON, arrays, or a folder of images or .txt files.

    All columns of a table stay with its items, and an export returns them, but for those that an
    earlier export has added: they are no columns of the user. A cell of a CSV file or a field of a
    JSON file may have at most 10 million characters. Rows without a text are left out.

    Args:
        source: The file or folder (``book.xlsx#Sheet`` for one of several sheets), or a
            ``pyarrow.Table``.
        columns: What the columns of a table hold.
        folder: The campaign's folder of images, if images are added to it.
        first: The number of the first row of an array file without ids; rows are numbered.
        fetcher: Fetches links. Rows whose images it cannot fetch are left out, and stand in its
            ``errors``.
        rows: Whether items are the rows of a table, with all columns but those of ids and labels.
        notes: Gets sentences on what was left out, and on how the file was read.

    Raises:
        FileError: If the file cannot be read.
        InputError: If texts are missing, or their column is not clear.
        UnknownNameError: If there is no column or field of the given name.
    """
    columns = columns or ItemColumns()
    if notes is None:
        notes = []
    if isinstance(source, Path):
        kind = detect_kind(source)
        if source.is_dir() and kind == ItemKind.TEXT:
            return _read_text_files(source, notes)
        if kind == ItemKind.IMAGE:
            return list(read_image_items(source, folder))
        if kind == ItemKind.FEATURES:
            # Loads torch, which reading tables does without.
            from teeter.data.array_files import read_pool

            pool = read_pool(source)
            features = np.asarray(pool.features)

            ids = pool.ids
            if ids is None:
                numbers = range(first, first + len(features))
                ids = [str(number) for number in numbers]

            entries = []
            for item_id, row in zip(ids, features, strict=True):
                entries.append({"id": item_id, "features": row})
            return parse_items(entries, ItemKind.FEATURES)

        expected = "a file of items"
        if columns.image is not None:
            expected = "a table of images"
        elif rows:
            expected = "a table"
        file, _ = split_sheet(source)
        require_file(file, (*TABLE_SUFFIXES, *JSON_SUFFIXES), expected)

    if columns.image is not None:
        return _read_image_table(source, columns, folder=folder, fetcher=fetcher, notes=notes)
    if rows:
        items = _read_row_items(source, columns, notes)
    elif _is_json(source):
        items = _read_json_items(source, columns, notes)
    else:
        items = _read_table_items(source, columns, notes)
    return _leave_out_added(items, notes)


def _leave_out_added(items: list[Item], notes: list[str]) -> list[Item]:
    """Return the items of a table without the columns that an export has added to it."""
    if items[0].row is None:
        return items
    table = items[0].row.table
    added = set(find_added_columns(table.names).values())
    added -= {table.text_column, table.id_column}
    if not added:
        return items

    left_out = [name for name in table.names if name in added]
    notes.append(
        f"The columns that an earlier export has added were left out: {', '.join(left_out)}."
    )
    positions = [place for place, name in enumerate(table.names) if name not in added]
    own_columns = tuple(table.columns[place] for place in positions)
    schema = table.arrow_schema
    if schema is not None:
        schema = select_fields(schema, positions)
    own_table = replace(table, columns=own_columns, arrow_schema=schema)

    own_items = []
    for item in items:
        if item.row is not None:
            cells = decode_cells(item.row.cells)
            own_cells = encode_cells([cells[place] for place in positions])
            own_row = TableRow(own_table, own_cells)
            own_items.append(replace(item, row=own_row))
    return own_items


def _is_json(source: Any) -> bool:
    return isinstance(source, Path) and source.suffix.lower() in JSON_SUFFIXES


ENCODING_NAMES = {
    "utf-16": "UTF-16",
    "utf-16-le": "UTF-16",
    "utf-16-be": "UTF-16",
    "cp1252": "Windows-1252",
}
"""What encodings of CSV files are called, beside UTF-8."""


def _note_table(notes: list[str], table: Table, blank_rows: Sequence[int]) -> None:
    """Note which rows are left out, and how a file is read that is not UTF-8."""
    places = [f"line {line}" for line in table.blank]
    places += [table.place(row) for row in blank_rows]
    _note_blank(notes, "row", places)
    if table.encoding in ENCODING_NAMES:
        encoding = ENCODING_NAMES[table.encoding]
        notes.append(f"{table.path.name} was read as {encoding}, not as UTF-8.")


def _note_blank(notes: list[str], what: str, places: Sequence[str]) -> None:
    if places:
        were = pluralize(len(places), f"{what} without a text was", f"{what}s without a text were")
        notes.append(f"{were} left out ({list_some(places, 5)}).")


def _read_text_files(folder: Path, notes: list[str]) -> list[Item]:
    """Read a folder of .txt files, each a text whose id is its path in the folder."""
    entries = []
    blank = []
    others = []
    names_by_encoding: dict[str, list[str]] = {}
    for file in sorted(folder.rglob("*")):
        name = file.relative_to(folder).as_posix()
        # Hidden files are those that programs write for themselves.
        if "/." in f"/{name}" or not file.is_file():
            continue
        if file.suffix.lower() != ".txt":
            others.append(name)
            continue
        try:
            encoding = find_encoding(file)
            text = file.read_text(encoding=encoding)
        except UnicodeError:
            raise FileError(
                f"{file} is not UTF-8, UTF-16 or Windows-1252 text: save it as UTF-8."
            ) from None
        except OSError as error:
            raise FileError(f"Cannot read {file}: {error.strerror}.") from None
        if encoding in ENCODING_NAMES:
            encoding_name = ENCODING_NAMES[encoding]
            names_by_encoding.setdefault(encoding_name, []).append(name)
        if text.strip():
            entries.append({"id": name, "text": text})
        else:
            blank.append(name)
    if not entries:
        raise FileError(f"All .txt files of {folder} are blank.")
    _note_blank(notes, "file", blank)
    if others:
        were = pluralize(len(others), "file that is no .txt was", "files that are no .txt were")
        notes.append(f"{were} left out ({list_some(others, 5)}).")
    for encoding, names in names_by_encoding.items():
        were = pluralize(len(names), "file was", "files were")
        notes.append(f"{were} read as {encoding}, not as UTF-8 ({list_some(names, 5)}).")
    return parse_items(entries, ItemKind.TEXT)


def _read_image_table(
    source: Any,
    columns: ItemColumns,
    *,
    folder: Path | None,
    fetcher: ImageFetcher | None,
    notes: list[str],
) -> list[Item]:
    """Read a table with a column of images. Those of links are fetched."""
    # As texts first: what they are called, where they are, and all their columns.
    items = read_items(source, replace(columns, text=columns.image, image=None), notes=notes)
    path = _FRAME
    if isinstance(source, Path):
        path = source

    links = [item.content for item in items if item.content and is_link(item.content)]
    paths: dict[str, str] = {}
    if links:
        if fetcher is None:
            raise InputError(
                f"Column {columns.image!r} of {path} holds links: give a fetcher for them."
            )
        paths = fetcher.fetch_all(links)

    entries = []
    rows = []
    for item in items:
        content = str(item.content)
        if is_link(content) and content not in paths:
            continue
        # Without an id of its own, an item would be known by the hash of its link.
        has_id = item.row is not None and item.row.table.id_column is not None
        entry = {"id": content, "label": item.label, "image": paths.get(content, content)}
        if has_id:
            entry["id"] = item.key
        entries.append(entry)
        rows.append(item.row)

    if not entries and fetcher is not None:
        failed = next(iter(fetcher.errors.values()))
        raise InputError(f"None of the images in {path} could be fetched: {failed}")
    parsed = parse_items(entries, ItemKind.IMAGE, folder)
    return [replace(item, row=row) for item, row in zip(parsed, rows, strict=True)]


def _read_row_items(source: Any, columns: ItemColumns, notes: list[str]) -> list[Item]:
    """Read a table whose rows are the items, each as a card with a line per column."""
    id_column = columns.id
    label = columns.labels
    if _is_json(source):
        objects = [fields for _, fields in read_json_objects(source)]
        if id_column is None and any("id" in fields for fields in objects):
            id_column = "id"
        rows = rows_from_mappings(objects, id_column)
    else:
        table, read_rows = read_source_table(source)
        _note_table(notes, table, [])
        id_column = id_column or _find_id_column(table, None)
        rows = read_rows(id_column)

    names = rows[0].table.names
    added = find_added_columns(names).values()
    require_columns([name for name in (columns.id, label) if name is not None], names)
    entries = []
    filled = []
    blank = []
    for number, row in enumerate(rows):
        texts = map(format_cell, decode_cells(row.cells))
        cells = dict(zip(names, texts, strict=True))
        entry: dict[str, Any] = {}
        if id_column is not None:
            entry["id"] = cells.pop(id_column) or None
        if label is not None:
            entry["label"] = cells.pop(label, None)
        if not any(cell.strip() for cell in cells.values()):
            blank.append(f"row {number + 1}")
            continue
        filled.append(row)
        card = {}
        for name, cell in cells.items():
            # A column without a name is an index, such as pandas writes.
            if name and name not in added:
                card[name] = format_card_cell(cell)
        entry["text"] = format_card(card)
        entries.append(entry)

    _note_blank(notes, "row", blank)
    return _attach_rows(parse_items(entries, ItemKind.TEXT), filled)


def column_names(path: Path) -> list[str]:
    """Return the columns of a table or the fields of a JSON file; none for other files."""
    if _is_json(path):
        objects = [fields for _, fields in read_json_objects(path)]
        return list(dict.fromkeys(name for fields in objects for name in fields))
    file, _ = split_sheet(path)
    if path.is_dir() or file.suffix.lower() not in TABLE_SUFFIXES:
        return []
    table = read_table(path)
    return [*table.columns, *table.nested]


def find_unused_labels(path: Path) -> tuple[str, list[str]] | None:
    """Return the column of a file that seems to hold labels and its values, or None.

    Args:
        path: A file that ``read_items`` reads without a column of labels.
    """
    column = find_label_column(column_names(path))
    if column is None:
        return None
    texts: Sequence[str] = []
    if _is_json(path):
        cells = [fields.get(column) for _, fields in read_json_objects(path)]
        texts = [str(cell) for cell in cells if cell is not None]
    else:
        table = read_table(path)
        if column in table.columns:
            texts = table.texts(column)

    filled = [text for text in texts if not is_missing(text)]
    if not filled:
        return None
    return column, filled


def _read_table_items(source: Any, columns: ItemColumns, notes: list[str]) -> list[Item]:
    table, read_rows = read_source_table(source)
    names = list(table.columns)
    all_names = [*names, *table.nested]
    label_columns = _split_label_columns(columns.labels, all_names)
    for name in (columns.id, *label_columns):
        if name is not None:
            table.require(name)

    text = columns.text or find_text_column(names, table.path)
    template = parse_text_template(text, all_names, table.path)
    texts = _fill_template(template, table)
    filled = [row for row, content in enumerate(texts) if content.strip()]
    if not filled:
        described = " and ".join(repr(name) for name in template.columns)
        raise InputError(
            f"No row of {table.path} has a text in {described}: choose another column."
        )
    blank = [row for row, content in enumerate(texts) if not content.strip()]
    _note_table(notes, table, blank)
    # The command line says more of the labels in a file.
    if columns.labels is None and not isinstance(source, Path):
        added = find_added_columns(names).values()
        unused = find_label_column([name for name in names if name not in added])
        if unused is not None:
            notes.append(
                f"Column {unused!r} was not imported as labels: if it holds them, name it with "
                f"ItemColumns(labels={unused!r})."
            )

    id_column = columns.id or _find_id_column(table, template.only_column)
    ids = None
    if id_column is not None:
        ids = table.ids(id_column, filled)
    table_rows = read_rows(id_column)
    labels = _read_labels(table, table_rows, label_columns)

    entries = []
    for position, row in enumerate(filled):
        entry: dict[str, Any] = {"text": texts[row]}
        if ids is not None:
            entry["id"] = ids[position]
        if labels is not None:
            entry["label"] = labels[row]
        entries.append(entry)

    items = parse_items(entries, ItemKind.TEXT)
    filled_rows = [table_rows[row] for row in filled]
    return _attach_rows(items, filled_rows, template.only_column)


_MARKS = {
    **dict.fromkeys(("1", "true", "yes", "x"), True),
    **dict.fromkeys(("0", "false", "no"), False),
}
"""What a cell says in a column for one label, in lower case. A blank one says nothing."""


def _split_label_columns(label: str | None, names: Sequence[str]) -> list[str]:
    """Return the columns of labels: one, or one for each label of items that may have several."""
    if label is None:
        return []
    if label in names or "," not in label:
        return [label]
    return [name.strip() for name in label.split(",")]


def _read_labels(
    table: Table, rows: Sequence[TableRow], columns: Sequence[str]
) -> Sequence[str | list[str]] | None:
    """Return the label of every row, or the list of its labels; None without such columns.

    Raises:
        InputError: If a cell in a column for one label says neither that a row has it nor that not.
    """
    if not columns:
        return None
    if len(columns) == 1 and columns[0] in table.nested:
        position = list(rows[0].table.names).index(columns[0])
        cells = [decode_cells(row.cells)[position] for row in rows]
        return [cell if isinstance(cell, list) else format_cell(cell) for cell in cells]
    if len(columns) == 1:
        return table.texts(columns[0])

    labels: list[str | list[str]] = []
    cells_of_columns = [table.texts(name) for name in columns]
    for number, row_cells in enumerate(zip(*cells_of_columns, strict=True)):
        said = [cell.strip().lower() for cell in row_cells]
        for name, cell in zip(columns, said, strict=True):
            if cell and cell not in _MARKS:
                raise InputError(
                    f"Row {number + 1} of {table.path} has {cell!r} in the column of the label "
                    f"{name!r}: write 1 or 0."
                )
        marked = [name for name, cell in zip(columns, said, strict=True) if _MARKS.get(cell)]
        if any(said):
            labels.append(marked)
        else:
            labels.append("")
    return labels


def _fill_template(template: TextTemplate, table: Table) -> list[str]:
    """Return the text of every row, which may be blank.

    Raises:
        InputError: If a column has no texts.
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
        cells = {name: column[row] for name, column in columns.items()}
        texts.append(template.fill(cells))
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


def _read_json_items(path: Path, columns: ItemColumns, notes: list[str]) -> list[Item]:
    objects = read_json_objects(path)
    text = columns.text
    label = columns.labels

    # A dict keeps the order of the fields, for the hint in the error message.
    field_names = dict.fromkeys(name for _, fields in objects for name in fields)
    for name in (columns.id, label):
        if name is not None and name not in field_names:
            advice = did_you_mean(name, list(field_names))
            raise UnknownNameError(f"No object of {path} has a field {name!r}. {advice}")

    id_column = columns.id
    if id_column is None and "id" in field_names:
        id_column = "id"
    template = None
    if text is not None and text not in field_names and ("{" in text or "," in text):
        template = parse_text_template(text, list(field_names), path)

    entries = []
    filled = []
    blank = []
    for place, fields in objects:
        if template is None:
            text_field = text or _find_text_field(fields)
            content = fields.get(text_field)
            if text_field not in fields or not isinstance(content, str | None):
                raise InputError(
                    f"{place.capitalize()} of {path} has no text in {text_field!r}: choose "
                    "another text column (text=)."
                )
        else:
            cells = {name: format_cell(fields.get(name)) for name in template.columns}
            content = template.fill(cells)

        if content is None or not content.strip():
            blank.append(place)
            continue
        filled.append(fields)
        entry: dict[str, Any] = {"text": content}
        if id_column is not None:
            entry["id"] = fields.get(id_column)
        if label is not None:
            entry["label"] = fields.get(label)
        entries.append(entry)

    if not entries:
        raise InputError(f"No object of {path} has a text: choose another text column (text=).")
    _note_blank(notes, "object", blank)
    rows = rows_from_mappings(filled, id_column)
    text_fields = {text or _find_text_field(fields) for fields in filled}
    text_column = None
    if template is None and len(text_fields) == 1:
        text_column = text_fields.pop()
    items = parse_items(entries, ItemKind.TEXT)
    return _attach_rows(items, rows, text_column)


def _find_text_field(fields: Mapping[str, Any]) -> str:
    for name in TEXT_COLUMNS:
        if name in fields:
            return name

    return "text"


RowReader: TypeAlias = Callable[[str | None], list[TableRow]]
"""Returns all rows of a file as they are stored, given the column of the item ids, if any."""


_FRAME = Path("the data frame")
"""What errors call a table that is no file."""


def read_source_table(source: Any) -> tuple[Table, RowReader]:
    """Read a table or a data frame once, for the items and for their columns.

    Returns:
        Its columns of texts, numbers and vectors; and what returns its rows with all columns.

    Raises:
        FileError: If the file cannot be read or has no usable column.
        MissingExtraError: If it needs a package that is not installed.
    """
    if not isinstance(source, Path):
        return convert_arrow_table(source, _FRAME), partial(read_arrow_rows, source)
    if source.suffix.lower() == ".parquet":
        arrow_table = read_arrow_table(source)
        return convert_arrow_table(arrow_table, source), partial(read_arrow_rows, arrow_table)

    content = read_cells(source)
    return convert_csv_rows(content, source), partial(_csv_table_rows, content)


def _csv_table_rows(content: CsvRows, id_column: str | None) -> list[TableRow]:
    # A file may have one column without a name, such as the index that pandas writes. Spreadsheet
    # programs leave further ones behind, at the end of every line and without a value.
    positions = []
    has_unnamed = False
    for number, name in enumerate(content.names):
        if not name:
            is_filled = any(cells[number] for cells in content.rows)
            if has_unnamed or not is_filled:
                continue
            has_unnamed = True
        positions.append(number)
    columns = []
    for position in positions:
        cells = (row[position] for row in content.rows)
        columns.append(TableColumn(content.names[position], csv_column_type(cells)))

    table = ImportedTable(tuple(columns), id_column=id_column)
    rows = []
    for row in content.rows:
        cells_of_row = [row[position] for position in positions]
        rows.append(TableRow(table, encode_cells(cells_of_row)))
    return rows
