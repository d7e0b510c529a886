"""Lightning modules trained by Lightning's own trainer: their steps, optimizers and schedules."""

from __future__ import annotations

import copy
import inspect
import logging
import signal
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from teeter.errors import InputError, MissingExtraError, TrainingError
from teeter.models.inputs import adapt_to, as_one_batch, count_rows, take_rows
from teeter.models.torch_model import prepare_batch
from teeter.registry import did_you_mean
from teeter.seeds import stream
from teeter.training import FitJob, FitResult, Trainer
from teeter.training.config import shuffled_batches

try:
    import lightning.pytorch as lightning
except ModuleNotFoundError as error:
    if (error.name or "").split(".")[0] != "lightning":
        raise
    raise MissingExtraError("This needs Lightning: pip install 'teeter[lightning]'.") from None

__all__ = ["LightningTraining"]

_QUIET = {
    "logger": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "log_every_n_steps": 1,
    "inference_mode": False,  # its tensors could not be trained on later
}


class LightningTraining(Trainer):
    """How a ``teeter.Learner`` trains Lightning modules: ``training=LightningTraining(max_epochs=20)``.

    A module's ``training_step`` gets batches (inputs, classes); so does its ``validation_step``, if it has one and the
    learner has validation rows.
    """

    def __init__(self, *, batch_size: int = 64, **trainer: Any) -> None:
        """Keep the settings.

        Args:
            batch_size: rows of a step, of validation too.
            **trainer: what ``lightning.Trainer`` takes. It draws and writes nothing unless told to here. Every fit gets
                copies of the ``callbacks``, so that early stopping knows nothing of the round before.
        """
        if not isinstance(batch_size, int | np.integer) or batch_size < 1:
            raise InputError(
                f"The batch size is {batch_size}: it must be a whole number, 1 or more."
            )
        known = [
            name
            for name in inspect.signature(lightning.Trainer.__init__).parameters
            if name != "self"
        ]
        for name in trainer:
            if name not in known:
                raise InputError(
                    f"Lightning's trainer has no option {name!r}. {did_you_mean(name, known)}"
                )
        self.batch_size = batch_size
        self.trainer = trainer

    def train(self, job: FitJob) -> FitResult:
        """Train a module on its labelled rows."""
        module = job.model
        library = _library_of(module)
        device = next(module.parameters()).device
        where = {
            "accelerator": device.type,
            "devices": 1 if device.type == "cpu" else [device.index or 0],
        }
        with _quietly(), _interruptible():
            callbacks = copy.deepcopy(self.trainer.get("callbacks")) or []
            listed = callbacks if isinstance(callbacks, list) else [callbacks]
            keeps = any(isinstance(one, library.callbacks.Checkpoint) for one in listed)
            options = {
                **_QUIET,
                "enable_checkpointing": keeps,
                **where,
                **self.trainer,
                "callbacks": listed,
            }
            trainer = library.Trainer(**options)
            trainer.fit(module, self._loader(job), self._validation(job, library))
        module.trainer = None  # which would hold on to the labelled rows
        _require_finite(module)
        return FitResult(module)

    def _loader(self, job: FitJob) -> DataLoader[Any]:
        held = _Held(job.model, job.inputs, job.labels)
        order = _Shuffled(len(held), self.batch_size, job.seed)
        return DataLoader(held, batch_size=None, sampler=order)  # of whole batches

    def _validation(self, job: FitJob, library: Any) -> DataLoader[Any] | None:
        skipped = type(job.model).validation_step is library.LightningModule.validation_step
        if job.validation is None or skipped:
            return None
        held = _Held(job.model, *job.validation)
        parts = [part.tolist() for part in torch.arange(len(held)).split(self.batch_size)]
        return DataLoader(held, batch_size=None, sampler=parts)


class _Held(Dataset[Any]):
    """Rows and classes, whose items are whole batches."""

    def __init__(self, module: nn.Module, inputs: Any, labels: Tensor) -> None:
        self.module, self.inputs, self.labels = module, adapt_to(inputs, module), labels

    def __len__(self) -> int:
        return count_rows(self.inputs)

    def __getitem__(self, rows: list[int]) -> tuple[Any, Tensor]:
        batch = as_one_batch(take_rows(self.inputs, np.array(rows)))
        return prepare_batch(self.module, batch, torch.device("cpu")), self.labels[rows]


class _Shuffled:
    """Batches of rows in an order that is drawn anew each epoch."""

    def __init__(self, rows: int, size: int, seed: int) -> None:
        self.rows, self.size, self.order = rows, size, stream(seed, "order")

    def __len__(self) -> int:
        return len(list(shuffled_batches(self.rows, self.size, torch.Generator())))

    def __iter__(self) -> Iterator[list[int]]:
        for batch in shuffled_batches(self.rows, self.size, self.order):
            yield batch.tolist()


def _library_of(module: nn.Module) -> Any:
    """Return the library that a module is of: ``lightning.pytorch``, or ``pytorch_lightning``, which is its twin."""
    for cls in type(module).__mro__:
        if cls.__name__ == "LightningModule":
            twin = cls.__module__.startswith("pytorch_lightning.")
            return import_module("pytorch_lightning") if twin else lightning
    raise InputError(
        f"{type(module).__name__} is not a LightningModule: train it with teeter.TrainingConfig instead."
    )


def _require_finite(module: nn.Module) -> None:
    if not all(bool(parameter.isfinite().all()) for parameter in module.parameters()):
        raise TrainingError(
            "The weights became NaN or infinite: lower the learning rate, or scale the inputs."
        )


@contextmanager
def _interruptible() -> Iterator[None]:
    """Within it, Ctrl-C ends what it interrupts; Lightning would end the process and ignore the next one."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    except SystemExit as end:
        if not isinstance(end.__context__, KeyboardInterrupt):
            raise
        signal.signal(signal.SIGINT, before)
        raise KeyboardInterrupt from None


@contextmanager
def _quietly() -> Iterator[None]:
    """Within it, Lightning says nothing of devices, nor asks for workers to load rows in memory or for validation."""
    loggers = [logging.getLogger(name) for name in ("lightning.pytorch", "pytorch_lightning")]
    levels = [one.level for one in loggers]
    for one in loggers:
        one.setLevel(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*does not have many workers.*")
            warnings.filterwarnings("ignore", message=".*have no `val_dataloader`.*")
            warnings.filterwarnings(
                "ignore", message=".*LeafSpec.*", category=FutureWarning
            )  # theirs, of torch
            yield
    finally:
        for one, level in zip(loggers, levels, strict=True):
            one.setLevel(level)
