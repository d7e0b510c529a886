"""Freeze a model, and with it the items that it may label and the order in which they are drawn.

Which items count is decided by the moment in which the model was trained, not by today. The set has
the items that no person had labelled then, and everything drawn at random from it afterwards tells
the truth about it. So a model of last week can be frozen today, and the control items of this week
count as draws: control items are drawn from all items, and one that was labelled before its draw
counts with its label. Control items from before the model do not count, and neither does the audit
set. The strategy could not pick those, but did pick from the rest, so that they are harder or
easier than the rest on average.

The draws begin with the control items since the model, in their order. All other items of the set
follow in random order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load, save

from teeter.campaigns.db import CampaignRepository, Connection, StoredFinish, StoredModel
from teeter.campaigns.finish.bounds import ErrorPrior, draws_needed
from teeter.campaigns.finish.promise import (
    FEWEST_ITEMS,
    FrozenSet,
    PromiseTerms,
    Step,
    attempt_level,
    make_steps,
)
from teeter.campaigns.saved_models import load_arrays
from teeter.errors import InputError
from teeter.seeds import stream_seed

__all__ = ["FrozenFinish", "PromiseGroup", "choose_model", "freeze", "load_finish", "store_finish"]

Integers: TypeAlias = npt.NDArray[np.int64]

_ENOUGH_CONTROLS = 1.5
"""An older model is frozen if so many times the control items that a perfect model needs were drawn
since it was trained.
"""

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
    frozen: FrozenSet
    groups: tuple[PromiseGroup, ...]
    asked_draws: int
    """So many draws are asked before the strategy picks again."""

    @property
    def level(self) -> float:
        """The probability of error of the whole attempt."""
        return attempt_level(self.terms.confidence, self.number)

    def rows_of(self, group: PromiseGroup, classes: Sequence[str]) -> Integers:
        """Return the positions of a group's items, in the order of the draws."""
        if group.label is None:
            return np.arange(len(self.items))
        return np.flatnonzero(self.frozen.predicted == list(classes).index(group.label))


def choose_model(
    repository: CampaignRepository, connection: Connection, terms: PromiseTerms
) -> StoredModel:
    """Return the model to freeze: the newest, or an older one that was tested already.

    It is the newest model after which enough control items were drawn to show that a perfect model
    keeps the promise. If there is none, the newest model of all is frozen, and the draws begin now.
    Only numbers of items decide, never what their labels are: choosing by the outcome would break
    the promise.

    Raises:
        InputError: there is no model, or it was trained by an earlier version of teeter.
    """
    n_controls = len(repository.picks.control_items(connection))
    level = attempt_level(terms.confidence, repository.finishes.count(connection) + 1)
    prior = ErrorPrior.for_error(terms.error)
    limit = int(terms.error * _LARGE_SET)
    enough = _ENOUGH_CONTROLS * (draws_needed(_LARGE_SET, limit, level, 0.0, prior) or _LARGE_SET)

    summaries = repository.models.summaries(connection)
    version = summaries[-1].version if summaries else 0
    for summary in reversed(summaries):
        # Models of earlier versions of teeter do not know how many were drawn before them.
        drawn_before = summary.facts.get("controls")
        if drawn_before is not None and n_controls - drawn_before >= enough:
            version = summary.version
            break

    model = repository.models.get(connection, version)
    if model is None:
        raise InputError(
            "There is no model yet that could label the rest: label items of at least two classes, "
            "then train."
        )
    if "confidence" not in load_arrays(model.weights):
        raise InputError(
            f"Model {version} was trained by an earlier version of teeter, which did not store its "
            "confidence: train a model, then start again."
        )
    return model


def freeze(
    repository: CampaignRepository,
    connection: Connection,
    model: StoredModel,
    terms: PromiseTerms,
    *,
    seed: int,
) -> FrozenFinish:
    """Return a frozen model with its items and draws. Nothing is stored.

    Args:
        repository: the campaign's rows.
        connection: an open connection.
        model: the model to freeze.
        terms: what is promised.
        seed: the campaign's, which decides the order of the draws.

    Raises:
        InputError: too few items are left to label.
    """
    number = repository.finishes.count(connection) + 1
    arrays = load_arrays(model.weights)
    items, n_controls = _order_draws(
        repository,
        connection,
        model,
        n_items=len(arrays["predicted"]),
        order_seed=stream_seed(seed, "finish", number),
    )
    if len(items) < FEWEST_ITEMS:
        raise InputError(
            f"Only {len(items)} items are left without a label: a promise needs at least "
            f"{FEWEST_ITEMS}. Label them instead."
        )

    rows = _rows_of_items(repository, connection, items)
    frozen = FrozenSet(
        arrays["predicted"][rows].astype(np.int64), arrays["confidence"][rows].astype(np.float64)
    )
    classes = repository.classes.names(connection)
    return FrozenFinish(
        number=number,
        started=repository.scope.now(),
        model_version=model.version,
        checksum=hashlib.sha256(model.weights).hexdigest(),
        terms=terms,
        items=items,
        frozen=frozen,
        groups=_make_groups(frozen, terms, classes, attempt_level(terms.confidence, number)),
        asked_draws=n_controls,
    )


def _order_draws(
    repository: CampaignRepository,
    connection: Connection,
    model: StoredModel,
    *,
    n_items: int,
    order_seed: int,
) -> tuple[list[str], int]:
    """Return the items of the set in the order of the draws, and how many are control items.

    Args:
        repository: the campaign's rows.
        connection: an open connection.
        model: the model to freeze.
        n_items: how many items there were when it was trained.
        order_seed: decides the order.
    """
    drawn_controls = repository.picks.control_items_in_order(connection)
    n_before = int(model.facts.get("controls", len(drawn_controls)))
    earlier_controls = set(drawn_controls[:n_before])
    later_controls = drawn_controls[n_before:]

    answered = repository.answers.items_answered_first(connection, int(model.facts["answers"]))
    settled = answered | repository.decisions.items_decided_until(connection, model.trained)
    settled |= set(repository.encodings.unreadable(connection))

    # Without control items since, today is as good as the day of the model: what was labelled in
    # between needs no model.
    if not later_controls:
        settled |= {answer.item for answer in repository.answers.live(connection)}
        settled |= set(repository.decisions.live(connection))
    else:
        # No control item can be drawn from these, so they are not part of what controls stand for.
        settled |= earlier_controls | repository.items.audit_set(connection)

    known_items = _encoded_items(repository, connection)[:n_items]
    in_set = [item for item in known_items if item not in settled]

    controls = [item for item in later_controls if item in set(in_set)]
    others = set(in_set) - set(controls)
    # A hash of each id: the order does not depend on how items are stored.
    shuffled = sorted(others, key=lambda item: stream_seed(order_seed, item))
    return [*controls, *shuffled], len(controls)


def _encoded_items(repository: CampaignRepository, connection: Connection) -> list[str]:
    """Return the ids of the items by their row in a model's input."""
    row_ids = repository.encodings.encoded_row_ids(connection)
    id_of_row = {item.row_id: item.item_id for item in repository.items.all(connection)}
    return [id_of_row[row_id] for row_id in row_ids]


def _rows_of_items(
    repository: CampaignRepository, connection: Connection, items: Sequence[str]
) -> list[int]:
    rows = {item: row for row, item in enumerate(_encoded_items(repository, connection))}
    return [rows[item] for item in items]


def _make_groups(
    frozen: FrozenSet, terms: PromiseTerms, classes: Sequence[str], level: float
) -> tuple[PromiseGroup, ...]:
    if not terms.per_class:
        return (PromiseGroup(None, level, tuple(make_steps(frozen.confidences, terms, level))),)

    # Each class gets the same part of the probability of error (Bonferroni).
    class_level = level / len(classes)
    groups = []
    for index, label in enumerate(classes):
        confidences = frozen.confidences[frozen.predicted == index]
        steps = make_steps(confidences, terms, class_level)
        groups.append(PromiseGroup(label, class_level, tuple(steps)))
    return tuple(groups)


def store_finish(
    repository: CampaignRepository, connection: Connection, finish: FrozenFinish, who: str
) -> None:
    """Store a frozen model, so that later draws are counted for it."""
    groups = []
    for group in finish.groups:
        steps = [asdict(step) for step in group.steps]
        groups.append({"label": group.label, "level": group.level, "steps": steps})

    content = {
        "predicted": finish.frozen.predicted.astype(np.int32),
        "confidences": finish.frozen.confidences,
    }
    repository.finishes.add(
        connection,
        who=who,
        model_version=finish.model_version,
        checksum=finish.checksum,
        terms=asdict(finish.terms) | {"groups": groups},
        items=finish.items,
        frozen=save(content),
    )


def load_finish(stored: StoredFinish) -> FrozenFinish:
    """Return a frozen model that was stored."""
    arrays = load(stored.frozen)
    terms = dict(stored.terms)
    groups = []
    for group in terms.pop("groups"):
        steps = tuple(Step(**step) for step in group["steps"])
        groups.append(PromiseGroup(group["label"], group["level"], steps))

    return FrozenFinish(
        number=stored.number,
        started=stored.started,
        model_version=stored.model_version,
        checksum=stored.checksum,
        terms=PromiseTerms(**terms),
        items=stored.items,
        frozen=FrozenSet(
            arrays["predicted"].astype(np.int64), arrays["confidences"].astype(np.float64)
        ),
        groups=tuple(groups),
        asked_draws=stored.asked_draws,
    )
