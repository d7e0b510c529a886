"""The results of a benchmark run as records and arrays, and the folder that they are kept in.

==================================  ================================================================
``run.json``                        the manifest: setting, strategies, groups of cells, versions
``cells/STRATEGY-R.jsonl``          a line for every finished round of a cell
``cells/STRATEGY-R-memory-N.*``     what the strategy remembers after round N, if it does
``failures.jsonl``                  a line for every cell that stopped with an error
``.lock``                           held by the process that writes
==================================  ================================================================

A line is on disk when ``append`` returns, and a crash costs at most the line that was being
written: a last line without its end is ignored by readers and removed by the next writer.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np
import numpy.typing as npt

from teeter.base.files import atomic_write, merge_arrays, read_state, split_arrays, write_state
from teeter.bench.experiments.settings import Setting
from teeter.data.table_files import make_frame
from teeter.errors import FileError, InputError

__all__ = [
    "PHASES",
    "Array",
    "Cell",
    "Curves",
    "Failure",
    "Manifest",
    "Round",
    "Run",
    "RunFolder",
    "by_cells",
    "read_run",
    "round_to_row",
    "run_lock",
]

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
    ensemble_accuracy: float | None = None
    """Accuracy of an ensemble's mean probabilities, for strategies that train one."""
    metrics: dict[str, float] = field(default_factory=dict)
    """Other metrics on the test rows by name, if the setting has any."""

    @property
    def cell(self) -> Cell:
        """The cell that the round belongs to."""
        return Cell(self.strategy, self.repetition)


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Why a cell stopped at a round. The fields are the keys of a line in the file of failures."""

    strategy: str
    repetition: int
    round: int
    group: int = 0
    """The number of the group that the cell was trained in; absent in runs of early versions."""
    error: str
    trace: str = ""
    """The traceback of the error."""

    @property
    def cell(self) -> Cell:
        """The cell that stopped."""
        return Cell(self.strategy, self.repetition)


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
        if self.last_round is None:
            return False
        return self.last_round < self.setting.rounds

    def columns(self) -> dict[str, list[Any]]:
        """Return a row for each round, by column: see ``to_frame``."""
        rows = []
        for result in self.rounds:
            row: dict[str, Any] = {
                "setting": self.setting.name,
                "dataset": Path(self.setting.dataset).stem,
                "batch": self.setting.query,
                "strategy": result.strategy,
                "seed": result.repetition,
                "round": result.number,
                "labels": result.labelled,
                "accuracy": result.accuracy,
                "loss": result.loss,
                **result.metrics,
            }
            if result.ensemble_accuracy is not None:
                row["ensemble_accuracy"] = result.ensemble_accuracy
            for phase in PHASES:
                row[f"{phase}_seconds"] = result.seconds.get(phase, 0.0)
            rows.append(row)
        names = dict.fromkeys(name for row in rows for name in row)
        return {name: [row.get(name) for row in rows] for name in names}

    def to_frame(self, kind: str | None = None) -> Any:
        """Return the rounds as a data frame, a row for each round of a strategy and seed.

        Args:
            kind: pandas or polars. By default the first one that is installed.

        Raises:
            MissingExtraError: if the library is not installed.
        """
        return make_frame(self.columns(), kind)

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
        "ensemble_accuracy": result.ensemble_accuracy,
        **result.metrics,
    }
    for phase, seconds in result.seconds.items():
        row[f"{phase}_seconds"] = seconds

    row["peak_memory"] = result.peak_memory
    row["picks"] = list(result.picks)
    return row


_FORMAT = 1
"""Raised when older versions can no longer read what is written."""

_MANIFEST = "run.json"
_CELLS = "cells"
_FAILURES = "failures.jsonl"
_LOCK = ".lock"


@dataclass(frozen=True)
class Manifest:
    """What a run consists of, or is asked to: then without groups and facts."""

    setting: Setting
    """In a file without strategies and repetitions, which may be added to a run later."""
    strategies: tuple[str, ...]
    repetitions: int
    rounds: int
    """The number of the last round."""
    groups: tuple[tuple[Cell, ...], ...] = ()
    """Cells whose networks are trained together, in the order in which they were started."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Versions, commit, hardware and the time of the first start."""

    @property
    def cells(self) -> list[Cell]:
        """Every strategy in every repetition."""
        return [
            Cell(strategy, repetition)
            for strategy in self.strategies
            for repetition in range(self.repetitions)
        ]

    def to_json(self) -> dict[str, Any]:
        """Return the manifest as its file holds it."""
        return {
            "format": _FORMAT,
            "setting": asdict(self.setting),
            "strategies": self.strategies,
            "repetitions": self.repetitions,
            "rounds": self.rounds,
            "groups": self.groups,
            **self.facts,
        }

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Manifest:
        """Return the manifest in the contents of a file.

        Raises:
            Exception: of any kind, if something is missing or has a wrong type.
        """
        facts = dict(values)
        del facts["format"]

        # JSON has no tuples: a cell is a list of two.
        groups = []
        for pairs in facts.pop("groups"):
            group = tuple(Cell(str(name), int(repetition)) for name, repetition in pairs)
            groups.append(group)

        manifest = cls(
            # Values that a newer teeter added have their defaults in an older run.
            setting=Setting(**facts.pop("setting")),
            strategies=tuple(facts.pop("strategies")),
            repetitions=facts.pop("repetitions"),
            rounds=facts.pop("rounds"),
            groups=tuple(groups),
            facts=facts,
        )

        # Constructing a dataclass checks nothing. These would fail far from here.
        for count in (manifest.repetitions, manifest.rounds):
            if not isinstance(count, int):
                raise TypeError(f"{count!r} is not a whole number")
        for group in groups:
            for cell in group:
                if cell.strategy not in manifest.strategies:
                    raise ValueError(f"{cell.strategy!r} is not one of the strategies")
        return manifest


class RunFolder:
    """The files of one run.

    Any process may read them. Hold ``run_lock`` to write.

    Args:
        path: the folder. It need not exist yet.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def exists(self) -> bool:
        """Return whether the folder holds a run."""
        return (self.path / _MANIFEST).exists()

    def read(self) -> Run:
        """Read the whole run.

        Raises:
            FileError: if there is no run in the folder, or a file of it is damaged.
        """
        manifest = self.read_manifest()
        if manifest is None:
            raise FileError(
                f"There is no run in {self.path}, because it has no {_MANIFEST}. Name a folder "
                f"that teeter bench run wrote."
            )

        rounds: list[Round] = []
        for path in sorted((self.path / _CELLS).glob("*.jsonl")):
            rounds += _read_rounds(path)

        finished_cells = set()
        for cell, cell_rounds in by_cells(rounds).items():
            if cell_rounds[-1].number >= manifest.rounds:
                finished_cells.add(cell)

        # A cell that failed may have finished in a later attempt.
        failures = {}
        for failure in self.read_failures():
            if failure.cell not in finished_cells:
                failures[failure.cell] = failure.error

        # The manifest decides what the run consists of, whatever else lies in the folder.
        cells = set(manifest.cells)
        rounds_of_cells = [result for result in rounds if result.cell in cells]
        rounds_of_run = [result for result in rounds_of_cells if result.number <= manifest.rounds]

        return Run(
            folder=self.path,
            setting=manifest.setting,
            facts=manifest.facts,
            strategies=manifest.strategies,
            repetitions=manifest.repetitions,
            rounds=tuple(rounds_of_run),
            failures=failures,
            finished=cells <= finished_cells,
            last_round=manifest.rounds,
        )

    def read_manifest(self) -> Manifest | None:
        """Read what the run consists of, or return None if the folder holds no run.

        Raises:
            FileError: if the file is damaged, or was written by a newer teeter.
        """
        path = self.path / _MANIFEST
        manifest = None
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            format_number = values["format"]

            # A newer format may lack what from_json expects: that file is not damaged.
            if format_number <= _FORMAT:
                manifest = Manifest.from_json(values)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise FileError(f"Cannot read {path}: {error.strerror or error}.") from None
        except (ValueError, KeyError, TypeError):
            raise FileError(f"{path} is damaged, or is not part of a run folder.") from None

        if manifest is None:
            raise FileError(
                f"{path} was written by a newer version of teeter (format {format_number}): "
                f"update teeter to "
                "read it."
            )
        return manifest

    def write_manifest(self, manifest: Manifest) -> None:
        """Write what the run consists of, atomically."""
        path = self.path / _MANIFEST
        text = json.dumps(manifest.to_json(), indent=1) + "\n"
        with _write_errors(path):
            atomic_write(path, text.encode())
            _sync_folder(self.path)

    def rounds(self, cell: Cell) -> list[Round]:
        """Read the rounds of a cell, and remove a last line that a crash left without its end."""
        path = self._rounds_path(cell)
        rounds = _read_rounds(path)

        # The next line must not be appended to half of another.
        with _write_errors(path):
            complete_size = sum(len(line) for line in _complete_lines(path))
            if path.exists() and path.stat().st_size > complete_size:
                os.truncate(path, complete_size)
        return rounds

    def append(self, result: Round, memory: dict[str, Any]) -> None:
        """Record a round and what its strategy remembers. Both are on disk when this returns.

        Raises:
            FileError: if they cannot be written. What was recorded before is unchanged.
        """
        cell = result.cell

        # The memory is on disk before the line: a line whose memory is missing could not resume.
        if memory:
            header, tensors = split_arrays(memory, "")
            path = self._memory_path(cell, result.number)
            write_state(path, {"memory": header}, tensors)
            with _write_errors(self.path / _CELLS):
                _sync_folder(self.path / _CELLS)

        _append_line(self._rounds_path(cell), json.dumps(asdict(result)))

        # Only the last memory is ever read. An old one that stays behind does no harm.
        previous = self._memory_path(cell, result.number - 1)
        with contextlib.suppress(OSError):
            previous.unlink(missing_ok=True)

    def memory(self, cell: Cell, number: int) -> dict[str, Any]:
        """Read what the strategy of a cell remembers after a round."""
        path = self._memory_path(cell, number)
        if not path.exists():
            return {}
        header, tensors = read_state(path)
        return merge_arrays(header["memory"], tensors, "")

    def append_failure(self, failure: Failure) -> None:
        """Record why a cell stopped."""
        _append_line(self.path / _FAILURES, json.dumps(asdict(failure)))

    def read_failures(self) -> list[Failure]:
        """Read all failures, the latest last.

        Raises:
            FileError: if the file is damaged.
        """
        path = self.path / _FAILURES
        try:
            return [Failure(**json.loads(line)) for line in _complete_lines(path)]
        except (ValueError, TypeError):
            raise FileError(
                f"{path} is damaged: it has a line that does not describe a failure."
            ) from None

    def failed_rounds(self, group: int, cells: Sequence[Cell]) -> dict[Cell, int]:
        """Return the round at which each cell of a group failed, for those that did."""
        failed = {}
        for failure in self.read_failures():
            if failure.group == group and failure.cell in cells:
                failed[failure.cell] = failure.round
        return failed

    def _rounds_path(self, cell: Cell) -> Path:
        name = f"{_file_name(cell)}.jsonl"
        return self.path / _CELLS / name

    def _memory_path(self, cell: Cell, number: int) -> Path:
        name = f"{_file_name(cell)}-memory-{number}.safetensors"
        return self.path / _CELLS / name


def read_run(folder: str | Path) -> Run:
    """Read a run from its folder, finished or not.

    Args:
        folder: where ``run_setting`` or ``teeter bench run`` has recorded it.

    Raises:
        FileError: if there is no run in the folder, or a file of it is damaged.
    """
    return RunFolder(folder).read()


@contextmanager
def run_lock(folder: Path, *, wait: bool = False) -> Iterator[None]:
    """Create a run's folder and be the only process that writes to it.

    Args:
        folder: the run's folder.
        wait: wait until the other process has finished, instead of raising an error.

    Raises:
        FileError: if the folder cannot be written.
        InputError: if another process holds the lock.
    """
    try:
        (folder / _CELLS).mkdir(parents=True, exist_ok=True)
        lock = (folder / _LOCK).open("w")
    except OSError as error:
        raise FileError(
            f"Cannot record a run in {folder}: {error.strerror or error}. Make it writable, or "
            "choose another folder."
        ) from None

    # Closing the file releases the lock, also when the process is killed.
    with lock:
        _lock_file(lock.fileno(), folder, wait=wait)
        yield


def _lock_file(handle: int, folder: Path, *, wait: bool) -> None:
    try:
        import fcntl
    except ImportError:
        return  # Windows has none; users must not write from two processes there.

    mode = fcntl.LOCK_EX
    if not wait:
        mode |= fcntl.LOCK_NB
    try:
        fcntl.flock(handle, mode)
    except OSError:
        raise InputError(
            f"Another process is using {folder}: wait until it has finished, or choose another "
            f"folder."
        ) from None


def _file_name(cell: Cell) -> str:
    # Names of plugins may have any character. Quoted, a slash makes no folder.
    strategy = quote(cell.strategy, safe="")
    return f"{strategy}-{cell.repetition}"


def _read_rounds(path: Path) -> list[Round]:
    rounds = []
    try:
        for line in _complete_lines(path):
            values = json.loads(line)
            values["picks"] = tuple(values["picks"])
            if "vote" in values:  # its name in early versions
                values["ensemble_accuracy"] = values.pop("vote")
            rounds.append(Round(**values))
    except (ValueError, TypeError, KeyError):
        raise FileError(
            f"{path} is damaged: it has a line that does not describe a round."
        ) from None

    # A gap means that lines were lost or edited: resuming would tell the wrong labels.
    numbers = [result.number for result in rounds]
    if numbers != list(range(len(rounds))):
        raise FileError(f"{path} is damaged: its rounds are not numbered 0, 1, 2 and so on.")
    return rounds


def _complete_lines(path: Path) -> list[bytes]:
    """Return the lines of a file with their ends, without a last line that has none."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise FileError(f"Cannot read {path}: {error.strerror or error}.") from None

    lines = content.splitlines(keepends=True)
    return [line for line in lines if line.endswith(b"\n")]


def _append_line(path: Path, line: str) -> None:
    with _write_errors(path):
        is_new = not path.exists()
        with path.open("ab") as file:
            start = file.tell()
            try:
                file.write(line.encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
            except OSError:
                # The disk may be full: remove what was written of the line.
                with contextlib.suppress(OSError):
                    os.truncate(path, start)
                raise

        if is_new:
            _sync_folder(path.parent)


def _sync_folder(path: Path) -> None:
    """Make sure that new names in a folder are on disk."""
    # fsync of a file writes its contents, but not its name in the folder.
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _write_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise FileError(
            f"Cannot write {path}: {error.strerror or error}. Everything recorded so far is "
            f"safe. Start the run again to continue."
        ) from None
