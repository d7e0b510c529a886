"""The rounds of a learner: the jobs of a fit, its results, and how an earlier run continues.

``Learner`` is the loop that users see. Who drives many learners or restores one from records of its
own, the runner of experiments and campaigns, needs the steps between: ``fit_learners`` trains the
networks of several learners at once, and ``resume`` continues a run from what was recorded about
it.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from teeter.base.seeds import seeded_global_rng, stream_seed
from teeter.errors import InputError, TeeterError
from teeter.models.inputs import take_rows
from teeter.models.observe import is_estimator, is_network
from teeter.models.sklearn_model import clone_with_seed, learns_from_pool
from teeter.training import Evaluation, FitJob, FitResult, Trainer, TrainingConfig, fit_jobs

if TYPE_CHECKING:
    from teeter.learner.learner import Learner


RowArray = npt.NDArray[np.int64]

_NO_ROWS: RowArray = np.zeros(0, dtype=np.int64)

logger = logging.getLogger("teeter")


@dataclass
class FitRecord:
    """A fit of a learner, and what was measured and asked until the next one."""

    round: int
    """The number of the fit, from 1."""
    rows: RowArray
    """(L,) the rows of the pool that it used."""
    classes: RowArray
    """(L,) their class numbers at that time."""
    excluded: RowArray = field(default_factory=_NO_ROWS.copy)
    """Rows without a label that the models were not to learn from."""
    validation_accuracy: float | None = None
    """The accuracy of the best epoch on the validation rows, if there are any."""
    evaluation: Evaluation | None = None
    """What ``evaluate`` measured last."""
    picks: RowArray | None = None
    """What ``ask`` chose last."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Wall-clock seconds of each phase: training, validation, evaluation, outputs and selection. A
    phase that has not run is missing."""

    @property
    def accuracy(self) -> float | None:
        """The accuracy that ``evaluate`` measured last."""
        if self.evaluation is None:
            return None
        return self.evaluation.accuracy


@dataclass
class LearnerState:
    """What the fits and the asks of a learner change, apart from the labels of its pool."""

    models: list[Any] = field(default_factory=list)
    """The models of the last fit."""
    rounds: int = 0
    """How many times the learner was fitted."""
    history: list[FitRecord] = field(default_factory=list)
    """A record of each fit. It may be shorter than ``rounds``: see ``resume``."""
    memory: dict[str, Any] = field(default_factory=dict)
    """What the strategy remembers of earlier rounds. Every ask shows it a copy."""
    pending_memory: dict[str, Any] = field(default_factory=dict)
    """The memory that the strategy left at the last ask. It becomes ``memory`` at the next fit. It
    is kept apart until then, so that asking twice gives the same rows."""
    stale_round: int | None = None
    """The round in which it was logged that there are labels which no model has learned from."""
    notes: dict[int, dict[str, float]] = field(default_factory=dict)
    """For each row of the last ask, values that the strategy reported about it, by name."""


def prepare_fit(learner: Learner, exclude: RowArray = _NO_ROWS) -> list[FitJob]:
    """Return a job for each model of the next round.

    ``Learner.fit`` is this, then ``teeter.training.fit_jobs``, then ``finish_fit``. Do not tell the
    learner labels in between.

    Args:
        learner: the learner.
        exclude: unlabelled rows that no model may learn from.

    Raises:
        InputError: if no row is labelled.
    """
    rows = learner.pool.labelled
    if len(rows) == 0:
        raise InputError("There is nothing to fit: call tell with some labels first.")
    return make_jobs(learner, rows, learner.pool.labels, learner.rounds + 1, exclude)


def finish_fit(
    learner: Learner, results: Sequence[FitResult], exclude: RowArray = _NO_ROWS
) -> None:
    """Adopt the models that training the jobs of ``prepare_fit`` gave, and begin a new round.

    Args:
        learner: the learner.
        results: what training each job gave.
        exclude: what ``prepare_fit`` was told to exclude.

    Raises:
        TeeterError: the error of the first result that has one. Nothing changes then.
    """
    for result in results:
        if result.error is not None:
            raise result.error

    state = learner.state
    state.models = [result.model for result in results]
    state.rounds += 1
    # A copy: what the strategy remembers must not change if it is asked again.
    state.memory = copy.deepcopy(state.pending_memory)

    record = FitRecord(state.rounds, learner.pool.labelled, learner.pool.labels, exclude)
    # No results: there is only one class, and no model. Of an ensemble the first member counts.
    if results:
        record.validation_accuracy = results[0].validation_accuracy
    for phase in ("training", "validation"):
        seconds = [result.seconds.get(phase, 0.0) for result in results]
        record.seconds[phase] = sum(seconds)
    state.history.append(record)


def fit_learners(learners: Sequence[Learner]) -> dict[int, TeeterError]:
    """Fit several learners at once.

    Small networks of one architecture with equally many labels are trained together, which takes
    much less time than one fit after the other and gives the same models up to rounding.

    Returns:
        The errors of learners that could not be fitted, by their position. They keep their last
        model.
    """
    errors: dict[int, TeeterError] = {}
    jobs_by_learner: dict[int, list[FitJob]] = {}
    for position, learner in enumerate(learners):
        try:
            jobs_by_learner[position] = prepare_fit(learner)
        except TeeterError as error:
            errors[position] = error

    # Jobs of different learners can be trained together if they are trained in the same way.
    jobs_by_training: dict[TrainingConfig | Trainer, list[FitJob]] = {}
    for position, jobs in jobs_by_learner.items():
        training = learners[position].training
        same_training = jobs_by_training.setdefault(training, [])
        same_training.extend(jobs)

    results: dict[FitJob, FitResult] = {}
    for training, jobs in jobs_by_training.items():
        job_results = fit_jobs(jobs, training)
        results.update(zip(jobs, job_results, strict=True))

    for position, jobs in jobs_by_learner.items():
        learner_results = [results[job] for job in jobs]
        try:
            finish_fit(learners[position], learner_results)
        except TeeterError as error:
            errors[position] = error
    return errors


def resume(
    learner: Learner,
    rounds: int,
    memory: dict[str, Any],
    models: Sequence[Any] | None = None,
) -> None:
    """Continue an earlier run from what was recorded about it.

    Tell the labels as usual. The next fit is then round ``rounds`` + 1, with the same random
    numbers as if the learner had been fitted ``rounds`` times.

    Args:
        learner: a learner with the settings of the earlier run.
        rounds: the number of fits so far.
        memory: the ``pending_memory`` of the strategy after the last ask.
        models: trained models to continue with. Default: those the learner has.
    """
    state = learner.state
    state.rounds = rounds
    state.pending_memory = memory
    if models is not None:
        state.models = list(models)


def make_jobs(
    learner: Learner,
    rows: RowArray,
    classes: RowArray,
    round_number: int,
    exclude: RowArray,
) -> list[FitJob]:
    """Return a job per model of a round, none if the models cannot learn a single class.

    Estimators that learn from unlabelled rows get all rows of the pool that are neither among
    ``rows`` nor in ``exclude``.
    """
    model_count = 1
    if "ensemble_logits" in learner.strategy.needs:
        model_count = learner.members

    seeds = [
        small_stream_seed(learner.seed, "model", round_number, member)
        for member in range(model_count)
    ]
    models = [_new_model(learner, seed) for seed in seeds]
    if isinstance(learner.training, TrainingConfig) and learner.training.warm_start:
        for model, trained in zip(models, learner.state.models, strict=False):
            if isinstance(model, nn.Module):
                model.load_state_dict(trained.state_dict())

    has_one_class = len(np.unique(classes)) < 2
    if has_one_class and not is_network(models[0]):
        logger.warning(
            "Only one class is labelled, so no model was trained: %s picks rows until there "
            "are two.",
            learner.cold_start.name,
        )
        return []

    inputs = take_rows(learner.data, rows)
    labels = torch.from_numpy(classes)
    pool = None
    if is_estimator(models[0]) and learns_from_pool(models[0]):
        everything = np.arange(len(learner.pool))
        unlabelled = np.setdiff1d(everything, np.union1d(rows, exclude))
        pool = take_rows(learner.data, unlabelled)

    jobs = []
    for model, seed in zip(models, seeds, strict=True):
        job = FitJob(
            model=model,
            inputs=inputs,
            labels=labels,
            seed=seed,
            validation=learner.validation,
            pool=pool,
        )
        jobs.append(job)
    return jobs


def small_stream_seed(seed: int, *name: str | int) -> int:
    """Return the seed of a stream below 2^32, as NumPy and scikit-learn need it."""
    return stream_seed(seed, *name) % 2**32


def _new_model(learner: Learner, seed: int) -> Any:
    """Return a new model, untrained and on the learner's device."""
    untrained_model = learner.untrained_model
    if is_estimator(untrained_model):
        model = clone_with_seed(untrained_model, seed)
    else:
        # A function that ignores its argument still gets reproducible weights.
        with seeded_global_rng(seed, learner.device):
            try:
                model = untrained_model(seed)
            except (AttributeError, TypeError, ValueError) as error:
                raise InputError(
                    f"model({seed}) failed ({error}): it must take a seed and return a new "
                    "model. For a model that you train yourself, use teeter.observe and "
                    "teeter.select instead."
                ) from error

    if isinstance(model, nn.Module):
        return model.to(learner.device)
    if not is_estimator(model):
        raise InputError(
            f"model returned a {type(model).__name__}: return a torch module or a "
            "scikit-learn classifier."
        )
    return model
