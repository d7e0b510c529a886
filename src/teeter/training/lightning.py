"""Train Lightning modules by Lightning's own trainer: their steps, optimizers and schedules."""

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

from teeter.base.registry import require_options
from teeter.base.seeds import stream
from teeter.errors import InputError, MissingExtraError, TrainingError
from teeter.models.inputs import adapt_to, as_one_batch, count_rows, take_rows
from teeter.models.torch_model import prepare_batch
from teeter.training.config import FitJob, FitResult, Trainer, shuffled_batches

__all__ = ["LightningTraining"]

try:
    import lightning.pytorch as lightning
except ModuleNotFoundError as error:
    # Anything else that is missing is a broken installation and not a missing extra.
    library, _, _ = (error.name or "").partition(".")
    if library != "lightning":
        raise
    raise MissingExtraError("This needs Lightning: pip install 'teeter[lightning]'.") from None


_DEFAULTS = {
    "logger": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "log_every_n_steps": 1,
    "inference_mode": False,  # its tensors could not be trained on later
}


class LightningTraining(Trainer):
    """How a ``teeter.Learner`` trains Lightning modules.

    Pass it as ``training=LightningTraining(max_epochs=20)``. A module's ``training_step`` gets
    batches (inputs, classes). So does its ``validation_step``, if it has one and the learner has
    validation rows.
    """

    def __init__(self, *, batch_size: int = 64, **trainer: Any) -> None:
        """Check and store the settings.

        Args:
            batch_size: rows of a step, of validation too.
            **trainer: what ``lightning.Trainer`` takes. It shows and writes nothing unless asked to
                here. Every fit gets copies of the ``callbacks``, so that early stopping starts
                afresh in each round.
        """
        if not isinstance(batch_size, int | np.integer) or batch_size < 1:
            raise InputError(
                f"The batch size is {batch_size}: it must be a whole number, 1 or more."
            )

        option_names = list(inspect.signature(lightning.Trainer.__init__).parameters)
        option_names.remove("self")
        require_options("Lightning's trainer", trainer, option_names)

        self.batch_size = batch_size
        self.trainer = trainer

    def train(self, job: FitJob) -> FitResult:
        """Train a Lightning module on its labelled rows.

        Raises:
            InputError: if the model is not a Lightning module.
            TrainingError: if its weights became NaN or infinite.
        """
        module = job.model
        library = _library_of(module)
        device = next(module.parameters()).device

        with _quiet_lightning(), _python_interrupts():
            # Callbacks have state, such as the best score so far: each fit gets fresh ones.
            callbacks = copy.deepcopy(self.trainer.get("callbacks")) or []
            if not isinstance(callbacks, list):
                callbacks = [callbacks]

            # Lightning writes checkpoints to the working directory unless they are switched off,
            # and refuses a callback that saves them if they are.
            checkpoint_class = library.callbacks.Checkpoint
            saves_checkpoints = any(isinstance(item, checkpoint_class) for item in callbacks)

            # The user's settings replace these defaults. Only the callbacks are the copies above.
            options = {
                **_DEFAULTS,
                "enable_checkpointing": saves_checkpoints,
                "accelerator": device.type,
                "devices": 1 if device.type == "cpu" else [device.index or 0],
                **self.trainer,
                "callbacks": callbacks,
            }
            trainer = library.Trainer(**options)

            # batch_size=None: the sampler yields whole batches, in an order that the seed decides,
            # and the dataset takes a list of rows.
            dataset = _RowDataset(job.model, job.inputs, job.labels)
            sampler = _EpochSampler(len(dataset), self.batch_size, job.seed)
            trainer.fit(
                module,
                DataLoader(dataset, batch_size=None, sampler=sampler),
                self._validation_loader(job, library),
            )

        # The trainer would keep the labelled rows in memory.
        module.trainer = None
        is_finite = all(bool(weights.isfinite().all()) for weights in module.parameters())
        if not is_finite:
            raise TrainingError(
                "The weights became NaN or infinite: lower the learning rate, or scale the inputs."
            )
        return FitResult(module)

    def _validation_loader(self, job: FitJob, library: Any) -> DataLoader[Any] | None:
        """Return a loader of the validation rows in order, or None if nothing would read them."""
        base_step = library.LightningModule.validation_step
        has_validation_step = type(job.model).validation_step is not base_step
        if job.validation is None or not has_validation_step:
            return None

        inputs, labels = job.validation
        dataset = _RowDataset(job.model, inputs, labels)
        positions = torch.arange(len(dataset))
        batches = [rows.tolist() for rows in positions.split(self.batch_size)]
        return DataLoader(dataset, batch_size=None, sampler=batches)


class _RowDataset(Dataset[Any]):
    """Rows and classes. An index is a list of rows, and an item a batch of them."""

    def __init__(self, module: nn.Module, inputs: Any, labels: Tensor) -> None:
        self.module = module
        self.inputs = adapt_to(inputs, module)
        self.labels = labels

    def __len__(self) -> int:
        return count_rows(self.inputs)

    def __getitem__(self, rows: list[int]) -> tuple[Any, Tensor]:
        inputs = take_rows(self.inputs, np.array(rows))
        batch = as_one_batch(inputs)

        # On the CPU: Lightning moves batches to its device itself.
        prepared = prepare_batch(self.module, batch, torch.device("cpu"))
        return prepared, self.labels[rows]


class _EpochSampler:
    """Batches of rows, in a new random order each epoch."""

    def __init__(self, rows: int, batch_size: int, seed: int) -> None:
        self.rows = rows
        self.batch_size = batch_size
        self.generator = stream(seed, "order")

    def __len__(self) -> int:
        # Counting must not move the generator that decides the order.
        any_order = torch.Generator()
        batches = list(shuffled_batches(self.rows, self.batch_size, any_order))
        return len(batches)

    def __iter__(self) -> Iterator[list[int]]:
        for batch in shuffled_batches(self.rows, self.batch_size, self.generator):
            yield batch.tolist()


def _library_of(module: nn.Module) -> Any:
    """Return the library that a module comes from.

    ``lightning.pytorch`` and ``pytorch_lightning`` are the same code under two names, and neither
    accepts modules of the other.
    """
    for cls in type(module).__mro__:
        if cls.__name__ == "LightningModule":
            if cls.__module__.startswith("pytorch_lightning."):
                return import_module("pytorch_lightning")
            return lightning

    raise InputError(
        f"{type(module).__name__} is not a LightningModule: train it with teeter.TrainingConfig "
        "instead."
    )


@contextmanager
def _python_interrupts() -> Iterator[None]:
    """Raise KeyboardInterrupt on Ctrl-C while Lightning trains, and restore the signal's handler.

    Lightning would end the process, and ignore every later Ctrl-C.
    """
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    except SystemExit as exit_error:
        if not isinstance(exit_error.__context__, KeyboardInterrupt):
            raise
        signal.signal(signal.SIGINT, handler)
        raise KeyboardInterrupt from None


@contextmanager
def _quiet_lightning() -> Iterator[None]:
    """Hide Lightning's messages on devices, and its warnings on workers and missing validation."""
    loggers = [logging.getLogger(name) for name in ("lightning.pytorch", "pytorch_lightning")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.WARNING)

    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*does not have many workers.*")
            warnings.filterwarnings("ignore", message=".*have no `val_dataloader`.*")
            # Lightning uses a name that torch has deprecated.
            warnings.filterwarnings("ignore", message=".*LeafSpec.*", category=FutureWarning)
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
