"""Add items to a campaign: skip duplicates, encode new items, record labels, draw the audit set.

Encoding takes long, so it happens outside any transaction, and other processes can write meanwhile.
If one of them adds items in that time, everything is done again: the built-in encoders encode all
items together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from teeter.campaigns.consensus import majority_labels
from teeter.campaigns.db import Answer, CampaignRepository, Connection, Database, StoredItem
from teeter.campaigns.db.items import Deduplicated, deduplicate
from teeter.campaigns.enums import AnswerKind, ItemKind
from teeter.campaigns.items import Item, quote_id
from teeter.campaigns.results import ImportResult
from teeter.campaigns.settings import IMPORTED, Settings
from teeter.datasets.table_files import is_missing
from teeter.encoders import (
    Encoder,
    Vectors,
    encode_images,
    encode_texts,
    load_sentence_encoder,
    run_encoder,
)
from teeter.errors import InputError
from teeter.seeds import stream_seed

__all__ = ["add_items", "require_kind"]

USER_ENCODER = "you"
"""The name under which the history records a function that the user passed."""

BUILT_IN_ENCODER = "built-in"
"""The name under which the history records ``encode_texts`` and ``encode_images``."""


@dataclass(frozen=True, eq=False)
class _ImportBaseline:
    """The campaign before the import."""

    newest_row_id: int
    """Changes whenever items are added."""
    items: Sequence[StoredItem]
    encoder_name: str | None
    flagged: frozenset[str]
    """Ids of items that do not belong. Their files may no longer exist."""
    classes: frozenset[str]


@dataclass(frozen=True, eq=False)
class _EncodedItems:
    """New features of items."""

    keys: list[str]
    vectors: Vectors
    """One row per key."""
    encoder_name: str

    @property
    def replaces_all(self) -> bool:
        """Whether all items were encoded together, so that all old features are replaced."""
        return self.encoder_name in (USER_ENCODER, BUILT_IN_ENCODER)


def require_kind(items: Sequence[Item], kind: str) -> None:
    """Raise InputError if an item is of another kind than the campaign."""
    for item in items:
        if item.kind != kind:
            raise InputError(
                f"The items of this campaign are of kind {kind}, but {quote_id(item.key)} is of "
                f"kind {item.kind}."
            )


def add_items(
    database: Database,
    repository: CampaignRepository,
    settings: Settings,
    items: Sequence[Item],
    *,
    encoder: Encoder | None,
    who: str,
) -> ImportResult:
    """Add items with their features and labels, in one transaction.

    Args:
        database: The campaign's database.
        repository: The campaign's rows in it.
        settings: The campaign's settings.
        items: The items to add. Those whose content the campaign has are skipped and reported.
        encoder: A function that computes features of items without any. By default the encoder of
            the settings, or a built-in one.
        who: The name for the history.

    Raises:
        InputError: If ids collide, or if features are missing or do not fit the existing ones.
        UnknownNameError: If a label is not a class of the campaign.
    """
    while True:
        with database.reading() as connection:
            baseline = _read_baseline(repository, connection)

        deduplicated = deduplicate(items, baseline.items)
        labels = _collect_labels(deduplicated, baseline.classes)
        encoded = _encode_items(deduplicated.new, baseline, settings, encoder)

        with database.writing() as connection:
            # Another process was faster. Its items must be encoded with ours.
            if repository.items.newest_row_id(connection) != baseline.newest_row_id:
                continue

            count_before = repository.items.count(connection)
            new, duplicates = repository.items.add(connection, items, who)
            _write_features(repository, connection, new, encoded, who)
            labelled, conflicts = _write_labels(repository, connection, labels)
            audit = _extend_audit_set(repository, connection, settings, count_before, who)
            return ImportResult(
                new=len(new),
                duplicates=tuple(duplicates),
                labelled=labelled,
                conflicts=tuple(conflicts),
                audit=audit,
            )


def _read_baseline(repository: CampaignRepository, connection: Connection) -> _ImportBaseline:
    answers = repository.answers.live(connection)
    flagged = {answer.item for answer in answers if answer.kind == AnswerKind.FLAG}
    return _ImportBaseline(
        newest_row_id=repository.items.newest_row_id(connection),
        items=repository.items.all(connection),
        encoder_name=repository.items.encoder_name(connection),
        flagged=frozenset(flagged),
        classes=frozenset(repository.classes.names(connection)),
    )


def _collect_labels(deduplicated: Deduplicated, classes: frozenset[str]) -> list[tuple[str, str]]:
    """Return the labels that came with items, by the id under which an item is stored."""
    labels = []
    for key, item in deduplicated.all:
        if item.label is None:
            continue
        # A table may write NA for a missing label, but a class may also be called NA.
        if item.label in classes or not is_missing(item.label):
            labels.append((key, item.label))

    return labels


def _encode_items(
    new: Sequence[Item], baseline: _ImportBaseline, settings: Settings, encoder: Encoder | None
) -> _EncodedItems | None:
    """Encode new items without features, and all other items if they must be encoded together."""
    missing = [item for item in new if item.features is None]
    if not missing:
        return None

    encoder_name = settings.encoder or BUILT_IN_ENCODER
    if encoder is not None:
        encoder_name = USER_ENCODER

    has_own_features = len(missing) < len(new) or baseline.encoder_name == USER_ENCODER
    if encoder_name == BUILT_IN_ENCODER and has_own_features:
        lacking = "1 item has" if len(missing) == 1 else f"{len(missing)} items have"
        raise InputError(
            f"{lacking} no features, but you gave features for the others: give features for all "
            "items, or an encoder."
        )

    contents = _contents_to_encode(new, missing, baseline, encoder_name)
    encode = encoder or _settings_encoder(settings)
    vectors = run_encoder(encode, list(contents.values()))
    return _EncodedItems(list(contents), vectors, encoder_name)


def _contents_to_encode(
    new: Sequence[Item], missing: Sequence[Item], baseline: _ImportBaseline, encoder_name: str
) -> dict[str, str]:
    """Return the contents to encode by item id, in the order in which items were added."""
    contents = {}

    # A pretrained model reads each text alone. The other encoders see all items at once.
    if encoder_name in (USER_ENCODER, BUILT_IN_ENCODER):
        for stored in baseline.items:
            if stored.item_id not in baseline.flagged:
                contents[stored.item_id] = stored.content or ""

    # A user's encoder replaces features that came with other new items: all are of one kind.
    for item in new if encoder_name == USER_ENCODER else missing:
        contents[item.key] = item.content or ""
    return contents


def _settings_encoder(settings: Settings) -> Encoder:
    """Return the encoder of the settings, or the built-in one for the kind of items."""
    if settings.encoder is not None:
        return load_sentence_encoder(settings.encoder)
    if settings.kind == ItemKind.IMAGE:
        return partial(encode_images, folder=Path(settings.folder or ""))

    return encode_texts


def _write_features(
    repository: CampaignRepository,
    connection: Connection,
    new: Sequence[Item],
    encoded: _EncodedItems | None,
    who: str,
) -> None:
    """Store new features, and note where they are from."""
    if encoded is not None:
        features = dict(zip(encoded.keys, encoded.vectors, strict=True))
        repository.items.write_features(connection, features)

        if encoded.replaces_all:
            # Flagged items are not encoded. The mean keeps them out of the way, at full width.
            item_ids = {stored.item_id for stored in repository.items.all(connection)}
            rest = sorted(item_ids - set(encoded.keys))
            mean = encoded.vectors.mean(axis=0)
            repository.items.write_features(connection, dict.fromkeys(rest, mean))

        detail = {
            "by": encoded.encoder_name,
            "items": len(encoded.keys),
        }
        repository.history.append(connection, who, "encoded", None, detail)
    elif new:
        repository.history.append(connection, who, "encoded", None, {"by": USER_ENCODER})

    # Features that came with new items must be as long as those of the rest.
    repository.items.require_equal_lengths(connection)


def _write_labels(
    repository: CampaignRepository, connection: Connection, labels: Sequence[tuple[str, str]]
) -> tuple[int, list[tuple[str, str, str]]]:
    """Record the labels that came with items, if they have none.

    Returns:
        How many items got a label, and the conflicts: the id, the new label and the one kept.
    """
    count = 0
    conflicts = []
    labels_now: dict[str, str] = {}
    if labels:
        labels_now = majority_labels(repository.answers.live(connection))

    # Raises UnknownNameError, also for a label that changes nothing.
    for label in dict.fromkeys(label for _, label in labels):
        repository.classes.row_id(connection, label)

    for key, label in labels:
        if key not in labels_now:
            answer = Answer(key, IMPORTED, AnswerKind.LABEL, label)
            repository.answers.record(connection, answer)
            labels_now[key] = label
            count += 1
        elif labels_now[key] != label:
            conflicts.append((key, label, labels_now[key]))

    return count, conflicts


def _extend_audit_set(
    repository: CampaignRepository,
    connection: Connection,
    settings: Settings,
    count_before: int,
    who: str,
) -> int:
    """Draw items for the audit set from those without an answer, and return its size.

    At least half of all items are left to train on. An audit set that has its full size grows in
    proportion to the items, so that it stays a random sample of all.

    Args:
        repository: The campaign's rows.
        connection: A connection that may write.
        settings: The size of the audit set, and the seed.
        count_before: The number of items before the import.
        who: The name for the history.
    """
    items = repository.items.all(connection)
    size = sum(item.audit for item in items)
    if not settings.audit:
        return size

    seed = stream_seed(settings.seed, "audit", len(items))
    generator = np.random.default_rng(seed)
    if size >= settings.audit and count_before:
        # Rounding up at random keeps the share on average, also for items that come one by one.
        added = items[count_before:]
        missing = int(size / count_before * len(added) + generator.random())
        candidates = added
    else:
        missing = min(settings.audit, len(items) // 2) - size
        candidates = items

    # An item with an answer may have been trained on, or was picked because it is hard.
    answered = {answer.item for answer in repository.answers.live(connection)}
    unseen = [item for item in candidates if not item.audit and item.item_id not in answered]
    if missing <= 0 or not unseen:
        return size

    count = min(missing, len(unseen))
    positions = generator.choice(len(unseen), size=count, replace=False)
    drawn = [unseen[position].item_id for position in sorted(positions)]
    repository.items.add_to_audit_set(connection, drawn, who)
    return size + count
