"""Training and evaluation: one loop, read top to bottom."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from teeter.errors import InputError, TrainingError
from teeter.models.data import batches, gathered
from teeter.models.torch_model import answer, ready
from teeter.seeds import drawing, stream

__all__ = ["Evaluation", "Lesson", "Training", "evaluate_logits", "fit_stack"]


_WORTH_TWO_THREADS = 100_000_000
"""Parameters times rows of a training step from which a second thread pays."""


@dataclass(frozen=True, kw_only=True)
class Training:
    """How networks are trained. The defaults are the paper's for tables."""

    optimizer: Literal["adam", "rmsprop", "nesterov", "sgd"] = "adam"
    learning_rate: float = 1e-3
    epochs: int = 100
    batch_size: int = 64
    weight_decay: float = 0.0
    decay: float = 1.0
    """The learning rate is multiplied by this at every milestone."""
    milestones: tuple[int, ...] = ()
    """Epochs after which the learning rate falls."""

    def __post_init__(self) -> None:
        """Refuse settings that train nothing."""
        if self.optimizer not in ("adam", "rmsprop", "nesterov", "sgd"):
            raise InputError(f"No optimizer is called {self.optimizer!r}: choose adam, rmsprop, nesterov or sgd.")
        for name in ("learning_rate", "epochs", "batch_size", "decay"):
            if not getattr(self, name) > 0:
                raise InputError(f"{name} is {getattr(self, name)}: it must be positive.")
        for name in ("epochs", "batch_size"):
            if not isinstance(getattr(self, name), int | np.integer):
                raise InputError(f"{name} is {getattr(self, name)}: it must be a whole number.")
        if not self.weight_decay >= 0:
            raise InputError(f"weight_decay is {self.weight_decay}: it must be 0 or more.")
        object.__setattr__(self, "milestones", tuple(self.milestones))


@dataclass
class Lesson:
    """One model and the rows it learns from; ``losses`` and ``best_epoch`` are filled in by training."""

    model: Any
    inputs: Any
    """(L, ...) the labelled rows."""
    labels: Tensor
    """(L,) their classes."""
    seed: int
    validation: tuple[Any, Tensor] | None = None
    """Inputs and classes; the epoch that is right on most of them is kept."""
    losses: list[float] = field(default_factory=list)
    """The mean loss of each epoch."""
    best_epoch: int | None = None


class Trainee(Protocol):
    """Who has lessons to take: a learner."""

    training: Training

    def begin_round(self) -> list[Lesson]:
        """Return a lesson for each model to train."""

    def end_round(self, lessons: list[Lesson]) -> None:
        """Take over the trained models."""


def fit_stack(trainees: Sequence[Trainee]) -> None:
    """Train the models of all ``trainees`` for one round."""
    for trainee in trainees:
        lessons = trainee.begin_round()
        for lesson in lessons:
            if isinstance(lesson.model, nn.Module):
                _train(lesson, trainee.training)
            else:
                lesson.model.fit(lesson.inputs, lesson.labels.numpy())
        trainee.end_round(lessons)


def _train(lesson: Lesson, training: Training) -> None:
    network = lesson.model
    device = _device_of(network)
    inputs, labels = ready(network, gathered(lesson.inputs), device), lesson.labels.to(device)
    optimizer = _optimizer(network, training)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, list(training.milestones), gamma=training.decay)
    order, highest = stream(lesson.seed, "order"), int(lesson.labels.max())
    best = None if lesson.validation is None else _Best(lesson, *lesson.validation)
    with _few_threads(network, training), drawing(stream(lesson.seed, "dropout").initial_seed(), device):
        _require_logits(network, _some(inputs, torch.arange(min(64, len(labels)), device=device)))
        network.train()
        for epoch in range(training.epochs):
            total = torch.zeros((), device=device)
            for rows in _shuffled(len(labels), training.batch_size, order):
                batch = rows.to(device)
                loss = _loss(network, _some(inputs, batch), labels[batch], highest)
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
                total += loss.detach() * len(batch)
            lesson.losses.append(_finite(float(total) / len(labels), epoch, training))
            schedule.step()
            if best is not None:
                best.keep_if_better(epoch)
    if best is not None:
        best.restore()
    network.eval()


@contextmanager
def _few_threads(network: nn.Module, training: Training) -> Iterator[None]:
    """Within it, a network whose steps are tiny trains on one thread: more would mostly wait for each other."""
    before = torch.get_num_threads()
    if sum(parameter.numel() for parameter in network.parameters()) * training.batch_size < _WORTH_TWO_THREADS:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _device_of(network: nn.Module) -> torch.device:
    parameter = next(network.parameters(), None)
    if parameter is None:
        raise TrainingError(f"{type(network).__name__} has no parameters, so there is nothing to train.")
    return parameter.device


def _some(inputs: Any, rows: Tensor) -> Any:
    return {name: part[rows] for name, part in inputs.items()} if isinstance(inputs, Mapping) else inputs[rows]


def _require_logits(network: nn.Module, batch: Any) -> None:
    """Refuse a network that ends in a softmax: its probabilities would go through a second one and hardly learn."""
    network.eval()
    with torch.no_grad():
        found = answer(network, batch)
    if not isinstance(found, Tensor) or found.ndim != 2 or found.shape[1] < 2:
        return
    if bool((found >= 0).all()) and torch.allclose(found.sum(dim=1), found.new_ones(()), atol=1e-4):
        raise TrainingError(
            f"{type(network).__name__} answers probabilities, and training needs logits: leave its softmax out."
        )


def _loss(network: nn.Module, batch: Any, labels: Tensor, highest: int) -> Tensor:
    """Return the mean cross-entropy of a batch, whose classes are 0 to ``highest``."""
    try:
        logits = answer(network, batch)
    except ValueError as error:
        if "more than 1 value per channel" in str(error):
            raise TrainingError("Batch norm cannot train on a batch of one row: label more rows.") from None
        raise
    if not isinstance(logits, Tensor) or logits.ndim != 2 or logits.shape[1] < 2:
        found = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise TrainingError(f"{type(network).__name__} answers {found}: to be trained, it must answer (rows, classes).")
    if highest >= logits.shape[1]:
        raise TrainingError(
            f"{type(network).__name__} answers with {logits.shape[1]} classes, and the labels have {highest + 1}: "
            "make its last layer wider."
        )
    return nn.functional.cross_entropy(logits, labels)


def _optimizer(network: nn.Module, training: Training) -> torch.optim.Optimizer:
    common: dict[str, Any] = {"lr": training.learning_rate, "weight_decay": training.weight_decay}
    if training.optimizer == "adam":
        return torch.optim.Adam(network.parameters(), **common)
    if training.optimizer == "rmsprop":
        return torch.optim.RMSprop(network.parameters(), **common)
    if training.optimizer == "nesterov":
        return torch.optim.SGD(network.parameters(), momentum=0.9, nesterov=True, **common)
    return torch.optim.SGD(network.parameters(), **common)


def _shuffled(rows: int, size: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Yield all rows in random batches; a single row left over joins the batch before it (batch norm needs two)."""
    order = torch.randperm(rows, generator=generator)
    batches = list(order.split(size))
    if len(batches) > 1 and len(batches[-1]) == 1:
        batches[-2:] = [torch.cat(batches[-2:])]
    yield from batches


def _finite(loss: float, epoch: int, training: Training) -> float:
    if not np.isfinite(loss):
        raise TrainingError(
            f"The loss became {loss} in epoch {epoch + 1}: lower the learning rate from {training.learning_rate}, "
            "or scale the inputs."
        )
    return loss


class _Best:
    """The network as it was after the epoch that was right on most validation rows."""

    def __init__(self, lesson: Lesson, inputs: Any, labels: Tensor) -> None:
        self.network, self.lesson = lesson.model, lesson
        self.inputs, self.labels = inputs, labels
        self.accuracy = -1.0
        self.state: dict[str, Tensor] = {}

    def keep_if_better(self, epoch: int) -> None:
        """Judge the network as it is after ``epoch``."""
        self.network.eval()
        with torch.no_grad():
            device = _device_of(self.network)
            parts = (ready(self.network, part, device) for part in batches(self.inputs, 1024))
            answers = [answer(self.network, part).argmax(dim=1).cpu() for part in parts]
        self.network.train()
        accuracy = float((torch.cat(answers) == self.labels).double().mean())
        if accuracy > self.accuracy:
            self.accuracy, self.lesson.best_epoch = accuracy, epoch
            self.state = copy.deepcopy(self.network.state_dict())

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
    vote = None if posterior is None else (posterior.softmax(dim=2).mean(dim=0).argmax(dim=1) == labels).double().mean()
    return Evaluation(float(right), float(loss), len(labels), None if vote is None else float(vote))
