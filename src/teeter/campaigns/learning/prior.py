"""What is known about the classes before the first label: their names, and what sources predict.

Each text that stands for a class (its name, its description, its examples) becomes a
pseudo-example: the features of the text, with the class as its label. A source of predictions gives
one pseudo-example per class: the mean features of the items that it puts there. A source at chance
puts the same mixture into every class, so its pseudo-examples are all alike and teach next to
nothing.

A pseudo-example weighs as much as one label. Its share in a class with n labels is 1 / (n + 1), so
it fades as labels arrive, and from ``FADED_LABELS`` labels per class on it is left out. Names and
predictions may mislead, so every training asks the labels there are (``choose_prior``): a source
must agree with them more than by chance, and models that use a prior must predict at least as many
labels out of fold as models without it. docs/explanation/campaigns.md has what this rule gains with
good priors and costs with bad ones.

Nothing here loads torch or scikit-learn: the server reads priors too.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from teeter.base.wording import list_some
from teeter.campaigns.classes import class_texts
from teeter.campaigns.records import ClassifierKind, ItemKind
from teeter.errors import InputError, MissingExtraError, ServerError, StoreError

if TYPE_CHECKING:
    from teeter.campaigns.campaign import Campaign
    from teeter.campaigns.learning.saved_models import FeatureScaler
    from teeter.campaigns.records import ClassDescription
    from teeter.campaigns.settings import Settings
    from teeter.campaigns.store import CampaignStore, StoredEncoding


Vectors: TypeAlias = npt.NDArray[np.float32]

Integers: TypeAlias = npt.NDArray[np.int64]

logger = logging.getLogger("teeter")

CLASS_NAMES = "class names"
"""The origin of pseudo-examples that stand for names, descriptions and examples of classes."""

FADED_LABELS = 50
"""Labels per class from which on pseudo-examples are left out."""


class PseudoExamples(NamedTuple):
    """Rows that stand for classes, such as the features of their names."""

    features: npt.NDArray[np.float32]
    """(M, D), scaled like the items."""
    labels: npt.NDArray[np.int64]
    """(M,) class indices."""


@dataclass(frozen=True, eq=False)
class ClassPrior:
    """Pseudo-examples of the classes, by origin."""

    features: Vectors
    """(M, D), scaled like the items."""
    labels: Integers
    """(M,) class indices."""
    origins: tuple[str, ...]
    """(M,) ``CLASS_NAMES``, or the name of a source."""
    predicted: Mapping[str, Integers] = field(default_factory=dict)
    """By source, (N,) the class index that it predicts for each item; -1 for none."""

    @property
    def origin_names(self) -> list[str]:
        """The origins, each once, in their order."""
        return list(dict.fromkeys(self.origins))

    def examples(self, origins: Sequence[str]) -> PseudoExamples | None:
        """Return the pseudo-examples of some origins; None if there are none."""
        rows = [row for row, origin in enumerate(self.origins) if origin in origins]
        if not rows:
            return None
        return PseudoExamples(self.features[rows], self.labels[rows])


def has_faded(n_labels: int, n_classes: int) -> bool:
    """Return whether there are so many labels that pseudo-examples are left out."""
    return n_labels >= FADED_LABELS * n_classes


def explain_unused_names(settings: Settings, encoder: str | None) -> str | None:
    """Return why the names of classes cannot be used in a campaign; None if they can."""
    from teeter.campaigns.learning.encoding import USER_ENCODER

    if not settings.names:
        return "The class names are not used, as you asked with --no-names."
    if settings.kind == ItemKind.IMAGE:
        return (
            "The class names are not used: no built-in encoder puts images and words into the "
            "same space."
        )
    if settings.kind == ItemKind.FEATURES or encoder == USER_ENCODER:
        return "The class names are not used: you gave the features of the items yourself."

    if settings.head == ClassifierKind.MLP:
        return f"The class names are not used: the head {settings.head} cannot use them."
    return None


class PriorReader:
    """Reads the prior of a campaign, and keeps it until something changes.

    Args:
        store: the campaign, which must not have a transaction open: names may have to be encoded.
    """

    def __init__(self, store: CampaignStore) -> None:
        self._store = store
        self._prior: ClassPrior | None = None
        self._revision: tuple[object, ...] | None = None

    def read(
        self,
        settings: Settings,
        classes: Sequence[str],
        descriptions: Mapping[str, ClassDescription],
        *,
        encoding: StoredEncoding | None,
        keys: Sequence[str],
        features: Vectors,
        scaler: FeatureScaler,
    ) -> ClassPrior | None:
        """Return the prior of a campaign, or None if nothing is known about its classes.

        Args:
            settings: the campaign's settings.
            classes: the names of the classes.
            descriptions: what they mean.
            encoding: the current encoding, of which the features are.
            keys: the ids of the items with features.
            features: (N, D) their scaled features.
            scaler: how they were scaled.
        """
        if settings.head == ClassifierKind.MLP:
            return None

        with self._store.reading() as view:
            sources = view.suggestions.revision()
            items = 0
            # A source says nothing about an item while it is withdrawn.
            if sources:
                items = view.items.newest_change()
        texts = {}
        if settings.names:
            texts = {name: class_texts(name, descriptions.get(name)) for name in classes}

        # All that the prior depends on: it is read again only if one of these changes.
        encoded = None
        if encoding is not None:
            encoded = encoding.row_id, encoding.revision
        revision = (encoded, sources, items, tuple(classes), repr(texts), len(keys), scaler.size)
        if revision == self._revision:
            return self._prior

        parts = [self._read_names(settings, texts, encoding, scaler)]
        parts += self._read_sources(classes, keys, features)
        self._prior = _join([part for part in parts if part is not None])
        self._revision = revision
        return self._prior

    def _read_names(
        self,
        settings: Settings,
        texts: Mapping[str, Sequence[str]],
        encoding: StoredEncoding | None,
        scaler: FeatureScaler,
    ) -> ClassPrior | None:
        """Return the pseudo-examples of names and descriptions."""
        n_meaningful = sum(bool(of_class) for of_class in texts.values())
        if n_meaningful < 2 or encoding is None:
            return None
        if explain_unused_names(settings, encoding.encoder) is not None:
            return None

        # One list for all classes: an encoder is fast if it gets all texts at once.
        all_texts: list[str] = []
        labels: list[int] = []
        for k, of_class in enumerate(texts.values()):
            all_texts += of_class
            labels += [k] * len(of_class)
        vectors = self._encode(settings, encoding, all_texts)
        if vectors is None or vectors.shape[1] != len(scaler.centre):
            return None

        # With the scale of the items, not of the names: both must be in one space.
        scaled = (vectors - scaler.centre) / scaler.size
        return ClassPrior(
            scaled.astype(np.float32),
            np.array(labels, dtype=np.int64),
            (CLASS_NAMES,) * len(labels),
        )

    def _encode(
        self, settings: Settings, encoding: StoredEncoding, texts: Sequence[str]
    ) -> Vectors | None:
        """Return the vectors (M, D) of texts, computed once and then stored."""
        from teeter.campaigns.learning.encoding import load_encoder

        digests = []
        for text in texts:
            digest = hashlib.blake2b(text.encode(), digest_size=16)
            digests.append(digest.hexdigest())
        with self._store.reading() as view:
            stored = view.descriptions.text_vectors(encoding.row_id, digests)
        if all(digest in stored for digest in digests):
            return np.stack([stored[digest] for digest in digests])

        try:
            encoder = load_encoder(settings, encoding)
            if encoder is None:
                return None
            vectors = encoder.encode(texts).vectors
        except (InputError, MissingExtraError, ServerError) as error:
            # A campaign can be labelled where its encoder is missing; only its prior is not known.
            logger.info("The class names are not used. %s", error)
            return None

        try:
            with self._store.writing() as change:
                change.descriptions.write_text_vectors(
                    encoding.row_id, dict(zip(digests, vectors, strict=True))
                )
        except StoreError as error:
            # Only a cache: a campaign that cannot be written to can still be read.
            logger.info("The vectors of the class names are not stored. %s", error)
        return np.asarray(vectors, dtype=np.float32)

    def _read_sources(
        self, classes: Sequence[str], keys: Sequence[str], features: Vectors
    ) -> list[ClassPrior]:
        """Return a pseudo-example per source and class: the mean of the items it puts there."""
        row_of_item = {item: row for row, item in enumerate(keys)}
        with self._store.reading() as view:
            suggestions_by_source = {
                source.name: view.suggestions.of_source(source)
                for source in view.suggestions.sources()
            }

        priors = []
        for source, suggestions in suggestions_by_source.items():
            rows_of_class: dict[str, list[int]] = {}
            for entry in suggestions:
                if entry.item in row_of_item:
                    rows_of_class.setdefault(entry.label, []).append(row_of_item[entry.item])
            # What is always the same tells no classes apart.
            if len(rows_of_class) < 2:
                continue

            means = []
            labels = []
            predicted = np.full(len(keys), -1, dtype=np.int64)
            for k, name in enumerate(classes):
                rows = rows_of_class.get(name)
                if rows is not None:
                    means.append(features[rows].mean(axis=0))
                    labels.append(k)
                    predicted[rows] = k
            prior = ClassPrior(
                np.stack(means),
                np.array(labels, dtype=np.int64),
                (source,) * len(labels),
                {source: predicted},
            )
            priors.append(prior)
        return priors


def _join(priors: Sequence[ClassPrior]) -> ClassPrior | None:
    if not priors:
        return None

    origins: tuple[str, ...] = ()
    predicted: dict[str, Integers] = {}
    for prior in priors:
        origins += prior.origins
        predicted |= prior.predicted
    return ClassPrior(
        np.concatenate([prior.features for prior in priors]),
        np.concatenate([prior.labels for prior in priors]),
        origins,
        predicted,
    )


_NAMED_CLASSES = 5
"""Classes that are named one by one."""


def explain_names(campaign: Campaign) -> str:
    """Return whether models of a campaign learn from the names of its classes, and why not."""
    with campaign.reading() as view:
        settings = view.settings
        current = view.encodings.current()
        classes = view.classes.names()
        descriptions = view.descriptions.all()

    encoder = None
    if current is not None:
        encoder = current.encoder
    reason = explain_unused_names(settings, encoder)
    if reason is not None:
        return reason

    silent = [name for name in classes if not class_texts(name, descriptions.get(name))]
    listed = list_some(silent, _NAMED_CLASSES)

    if len(classes) - len(silent) < 2:
        return (
            f"The class names are not used, because too few of them say anything about their "
            f"items. Describe {listed} with teeter campaign classes --describe."
        )
    if silent:
        subject = "its name says" if len(silent) == 1 else "their names say"
        return (
            f"Models learn from the class names, but not from {listed}, because {subject} nothing "
            "about the items."
        )
    return "Models also learn from the class names, as long as this helps."
