"""Add items to a campaign: skip duplicates, record labels, draw the audit set, store features.

An encoder is loaded and fitted before anything is written, so that an error leaves nothing behind.
Then the items are stored in one transaction, and encoded afterwards, part by part.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from teeter.base.seeds import stream_seed
from teeter.base.wording import pluralize
from teeter.campaigns.items.item import Item, quote_id
from teeter.campaigns.learning.encoding import (
    USER_ENCODER,
    PreparedEncoder,
    prepare_encoder,
    store_encoding,
)
from teeter.campaigns.records import Answer, AnswerKind, ImportResult
from teeter.campaigns.review.consensus import majority_labels
from teeter.campaigns.settings import IMPORTED
from teeter.campaigns.store import CampaignStore, StoredEncoding, StoredItem, Writing
from teeter.campaigns.store.queries.items import Deduplicated, deduplicate
from teeter.data.table_files import is_missing
from teeter.encoders import AUTO, EncoderFunction, Vectors, run_encoder
from teeter.errors import InputError


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
    who: str,
) -> tuple[ImportResult, PreparedEncoder | None]:
    """Add items with their labels and the features they came with, in one transaction.

    Args:
        items: The items to add. Those whose content the campaign has are skipped and reported.
        encoder: A function that computes the features of all items of the campaign together.

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
            deduplicated = deduplicate(items, view.items.comparable(items))
            labels = _collect_labels(deduplicated, view.classes.names())

        new = deduplicated.new
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
            prepared = _prepare(store, current, new)

        with store.writing() as change:
            # Another process was faster. Its items must be compared with ours.
            if change.items.newest_row_id() != newest_row_id:
                continue

            added, duplicates = change.items.add(items, who)
            rows = [
                (key, item.key, item.row) for key, item in deduplicated.all if item.row is not None
            ]
            if rows:
                change.tables.add(rows)
            if vectors:
                _write_own_features(change, vectors, encoder is not None, who)
            if prepared is not None:
                store_encoding(change, prepared)

            labelled, conflicts = _write_labels(change, labels)
            audit = _extend_audit_set(change, len(added), who)

        result = ImportResult(
            new=len(added),
            duplicates=len(duplicates),
            labelled=labelled,
            conflicts=len(conflicts),
            duplicate_items=tuple(duplicates),
            conflicting_items=tuple(conflicts),
            audit=audit,
        )
        return result, prepared


def _collect_labels(deduplicated: Deduplicated, classes: Sequence[str]) -> list[tuple[str, str]]:
    """Return the labels that came with items, by the id under which an item is stored."""
    labels = []
    for key, item in deduplicated.all:
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
) -> PreparedEncoder | None:
    """Return the encoder for the new items without features; None if all items have features."""
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

    name = store.settings.encoder if has_own_features else None
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


def _extend_audit_set(
    change: Writing,
    n_added: int,
    who: str,
) -> int:
    """Draw items for the audit set from those without an answer, and return its size.

    At least half of all items are left to train on. An audit set that had its full size grows in
    proportion to the items, so that it stays a random sample of all. Withdrawn items are never
    measured, so they count neither in its size nor as items.

    Args:
        n_added: How many items the import has added. They are the last ones.
    """
    if not change.settings.audit:
        return 0

    stored = change.items.all()
    items = [item for item in stored if item.withdrawn is None]
    size = sum(item.audit for item in items)

    # An item with an answer may have been trained on, or was picked because it is hard.
    answered = {answer.item for answer in change.answers.live()}
    unseen = [item for item in items if not item.audit and item.item_id not in answered]
    seed = stream_seed(change.settings.seed, "audit", len(stored))
    generator = np.random.default_rng(seed)
    drawn: list[StoredItem] = []

    # With withdrawn items: a set that was full still grows in proportion after a withdrawal.
    n_before = len(items) - n_added
    was_full = sum(item.audit for item in stored) >= change.settings.audit
    if was_full and n_before:
        # Rounding up at random keeps the share on average, also for items that come one by one.
        growth = int(size / n_before * n_added + generator.random())
        # A withdrawal of other items may have left it with more than half of all.
        growth = min(growth, max(0, len(items) // 2 - size))
        added = {item.item_id for item in items[n_before:]}
        drawn += _draw([item for item in unseen if item.item_id in added], growth, generator)

    missing = min(change.settings.audit, len(items) // 2) - size - len(drawn)
    if missing > 0:
        taken = {item.item_id for item in drawn}
        left = [item for item in unseen if item.item_id not in taken]
        drawn += _draw(left, missing, generator)

    if drawn:
        item_ids = [item.item_id for item in sorted(drawn, key=lambda item: item.row_id)]
        change.items.add_to_audit_set(item_ids, who)
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
