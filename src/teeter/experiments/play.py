"""One run: a learner that asks, and an oracle that knows every label."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from teeter.errors import InputError
from teeter.learner import Learner
from teeter.seeds import stream

__all__ = ["Round", "initial_rows", "play"]

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Round:
    """What one round gave: the accuracy with so many labels, and the rows that were asked for next."""

    labelled: int
    accuracy: float
    loss: float
    picks: Rows
    seconds: dict[str, float]


def initial_rows(
    size: int, count: int, seed: int, *, balanced: npt.NDArray[np.int64] | None = None
) -> Rows:
    """Return ``count`` rows drawn uniformly; every strategy of a repetition begins with the same.

    With ``balanced``, the rows' classes, every class has as many of them as any other, as far as it can.
    """
    if not 1 <= count <= size:
        raise InputError(f"Cannot begin with {count} of {size} rows.")
    order = (
        np.random.default_rng(stream(seed, "initial").initial_seed())
        .permutation(size)
        .astype(np.int64)
    )
    if balanced is not None:
        order = order[np.argsort(_turns(balanced[order]), kind="stable")]
    return order[:count]


def _turns(classes: npt.NDArray[np.int64]) -> Rows:
    """Return how many entries before each one are of its class."""
    turns = np.empty_like(classes)
    for label in np.unique(classes):
        mine = np.flatnonzero(classes == label)
        turns[mine] = np.arange(len(mine))
    return turns


def play(
    learner: Learner,
    answers: npt.NDArray[Any],
    *,
    initial: Rows,
    n: int,
    rounds: int,
    test: tuple[Any, Iterable[Any]],
) -> Iterator[Round]:
    """Yield each round: fit, evaluate on ``test``, ask for n rows and tell their ``answers``.

    The first round is the initial set's; the last asks for nothing more.
    """
    learner.tell(initial, answers[initial])
    for number in range(rounds + 1):
        learner.fit()
        judged = learner.evaluate(*test)
        labelled = len(learner.pool.labelled)
        picks = learner.ask(n) if number < rounds else np.zeros(0, dtype=np.int64)
        yield Round(labelled, judged.accuracy, judged.loss, picks, dict(learner.seconds))
        learner.tell(picks, answers[picks])
