"""Run every strategy and repetition of a setting, round by round, and record each round.

A cell is a strategy in a repetition. Cells are planned in groups, whose networks are trained
together because that is faster. The results of a cell depend slightly on its group (the order of
floating-point sums), so groups are written into the run folder before anything is trained, and they
never change. A run may therefore be killed at any moment: the same call continues it, and its
results are those of a run that was never interrupted.

``run_setting`` plans the groups. Each group then fits its learners, evaluates and asks each of
them, records the round, and tells the labels, in this process or in workers.
"""

from __future__ import annotations

import json
import logging
import shutil
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from teeter.base.arrays import choose_device, describe_device
from teeter.base.files import atomic_write, round_trip
from teeter.base.version import __version__, commit
from teeter.bench.experiments.experiment import Experiment
from teeter.bench.experiments.run_folder import (
    Cell,
    Failure,
    Manifest,
    Round,
    Run,
    RunFolder,
    run_lock,
)
from teeter.bench.experiments.settings import Setting
from teeter.bench.experiments.tracking import Tracker, TrackerSet
from teeter.errors import InputError, TeeterError
from teeter.learner.learner import Learner
from teeter.learner.rounds import fit_learners, resume
from teeter.selection.executors import Executor, Task, run_plan

__all__ = [
    "Progress",
    "run_group",
    "run_setting",
]

logger = logging.getLogger(__name__)

Progress = Callable[[int, int], None]
"""Called with the number of finished rounds, over all cells, and the number of all rounds."""

_BATCHED_NETWORKS = ("linear", "mlp", "s-cnn", "k-cnn")
"""Networks small enough to be trained together. A cell with another network is its own group."""

_NOT_COMPARED = ("strategies", "repetitions", "quick", "paper")
"""Values of a setting that may change while a run continues: they do not change its results."""


def run_setting(
    setting: Setting,
    out: str | Path,
    *,
    strategies: Sequence[str] | None = None,
    repetitions: int | None = None,
    rounds: int | None = None,
    device: torch.device | str | None = None,
    folder: str | Path | None = None,
    model: Any = None,
    executor: Executor | None = None,
    trackers: Sequence[Tracker] = (),
    on_step: Progress = lambda done, total: None,
) -> Run:
    """Run the experiment of a setting and record it in a folder, or continue that run.

    Args:
        setting: what to run.
        out: the run folder.
        strategies: names of strategies; those that a run does not have yet are added to it.
            Default: those of the setting.
        repetitions: the number of repetitions. Default: that of the setting.
        rounds: the number of the last round. Default: that of the setting's final labels.
        device: where networks are trained. Default: a GPU if there is one.
        folder: where datasets are looked for. Default: as ``teeter.bench.datasets`` does.
        model: a model of your own, as ``teeter.Learner`` takes it, if the setting has one.
        executor: runs groups of cells in workers. Default: all run in this process.
        trackers: get every round once, and first those that were recorded before.
        on_step: called with the number of finished rounds and of all rounds.

    Returns:
        all that the folder holds at the end. Cells that raised an error are in its ``failures``;
        calling ``run_setting`` again retries them.

    Raises:
        InputError: if the setting cannot be run, the folder holds a run with different values, or
            another process is running it.
        UnknownNameError: if there is no such strategy, dataset or device.
        FileError: if the folder or a dataset cannot be read or written.
    """
    if strategies is None:
        strategies = setting.strategies
    if repetitions is None:
        repetitions = setting.repetitions
    if rounds is None:
        rounds = setting.rounds

    out = Path(out)
    if folder is not None:
        folder = Path(folder)

    request = Manifest(
        setting=setting,
        strategies=tuple(dict.fromkeys(strategies)),  # a name given twice is run once
        repetitions=repetitions,
        rounds=rounds,
    )

    # All checks come before the folder is created: a mistake leaves nothing behind.
    _require_valid(request)
    torch_device = choose_device(device)
    experiment = Experiment(setting, folder, torch_device, model)
    experiment.require_runnable(request.rounds)

    with run_lock(out):
        run_folder = RunFolder(out)
        earlier = run_folder.read_manifest()
        plans = _plan_groups(run_folder, earlier, request)
        manifest = _updated_manifest(earlier, request, plans, torch_device)
        run_folder.write_manifest(manifest)

        # Earlier groups are left alone unless the request wants more rounds of their cells.
        requested = set(request.cells)
        open_plans = [plan for plan in plans if not requested.isdisjoint(plan.live_cells)]

        # Trackers know a run by its setting and its first start.
        started = str(manifest.facts.get("started", ""))

        with TrackerSet(trackers, setting, started) as tracker_set:
            _catch_up(tracker_set, run_folder)

            if executor is None:
                _run_here(
                    open_plans,
                    request,
                    experiment,
                    run_folder,
                    trackers=tracker_set,
                    on_step=on_step,
                )
            else:
                arguments = {
                    "request": request,
                    "out": str(out.resolve()),
                    "device": None,
                    "folder": None,
                    "model": model,
                }
                if device is not None:
                    arguments["device"] = str(device)
                if folder is not None:
                    arguments["folder"] = str(folder.resolve())
                _run_in_workers(
                    executor,
                    open_plans,
                    request,
                    run_folder,
                    arguments=arguments,
                    trackers=tracker_set,
                    on_step=on_step,
                )

            _catch_up(tracker_set, run_folder)

    return run_folder.read()


def run_group(
    output: Path,
    *,
    request: Manifest,
    out: str,
    device: str | None,
    folder: str | None,
    model: Any,
    group: int,
) -> None:
    """Run one group of a planned run, as the task of a worker.

    Args:
        output: the file that marks the task as done.
        request: what to run.
        out: the run folder, whose manifest names the group.
        device: where networks are trained.
        folder: where datasets are looked for.
        model: a model of your own, if the setting has one.
        group: the number of the group.
    """
    # A worker of a driver that was killed may still be running this group: wait for it.
    lock_folder = _group_locks(Path(out)) / str(group)
    with run_lock(lock_folder, wait=True):
        run_folder = RunFolder(Path(out))
        manifest = run_folder.read_manifest()
        if manifest is None:
            raise InputError(f"There is no run in {out}.")

        data_folder = None
        if folder is not None:
            data_folder = Path(folder)
        experiment = Experiment(request.setting, data_folder, choose_device(device), model)
        plan = _read_plan(run_folder, group, manifest.groups[group])

        # The driver reads the recorded rounds from the folder.
        for _ in _Group(plan, request, experiment, run_folder).run():
            pass

    atomic_write(output, b"done\n")


def _require_valid(request: Manifest) -> None:
    """Check that a run can be what it is asked to be."""
    # Creating a strategy checks its name and its options.
    for name in dict.fromkeys([*request.strategies, *request.setting.options]):
        request.setting.strategy(name)

    if not request.strategies:
        raise InputError("There is no strategy to run: name one or more.")
    if request.repetitions < 1:
        raise InputError(f"Cannot run {request.repetitions} repetitions: ask for 1 or more.")
    if not 0 <= request.rounds <= request.setting.rounds:
        raise InputError(
            f"Cannot run {request.rounds} rounds: {request.setting.name} has "
            f"{request.setting.rounds}."
        )


@dataclass(frozen=True)
class _GroupPlan:
    """A group of cells whose networks are trained together, and what is recorded of it."""

    number: int
    cells: tuple[Cell, ...]
    failed: dict[Cell, int]
    """The round at which a cell failed in this group."""
    recorded: dict[Cell, list[Round]]
    """The rounds of each cell that are on disk, before its failure."""

    @property
    def live_cells(self) -> list[Cell]:
        """The cells that have not failed in this group."""
        return [cell for cell in self.cells if cell not in self.failed]


def _plan_groups(
    run_folder: RunFolder, earlier: Manifest | None, request: Manifest
) -> list[_GroupPlan]:
    """Return all groups of the run: those of earlier calls, then new ones for other cells."""
    plans: list[_GroupPlan] = []
    if earlier is not None:
        before = _as_json(earlier.setting)
        differences = []
        for name, value in _as_json(request.setting).items():
            if name not in _NOT_COMPARED and before[name] != value:
                differences.append(f"{name} was {before[name]!r} and is now {value!r}")

        if differences:
            raise InputError(
                f"{run_folder.path} holds a run with different values "
                f"({', '.join(differences[:3])}): choose another folder."
            )
        for number, cells in enumerate(earlier.groups):
            plans.append(_read_plan(run_folder, number, cells))

    # A cell needs a new group if it is new, or if it failed in its group and is not done.
    planned: set[Cell] = set()
    assigned: set[Cell] = set()
    for plan in plans:
        planned.update(plan.cells)
        assigned.update(plan.live_cells)
        for cell in plan.failed:
            is_done = len(plan.recorded[cell]) > request.rounds
            if is_done:
                assigned.add(cell)

    unassigned = [cell for cell in request.cells if cell not in assigned]

    for cells in _new_groups(unassigned, planned, request.setting):
        plan = _GroupPlan(
            number=len(plans),
            cells=cells,
            failed={},
            recorded={cell: run_folder.rounds(cell) for cell in cells},
        )
        plans.append(plan)
    return plans


def _read_plan(run_folder: RunFolder, number: int, cells: tuple[Cell, ...]) -> _GroupPlan:
    """Return a group that an earlier call has planned."""
    failed = run_folder.failed_rounds(number, cells)

    # Rounds after the failure were recorded by a later group, which retried the cell.
    recorded = {}
    for cell in cells:
        failed_round = failed.get(cell)
        recorded[cell] = run_folder.rounds(cell)[:failed_round]  # all, if it is None

    return _GroupPlan(number, cells, failed, recorded)


def _new_groups(cells: list[Cell], planned: set[Cell], setting: Setting) -> list[tuple[Cell, ...]]:
    """Divide cells without a group: cells to retry are apart from those that are new."""
    if setting.network not in _BATCHED_NETWORKS:
        return [(cell,) for cell in cells]

    # In one group with new cells, cells to retry would be trained again from round 0.
    new_cells = tuple(cell for cell in cells if cell not in planned)
    retried_cells = tuple(cell for cell in cells if cell in planned)
    groups = [group for group in (new_cells, retried_cells) if group]
    if not setting.separate:
        return groups

    separate_groups = []
    for group in groups:
        for repetition in sorted({cell.repetition for cell in group}):
            members = tuple(cell for cell in group if cell.repetition == repetition)
            separate_groups.append(members)
    return separate_groups


def _as_json(setting: Setting) -> dict[str, Any]:
    """Return the values of a setting as they come back from a file: tuples as lists."""
    text = json.dumps(asdict(setting))
    values: dict[str, Any] = json.loads(text)
    return values


def _updated_manifest(
    earlier: Manifest | None,
    request: Manifest,
    plans: list[_GroupPlan],
    device: torch.device,
) -> Manifest:
    """Return the manifest of the run with the strategies, repetitions and groups of a request."""
    strategies = request.strategies
    repetitions = request.repetitions
    rounds = request.rounds
    facts: dict[str, Any] = {
        "teeter": __version__,
        "commit": commit(),
        "torch": str(torch.__version__),
        "hardware": describe_device(device),
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }

    if earlier is not None:
        strategies = tuple(dict.fromkeys([*earlier.strategies, *request.strategies]))
        repetitions = max(earlier.repetitions, request.repetitions)
        rounds = max(earlier.rounds, request.rounds)
        # Those of the first start.
        facts = {name: earlier.facts[name] for name in facts if name in earlier.facts}

    return Manifest(
        setting=replace(request.setting, strategies=(), repetitions=1),
        strategies=strategies,
        repetitions=repetitions,
        rounds=rounds,
        groups=tuple(plan.cells for plan in plans),
        facts=facts,
    )


def _run_here(
    plans: list[_GroupPlan],
    request: Manifest,
    experiment: Experiment,
    run_folder: RunFolder,
    *,
    trackers: TrackerSet,
    on_step: Progress,
) -> None:
    """Run groups one after the other in this process."""
    rounds_per_cell = request.rounds + 1
    total = _count_rounds(plans, request)
    done = 0

    for plan in plans:
        for cell in plan.live_cells:
            done += min(len(plan.recorded[cell]), rounds_per_cell)
        on_step(done, total)

        for result in _Group(plan, request, experiment, run_folder).run():
            if isinstance(result, Round):
                trackers.write(result)
                done += 1
            else:
                # The remaining rounds of the cell will not be run.
                done += rounds_per_cell - result.round
            on_step(done, total)


def _run_in_workers(
    executor: Executor,
    plans: list[_GroupPlan],
    request: Manifest,
    run_folder: RunFolder,
    *,
    arguments: dict[str, Any],
    trackers: TrackerSet,
    on_step: Progress,
) -> None:
    """Run each group as the task of a worker, which records its rounds in the run folder."""
    # Files of a run that was stopped: what is done is for the recorded rounds to say.
    done_folder = run_folder.path.resolve() / "done"
    shutil.rmtree(done_folder, ignore_errors=True)
    done_folder.mkdir()

    tasks = []
    for plan in plans:
        task_arguments = {**arguments, "group": plan.number}
        output = str(done_folder / str(plan.number))
        tasks.append(Task("teeter.bench.experiments.runner:run_group", task_arguments, output))

    total = _count_rounds(plans, request)

    def on_group_done(done_groups: int, group_count: int) -> None:
        _catch_up(trackers, run_folder)

        # Workers report groups, not rounds: take a share of all rounds.
        done_rounds = total * done_groups // max(1, group_count)
        on_step(done_rounds, total)

    run_plan(executor, tasks, on_group_done)

    # Only needed while workers run.
    shutil.rmtree(done_folder, ignore_errors=True)
    shutil.rmtree(_group_locks(run_folder.path), ignore_errors=True)


def _group_locks(run_path: Path) -> Path:
    """Return the folder in which workers lock the groups that they run."""
    return run_path / "held"


def _count_rounds(plans: list[_GroupPlan], request: Manifest) -> int:
    n_cells = sum(len(plan.live_cells) for plan in plans)
    return n_cells * (request.rounds + 1)  # round 0 has the initial labels


def _catch_up(trackers: TrackerSet, run_folder: RunFolder) -> None:
    """Send trackers what earlier calls or workers have recorded."""
    if trackers.is_active:
        rounds = run_folder.read().rounds
        for result in sorted(rounds, key=lambda result: result.number):
            trackers.write(result)


class _Group:
    """Runs the rounds of a group that are not recorded yet."""

    def __init__(
        self,
        plan: _GroupPlan,
        request: Manifest,
        experiment: Experiment,
        run_folder: RunFolder,
    ) -> None:
        self.plan = plan
        self.request = request
        self.experiment = experiment
        self.run_folder = run_folder
        self.learners: dict[Cell, Learner] = {}

    def run(self) -> Iterator[Round | Failure]:
        """Run all remaining rounds, and yield each new round or failure once it is recorded."""
        plan = self.plan
        last_round = self.request.rounds

        # Where the cell that is furthest behind continues: networks are trained together.
        recorded_rounds = [len(plan.recorded[cell]) for cell in plan.live_cells]
        first_round = min(recorded_rounds)
        if first_round > last_round:
            return
        if self.request.setting.warm_start:
            first_round = 0  # weights are not recorded: train them again

        # A failed cell is trained again in the rounds that it took part in, because the results of
        # the others depend on the group being the same.
        for cell in plan.cells:
            if plan.failed.get(cell, last_round) >= first_round:
                self.learners[cell] = self._resume_learner(cell, first_round)

        for number in range(first_round, last_round + 1):
            cells = list(self.learners)
            if not cells:
                return
            errors = fit_learners([self.learners[cell] for cell in cells])

            # Four cases: it failed here before, fails now, is ahead of the others, or runs.
            for position, cell in enumerate(cells):
                if plan.failed.get(cell) == number:
                    del self.learners[cell]
                elif position in errors:
                    yield self._record_failure(cell, number, errors[position])
                elif number < len(plan.recorded[cell]):
                    # Its picks are those that are recorded.
                    learner = self.learners[cell]
                    resume(learner, learner.rounds, self.run_folder.memory(cell, number))
                    self.experiment.tell_labels(learner, plan.recorded[cell][number])
                else:
                    yield self._run_round(cell, number)

    def _resume_learner(self, cell: Cell, first_round: int) -> Learner:
        """Return a learner as it was before a round, from the rounds that are recorded."""
        learner = self.experiment.make_learner(cell)
        for result in self.plan.recorded[cell][:first_round]:
            self.experiment.tell_labels(learner, result)

        # Networks start from scratch in each round: labels, round and memory are all it needs.
        memory = self.run_folder.memory(cell, first_round - 1)
        resume(learner, first_round, memory)
        return learner

    def _run_round(self, cell: Cell, number: int) -> Round | Failure:
        """Evaluate and ask a fitted learner, record the round, and tell the labels."""
        learner = self.learners[cell]
        try:
            result = self.experiment.evaluate_and_ask(learner, cell, number)
            # The memory as it would be read from disk, so that an interrupted run has the same.
            resume(learner, learner.rounds, round_trip(learner.state.pending_memory))
        except Exception as error:  # A strategy may raise anything; the other cells continue.
            return self._record_failure(cell, number, error)

        # On disk before anything depends on it.
        self.run_folder.append(result, learner.state.pending_memory)
        self.experiment.tell_labels(learner, result)
        return result

    def _record_failure(self, cell: Cell, number: int, error: Exception) -> Failure:
        message = str(error)
        if not isinstance(error, TeeterError):
            message = f"{type(error).__name__}: {error}"
        logger.warning(
            "%s, repetition %d, failed in round %d: %s",
            cell.strategy,
            cell.repetition,
            number,
            message,
        )

        failure = Failure(
            strategy=cell.strategy,
            repetition=cell.repetition,
            round=number,
            group=self.plan.number,
            error=message,
            trace="".join(traceback.format_exception(error)),
        )
        self.run_folder.append_failure(failure)
        del self.learners[cell]
        return failure
