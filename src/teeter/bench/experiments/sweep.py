"""From an idea to a table: run strategies on data of your own, over batch sizes and seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from teeter.base.files import atomic_open
from teeter.base.registry import importable_name
from teeter.bench.datasets.loading import load_dataset
from teeter.bench.experiments.run_folder import Run
from teeter.bench.experiments.runner import Progress, run_setting
from teeter.bench.experiments.settings import OWN_MODEL, Setting
from teeter.bench.experiments.tracking import Tracker, make_tracker
from teeter.data.array_files import read_arrays
from teeter.data.table_files import make_frame
from teeter.errors import InputError
from teeter.models.observe import is_estimator
from teeter.selection.executors import make_executor
from teeter.strategies.api import strategy_options
from teeter.strategies.base import Strategy, registry
from teeter.training.metrics import Metric

__all__ = ["Sweep", "sweep"]

_ROUNDS = 10
"""Rounds of the largest batch, if the final number of labels is not given."""

_LINEAR_RATE = 0.01
"""The learning rate of a linear head. At 0.001, that of networks, it is not trained to the end."""

_LABELS_PER_CLASS = 2
"""Labels at the start for each class, if their number is not given."""


@dataclass(frozen=True)
class Sweep:
    """A run for each batch size. All of them have the same data, strategies and seeds."""

    runs: tuple[Run, ...]

    def to_frame(self, kind: str | None = None) -> Any:
        """Return all rounds as one data frame. See ``Run.to_frame``."""
        parts = [run.columns() for run in self.runs]
        names = dict.fromkeys(name for part in parts for name in part)
        columns: dict[str, list[Any]] = {name: [] for name in names}
        for run, part in zip(self.runs, parts, strict=True):
            for name, values in columns.items():
                values += part.get(name, [None] * len(run.rounds))
        return make_frame(columns, kind)


def sweep(
    data: str | Sequence[Any],
    *,
    strategies: Sequence[str | type[Strategy] | Strategy],
    batch: int | Sequence[int] = 20,
    seeds: int = 5,
    metrics: Sequence[str | Metric] = (),
    model: Any = "linear",
    options: Mapping[str, Mapping[str, Any]] | None = None,
    initial: int | None = None,
    final: int | None = None,
    out: str | Path | None = None,
    engine: str | None = None,
    workers: int | None = None,
    device: str | None = None,
    trackers: Sequence[str | Tracker] = (),
    on_step: Progress = lambda done, total: None,
    **values: Any,
) -> Sweep:
    """Compare strategies on data whose labels are known, over batch sizes and seeds.

    Every round is on disk before the next one begins. The same call continues a sweep that was
    interrupted, and adds strategies and seeds to one that is finished.

    Args:
        data: the name of a dataset or of a file of arrays, as ``load_dataset`` takes it; or arrays
            such as embeddings: (x, y), of which a fifth is tested on, or (x_train, y_train, x_test,
            y_test).
        strategies: names, classes or objects.
        batch: the number of labels added in each round, or several numbers to compare.
        seeds: the number of repetitions, each with its own initial labels.
        metrics: what to measure beside accuracy and loss, as for ``teeter.Learner.evaluate``.
        model: the name of a network; or a model of your own, as ``teeter.Learner`` takes it.
            Default: a linear head, trained with a learning rate of 0.01.
        options: options by strategy. An entry with a ``strategy`` is a variant under a new name.
        initial: the number of labels at the start. Default: 2 for each class.
        final: the number of labels at the end. Default: after 10 rounds of the largest batch.
        out: the folder of the sweep. Default: ``runs/`` and the name of the dataset, or ``sweep``.
        engine: ``local`` for processes of this machine, ``ray`` for a cluster. Default: none.
        workers: the number of workers of the engine. Default: one per core.
        device: where networks are trained. Default: a GPU if there is one.
        trackers: trackers, or texts such as ``wandb:PROJECT``.
        on_step: called with the number of finished rounds and of all rounds of a batch size.
        **values: other values of a ``Setting``, such as ``epochs=20`` or ``balanced=True``.

    Raises:
        InputError: if an argument is invalid, or the folder holds a sweep with different values.
        UnknownNameError: if there is no such strategy, metric, dataset or network.
        FileError: if the folder or the dataset cannot be read or written.

    Example:
        >>> from tempfile import mkdtemp
        >>> result = sweep(
        ...     "digits", strategies=["random", "margin"], seeds=2, final=60, out=mkdtemp()
        ... )
        >>> [run.setting.query for run in result.runs], len(result.runs[0].rounds)
        ([20], 12)
    """
    all_options = {name: dict(entry) for name, entry in (options or {}).items()}
    names = [_strategy_name(strategy, all_options) for strategy in strategies]
    metric_names = []
    for metric in metrics:
        if not isinstance(metric, str):
            metric = importable_name("metric", metric)
        metric_names.append(metric)
    if isinstance(batch, int):
        batch = [batch]
    batches = list(batch)
    if not batches:
        raise InputError("There is no batch size to run: name one or more.")

    name = "sweep"
    if isinstance(data, str):
        name = Path(data).stem
    folder = Path("runs") / name
    if out is not None:
        folder = Path(out)
    data_folder = None
    dataset = data
    if not isinstance(data, str):
        _write_data(folder / _DATA, data)
        data_folder = folder
        dataset = _DATA

    if initial is None:
        class_count = len(load_dataset(str(dataset), folder=data_folder).classes)
        initial = _LABELS_PER_CLASS * class_count
    if final is None:
        final = initial + _ROUNDS * max(batches)

    network = model
    if not isinstance(model, str):
        network = OWN_MODEL + _describe_model(model)
    executor = None
    if engine is not None:
        executor = make_executor(engine, workers)
    all_trackers = []
    for tracker in trackers:
        if isinstance(tracker, str):
            tracker = make_tracker(tracker)
        all_trackers.append(tracker)
    # With an engine, repetitions are trained apart, so that workers can share them.
    setting_values: dict[str, Any] = {"pool": None, "separate": engine is not None}
    if model == "linear":
        setting_values["learning_rate"] = _LINEAR_RATE
    setting_values |= values

    runs = []
    for query in batches:
        setting = Setting(
            name=name,
            dataset=str(dataset),
            network=network,
            initial=initial,
            query=query,
            final=final,
            strategies=tuple(names),
            repetitions=seeds,
            options=all_options,
            metrics=tuple(metric_names),
            **setting_values,
        )
        run = run_setting(
            setting,
            folder / f"batch-{query}",
            device=device,
            folder=data_folder,
            model=None if isinstance(model, str) else model,
            executor=executor,
            trackers=all_trackers,
            on_step=on_step,
        )
        runs.append(run)
    return Sweep(tuple(runs))


_DATA = "data.npz"
"""The file of arrays in the folder of a sweep."""


def _strategy_name(
    strategy: str | type[Strategy] | Strategy, options: dict[str, dict[str, Any]]
) -> str:
    """Return the name of a strategy in the sweep, and note its class and options under it."""
    if isinstance(strategy, str):
        return strategy

    cls = strategy if isinstance(strategy, type) else type(strategy)
    name = registry.name_of(cls)
    entry: dict[str, Any] = {}
    if name is None:
        name = cls.__name__
        entry["strategy"] = importable_name("strategy", cls)
    if isinstance(strategy, Strategy):
        entry |= strategy_options(strategy)
    if entry and options.setdefault(name, entry) != entry:
        raise InputError(f"There are two strategies called {name}: give one a name in options.")
    return name


def _describe_model(model: Any) -> str:
    """Return what a run folder says about a model: always the same for the same model."""
    if is_estimator(model):
        return " ".join(repr(model).split())
    return importable_name("model", model)


def _write_data(path: Path, data: Sequence[Any]) -> None:
    """Write the arrays of a sweep, for workers and for calls that continue it."""
    names: tuple[str, ...] = ("x", "y")
    if len(data) == 4:
        names = ("x_train", "y_train", "x_test", "y_test")
    if len(data) != len(names):
        raise InputError(
            f"There are {len(data)} arrays: give (x, y), or (x_train, y_train, x_test, y_test)."
        )

    arrays: dict[str, Any] = {}
    for name, given in zip(names, data, strict=True):
        array = np.asarray(given)
        if array.dtype == object:  # texts of a data frame
            array = array.astype(str)
        arrays[name] = array

    # A file without a run is what a call with a mistake has left behind.
    if any(path.parent.glob("*/run.json")) and path.exists():
        written = read_arrays(path)
        is_same = written.keys() == arrays.keys()
        for name in written.keys() & arrays.keys():
            is_same = is_same and np.array_equal(written[name], arrays[name])
        if not is_same:
            raise InputError(f"{path.parent} holds a sweep of other data: choose another folder.")
        return

    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_open(path) as stream:
        np.savez(stream, **arrays)
