"""What a round of a campaign works with: the items, what is known about them, and the settings.

A round trains a model, chooses a batch, or both. Its state is read from the database once and then
passed on, so that all steps of a round see the same answers.

Nothing here loads torch: the server passes these records to its worker process, which does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from teeter.base.array_types import Integers
from teeter.campaigns.learning.prior import ClassPrior, PriorReader
from teeter.campaigns.learning.saved_models import FeatureScaler, rescale_model, scale_features
from teeter.campaigns.records import AnswerKind
from teeter.campaigns.review.consensus import bulk_checks, read_snapshot
from teeter.campaigns.settings import Settings
from teeter.campaigns.status import count_unencoded
from teeter.campaigns.store import CampaignStore, Reading
from teeter.errors import InputError

Vectors: TypeAlias = npt.NDArray[np.float32]


@dataclass(frozen=True)
class RoundSettings:
    """The settings that selection and training depend on."""

    strategy: str
    options: dict[str, Any]
    """Options of the strategy."""
    head: str
    """One of ``ClassifierKind``."""
    control: float
    """The share of each batch that is drawn at random."""
    seed: int

    @classmethod
    def from_settings(cls, settings: Settings) -> RoundSettings:
        """Return those of a campaign's settings that selection and training depend on."""
        return cls(
            settings.strategy, settings.options, settings.head, settings.control, settings.seed
        )


@dataclass(frozen=True, eq=False)
class RoundState:
    """What is known when a batch is chosen or a model is trained.

    Items are known by their place: their position in ``keys``, from 0.
    """

    keys: Sequence[str]
    """The ids of all items with features, in the order in which they were added."""
    features: Vectors
    """(N, D), scaled."""
    classes: tuple[str, ...]
    labels: dict[int, str]
    """The labels by place, without those of the holdout."""
    holdout: dict[int, str | None]
    """The holdout by place, with its labels; None for no label yet."""
    control: frozenset[int]
    """Places of the control items, labelled or not."""
    random: frozenset[int]
    """Places of the items that are a random sample of all: control items, and perhaps others."""
    taken: frozenset[int]
    """Places of items that cannot be picked: answered, skipped, flagged, withdrawn, or
    assigned now.
    """
    version: int
    """The number of the newest model; 0 before the first."""
    weights: bytes | None
    """The newest model, if there is one."""
    batches: int
    """How many batches were chosen so far."""
    skipped: frozenset[int] = frozenset()
    """Places of items that are taken only because they were skipped.

    They are picked again when no other item is left.
    """
    scaler: FeatureScaler | None = None
    """How the features were scaled."""
    finish_draws: tuple[int, ...] = ()
    """Places of random items to ask about before all others, in the order in which they were drawn.
    """
    revision: tuple[int, int] = (0, 0)
    """Row id of the encoding that the features belong to, and a number that changes with them."""
    unencoded: int = 0
    """Number of items that have no features yet, and so no place.

    No model is trained until there are none: a model is saved with places, which later features
    would change.
    """
    prior: ClassPrior | None = None
    """What is known about the classes before the first label."""
    withdrawn: frozenset[int] = frozenset()
    """Places of items that were taken out of the campaign. All of them are taken, too."""
    left_out: frozenset[int] = frozenset()
    """Places of items that no model learns from: flagged, withdrawn or unreadable."""
    in_view: frozenset[int] = frozenset()
    """Places of items that nobody answered blind. They measure nothing until somebody does."""
    repeatable: frozenset[int] = frozenset()
    """Those of them that are taken only because they were answered. They may be asked again if they
    are drawn to measure.
    """
    checks: frozenset[int] = frozenset()
    """Those of them that were answered in bulk and are to be checked."""
    several: bool = False
    """Whether items may have several labels. ``labels`` and ``holdout`` then have texts of sets."""
    unreadable: frozenset[int] = frozenset()
    """Places of items that could not be read. Their features are zeros, so predictions for them
    mean nothing.
    """
    near_copies: Integers | None = None
    """(N,) for each item the place of the first of its near copies; None if none are known."""
    copied: tuple[tuple[int, int], ...] = ()
    """Places of items that were answered as copies, each with the place of the item that a person
    looked at.
    """


@dataclass(frozen=True, eq=False)
class FeaturePool:
    """The items of a campaign as models see them."""

    revision: tuple[int, int]
    """Changes when the features change."""
    keys: list[str]
    features: Vectors
    """(N, D), scaled."""
    scaler: FeatureScaler
    unreadable: frozenset[str]
    """Items that could not be read. They are never picked."""


class RoundStateReader:
    """Reads the state of a campaign, and its features again only if they have changed."""

    def __init__(self, store: CampaignStore) -> None:
        self._store = store
        self._prior_reader = PriorReader(store)
        self._pool: FeaturePool | None = None

    def read(self) -> RoundState:
        """Return the state that a campaign has now.

        Raises:
            InputError: the campaign has no items, or none is encoded.
        """
        # All in one transaction: labels and models that belong together.
        with self._store.reading() as view:
            settings = view.settings
            pool = self.read_pool(view)
            holdout_items = view.items.holdout()
            snapshot = read_snapshot(view)
            assigned = view.picks.open_or_ready_items()
            control_items = view.picks.control_items()
            random_items = view.picks.random_items()
            skipped = view.answers.skipped_items()
            batches = view.picks.count_batches()
            classes = view.classes.names()
            descriptions = view.descriptions.all()
            encoding = view.encodings.current()
            model = view.models.newest()
            unencoded = count_unencoded(view)
            finish_items = view.finishes.drawn_items()
            near_copies = view.encodings.near_copies()
            copied = view.answers.copied_items()

        # From here on items go by their row in the features. Items that a campaign could not encode
        # have none, and take no part.
        row_of_item = {item: row for row, item in enumerate(pool.keys)}

        def rows_of(items: Iterable[str]) -> frozenset[int]:
            return frozenset(row_of_item[item] for item in items if item in row_of_item)

        # In transactions of its own: it may have to encode the names of the classes and store them.
        prior = self._prior_reader.read(
            settings,
            classes,
            descriptions,
            encoding=encoding,
            keys=pool.keys,
            features=pool.features,
            scaler=pool.scaler,
        )

        left_out_items = snapshot.left_out | pool.unreadable
        left_out = rows_of(left_out_items)
        holdout_rows = rows_of(holdout_items) - left_out
        labels = {}
        for item, label in snapshot.labels.items():
            if item in row_of_item:
                labels[row_of_item[item]] = label

        held_out = holdout_rows | left_out
        training_labels = {row: label for row, label in labels.items() if row not in held_out}

        # Skipped items are kept apart: they come back when nothing else is left.
        answered = {answer.item for answer in snapshot.answers if answer.kind != AnswerKind.SKIP}
        settled = answered | assigned | set(snapshot.decisions)
        settled |= pool.unreadable | snapshot.withdrawn
        skipped -= settled
        repeatable = snapshot.in_view - assigned - left_out_items
        checks = bulk_checks(snapshot, settings.seed) & repeatable

        version = 0
        weights = None
        if model is not None:
            version = model.version
            weights = rescale_model(model.weights, pool.scaler)
        holdout: dict[int, str | None] = {}
        for row in sorted(holdout_rows):
            holdout[row] = labels.get(row)
            if pool.keys[row] in snapshot.in_view:
                holdout[row] = None
        groups = None
        if near_copies is not None:
            groups = near_copies.first_rows(pool.keys)
        copied_rows = []
        for copy, source in copied:
            if copy in row_of_item and source in row_of_item:
                pair = (row_of_item[copy], row_of_item[source])
                copied_rows.append(pair)

        return RoundState(
            keys=pool.keys,
            features=pool.features,
            classes=tuple(classes),
            labels=training_labels,
            holdout=holdout,
            control=rows_of(control_items),
            random=rows_of(random_items),
            taken=rows_of(settled | skipped),
            version=version,
            weights=weights,
            batches=batches,
            skipped=rows_of(skipped),
            scaler=pool.scaler,
            finish_draws=tuple(row_of_item[item] for item in finish_items),
            revision=pool.revision,
            unencoded=unencoded,
            prior=prior,
            withdrawn=rows_of(snapshot.withdrawn),
            left_out=left_out,
            in_view=rows_of(snapshot.in_view),
            repeatable=rows_of(repeatable),
            checks=rows_of(checks),
            several=settings.several,
            unreadable=rows_of(pool.unreadable),
            near_copies=groups,
            copied=tuple(copied_rows),
        )

    def read_pool(self, view: Reading) -> FeaturePool:
        """Return the items and their features, which are read again only if they have changed."""
        revision = view.encodings.revision()

        if self._pool is None or self._pool.revision != revision:
            stored = view.encodings.read()
            if not stored.keys:
                if view.items.count():
                    raise InputError(
                        "No item has been encoded yet: wait, or run teeter campaign encode."
                    )
                raise InputError("The campaign has no items: add some first.")

            features, scaler = scale_features(stored.vectors)
            unreadable = frozenset(stored.unreadable)
            self._pool = FeaturePool(revision, stored.keys, features, scaler, unreadable)

        return self._pool


def with_model(state: RoundState, version: int, weights: bytes) -> RoundState:
    """Return a state after a model was trained: skipped items may be asked about again."""
    scaled: bytes | None = weights
    if state.scaler is not None:
        scaled = rescale_model(weights, state.scaler)
    return replace(
        state,
        version=version,
        weights=scaled,
        taken=state.taken - state.skipped,
        skipped=frozenset(),
    )
