"""Choose the items of a batch, with reasons, and find labels that may be wrong.

A batch mixes three groups: picks of the strategy, control items drawn at random from all items, and
a few items of the holdout. Accuracy is measured on the random ones only, because picks of a
strategy are harder than the average item. While random items are drawn to let the model label the
rest (see ``finish``), a batch has only these.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from teeter.base.seeds import stream
from teeter.campaigns.learning.rounds import RoundSettings, RoundState
from teeter.campaigns.learning.several import (
    find_suspect_sets,
    pick_several,
    predict_several,
)
from teeter.campaigns.learning.training import (
    judge_labels,
    labelled_items,
    load_learner,
    load_picker,
    predict_rows,
)
from teeter.campaigns.records import PickArm, SuspectLabel
from teeter.campaigns.settings import RANDOM_STRATEGY
from teeter.campaigns.store import Pick
from teeter.learner.learner import Learner

Vectors: TypeAlias = npt.NDArray[np.float32]
Integers: TypeAlias = npt.NDArray[np.int64]

CHECKED_SHARE = 0.1
"""At most this share of a batch asks again about items that were answered in bulk."""

ITEMS_PER_HOLDOUT_ITEM = 4
"""On average, one in so many items of a batch is of the holdout."""


def choose_picks(state: RoundState, settings: RoundSettings, n: int) -> list[Pick]:
    """Choose up to n items for a batch.

    Control items are drawn from all items, also from those with a label: otherwise they would be
    a sample of what is left, not of all. Those that cannot or need not be asked are returned last,
    with ``asked=False``, so that they are remembered as control items.

    Args:
        state: The items and what is known about them.
        settings: The strategy and the share of control items.
        n: The size of the batch.

    Returns:
        The picks in the order in which they are shown; fewer than n if fewer items are left.
    """
    # Draws of a promise come first and alone, in their order: no other choice may mix with them.
    taken = state.taken - state.repeatable
    draws = [place for place in state.finish_draws if place not in taken]
    if draws:
        picks = []
        for rank, place in enumerate(draws[:n], start=1):
            pick = Pick(item=state.keys[place], rank=rank, arm=PickArm.FINISH, reason={})
            picks.append(pick)
        return picks

    # The number of batches makes each batch random, and the same after a restart.
    seed = stream(settings.seed, "batch", state.batches).initial_seed()
    generator = np.random.default_rng(seed)
    available, waiting_holdout = _find_available(state, settings)

    # Rounding up at random keeps the shares exact on average, for batches of any size.
    holdout_count = int(n / ITEMS_PER_HOLDOUT_ITEM + generator.random())
    # If other items run out, the holdout fills the batch.
    holdout_count = max(holdout_count, n - len(available))
    holdout = waiting_holdout[: min(holdout_count, n)]
    checks = sorted(state.checks - state.control - state.holdout.keys())
    n_checks = min(math.ceil(CHECKED_SHARE * n), n - len(holdout))
    checks = checks[:n_checks]
    n_left = min(n - len(holdout) - len(checks), len(available))

    control_count = int(settings.control * n_left + generator.random())
    control, already_known = _draw_control(
        state, control_count, available, generator, n_left=n_left
    )

    # A control item must stay one, so the strategy may not pick it.
    candidates = np.setdiff1d(available, [*state.control, *control])
    n_picks = min(n_left - len(control), len(candidates))
    # Every pick of "random" is a random draw, like a control item.
    if settings.strategy != RANDOM_STRATEGY:
        different = _one_of_each_group(state, candidates)
        if len(different) >= n_picks:
            candidates = different
    if state.several:
        picked, notes = pick_several(state, settings, candidates, n_picks)
    else:
        picker = load_picker(state, settings, n)
        picked = _ask_strategy(state, picker, candidates, n_picks)
        notes = picker.state.notes

    arms = dict.fromkeys(checks, PickArm.CHECK)
    arms |= dict.fromkeys(control, PickArm.CONTROL)
    arms |= dict.fromkeys(holdout, PickArm.HOLDOUT)
    random_items = list(arms)
    order = list(picked)
    for random_item in random_items:
        # Annotators who knew which items measure them would look at those more carefully.
        position = int(generator.integers(len(order) + 1))
        order.insert(position, random_item)
    reasons = _collect_reasons(state, settings, notes, order)

    picks = []
    for rank, place in enumerate(order, start=1):
        pick = Pick(
            item=state.keys[place],
            rank=rank,
            arm=arms.get(place, PickArm.PICKED),
            reason=reasons[place],
        )
        picks.append(pick)

    for place in already_known:
        pick = Pick(
            item=state.keys[place],
            rank=0,
            arm=PickArm.CONTROL,
            reason={},
            asked=False,
        )
        picks.append(pick)
    return picks


def _find_available(state: RoundState, settings: RoundSettings) -> tuple[Integers, list[int]]:
    """Return the places that can be picked, and the holdout items that wait for a label.

    The holdout items are in one random order that does not depend on the batch, so that any number
    of them is a random sample.
    """
    n_items = len(state.keys)
    taken = state.taken
    # Nothing else is left: items that were skipped are better than no items.
    if all(place in taken for place in range(n_items)):
        taken -= state.skipped

    # Holdout items never train a model, so a strategy must not spend its picks on them.
    unavailable = taken | set(state.holdout)
    available = [place for place in range(n_items) if place not in unavailable]

    sort_keys = {}
    for place, label in state.holdout.items():
        if label is None and (place not in taken or place in state.repeatable):
            item_stream = stream(settings.seed, "holdout order", state.keys[place])
            sort_keys[place] = item_stream.initial_seed()

    waiting_holdout = sorted(sort_keys, key=sort_keys.__getitem__)
    return np.array(available, dtype=np.int64), waiting_holdout


def _draw_control(
    state: RoundState,
    count: int,
    available: Integers,
    generator: np.random.Generator,
    *,
    n_left: int,
) -> tuple[list[int], list[int]]:
    """Draw control items from all items that are not control or holdout items yet.

    Args:
        state: The items and what is known about them.
        count: How many to draw at most.
        available: The places that can be picked.
        generator: The source of randomness.
        n_left: How many items the batch has room for.

    Returns:
        Control items to ask now, starting with earlier ones that were skipped, and drawn items that
        cannot be picked now.
    """
    can_be_asked = set(available.tolist()) | state.repeatable
    measuring = state.labels.keys() - state.in_view
    not_measured = state.control - measuring
    skipped_before = sorted(can_be_asked & not_measured)[:n_left]
    room = n_left - len(skipped_before)

    drawn_before = state.control | set(state.holdout)
    candidates = [place for place in range(len(state.keys)) if place not in drawn_before]

    drawn = []
    if candidates:
        count = min(count, len(candidates))
        # From all items, not only those that are left: see ``choose_picks``.
        drawn = generator.choice(candidates, size=count, replace=False).tolist()

    to_ask: list[int] = []
    already_known: list[int] = []
    for place in drawn:
        # Nothing is drawn once the batch is full. Remembering only the later items that need no
        # room would make items with a label more frequent among the control items.
        if len(to_ask) == room:
            break
        if place in can_be_asked:
            to_ask.append(place)
        else:
            already_known.append(place)
    return skipped_before + to_ask, already_known


def _one_of_each_group(state: RoundState, candidates: Integers) -> Integers:
    """Return one candidate of each group of near copies of which none is asked or answered.

    Control and holdout items do not count as asked: an item that measures the model must have as
    many near copies among the labels as any other item has.
    """
    if state.near_copies is None:
        return candidates

    asked = state.taken - state.control - state.holdout.keys() - state.withdrawn
    asked_groups = state.near_copies[sorted(asked)]
    groups, first = np.unique(state.near_copies[candidates], return_index=True)
    is_new = ~np.isin(groups, asked_groups)
    chosen = candidates[first[is_new]]
    return np.sort(chosen)


def _ask_strategy(state: RoundState, picker: Learner, candidates: Integers, n: int) -> list[int]:
    """Return the places that the strategy picks from the candidates."""
    if n == 0:
        return []

    # Items that were picked, and whose labels the picker does not know: they are assigned, or no
    # model has learned from them yet. Random items stay unknown to it, as when it was trained.
    known = set(picker.pool.labelled.tolist())
    waiting = state.taken - state.skipped - state.left_out
    waiting -= state.random | state.holdout.keys() | known

    # A learner excludes rows instead of being given some: its notes then refer to places.
    places = np.arange(len(state.keys))
    excluded = np.setdiff1d(places, candidates)
    rows = picker.ask(n, exclude=excluded.tolist(), waiting=sorted(waiting))
    return [int(row) for row in rows]


def _collect_reasons(
    state: RoundState,
    settings: RoundSettings,
    notes: Mapping[int, dict[str, float]],
    places: Sequence[int],
) -> dict[int, dict[str, Any]]:
    """Return, by place, what the strategy noted about an item and what the model predicts."""
    reasons: dict[int, dict[str, Any]] = {}
    for place in places:
        reasons[place] = dict(notes.get(place, {}))

    # Before the first model there is nothing to predict with.
    if state.weights is None or not places:
        return reasons

    # All at once: a call per item would cost more than the model itself.
    features = state.features[list(places)]
    if state.several:
        predictions = predict_several(state, features)
    else:
        predictions = predict_rows(state, load_learner(state, settings), features)
    for place, (label, probability) in zip(places, predictions, strict=True):
        reasons[place]["predicted"] = label
        reasons[place]["probability"] = round(probability, 4)
    return reasons


def find_suspects(
    state: RoundState, settings: RoundSettings, count: int, confirmed: Container[str] = ()
) -> list[SuspectLabel]:
    """Return the labels that out-of-fold models find least likely, the least likely first.

    Args:
        state: The items and their labels.
        settings: Its head is trained.
        count: How many labels to return at most.
        confirmed: Ids of items whose label was looked at again and confirmed. They are left out.
    """
    if state.several:
        return find_suspect_sets(state, count, confirmed)
    places, labels = labelled_items(state)
    if len(np.unique(labels)) < 2:
        return []

    probabilities = judge_labels(state, places, labels, settings.head)
    predicted = probabilities.argmax(axis=1)
    # What each out-of-fold model says of the label that the item has.
    of_label = probabilities[np.arange(len(labels)), labels]

    # A stable sort keeps the order of the items among equal probabilities.
    suspects: list[SuspectLabel] = []
    for k in np.argsort(of_label, kind="stable"):
        if len(suspects) == count:
            break

        item = state.keys[int(places[k])]
        # A class that the model has seen on no other item is rare, which does not make it wrong.
        is_suspect = predicted[k] != labels[k] and of_label[k] > 0
        if is_suspect and item not in confirmed:
            suspects.append(
                SuspectLabel(
                    item=item,
                    label=state.classes[labels[k]],
                    predicted=state.classes[predicted[k]],
                    chance=float(of_label[k]),
                )
            )

    return suspects
