"""Find items: filters that combine, an order, and what is like a text or another item.

What is known of all items stands in arrays, with one value per item in the order in which they were
added. Sorting and filtering a hundred thousand of them takes milliseconds. Only texts are looked
for in the database.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from teeter.base.array_types import Vectors
from teeter.campaigns.learning.encoding import USER_ENCODER, make_campaign_encoder
from teeter.campaigns.records import (
    AnswerKind,
    ItemFilter,
    ItemKind,
    ItemQuery,
    ItemSort,
    split_labels,
)
from teeter.campaigns.review.consensus import CampaignSnapshot
from teeter.campaigns.store import CampaignStore, Reading, StoredItem
from teeter.encoders import Encoder, EncoderState
from teeter.errors import InputError, UnknownItemError

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
Booleans = npt.NDArray[np.bool_]

NONE = -1
"""The index of the class of an item without a label, or without a prediction."""

_ANSWER_OF_STATE = {
    ItemFilter.SKIPPED: AnswerKind.SKIP,
    ItemFilter.UNSURE: AnswerKind.UNSURE,
    ItemFilter.FLAGGED: AnswerKind.FLAG,
}


@dataclass(frozen=True, eq=False)
class ItemPredictions:
    """What the newest model says of the N items of a campaign."""

    predicted: Integers
    """(N,) the index of the class, or ``NONE``."""
    probability: Floats
    """(N,) the probability of that class; NaN without a prediction."""


@dataclass(frozen=True, eq=False)
class ItemLabels:
    """The labels of the N items of a campaign, and who gave them."""

    labels: Integers
    """(N,) the index of the class, or ``NONE``."""
    is_withdrawn: Booleans
    who: dict[str, list[str]] = field(default_factory=dict)
    """By item id, who answered, or the reviewer who decided."""


@dataclass(frozen=True, eq=False)
class Similarities:
    """How close the features of items are to those of a text or another item."""

    row_ids: Integers
    """(M,) the items with features."""
    cosines: Floats
    """(M,) NaN for an item that could not be read."""


def read_predictions(
    view: Reading, row_ids: Integers, arrays: dict[str, Vectors]
) -> ItemPredictions:
    """Return what a saved model predicts for items, without those whose features mean nothing.

    For items that it was trained on, it is what models predict that were not: to predict a label
    that one was told says nothing.
    """
    predicted = np.full(len(row_ids), NONE, dtype=np.int64)
    probability = np.full(len(row_ids), np.nan, dtype=np.float32)
    encoded = np.array(view.encodings.encoded_row_ids(), dtype=np.int64)

    # Items that were added after the training have no prediction yet.
    size = min(len(arrays["predicted"]), len(encoded))
    positions = np.searchsorted(row_ids, encoded[:size])
    predicted[positions] = arrays["predicted"][:size]
    if "confidence" in arrays:
        probability[positions] = arrays["confidence"][:size]
    if "unseen" in arrays and len(encoded) >= len(arrays["predicted"]):
        trained = positions[arrays["places"]]
        is_other = predicted[trained] != arrays["unseen"]
        predicted[trained] = arrays["unseen"]
        probability[trained[is_other]] = np.nan

    unreadable = view.items.by_id(list(view.encodings.unreadable()))
    unreadable_rows = [item.row_id for item in unreadable.values()]
    positions = np.searchsorted(row_ids, unreadable_rows)
    predicted[positions] = NONE
    probability[positions] = np.nan
    return ItemPredictions(predicted, probability)


def read_labels(
    snapshot: CampaignSnapshot, positions: dict[str, int], classes: Sequence[str]
) -> ItemLabels:
    """Return the labels of items.

    Args:
        snapshot: all answers and decisions.
        positions: the positions of all items by item id.
        classes: the names of all classes.
    """
    index_of_class = {name: index for index, name in enumerate(classes)}
    labels = np.full(len(positions), NONE, dtype=np.int64)
    for item, label in snapshot.labels.items():
        if item in positions:
            labels[positions[item]] = index_of_class[label]

    is_withdrawn = np.zeros(len(positions), dtype=np.bool_)
    for item in snapshot.withdrawn:
        if item in positions:
            is_withdrawn[positions[item]] = True

    who: dict[str, list[str]] = {}
    for answer in snapshot.answers:
        who.setdefault(answer.item, []).append(answer.annotator)
    for item, decision in snapshot.decisions.items():
        who[item] = [decision.reviewer]
    return ItemLabels(labels, is_withdrawn, who)


@dataclass(frozen=True, eq=False)
class ItemTable:
    """What is known of the N items of a campaign, for a query."""

    view: Reading
    snapshot: CampaignSnapshot
    classes: list[str]
    """What the numbers of labels and predictions stand for: classes, or sets of labels too."""
    several: bool
    """Whether items may have several labels: a query finds those with one among others."""
    row_ids: Integers
    """(N,) increasing."""
    positions: dict[str, int]
    """The positions of the items in ``row_ids``, by item id."""
    labels: ItemLabels
    predictions: ItemPredictions
    hidden: Integers
    """The positions of items that are found by their text and the shown columns alone."""

    def find(
        self, query: ItemQuery, cosines: Floats | None, text_ranks: Integers | None
    ) -> Integers:
        """Return the positions of all items that a query finds, in its order.

        Args:
            query: the query. ``offset``, ``count`` and ``after`` change nothing.
            cosines: (N,) the similarities, if it asks for them; NaN for an item without features.
            text_ranks: (N,) the places of the items by their texts, if it sorts by them.
        """
        is_hit = self._has_state(query.state)
        labels = self.labels.labels
        predicted = self.predictions.predicted
        if query.label is not None:
            is_hit &= np.isin(labels, self._numbers_of(query.label))
        if query.predicted is not None:
            is_hit &= np.isin(predicted, self._numbers_of(query.predicted))
        if query.differs:
            is_hit &= (labels != NONE) & (predicted != NONE) & (labels != predicted)
        if query.search or query.columns:
            is_hit &= self._have_text(query)
        if query.indices:
            encoded = np.array(self.view.encodings.encoded_row_ids(), dtype=np.int64)
            known = [index for index in query.indices if index < len(encoded)]
            is_hit &= np.isin(self.row_ids, encoded[known])
        if cosines is not None:
            is_hit &= ~np.isnan(cosines)

        hits = np.flatnonzero(is_hit)
        order = query.order
        if order is ItemSort.ADDED and query.descending:
            return hits[::-1]
        if order is ItemSort.ADDED:
            return hits

        all_values = self._values(order, cosines, text_ranks)
        values = all_values[hits].astype(np.float64)
        # Nobody looks for what is least similar.
        if query.descending or order is ItemSort.SIMILARITY:
            values = -values
        # NaN comes last, whichever sign the other values have.
        in_order = np.argsort(values, kind="stable")
        return hits[in_order]

    def _have_text(self, query: ItemQuery) -> Booleans:
        """Return which items have the text and the values in columns that a query asks for."""
        row_ids = self.view.items.search(query.search, query.columns)
        found = np.isin(self.row_ids, row_ids)
        if not len(self.hidden):
            return found

        shown = self.view.settings.show
        visible = np.zeros(len(self.row_ids), dtype=np.bool_)
        if all(name in shown for name, _ in query.columns):
            row_ids = self.view.items.search(query.search, query.columns, in_cells=False)
            visible = np.isin(self.row_ids, row_ids)
        found[self.hidden] = visible[self.hidden]
        return found

    def _numbers_of(self, name: str) -> list[int]:
        """Return the number of a class, and those of the sets that it is in."""
        numbers = []
        for number, other in enumerate(self.classes):
            is_in_set = self.several and name in split_labels(other)
            if name == other or is_in_set:
                numbers.append(number)
        return numbers

    def _has_state(self, state: ItemFilter) -> Booleans:
        """Return which items are in a state, as a new array."""
        is_withdrawn = self.labels.is_withdrawn
        is_hit: Booleans
        if state is ItemFilter.ALL:
            return np.ones(len(self.row_ids), dtype=np.bool_)
        if state is ItemFilter.WITHDRAWN:
            return is_withdrawn.copy()

        if state is ItemFilter.LABELLED:
            is_hit = self.labels.labels != NONE
        elif state is ItemFilter.UNLABELLED:
            is_hit = self.labels.labels == NONE
        elif state is ItemFilter.ASKED:
            is_hit = np.isin(self.row_ids, list(self.view.picks.open_items()))
        elif state is ItemFilter.UNREADABLE:
            is_hit = self._are(self.view.encodings.unreadable())
        else:
            kind = _ANSWER_OF_STATE[state]
            answers = self.snapshot.answers
            is_hit = self._are(answer.item for answer in answers if answer.kind == kind)
        return is_hit & ~is_withdrawn

    def _are(self, items: Iterable[str]) -> Booleans:
        chosen = np.zeros(len(self.row_ids), dtype=np.bool_)
        for item in items:
            if item in self.positions:
                chosen[self.positions[item]] = True
        return chosen

    def _values(
        self, order: ItemSort, cosines: Floats | None, text_ranks: Integers | None
    ) -> npt.NDArray[np.generic]:
        """Return (N,) numbers that sort the items; NaN for an item without the value."""
        if order is ItemSort.SIMILARITY:
            if cosines is None:
                raise InputError("Give a text or an item to sort by similarity (meaning=, like=).")
            return cosines
        if order is ItemSort.TEXT and text_ranks is not None:
            return text_ranks
        if order is ItemSort.ITEM:
            return rank_texts(list(self.positions))
        if order is ItemSort.PROBABILITY:
            return self.predictions.probability
        if order is ItemSort.WHO:
            names = [", ".join(self.labels.who.get(item, ())) for item in self.positions]
            is_nobody = [name == "" for name in names]
            return np.where(is_nobody, np.nan, rank_texts(names))

        classes = self.predictions.predicted
        if order is ItemSort.LABEL:
            classes = self.labels.labels
        return np.where(classes == NONE, np.nan, classes)


def rank_texts(texts: Sequence[str]) -> Integers:
    """Return the place of each text in their order, in which upper and lower case are the same."""
    folded = [text.casefold() for text in texts]
    in_order = sorted(set(folded))
    place = {text: rank for rank, text in enumerate(in_order)}
    ranks = np.empty(len(folded), dtype=np.int64)
    ranks[:] = [place[text] for text in folded]
    return ranks


def reads_texts(view: Reading) -> bool:
    """Return whether the features of the items come from an encoder of texts."""
    current = view.encodings.current()
    is_text = view.settings.kind == ItemKind.TEXT and not view.settings.has_rows
    return is_text and (current is None or current.encoder != USER_ENCODER)


class SimilarItems:
    """Computes how close items are to a text or another item: the exact cosine with all of them.

    The features stay in memory, four bytes per number, until they change.
    """

    def __init__(self, campaign: CampaignStore) -> None:
        self.campaign = campaign
        self._revision: tuple[int, int] | None = None
        self._encoder: Encoder | None = None

    def compare(self, *, text: str = "", item: str | None = None) -> Similarities:
        """Return the similarities of all items with features.

        Args:
            text: the text to compare with.
            item: the id of the item to compare with.

        Raises:
            InputError: both or neither are given, or the campaign's encoder does not read texts.
            UnknownItemError: there is no such item, or it has no features.
        """
        if bool(text) == (item is not None):
            raise InputError("Give a text or an item to compare with, not both (meaning=, like=).")

        self._load()
        with np.errstate(divide="ignore", invalid="ignore"):
            if item is None:
                vector = self._encode(text)
            else:
                vector = self._vector_of(item)
            lengths = self._lengths * np.linalg.norm(vector)
            cosines = (self._features @ vector) / lengths
        return Similarities(self._row_ids, cosines.astype(np.float32))

    def _load(self) -> None:
        """Read the features, unless they are in memory."""
        with self.campaign.reading() as view:
            revision = view.encodings.revision()
            if revision == self._revision:
                return

            self._features = np.zeros((0, 0), dtype=np.float32)
            stored = view.encodings.read()
            self._row_ids = np.array(view.encodings.encoded_row_ids(), dtype=np.int64)
        self._features = stored.vectors
        self._lengths: Floats = np.sqrt(np.einsum("nd,nd->n", self._features, self._features))
        self._encoder = None
        self._revision = revision

    def _vector_of(self, item: str) -> Vectors:
        with self.campaign.reading() as view:
            row: StoredItem = view.items.get(item)
        index = int(np.searchsorted(self._row_ids, row.row_id))
        if index == len(self._row_ids) or self._row_ids[index] != row.row_id:
            raise UnknownItemError(f"The item {item!r} is not encoded yet: try again later.")
        vector: Vectors = self._features[index]
        return vector

    def _encode(self, text: str) -> Vectors:
        if self._encoder is None:
            self._encoder = self._load_encoder()
        encoding = self._encoder.encode([text])
        if encoding.unreadable:
            raise InputError(f"The text cannot be encoded: {encoding.unreadable[0]}")
        vector: Vectors = encoding.vectors[0]
        return vector

    def _load_encoder(self) -> Encoder:
        with self.campaign.reading() as view:
            current = view.encodings.current()
            settings = view.settings
            can_encode = reads_texts(view)
        if not can_encode:
            raise InputError(
                "The features of these items do not come from an encoder of texts: name an item to "
                "find others like it (like=)."
            )
        # The first items are encoded by an encoder that is not kept.
        if current is None or current.state is None:
            raise InputError("The items are still being encoded: try again later.")

        encoder, _ = make_campaign_encoder(settings, current.encoder)
        if (encoder.version, encoder.checksum) != (current.version, current.checksum):
            raise InputError(
                f"The encoder {encoder.name} has changed since it encoded the items: encode them "
                "again first."
            )
        encoder.restore(EncoderState.from_bytes(current.state))
        return encoder
