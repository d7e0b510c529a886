"""Things that come into a campaign: what is new among them, features, labels, and a share kept to measure with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from teeter.campaigns.consensus import labels_of
from teeter.campaigns.db import Answer, CampaignRepository, Connection, Database, StoredItem
from teeter.campaigns.db.items import Deduplicated, deduplicate
from teeter.campaigns.enums import AnswerKind
from teeter.campaigns.items import Item, quote_id
from teeter.campaigns.settings import IMPORTED, ImportResult, Settings
from teeter.datasets.table_files import is_missing
from teeter.encoders.builtin import Encoder, encode_images, encode_texts, encoder_named
from teeter.errors import InputError
from teeter.seeds import stream

__all__ = ["add_items", "require_kind"]

Vectors = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class _Before:
    """What was there when things were looked through."""

    newest: int
    items: Sequence[StoredItem]
    encoded_by: str | None
    flagged: frozenset[str]
    classes: frozenset[str]


@dataclass(frozen=True, eq=False)
class _Encoded:
    """Features of items by their ids, and who made them."""

    keys: list[str]
    vectors: Vectors
    by: str


def add_items(
    store: Database,
    repository: CampaignRepository,
    settings: Settings,
    items: Sequence[Item],
    *,
    encoder: Encoder | None,
    who: str,
) -> ImportResult:
    """Write items with their features and labels; what takes time is done before, while others may write."""
    while True:
        with store.reading() as connection:
            before = _read(repository, connection)
        found = deduplicate(items, before.items)
        labels = _labels(found, before.classes)
        encoded = _encoded(found.new, before, settings, encoder)
        with store.writing() as connection:
            if (
                repository.items.newest_row_id(connection) == before.newest
            ):  # else somebody was faster, and it is done again
                there = repository.items.count(connection)
                new, duplicates = repository.items.add(connection, items, who)
                _write_features(repository, connection, new, encoded, who)
                labelled, conflicts = _write_labels(repository, connection, labels)
                audit = _set_apart(repository, connection, settings, there, who)
                return ImportResult(len(new), tuple(duplicates), labelled, tuple(conflicts), audit)


def _read(repository: CampaignRepository, connection: Connection) -> _Before:
    return _Before(
        newest=repository.items.newest_row_id(connection),
        items=repository.items.all(connection),
        encoded_by=repository.items.encoder_name(connection),
        flagged=frozenset(
            answer.item
            for answer in repository.answers.live(connection)
            if answer.kind == AnswerKind.FLAG
        ),
        classes=frozenset(repository.classes.names(connection)),
    )


def _labels(found: Deduplicated, classes: frozenset[str]) -> list[tuple[str, str]]:
    """Return the labels that came along, by the id of the item that is kept; NA and the like are none."""
    told = [(key, item.label) for key, item in found.all if item.label is not None]
    return [(key, label) for key, label in told if label in classes or not is_missing(label)]


def _encoded(
    new: Sequence[Item], before: _Before, settings: Settings, encoder: Encoder | None
) -> _Encoded | None:
    """Return features for items that have none, and for all others where they must be made together."""
    missing = [item for item in new if item.features is None]
    if not missing:
        return None
    by = "you" if encoder is not None else settings.encoder or "built-in"
    given = len(missing) < len(new)
    if by == "built-in" and (given or before.encoded_by == "you"):
        raise InputError(
            f"{len(missing)} items have no features, and the others have features of your own: "
            "give features to all, or an encoder."
        )
    contents = {item.key: item.content or "" for item in missing}
    if by in ("you", "built-in"):
        others = {
            row.item_id: row.content or ""
            for row in before.items
            if row.item_id not in before.flagged
        }
        contents = others | (
            {item.key: item.content or "" for item in new} if by == "you" else contents
        )
    vectors = _vectors(list(contents.values()), settings, encoder)
    if vectors.ndim != 2 or len(vectors) != len(contents) or not np.isfinite(vectors).all():
        raise InputError(
            f"The encoder gave {vectors.shape} for {len(contents)} items: finite (items, features) needed."
        )
    return _Encoded(list(contents), vectors, by)


def _vectors(contents: list[str], settings: Settings, encoder: Encoder | None) -> Vectors:
    if encoder is None and settings.encoder is not None:
        encoder = encoder_named(settings.encoder)
    if encoder is not None:
        return np.ascontiguousarray(encoder(contents), dtype=np.float32)
    if settings.kind == "image":
        return encode_images(contents, Path(settings.folder or ""))
    return encode_texts(contents)


def _write_features(
    repository: CampaignRepository,
    connection: Connection,
    new: Sequence[Item],
    encoded: _Encoded | None,
    who: str,
) -> None:
    if encoded is not None:
        repository.items.write_features(
            connection, dict(zip(encoded.keys, encoded.vectors, strict=True))
        )
        if encoded.by in ("you", "built-in"):
            # What does not belong may not be there any more: it is given a place in the middle.
            stored = {item.item_id for item in repository.items.all(connection)}
            rest = sorted(stored - set(encoded.keys))
            middle = encoded.vectors.mean(axis=0)
            repository.items.write_features(connection, dict.fromkeys(rest, middle))
        repository.history.append(
            connection, who, "encoded", None, {"by": encoded.by, "items": len(encoded.keys)}
        )
    elif new:
        repository.history.append(connection, who, "encoded", None, {"by": "you"})
    repository.items.require_equal_lengths(connection)


def _write_labels(
    repository: CampaignRepository, connection: Connection, labels: Sequence[tuple[str, str]]
) -> tuple[int, list[tuple[str, str, str]]]:
    """Answer items that have no label by those that came along; return how many, and where labels differ."""
    held = labels_of(repository.answers.live(connection)) if labels else {}
    conflicts, count = [], 0
    for key, label in labels:
        repository.classes.row_id(connection, label)
        if key not in held:
            answer = Answer(key, IMPORTED, AnswerKind.LABEL, label)
            repository.answers.record(connection, answer)
            held[key] = label
            count += 1
        elif held[key] != label:
            conflicts.append((key, label, held[key]))
    return count, conflicts


def _set_apart(
    repository: CampaignRepository, connection: Connection, settings: Settings, there: int, who: str
) -> int:
    """Draw what is missing of the audit sample from items that nobody has seen, and return how many it has.

    Half of all items are left to learn from. A sample that is whole grows with the items, so that it stays one of all.
    """
    items = repository.items.all(connection)
    kept = sum(bool(row.audit) for row in items)
    if not settings.audit:
        return kept
    drawn = np.random.default_rng(stream(settings.seed, "audit", len(items)).initial_seed())
    missing, fresh = min(settings.audit, len(items) // 2) - kept, items
    if kept >= settings.audit and there:
        missing, fresh = int(kept / there * (len(items) - there) + drawn.random()), items[there:]
    answered = {one.item for one in repository.answers.live(connection)}
    free = [row.item_id for row in fresh if not row.audit and row.item_id not in answered]
    if missing > 0 and free:
        chosen = drawn.choice(len(free), size=min(missing, len(free)), replace=False)
        repository.items.add_to_audit_set(connection, [free[k] for k in sorted(chosen)], who)
        kept += len(chosen)
    return kept


def require_kind(items: Sequence[Item], kind: str) -> None:
    """Refuse items of another kind than the campaign's."""
    other = next((item for item in items if item.kind != kind), None)
    if other is not None:
        raise InputError(
            f"This campaign is of {kind}, and {quote_id(other.key)} is of {other.kind}."
        )
