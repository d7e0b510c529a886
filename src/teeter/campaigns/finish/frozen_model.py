"""Freeze a model, and with it the items that it may label and the order in which they are drawn.

Usually the newest model is frozen, and the draws begin when it is: the items without a label follow
in random order.

If enough control items were drawn since an older model was trained, that model is frozen instead,
and those control items are the first draws. They tell the truth about the items that no person had
labelled when the model was trained: control items are drawn from all items, and one that was
labelled before its draw counts with its label. Control items from before the model do not count,
and neither does the holdout. The strategy could not pick those, but did pick from the rest, so
that they are harder or easier than the rest on average.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
from safetensors.numpy import load, save

from teeter.base.array_types import Floats, Integers
from teeter.base.seeds import stream_seed
from teeter.campaigns.finish.bounds import ErrorPrior, draws_needed
from teeter.campaigns.finish.goal import Outlook, foresee
from teeter.campaigns.finish.promise import (
    FEWEST_ITEMS,
    PromiseTerms,
    Step,
    attempt_level,
    make_steps,
)
from teeter.campaigns.learning.saved_models import Arrays, load_arrays
from teeter.campaigns.records import AnswerKind
from teeter.campaigns.review.consensus import CampaignSnapshot, read_snapshot
from teeter.campaigns.settings import Settings, parse_goal
from teeter.campaigns.store import Reading, StoredModel, Writing
from teeter.campaigns.store.queries.classes import MERGED
from teeter.campaigns.store.queries.items import PUT_BACK
from teeter.errors import InputError

_ENOUGH_CONTROLS = 1.25
"""E, as a multiple of the control items that a perfect model needs."""

USUAL_GOAL = PromiseTerms(labelled=0.9)
"""What is foreseen of the models of a campaign without a goal."""

_LARGE_SET = 10_000
"""A number of items for which it hardly matters that items are drawn without replacement."""


@dataclass(frozen=True)
class PromiseGroup:
    """Items that a promise is made about: all of the set, or those of one predicted class."""

    label: str | None
    """The predicted class; None for the whole set."""
    level: float
    """The probability of error that may be spent on it."""
    steps: tuple[Step, ...]


@dataclass(frozen=True, eq=False)
class FrozenFinish:
    """A frozen model with the items that it may label, in the order in which they are drawn."""

    number: int
    """The attempt, from 1."""
    started: str
    model_version: int
    checksum: str
    """Of the model."""
    terms: PromiseTerms
    items: list[str]
    """(N,) the ids of the items."""
    predicted: Integers
    """(N,) the index of the class that the model predicts for each."""
    confidences: Floats
    """(N,) the calibrated probability of that class."""
    groups: tuple[PromiseGroup, ...]
    asked_draws: int
    """So many draws are asked before the strategy picks again."""

    @property
    def level(self) -> float:
        """The probability of error of all groups together."""
        return sum(group.level for group in self.groups)

    def rows_of(self, group: PromiseGroup, classes: Sequence[str]) -> Integers:
        """Return the positions of a group's items, in the order of the draws."""
        if group.label is None:
            return np.arange(len(self.items))
        return np.flatnonzero(self.predicted == list(classes).index(group.label))


def choose_model(view: Reading, terms: PromiseTerms) -> tuple[StoredModel, int | None]:
    """Return the newest model, or a checkpoint that enough control items have tested since.

    Who decides on the day of the start may have seen how the control items turned out. So the
    models that past control items may speak for are fixed in advance, whatever their labels: the
    first model, and the first after E, 3E, 7E, ... control items were drawn. The newest of them
    with E control items after it is chosen. Each has a part of the probability of error of its own,
    and for a fixed model the test allows any day. A model since which items were put back is left
    out: while they were withdrawn, no control item could be one of them. So is one since which
    classes were merged: who merged them may have seen which ones the control items mixed up.

    Returns:
        The model, and its number among the checkpoints if control items since then count; None for
        new draws.

    Raises:
        InputError: there is no model, or it was trained by an earlier version of teeter.
    """
    number = view.finishes.count() + 1
    summaries = view.models.summaries()
    version = 0
    if summaries:
        version = summaries[-1].version
    n_controls = len(view.picks.control_items())
    enough = _enough_controls(terms, number)
    last_change = view.history.last_time(PUT_BACK, MERGED)

    # Without a checkpoint that was tested, the newest model is the best. A promise for the whole
    # file takes no other: it is to cover most items, which older models are worse at.
    checkpoint = None
    next_number = 0
    for summary in summaries if terms.labelled is None else []:
        # Models of earlier versions of teeter do not know how many were drawn before them.
        drawn_before = summary.facts.get("controls")
        if drawn_before is None or drawn_before < enough * (2**next_number - 1):
            continue
        is_sample = last_change is None or last_change < summary.trained
        if is_sample and n_controls - drawn_before >= enough:
            version = summary.version
            checkpoint = next_number
        next_number += 1

    model = view.models.get(version)
    if model is None:
        raise InputError(
            "There is no model yet to label the rest: label items of at least two classes, "
            "then train."
        )
    if "confidence" not in load_arrays(model.weights):
        raise InputError(
            f"Model {version} was trained by an earlier version of teeter, which did not store its "
            f"confidence: train a new model, then start again."
        )
    return model, checkpoint


def _enough_controls(terms: PromiseTerms, attempt: int) -> int:
    """Return E: how many control items could show that a nearly perfect model keeps the promise."""
    level = attempt_level(terms.confidence, attempt, checkpoint=0)
    limit = int(terms.error * _LARGE_SET)
    draws = draws_needed(_LARGE_SET, limit, level, 0.0, ErrorPrior.for_error(terms.error))
    return math.ceil(_ENOUGH_CONTROLS * (draws or _LARGE_SET))


def freeze(
    view: Reading, model: StoredModel, checkpoint: int | None, terms: PromiseTerms
) -> FrozenFinish:
    """Return a frozen model with its items and draws. Nothing is stored.

    Args:
        model: the model to freeze.
        checkpoint: its number, as ``choose_model`` returns it.
        terms: what is promised.

    Raises:
        InputError: too few items are left to label.
    """
    number = view.finishes.count() + 1
    arrays = load_arrays(model.weights)
    # Items are only ever appended, so the first ones are those that the model saw.
    predicted_items = view.encodings.encoded_items()[: len(arrays["predicted"])]
    items, n_controls = _order_draws(
        view,
        model,
        predicted_items,
        use_controls=checkpoint is not None,
        order_seed=stream_seed(view.settings.seed, "finish", number),
    )
    if len(items) < FEWEST_ITEMS:
        raise InputError(
            f"A promise needs at least {FEWEST_ITEMS} items without a label, and this campaign has "
            f"{len(items)}: label the rest yourself."
        )

    row_of_item = {item: row for row, item in enumerate(predicted_items)}
    rows = [row_of_item[item] for item in items]
    predicted = arrays["predicted"][rows].astype(np.int64)
    confidences = arrays["confidence"][rows].astype(np.float64)
    classes = view.classes.names()
    level = attempt_level(terms.confidence, number, checkpoint)
    if terms.labelled is None:
        groups = _make_groups(predicted, confidences, terms, classes, level)
    else:
        snapshot = read_snapshot(view)
        steps = make_steps(
            confidences,
            terms,
            level,
            single_labels=len(snapshot.single_labels().difference(items)),
            needed=count_needed(view, snapshot, terms.labelled, items),
        )
        groups = (PromiseGroup(None, level, tuple(steps)),)
    return FrozenFinish(
        number=number,
        started=view.now(),
        model_version=model.version,
        checksum=hashlib.sha256(model.weights).hexdigest(),
        terms=terms,
        items=items,
        predicted=predicted,
        confidences=confidences,
        groups=groups,
        asked_draws=n_controls,
    )


def goal_terms(settings: Settings) -> PromiseTerms | None:
    """Return what the goal of a campaign asks to be promised; None without a goal."""
    shares = parse_goal(settings.goal)
    if shares is None:
        return None
    error, labelled = shares
    return PromiseTerms(error, labelled=labelled)


def foresee_model(
    view: Reading, weights: bytes, random_items: Sequence[tuple[float, int]]
) -> Outlook | None:
    """Return how soon a new model is expected to reach the goal, or the usual one without a goal.

    Args:
        weights: the model, which need not be stored yet.
        random_items: what is known of it; see ``foresee``.

    Returns:
        The outlook; None if nearly all items have a label, or if items may have several.
    """
    terms = goal_terms(view.settings) or USUAL_GOAL
    if view.settings.several or terms.labelled is None:
        return None
    arrays = load_arrays(weights)
    predicted_items = view.encodings.encoded_items()[: len(arrays["predicted"])]
    settled = _settled_items(view)
    rows = [row for row, item in enumerate(predicted_items) if item not in settled]
    if len(rows) < FEWEST_ITEMS:
        return None

    items = [predicted_items[row] for row in rows]
    confidences = arrays["confidence"][rows].astype(np.float64)
    snapshot = read_snapshot(view)
    needed = count_needed(view, snapshot, terms.labelled, items)
    level = attempt_level(terms.confidence, view.finishes.count() + 1)
    single_labels = snapshot.single_labels()
    n_outside = len(single_labels.difference(items))
    steps = make_steps(confidences, terms, level, single_labels=n_outside, needed=needed)
    return foresee(
        confidences,
        steps,
        random_items,
        labels=len(single_labels),
        needed=needed,
        level=level,
        allowed=terms.error,
    )


def _settled_items(view: Reading) -> set[str]:
    """Return the items that need no model: unreadable, labelled, decided or withdrawn."""
    answers = view.answers.live()
    settled = {answer.item for answer in answers if answer.kind != AnswerKind.SKIP}
    settled |= set(view.decisions.live())
    settled |= view.items.withdrawn()
    return settled | set(view.encodings.unreadable())


def _order_draws(
    view: Reading,
    model: StoredModel,
    predicted_items: Sequence[str],
    *,
    use_controls: bool,
    order_seed: int,
) -> tuple[list[str], int]:
    """Return the items of the set in the order of the draws, and how many are control items.

    Args:
        model: the model to freeze.
        predicted_items: the items that it predicted.
        use_controls: whether control items that were drawn since the model count.
        order_seed: decides the order.
    """
    later_controls: list[str] = []
    if use_controls:
        settled = set(view.encodings.unreadable())
        drawn_controls = view.picks.control_items_in_order()
        n_before = int(model.facts["controls"])
        later_controls = drawn_controls[n_before:]
        settled |= view.answers.items_answered_first(model.facts["answers"])
        settled |= view.decisions.items_decided_until(model.trained)
        settled |= view.items.withdrawn(until=model.trained)
        # No control item can be drawn from these, so control items do not speak for them.
        settled |= set(drawn_controls[:n_before]) | view.items.holdout()
    else:
        # What was labelled since the model was trained needs no model either.
        settled = _settled_items(view)

    members = {item for item in predicted_items if item not in settled}
    controls = [item for item in later_controls if item in members]
    not_drawn = members - set(controls)
    # A hash of each id: the order does not depend on how items are stored.
    shuffled = sorted(not_drawn, key=lambda item: stream_seed(order_seed, item))
    return [*controls, *shuffled], len(controls)


def count_needed(
    view: Reading, snapshot: CampaignSnapshot, labelled: float, items: Sequence[str]
) -> int:
    """Return how many of some items must get a label until this share of all items has one."""
    n_items = view.items.count() - len(snapshot.left_out)
    has_label = snapshot.consensus.keys() - snapshot.left_out
    return math.ceil(labelled * n_items) - len(has_label.difference(items))


def _make_groups(
    predicted: Integers,
    confidences: Floats,
    terms: PromiseTerms,
    classes: Sequence[str],
    level: float,
) -> tuple[PromiseGroup, ...]:
    if not terms.per_class:
        return (PromiseGroup(None, level, tuple(make_steps(confidences, terms, level))),)

    # Each class gets the same part of the probability of error (Bonferroni).
    class_level = level / len(classes)
    groups = []
    for index, label in enumerate(classes):
        # By the predicted class, because the true one is not known.
        steps = make_steps(confidences[predicted == index], terms, class_level)
        groups.append(PromiseGroup(label, class_level, tuple(steps)))
    return tuple(groups)


def store_finish(change: Writing, finish: FrozenFinish, who: str) -> None:
    """Store a frozen model, so that later draws are counted for it."""
    groups = []
    for group in finish.groups:
        steps = [asdict(step) for step in group.steps]
        groups.append({"label": group.label, "level": group.level, "steps": steps})

    # Its predictions and confidences, not the model: they stay when items are encoded again.
    content: Arrays = {
        "predicted": finish.predicted.astype(np.int32),
        "confidences": finish.confidences,
    }
    change.finishes.add(
        who=who,
        model_version=finish.model_version,
        checksum=finish.checksum,
        terms=asdict(finish.terms) | {"groups": groups},
        items=finish.items,
        frozen=save(content),
    )


def load_finish(view: Reading, number: int | None = None) -> FrozenFinish | None:
    """Return the frozen model of an attempt; None if there is none.

    Args:
        number: the attempt. By default the newest one, unless its promise has ended.
    """
    if number is None:
        stored = view.finishes.newest()
    else:
        stored = view.finishes.get(number)
    if stored is None:
        return None

    classes = view.classes.names()
    arrays = load(stored.frozen)
    terms = json.loads(stored.terms)
    terms.pop("ended", None)
    groups = []
    for position, group in enumerate(terms.pop("groups")):
        steps = tuple(Step(**step) for step in group["steps"])
        label = None
        if group["label"] is not None:
            label = classes[position]  # it was stored with the name of its day
        groups.append(PromiseGroup(label, group["level"], steps))

    return FrozenFinish(
        number=stored.number,
        started=stored.started,
        model_version=stored.model_version,
        checksum=stored.checksum,
        terms=PromiseTerms(**terms),
        items=json.loads(stored.item_ids),
        predicted=arrays["predicted"].astype(np.int64),
        confidences=arrays["confidences"].astype(np.float64),
        groups=tuple(groups),
        asked_draws=stored.asked_draws,
    )
