"""Rounds told to others as they are done: files, TensorBoard, or whoever has the three methods of a Tracker."""

from __future__ import annotations

import csv
import io
import json
import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from teeter.errors import FileError, InputError, MissingExtraError, PluginError, UnknownNameError
from teeter.experiments.results import PHASES, Round, round_to_row
from teeter.registry import Plugins, did_you_mean

if TYPE_CHECKING:
    from teeter.experiments.settings import Setting
    from teeter.learner import Learner
    from teeter.training import Evaluation

__all__ = [
    "COLUMNS",
    "CsvTracker",
    "JsonlTracker",
    "TensorBoardTracker",
    "Tracker",
    "TrackerSet",
    "learner_row",
    "make_tracker",
    "round_key",
]

Row = Mapping[str, Any]
Place = tuple[str, str, str, int, int]
"""Which round of which run: the setting, when the run was started, the strategy, the repetition, the round."""

_PLACE = ("setting", "started", "strategy", "repetition", "round")

COLUMNS = (
    *_PLACE,
    *("dataset", "labelled", "accuracy", "loss", "validation", "vote"),
    *(f"{kind}_seconds" for kind in PHASES),
    *("peak_memory", "picks"),
)
"""What a row tells, in the order of a file."""

logger = logging.getLogger(__name__)


class Tracker(Protocol):
    """Whoever is told of rounds, one after the other; a run that was stopped goes on, and so does its tracker."""

    def begin(self) -> Collection[Place]:
        """Make ready, and return the rounds that were written before: they are not told again."""

    def write(self, row: Row) -> None:
        """Take one round, with what COLUMNS names."""

    def end(self) -> None:
        """Put everything away."""


def round_key(row: Row) -> Place:
    """Return which round a row is of."""
    setting, started, strategy = (str(row.get(name) or "") for name in _PLACE[:3])
    return setting, started, strategy, int(row.get("repetition") or 0), int(row["round"])


def learner_row(
    learner: Learner, judged: Evaluation, *, setting: str = "", repetition: int = 0
) -> Row:
    """Return what the last fit of a learner of your own came to, as a row for a tracker."""
    seconds = {
        f"{kind}_seconds": learner.seconds[kind] for kind in PHASES if kind in learner.seconds
    }
    told = {
        **{"setting": setting, "strategy": learner.strategy.name, "repetition": repetition},
        **{"round": learner.rounds - 1, "labelled": len(learner.training_rows)},
        **{
            "accuracy": judged.accuracy,
            "loss": judged.loss,
            "validation": learner.validation_accuracy,
            "vote": judged.vote,
        },
        **seconds,
    }
    return {name: told.get(name) for name in COLUMNS}


class TrackerSet:
    """The trackers of one run: each is told each round once, and one that fails does not stop the run."""

    def __init__(self, trackers: Sequence[Tracker], setting: Setting, started: str) -> None:
        self.setting, self.started = setting, started
        self.known = [(tracker, set(tracker.begin())) for tracker in trackers]

    def tell(self, one: Round) -> None:
        """Tell a round to all who do not know it yet."""
        if not self.known:
            return
        row = {"started": self.started, **round_to_row(self.setting, one)}
        row = {name: row.get(name) for name in COLUMNS}
        for pair in list(self.known):
            tracker, known = pair
            if round_key(row) in known:
                continue
            try:
                tracker.write(row)
            except (
                Exception
            ) as error:  # rounds are safe in the run's folder, whatever becomes of a tracker
                logger.warning(
                    "%s is told no more: %s. The same command tells it the rest.",
                    *(type(tracker).__name__, str(error).rstrip(".") or type(error).__name__),
                )
                self.known.remove(pair)
            known.add(round_key(row))

    def catch_up(self, rounds: Iterable[Round]) -> None:
        """Tell the rounds that were done before, or elsewhere."""
        for one in sorted(rounds, key=lambda one: one.number):
            self.tell(one)

    def end(self) -> None:
        """Let all of them put everything away."""
        for tracker, _ in self.known:
            try:
                tracker.end()
            except Exception as error:
                logger.warning(
                    "%s could not put everything away: %s", type(tracker).__name__, error
                )


class _LineTracker(ABC):
    """Rounds as lines of a file that others may read while it grows."""

    heading = ""

    def __init__(self, place: str | Path) -> None:
        self.path = Path(place)

    def begin(self) -> Collection[Place]:
        """Return the rounds in the file, without the half line that a crash may have left."""
        try:
            text = self.path.read_bytes() if self.path.exists() else b""
            whole = text[: text.rfind(b"\n") + 1]
            found = self._places(whole.decode(), text[len(whole) :].decode())
            if len(whole) < len(text):
                os.truncate(self.path, len(whole))
            if not whole:
                self._append(self.heading)
        except OSError as error:
            raise FileError(f"Cannot write {self.path}: {error.strerror or error}.") from None
        except (ValueError, KeyError, TypeError, AttributeError):
            raise FileError(
                f"{self.path} holds something else than rounds: name another file."
            ) from None
        return found

    def write(self, row: Row) -> None:
        """Append a line."""
        self._append(self._line(row))

    def end(self) -> None:  # noqa: B027 - not left to be written
        """Do nothing: every line is written when it is told."""

    def _append(self, text: str) -> None:
        with self.path.open("ab") as file:
            start = file.tell()
            try:
                file.write(text.encode())
            except OSError:  # a full disk: no half line stays
                with suppress(OSError):
                    os.truncate(self.path, start)
                raise

    @abstractmethod
    def _places(self, whole: str, rest: str) -> list[Place]:
        """Return the rounds of the whole lines; raise where they, or the rest of a file without any, are not ours."""

    @abstractmethod
    def _line(self, row: Row) -> str:
        """Return a row as a line, with its end."""


class CsvTracker(_LineTracker):
    """Rounds as a table with commas; picks are numbers with spaces between."""

    heading = ",".join(COLUMNS) + "\n"

    def _places(self, whole: str, rest: str) -> list[Place]:
        if not whole:
            return _nothing_if(self.heading.startswith(rest))
        rows = csv.DictReader(io.StringIO(whole))
        if tuple(rows.fieldnames or ()) != COLUMNS:
            raise ValueError("these are other columns")
        return [round_key(row) for row in rows]

    def _line(self, row: Row) -> str:
        unknown = [name for name in row if name not in COLUMNS]
        if unknown:
            raise InputError(
                f"{self.path} has no column {unknown[0]!r}: write what is not in COLUMNS as JSONL."
            )
        line = io.StringIO()
        picks = " ".join(map(str, row.get("picks") or ()))
        csv.DictWriter(line, COLUMNS, lineterminator="\n").writerow({**row, "picks": picks})
        return line.getvalue()


class JsonlTracker(_LineTracker):
    """Rounds as one JSON object a line."""

    def _places(self, whole: str, rest: str) -> list[Place]:
        if not whole:
            start = '{"setting"'
            return _nothing_if(rest.startswith(start) or start.startswith(rest))
        return [round_key(json.loads(line)) for line in whole.splitlines()]

    def _line(self, row: Row) -> str:
        return json.dumps(dict(row)) + "\n"


def _nothing_if(ours: bool) -> list[Place]:
    if not ours:
        raise ValueError("these are no rounds")
    return []


class TensorBoardTracker:
    """Rounds as TensorBoard's scalars over the number of labels, a folder for each strategy and repetition of a run."""

    def __init__(self, place: str | Path) -> None:
        self.folder = Path(place)
        self._writers: dict[Path, Any] = {}

    def begin(self) -> Collection[Place]:
        """Return the rounds that the event files hold."""
        _tensorboard()
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        found: list[Place] = []
        for note in sorted(self.folder.glob("*/*/cell.json")):
            events = EventAccumulator(str(note.parent), size_guidance={"scalars": 0}).Reload()
            if "round" in events.Tags()["scalars"]:
                cell = json.loads(note.read_text(encoding="utf-8"))
                found += [
                    round_key({**cell, "round": event.value}) for event in events.Scalars("round")
                ]
        return found

    def write(self, row: Row) -> None:
        """Write every number of a round; its own number comes last, and says that the round is whole."""
        writer = self._writer(row)
        numbers = {name: value for name, value in row.items() if isinstance(value, int | float)}
        for name, value in numbers.items():
            if name not in ("repetition", "labelled", "round"):
                writer.add_scalar(name, value, row["labelled"])
        writer.add_scalar("round", row["round"], row["labelled"])
        writer.flush()

    def end(self) -> None:
        """Close the event files."""
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()

    def _writer(self, row: Row) -> Any:
        setting, started, strategy, repetition, _ = round_key(row)
        run = f"{setting}-{started}".strip("-").replace(":", "").replace("/", "-") or "run"
        folder = self.folder / run / f"{strategy}-{repetition}".replace("/", "-")
        if folder not in self._writers:
            folder.mkdir(parents=True, exist_ok=True)
            cell = {name: row.get(name) for name in _PLACE[:4]}
            (folder / "cell.json").write_text(json.dumps(cell), encoding="utf-8")
            self._writers[folder] = _tensorboard()(str(folder))
        return self._writers[folder]


def _tensorboard() -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise MissingExtraError(
            "TensorBoard is not installed: pip install 'teeter[track]'."
        ) from None
    return SummaryWriter


_KINDS: dict[str, Callable[[str], Tracker]] = {
    "csv": CsvTracker,
    "jsonl": JsonlTracker,
    "tensorboard": TensorBoardTracker,
}

plugins: Plugins[Callable[[str], Tracker]] = Plugins(
    "tracker",
    "teeter.trackers",
    is_valid=callable,
    expected="a class that is made from what stands behind the colon",
)
"""Trackers of other packages, through the entry-point group ``teeter.trackers``."""


def make_tracker(text: str) -> Tracker:
    """Return the tracker that ``KIND:PLACE`` asks for, such as ``csv:rounds.csv``."""
    kind, sign, place = text.partition(":")
    names = list(dict.fromkeys([*_KINDS, *plugins.names()]))
    if not sign or not place:
        raise InputError(
            f"Cannot track to {text!r}: write KIND:PLACE, as in csv:rounds.csv, with {' or '.join(names)}."
        )
    if kind in _KINDS:
        return _KINDS[kind](place)
    if kind not in names:
        raise UnknownNameError(f"No tracker is called {kind!r}. {did_you_mean(kind, names)}")
    try:
        return plugins.get(kind)(place)
    except PluginError:
        raise
    except Exception as error:
        raise PluginError(
            f"The tracker {kind!r} of {plugins.package(kind)} cannot be made: {error}."
        ) from error
