"""Change items of a campaign that has begun, take them out of it, and put them back.

Answers stay with their items whatever happens to these. The history has the old and the new content
of an item that was changed, so it shows what every annotator saw.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from teeter.base.wording import list_some
from teeter.campaigns.items.columns import (
    ABSENT,
    ImportedTable,
    TableRow,
    encode_cells,
    format_cell,
    normalize_cell,
    replace_cells,
    typed_value,
)
from teeter.campaigns.items.item import (
    content_digest,
    format_card_cell,
    parse_vector,
    quote_id,
    require_valid_unicode,
)
from teeter.campaigns.learning.encoding import USER_ENCODER, load_encoder
from teeter.campaigns.records import ItemKind
from teeter.campaigns.settings import Settings
from teeter.campaigns.store import (
    CampaignStore,
    Reading,
    StoredEncoding,
    StoredItem,
    Writing,
)
from teeter.campaigns.store.queries.imported_tables import StoredRow
from teeter.encoders import Vectors, format_card, parse_card, run_encoder
from teeter.errors import InputError, UnknownItemError

_MAX_NAMED = 5
"""Unknown items that an error names."""


def change_item(
    store: CampaignStore,
    item_id: str,
    *,
    text: str | None,
    features: Any | None,
    columns: Mapping[str, Any],
    who: str,
) -> bool:
    """Replace the content or columns of an item, all that is given or nothing.

    See ``Items.change``, which has the same arguments.
    """
    if store.settings.has_rows and text is not None:
        raise InputError(
            "The items of this campaign are rows of a table: change their columns instead of their "
            "text."
        )

    while True:
        with store.reading() as view:
            item = view.items.get(item_id)
            current = view.encodings.current()
            old_vector = view.encodings.vector_of(item.row_id)
            new_text = text
            if store.settings.has_rows and columns:
                new_text = _change_card(view, item, columns)

            content, digest = _new_content(item, new_text, features)
            changes_content = digest != item.digest
            vector = None
            if changes_content or features is not None:
                vector = _given_vector(
                    item, current, has_vector=old_vector is not None, features=features
                )
            changes_features = False
            if vector is not None and old_vector is not None:
                changes_features = not np.array_equal(vector, old_vector)
            if changes_content or changes_features:
                _require_changeable(view, item, digest)

        if changes_content and vector is None and old_vector is not None:
            vector = _encode(store.settings, current, content)

        with store.writing() as change:
            # Another process was faster: start again from what it wrote.
            if change.items.get(item_id) != item:
                continue
            if not _has_same_encoding(change, item, current, old_vector):
                continue

            if changes_content or changes_features:
                # Once more: an item or a promise may have been added while this one was encoded.
                _require_changeable(change, item, digest)
                change.items.change_content(item, content, digest, who)
                if changes_content:
                    change.suggestions.remove_item(item)
                if current is not None:
                    change.encodings.replace_item(item, current.row_id, vector)
                    change.encodings.require_equal_lengths(current.row_id)
            changed_columns = _write_columns(
                change,
                item,
                columns,
                text=content if changes_content else None,
                # The rows of one card are equal, and must stay so.
                in_all_rows=store.settings.has_rows,
                who=who,
            )

        return changes_content or changes_features or changed_columns


def _has_same_encoding(
    view: Reading,
    item: StoredItem,
    current: StoredEncoding | None,
    old_vector: Vectors | None,
) -> bool:
    """Return whether models see an item by the same encoder as before, and as encoded as before.

    The revision of an encoding says nothing about one item: it changes with every part of the items
    that is encoded meanwhile.
    """
    encoding = view.encodings.current()
    if encoding is None or current is None:
        return encoding is current

    vector = view.encodings.vector_of(item.row_id)
    return encoding.row_id == current.row_id and (vector is None) == (old_vector is None)


def _new_content(
    item: StoredItem, text: str | None, features: Any | None
) -> tuple[str | None, str]:
    """Return the content of a changed item, and its digest."""
    if item.kind is ItemKind.FEATURES:
        if text is not None:
            raise InputError("The items of this campaign are features, so they have no text.")
        if features is None:
            return item.content, item.digest
        return None, content_digest(parse_vector(features, item.item_id).tobytes())

    if text is None:
        return item.content, item.digest
    if item.kind is ItemKind.IMAGE:
        raise InputError(
            f"{quote_id(item.item_id)} is an image, which cannot be changed: add the new image, "
            "and withdraw this one."
        )
    if not text.strip():
        raise InputError(f"The new text of {quote_id(item.item_id)} is blank: withdraw the item.")

    require_valid_unicode(text, "text")
    return text, content_digest(text.encode())


def _require_changeable(view: Reading, item: StoredItem, digest: str) -> None:
    """Refuse a content that another item has, or that a promise was made about."""
    same = view.items.with_digest(digest)
    others = [item_id for item_id in same if item_id != item.item_id]
    if others and item.kind is not ItemKind.FEATURES:
        raise InputError(
            f"{quote_id(others[0])} has this text already: withdraw {quote_id(item.item_id)} "
            "instead of changing it."
        )

    # A frozen model has predicted the old text, and its promise counts that prediction.
    finish = view.finishes.newest()
    if finish is not None and item.item_id in json.loads(finish.item_ids):
        raise InputError(
            f"The promise of {finish.started[:10]} rests on the text of {quote_id(item.item_id)}: "
            "withdraw the item, and add the new text as another item."
        )


def _given_vector(
    item: StoredItem,
    current: StoredEncoding | None,
    *,
    has_vector: bool,
    features: Any | None,
) -> Vectors | None:
    """Return the features that came with a change; None if it needs none, or the encoder's."""
    if current is None or not has_vector:
        if features is not None:
            raise InputError(
                f"{quote_id(item.item_id)} has no features yet, so there are none to change: leave "
                "them out."
            )
        return None

    if current.encoder == USER_ENCODER:
        if features is None:
            raise InputError(
                "You supplied the features of this campaign yourself: give the features of the "
                "new text too."
            )
        return parse_vector(features, item.item_id)
    if features is not None:
        raise InputError(
            f"The encoder {current.encoder} computes the features of this campaign: leave them out."
        )

    return None


def _encode(
    settings: Settings, current: StoredEncoding | None, content: str | None
) -> Vectors | None:
    """Return the features of a new text; None in a campaign of features."""
    encoder = load_encoder(settings, current)
    if encoder is None:
        return None
    vectors = run_encoder(lambda texts: encoder.encode(texts).vectors, [content or ""])
    vector: Vectors = vectors[0]
    return vector


# Columns


def _change_card(
    view: Reading,
    item: StoredItem,
    columns: Mapping[str, Any],
) -> str:
    """Return the card of a row with some columns changed."""
    card = parse_card(item.content or "")
    stored = view.tables.for_items([item.row_id]).get(item.row_id)
    # The columns of ids and labels do not stand on the card. Nor does one that the row lacked.
    hidden: set[str | None] = set()
    if stored is not None:
        filled = {name for name, cell in stored.values().items() if cell is not ABSENT}
        hidden.update(filled - set(card))
        hidden.add(stored.table.id_column)

    table, cells = replace_cells(ImportedTable(()), [], columns)
    for name, cell in zip(table.names, cells, strict=True):
        if name and name not in hidden:
            card[name] = format_card_cell(format_cell(cell))
    return format_card(card)


def _write_columns(
    change: Writing,
    item: StoredItem,
    columns: Mapping[str, Any],
    *,
    text: str | None,
    in_all_rows: bool,
    who: str,
) -> bool:
    """Replace columns of an item, and return whether one of them has changed.

    Args:
        text: The new text for the column that the texts came from; None if it stays.
        in_all_rows: Whether all rows of the item get the new values, or only the first.
    """
    rows = change.tables.rows_of_item(item.row_id)
    if not rows:
        rows = [StoredRow(item.item_id, item.item_id, ImportedTable(()), [])]

    new_rows = []
    old_values: dict[str, Any] = {}
    new_values: dict[str, Any] = {}
    for number, row in enumerate(rows):
        changes = dict(columns) if in_all_rows or number == 0 else {}
        if text is not None and row.table.text_column is not None:
            changes.setdefault(row.table.text_column, text)
        changes = _leave_out_equal(row, changes)

        table, cells = row.table, row.cells
        if changes:
            table, cells = replace_cells(row.table, row.cells, changes)
            before = row.values()
            after = dict(zip(table.names, cells, strict=True))
            for name in changes:
                if before.get(name, ABSENT) is not ABSENT:
                    old_values.setdefault(name, before[name])
                new_values.setdefault(name, after[name])
        # Rows of one id are stored in their order, so those that stay are written with the others.
        new_rows.append((item.item_id, row.key, TableRow(table, encode_cells(cells))))

    if not new_values:
        return False
    change.tables.add(new_rows)
    detail = {"from": old_values, "to": new_values}
    change.history.append(who, "columns changed", item.item_id, detail)
    return True


def _leave_out_equal(row: StoredRow, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the changes that change a row. The 4 of a CSV file is equal to the number."""
    types = {column.name: column.type for column in row.table.columns}
    values = row.values()

    different = {}
    for name, value in changes.items():
        before = values.get(name, ABSENT)
        after, _ = normalize_cell(value, name)
        is_equal = before is not ABSENT and after in (before, typed_value(before, types[name]))
        if not is_equal:
            different[name] = value
    return different


def require_items(view: Reading, item_ids: Sequence[str]) -> list[StoredItem]:
    """Return items by their ids, each once.

    Raises:
        UnknownItemError: If one of them does not exist.
    """
    wanted = list(dict.fromkeys(item_ids))
    items = view.items.by_id(wanted)
    missing = [item_id for item_id in wanted if item_id not in items]

    if missing:
        named = list_some([quote_id(item_id) for item_id in missing], _MAX_NAMED)
        raise UnknownItemError(f"The campaign has no item {named}: nothing was changed.")
    return [items[item_id] for item_id in wanted]
