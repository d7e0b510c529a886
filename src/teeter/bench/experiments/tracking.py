"""Trackers: send every round to TensorBoard, MLflow, W&B or your own code, when it is recorded.

The run folder holds all rounds anyway. A tracker shows them elsewhere while a run is going on, and
may be added to a run later: it then gets the earlier rounds first.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from teeter.base.registry import Plugins, require_known
from teeter.bench.experiments.run_folder import PHASES, Round, round_to_row
from teeter.errors import InputError, MissingExtraError, PluginError

if TYPE_CHECKING:
    from teeter.bench.experiments.settings import Setting
    from teeter.learner.learner import Learner
    from teeter.training import Evaluation

__all__ = [
    "COLUMNS",
    "MlflowTracker",
    "RoundKey",
    "Row",
    "TensorBoardTracker",
    "Tracker",
    "TrackerSet",
    "WandbTracker",
    "learner_row",
    "make_tracker",
    "plugins",
    "round_key",
]


logger = logging.getLogger(__name__)

Row = Mapping[str, Any]

COLUMNS = (
    "setting",
    "started",
    "strategy",
    "repetition",
    "round",
    "dataset",
    "labelled",
    "accuracy",
    "loss",
    "validation",
    "ensemble_accuracy",
    *(f"{phase}_seconds" for phase in PHASES),
    "peak_memory",
    "picks",
)
"""The keys of a row."""


class RoundKey(NamedTuple):
    """What identifies a round among the rounds of many runs."""

    setting: str
    started: str
    """When the run was started for the first time."""
    strategy: str
    repetition: int
    round: int


class Tracker(Protocol):
    """Receives rounds, one after the other.

    A tracker that raises an exception is disabled for the rest of the run, and the run continues.
    """

    def begin(self) -> Collection[RoundKey]:
        """Get ready, and return the rounds that were written before: they are not sent again."""

    def write(self, row: Row) -> None:
        """Write a round. The row has a value, or None, for each of ``COLUMNS``, and the metrics."""

    def end(self) -> None:
        """Close files and connections."""


def round_key(row: Row) -> RoundKey:
    """Return which round a row is.

    Example:
        >>> key = round_key({"setting": "digits", "strategy": "margin", "round": 2})
        >>> key.strategy, key.repetition, key.round
        ('margin', 0, 2)
    """
    return RoundKey(
        setting=str(row.get("setting") or ""),
        started=str(row.get("started") or ""),
        strategy=str(row.get("strategy") or ""),
        repetition=int(row.get("repetition") or 0),
        round=int(row["round"]),
    )


def learner_row(
    learner: Learner, evaluation: Evaluation, *, setting: str = "", repetition: int = 0
) -> Row:
    """Return the last fit of your own learner as a row for a tracker.

    Args:
        learner: a fitted learner.
        evaluation: what its ``evaluate`` returned.
        setting: a name for the experiment.
        repetition: the number of the repetition, if there are several.

    Returns:
        a value, or None, for each of ``COLUMNS``, and the metrics of the evaluation.
    """
    last_fit = learner.history[-1]
    values: dict[str, Any] = {
        "setting": setting,
        "strategy": learner.strategy.name,
        "repetition": repetition,
        "round": learner.rounds - 1,
        "labelled": len(last_fit.rows),
        "accuracy": evaluation.accuracy,
        "loss": evaluation.loss,
        "validation": last_fit.validation_accuracy,
        "ensemble_accuracy": evaluation.ensemble_accuracy,
    }
    for phase, seconds in last_fit.seconds.items():
        values[f"{phase}_seconds"] = seconds

    # Trackers get the same columns from a learner as from a run, some of them empty.
    row = {name: values.get(name) for name in COLUMNS}
    return {**row, **evaluation.metrics}


class TrackerSet:
    """The trackers of one run. Each gets every round once, and its errors do not stop the run.

    Use it as a context manager, which begins the trackers and ends them.
    """

    def __init__(self, trackers: Sequence[Tracker], setting: Setting, started: str) -> None:
        self._trackers = trackers
        self._setting = setting
        self._started = started

        # The trackers that work, each with the rounds that it has.
        self._active: list[tuple[Tracker, set[RoundKey]]] = []

    def __enter__(self) -> TrackerSet:
        # Not guarded: a tracker that cannot begin is a mistake to fix before hours of training.
        self._active = []
        try:
            for tracker in self._trackers:
                written_before = set(tracker.begin())
                self._active.append((tracker, written_before))
        except BaseException:
            # Python does not call __exit__ if __enter__ raises.
            self._end_trackers()
            raise
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end_trackers()

    @property
    def is_active(self) -> bool:
        """Whether there is a tracker that has not failed."""
        return bool(self._active)

    def write(self, result: Round) -> None:
        """Send a round to all trackers that do not have it yet."""
        if not self.is_active:
            return

        values = {"started": self._started, **round_to_row(self._setting, result)}
        row = {name: values.get(name) for name in (*COLUMNS, *result.metrics)}
        key = round_key(row)

        working = []
        for tracker, written in self._active:
            if key in written:
                working.append((tracker, written))
                continue
            try:
                tracker.write(row)
            except Exception as error:  # The rounds are safe in the run folder.
                reason = str(error).rstrip(".") or type(error).__name__
                logger.warning(
                    "Tracker %s failed and was disabled: %s. Rerun the command to send the "
                    "remaining rounds.",
                    _name(tracker),
                    reason,
                )
            else:
                written.add(key)
                working.append((tracker, written))
        self._active = working

    def _end_trackers(self) -> None:
        # Trackers that failed before were removed from the list: they are not ended.
        for tracker, _ in self._active:
            try:
                tracker.end()
            except Exception as error:
                logger.warning(
                    "Tracker %s failed while it was being closed: %s", _name(tracker), error
                )


def _name(tracker: Tracker) -> str:
    return type(tracker).__name__


def _cell(row: Row) -> dict[str, Any]:
    """Return which cell a row belongs to: a strategy in one repetition of a run."""
    return {name: row.get(name) for name in RoundKey._fields if name != "round"}


def _numbers(row: Row) -> dict[str, float]:
    """Return what can be drawn over the number of labels."""
    return {
        name: value
        for name, value in row.items()
        if isinstance(value, int | float) and name not in ("repetition", "labelled", "round")
    }


class TensorBoardTracker:
    """Write rounds for TensorBoard: every number as a curve over the number of labels.

    Needs the extra ``bench``.

    Args:
        folder: what ``tensorboard --logdir`` shows. It gets a folder for each run, and in it one
            for each cell, which is a strategy in one repetition.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._writers: dict[Path, Any] = {}

    def begin(self) -> Collection[RoundKey]:
        """Return the rounds that the event files hold.

        Raises:
            MissingExtraError: if TensorBoard is not installed.
        """
        _summary_writer_class()  # raises if TensorBoard is missing
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        keys: list[RoundKey] = []
        for cell_file in sorted(self.folder.glob("*/*/cell.json")):
            # 0 means all: by default, TensorBoard reads a sample of the events.
            folder = str(cell_file.parent)
            events = EventAccumulator(folder, size_guidance={"scalars": 0}).Reload()
            if "round" not in events.Tags()["scalars"]:
                continue

            cell = json.loads(cell_file.read_text(encoding="utf-8"))
            for event in events.Scalars("round"):
                key = round_key({**cell, "round": event.value})
                keys.append(key)
        return keys

    def write(self, row: Row) -> None:
        """Write every number of a round."""
        writer = self._writer(row)
        for name, value in _numbers(row).items():
            writer.add_scalar(name, value, row["labelled"])

        # Last, because begin takes it as the sign that the round is complete.
        writer.add_scalar("round", row["round"], row["labelled"])
        writer.flush()

    def end(self) -> None:
        """Close the event files."""
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()

    def _writer(self, row: Row) -> Any:
        key = round_key(row)
        run_name = f"{key.setting}-{key.started}".strip("-") or "run"
        # Windows allows no colons in names, and a slash would make another folder.
        run_folder = run_name.replace(":", "").replace("/", "-")
        cell_folder = f"{key.strategy}-{key.repetition}".replace("/", "-")
        folder = self.folder / run_folder / cell_folder

        if folder not in self._writers:
            folder.mkdir(parents=True, exist_ok=True)

            # Event files hold numbers only: ``begin`` reads from here which cell they belong to.
            cell_file = folder / "cell.json"
            cell_file.write_text(json.dumps(_cell(row)), encoding="utf-8")

            writer_class = _summary_writer_class()
            self._writers[folder] = writer_class(str(folder))
        return self._writers[folder]


def _summary_writer_class() -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise MissingExtraError(
            "TensorBoard is not installed: pip install 'teeter[bench]'."
        ) from None
    return SummaryWriter


class MlflowTracker:
    """Write rounds for MLflow 3: a run for each cell, with the number of labels as its steps.

    Needs MLflow, or mlflow-skinny to write to a server.

    Args:
        uri: where MLflow keeps its runs, such as ``sqlite:///mlflow.db`` or the address of a
            server. The experiment ``teeter`` is created there.
    """

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self._client: Any = None
        self._experiment = ""
        self._runs: dict[RoundKey, str] = {}

    def begin(self) -> Collection[RoundKey]:
        """Return the rounds that the runs of the experiment hold.

        Raises:
            MissingExtraError: if MLflow is not installed.
        """
        try:
            from mlflow import MlflowClient
        except ImportError:
            raise MissingExtraError("MLflow is not installed: pip install mlflow.") from None

        self._client = MlflowClient(tracking_uri=self.uri)
        experiment = self._client.get_experiment_by_name("teeter")
        if experiment is None:
            self._experiment = self._client.create_experiment("teeter")
            return []

        self._experiment = experiment.experiment_id
        keys: list[RoundKey] = []
        page_token = None
        while True:
            runs = self._client.search_runs([self._experiment], page_token=page_token)
            for run in runs:
                cell = {name: run.data.tags.get(f"teeter.{name}") for name in RoundKey._fields}
                self._runs[round_key({**cell, "round": 0})] = run.info.run_id
                rounds = self._client.get_metric_history(run.info.run_id, "round")
                keys += [round_key({**cell, "round": metric.value}) for metric in rounds]
            page_token = runs.token
            if not page_token:
                return keys

    def write(self, row: Row) -> None:
        """Write every number of a round."""
        from mlflow.entities import Metric

        key = round_key(row)._replace(round=0)
        if key not in self._runs:
            cell = _cell(row)
            tags = {f"teeter.{name}": str(value or "") for name, value in cell.items()}
            name = f"{key.strategy}-{key.repetition}"
            run = self._client.create_run(self._experiment, run_name=name, tags=tags)
            self._runs[key] = run.info.run_id

        now = int(1000 * time.time())
        numbers = {**_numbers(row), "round": row["round"]}
        metrics = [Metric(name, value, now, row["labelled"]) for name, value in numbers.items()]
        self._client.log_batch(self._runs[key], metrics=metrics)

    def end(self) -> None:
        """Mark the runs as finished."""
        for run in self._runs.values():
            self._client.set_terminated(run)


class WandbTracker:
    """Write rounds for Weights & Biases: a run for each cell.

    Needs wandb. It logs in, works offline and finds its folder as its own variables say, such as
    ``WANDB_MODE=offline``.

    Args:
        project: the name of the project.
    """

    def __init__(self, project: str) -> None:
        self.project = project
        self._runs: dict[RoundKey, Any] = {}

    def begin(self) -> Collection[RoundKey]:
        """Return nothing: W&B says how far a run is when the run is resumed.

        Raises:
            MissingExtraError: if wandb is not installed.
        """
        _import_wandb()
        return []

    def write(self, row: Row) -> None:
        """Write every number of a round, unless the run has it."""
        key = round_key(row)._replace(round=0)
        if key not in self._runs:
            # The same id every time, so that a run that is started again goes on.
            text = repr(tuple(key))
            identity = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
            run = _import_wandb().init(
                project=self.project,
                id=identity,
                name=f"{key.strategy}-{key.repetition}",
                group=f"{key.setting}-{key.started}",
                config=_cell(row),
                resume="allow",
                reinit="create_new",
            )
            run.define_metric("*", step_metric="labelled")
            self._runs[key] = run

        run = self._runs[key]
        if row["round"] >= run.starting_step:
            run.log({**_numbers(row), "labelled": row["labelled"]}, step=row["round"])

    def end(self) -> None:
        """Finish the runs, which sends what has not been sent."""
        for run in self._runs.values():
            run.finish()
        self._runs.clear()


def _import_wandb() -> Any:
    try:
        import wandb
    except ImportError:
        raise MissingExtraError("Weights & Biases is not installed: pip install wandb.") from None
    return wandb


_BUILT_IN: dict[str, Callable[[str], Tracker]] = {
    "mlflow": MlflowTracker,
    "tensorboard": TensorBoardTracker,
    "wandb": WandbTracker,
}

plugins: Plugins[Callable[[str], Tracker]] = Plugins(
    "tracker",
    "teeter.trackers",
    is_valid=callable,
    expected="a class that takes the text after the colon",
)
"""Trackers of other packages, from the entry-point group ``teeter.trackers``."""


def make_tracker(text: str) -> Tracker:
    """Return the tracker that a text describes.

    Args:
        text: ``KIND:TARGET``. The kind is ``tensorboard``, whose target is a folder, ``mlflow``
            with the address of its store, ``wandb`` with a project, or the name of a plugin.

    Raises:
        InputError: if the text is not of that form.
        UnknownNameError: if there is no such kind.
        PluginError: if the plugin cannot be loaded.

    Example:
        >>> make_tracker("tensorboard:board").folder.name
        'board'
    """
    kind, _, target = text.partition(":")
    kinds = list(dict.fromkeys([*_BUILT_IN, *plugins.names()]))
    if not target:
        raise InputError(
            f"Cannot track to {text!r}: write KIND:TARGET, as in tensorboard:FOLDER. "
            f"Kinds: {', '.join(kinds)}."
        )

    if kind in _BUILT_IN:
        return _BUILT_IN[kind](target)
    require_known("tracker", kind, kinds)

    try:
        return plugins.get(kind)(target)
    except PluginError:
        raise
    except Exception as error:  # Another package's code may raise anything.
        raise PluginError(
            f"The tracker {kind!r} of {plugins.package(kind)} cannot be created: {error}."
        ) from error
