"""The results of a benchmark run: its rounds, its failures, and its curves as arrays.

``teeter.bench.experiments.run_folder`` writes them to disk and reads them back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from teeter.bench.experiments.settings import Setting

__all__ = ["PHASES", "Cell", "Curves", "Failure", "Round", "Run", "by_cells", "round_to_row"]

Array = npt.NDArray[np.floating[Any]]

PHASES = ("training", "validation", "outputs", "selection", "evaluation")
"""What the time of a round is spent on."""


class Cell(NamedTuple):
    """One strategy in one repetition of an experiment."""

    strategy: str
    repetition: int


@dataclass(frozen=True)
class Round:
    """One round of one cell: a network trained on the labels so far, its accuracy, and its picks.

    The fields are the keys of a line in a cell's file, in this order.
    """

    strategy: str
    repetition: int
    number: int
    """0 for the network that was trained on the initial labels."""
    labelled: int
    accuracy: float
    """On the test rows, like ``loss``."""
    loss: float
    picks: tuple[int, ...]
    """Training rows to label next, best first; empty in the last round."""
    seconds: dict[str, float]
    """By phase. Batched training counts for each cell with an equal share."""
    peak_memory: int
    """Bytes, while the network was evaluated and the strategy asked; 0 if unknown."""
    validation: float | None = None
    """Accuracy on the validation rows, if there are any."""
    vote: float | None = None
    """Accuracy of an ensemble's majority vote, for strategies that train one."""

    @property
    def cell(self) -> Cell:
        """The cell that the round belongs to."""
        return Cell(self.strategy, self.repetition)


@dataclass(frozen=True)
class Failure:
    """Why a cell stopped at a round."""

    cell: Cell
    round: int
    group: int
    """The number of the group that the cell was trained in."""
    error: str


@dataclass(frozen=True, eq=False)
class Curves:
    """The results of a run as arrays over R repetitions and T rounds, by strategy.

    Strategies are in the order of the run.
    """

    labelled: Array
    """(T,) number of labels in each round; the first are the initial labels."""
    accuracy: dict[str, Array]
    """(R, T) by strategy."""
    loss: dict[str, Array]
    """(R, T) by strategy."""
    seconds: dict[str, dict[str, Array]]
    """(R, T) by strategy and phase."""
    peak_memory: dict[str, Array]
    """(R, T) bytes by strategy."""


@dataclass(frozen=True, eq=False)
class Run:
    """A run of a setting, finished or not, as ``read_run`` reads it."""

    folder: Path
    setting: Setting
    facts: dict[str, Any]
    """Where the results come from: versions, commit, hardware and the time of the first start."""
    strategies: tuple[str, ...]
    repetitions: int
    rounds: tuple[Round, ...]
    failures: dict[Cell, str] = field(default_factory=dict)
    """The error of each cell that has not finished because of one."""
    finished: bool = False
    """Whether all cells have all rounds that were asked for: perhaps not all of the setting."""
    last_round: int | None = None
    """The number of the last round that was asked for; None for the last of the setting."""

    @property
    def is_shortened(self) -> bool:
        """Whether fewer rounds were asked for than the setting has."""
        return self.last_round is not None and self.last_round < self.setting.rounds

    def curves(self) -> Curves:
        """Return the results as arrays.

        Only rounds and repetitions that all strategies have are in them. Strategies without any
        round are left out.
        """
        rounds_by_cell = by_cells(self.rounds)
        strategies_with_rounds = {cell.strategy for cell in rounds_by_cell}
        strategies = [name for name in self.strategies if name in strategies_with_rounds]

        # Repetitions are paired: one that a strategy lacks is of no use for the others.
        repetitions = []
        for repetition in range(self.repetitions):
            cells_of_repetition = {Cell(name, repetition) for name in strategies}
            if cells_of_repetition <= rounds_by_cell.keys():
                repetitions.append(repetition)

        # A run that is not finished has cells of different lengths.
        cells = [Cell(name, repetition) for name in strategies for repetition in repetitions]
        lengths = [len(rounds_by_cell[cell]) for cell in cells]
        length = min(lengths, default=0)

        def table(strategy: str, value_of: Callable[[Round], float]) -> Array:
            """Return a value of every round of a strategy, (R, T)."""
            values = np.zeros((len(repetitions), length))
            for position, repetition in enumerate(repetitions):
                rounds = rounds_by_cell[Cell(strategy, repetition)][:length]
                values[position] = [value_of(result) for result in rounds]
            return values

        # All cells have as many labels in a round, so any of them tells.
        labelled: Array = np.zeros(0)
        if cells:
            labelled_by_repetition = table(strategies[0], lambda result: result.labelled)
            labelled = labelled_by_repetition[0]

        # A function that makes functions: a lambda in the loop would see the last phase only.
        def seconds_of(phase: str) -> Callable[[Round], float]:
            return lambda result: result.seconds.get(phase, 0.0)

        seconds = {}
        for name in strategies:
            seconds[name] = {phase: table(name, seconds_of(phase)) for phase in PHASES}

        return Curves(
            labelled=labelled,
            accuracy={name: table(name, lambda result: result.accuracy) for name in strategies},
            loss={name: table(name, lambda result: result.loss) for name in strategies},
            seconds=seconds,
            peak_memory={
                name: table(name, lambda result: result.peak_memory) for name in strategies
            },
        )


def by_cells(rounds: Iterable[Round]) -> dict[Cell, list[Round]]:
    """Group rounds by their cell, each group in the order of the rounds.

    Example:
        >>> second = Round("margin", 0, 1, 40, 0.8, 0.5, (), {}, 0)
        >>> first = Round("margin", 0, 0, 20, 0.7, 0.9, (3, 1), {}, 0)
        >>> [result.labelled for result in by_cells([second, first])["margin", 0]]
        [20, 40]
    """
    groups: dict[Cell, list[Round]] = {}
    for result in sorted(rounds, key=lambda result: result.number):
        groups.setdefault(result.cell, []).append(result)
    return groups


def round_to_row(setting: Setting, result: Round) -> dict[str, Any]:
    """Return a round as a flat row, as tables and trackers take it.

    Args:
        setting: what was run.
        result: a round of it.

    Returns:
        values by column. The columns of seconds are named after their phase: ``training_seconds``.
    """
    row: dict[str, Any] = {
        "setting": setting.name,
        "dataset": setting.dataset,
        "strategy": result.strategy,
        "repetition": result.repetition,
        "round": result.number,
        "labelled": result.labelled,
        "accuracy": result.accuracy,
        "loss": result.loss,
        "validation": result.validation,
        "vote": result.vote,
    }
    for phase, seconds in result.seconds.items():
        row[f"{phase}_seconds"] = seconds

    row["peak_memory"] = result.peak_memory
    row["picks"] = list(result.picks)
    return row
