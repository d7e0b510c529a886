"""What a run leaves on disk and how it is read: a page of facts, and a line for every finished round of every cell."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from teeter.errors import FileError
from teeter.experiments.settings import Setting

__all__ = ["CELLS", "FACTS", "FAILURES", "PHASES", "Cell", "Curves", "Round", "Run", "read_run"]

Array = npt.NDArray[np.floating[Any]]
Cell = tuple[str, int]
"""A strategy and a repetition."""

FACTS, CELLS, FAILURES = "run.json", "cells", "failures.jsonl"
"""The names of a run's files."""

FORMAT = 1
"""Raised when older versions could no longer read what is written."""

PHASES = ("training", "validation", "outputs", "selection", "evaluation")
"""What the time of a round goes to."""


@dataclass(frozen=True)
class Round:
    """One round of one cell: a network trained on so many labels, how right it was, and what it asked for next."""

    strategy: str
    repetition: int
    number: int
    labelled: int
    accuracy: float
    loss: float
    picks: tuple[int, ...]
    """Training rows, best first; none in the last round."""
    seconds: dict[str, float]
    """By kind of work; of work done for many cells at once, this cell's share."""
    peak_memory: int
    """Bytes, at the most, while it was observed, evaluated and asked."""
    validation: float | None = None
    """The accuracy on the validation rows, where there are any."""
    vote: float | None = None
    """The accuracy of an ensemble's vote."""


@dataclass(frozen=True)
class Failure:
    """Why a cell could not go on at a round, in the company of a group."""

    cell: Cell
    round: int
    group: int
    error: str


@dataclass(frozen=True, eq=False)
class Curves:
    """What a run found, as arrays; strategies in the order of the run."""

    labelled: Array
    """(T,) labels at each round; the first is the initial set's."""
    accuracy: dict[str, Array]
    """By strategy, (R, T)."""
    loss: dict[str, Array]
    seconds: dict[str, dict[str, Array]]
    """By strategy and kind of work, (R, T)."""
    peak_memory: dict[str, Array]


@dataclass(frozen=True, eq=False)
class Run:
    """A run, finished or not."""

    folder: Path
    setting: Setting
    facts: dict[str, Any]
    strategies: tuple[str, ...]
    repetitions: int
    rounds: tuple[Round, ...]
    failures: dict[Cell, str] = field(default_factory=dict)
    finished: bool = False

    def curves(self) -> Curves:
        """Return the rounds and repetitions that all strategies have; strategies without any are left out."""
        by_cell = by_cells(self.rounds)
        strategies = [name for name in self.strategies if any(cell[0] == name for cell in by_cell)]
        repetitions = [
            r for r in range(self.repetitions) if all((name, r) in by_cell for name in strategies)
        ]
        kept = {name: [by_cell[name, r] for r in repetitions] for name in strategies}
        length = min((len(rounds) for runs in kept.values() for rounds in runs), default=0)
        cut = {name: [rounds[:length] for rounds in runs] for name, runs in kept.items()}

        def table(rounds: Iterable[list[Round]], read: Any) -> Array:
            return np.array([[read(one) for one in line] for line in rounds], dtype=float).reshape(
                len(repetitions), length
            )

        return Curves(
            labelled=np.array(
                [one.labelled for one in next(iter(cut.values()), [[]])[0]], dtype=float
            )
            if repetitions
            else np.zeros(0),
            accuracy={name: table(runs, lambda one: one.accuracy) for name, runs in cut.items()},
            loss={name: table(runs, lambda one: one.loss) for name, runs in cut.items()},
            seconds={
                name: {
                    kind: table(runs, lambda one, kind=kind: one.seconds.get(kind, 0.0))
                    for kind in PHASES
                }
                for name, runs in cut.items()
            },
            peak_memory={
                name: table(runs, lambda one: one.peak_memory) for name, runs in cut.items()
            },
        )


def by_cells(rounds: Iterable[Round]) -> dict[Cell, list[Round]]:
    """Return rounds by cell, in order."""
    found: dict[Cell, list[Round]] = {}
    for one in sorted(rounds, key=lambda one: one.number):
        found.setdefault((one.strategy, one.repetition), []).append(one)
    return found


def read_run(folder: Path) -> Run:
    """Return what is in a run's folder."""
    facts = read_facts(folder)
    if facts is None:
        raise FileError(f"There is no run in {folder}: it has no {FACTS}.")
    rounds = [one for path in sorted((folder / CELLS).glob("*.jsonl")) for one in read_rounds(path)]
    setting = Setting(**facts["setting"])
    last = facts["rounds"]
    done = {cell for cell, some in by_cells(rounds).items() if some[-1].number >= last}
    wanted = {(name, r) for name in facts["strategies"] for r in range(facts["repetitions"])}
    failures = {one.cell: one.error for one in read_failures(folder) if one.cell not in done}
    return Run(
        folder=folder,
        setting=setting,
        facts={name: value for name, value in facts.items() if name not in _OWN},
        strategies=tuple(facts["strategies"]),
        repetitions=facts["repetitions"],
        rounds=tuple(
            one for one in rounds if (one.strategy, one.repetition) in wanted and one.number <= last
        ),
        failures=failures,
        finished=wanted <= done,
    )


_OWN = ("setting", "strategies", "repetitions", "rounds", "groups", "format")


def read_facts(folder: Path) -> dict[str, Any] | None:
    """Return what a run's folder says about it, or None if it is not one."""
    path = folder / FACTS
    try:
        facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        newer = facts["format"] > FORMAT
        if not newer:
            _require_whole(facts)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise FileError(f"Cannot read {path}: {error.strerror or error}.") from None
    except (ValueError, KeyError, TypeError):
        raise FileError(f"{path} is damaged, or something else than a run of teeter.") from None
    if newer:
        raise FileError(
            f"{path} was written by a newer teeter (format {facts['format']}): update to read it."
        )
    return facts


def _require_whole(facts: dict[str, Any]) -> None:
    """Raise whatever it may be if something is missing or is not of its kind."""
    Setting(**facts["setting"])
    cells = [
        (str(name), int(repetition)) for group in facts["groups"] for name, repetition in group
    ]
    named = {*facts["strategies"]} >= {name for name, _ in cells}
    if not (named and isinstance(facts["repetitions"], int) and isinstance(facts["rounds"], int)):
        raise ValueError("these are not the facts of a run")


def read_rounds(path: Path) -> list[Round]:
    """Return the rounds of a cell's file; what a crash left of a last line is passed over."""
    rounds = [_round_of(line, path) for line in complete_lines(path)]
    if [one.number for one in rounds] != list(range(len(rounds))):
        raise FileError(f"{path} is damaged: its rounds are not 0, 1, 2 and so on.")
    return rounds


def complete_lines(path: Path) -> list[bytes]:
    """Return the lines of a file that end, with their ends."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise FileError(f"Cannot read {path}: {error.strerror}.") from None
    return [line for line in text.splitlines(keepends=True) if line.endswith(b"\n")]


def _round_of(line: bytes, path: Path) -> Round:
    try:
        told = json.loads(line)
        return Round(**{**told, "picks": tuple(told["picks"])})
    except (ValueError, TypeError, KeyError):
        raise FileError(f"{path} is damaged: a line of it is not a round.") from None


def read_failures(folder: Path) -> list[Failure]:
    """Return the failures of cells, the latest last."""
    path = folder / FAILURES
    try:
        told = [json.loads(line) for line in complete_lines(path)]
        return [
            Failure(
                (one["strategy"], one["repetition"]),
                one["round"],
                one.get("group", 0),
                one["error"],
            )
            for one in told
        ]
    except (ValueError, TypeError, KeyError, AttributeError):
        raise FileError(f"{path} is damaged: a line of it is not a failure.") from None


def round_to_json(one: Round) -> str:
    """Return a round as a line."""
    return json.dumps(asdict(one)) + "\n"


def round_to_row(setting: Setting, one: Round) -> dict[str, Any]:
    """Return a round as a flat row: what was run, how good it was, what it took, and the rows that were picked."""
    return {
        "setting": setting.name,
        "dataset": setting.dataset,
        "strategy": one.strategy,
        "repetition": one.repetition,
        "round": one.number,
        "labelled": one.labelled,
        "accuracy": one.accuracy,
        "loss": one.loss,
        "validation": one.validation,
        "vote": one.vote,
        **{f"{kind}_seconds": seconds for kind, seconds in one.seconds.items()},
        "peak_memory": one.peak_memory,
        "picks": list(one.picks),
    }


def setting_as_json(setting: Setting) -> Mapping[str, Any]:
    """Return a setting as it reads back from a file."""
    plain: Mapping[str, Any] = json.loads(json.dumps(asdict(setting)))
    return plain
