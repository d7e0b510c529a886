"""What a model is to learn, and by which rules: shared by training one by one and in stacks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from teeter.errors import InputError, TeeterError, TrainingError

__all__ = [
    "FitJob",
    "Trainer",
    "TrainingConfig",
    "balanced_row_weights",
    "divergence_error",
    "limit_threads",
    "make_optimizer",
    "shuffled_batches",
]


_WORTH_TWO_THREADS = 100_000_000
"""Parameters times rows of a training step from which a second thread pays."""


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
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
    class_weighted: bool = False
    """Whether every class counts alike, however many rows it has."""

    def __post_init__(self) -> None:
        """Refuse settings that train nothing."""
        if self.optimizer not in ("adam", "rmsprop", "nesterov", "sgd"):
            raise InputError(
                f"No optimizer is called {self.optimizer!r}: choose adam, rmsprop, nesterov or sgd."
            )
        for name in ("learning_rate", "epochs", "batch_size", "decay"):
            if not getattr(self, name) > 0:
                raise InputError(f"{name} is {getattr(self, name)}: it must be positive.")
        for name in ("epochs", "batch_size"):
            if not isinstance(getattr(self, name), int | np.integer):
                raise InputError(f"{name} is {getattr(self, name)}: it must be a whole number.")
        if not self.weight_decay >= 0:
            raise InputError(f"weight_decay is {self.weight_decay}: it must be 0 or more.")
        object.__setattr__(self, "milestones", tuple(self.milestones))


@dataclass(eq=False)
class FitJob:
    """One model and the rows it learns from; ``losses`` and what follows are filled in by training."""

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
    validated: float | None = None
    """The share of validation rows that were right after the best epoch."""
    error: TeeterError | None = None
    """Why the model could not be trained."""
    seconds: dict[str, float] = field(default_factory=dict)
    """How long training and validation took; its share where a stack was trained."""


class Trainer(ABC):
    """Another way to train torch modules than our loop: another library's trainer, or your own."""

    @abstractmethod
    def train(self, lesson: FitJob) -> None:
        """Train ``lesson.model`` on ``lesson.inputs`` and ``lesson.labels``; global draws follow the lesson's seed."""


def make_optimizer(
    parameters: Iterable[Tensor],
    training: TrainingConfig,
    *,
    fused: bool = False,
    on_gpu: bool = False,
) -> torch.optim.Optimizer:
    """Return the optimizer of a training; ``fused`` updates in one pass where it can, equal but for rounding."""
    common: dict[str, Any] = {"lr": training.learning_rate, "weight_decay": training.weight_decay}
    captured = fused and on_gpu  # can then be part of a CUDA graph
    if training.optimizer == "adam":
        return torch.optim.Adam(parameters, fused=fused, capturable=captured, **common)
    if training.optimizer == "rmsprop":
        return torch.optim.RMSprop(parameters, capturable=captured, **common)
    if training.optimizer == "nesterov":
        return torch.optim.SGD(parameters, momentum=0.9, nesterov=True, fused=fused, **common)
    return torch.optim.SGD(parameters, fused=fused, **common)


def shuffled_batches(rows: int, size: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Yield all rows in random batches; a single row left over joins the batch before it (batch norm needs two)."""
    order = torch.randperm(rows, generator=generator)
    batches = list(order.split(size))
    if len(batches) > 1 and len(batches[-1]) == 1:
        batches[-2:] = [torch.cat(batches[-2:])]
    yield from batches


def divergence_error(
    losses: Iterable[float], training: TrainingConfig, inputs: Any
) -> TrainingError | None:
    """Return what to say of losses by epoch, and of the inputs (L, ...), if they are not all numbers."""
    for epoch, loss in enumerate(losses, start=1):
        if np.isfinite(loss):
            continue
        if isinstance(inputs, Tensor) and not bool(inputs.isfinite().all()):
            rows = int((~inputs.isfinite()).flatten(1).any(dim=1).sum())
            return TrainingError(
                f"{rows} of {len(inputs)} labelled rows hold NaN or infinite numbers: mend the data."
            )
        return TrainingError(
            f"The loss became {loss} in epoch {epoch}: lower the learning rate from {training.learning_rate}, "
            "or scale the inputs."
        )
    return None


def balanced_row_weights(labels: Tensor) -> Tensor:
    """Return weights of rows (L,) by which their classes count alike; their mean is 1."""
    counts = torch.bincount(labels)
    return len(labels) / (int((counts > 0).sum()) * counts[labels])


@contextmanager
def limit_threads(work: int) -> Iterator[None]:
    """Within it, steps of little work (parameters times rows) take one thread: more would wait for each other."""
    before = torch.get_num_threads()
    if work < _WORTH_TWO_THREADS:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
