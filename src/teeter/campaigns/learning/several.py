"""Train and pick in a campaign whose items may have several labels.

``train_several`` and ``pick_several`` are what ``training.train_model`` and the learner of a
campaign are for items with one label. Shared with them are the state of a round, the arrays of a
saved model, and what is recorded about it.

A saved model of several labels has ``weight`` (K, D), ``bias`` (K,) and ``cuts`` (K,) of a
``SeveralLabelsHead``. An item is predicted to have a set of labels: ``sets`` (S, K) has those that
occur, and ``predicted``, ``labels`` and ``unseen`` are numbers of its rows. ``confidence`` is the
probability that a whole set is right, if labels are independent.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save
from scipy.special import expit

from teeter.base.seeds import stream
from teeter.campaigns.learning.classifiers import limit_threads_and_warnings
from teeter.campaigns.learning.prior import CLASS_NAMES, PseudoExamples, has_faded
from teeter.campaigns.learning.rounds import RoundSettings, RoundState
from teeter.campaigns.learning.saved_models import (
    PICKING,
    Arrays,
    join_marked,
    load_arrays,
    predicted_names,
)
from teeter.campaigns.learning.stopping import stratify
from teeter.campaigns.records import SuspectLabel, split_labels
from teeter.errors import InputError
from teeter.models.outputs import Outputs
from teeter.models.several_labels_head import SeveralLabelsHead
from teeter.strategies.api import build_context, make_strategy

if TYPE_CHECKING:
    from teeter.campaigns.learning.training import ModelFacts

Vectors = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Marks = npt.NDArray[np.bool_]

MAX_CANDIDATES = 20_000
"""Items that a strategy sees. If there are more, they are drawn at random."""

_RANDOM_FOLDS = 10
"""Folds in which the labels of random items are predicted by heads that do not know them."""


def train_several(state: RoundState) -> tuple[bytes, ModelFacts]:
    """Train a model on all labels except those of the holdout, as ``train_model`` does.

    A prediction is right if the whole set of labels is. Beside that, ``facts["by_label"]`` counts
    for each label the random items that have it and are predicted to, that are predicted to, and
    that have it.

    Raises:
        InputError: the labels of all items are the same.
    """
    places, marks = labelled_marks(state)
    if len(np.unique(marks, axis=0)) < 2:
        raise InputError(
            "All labelled items have the same labels, or none has a label yet: label items that "
            "differ, then train."
        )
    features = state.features[places]
    examples = _name_examples(state, len(places))
    head = _fit(features, marks, examples)
    predicted = head.predict(state.features)
    log_odds = head.decision_function(state.features)

    # Random items are judged by heads that know neither their labels nor cuts chosen by them.
    measuring = state.random - state.in_view
    is_random = [int(place) in measuring for place in places]
    random_rows = np.flatnonzero(is_random)
    unseen_log_odds = head.unseen_.copy()
    unseen = unseen_log_odds > head.cuts_
    is_right_out_of_fold = (unseen == marks).all(axis=1)
    for rows in _split_randomly(random_rows):
        others = np.setdiff1d(np.arange(len(places)), rows)
        judge = _fit(features[others], marks[others], examples)
        unseen_log_odds[rows] = judge.decision_function(features[rows])
        unseen[rows] = judge.predict(features[rows])
    is_right = (unseen == marks).all(axis=1)
    is_random_right = is_right[random_rows]

    counts = marks.sum(axis=0)
    hits = (unseen & marks).sum(axis=0)
    seen = np.flatnonzero(counts)
    recalls = hits[seen] / counts[seen]
    _, set_sizes = np.unique(marks, axis=0, return_counts=True)
    by_label = _count_by_label(unseen[random_rows], marks[random_rows])
    facts: ModelFacts = {
        "labels": len(places),
        "classes": [state.classes[k] for k in seen],
        "control": [int(is_random_right.sum()), len(random_rows)],
        "holdout": _measure_holdout(state, predicted),
        "out_of_fold": [int(is_right_out_of_fold.sum()), len(places)],
        "most_frequent": int(set_sizes.max()),
        "mean_recall": float(recalls.mean()),
        "by_label": by_label,
    }
    if state.prior is not None:
        facts["prior"] = []
    if examples is not None:
        facts["prior"] = [CLASS_NAMES]
        facts["names"] = len(np.unique(examples.labels))
    if state.weights is not None:
        before = predict_before(state)[: len(predicted)]
        after = join_marked(predicted[: len(before)], state.classes)
        is_changed = [name != earlier for name, earlier in zip(after, before, strict=True)]
        facts["changed"] = float(np.mean(is_changed))

    confidence = set_confidence(log_odds, predicted)
    if len(random_rows):
        judged = confidence.copy()
        judged[places] = set_confidence(unseen_log_odds, unseen)
        belongs = np.setdiff1d(np.arange(len(judged)), list(state.left_out))
        drawn = np.searchsorted(belongs, places[random_rows])
        facts["strata"] = stratify(judged[belongs], drawn, is_random_right)

    all_marks = np.concatenate([predicted, marks, unseen])
    sets, inverse = np.unique(all_marks, axis=0, return_inverse=True)
    inverse = inverse.reshape(-1)  # NumPy 2.0 gives it a second dimension
    numbers = inverse.astype(np.int32)
    ends = np.cumsum([len(predicted), len(marks)])
    predicted_sets, label_sets, unseen_sets = np.split(numbers, ends)
    arrays: Arrays = {
        "places": places,
        "labels": label_sets,
        "unseen": unseen_sets,
        "predicted": predicted_sets,
        "sets": sets.astype(np.uint8),
        "temperature": np.array([1.0]),
        "confidence": confidence,
        **_dump_head(head),
    }
    picking_head = _train_picking_head(state, places, marks, examples)
    for name, array in picking_head.items():
        arrays[f"{PICKING}{name}"] = array
    if state.scaler is not None:
        arrays |= state.scaler.to_arrays()
    return save(arrays), facts


def labelled_marks(state: RoundState) -> tuple[Integers, Marks]:
    """Return the places of the labelled items in ascending order, and which labels they have."""
    places = sorted(state.labels)
    marks = np.zeros((len(places), len(state.classes)), dtype=bool)
    number = {name: k for k, name in enumerate(state.classes)}
    for row, place in enumerate(places):
        for name in split_labels(state.labels[place]):
            marks[row, number[name]] = True
    return np.array(places, dtype=np.int64), marks


def set_confidence(log_odds: Floats, predicted: Marks) -> Floats:
    """Return the probability that whole sets are right: (N, K), (N, K) -> (N,)."""
    signed = np.where(predicted, log_odds, -log_odds)
    confidence: Floats = np.exp(-np.logaddexp(0, -signed).sum(axis=1))
    return confidence


def predict_several(state: RoundState, features: Vectors) -> list[tuple[str, float]]:
    """Return the predicted labels of rows of features, with the probability of the whole set."""
    head = _load_head(state)
    log_odds = head.decision_function(features)
    predicted = log_odds > head.cuts_
    names = join_marked(predicted, state.classes)
    confidence = set_confidence(log_odds, predicted)
    return list(zip(names, confidence.tolist(), strict=True))


def pick_several(
    state: RoundState, settings: RoundSettings, candidates: Integers, n: int
) -> tuple[list[int], dict[int, dict[str, float]]]:
    """Return the places that the strategy picks from the candidates, and what it notes of them."""
    if n == 0:
        return [], {}
    n_candidates = max(MAX_CANDIDATES, n)
    if len(candidates) > n_candidates:
        seed = stream(settings.seed, "pool", state.version).initial_seed()
        drawn = np.random.default_rng(seed).choice(candidates, n_candidates, replace=False)
        candidates = np.sort(drawn)

    strategy = make_strategy(settings.strategy, settings.options)
    if state.weights is None:
        features = np.zeros((len(candidates), 1), np.float32)
        if strategy.needs:
            # Before the first model there are only features to go by.
            strategy = make_strategy("typiclust", {})
            features = state.features[candidates]
        outputs = Outputs(features=features, several=True)
        context = build_context(outputs, seed=settings.seed, device="cpu")
    else:
        places, marks = labelled_marks(state)
        head = _load_head(state, PICKING)
        context = build_context(
            head.outputs(state.features[candidates]),
            labelled=head.outputs(state.features[places]),
            labels=marks.astype(np.int64),
            device="cpu",
        )
    generator = stream(settings.seed, "select", state.version, state.batches)
    context = replace(context, generator=generator)
    with limit_threads_and_warnings():
        positions = strategy.select(context, n)

    notes: dict[int, dict[str, float]] = {}
    for position in positions.tolist():
        notes[int(candidates[position])] = {
            name: float(values[position]) for name, values in context.notes.items()
        }
    return list(notes), notes


def find_suspect_sets(
    state: RoundState, count: int, confirmed: Container[str] = ()
) -> list[SuspectLabel]:
    """Return the labels with a mark that models which do not know the item find least likely."""
    places, marks = labelled_marks(state)
    if len(np.unique(marks, axis=0)) < 2:
        return []
    examples = _name_examples(state, len(places))
    head = _fit(state.features[places], marks, examples)
    unseen = head.unseen_ > head.cuts_
    signed = np.where(marks, head.unseen_, -head.unseen_)
    least_likely = expit(signed).min(axis=1)
    predicted = join_marked(unseen, state.classes)

    suspects: list[SuspectLabel] = []
    for row in np.argsort(least_likely, kind="stable").tolist():
        if len(suspects) == count:
            break
        place = int(places[row])
        item = state.keys[place]
        label = state.labels[place]
        if predicted[row] != label and item not in confirmed:
            chance = float(least_likely[row])
            suspects.append(SuspectLabel(item, label, predicted[row], chance))
    return suspects


def predict_before(state: RoundState) -> list[str]:
    """Return what the newest model of a state predicted for its items, by place."""
    arrays = load_arrays(state.weights or b"")
    names = predicted_names(arrays, state.classes)
    return [names[number] for number in arrays["predicted"]]


def _fit(features: Vectors, marks: Marks, examples: PseudoExamples | None) -> SeveralLabelsHead:
    given = None
    if examples is not None:
        one_hot = np.eye(marks.shape[1], dtype=bool)
        given = examples.features, one_hot[examples.labels]
    with limit_threads_and_warnings():
        return SeveralLabelsHead(given).fit(features, marks)


def _name_examples(state: RoundState, n_labels: int) -> PseudoExamples | None:
    """Return the features of the names of labels, unless there are many labelled items."""
    if state.prior is None or has_faded(n_labels, len(state.classes)):
        return None
    return state.prior.examples([CLASS_NAMES])


def _train_picking_head(
    state: RoundState, places: Integers, marks: Marks, examples: PseudoExamples | None
) -> Arrays:
    """Return the arrays of a head that does not know the random items; see ``train_model``."""
    is_known = np.array([int(place) not in state.random for place in places], dtype=bool)
    known_marks = marks[is_known]
    if is_known.all() or len(np.unique(known_marks, axis=0)) < 2:
        return {}
    features = state.features[places[is_known]]
    head = _fit(features, known_marks, examples)
    return _dump_head(head)


def _dump_head(head: SeveralLabelsHead) -> Arrays:
    return {
        "weight": np.ascontiguousarray(head.coef_, dtype=np.float32),
        "bias": head.intercept_.astype(np.float32),
        "cuts": head.cuts_.astype(np.float32),
    }


def _load_head(state: RoundState, prefix: str = "") -> SeveralLabelsHead:
    """Return the head of the newest model, fitted again if features or labels have changed."""
    arrays = load_arrays(state.weights or b"")
    if f"{prefix}weight" not in arrays:
        prefix = ""
    shape = (len(state.classes), state.features.shape[1])
    if "weight" not in arrays or arrays["weight"].shape != shape:
        places, marks = labelled_marks(state)
        examples = _name_examples(state, len(places))
        return _fit(state.features[places], marks, examples)

    head = SeveralLabelsHead()
    head.coef_ = arrays[f"{prefix}weight"].astype(np.float64)
    head.intercept_ = arrays[f"{prefix}bias"].astype(np.float64)
    # Calibrated log odds move with the scaling of features, and cuts are log odds.
    head.cuts_ = arrays[f"{prefix}cuts"].astype(np.float64)
    head.n_features_in_ = shape[1]
    return head


def _split_randomly(rows: Integers) -> list[Integers]:
    """Return rows in random parts of about equal size."""
    if not len(rows):
        return []
    order = np.random.default_rng(0).permutation(rows)
    return [part for part in np.array_split(order, _RANDOM_FOLDS) if len(part)]


def _measure_holdout(state: RoundState, predicted: Marks) -> list[int]:
    """Count the labelled items of the holdout, and those whose whole set is predicted."""
    labelled = {place: label for place, label in state.holdout.items() if label is not None}
    names = join_marked(predicted[list(labelled)], state.classes)
    right = 0
    for name, label in zip(names, labelled.values(), strict=True):
        right += name == label
    return [right, len(labelled)]


def _count_by_label(predicted: Marks, marks: Marks) -> list[tuple[int, int, int]]:
    n_both = (predicted & marks).sum(axis=0).tolist()
    n_predicted = predicted.sum(axis=0).tolist()
    n_marked = marks.sum(axis=0).tolist()
    return list(zip(n_both, n_predicted, n_marked, strict=True))
