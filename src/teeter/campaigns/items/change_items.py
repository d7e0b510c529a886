"""Add items to a campaign, change them when it has begun, take them out of it, and put them back.

Adding skips duplicates, records labels, draws the holdout and stores features. An encoder is
loaded and fitted before anything is written, so that an error leaves nothing behind. Then the items
are stored in one transaction, and encoded afterwards, part by part.

Answers stay with their items whatever happens to these. The history has the old and the new content
of an item that was changed, so it shows what every annotator saw.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from teeter.base.seeds import stream_seed
from teeter.base.wording import list_some, pluralize
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
    Item,
    content_digest,
    format_card_cell,
    parse_vector,
    quote_id,
    require_valid_unicode,
)
from teeter.campaigns.learning.encoding import (
    USER_ENCODER,
    PreparedEncoder,
    load_encoder,
    make_campaign_encoder,
    prepare_encoder,
    store_encoding,
)
from teeter.campaigns.records import Answer, AnswerKind, ImportResult, ItemKind
from teeter.campaigns.review.consensus import majority_labels
from teeter.campaigns.settings import IMPORTED, Settings
from teeter.campaigns.store import (
    CampaignStore,
    Reading,
    StoredEncoding,
    StoredItem,
    Writing,
)
from teeter.campaigns.store.queries.imported_tables import StoredRow
from teeter.campaigns.store.queries.items import deduplicate
from teeter.data.table_files import is_missing
from teeter.encoders import AUTO, EncoderFunction, Vectors, format_card, parse_card, run_encoder
from teeter.errors import InputError, UnknownItemError

_MAX_NAMED = 5
"""Unknown items that an error names."""


def require_kind(items: Sequence[Item], kind: str) -> None:
    """Raise InputError if an item is of another kind than the campaign."""
    for item in items:
        if item.kind != kind:
            raise InputError(
                f"The items of this campaign are of kind {kind}, but {quote_id(item.key)} is of "
                f"kind {item.kind}."
            )


def store_items(
    store: CampaignStore,
    items: Sequence[Item],
    *,
    encoder: EncoderFunction | None,
    encode_now: bool,
    who: str,
) -> tuple[ImportResult, PreparedEncoder | None]:
    """Add items with their labels and the features they came with, in one transaction.

    Args:
        items: The items to add. Those whose content the campaign has are skipped and reported.
        encoder: A function that computes the features of all items of the campaign together.
        encode_now: Whether the items are about to be encoded.

    Returns:
        What happened, and the encoder for the items without features; None if all have features.

    Raises:
        InputError: If ids collide, or if features are missing or do not fit the existing ones.
        UnknownNameError: If a label is not a class of the campaign.
    """
    while True:
        with store.reading() as view:
            current = view.encodings.current()
            newest_row_id = view.items.newest_row_id()
            n_stored = view.items.count()
            new, _, by_stored_id = deduplicate(items, view.items.comparable(items))
            labels = _collect_labels(by_stored_id, view.classes.names())

        vectors: dict[str, Vectors] = {}
        prepared = None
        if encoder is not None and any(item.features is None for item in new):
            with store.reading() as view:
                stored = view.items.all()
            # All items at once, so old features may not match those of new items.
            contents = {item.item_id: item.content or "" for item in stored}
            contents |= {item.key: item.content or "" for item in new}
            features = run_encoder(encoder, list(contents.values()))
            vectors = dict(zip(contents, features, strict=True))
        else:
            vectors = {item.key: item.features for item in new if item.features is not None}
            if vectors and n_stored and current is None:
                raise InputError(
                    "The items of this campaign wait to be encoded, so new items cannot bring "
                    "features: run teeter campaign encode first, or leave the features out."
                )
            prepared = _prepare(store, current, new, encode_now=encode_now)

        with store.writing() as change:
            # Another process was faster. Its items must be compared with ours.
            if change.items.newest_row_id() != newest_row_id:
                continue

            added, duplicates = change.items.add(items, who)
            rows = [(key, item.key, item.row) for key, item in by_stored_id if item.row is not None]
            if rows:
                change.tables.add(rows)
            if vectors:
                _write_own_features(change, vectors, encoder is not None, who)
            if prepared is not None:
                store_encoding(change, prepared)

            labelled, conflicts = _write_labels(change, labels)
            holdout = _extend_holdout(change, len(added), who)

        result = ImportResult(
            new=len(added),
            duplicates=len(duplicates),
            labelled=labelled,
            conflicts=len(conflicts),
            duplicate_items=tuple(duplicates),
            conflicting_items=tuple(conflicts),
            holdout=holdout,
        )
        return result, prepared


def _collect_labels(
    items: Sequence[tuple[str, Item]], classes: Sequence[str]
) -> list[tuple[str, str]]:
    """Return the labels that came with items, by the id under which an item is stored."""
    labels = []
    for key, item in items:
        if item.label is None:
            continue
        # A table may write NA for a missing label, but a class may also be called NA.
        if item.label in classes or not is_missing(item.label):
            labels.append((key, item.label))

    return labels


def _prepare(
    store: CampaignStore,
    current: StoredEncoding | None,
    new: Sequence[Item],
    *,
    encode_now: bool,
) -> PreparedEncoder | None:
    """Return the encoder for the new items without features; None if none is needed now."""
    missing = [item for item in new if item.features is None]
    if not missing:
        return None

    names_encoder = store.settings.encoder not in (None, AUTO)
    is_users = current is not None and current.encoder == USER_ENCODER
    has_own_features = len(missing) < len(new) or is_users
    if has_own_features and not names_encoder:
        lacking = pluralize(len(missing), "item has", "items have")
        raise InputError(
            f"{lacking} no features, but you gave features for the others: give features for all "
            f"items, or choose an encoder."
        )

    if not encode_now and not has_own_features:
        # An encoder that was named must exist. The best one is there, and takes seconds to load.
        if names_encoder and current is None:
            make_campaign_encoder(store.settings)
        return None

    name = None
    if has_own_features:
        name = store.settings.encoder
    contents = [item.content or "" for item in missing]
    return prepare_encoder(store, name=name, new_contents=contents)


def _write_own_features(
    change: Writing,
    vectors: dict[str, Vectors],
    replaces_all: bool,
    who: str,
) -> None:
    """Store features that came with items, or that a user's function computed.

    Args:
        vectors: By item id.
        replaces_all: Whether these are the features of all items, and replace any others.
    """
    current = change.encodings.current()

    if current is None or (replaces_all and current.encoder != USER_ENCODER):
        current = change.encodings.add(USER_ENCODER)
        change.encodings.make_current(current.row_id)

    change.encodings.write(current.row_id, vectors)
    detail = {"by": USER_ENCODER, "items": len(vectors)}
    change.history.append(who, "encoded", None, detail)

    # Features that came with new items must be as long as those of the rest.
    change.encodings.require_equal_lengths(current.row_id)


def _write_labels(
    change: Writing, labels: Sequence[tuple[str, str]]
) -> tuple[int, list[tuple[str, str, str]]]:
    """Record the labels that came with items, if they have none.

    Returns:
        How many items got a label, and the conflicts: the id, the new label and the one kept.
    """
    count = 0
    conflicts = []
    labels_now: dict[str, str] = {}
    if labels:
        labels_now = majority_labels(change.answers.live())

    # Raises UnknownNameError, also for a label that changes nothing.
    current_names = {}
    for label in dict.fromkeys(label for _, label in labels):
        _, current_names[label] = change.classes.find(label)

    for key, given_label in labels:
        label = current_names[given_label]
        if key not in labels_now:
            answer = Answer(key, IMPORTED, AnswerKind.LABEL, label)
            # An item without a label has no answer of the file.
            change.answers.record(answer, allow_repeat=True)
            labels_now[key] = label
            count += 1
        elif labels_now[key] != label:
            conflicts.append((key, label, labels_now[key]))

    return count, conflicts


def _extend_holdout(
    change: Writing,
    n_added: int,
    who: str,
) -> int:
    """Draw items for the holdout from those without an answer, and return its size.

    At least half of all items are left to train on. A holdout that had its full size grows in
    proportion to the items, so that it stays a random sample of all. Withdrawn items are never
    measured, so they count neither in its size nor as items.

    Args:
        n_added: How many items the import has added. They are the last ones.
    """
    if not change.settings.holdout:
        return 0

    stored = change.items.all()
    items = [item for item in stored if item.withdrawn is None]
    size = sum(item.holdout for item in items)

    # An item with an answer may have been trained on, or was picked because it is hard.
    answered = {answer.item for answer in change.answers.live()}
    unseen = [item for item in items if not item.holdout and item.item_id not in answered]
    seed = stream_seed(change.settings.seed, "holdout", len(stored))
    generator = np.random.default_rng(seed)
    drawn: list[StoredItem] = []

    # With withdrawn items: a set that was full still grows in proportion after a withdrawal.
    n_before = len(items) - n_added
    was_full = sum(item.holdout for item in stored) >= change.settings.holdout
    if was_full and n_before:
        # Rounding up at random keeps the share on average, also for items that come one by one.
        growth = int(size / n_before * n_added + generator.random())
        # A withdrawal of other items may have left it with more than half of all.
        room = max(0, len(items) // 2 - size)
        growth = min(growth, room)
        added = {item.item_id for item in items[n_before:]}
        unseen_added = [item for item in unseen if item.item_id in added]
        drawn += _draw(unseen_added, growth, generator)

    full_size = min(change.settings.holdout, len(items) // 2)
    missing = full_size - size - len(drawn)
    if missing > 0:
        taken = {item.item_id for item in drawn}
        left = [item for item in unseen if item.item_id not in taken]
        drawn += _draw(left, missing, generator)

    if drawn:
        drawn.sort(key=lambda item: item.row_id)
        item_ids = [item.item_id for item in drawn]
        change.items.add_to_holdout(item_ids, who)
    return size + len(drawn)


def _draw(
    items: Sequence[StoredItem], count: int, generator: np.random.Generator
) -> list[StoredItem]:
    """Draw items at random, as many as asked for or all, in their order."""
    count = min(count, len(items))
    if count == 0:
        return []
    positions = generator.choice(len(items), size=count, replace=False)
    return [items[position] for position in sorted(positions)]


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

    if encoding.row_id != current.row_id:
        return False
    vector = view.encodings.vector_of(item.row_id)
    return (vector is None) == (old_vector is None)


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
        changes = {}
        if in_all_rows or number == 0:
            changes = dict(columns)
        if text is not None and row.table.text_column is not None:
            changes.setdefault(row.table.text_column, text)
        changes = _leave_out_equal(row, changes)

        table = row.table
        cells = row.cells
        if changes:
            table, cells = replace_cells(row.table, row.cells, changes)
            before = row.values()
            after = dict(zip(table.names, cells, strict=True))
            for name in changes:
                if before.get(name, ABSENT) is not ABSENT:
                    old_values.setdefault(name, before[name])
                new_values.setdefault(name, after[name])
        # Rows of one id are stored in their order, so those that stay are written with the others.
        new_row = TableRow(table, encode_cells(cells))
        new_rows.append((item.item_id, row.key, new_row))

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
        if before is not ABSENT and after in (before, typed_value(before, types[name])):
            continue
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
