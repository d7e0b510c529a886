"""Compute the features of a campaign's items, and switch from one encoder to another.

Encoding may take hours, so it happens outside any transaction, and each part is stored as soon as
it is encoded. The next call resumes an interrupted encoding. While a new encoder computes its
features, models use those of the current one, until the new features are complete.

Labelling begins with the first part. Files are often sorted, so items are encoded in a random order
that does not depend on what they hold: those encoded so far are a random sample of all, and control
items drawn from them are as if drawn from all. An encoder that learns from items would keep people
waiting: the first part is encoded by one that learned from this part alone, until there is more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import numpy as np

from teeter.base.seeds import stream_seed
from teeter.campaigns.items.near_copies import update_near_copies
from teeter.campaigns.records import EncodingResult, ItemKind
from teeter.campaigns.settings import ROW_ENCODER, Settings
from teeter.campaigns.store import (
    CampaignStore,
    LockName,
    StoredEncoding,
    Writing,
)
from teeter.encoders import (
    AUTO,
    Encoder,
    EncoderChoice,
    EncoderState,
    make_encoder,
    require_trusted_encoder,
    resolve_encoder,
)
from teeter.errors import InputError, StoreError

USER_ENCODER = "you"
"""The encoder name of features that came with the items, or from a user's function."""

ProgressReport: TypeAlias = Callable[[int, int], None]
"""Called with the number of encoded items and the number of all items."""

_FIRST_PART = {ItemKind.TEXT: 128, ItemKind.IMAGE: 64}
"""Number of items in the first part that is encoded and stored, from which the first are picked."""

_PART_SECONDS = 2.0
"""If a part takes less time than this, the next part is twice as large."""

_LARGEST_PART = 4096

_OUTGROWN = 4
"""Once a campaign has this many times the items that an encoder learned from, fit it again."""

_LOCK_SECONDS = 600.0
"""Seconds without a stored part after which another process may take over the encoding."""

_LOCK_PAUSE = 0.2
"""Seconds between two checks whether another process is still encoding."""


@dataclass(frozen=True, eq=False)
class PreparedEncoder:
    """An encoder that is ready to encode the items of a campaign."""

    encoder: Encoder
    sentence: str
    """Which encoder it is and why, for people."""
    stored: StoredEncoding | None
    """The encoding to resume; None for a new one."""
    fitted_on: int = 0
    """Number of items that a new encoder learned from."""


def prepare_encoder(
    store: CampaignStore,
    *,
    name: str | None = None,
    new_contents: Sequence[str] = (),
    again: bool = False,
) -> PreparedEncoder:
    """Load an encoder with its stored state, or fit it on the items.

    An encoder whose version or weights have changed counts as a new one, so that all items are
    encoded again.

    Args:
        name: the encoder. Default: the current one, or before the first the one in the settings.
        new_contents: contents of items that are about to be added.
        again: fit the encoder again even if its state is stored.

    Raises:
        InputError: there is no such encoder, or it cannot be used for these items.
        MissingExtraError: a package is not installed.
    """
    with store.reading() as view:
        settings = view.settings
        current = view.encodings.current()
        encodings = view.encodings.all()
    if settings.kind == ItemKind.FEATURES:
        raise InputError("The items of this campaign are features, so there is nothing to encode.")

    if name is None and current is not None:
        name = current.encoder
    if name == USER_ENCODER:
        raise InputError(
            "You supplied the features of this campaign yourself: name an encoder to replace them, "
            "or add items with features."
        )

    encoder, sentence = make_campaign_encoder(settings, name)

    # Without a stored state, an encoder of the same name could give other features.
    stored = None
    if not again:
        stored = _find_encoding(encodings, encoder)
    if stored is not None and stored.state is not None:
        encoder.restore(_read_state(stored.state))
        return PreparedEncoder(encoder, sentence, stored)

    if not encoder.fit_size:
        return PreparedEncoder(encoder, sentence, None)

    if current is None:
        _encode_provisionally(store, encoder)
    with store.reading() as view:
        contents = [item.content or "" for item in view.items.all()]
    contents += new_contents
    fitted_on = _fit(encoder, contents, settings.seed)
    return PreparedEncoder(encoder, sentence, None, fitted_on)


def _encode_provisionally(store: CampaignStore, encoder: Encoder) -> None:
    """Encode the first part with what an encoder learns from it, if there are more items.

    The state is not stored, so no other item is encoded like that.
    """
    with store.reading() as view:
        keys = [item.item_id for item in view.items.all()]
    size = _FIRST_PART[ItemKind(store.settings.kind)]
    if len(keys) <= size:
        return

    first = _in_random_order(store, keys)[:size]
    with store.reading() as view:
        items = view.items.by_id(first)
    contents = [items[key].content or "" for key in first]
    try:
        encoder.fit(contents)
    except InputError:
        return  # too little to learn from
    encoding = encoder.encode(contents)

    with store.writing() as change:
        # Another process may have been faster.
        if change.encodings.current() is None:
            provisional = change.encodings.add(encoder.name, fitted_on=size)
            change.encodings.make_current(provisional.row_id)
            vectors = dict(zip(first, encoding.vectors, strict=True))
            unreadable = {first[row]: reason for row, reason in encoding.unreadable.items()}
            change.encodings.write(provisional.row_id, vectors, unreadable)


def choose_encoder(settings: Settings, name: str | None = None) -> EncoderChoice:
    """Return the encoder of a name, by default that of the settings, for the campaign's items."""
    name = name or settings.encoder
    if settings.has_rows and name in (None, AUTO):
        name = ROW_ENCODER
    return resolve_encoder(name, settings.kind)


def make_campaign_encoder(settings: Settings, name: str | None = None) -> tuple[Encoder, str]:
    """Return the encoder of a name, not fitted, and which one it is and why.

    Raises:
        InputError: there is no such encoder, or it cannot be used for these items.
        MissingExtraError: a package is not installed.
    """
    choice = choose_encoder(settings, name)
    # The name may come from a campaign file that another person wrote.
    require_trusted_encoder(choice.name)
    folder = None
    if settings.folder is not None:
        folder = Path(settings.folder)
    return make_encoder(choice.name, settings.kind, folder=folder), choice.sentence


def _is_provisional(encoding: StoredEncoding) -> bool:
    return encoding.state is None and encoding.encoder != USER_ENCODER


def has_unencoded_items(store: CampaignStore) -> bool:
    """Return whether an encoder has items left to encode."""
    with store.reading() as view:
        # An audit needs no features before it is ended.
        if view.finishes.is_auditing():
            return False
        current = view.encodings.current()
        if current is None:
            return store.settings.kind != ItemKind.FEATURES and view.items.count() > 0
        is_users = current.encoder == USER_ENCODER
        return not is_users and view.encodings.count_missing(current.row_id) > 0


def load_encoder(settings: Settings, current: StoredEncoding | None) -> Encoder | None:
    """Return the encoder of the current features, as it was fitted; None for features.

    It reads images by their paths, wherever they are. Loading may take seconds, so no transaction
    is open meanwhile.

    Args:
        settings: the campaign's settings.
        current: the current encoding.

    Raises:
        InputError: a user's function computed the features, or the encoder has changed since.
    """
    if settings.kind == ItemKind.FEATURES:
        return None

    if current is None:
        raise InputError("No item has been encoded yet: wait, or run teeter campaign encode.")
    if current.encoder == USER_ENCODER or current.state is None:
        raise InputError(
            "You supplied the features of this campaign yourself, so new items cannot be encoded: "
            "choose an encoder with teeter campaign encode."
        )

    require_trusted_encoder(current.encoder)
    encoder = make_encoder(current.encoder, settings.kind)
    if (encoder.version, encoder.checksum) != (current.version, current.checksum):
        raise InputError(
            f"The encoder {current.encoder} has changed since the items were encoded: run teeter "
            "campaign encode, then train."
        )
    encoder.restore(_read_state(current.state))
    return encoder


def _find_encoding(encodings: Sequence[StoredEncoding], encoder: Encoder) -> StoredEncoding | None:
    """Return the newest encoding that an encoder can resume."""
    for encoding in reversed(encodings):
        is_same = (
            encoding.encoder == encoder.name
            and encoding.version == encoder.version
            and encoding.checksum == encoder.checksum
        )
        if is_same and encoding.state is not None:
            return encoding
    return None


def _read_state(state: bytes) -> EncoderState:
    try:
        return EncoderState.from_bytes(state)
    except InputError:
        raise StoreError(
            "The campaign is damaged: the state of its encoder cannot be read. Restore a backup."
        ) from None


def _fit(encoder: Encoder, contents: Sequence[str], seed: int) -> int:
    """Fit an encoder on a random sample of contents, and return the size of the sample."""
    sample = list(contents)
    if len(sample) > encoder.fit_size:
        generator = np.random.default_rng(stream_seed(seed, "encoder"))
        drawn = generator.choice(len(sample), size=encoder.fit_size, replace=False)
        sample = [sample[position] for position in sorted(drawn)]

    encoder.fit(sample)
    return len(sample)


def store_encoding(change: Writing, prepared: PreparedEncoder) -> StoredEncoding:
    """Store the state of a new encoder, and return its encoding.

    The first encoding of a campaign becomes the current one at once, so that the first items can
    be labelled while the others are encoded.
    """
    if prepared.stored is not None:
        return prepared.stored

    encoder = prepared.encoder
    stored = change.encodings.add(
        encoder.name,
        version=encoder.version,
        checksum=encoder.checksum,
        state=encoder.state().to_bytes(),
        fitted_on=prepared.fitted_on,
    )
    if change.encodings.current() is None:
        change.encodings.make_current(stored.row_id)
    return stored


def encode_missing_items(
    store: CampaignStore,
    prepared: PreparedEncoder,
    *,
    who: str,
    progress: ProgressReport | None = None,
) -> EncodingResult:
    """Encode the items that a stored encoder has not encoded yet, part by part.

    Args:
        prepared: the encoder, which ``store_encoding`` has stored.
        who: the name for the history.
        progress: called after each part.
    """
    holder = _acquire_lock(store)
    try:
        with store.reading() as view:
            # Looked up, because the campaign may have been moved since it was stored.
            encodings = view.encodings.all()
            stored = _find_encoding(encodings, prepared.encoder)
        if stored is None:
            raise InputError("The encoding has been removed: run teeter campaign encode.")
        if stored.state is not None:
            # Another process may have fitted the same encoder on other items and stored it first.
            prepared.encoder.restore(_read_state(stored.state))

        size = _FIRST_PART[ItemKind(store.settings.kind)]
        encoded = 0
        waiting: list[str] = []
        while True:
            # Items that were added meanwhile, and texts that were changed, come last.
            if not waiting:
                with store.reading() as view:
                    missing = view.encodings.missing_items(stored.row_id)
                waiting = _in_random_order(store, missing)
            if progress is not None:
                with store.reading() as view:
                    total = view.items.count()
                progress(total - len(waiting), total)
            if not waiting:
                break

            # Large parts fill batches of similar lengths; small ones lose little if interrupted.
            started = time.monotonic()
            part, waiting = waiting[:size], waiting[size:]
            _encode_part(store, prepared.encoder, stored, part, holder)
            encoded += len(part)
            if time.monotonic() - started < _PART_SECONDS:
                size = min(2 * size, _LARGEST_PART)

        with store.writing() as change:
            result = _finish_encoding(change, prepared.encoder, stored, encoded, who)
        update_near_copies(store)
        return replace(result, sentence=prepared.sentence)
    finally:
        with store.writing() as change:
            change.locks.release(LockName.ENCODING, holder)


def _in_random_order(store: CampaignStore, items: Iterable[str]) -> list[str]:
    """Return ids of items in the order in which they are encoded."""
    seed = store.settings.seed
    return sorted(items, key=lambda item: stream_seed(seed, "encoding order", item))


def _acquire_lock(store: CampaignStore) -> str:
    """Wait until no other process encodes, and return the holder name of the acquired lock."""
    while True:
        with store.writing() as change:
            holder = change.locks.acquire(LockName.ENCODING, _LOCK_SECONDS)
        if holder is not None:
            return holder
        time.sleep(_LOCK_PAUSE)


def _encode_part(
    store: CampaignStore,
    encoder: Encoder,
    stored: StoredEncoding,
    keys: Sequence[str],
    holder: str,
) -> None:
    """Encode items, store their features and extend the lock of the holder."""
    with store.reading() as view:
        before = view.items.by_id(keys)
    encoding = encoder.encode([before[key].content or "" for key in keys])

    encoded = dict(zip(keys, encoding.vectors, strict=True))
    unreadable = {keys[row]: sentence for row, sentence in encoding.unreadable.items()}
    # The transaction is short: answers wait for it.
    with store.writing() as change:
        # Texts that were changed meanwhile are encoded later.
        now = change.items.by_id(keys)
        unchanged = [key for key in keys if now[key].digest == before[key].digest]
        vectors = {key: encoded[key] for key in unchanged}
        change.encodings.write(stored.row_id, vectors, unreadable)
        current = change.encodings.current()
        if current is not None and _is_provisional(current):
            change.encodings.make_current(stored.row_id)
        change.locks.extend(LockName.ENCODING, holder, _LOCK_SECONDS)


def _finish_encoding(
    change: Writing, encoder: Encoder, stored: StoredEncoding, encoded: int, who: str
) -> EncodingResult:
    """Make an encoding the current one, and record it in the history."""
    current = change.encodings.current()
    is_switch = current is not None and current.row_id != stored.row_id
    change.encodings.require_equal_lengths(stored.row_id)
    change.encodings.make_current(stored.row_id)

    # Vectors of an earlier state of the same encoder are of no use any more.
    for other in change.encodings.all():
        if other.encoder == encoder.name and other.row_id != stored.row_id:
            change.encodings.remove(other.row_id)

    # A run that found nothing to do leaves no line in the history.
    if encoded or is_switch:
        detail = {
            "by": encoder.name,
            "version": encoder.version,
            "checksum": encoder.checksum,
            "items": encoded,
        }
        change.history.append(who, "encoded", None, detail)

    unreadable = change.encodings.unreadable()
    # An encoder that learned from fit_size items would not learn from more if fitted again.
    has_room = 0 < stored.fitted_on < encoder.fit_size
    return EncodingResult(
        encoder=encoder.name,
        encoded=encoded,
        unencoded=change.encodings.count_missing(stored.row_id),
        is_switch=is_switch,
        unreadable=len(unreadable),
        unreadable_items=unreadable,
        fitted_on=stored.fitted_on,
        is_outgrown=has_room and _OUTGROWN * stored.fitted_on < change.items.count(),
    )
