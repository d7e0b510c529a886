"""The runner: every strategy and repetition of a setting, round by round, recorded as it goes.

Killed at any moment and started again, it goes on where it was. What a cell (a strategy and a repetition) finds does
not depend on when it was stopped: the networks of a group train together, and who is in a group is written down at the
first start.
"""

from __future__ import annotations

import logging
import shutil
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from teeter.arrays import choose_device, describe_device
from teeter.datasets.loading import load_dataset
from teeter.datasets.splits import LabelledRows, make_long_tailed, take
from teeter.distributed.executors import Executor, Task, run_plan
from teeter.errors import InputError, TeeterError
from teeter.experiments.peak_memory import peak_memory
from teeter.experiments.play import initial_rows
from teeter.experiments.results import PHASES, Cell, Round, Run, read_run, setting_as_json
from teeter.experiments.run_folder import RunFolder, run_lock
from teeter.experiments.settings import Setting
from teeter.experiments.tracking import Tracker, TrackerSet
from teeter.files import atomic_write, round_trip
from teeter.learner import Learner, fit_learners
from teeter.models.network_registry import build_network_like
from teeter.seeds import stream
from teeter.version import __version__, commit

__all__ = ["Progress", "run_group", "run_setting"]

logger = logging.getLogger(__name__)

Rows = npt.NDArray[np.int64]
Progress = Callable[[int, int], None]
"""Is told how many rounds of cells are done, of how many."""

_STACKED = ("linear", "mlp", "s-cnn", "k-cnn")
"""Networks small enough to be trained together; cells of others go one after the other."""

_ON_DEVICE = 16 << 30
"""Bytes up to which a dataset is moved to a GPU as a whole."""


def run_setting(
    setting: Setting,
    out: Path,
    *,
    strategies: Sequence[str] | None = None,
    repetitions: int | None = None,
    rounds: int | None = None,
    device: torch.device | str | None = None,
    folder: Path | None = None,
    executor: Executor | None = None,
    trackers: Sequence[Tracker] = (),
    on_step: Progress = lambda done, whole: None,
) -> Run:
    """Run a setting into the folder ``out``, or go on with what is there; return all that is known in the end.

    Args:
        setting: what to run.
        out: where the rounds are recorded.
        strategies: names; the setting's own if left out. Those that are not there yet are added to a run.
        repetitions: how many; the setting's own if left out.
        rounds: stop after so many rounds, instead of at the setting's final labels.
        device: where networks live; a GPU if there is one.
        folder: where datasets are looked for.
        executor: who runs the groups of cells that train together, each by itself; this process if left out.
        trackers: are told of every round when it is done, and at the start of those that were done before; none twice.
        on_step: is told of progress.
    """
    wanted = _Wanted(
        setting,
        tuple(dict.fromkeys(setting.strategies if strategies is None else strategies)),
        setting.repetitions if repetitions is None else repetitions,
        setting.rounds if rounds is None else rounds,
    )
    wanted.require_possible()
    where = choose_device(device)
    oracle = _Oracle(setting, folder, where)
    oracle.require_enough(wanted.rounds)
    with run_lock(out):
        records = RunFolder(out)
        plans = _plans(records, wanted, where)
        with _tracking(trackers, setting, records) as catch_up:
            if executor is not None:
                places = {
                    "out": str(out.resolve()),
                    "device": None if device is None else str(device),
                }
                places["folder"] = None if folder is None else str(folder.resolve())
                _run_elsewhere(executor, plans, wanted, places, _then(catch_up, on_step))
            else:
                counter = _Counter(
                    on_step, sum(len(plan.alive) for plan in plans) * (wanted.rounds + 1)
                )
                for plan in plans:
                    _Group(plan, wanted, oracle, records, counter).run()
    return read_run(out)


def _then(catch_up: Callable[[], None], on_step: Progress) -> Progress:
    def step(done: int, whole: int) -> None:
        catch_up()
        on_step(done, whole)

    return step


@contextmanager
def _tracking(
    trackers: Sequence[Tracker], setting: Setting, records: RunFolder
) -> Iterator[Callable[[], None]]:
    """Have trackers told of the rounds of a run, and yield what tells them of those done before or by others."""
    tracking = TrackerSet(trackers, setting, str((records.facts() or {}).get("started", "")))

    def catch_up() -> None:
        if tracking.known:
            tracking.catch_up(read_run(records.folder).rounds)

    try:
        records.tell = tracking.tell
        catch_up()
        yield catch_up
        catch_up()
    finally:
        tracking.end()


def _run_elsewhere(
    executor: Executor,
    plans: list[_Plan],
    wanted: _Wanted,
    places: dict[str, str | None],
    on_step: Progress,
) -> None:
    """Have each group run by a worker, which records its cells; a group is done when its file is there."""
    done = Path(str(places["out"])) / "done"
    shutil.rmtree(
        done, ignore_errors=True
    )  # of a run that was stopped: what is done is for the records to say
    done.mkdir()
    arguments = {
        "setting": wanted.setting,
        "strategies": wanted.strategies,
        "repetitions": wanted.repetitions,
        "rounds": wanted.rounds,
        **places,
    }
    tasks = [
        Task(
            "teeter.experiments.runner:run_group",
            {**arguments, "group": plan.group},
            str(done / f"{plan.group}"),
        )
        for plan in plans
    ]
    rounds = sum(len(plan.alive) for plan in plans) * (wanted.rounds + 1)
    run_plan(
        executor, tasks, lambda finished, whole: on_step(rounds * finished // max(1, whole), rounds)
    )
    for rest in (done, done.with_name("held")):
        shutil.rmtree(rest, ignore_errors=True)


def run_group(
    output: Path,
    *,
    setting: Setting,
    strategies: tuple[str, ...],
    repetitions: int,
    rounds: int,
    out: str,
    device: str | None,
    folder: str | None,
    group: int,
) -> None:
    """Run one group of a run that is written down in ``out``, as a worker does."""
    place, where = Path(out), choose_device(device)
    with run_lock(
        place / "held" / str(group), waiting=True
    ):  # a worker whose driver is gone may still be at it
        records = RunFolder(place)
        facts = records.facts()
        if facts is None:
            raise InputError(f"There is no run in {out}.")
        cells: list[Cell] = [(name, repetition) for name, repetition in facts["groups"][group]]
        plan = _Plan(group, cells, records.failed_in(group, cells))
        wanted = _Wanted(setting, strategies, repetitions, rounds)
        oracle = _Oracle(setting, None if folder is None else Path(folder), where)
        _Group(plan, wanted, oracle, records, _Counter(lambda done, whole: None, 0)).run()
    atomic_write(output, b"done\n")


@dataclass(frozen=True)
class _Wanted:
    setting: Setting
    strategies: tuple[str, ...]
    repetitions: int
    rounds: int

    @property
    def cells(self) -> list[Cell]:
        return [(name, r) for name in self.strategies for r in range(self.repetitions)]

    def require_possible(self) -> None:
        """Refuse what could not be run, or would be nothing."""
        for name in dict.fromkeys([*self.strategies, *self.setting.options]):
            self.setting.strategy(name)
        if not self.strategies:
            raise InputError("There is no strategy to run: name one or more.")
        if self.repetitions < 1:
            raise InputError(f"Cannot run {self.repetitions} repetitions: ask for 1 or more.")
        if not 0 <= self.rounds <= self.setting.rounds:
            raise InputError(
                f"Cannot run {self.rounds} rounds: {self.setting.name} has {self.setting.rounds}."
            )


@dataclass(frozen=True)
class _Plan:
    """A group as it was written down: its number, its cells, and the rounds at which some of them failed in it."""

    group: int
    cells: list[Cell]
    failed: dict[Cell, int]

    @property
    def alive(self) -> list[Cell]:
        return [cell for cell in self.cells if cell not in self.failed]


class _Counter:
    def __init__(self, tell: Progress, whole: int) -> None:
        self.tell, self.whole, self.done = tell, whole, 0

    def add(self, rounds: int) -> None:
        self.done += rounds
        self.tell(self.done, self.whole)


def _plans(records: RunFolder, wanted: _Wanted, device: torch.device) -> list[_Plan]:
    """Return the groups to run and write them down: new cells are one of their own, failed ones to try again too."""
    facts = records.facts()
    setting = setting_as_json(replace(wanted.setting, strategies=(), repetitions=1))
    known: list[list[Cell]] = []
    if facts is not None:
        _require_same(facts["setting"], setting, records.folder)
        known = [[(name, r) for name, r in group] for group in facts["groups"]]
    plans = [_Plan(k, cells, records.failed_in(k, cells)) for k, cells in enumerate(known)]
    settled = {cell for plan in plans for cell in plan.alive}
    settled |= {
        cell for cells in known for cell in cells if len(records.rounds(cell)) > wanted.rounds
    }
    for cells in _new_groups(
        [cell for cell in wanted.cells if cell not in settled], known, wanted.setting
    ):
        plans.append(_Plan(len(plans), cells, {}))
    before = facts or {"strategies": [], "repetitions": 0, "rounds": 0, **_facts(device)}
    records.write_facts(
        {
            "setting": setting,
            "strategies": list(dict.fromkeys([*before["strategies"], *wanted.strategies])),
            "repetitions": max(before["repetitions"], wanted.repetitions),
            "rounds": max(before["rounds"], wanted.rounds),
            "groups": [plan.cells for plan in plans],
            **{name: before[name] for name in _facts(device) if name in before},
        }
    )
    return [plan for plan in plans if set(plan.alive) & set(wanted.cells)]


def _new_groups(cells: list[Cell], known: list[list[Cell]], setting: Setting) -> list[list[Cell]]:
    if setting.network not in _STACKED:
        return [[cell] for cell in cells]
    seen = {cell for group in known for cell in group}
    again, new = (
        [cell for cell in cells if cell in seen],
        [cell for cell in cells if cell not in seen],
    )
    found = [group for group in (new, again) if group]
    if not setting.separate:
        return found
    return [
        [cell for cell in group if cell[1] == repetition]
        for group in found
        for repetition in sorted({cell[1] for cell in group})
    ]


def _require_same(found: dict[str, Any], now: Mapping[str, Any], folder: Path) -> None:
    before = setting_as_json(
        Setting(**found)
    )  # a run of an older teeter has the values that came later as they default
    different = [
        name for name, value in now.items() if before[name] != value and name not in _NOT_COMPARED
    ]
    if different:
        told = ", ".join(
            f"{name} was {before[name]!r} and is now {now[name]!r}" for name in different[:3]
        )
        raise InputError(f"{folder} holds a run with other values ({told}): choose another folder.")


_NOT_COMPARED = ("strategies", "repetitions", "quick", "paper")


def _facts(device: torch.device) -> dict[str, Any]:
    return {
        "teeter": __version__,
        "commit": commit(),
        "torch": str(torch.__version__),
        "hardware": describe_device(device),
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


class _Oracle:
    """The rows of an experiment, the same for all its cells, and the labels, which learners get only when they ask."""

    def __init__(self, setting: Setting, folder: Path | None, device: torch.device) -> None:
        self.setting, self.device = setting, device
        split = load_dataset(
            setting.dataset,
            folder=folder,
            validation=setting.validation,
            seed=setting.seed,
            embeddings=setting.embeddings,
        )
        train = split.train
        if setting.imbalance > 1:
            train = make_long_tailed(train, imbalance=setting.imbalance, seed=setting.seed)
        self.train = _moved(_some(train, setting.train, stream(setting.seed, "train")), device)
        self.test = _moved(_some(split.test, setting.test, stream(0, "test")), device)
        self.validation = None if split.validation is None else _moved(split.validation, device)
        self.classes = len(split.classes)

    def require_enough(self, rounds: int) -> None:
        """Refuse a run whose network cannot take the rows, or that would come to an end for want of them."""
        build_network_like(self.setting.network, self.train.inputs, self.classes, 0)
        needed = self.setting.initial + rounds * self.setting.query
        if needed > len(self.train):
            raise InputError(
                f"{self.setting.name} needs {needed} training rows, and there are {len(self.train)}: lower final."
            )

    def learner(self, cell: Cell) -> Learner:
        """Return a cell's learner with its initial labels; those of one repetition begin alike."""
        setting, seed = (
            self.setting,
            stream(self.setting.seed, "repetition", cell[1]).initial_seed(),
        )
        validation = (
            None if self.validation is None else (self.validation.inputs, self.validation.labels)
        )
        learner = Learner(
            lambda seed: build_network_like(setting.network, self.train.inputs, self.classes, seed),
            self.train.inputs,
            setting.strategy(cell[0]),
            classes=self.classes,
            seed=seed,
            training=setting.training,
            validation=validation,
            pool_size=setting.pool,
            device=self.device,
        )
        balanced = self.train.labels if setting.balanced else None
        rows = initial_rows(len(self.train), setting.initial, seed, balanced=balanced)
        learner.tell(rows, self.train.labels[rows])
        return learner


def _some(part: LabelledRows, count: int | None, generator: torch.Generator) -> LabelledRows:
    if count is None or count >= len(part):
        return part
    return take(part, np.sort(torch.randperm(len(part), generator=generator).numpy()[:count]))


def _moved(part: LabelledRows, device: torch.device) -> LabelledRows:
    inputs = part.inputs
    fits = (
        isinstance(inputs, torch.Tensor)
        and inputs.is_floating_point()
        and inputs.nbytes <= _ON_DEVICE
    )
    return replace(part, inputs=inputs.to(device)) if fits else part


class _Group:
    """Cells that go from round to round together, so that their networks train together."""

    def __init__(
        self, plan: _Plan, wanted: _Wanted, oracle: _Oracle, records: RunFolder, counter: _Counter
    ) -> None:
        self.plan, self.wanted, self.oracle, self.records, self.counter = (
            plan,
            wanted,
            oracle,
            records,
            counter,
        )
        self.done = {cell: records.rounds(cell)[: plan.failed.get(cell)] for cell in plan.cells}
        counter.add(sum(min(len(self.done[cell]), wanted.rounds + 1) for cell in plan.alive))
        self.first = min(len(self.done[cell]) for cell in plan.alive)
        # A cell that failed trains once more in the rounds that it trained in, so that the others find the same.
        company = [
            cell for cell in plan.cells if plan.failed.get(cell, wanted.rounds) >= self.first
        ]
        self.live = (
            {cell: self._resumed(cell) for cell in company} if self.first <= wanted.rounds else {}
        )

    def _resumed(self, cell: Cell) -> Learner:
        """Return a cell's learner as it was before the first round that some cell of the group still has to do."""
        learner = self.oracle.learner(cell)
        for one in self.done[cell][: self.first]:
            learner.tell(one.picks, self.oracle.train.labels[list(one.picks)])
        learner.resume(self.first, self.records.memory(cell, self.first - 1))
        return learner

    def run(self) -> None:
        """Do all rounds that are left."""
        for number in range(self.first, self.wanted.rounds + 1):
            if not self.live:
                return
            cells = list(self.live)
            errors = fit_learners([self.live[cell] for cell in cells])
            for k, cell in enumerate(cells):
                if self.plan.failed.get(cell) == number:
                    del self.live[cell]
                elif k in errors:
                    self._fail(cell, number, errors[k])
                else:
                    self._finish(cell, number)

    def _finish(self, cell: Cell, number: int) -> None:
        """Evaluate, ask and record, if that is not done yet; then tell the labels asked for."""
        learner, labels = self.live[cell], self.oracle.train.labels
        if number < len(self.done[cell]):
            picks = self.done[cell][number].picks
            learner.resume(learner.rounds, self.records.memory(cell, number))
        else:
            try:
                one = self._played(cell, number)
                # What is remembered is what would be read back, so that a run that was stopped goes on alike.
                learner.resume(learner.rounds, round_trip(learner.pending_memory))
            except Exception as error:  # whatever it is, other cells go on
                self._fail(cell, number, error)
                return
            self.records.append(one, learner.pending_memory)
            self.counter.add(1)
            picks = one.picks
        learner.tell(picks, labels[list(picks)])

    def _played(self, cell: Cell, number: int) -> Round:
        learner, setting = self.live[cell], self.wanted.setting
        with peak_memory(self.oracle.device) as peak:
            judged = learner.evaluate(self.oracle.test.inputs, self.oracle.test.labels)
            labelled = len(learner.pool.labelled)
            picks = learner.ask(setting.query).tolist() if number < setting.rounds else []
        return Round(
            strategy=cell[0],
            repetition=cell[1],
            number=number,
            labelled=labelled,
            accuracy=judged.accuracy,
            loss=judged.loss,
            picks=tuple(picks),
            seconds={kind: round(learner.seconds.get(kind, 0.0), 6) for kind in PHASES},
            peak_memory=peak.bytes,
            validation=learner.validation_accuracy,
            vote=judged.vote,
        )

    def _fail(self, cell: Cell, number: int, error: Exception) -> None:
        sentence = (
            str(error) if isinstance(error, TeeterError) else f"{type(error).__name__}: {error}"
        )
        logger.warning("%s, repetition %d, failed in round %d: %s", *cell, number, sentence)
        self.records.fail(
            cell, number, self.plan.group, sentence, "".join(traceback.format_exception(error))
        )
        self.counter.add(self.wanted.rounds + 1 - number)
        del self.live[cell]
