"""One model to train, the result of training it, and the interface for other training loops."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from teeter.errors import TeeterError

__all__ = ["FitJob", "FitResult", "Trainer"]


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
