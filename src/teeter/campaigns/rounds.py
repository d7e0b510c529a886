"""One round of a campaign: which items to ask about, and a model trained on the answers."""

from __future__ import annotations

import logging
from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save

from teeter.campaigns.classifiers import (
    TRAINING,
    head_maker,
    ignore_few_labels_warning,
    out_of_fold,
)
from teeter.campaigns.consensus import labels_of
from teeter.campaigns.db import Pick
from teeter.campaigns.enums import PickArm
from teeter.campaigns.saved_models import FeatureScaler, dump_layers, load_arrays, loaded
from teeter.campaigns.stopping import prediction_agreement
from teeter.errors import InputError
from teeter.learner import Learner
from teeter.seeds import stream
from teeter.strategies.api import make_strategy

__all__ = [
    "RoundSettings",
    "RoundState",
    "SuspectLabel",
    "labels_of",
    "picks_for",
    "predictions",
    "suspects",
    "trained",
]

Vectors = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]

logger = logging.getLogger("teeter")

CANDIDATES = 20_000
"""Items that a strategy looks at, drawn at random from more."""

AUDIT_SHARE = 4
"""At most one in so many questions is of the audit sample."""


@dataclass(frozen=True)
class RoundSettings:
    """How rounds are made."""

    strategy: str
    options: dict[str, Any]
    head: str
    control: float
    seed: int


@dataclass(frozen=True, eq=False)
class RoundState:
    """What is known when a round is made; items are known by their place."""

    keys: Sequence[str]
    features: Vectors
    """(N, D)"""
    classes: tuple[str, ...]
    labels: dict[int, str]
    """By place, what items are; those of the audit sample are not among them."""
    audit: dict[int, str | None]
    """The audit sample by place, with what is known of it."""
    control: frozenset[int]
    """Places of items that were drawn at random, labelled or not."""
    taken: frozenset[int]
    """Places of items that are not to be asked about: answered, put off, left out, or asked about now."""
    version: int
    weights: bytes | None
    """The newest model, if there is one."""
    batches: int
    """How many batches there were."""
    put_off: frozenset[int] = frozenset()
    """Places of those taken only because somebody skipped them: asked about again when nothing else is left."""
    frame: FeatureScaler | None = None
    """How the features were moved and scaled."""


@dataclass(frozen=True)
class SuspectLabel:
    """A label that a model which did not learn from it finds unlikely."""

    item: str
    label: str
    predicted: str
    chance: float
    """The probability that the model gives the label."""
    content: str | None = None
    """The text, or the path of the image."""


def picks_for(state: RoundState, plan: RoundSettings, n: int) -> list[Pick]:
    """Return up to n items to ask about: by the strategy, with a random share among them and some of the audit.

    Controls are drawn from all items. Those that cannot be asked about, or need not be, come last and are not asked.
    """
    drawn = np.random.default_rng(stream(plan.seed, "batch", state.batches).initial_seed())
    free, waiting = _free(state, plan)
    share = int(n / AUDIT_SHARE + drawn.random())
    audit = waiting[: max(share, n - len(free))][:n]
    wanted = min(n - len(audit), len(free))
    control, known = _controls(state, int(plan.control * wanted + drawn.random()), free, drawn)
    control = control[:wanted]
    learner = _with_newest_model(state, plan, n)
    others = np.setdiff1d(free, [*state.control, *control])
    chosen = _chosen(state, learner, others, min(wanted - len(control), len(others)))
    arms = dict.fromkeys(control, PickArm.CONTROL) | dict.fromkeys(audit, PickArm.AUDIT)
    order = _mixed([int(place) for place in chosen], list(arms), drawn)
    reasons = _reasons(state, learner, order)
    asked = [
        Pick(state.keys[k], rank, arms.get(k, PickArm.PICKED), reasons[k])
        for rank, k in enumerate(order, start=1)
    ]
    return [*asked, *(Pick(state.keys[k], 0, PickArm.CONTROL, {}, asked=False) for k in known)]


def _free(state: RoundState, plan: RoundSettings) -> tuple[Integers, list[int]]:
    """Return the places that can be asked about, and those of the audit in the one order they are asked in."""
    taken = state.taken
    if all(k in taken for k in range(len(state.keys))):
        taken -= state.put_off
    free = [k for k in range(len(state.keys)) if k not in taken and k not in state.audit]
    waiting = [k for k, label in state.audit.items() if label is None and k not in taken]
    order = {k: stream(plan.seed, "audit order", state.keys[k]).initial_seed() for k in waiting}
    return np.array(free, dtype=np.int64), sorted(waiting, key=lambda k: order[k])


def _controls(
    state: RoundState, share: int, free: Integers, drawn: np.random.Generator
) -> tuple[list[int], list[int]]:
    """Return controls to ask about now, those that were put off before first; and drawn ones that are not asked."""
    can_be = set(free.tolist())
    again = sorted(can_be & state.control - set(state.labels))
    others = [k for k in range(len(state.keys)) if k not in state.control and k not in state.audit]
    new = (
        drawn.choice(others, size=min(share, len(others)), replace=False).tolist() if others else []
    )
    return [*again, *(k for k in new if k in can_be)], [k for k in new if k not in can_be]


def _chosen(state: RoundState, learner: Learner, free: Integers, n: int) -> Integers:
    if n == 0:
        return free[:0]
    return learner.ask(n, exclude=np.setdiff1d(np.arange(len(state.keys)), free).tolist())


def _mixed(picked: list[int], others: list[int], drawn: np.random.Generator) -> list[int]:
    """Return picks in their order with others at random places between, so that nobody can tell them apart."""
    order = list(picked)
    for one in others:
        order.insert(int(drawn.integers(len(order) + 1)), one)
    return order


def _reasons(
    state: RoundState, learner: Learner, places: Sequence[int]
) -> dict[int, dict[str, Any]]:
    reasons: dict[int, dict[str, Any]] = {k: dict(learner.notes.get(k, {})) for k in places}
    if not learner.models or not places:
        return reasons
    guesses = _guesses(state, learner, state.features[list(places)])
    for k, (predicted, chance) in zip(places, guesses, strict=True):
        reasons[k] |= {"predicted": predicted, "probability": round(chance, 4)}
    return reasons


def _guesses(state: RoundState, learner: Learner, features: Vectors) -> list[tuple[str, float]]:
    """Return the predicted class of rows, and how probable it is."""
    logits = learner.observe(features, ("logits",)).with_logits().logits
    if logits is None:
        raise TypeError("A campaign's head gives logits.")
    chances, columns = logits.softmax(dim=1).max(dim=1)
    seen = _seen(learner)
    return [
        (state.classes[seen[k]], chance)
        for k, chance in zip(columns.tolist(), chances.tolist(), strict=True)
    ]


def _seen(learner: Learner) -> list[int]:
    """Return the numbers of the classes that the model answers with."""
    model = learner.models[0]
    known = getattr(model, "classes_", None)
    return list(range(len(learner.classes))) if known is None else [int(one) for one in known]


def _learner(state: RoundState, plan: RoundSettings, n: int = 1) -> Learner:
    """Return a learner that knows nothing yet, and can be asked for n."""
    return Learner(
        head_maker(plan.head, state.features.shape[1], len(state.classes)),
        state.features,
        make_strategy(plan.strategy, plan.options),
        classes=state.classes,
        seed=plan.seed,
        pool_size=max(CANDIDATES, n),
        training=TRAINING,
        cold_start=make_strategy("typiclust", {}),
        device="cpu",
    )


def _with_newest_model(state: RoundState, plan: RoundSettings, n: int = 1) -> Learner:
    """Return a learner that has the newest model and knows all labels of today."""
    learner = _learner(state, plan, n)
    if state.weights is not None:
        learner.resume(state.version, {}, models=_newest_models(state, plan))
        learner.tell(list(state.labels), list(state.labels.values()))
    return learner


def _newest_models(state: RoundState, plan: RoundSettings) -> list[Any]:
    """Return the newest model as it was kept; where features are others now, one trained on its labels again."""
    kept = load_arrays(state.weights or b"")
    models = loaded(kept, plan.head, state.features.shape[1], len(state.classes))
    if models:
        return models
    logger.info(
        "Features changed since model %d was trained: it is trained on its labels again.",
        state.version,
    )
    learner = _learner(state, plan)
    learner.tell(kept["places"], [state.classes[k] for k in kept["labels"]])
    learner.resume(state.version - 1, {})
    with ignore_few_labels_warning():
        learner.fit()
    return learner.models


def trained(state: RoundState, plan: RoundSettings) -> tuple[bytes, dict[str, Any]]:
    """Return a model of today's labels, as it is kept, and what is known of it."""
    seen = sorted({state.classes.index(label) for label in state.labels.values()})
    if len(seen) < 2:
        raise InputError(
            f"There are labels of {len(seen)} of {len(state.classes)} classes: label items of two or more, then train."
        )
    learner = _learner(state, plan)
    learner.tell(list(state.labels), list(state.labels.values()))
    learner.resume(state.version, {})
    with ignore_few_labels_warning():
        learner.fit()
    places, labels = _labelled(state)
    numbers = {name: k for k, name in enumerate(state.classes)}
    predicted = np.array([numbers[name] for name in learner.predict().tolist()], dtype=np.int16)
    facts: dict[str, Any] = {"labels": len(places), "classes": [state.classes[k] for k in seen]}
    facts |= _measured(state, plan.head, places, labels, predicted)
    if state.weights is not None:
        before = load_arrays(state.weights)["predicted"].astype(np.int64)
        kappa, changed = prediction_agreement(before, predicted[: len(before)].astype(np.int64))
        facts |= {"kappa": kappa, "changed": changed}
    kept: dict[str, npt.NDArray[Any]] = {"places": places, "labels": labels, "predicted": predicted}
    kept |= dump_layers(learner) | ({} if state.frame is None else state.frame.arrays())
    return save(kept), facts


def _measured(
    state: RoundState,
    head: str,
    places: Integers,
    labels: Integers,
    predicted: npt.NDArray[np.int16],
) -> dict[str, Any]:
    """Return how many of the items drawn at random are right: controls out of fold, the audit sample as it is."""
    guesses = out_of_fold(state.features[places], labels, head=head).argmax(axis=1)
    drawn = np.array([int(k) in state.control for k in places])
    known = {k: state.classes.index(label) for k, label in state.audit.items() if label is not None}
    right = sum(int(predicted[k]) == label for k, label in known.items())
    return {
        "control": [int((guesses == labels)[drawn].sum()), int(drawn.sum())],
        "audit": [right, len(known)],
    }


def predictions(state: RoundState, plan: RoundSettings) -> list[tuple[str, float]] | None:
    """Return the predicted class of every item and how probable it is; None before there is a model."""
    if state.weights is None:
        return None
    return _guesses(state, _with_newest_model(state, plan), state.features)


def _labelled(state: RoundState) -> tuple[Integers, Integers]:
    """Return the places of labelled items in order, and the numbers of their classes."""
    places = np.array(sorted(state.labels), dtype=np.int64)
    return places, np.array(
        [state.classes.index(state.labels[int(k)]) for k in places], dtype=np.int64
    )


def suspects(
    state: RoundState, plan: RoundSettings, count: int, settled: Container[str] = ()
) -> list[SuspectLabel]:
    """Return the labels that a model which did not learn from them finds least likely, the least likely first.

    Those of the items called in ``settled`` are left out.
    """
    places, labels = _labelled(state)
    if len(np.unique(labels)) < 2:
        return []
    chances = out_of_fold(state.features[places], labels, head=plan.head)
    own, guesses = chances[np.arange(len(labels)), labels], chances.argmax(axis=1)
    # A label whose class the model has not seen elsewhere is no surprise, but rare.
    order = [
        int(k) for k in np.argsort(own, kind="stable") if guesses[k] != labels[k] and own[k] > 0
    ]
    order = [k for k in order if state.keys[int(places[k])] not in settled][:count]
    return [
        SuspectLabel(
            state.keys[int(places[k])],
            state.classes[labels[k]],
            state.classes[guesses[k]],
            float(own[k]),
        )
        for k in order
    ]
