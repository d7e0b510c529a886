"""Train a campaign's model on its labels, predict with it, and measure it on random items."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NamedTuple, NotRequired, TypeAlias, TypedDict, cast

import numpy as np
import numpy.typing as npt
import torch
from safetensors.numpy import save
from torch import Tensor

from teeter.campaigns.agreement import prediction_agreement
from teeter.campaigns.classifiers import (
    ClassifierKind,
    head_factory,
    ignore_few_labels_warning,
)
from teeter.campaigns.rounds import RoundSettings, RoundState
from teeter.campaigns.saved_models import (
    dump_layers,
    load_arrays,
    load_models,
    scale_features,
)
from teeter.errors import InputError
from teeter.learner import Learner, fit_learners
from teeter.strategies.api import make_strategy
from teeter.training import TrainingConfig

if TYPE_CHECKING:
    from teeter.campaigns.db import CampaignRepository, Connection

__all__ = [
    "ModelFacts",
    "Prediction",
    "labelled_items",
    "load_learner",
    "measure_previous_encoder",
    "out_of_fold",
    "predict_items",
    "predict_rows",
    "train_model",
]

Vectors: TypeAlias = npt.NDArray[np.float32]
Integers: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]

logger = logging.getLogger("teeter")

TRAINING = TrainingConfig(class_weighted=True)
"""How networks are trained. Rare classes count as much as frequent ones."""

MAX_CANDIDATES = 20_000
"""Items that a strategy sees. If there are more, they are drawn at random."""

FOLDS = 5
"""Folds in which a linear head is measured."""

NETWORK_FOLDS = 3
"""Folds in which networks are measured.

They take longer to train. With fewer folds each is trained on fewer labels, so that the estimate is
rather too low than too high.
"""


class ModelFacts(TypedDict):
    """What is recorded about a trained model."""

    labels: int
    """Labels it was trained on."""
    classes: list[str]
    """Classes among those labels."""
    control: list[int]
    """How many labelled control items are predicted correctly out of fold, and how many there are.
    """
    audit: list[int]
    """How many labelled items of the audit set are predicted correctly, and how many there are."""
    out_of_fold: list[int]
    """How many labels are predicted correctly out of fold, and how many there are."""
    most_frequent: int
    """Number of labels of the most frequent class."""
    mean_recall: float
    """The recall of each class out of fold, averaged over the classes."""
    encoder: NotRequired[str]
    """Name of the encoder that computed the features."""
    previous_encoder: NotRequired[str]
    """Name of the encoder before this one, if its features are still stored."""
    previous_right: NotRequired[int]
    """How many labels are predicted correctly out of fold from the features of that encoder."""
    kappa: NotRequired[float]
    """Cohen's kappa with the predictions of the previous model."""
    changed: NotRequired[float]
    """The share of predictions that differ from those of the previous model."""


class Prediction(NamedTuple):
    """The most probable class of an item."""

    label: str
    probability: float


def train_model(state: RoundState, settings: RoundSettings) -> tuple[bytes, ModelFacts]:
    """Train a model on all labels except those of the audit set.

    Returns:
        The model as it is saved (see ``saved_models``), and what is known about it.

    Raises:
        InputError: If fewer than two classes have labels, or if items are not encoded yet.
    """
    if state.unencoded:
        raise InputError(
            f"{state.unencoded:,} items are not encoded yet: run teeter campaign encode, or wait "
            "until it is done, then train."
        )

    seen = sorted({state.classes.index(label) for label in state.labels.values()})
    if not seen:
        raise InputError(
            "No item has a label yet: label items of at least two classes, then train."
        )
    if len(seen) < 2:
        raise InputError(
            f"Labels exist for only {len(seen)} of {len(state.classes)} classes: label items of "
            f"at least two classes, then train."
        )

    learner = _make_learner(state, settings)
    _tell_labels(learner, state)
    # The number of earlier models decides the seed of this training.
    learner.resume(state.version, {})
    with ignore_few_labels_warning():
        learner.fit()

    class_index = {name: k for k, name in enumerate(state.classes)}
    names = learner.predict().tolist()
    predicted = np.array([class_index[name] for name in names], dtype=np.int16)

    places, labels = labelled_items(state)
    probabilities = out_of_fold(state.features[places], labels, head=settings.head)
    is_right = probabilities.argmax(axis=1) == labels
    facts: ModelFacts = {
        "labels": len(places),
        "classes": [state.classes[k] for k in seen],
        "control": _measure_control(state, places, is_right),
        "audit": _measure_audit(state, predicted),
        "out_of_fold": [int(is_right.sum()), len(labels)],
        "most_frequent": int(np.bincount(labels).max()),
        "mean_recall": float(np.mean([is_right[labels == k].mean() for k in seen])),
    }

    if state.weights is not None:
        # Items that were added since have no earlier prediction.
        before = load_arrays(state.weights)["predicted"].astype(np.int64)
        after = predicted[: len(before)].astype(np.int64)
        kappa, changed = prediction_agreement(before, after)
        facts["kappa"] = kappa
        facts["changed"] = changed

    arrays = dump_layers(learner)
    arrays |= {
        "places": places,
        "labels": labels,
        "predicted": predicted,
    }
    if state.scaler is not None:
        arrays |= state.scaler.to_arrays()
    return save(arrays), facts


def _measure_control(
    state: RoundState, places: Integers, is_right: npt.NDArray[np.bool_]
) -> list[int]:
    """Count the labelled control items, and those predicted correctly out of fold.

    The model in use was trained on them, so it cannot judge them.
    """
    is_control = np.array([int(place) in state.control for place in places])
    return [int(is_right[is_control].sum()), int(is_control.sum())]


def _measure_audit(state: RoundState, predicted: npt.NDArray[np.int16]) -> list[int]:
    """Count the labelled items of the audit set, and those predicted correctly."""
    right = 0
    total = 0
    for place, label in state.audit.items():
        if label is not None:
            total += 1
            right += int(predicted[place]) == state.classes.index(label)

    return [right, total]


def measure_previous_encoder(
    repository: CampaignRepository,
    connection: Connection,
    state: RoundState,
    facts: ModelFacts,
    head: str,
) -> None:
    """Add to the facts of a model its encoder, and the accuracy with the encoder before it.

    Args:
        repository: the campaign's rows.
        connection: an open connection.
        state: the labels and features that the model was trained on.
        facts: what is known of the model. The names of both encoders are added to it.
        head: what was trained on the features, one of ``ClassifierKind``.
    """
    current = repository.encodings.current(connection)
    if current is None:
        return
    facts["encoder"] = current.encoder

    places, labels = labelled_items(state)
    keys = [state.keys[place] for place in places]
    for encoding in reversed(repository.encodings.all(connection)):
        if encoding.is_current:
            continue

        # An encoding that was never completed may lack labelled items, and cannot be compared.
        previous = repository.encodings.read(connection, encoding.row_id, keys)
        if len(previous.keys) < len(keys):
            continue

        row_of_key = {key: row for row, key in enumerate(previous.keys)}
        vectors = previous.vectors[[row_of_key[key] for key in keys]]
        features, _ = scale_features(vectors)
        probabilities = out_of_fold(features, labels, head=head)
        facts["previous_encoder"] = encoding.encoder
        facts["previous_right"] = int((probabilities.argmax(axis=1) == labels).sum())
        return


def predict_items(state: RoundState, settings: RoundSettings) -> list[Prediction] | None:
    """Predict the class of every item with the newest model; None if there is no model."""
    if state.weights is None:
        return None

    return predict_rows(state, load_learner(state, settings), state.features)


def predict_rows(state: RoundState, learner: Learner, features: Vectors) -> list[Prediction]:
    """Predict the classes of rows of features (M, D) with a trained learner."""
    probabilities = _logits(learner, features).softmax(dim=1)
    highest, columns = probabilities.max(dim=1)

    seen = _seen_classes(learner, len(state.classes))
    predictions = []
    for column, probability in zip(columns.tolist(), highest.tolist(), strict=True):
        predictions.append(Prediction(state.classes[seen[column]], probability))
    return predictions


def load_learner(state: RoundState, settings: RoundSettings, n: int = 1) -> Learner:
    """Return a learner with the newest model and the current labels, which can pick n items.

    If there is no model yet, it knows no labels either: the cold start picks without labels.
    """
    learner = _make_learner(state, settings, n)
    if state.weights is None:
        return learner

    learner.resume(state.version, {}, models=_load_newest_models(state, settings))
    _tell_labels(learner, state)
    return learner


def labelled_items(state: RoundState) -> tuple[Integers, Integers]:
    """Return the places of the labelled items in ascending order, and their class indices."""
    places = sorted(state.labels)
    labels = [state.classes.index(state.labels[place]) for place in places]
    return np.array(places, dtype=np.int64), np.array(labels, dtype=np.int64)


def out_of_fold(
    features: Vectors, labels: Integers, *, head: str = ClassifierKind.LINEAR, seed: int = 0
) -> Floats:
    """Return class probabilities of each row from a head that was not trained on it.

    Args:
        features: Shape (L, D).
        labels: Class indices from 0, shape (L,).
        head: One of ``ClassifierKind``.
        seed: Decides the folds and the networks.

    Returns:
        Shape (L, C). A class has probability 0 for a row if it occurs in no other fold.
    """
    n_folds = NETWORK_FOLDS if head == ClassifierKind.MLP else FOLDS
    n_rows = len(labels)
    n_classes = int(labels.max()) + 1
    order = np.random.default_rng(seed).permutation(n_rows)
    probabilities = np.zeros((n_rows, n_classes))

    folds_to_train = []
    for fold in range(min(n_folds, n_rows)):
        held_out = order[fold::n_folds]
        rest = np.setdiff1d(order, held_out)
        if len(np.unique(labels[rest])) < 2:
            # A single class needs no training: it is certain.
            probabilities[held_out[:, None], labels[rest]] = 1.0
        else:
            folds_to_train.append((held_out, rest))

    predictions = _predict_folds(head, features, labels, folds_to_train, seed)
    for (held_out, rest), predicted in zip(folds_to_train, predictions, strict=True):
        # A network has an output for every class, also for those it was not trained on.
        seen = np.unique(labels[rest])
        probabilities[held_out[:, None], seen] = predicted[:, seen]

    return probabilities


def _predict_folds(
    head: str,
    features: Vectors,
    labels: Integers,
    folds: list[tuple[Integers, Integers]],
    seed: int,
) -> list[Floats]:
    """Train one head per fold, all at once, and return (H, C) probabilities of each fold's rows."""
    n_classes = int(labels.max()) + 1
    factory = head_factory(head, features.shape[1], n_classes)

    learners = []
    for _, rest in folds:
        learner = Learner(
            factory,
            features,
            "random",
            classes=n_classes,
            seed=seed,
            training=TRAINING,
            device="cpu",
        )
        learner.tell(rest, labels[rest])
        learners.append(learner)

    with ignore_few_labels_warning():
        for error in fit_learners(learners).values():
            raise error

    predictions = []
    for learner, (held_out, _) in zip(learners, folds, strict=True):
        logits = _logits(learner, features[held_out])
        probabilities = np.zeros((len(held_out), n_classes))
        seen = _seen_classes(learner, n_classes)
        probabilities[:, seen] = torch.softmax(logits.double(), dim=1).numpy()
        predictions.append(probabilities)
    return predictions


def _make_learner(state: RoundState, settings: RoundSettings, n: int = 1) -> Learner:
    """Return a learner without labels and models, which can pick n items."""
    return Learner(
        head_factory(settings.head, state.features.shape[1], len(state.classes)),
        state.features,
        make_strategy(settings.strategy, settings.options),
        classes=state.classes,
        seed=settings.seed,
        pool_size=max(MAX_CANDIDATES, n),
        training=TRAINING,
        # Before the first model there are only features to go by.
        cold_start=make_strategy("typiclust", {}),
        # Heads are small: copying them to a GPU would take longer than training them.
        device="cpu",
    )


def _tell_labels(learner: Learner, state: RoundState) -> None:
    places = list(state.labels)
    labels = list(state.labels.values())
    learner.tell(places, labels)


def _load_newest_models(state: RoundState, settings: RoundSettings) -> list[Any]:
    """Return the newest models, trained again on their labels if the features have changed."""
    arrays = load_arrays(state.weights or b"")
    width = state.features.shape[1]
    models = load_models(arrays, settings.head, width, len(state.classes))
    if models:
        return models

    logger.info(
        "The features have changed since model %d was trained, so it is being trained again on "
        "the same labels.",
        state.version,
    )
    learner = _make_learner(state, settings)
    labels = [state.classes[k] for k in arrays["labels"]]
    learner.tell(arrays["places"], labels)
    # The round before, so that this training has the seed of the first one.
    learner.resume(state.version - 1, {})
    with ignore_few_labels_warning():
        learner.fit()
    return learner.models


def _logits(learner: Learner, features: Vectors) -> Tensor:
    """Return the logits of rows, with a column for each class that the model has seen."""
    outputs = learner.observe(features, ("logits",)).with_logits()
    return cast(Tensor, outputs.logits)  # both heads have logits


def _seen_classes(learner: Learner, n_classes: int) -> list[int]:
    """Return the class index of each column of the model's logits."""
    # scikit-learn has columns only for the classes it was trained on, networks for all.
    seen = getattr(learner.models[0], "classes_", range(n_classes))
    return [int(k) for k in seen]
