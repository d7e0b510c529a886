"""Training and evaluation: one loop, read top to bottom."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from teeter.arrays import choose_device
from teeter.errors import TeeterError, TrainingError
from teeter.models.inputs import BatchedInputs, adapt_to, batches, materialize
from teeter.models.skorch_model import explain_failure, skorch_labels
from teeter.models.torch_model import call_model, extract_logits, prepare_batch
from teeter.seeds import seeded_global_rng, stream
from teeter.training.batched import fit_batched, group_jobs
from teeter.training.config import (
    FitJob,
    Trainer,
    TrainingConfig,
    balanced_row_weights,
    divergence_error,
    limit_threads,
    make_optimizer,
    shuffled_batches,
)

__all__ = [
    "Evaluation",
    "FitJob",
    "Trainer",
    "TrainingConfig",
    "evaluate_logits",
    "fit_estimator",
    "fit_learners",
]


class Trainable(Protocol):
    """Who has lessons to take: a learner."""

    training: TrainingConfig | Trainer

    def begin_round(self) -> list[FitJob]:
        """Return a lesson for each model to train."""

    def end_round(self, lessons: list[FitJob]) -> None:
        """Take over the trained models."""


def fit_learners(trainees: Sequence[Trainable]) -> dict[int, TeeterError]:
    """Train the models of all ``trainees`` for one round; return why some could not be, by their position.

    Small networks of one kind with as many labels each are trained as one stack.
    """
    lessons: dict[int, list[FitJob]] = {}
    failed: dict[int, TeeterError] = {}
    for k, trainee in enumerate(trainees):
        try:
            lessons[k] = trainee.begin_round()
        except TeeterError as error:
            failed[k] = error
    for training in {trainees[k].training: None for k in lessons}:
        _train_all(
            [one for k in lessons if trainees[k].training == training for one in lessons[k]],
            training,
        )
    for k, taken in lessons.items():
        errors = [lesson.error for lesson in taken if lesson.error is not None]
        if errors:
            failed[k] = errors[0]
        else:
            trainees[k].end_round(taken)
    return failed


def _train_all(lessons: Sequence[FitJob], training: TrainingConfig | Trainer) -> None:
    if isinstance(training, Trainer):
        for lesson in lessons:
            with _told_to([lesson]):
                _train_alone(lesson, training)
        return
    together, alone = group_jobs(lessons)
    for stack in together:
        with _told_to(stack):
            fit_batched(stack, training)
    for lesson in alone:
        with _told_to([lesson]):
            _train_alone(lesson, training)


@contextmanager
def _told_to(lessons: Sequence[FitJob]) -> Iterator[None]:
    """Keep a refusal with the lessons that it is about, so that others go on."""
    try:
        yield
    except TeeterError as error:
        for lesson in lessons:
            lesson.error = error


def _train_alone(lesson: FitJob, training: TrainingConfig | Trainer) -> None:
    started = time.perf_counter()
    if not isinstance(lesson.model, nn.Module):
        fit_estimator(lesson)
    elif isinstance(training, Trainer):
        _train_elsewhere(lesson, training)
    else:
        _train(lesson, training)
    spent = time.perf_counter() - started
    checking = lesson.seconds.get("validation", 0.0)
    lesson.seconds = {"training": spent - checking, "validation": checking}


def fit_estimator(lesson: FitJob) -> None:
    """Fit an estimator; the draws of one that has a network inside follow the lesson's seed."""
    with seeded_global_rng(lesson.seed, choose_device(None)):
        try:
            lesson.model.fit(lesson.inputs, skorch_labels(lesson.model, lesson.labels.numpy()))
        except (IndexError, RuntimeError, ValueError) as error:
            mend = explain_failure(lesson.model, error)
            if mend is None:
                raise
            raise TrainingError(mend) from None


def _train_elsewhere(lesson: FitJob, training: Trainer) -> None:
    device = _device_of(lesson.model)
    with seeded_global_rng(stream(lesson.seed, "dropout").initial_seed(), device):
        training.train(lesson)
    lesson.model.to(device).eval()


def _train(lesson: FitJob, training: TrainingConfig) -> None:
    network = lesson.model
    device = _device_of(network)
    inputs, labels = _prepared(network, lesson.inputs, device), lesson.labels.to(device)
    weights = balanced_row_weights(lesson.labels).to(device) if training.class_weighted else None
    if not any(parameter.requires_grad for parameter in network.parameters()):
        raise TrainingError(
            f"All of {type(network).__name__} is frozen, so there is nothing to train."
        )
    optimizer = make_optimizer(network.parameters(), training)
    schedule = torch.optim.lr_scheduler.MultiStepLR(
        optimizer, list(training.milestones), gamma=training.decay
    )
    order, highest = stream(lesson.seed, "order"), int(lesson.labels.max())
    best = None if lesson.validation is None else _Best(lesson, *lesson.validation)
    with (
        limit_threads(_size(network) * training.batch_size),
        seeded_global_rng(stream(lesson.seed, "dropout").initial_seed(), device),
    ):
        require_logits(
            network, _some(network, inputs, torch.arange(min(64, len(labels)), device=device))
        )
        network.train()
        for epoch in range(training.epochs):
            total = torch.zeros((), device=device)
            for rows in shuffled_batches(len(labels), training.batch_size, order):
                batch = rows.to(device)
                weighted = None if weights is None else weights[batch]
                loss = _loss(
                    network, _some(network, inputs, batch), labels[batch], weighted, highest
                )
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
                total += loss.detach() * len(batch)
            lesson.losses.append(float(total) / len(labels))
            lesson.error = divergence_error(lesson.losses, training, inputs)
            if lesson.error is not None:
                return
            schedule.step()
            if best is not None:
                best.keep_if_better(epoch)
    if best is not None:
        best.restore()
    network.eval()


def _size(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


def _device_of(network: nn.Module) -> torch.device:
    parameter = next(network.parameters(), None)
    if parameter is None:
        raise TrainingError(
            f"{type(network).__name__} has no parameters, so there is nothing to train."
        )
    return parameter.device


def _prepared(network: nn.Module, inputs: Any, device: torch.device) -> Any:
    """Return the rows as tensors on ``device``; those that make their own batches as they are."""
    return (
        adapt_to(inputs, network)
        if isinstance(inputs, BatchedInputs)
        else prepare_batch(network, materialize(inputs), device)
    )


def _some(network: nn.Module, inputs: Any, rows: Tensor) -> Any:
    if isinstance(inputs, BatchedInputs):
        return prepare_batch(network, inputs.take(rows.cpu().numpy()).together(), rows.device)
    return (
        {name: part[rows] for name, part in inputs.items()}
        if isinstance(inputs, Mapping)
        else inputs[rows]
    )


def require_logits(network: nn.Module, batch: Any) -> None:
    """Refuse a network that ends in a softmax: its probabilities would go through a second one and hardly learn."""
    network.eval()
    with torch.no_grad():
        found = extract_logits(call_model(network, batch))
    if not isinstance(found, Tensor) or found.ndim != 2 or found.shape[1] < 2:
        return
    if bool((found >= 0).all()) and torch.allclose(found.sum(dim=1), found.new_ones(()), atol=1e-4):
        raise TrainingError(
            f"{type(network).__name__} answers probabilities, and training needs logits: leave its softmax out."
        )


def _loss(
    network: nn.Module, batch: Any, labels: Tensor, weights: Tensor | None, highest: int
) -> Tensor:
    """Return the mean cross-entropy of a batch, whose classes are 0 to ``highest``, weighted by row if told."""
    try:
        logits = extract_logits(call_model(network, batch))
    except ValueError as error:
        if "more than 1 value per channel" in str(error):
            raise TrainingError(
                "Batch norm cannot train on a batch of one row: label more rows."
            ) from None
        raise
    if not isinstance(logits, Tensor) or logits.ndim != 2 or logits.shape[1] < 2:
        found = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise TrainingError(
            f"{type(network).__name__} answers {found}: to be trained, it must answer (rows, classes)."
        )
    if highest >= logits.shape[1]:
        raise TrainingError(
            f"{type(network).__name__} answers with {logits.shape[1]} classes, and the labels have {highest + 1}: "
            "make its last layer wider."
        )
    if weights is None:
        return nn.functional.cross_entropy(logits, labels)
    return (nn.functional.cross_entropy(logits, labels, reduction="none") * weights).mean()


class _Best:
    """The network as it was after the epoch that was right on most validation rows."""

    def __init__(self, lesson: FitJob, inputs: Any, labels: Tensor) -> None:
        self.network, self.lesson = lesson.model, lesson
        self.inputs, self.labels = adapt_to(inputs, lesson.model), labels
        self.accuracy = -1.0
        self.state: dict[str, Tensor] = {}

    def keep_if_better(self, epoch: int) -> None:
        """Judge the network as it is after ``epoch``."""
        started = time.perf_counter()
        self.network.eval()
        with torch.no_grad():
            device = _device_of(self.network)
            parts = (
                prepare_batch(self.network, part, device) for part in batches(self.inputs, 1024)
            )
            answers = [
                extract_logits(call_model(self.network, part)).argmax(dim=1).cpu() for part in parts
            ]
        self.network.train()
        accuracy = float((torch.cat(answers) == self.labels).double().mean())
        if accuracy > self.accuracy:
            self.accuracy = self.lesson.validated = accuracy
            self.lesson.best_epoch = epoch
            self.state = copy.deepcopy(self.network.state_dict())
        spent = self.lesson.seconds.get("validation", 0.0)
        self.lesson.seconds["validation"] = spent + time.perf_counter() - started

    def restore(self) -> None:
        """Put the best state back."""
        self.network.load_state_dict(self.state)


@dataclass(frozen=True)
class Evaluation:
    """How right a model is on some rows."""

    accuracy: float
    loss: float
    """The mean of minus the log-probability of the true class."""
    rows: int
    vote: float | None = None
    """The accuracy of an ensemble's vote, where there is an ensemble."""


def evaluate_logits(logits: Tensor, labels: Tensor, posterior: Tensor | None = None) -> Evaluation:
    """Compare logits (N, C) with classes (N,); posterior (S, N, C) adds the vote of its members."""
    right = (logits.argmax(dim=1) == labels).double().mean()
    loss = nn.functional.cross_entropy(logits.double(), labels)
    vote = (
        None
        if posterior is None
        else (posterior.softmax(dim=2).mean(dim=0).argmax(dim=1) == labels).double().mean()
    )
    return Evaluation(float(right), float(loss), len(labels), None if vote is None else float(vote))
