"""What is trained and how: configuration, jobs and results, and the interface for other loops.

Both loops use the functions for optimizer, batches, row weights, divergence and threads, so that a
network learns the same alone and in a batch. They load torch when they are called: the settings of
benchmarks are listed without it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from teeter.errors import InputError, TeeterError, TrainingError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

__all__ = [
    "FitJob",
    "FitResult",
    "Trainer",
    "TrainingConfig",
    "balanced_row_weights",
    "divergence_error",
    "make_optimizer",
    "shuffled_batches",
    "training_threads",
]


_OPTIMIZERS = ("adam", "adamw", "rmsprop", "nesterov", "sgd")

_SCHEDULES = ("steps", "cosine")

_MIN_WORK_FOR_THREADS = 100_000_000
"""Parameters times rows of a training step from which a second thread makes it faster."""


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """How networks are trained. The defaults are those of the LDM paper for tables.

    Example:
        >>> config = TrainingConfig(optimizer="sgd", learning_rate=0.1, epochs=20)
        >>> config.batch_size
        64
    """

    optimizer: Literal["adam", "adamw", "rmsprop", "nesterov", "sgd"] = "adam"
    learning_rate: float = 1e-3
    epochs: int = 100
    batch_size: int = 64
    weight_decay: float = 0.0
    schedule: Literal["steps", "cosine"] = "steps"
    """How the learning rate falls: at the milestones, or along a cosine towards 0."""
    decay: float = 1.0
    """The factor by which the learning rate is multiplied at every milestone."""
    milestones: tuple[int, ...] = ()
    """Numbers of epochs after which the learning rate is multiplied by ``decay``."""
    warm_start: bool = False
    """Whether a learner's networks continue from the weights of its last fit, not from new ones."""
    class_weighted: bool = False
    """Whether every class has the same weight in the loss, whatever its number of rows."""
    alpha: float = 0.99
    """How much of its running mean of squared gradients RMSprop keeps in a step. Keras: 0.9."""
    epsilon: float = 1e-8
    """What Adam, AdamW and RMSprop add to the root of the mean square. Keras: 1e-7."""
    momentum: float = 0.9
    """The momentum of ``nesterov``."""

    def __post_init__(self) -> None:
        """Refuse values that cannot train anything.

        Raises:
            InputError: if a value is out of range, or no optimizer has that name.
        """
        if self.optimizer not in _OPTIMIZERS:
            raise InputError(
                f"No optimizer is called {self.optimizer!r}: choose adam, adamw, rmsprop, nesterov "
                "or sgd."
            )
        if self.schedule not in _SCHEDULES:
            raise InputError(f"No schedule is called {self.schedule!r}: choose steps or cosine.")
        if self.schedule == "cosine" and len(self.milestones):
            raise InputError(
                "A cosine schedule has no milestones: leave them out, or choose the schedule steps."
            )

        for name in ("learning_rate", "epochs", "batch_size", "decay"):
            value = getattr(self, name)
            if not value > 0:  # also refuses NaN
                raise InputError(f"{name} is {value}: it must be positive.")

        for name in ("epochs", "batch_size"):
            value = getattr(self, name)
            if not isinstance(value, int | np.integer):
                raise InputError(f"{name} is {value}: it must be a whole number.")

        if not self.weight_decay >= 0:
            raise InputError(f"weight_decay is {self.weight_decay}: it must be 0 or more.")

        for name in ("alpha", "momentum"):
            value = getattr(self, name)
            if not 0 <= value < 1:
                raise InputError(f"{name} is {value}: it must be 0 or more, and less than 1.")
        if not self.epsilon > 0:
            raise InputError(f"epsilon is {self.epsilon}: it must be positive.")

        # A list is accepted too: settings files have no tuples.
        object.__setattr__(self, "milestones", tuple(self.milestones))

    @property
    def has_constant_rate(self) -> bool:
        """Whether all epochs have the same learning rate."""
        return self.schedule == "steps" and not self.milestones

    def rate_factor(self, epoch: int) -> float:
        """Return what the learning rate is multiplied by after ``epoch`` epochs.

        Example:
            >>> TrainingConfig(schedule="cosine", epochs=2).rate_factor(1)
            0.5
        """
        if self.schedule == "steps":
            if epoch in self.milestones:
                return self.decay
            return 1.0

        # The rate after e of E epochs is (1 + cos(pi e / E)) / 2 of that of the first one.
        share = (1 + math.cos(math.pi * epoch / self.epochs)) / 2
        share_before = (1 + math.cos(math.pi * (epoch - 1) / self.epochs)) / 2
        return share / share_before


def make_optimizer(
    parameters: Iterable[Tensor],
    config: TrainingConfig,
    *,
    fused: bool = False,
    on_gpu: bool = False,
) -> torch.optim.Optimizer:
    """Return the optimizer that a configuration names.

    Args:
        parameters: the tensors to optimize.
        config: names the optimizer and its constants.
        fused: whether to update all parameters in one pass where torch can. Results differ from
            those of the plain optimizer by rounding only.
        on_gpu: whether the parameters are on a GPU. A fused optimizer is then made so that a CUDA
            graph can capture its steps.
    """
    import torch

    common: dict[str, Any] = {
        "lr": config.learning_rate,
        "weight_decay": config.weight_decay,
    }
    # SGD has no such option: its step can always be captured. RMSprop has no fused version.
    capturable = fused and on_gpu

    match config.optimizer:
        case "adam" | "adamw":
            adam: type[torch.optim.Adam] = torch.optim.Adam
            if config.optimizer == "adamw":
                adam = torch.optim.AdamW
            return adam(
                parameters,
                eps=config.epsilon,
                fused=fused,
                capturable=capturable,
                **common,
            )
        case "rmsprop":
            return torch.optim.RMSprop(
                parameters,
                alpha=config.alpha,
                eps=config.epsilon,
                capturable=capturable,
                **common,
            )
        case "nesterov":
            return torch.optim.SGD(
                parameters,
                momentum=config.momentum,
                nesterov=True,
                fused=fused,
                **common,
            )
        case "sgd":
            return torch.optim.SGD(parameters, fused=fused, **common)


def shuffled_batches(
    rows: int,
    batch_size: int,
    generator: torch.Generator,
) -> Iterator[Tensor]:
    """Yield the positions 0 to ``rows`` - 1 in random order, in batches of ``batch_size``.

    A last batch of a single row is merged into the one before it, because batch normalization
    cannot train on one row.
    """
    import torch

    order = torch.randperm(rows, generator=generator)
    batches = list(order.split(batch_size))

    has_single_row = len(batches[-1]) == 1
    if len(batches) > 1 and has_single_row:
        merged = torch.cat(batches[-2:])
        batches[-2:] = [merged]

    yield from batches


def balanced_row_weights(labels: Tensor) -> Tensor:
    """Return a weight for each row, so that all classes have the same total and the mean is 1.

    Args:
        labels: (L,) class numbers.

    Returns:
        (L,) L / (number of classes present * rows of the row's class).
    """
    import torch

    counts = torch.bincount(labels)  # (C,)
    classes_present = int((counts > 0).sum())
    rows_of_class = counts[labels]  # (L,)
    return len(labels) / (classes_present * rows_of_class)


def divergence_error(
    losses: Iterable[float], config: TrainingConfig, inputs: Any
) -> TrainingError | None:
    """Return the error to report if a loss is not a finite number, and None if all are.

    Args:
        losses: the mean loss of each epoch so far.
        config: its learning rate is part of the message.
        inputs: (L, ...) the rows trained on. They are blamed if they contain NaN or infinity.
    """
    import torch

    for epoch, loss in enumerate(losses, start=1):
        if np.isfinite(loss):
            continue

        # Rows that encode their own batches (texts, images) have no numbers to look at.
        if isinstance(inputs, torch.Tensor) and not bool(inputs.isfinite().all()):
            is_bad = ~inputs.isfinite()
            bad_rows = int(is_bad.flatten(1).any(dim=1).sum())
            return TrainingError(
                f"{bad_rows} of {len(inputs)} labelled rows contain NaN or infinite numbers: "
                "fix or remove them."
            )

        return TrainingError(
            f"The loss became {loss} in epoch {epoch}: lower the learning rate from "
            f"{config.learning_rate}, or scale the inputs."
        )

    return None


def training_threads(parameter_count: int, batch_size: int) -> int:
    """Return the number of CPU threads that trains a network of this size fastest."""
    import torch

    if parameter_count * batch_size < _MIN_WORK_FOR_THREADS:
        return 1
    return torch.get_num_threads()


@dataclass(frozen=True, eq=False)
class FitJob:
    """A new model and the rows it learns from. Jobs are compared by identity."""

    model: Any
    """A torch module or a scikit-learn classifier. Training changes it in place."""
    inputs: Any
    """(L, ...) the labelled rows, in any form that ``teeter.Learner`` takes."""
    labels: Tensor
    """(L,) their class numbers."""
    seed: int
    """Decides the order of rows and dropout."""
    validation: tuple[Any, Tensor] | None = None
    """Inputs (V, ...) and class numbers (V,) that choose the epoch whose weights are kept."""
    pool: Any = None
    """Unlabelled rows, for estimators that learn from them; see ``learns_from_pool``."""


@dataclass(frozen=True, eq=False)
class FitResult:
    """What training a ``FitJob`` gave: a trained model, or an error."""

    model: Any
    losses: list[float] = field(default_factory=list)
    """The mean training loss of each epoch. Estimators report none."""
    best_epoch: int | None = None
    """The epoch, counted from 0, whose weights the model has. None without validation rows."""
    validation_accuracy: float | None = None
    """The share of validation rows that the model of the best epoch classifies correctly."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Wall-clock time of ``"training"`` and ``"validation"``; a share in batched training."""
    error: TeeterError | None = None
    """Why the model could not be trained. The model is then of no use."""


class Trainer(ABC):
    """Another way to train torch modules: the trainer of another library, or your own loop.

    Pass it as ``Learner(training=...)``. ``teeter.training.LightningTraining`` is one.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> class OneStep(Trainer):
        ...     def train(self, job: FitJob) -> FitResult:
        ...         optimizer = torch.optim.SGD(job.model.parameters(), lr=0.1)
        ...         loss = nn.functional.cross_entropy(job.model(job.inputs), job.labels)
        ...         loss.backward()
        ...         optimizer.step()
        ...         return FitResult(job.model, losses=[float(loss.detach())])
        >>> job = FitJob(nn.Linear(2, 3), torch.eye(2), torch.tensor([0, 2]), seed=0)
        >>> len(OneStep().train(job).losses)
        1
    """

    @abstractmethod
    def train(self, job: FitJob) -> FitResult:
        """Train ``job.model`` on ``job.inputs`` and ``job.labels`` and return it.

        The global random numbers of torch are seeded from ``job.seed`` while this runs. The caller
        measures the time, moves the model back to its device and puts it into evaluation mode.

        Raises:
            TeeterError: if the model cannot be trained. Other jobs continue.
        """
