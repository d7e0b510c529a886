"""Items to label: a text, an image in a folder, or a vector of features, each with an id."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from teeter.base.array_types import Vectors
from teeter.base.files import resolve_inside
from teeter.campaigns.items.columns import (
    TableRow,
    format_cell,
    normalize_cell,
    replace_surrogates,
    rows_from_mappings,
)
from teeter.campaigns.records import ITEM_FIELDS, ROW_FIELDS, ItemKind, join_labels
from teeter.data.table_files import refuse_frame
from teeter.encoders import format_card
from teeter.encoders.images import find_images
from teeter.errors import FileError, InputError

_MAX_QUOTED_ID = 60
"""Characters of an id that error messages show."""

_MAX_QUOTED_ENTRY = 80
"""Characters of an invalid entry that error messages show."""

_MAX_CARD_CELL = 1_000
"""Characters of a cell that a card shows. The column has them all."""

_UNPRINTABLE_CATEGORIES = ("Cc", "Zl", "Zp")
"""The Unicode categories of control characters, line separators and paragraph separators."""


HASH_DIGITS = 12
"""Digits of the digest that are the id of an item without one."""


@dataclass(frozen=True, eq=False)
class Item:
    """One item to label."""

    key: str
    """Its id, which is unique in a campaign."""
    kind: str
    """One of ``ItemKind``."""
    content: str | None
    """The text, or the path of the image inside the campaign's folder."""
    digest: str
    """A hash of the text, of the image file or of the features, to recognise duplicates."""
    features: Vectors | None = None
    label: str | None = None
    """Its class, if it came with one."""
    row: TableRow | None = None
    """The row of the table that it came from, with all columns."""


def parse_items(
    entries: Iterable[Any], kind: str, folder: Path | None = None, *, rows: bool = False
) -> list[Item]:
    """Return items from the forms that users pass.

    Args:
        entries: Texts or paths, pairs of an id and a text or path, dictionaries, or items. A
            dictionary has ``text`` (or ``image``) and may have ``id``, ``label`` and ``features``.
            Its other entries are columns, which stay with the item.
        kind: One of ``ItemKind``.
        folder: The folder that images are in.
        rows: Whether items are whole rows of a table. A dictionary is then a row: all its entries
            but ``id`` and ``label`` are columns, and its text is a card with a line per column.

    Raises:
        InputError: If an entry is not an item of this kind.
        FileError: If an image is missing, or outside the folder.

    Example:
        >>> items = parse_items([("a", "one"), {"id": 2, "text": "two", "label": "yes"}], "text")
        >>> [(item.key, item.content, item.label) for item in items]
        [('a', 'one', None), ('2', 'two', 'yes')]
    """
    refuse_frame(entries)
    # A text would become one item per character, and a dictionary one per key.
    is_single = isinstance(entries, str | bytes | Path | Mapping)
    if is_single or not hasattr(entries, "__iter__"):
        raise InputError(
            f"Cannot add a {type(entries).__name__}: give a list of items, even for a single item."
        )

    fields = ITEM_FIELDS
    if rows:
        fields = ROW_FIELDS
    items = []
    columns = []
    for entry in entries:
        cells: dict[str, Any] = {}
        if isinstance(entry, Mapping):
            cells = {str(name): value for name, value in entry.items() if name not in fields}
        if rows and isinstance(entry, Mapping):
            entry = {name: entry[name] for name in ROW_FIELDS if name in entry}
            if not cells:
                raise InputError(
                    "The items of this campaign are rows: give each a dictionary of columns."
                )

            card = {}
            for column, given in cells.items():
                # A column without a name is an index, such as pandas writes.
                if column:
                    cell, _ = normalize_cell(given, column)
                    card[column] = format_card_cell(format_cell(cell))
            entry["text"] = format_card(card)
        items.append(_parse_item(entry, kind, folder))
        columns.append(cells)

    if not any(columns):
        return items
    table_rows = rows_from_mappings(columns)
    for place, cells in enumerate(columns):
        if cells:
            items[place] = replace(items[place], row=table_rows[place])
    return items


def format_card_cell(cell: str) -> str:
    """Return a cell as a card shows it: its beginning, without what a text cannot hold."""
    shortened = cell[:_MAX_CARD_CELL].replace("\0", "\N{SYMBOL FOR NULL}")
    return str(replace_surrogates(shortened))


def _parse_item(entry: Any, kind: str, folder: Path | None) -> Item:
    if isinstance(entry, Item):
        return entry

    fields = _as_mapping(entry, kind)

    vector = None
    if fields.get("features") is not None:
        vector = parse_vector(fields["features"], fields.get("id"))

    content = None
    if kind == ItemKind.FEATURES:
        if vector is None:
            raise InputError(
                "One of the items has no features, but every item of this campaign must have them."
            )
        data = vector.tobytes()
    else:
        content = fields.get(kind)
        if not isinstance(content, str) or not content.strip():
            quoted = str(dict(fields))
            if len(quoted) > _MAX_QUOTED_ENTRY:
                quoted = quoted[: _MAX_QUOTED_ENTRY - 3] + "…"
            raise InputError(f"An item has no {kind}: {quoted}.")
        require_valid_unicode(content, kind)
        data = content.encode()

    if kind == ItemKind.IMAGE:
        # An image without an id is known by its path. Its digest is of the file's content, so that
        # the same image under two names is a duplicate.
        data = resolve_inside(str(content), folder).read_bytes()
        fields = {"id": content, **fields}

    # Other items without an id are known by the hash of their data.
    item_id = _as_text(fields.get("id"), "id")
    given = fields.get("label")
    if isinstance(given, list | tuple | set | frozenset):
        given = join_labels(_as_text(name, "label") for name in given)
    label = _as_text(given, "label").strip()
    digest = content_digest(data)
    return Item(
        key=item_id or digest[:HASH_DIGITS],
        kind=kind,
        content=content,
        digest=digest,
        features=vector,
        label=label or None,
    )


def _as_mapping(entry: Any, kind: str) -> Mapping[str, Any]:
    """Return what a user passed for one item as a dictionary."""
    if isinstance(entry, Mapping):
        return entry
    if isinstance(entry, str | Path):
        return {kind: str(entry)}
    if isinstance(entry, tuple) and len(entry) == 2:
        return {
            "id": entry[0],
            kind: entry[1],
        }

    # A bare vector has no id, and equal vectors may be different items.
    bare = "" if kind == ItemKind.FEATURES else f"a string with the {kind}, "
    raise InputError(
        f"An item cannot be of type {type(entry).__name__}: give {bare}an (id, {kind}) pair or a "
        "dict."
    )


def content_digest(data: bytes) -> str:
    """Return a hash of the content of an item, by which duplicates are recognised."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _as_text(value: object, what: str) -> str:
    """Return an id or a label as text; empty if it is missing."""
    if value is None:
        return ""

    text = str(value)
    require_valid_unicode(text, what)
    return text


def require_valid_unicode(text: str, what: str) -> None:
    """Raise InputError if a text has characters that not every database can store.

    These are NUL, which PostgreSQL cannot store, and lone surrogates, which UTF-8 cannot encode.

    Args:
        text: The text to check.
        what: What the text is, for the error message: ``"label"``.
    """
    position = text.find("\0")
    if position >= 0:
        raise InputError(
            f"The {what} {quote_id(text)} has a NUL character at position {position}, which "
            "databases cannot store: remove it."
        )

    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"The {what} {quote_id(text)} has a lone surrogate at position {error.start}, which "
            "cannot be stored as UTF-8: remove it."
        ) from None


def require_printable(name: str, what: str) -> None:
    """Raise InputError if a name has characters that a terminal or a page could not show.

    Args:
        name: The name to check.
        what: What the name is of, for the error message: ``"class"``.
    """
    require_valid_unicode(name, what)

    for character in name:
        if unicodedata.category(character) in _UNPRINTABLE_CATEGORIES:
            raise InputError(
                f"The {what} {quote_id(name)} has a control character ({character!r}): remove it."
            )


def quote_id(key: str) -> str:
    """Return an id in quotes, on one line and at most 60 characters long.

    Example:
        >>> quote_id("first line" + chr(10) + "second")
        "'first line\\\\nsecond'"
    """
    if len(key) > _MAX_QUOTED_ID:
        key = key[: _MAX_QUOTED_ID - 1] + "…"

    return repr(key)


def read_image_items(folder: Path, root: Path | None = None) -> Iterator[Item]:
    """Yield the images of a folder and of the folders inside it, in the order of their paths.

    Args:
        folder: The folder to search.
        root: The campaign's folder, which contains ``folder``. Ids are paths relative to it. By
            default it is ``folder`` itself.

    Raises:
        FileError: If there is no such folder, if it is outside ``root`` or if it has no images.
    """
    folder = folder.resolve()
    campaign_folder = folder
    if root is not None:
        campaign_folder = root.resolve()

    if campaign_folder not in (folder, *folder.parents):
        raise FileError(
            f"{folder} is not in the campaign's folder {root}: put the new images into the "
            f"campaign's folder first."
        )
    if not folder.is_dir():
        raise FileError(f"{folder} is not a folder of images.")

    for path in find_images(folder):
        relative = path.relative_to(campaign_folder).as_posix()
        yield _parse_item({"image": relative}, ItemKind.IMAGE, campaign_folder)


def parse_vector(values: Any, key: object) -> Vectors:
    """Return a vector of finite float32 numbers: (D,)."""
    what = "An item's features"
    if key is not None:
        what = f"The features of {quote_id(str(key))}"

    # Converting a masked array would turn masked numbers into whatever lies below the mask.
    if np.ma.is_masked(values):
        raise InputError(f"{what} have masked values: fill them in, or leave the item out.")

    try:
        # Numbers too large for float32 become infinite, and are refused below.
        with np.errstate(over="ignore"):
            vector = np.ascontiguousarray(values, dtype=np.float32)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{what} are not numbers.") from None

    if vector.ndim != 1 or len(vector) == 0:
        raise InputError(
            f"{what} must be a list of finite numbers, but have the shape {vector.shape}."
        )

    invalid = np.flatnonzero(~np.isfinite(vector))
    if len(invalid):
        position = invalid[0]
        raise InputError(
            f"{what} must be a list of finite numbers, but the value at position {position} is "
            f"{vector[position]}."
        )

    return vector
