"""Train a campaign's model on its labels, predict with it, and measure it on random items.

``choose_prior`` decides, by the labels there are, which pseudo-examples a model learns from.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NotRequired, TypeAlias, TypedDict

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save

from teeter.base.wording import pluralize
from teeter.campaigns.items.near_copies import join_groups
from teeter.campaigns.learning.classifiers import (
    MAX_FOLD_POOL,
    TRAINING,
    cross_fit,
    fit_temperature,
    head_factory,
    limit_threads_and_warnings,
    out_of_fold,
    predict_logits,
    seen_classes,
)
from teeter.campaigns.learning.prior import CLASS_NAMES, ClassPrior, PseudoExamples, has_faded
from teeter.campaigns.learning.rounds import RoundSettings, RoundState
from teeter.campaigns.learning.saved_models import (
    PICKING,
    Arrays,
    dump_layers,
    load_arrays,
    load_models,
    load_temperature,
    scale_features,
)
from teeter.campaigns.learning.several import predict_several, train_several
from teeter.campaigns.learning.stopping import Stratum, stratify
from teeter.campaigns.records import ClassifierKind
from teeter.campaigns.review.annotators import prediction_agreement
from teeter.errors import InputError
from teeter.learner.learner import Learner
from teeter.learner.rounds import resume
from teeter.strategies.api import make_strategy

if TYPE_CHECKING:
    from teeter.campaigns.store import CampaignStore


Vectors: TypeAlias = npt.NDArray[np.float32]

Integers: TypeAlias = npt.NDArray[np.int64]

Floats: TypeAlias = npt.NDArray[np.float64]

logger = logging.getLogger("teeter")

MAX_CANDIDATES = 20_000
"""Items that a strategy sees. If there are more, they are drawn at random."""

COLD_STARTS = {"herding-ldm-s": "maxherding", "uherding": "maxherding"}
"""The strategy that picks before the first model, by the strategy that picks after it; typiclust
before all others.
"""

MIN_CALIBRATION_ITEMS = 30
"""With fewer labelled random items, the temperature is fitted on all labels."""


class ModelFacts(TypedDict):
    """What is recorded about a trained model."""

    labels: int
    """Labels it was trained on."""
    classes: list[str]
    """Classes among those labels."""
    control: list[int]
    """How many labelled random items are predicted correctly by models that were not trained on
    them, and how many there are.
    """
    new_groups: NotRequired[list[int]]
    """The same by models that were not trained on a near copy of the item either; left out if no
    random item has a near copy with a label.
    """
    strata: NotRequired[list[Stratum]]
    """``control`` by the confidence of those models."""
    random: NotRequired[list[tuple[float, int]]]
    """``control`` item by item: the share of all items of which these models are surer, and whether
    they are right. It is not stored.
    """
    holdout: list[int]
    """How many labelled items of the holdout are predicted correctly, and how many there are."""
    out_of_fold: list[int]
    """How many labels are predicted correctly out of fold, and how many there are.

    By models without class names and predictions of sources: this judges the features.
    """
    most_frequent: int
    """Number of labels of the most frequent class."""
    mean_recall: float
    """The recall of each class out of fold, averaged over the classes."""
    outlook: NotRequired[dict[str, float]]
    """How soon it is expected to reach the goal: see ``Outlook``."""
    outlook_goal: NotRequired[str]
    """The goal that this is about; empty for the usual one."""
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
    prior: NotRequired[list[str]]
    """What it learned from beside labels: class names, or the predictions of named sources.

    Empty if labels alone were better; left out if nothing else is known.
    """
    names: NotRequired[int]
    """How many classes have a name that it learned from; left out if it learned from no names."""
    pool: NotRequired[int]
    """How many unlabelled items it learned from; left out if its head is no pool head."""
    by_label: NotRequired[list[tuple[int, int, int]]]
    """For each label of items that may have several, how many of the random items have it and are
    predicted to, are predicted to, and have it."""
    items: NotRequired[list[int]]
    """How many items there were, and how many of them were withdrawn; with ``pool`` only."""


def train_model(state: RoundState, settings: RoundSettings) -> tuple[bytes, ModelFacts]:
    """Train a model on all labels except those of the holdout.

    Returns:
        The model as it is saved (see ``saved_models``), and what is known about it.

    Raises:
        InputError: If fewer than two classes have labels, or if items are not encoded yet.
    """
    if state.several:
        _require_encoded(state)
        return train_several(state)
    seen = _require_two_classes(state)
    places, labels = labelled_items(state)
    features = state.features[places]
    groups = group_by_answer(state, places)
    head = choose_head(settings.head, len(places), len(state.classes))
    settings = replace(settings, head=head)
    # The rule on names and sources was measured with models of the labels alone.
    chosen = choose_prior(
        state.prior,
        features,
        labels,
        places,
        n_classes=len(state.classes),
        head=choose_picking_head(settings.head),
        groups=groups,
    )
    fold_places = draw_fold_pool(state, settings.head)
    fold_pool = None
    if fold_places is not None:
        fold_pool = state.features[fold_places]
        chosen = _judge_with_pool(chosen, features, labels, fold_pool, groups)

    learner = _make_learner(state, settings, examples=chosen.examples)
    _tell_labels(learner, state)
    # The number of earlier models decides the seed of this training.
    _fit(learner, state, earlier_models=state.version)
    class_index = {name: k for k, name in enumerate(state.classes)}
    names = learner.predict().tolist()
    predicted = np.array([class_index[name] for name in names], dtype=np.int16)

    # The model in use was trained on the random items too, so it cannot judge them itself.
    measuring = state.random - state.in_view
    is_random = [int(place) in measuring for place in places]
    random_rows = np.flatnonzero(is_random)
    random_labels = labels[random_rows]
    random_probabilities = cross_fit(
        features,
        labels,
        random_rows,
        head=settings.head,
        examples=chosen.examples,
        pool=fold_pool,
        groups=groups,
    )

    is_right = chosen.plain_probabilities.argmax(axis=1) == labels
    unseen = chosen.probabilities.argmax(axis=1)
    unseen[random_rows] = random_probabilities.argmax(axis=1)
    is_random_right = unseen[random_rows] == random_labels
    # The same by models that know none of an item's near copies, which people may have looked at.
    is_new_right = is_random_right.copy()
    near_groups = group_by_answer(state, places, with_near_copies=True)
    _, group_rows, group_sizes = np.unique(near_groups, return_inverse=True, return_counts=True)
    sizes = group_sizes[group_rows]
    has_copies = np.flatnonzero(sizes[random_rows] > 1)
    if len(has_copies):
        rows = random_rows[has_copies]
        probabilities = cross_fit(
            features,
            labels,
            rows,
            head=settings.head,
            examples=chosen.examples,
            pool=fold_pool,
            groups=near_groups,
        )
        is_new_right[has_copies] = probabilities.argmax(axis=1) == labels[rows]
    counts = np.bincount(labels)
    recalls = [is_right[labels == k].mean() for k in seen]
    facts: ModelFacts = {
        "labels": len(places),
        "classes": [state.classes[k] for k in seen],
        "control": [int(is_random_right.sum()), len(random_rows)],
        "holdout": _measure_holdout(state, predicted),
        "out_of_fold": [int(is_right.sum()), len(labels)],
        "most_frequent": int(counts.max()),
        "mean_recall": float(np.mean(recalls)),
    }
    if len(has_copies):
        facts["new_groups"] = [int(is_new_right.sum()), len(random_rows)]
    if state.prior is not None:
        facts["prior"] = list(chosen.origins)
        named = state.prior.examples([CLASS_NAMES])
        if named is not None and CLASS_NAMES in chosen.origins:
            facts["names"] = len(np.unique(named.labels))
    if settings.head == ClassifierKind.POOL:
        facts["pool"] = len(_unlabelled_places(state))
        facts["items"] = [len(state.keys), len(state.withdrawn)]
    if state.weights is not None:
        # Items that were added since have no earlier prediction.
        before = load_arrays(state.weights)["predicted"].astype(np.int64)
        after = predicted[: len(before)].astype(np.int64)
        kappa, changed = prediction_agreement(before, after)
        facts["kappa"] = kappa
        facts["changed"] = changed

    # Random items represent all items. Picked ones are often harder, and would bias the
    # temperature.
    if len(random_rows) >= MIN_CALIBRATION_ITEMS:
        temperature = fit_temperature(random_probabilities, random_labels)
    else:
        temperature = fit_temperature(chosen.probabilities, labels)

    # Stored with the model, so that letting it label the rest needs no features and no torch.
    logits = predict_logits(learner, state.features).double()
    confidence = (logits / temperature).softmax(dim=1).amax(dim=1)

    # Of models that do not know the item's label, as those that judge the random items.
    judged = logits.softmax(dim=1).amax(dim=1).numpy()
    judged[places] = chosen.probabilities.max(axis=1)
    judged[places[random_rows]] = random_probabilities.max(axis=1)
    if len(random_rows):
        belongs = np.setdiff1d(np.arange(len(judged)), list(state.left_out))
        drawn = np.searchsorted(belongs, places[random_rows])
        confidences = judged[belongs]
        facts["strata"] = stratify(confidences, drawn, is_random_right)
        facts["random"] = _rank_random(confidences, drawn, is_random_right)

    arrays = dump_layers(learner)
    arrays |= {
        "places": places,
        "labels": labels,
        "unseen": unseen.astype(np.int16),
        "predicted": predicted,
        "temperature": np.array([temperature]),
        "confidence": confidence.numpy(),
    }
    picking_model = _train_picking_model(state, settings, chosen.examples)
    for name, array in picking_model.items():
        arrays[f"{PICKING}{name}"] = array
    if state.scaler is not None:
        arrays |= state.scaler.to_arrays()
    return save(arrays), facts


def _rank_random(
    confidences: Floats, drawn: Integers, is_right: npt.NDArray[np.bool_]
) -> list[tuple[float, int]]:
    """Return for each random item the share of all items with more confidence, and if it is right.

    Args:
        confidences: (N,) of models that do not know the items.
        drawn: (n,) positions of the random items.
        is_right: (n,) whether such a model is right about them.
    """
    ascending = np.sort(confidences)
    n_surer = len(ascending) - np.searchsorted(ascending, confidences[drawn], side="right")
    ranks = (n_surer / len(ascending)).round(4).tolist()
    return list(zip(ranks, is_right.astype(int).tolist(), strict=True))


def _require_two_classes(state: RoundState) -> list[int]:
    """Check that a model can be trained, and return the indices of the classes with labels."""
    _require_encoded(state)
    labels = set(state.labels.values())
    seen = sorted(state.classes.index(label) for label in labels)
    if not seen:
        raise InputError(
            "No item has a label yet: label items of at least two classes, then train."
        )
    if len(seen) < 2:
        raise InputError(
            f"Labels exist for only {len(seen)} of {len(state.classes)} classes: label items of "
            f"at least two classes, then train."
        )
    return seen


def _require_encoded(state: RoundState) -> None:
    if state.unencoded:
        lacking = pluralize(state.unencoded, "item has", "items have")
        raise InputError(
            f"{lacking} not been encoded yet: run teeter campaign encode, or wait until it has "
            "finished, then train."
        )


def _train_picking_model(
    state: RoundState, settings: RoundSettings, examples: PseudoExamples | None
) -> Arrays:
    """Train the model that picks, without the random items, and return its arrays.

    If it knew their labels, it would not pick items like them, and a random item would have fewer
    neighbours among the labels than an item of the pool has. Models that are tested on random items
    would then seem worse than they are.

    It does not learn from unlabelled items either: it is to find what they cannot tell.

    Returns:
        The arrays, or an empty dictionary if the labels do not suffice: then the other model picks.
    """
    labels = _picking_labels(state)
    if len(set(labels.values())) < 2:
        return {}

    settings = replace(settings, head=choose_picking_head(settings.head))
    learner = _make_learner(state, settings, examples=examples)
    learner.tell(list(labels), list(labels.values()))
    _fit(learner, state, earlier_models=state.version)
    return dump_layers(learner)


def choose_head(head: str, n_labels: int, n_classes: int) -> str:
    """Return the head to train: there may be so many labels that the pool adds nothing."""
    if head == ClassifierKind.POOL and has_faded(n_labels, n_classes):
        return ClassifierKind.LINEAR
    return head


def choose_picking_head(head: str) -> str:
    """Return the head of the model that picks."""
    if head == ClassifierKind.POOL:
        return ClassifierKind.LINEAR
    return head


def _unlabelled_places(state: RoundState) -> Integers:
    """Return the places of the items that a pool head learns from without their labels.

    Those of the holdout are among them, also if they have a label, which no model knows.
    """
    places = np.arange(len(state.keys))
    known = state.labels.keys() | state.left_out
    return np.setdiff1d(places, np.array(sorted(known), dtype=np.int64))


def draw_fold_pool(state: RoundState, head: str) -> Integers | None:
    """Return the places of the unlabelled items that the models of folds learn from.

    It is None if their head learns from labels alone.
    """
    if head != ClassifierKind.POOL:
        return None
    places = _unlabelled_places(state)
    if len(places) <= MAX_FOLD_POOL:
        return places
    generator = np.random.default_rng(0)
    drawn: Integers = generator.choice(places, MAX_FOLD_POOL, replace=False)
    return np.sort(drawn)


def _judge_with_pool(
    chosen: ChosenPrior, features: Vectors, labels: Integers, pool: Vectors, groups: Integers
) -> ChosenPrior:
    """Return a choice whose out-of-fold probabilities are those of pool heads."""
    plain = out_of_fold(features, labels, head=ClassifierKind.POOL, pool=pool, groups=groups)
    probabilities = plain
    if chosen.examples is not None:
        probabilities = out_of_fold(
            features,
            labels,
            head=ClassifierKind.POOL,
            examples=chosen.examples,
            pool=pool,
            groups=groups,
        )
    return replace(chosen, probabilities=probabilities, plain_probabilities=plain)


def group_by_answer(
    state: RoundState, places: Integers, *, with_near_copies: bool = False
) -> Integers:
    """Return (L,) the group of each labelled item: an item and those answered as its copies.

    A model that knows the label of one of them knows the answer about the others.

    Args:
        places: (L,) the places of the items.
        with_near_copies: whether all near copies are of one group, whoever answered them.
    """
    groups = np.arange(len(state.keys))
    if with_near_copies and state.near_copies is not None:
        groups = state.near_copies
    if state.copied:
        copies, sources = np.array(state.copied).T
        groups = join_groups(groups, copies, sources)
    return groups[places]


def _picking_labels(state: RoundState) -> dict[int, str]:
    return {place: label for place, label in state.labels.items() if place not in state.random}


def _measure_holdout(state: RoundState, predicted: npt.NDArray[np.int16]) -> list[int]:
    """Count the labelled items of the holdout, and those predicted correctly."""
    right = 0
    total = 0
    for place, label in state.holdout.items():
        if label is not None:
            total += 1
            right += int(predicted[place]) == state.classes.index(label)

    return [right, total]


def measure_previous_encoder(store: CampaignStore, state: RoundState, facts: ModelFacts) -> None:
    """Add to the facts of a model its encoder, and the accuracy with the encoder before it.

    Args:
        state: the labels and features that the model was trained on.
        facts: what is known of the model. The names of both encoders are added to it.
    """
    if state.several:
        with store.reading() as view:
            encoding = view.encodings.current()
        if encoding is not None:
            facts["encoder"] = encoding.encoder
        return
    places, labels = labelled_items(state)
    keys = [state.keys[place] for place in places]
    previous = None
    with store.reading() as view:
        head = choose_head(view.settings.head, len(places), len(state.classes))
        fold_places = draw_fold_pool(state, head)
        pool_keys = []
        if fold_places is not None:
            pool_keys = [state.keys[place] for place in fold_places]
        current = view.encodings.current()
        if current is None:
            return
        facts["encoder"] = current.encoder

        # Newest first, so that the encoder just before the current one is compared. One that was
        # never completed may lack labelled items, and cannot be compared.
        for encoding in reversed(view.encodings.all()):
            if not encoding.is_current:
                stored = view.encodings.read(encoding.row_id, [*keys, *pool_keys])
                if set(stored.keys).issuperset(keys):
                    previous = stored
                    facts["previous_encoder"] = encoding.encoder
                    break

    if previous is None:
        return
    row_of_key = {key: row for row, key in enumerate(previous.keys)}
    # Scaled by these items, as those of most encoders are alike.
    features, _ = scale_features(previous.vectors)
    rows = [row_of_key[key] for key in keys]
    pool = None
    if fold_places is not None:
        pool_rows = [row_of_key[key] for key in pool_keys if key in row_of_key]
        pool = features[pool_rows]
    groups = group_by_answer(state, places)
    probabilities = out_of_fold(features[rows], labels, head=head, pool=pool, groups=groups)
    is_right = probabilities.argmax(axis=1) == labels
    facts["previous_right"] = int(is_right.sum())


def predict_items(state: RoundState, settings: RoundSettings) -> list[tuple[str, float]] | None:
    """Predict every item's class, with its probability, by the newest model; None without one."""
    if state.weights is None:
        return None
    if state.several:
        return predict_several(state, state.features)

    learner = load_learner(state, settings)
    return predict_rows(state, learner, state.features)


def predict_out_of_fold(state: RoundState, head: str) -> dict[str, dict[str, float]]:
    """Return, by labelled item, the probability of each class from models not trained on the item.

    It is empty if fewer than two classes have labels.

    Args:
        head: One of ``ClassifierKind``.
    """
    places, labels = labelled_items(state)
    seen = np.unique(labels)
    if len(seen) < 2:
        return {}

    # A class without labels has no probability, and readers would stumble over it.
    classes = [state.classes[position] for position in seen]
    probabilities = judge_labels(state, places, labels, head)
    rows = probabilities[:, seen].tolist()

    by_item = {}
    for place, row in zip(places.tolist(), rows, strict=True):
        by_item[state.keys[place]] = dict(zip(classes, row, strict=True))
    return by_item


def judge_labels(state: RoundState, places: Integers, labels: Integers, head: str) -> Floats:
    """Return (L, C) class probabilities of labelled items from models not trained on the item.

    Args:
        state: the items.
        places: (L,) the places of the labelled items.
        labels: (L,) their class indices.
        head: one of ``ClassifierKind``.
    """
    head = choose_head(head, len(places), len(state.classes))
    fold_places = draw_fold_pool(state, head)
    pool = None
    if fold_places is not None:
        pool = state.features[fold_places]
    groups = group_by_answer(state, places)
    return out_of_fold(state.features[places], labels, head=head, pool=pool, groups=groups)


def predict_rows(state: RoundState, learner: Learner, features: Vectors) -> list[tuple[str, float]]:
    """Predict the classes of rows of features (M, D), with their calibrated probabilities."""
    temperature = 1.0
    if state.weights is not None:
        temperature = load_temperature(state.weights)
    logits = predict_logits(learner, features)
    probabilities = (logits / temperature).softmax(dim=1)
    highest, columns = probabilities.max(dim=1)

    seen = seen_classes(learner, len(state.classes))
    predictions = []
    for column, probability in zip(columns.tolist(), highest.tolist(), strict=True):
        predictions.append((state.classes[seen[column]], probability))
    return predictions


def load_learner(state: RoundState, settings: RoundSettings, n: int = 1) -> Learner:
    """Return a learner with the newest model and all labels, which can pick n items.

    If there is no model yet, it knows no labels either: the cold start picks without labels.
    """
    learner = _make_learner(state, settings, n)
    if state.weights is None:
        return learner

    resume(learner, state.version, {}, models=_load_newest_models(state, settings))
    _tell_labels(learner, state)
    return learner


def load_picker(state: RoundState, settings: RoundSettings, n: int) -> Learner:
    """Return a learner with the model that picks, which can pick n items.

    It knows the labels that its model was trained on, or all of them if there is only one model.
    """
    arrays = {}
    if state.weights is not None:
        for name, array in load_arrays(state.weights).items():
            if name.startswith(PICKING):
                arrays[name.removeprefix(PICKING)] = array
    width = state.features.shape[1]
    models = load_models(arrays, settings.head, width, len(state.classes))
    labels = _picking_labels(state)
    can_train = len(set(labels.values())) > 1
    if state.weights is None or not (models or can_train):
        return load_learner(state, settings, n)

    head = choose_picking_head(settings.head)
    learner = _make_learner(state, replace(settings, head=head), n)
    learner.tell(list(labels), list(labels.values()))
    if models:
        resume(learner, state.version, {}, models=models)
    else:
        # Its layers were dropped, because the features or the classes have changed.
        _fit(learner, state, earlier_models=state.version - 1)
    return learner


def labelled_items(state: RoundState) -> tuple[Integers, Integers]:
    """Return the places of the labelled items in ascending order, and their class indices."""
    places = sorted(state.labels)
    labels = [state.classes.index(state.labels[place]) for place in places]
    return np.array(places, dtype=np.int64), np.array(labels, dtype=np.int64)


def _make_learner(
    state: RoundState,
    settings: RoundSettings,
    n: int = 1,
    *,
    examples: PseudoExamples | None = None,
) -> Learner:
    """Return a learner without labels and models, which can pick n items.

    Args:
        settings: The strategy and the head.
        examples: Pseudo-examples that the head is trained on beside the labels.
    """
    return Learner(
        head_factory(settings.head, state.features.shape[1], len(state.classes), examples),
        state.features,
        make_strategy(settings.strategy, settings.options),
        classes=state.classes,
        seed=settings.seed,
        # A strategy cannot pick more items than it sees.
        pool_size=max(MAX_CANDIDATES, n),
        training=TRAINING,
        # Before the first model there are only features to go by. A model of the class names alone
        # picks worse: see docs/explanation/campaigns.md.
        cold_start=COLD_STARTS.get(settings.strategy, "typiclust"),
        # Heads are small: copying them to a GPU would take longer than training them.
        device="cpu",
    )


def _tell_labels(learner: Learner, state: RoundState) -> None:
    places = list(state.labels)
    labels = list(state.labels.values())
    learner.tell(places, labels)


def _fit(learner: Learner, state: RoundState, *, earlier_models: int) -> None:
    resume(learner, earlier_models, {})
    with limit_threads_and_warnings():
        learner.fit(exclude=state.left_out)


def _load_newest_models(state: RoundState, settings: RoundSettings) -> list[Any]:
    """Return the newest models, trained again if the features or the classes have changed."""
    arrays = load_arrays(state.weights or b"")
    width = state.features.shape[1]
    models = load_models(arrays, settings.head, width, len(state.classes))
    if models:
        return models

    logger.info(
        "The features or classes have changed since model %d was trained, so it is being trained "
        "again on the same labels.",
        state.version,
    )
    n_labels = len(arrays["labels"])
    head = choose_head(settings.head, n_labels, len(state.classes))
    learner = _make_learner(state, replace(settings, head=head))
    labels = [state.classes[k] for k in arrays["labels"]]
    learner.tell(arrays["places"], labels)
    # The round before, so that this training has the seed of the first one.
    _fit(learner, state, earlier_models=state.version - 1)
    return learner.models


@dataclass(frozen=True, eq=False)
class ChosenPrior:
    """The pseudo-examples that a model learns from, and how they were chosen."""

    examples: PseudoExamples | None
    """None if labels alone are better."""
    origins: tuple[str, ...]
    """Where they come from."""
    probabilities: Floats
    """(L, C) out-of-fold probabilities of the labelled rows, with these pseudo-examples."""
    plain_probabilities: Floats
    """(L, C) the same without any, which judge the features alone."""


def choose_prior(
    prior: ClassPrior | None,
    features: Vectors,
    labels: Integers,
    places: Integers,
    *,
    n_classes: int,
    head: str,
    groups: Integers | None = None,
) -> ChosenPrior:
    """Choose the origins with which models predict the most labels that they were not trained on.

    Begins with all origins but the sources that agree with the labels no more than by chance, and
    drops one at a time while more labels are predicted correctly without it. With equal counts an
    origin stays: that happens when there are few labels, and then a prior helps most.

    Args:
        prior: pseudo-examples by origin, if anything is known about the classes.
        features: (L, D) of the labelled items.
        labels: (L,) their class indices.
        places: (L,) their places among all items.
        n_classes: C, the number of classes.
        head: one of ``ClassifierKind``.
        groups: (L,) as in ``out_of_fold``.
    """

    def judge(origins: list[str]) -> tuple[int, PseudoExamples | None, Floats]:
        examples = None
        if prior is not None:
            examples = prior.examples(origins)
        probabilities = out_of_fold(features, labels, head=head, examples=examples, groups=groups)
        is_right = probabilities.argmax(axis=1) == labels
        return int(is_right.sum()), examples, probabilities

    n_right_plain, _, plain = judge([])
    if prior is None or has_faded(len(labels), n_classes):
        return ChosenPrior(None, (), plain, plain)

    origins = []
    for name in prior.origin_names:
        predicted = prior.predicted.get(name)
        if predicted is None or agrees_beyond_chance(predicted[places], labels):
            origins.append(name)
    if not origins:
        return ChosenPrior(None, (), plain, plain)

    n_right, examples, probabilities = judge(origins)

    # One at a time: class names may help where predictions mislead, and the other way round.
    while len(origins) > 1:
        without = {}
        for name in origins:
            others = [other for other in origins if other != name]
            without[name] = judge(others)
        dropped = max(without, key=lambda name: without[name][0])
        if without[dropped][0] <= n_right:
            break
        n_right, examples, probabilities = without[dropped]
        origins = [name for name in origins if name != dropped]

    if n_right < n_right_plain:
        return ChosenPrior(None, (), plain, plain)
    return ChosenPrior(examples, tuple(origins), probabilities, plain)


def agrees_beyond_chance(predicted: Integers, labels: Integers) -> bool:
    """Return whether predictions agree with labels more than unrelated ones would.

    Unrelated predictions of the same class frequencies agree by chance on a share of the items that
    the frequencies tell. More than that is a positive Cohen's kappa. Nothing more is asked for,
    because picked items are hard for all models. Without a common item there is nothing to compare,
    and predictions get the benefit of the doubt.

    Args:
        predicted: (L,) class indices; -1 for no prediction.
        labels: (L,) class indices.

    Example:
        >>> labels = np.array([0, 1, 0, 1, 0, 1])
        >>> agrees_beyond_chance(labels, labels), agrees_beyond_chance(1 - labels, labels)
        (True, False)
    """
    has_prediction = predicted >= 0
    n = int(has_prediction.sum())
    if n == 0:
        return True

    predicted = predicted[has_prediction]
    labels = labels[has_prediction]
    n_classes = int(max(predicted.max(), labels.max())) + 1
    share_predicted = np.bincount(predicted, minlength=n_classes) / n
    share_labelled = np.bincount(labels, minlength=n_classes) / n
    expected = float(share_predicted @ share_labelled)
    observed = float((predicted == labels).mean())
    # On items of a single class, all agreement is expected.
    return observed > expected or observed == 1
