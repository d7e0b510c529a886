"""One round of a campaign: which items to ask about, and a model trained on the answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load, save

from teeter.campaigns.advice import agreement
from teeter.campaigns.heads import few_labels, head_maker, out_of_fold
from teeter.campaigns.ledger import Answer, Pick
from teeter.errors import InputError
from teeter.learner import Learner
from teeter.lessons import Training
from teeter.seeds import stream
from teeter.strategies.door import make_strategy

__all__ = ["Plan", "State", "Suspect", "labels_of", "picks_for", "predictions", "suspects", "trained"]

Vectors = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]

CANDIDATES = 20_000
"""Items that a strategy looks at, drawn at random from more."""

AUDIT_SHARE = 4
"""At most one in so many questions is of the audit sample."""


@dataclass(frozen=True)
class Plan:
    """How rounds are made."""

    strategy: str
    options: dict[str, Any]
    head: str
    control: float
    seed: int


@dataclass(frozen=True, eq=False)
class State:
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
    """Places of labelled items that were drawn at random."""
    taken: frozenset[int]
    """Places of items that are not to be asked about: answered, put off, left out, or asked about now."""
    version: int
    weights: bytes | None
    """The newest model, if there is one."""
    batches: int
    """How many batches there were."""


@dataclass(frozen=True)
class Suspect:
    """A label that a model which did not learn from it finds unlikely."""

    item: str
    label: str
    predicted: str
    chance: float
    """The probability that the model gives the label."""
    content: str | None = None
    """The text, or the path of the image."""


def labels_of(answers: Iterable[Answer]) -> dict[str, str]:
    """Return what items are by most annotators; of as many, by the one who answered last."""
    votes: dict[str, list[str]] = {}
    for answer in answers:
        if answer.kind == "label" and answer.label is not None:
            votes.setdefault(answer.item, []).append(answer.label)
    return {item: _most_said(said) for item, said in votes.items()}


def _most_said(said: list[str]) -> str:
    counts = Counter(said)
    return max(reversed(said), key=lambda label: counts[label])


def picks_for(state: State, plan: Plan, n: int) -> list[Pick]:
    """Return up to n items to ask about: by the strategy, with a random share among them and some of the audit."""
    drawn = np.random.default_rng(stream(plan.seed, "batch", state.batches).initial_seed())
    waiting = [place for place, label in state.audit.items() if label is None and place not in state.taken]
    audit = waiting[: -(-n // AUDIT_SHARE)]
    free = np.array(
        [k for k in range(len(state.keys)) if k not in state.taken and k not in state.audit], dtype=np.int64
    )
    wanted = min(n - len(audit), len(free))
    share = int(plan.control * wanted + drawn.random())
    control = np.sort(drawn.choice(free, size=min(share, wanted), replace=False)) if share else free[:0]
    learner = _with_newest_model(_learner(state, plan), state)
    chosen = _chosen(state, learner, np.setdiff1d(free, control), wanted - len(control))
    arms = {int(place): "control" for place in control} | dict.fromkeys(audit, "audit")
    order = _mixed([int(place) for place in chosen], list(arms), drawn)
    reasons = _reasons(state, learner, order)
    return [Pick(state.keys[k], rank, arms.get(k, "picked"), reasons[k]) for rank, k in enumerate(order, start=1)]


def _chosen(state: State, learner: Learner, free: Integers, n: int) -> Integers:
    if n == 0:
        return free[:0]
    return learner.ask(n, exclude=np.setdiff1d(np.arange(len(state.keys)), free).tolist())


def _mixed(picked: list[int], others: list[int], drawn: np.random.Generator) -> list[int]:
    """Return picks in their order with others at random places between, so that nobody can tell them apart."""
    order = list(picked)
    for one in others:
        order.insert(int(drawn.integers(len(order) + 1)), one)
    return order


def _reasons(state: State, learner: Learner, places: Sequence[int]) -> dict[int, dict[str, Any]]:
    reasons: dict[int, dict[str, Any]] = {k: dict(learner.notes.get(k, {})) for k in places}
    if not learner.models or not places:
        return reasons
    guesses = _guesses(state, learner, state.features[list(places)])
    for k, (predicted, chance) in zip(places, guesses, strict=True):
        reasons[k] |= {"predicted": predicted, "probability": round(chance, 4)}
    return reasons


def _guesses(state: State, learner: Learner, features: Vectors) -> list[tuple[str, float]]:
    """Return the predicted class of rows, and how probable it is."""
    logits = learner.observe(features, ("logits",)).with_logits().logits
    if logits is None:
        raise TypeError("A campaign's head gives logits.")
    chances, columns = logits.softmax(dim=1).max(dim=1)
    seen = _seen(learner)
    return [(state.classes[seen[k]], chance) for k, chance in zip(columns.tolist(), chances.tolist(), strict=True)]


def _seen(learner: Learner) -> list[int]:
    """Return the numbers of the classes that the model answers with."""
    model = learner.models[0]
    known = getattr(model, "classes_", None)
    return list(range(len(learner.classes))) if known is None else [int(one) for one in known]


def _learner(state: State, plan: Plan) -> Learner:
    """Return a learner that knows nothing yet."""
    learner = Learner(
        head_maker(plan.head, state.features.shape[1], len(state.classes)),
        state.features,
        make_strategy(plan.strategy, plan.options),
        classes=state.classes,
        seed=plan.seed,
        pool_size=CANDIDATES,
        training=Training(class_weighted=True),
        cold_start=make_strategy("typiclust", {}),
        device="cpu",
    )
    return learner


def _with_newest_model(learner: Learner, state: State) -> Learner:
    """Train a learner again on what the newest model was trained on, and tell it all labels of today."""
    if state.weights is None:
        return learner
    kept = load(state.weights)
    learner.tell(kept["places"], [state.classes[k] for k in kept["labels"]])
    learner.go_on(state.version - 1, {})
    with few_labels():
        learner.fit()
    learner.tell(list(state.labels), list(state.labels.values()))
    return learner


def trained(state: State, plan: Plan) -> tuple[bytes, dict[str, Any]]:
    """Return a model of today's labels, as it is kept, and what is known of it."""
    seen = sorted({state.classes.index(label) for label in state.labels.values()})
    if len(seen) < 2:
        raise InputError(
            f"There are labels of {len(seen)} of {len(state.classes)} classes: label items of two or more, then train."
        )
    learner = _learner(state, plan)
    learner.tell(list(state.labels), list(state.labels.values()))
    learner.go_on(state.version, {})
    with few_labels():
        learner.fit()
    places, labels = _labelled(state)
    numbers = {name: k for k, name in enumerate(state.classes)}
    predicted = np.array([numbers[name] for name in learner.predict().tolist()], dtype=np.int16)
    facts: dict[str, Any] = {"labels": len(places), "classes": [state.classes[k] for k in seen]}
    facts |= _measured(state, places, labels, predicted)
    if state.weights is not None:
        before = load(state.weights)["predicted"].astype(np.int64)
        kappa, changed = agreement(before, predicted[: len(before)].astype(np.int64))
        facts |= {"kappa": kappa, "changed": changed}
    kept: dict[str, npt.NDArray[Any]] = {"places": places, "labels": labels, "predicted": predicted, **_head(learner)}
    return save(kept), facts


def _measured(state: State, places: Integers, labels: Integers, predicted: npt.NDArray[np.int16]) -> dict[str, Any]:
    """Return how many of the items drawn at random are right: controls out of fold, the audit sample as it is."""
    guesses = out_of_fold(state.features[places], labels).argmax(axis=1)
    drawn = np.array([int(k) in state.control for k in places])
    known = {k: state.classes.index(label) for k, label in state.audit.items() if label is not None}
    right = sum(int(predicted[k]) == label for k, label in known.items())
    return {
        "control": [int((guesses == labels)[drawn].sum()), int(drawn.sum())],
        "audit": [right, len(known)],
    }


def _head(learner: Learner) -> dict[str, npt.NDArray[Any]]:
    outputs = learner.observe(learner.data[:1], ("features", "head"))
    if outputs.weight is None or outputs.bias is None:
        return {}
    # safetensors writes an array column by column where it lies so, and reads it row by row.
    weight, bias = (np.ascontiguousarray(part.numpy()) for part in (outputs.weight, outputs.bias))
    return {"weight": weight, "bias": bias, "seen": np.array(_seen(learner))}


def predictions(state: State, plan: Plan) -> list[tuple[str, float]] | None:
    """Return the predicted class of every item and how probable it is; None before there is a model."""
    if state.weights is None:
        return None
    return _guesses(state, _with_newest_model(_learner(state, plan), state), state.features)


def _labelled(state: State) -> tuple[Integers, Integers]:
    """Return the places of labelled items in order, and the numbers of their classes."""
    places = np.array(sorted(state.labels), dtype=np.int64)
    return places, np.array([state.classes.index(state.labels[int(k)]) for k in places], dtype=np.int64)


def suspects(state: State, count: int, settled: Container[str] = ()) -> list[Suspect]:
    """Return the labels that a model which did not learn from them finds least likely, the least likely first.

    Those of the items called in ``settled`` are left out.
    """
    places, labels = _labelled(state)
    if len(np.unique(labels)) < 2:
        return []
    chances = out_of_fold(state.features[places], labels)
    own, guesses = chances[np.arange(len(labels)), labels], chances.argmax(axis=1)
    # A label whose class the model has not seen elsewhere is no surprise, but rare.
    order = [int(k) for k in np.argsort(own, kind="stable") if guesses[k] != labels[k] and own[k] > 0]
    order = [k for k in order if state.keys[int(places[k])] not in settled][:count]
    return [
        Suspect(state.keys[int(places[k])], state.classes[labels[k]], state.classes[guesses[k]], float(own[k]))
        for k in order
    ]
