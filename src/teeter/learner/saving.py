"""Save a learner to one file, and load it: labels, networks, memory and settings.

The file is in the format of safetensors. Estimators are not written: a file that restores them
could run any code, so they are fitted again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from teeter.base.files import load_weights, merge_arrays, read_state, split_arrays, write_state
from teeter.errors import FileError, InputError
from teeter.learner.rounds import FitRecord, make_jobs
from teeter.strategies.api import make_strategy, strategy_options
from teeter.strategies.base import Strategy, registry
from teeter.training import Trainer, TrainingConfig, fit_estimator

if TYPE_CHECKING:
    from teeter.learner.learner import Learner


def save_learner(learner: Learner, path: Path) -> None:
    """Write settings, labels, networks and memory to one file: see ``Learner.save``."""
    state = learner.state
    training_rows = np.zeros(0, dtype=np.int64)
    training_classes = training_rows
    excluded_rows = training_rows
    if state.history:
        training_rows = state.history[-1].rows
        training_classes = state.history[-1].classes
        excluded_rows = state.history[-1].excluded

    # The names of tensors and header entries are the file format: "fitted" are the training
    # rows and those it ignored, "added" is the pending memory.
    tensors = {
        "labelled.rows": torch.from_numpy(learner.pool.labelled),
        "labelled.classes": torch.from_numpy(learner.pool.labels),
        "fitted.rows": torch.from_numpy(training_rows),
        "fitted.classes": torch.from_numpy(training_classes),
        "fitted.excluded": torch.from_numpy(excluded_rows),
    }
    for position, model in enumerate(state.models):
        if isinstance(model, nn.Module):
            for name, value in model.state_dict().items():
                tensors[f"model.{position}.{name}"] = value

    memory, memory_tensors = split_arrays(state.memory, "memory.")
    pending_memory, pending_tensors = split_arrays(state.pending_memory, "added.")
    tensors.update(memory_tensors)
    tensors.update(pending_tensors)
    training = None
    if isinstance(learner.training, TrainingConfig):
        training = asdict(learner.training)
    # The arguments of the constructor that a file can hold.
    settings = {
        "strategy": _name_and_options(learner.strategy),
        "cold_start": _name_and_options(learner.cold_start),
        "classes": learner.classes,
        "seed": learner.seed,
        "training": training,
        "pool_size": learner.pool_size,
        "members": learner.members,
        "passes": learner.passes,
        "batch_size": learner.batch_size,
        "head": learner.head,
    }
    header = {
        "settings": settings,
        "size": len(learner.pool),
        "rounds": state.rounds,
        "models": len(state.models),
        "memory": memory,
        "added": pending_memory,
    }
    write_state(path, header, tensors)


def load_learner(
    learner_class: type[Learner],
    path: Path,
    model: Callable[[int], Any] | Any,
    data: Any,
    *,
    validation: tuple[Any, Iterable[Any]] | None,
    training: Trainer | None,
    device: torch.device | str | None,
) -> Learner:
    """Return a learner that ``save_learner`` wrote: see ``Learner.load``."""
    header, tensors = read_state(path)
    if "settings" not in header:
        raise FileError(f"{path} is not a saved learner: it has no settings.")

    settings: dict[str, Any] = header["settings"]
    saved_training = settings["training"]
    if saved_training is None and training is None:
        raise InputError(
            f"{path} was saved with a custom trainer: pass that trainer again as training=."
        )
    if saved_training is not None and training is not None:
        raise InputError(f"{path} was saved with the built-in training loop: leave out training=.")
    if saved_training is not None:
        settings["training"] = TrainingConfig(**saved_training)
    else:
        settings["training"] = training

    # Strategies are written as their name and options.
    for name in ("strategy", "cold_start"):
        strategy_name, options = settings[name]
        settings[name] = make_strategy(strategy_name, options)
    learner = learner_class(model, data, validation=validation, device=device, **settings)
    if len(learner.pool) != header["size"]:
        raise InputError(
            f"{path} was saved with {header['size']} rows, but the data have "
            f"{len(learner.pool)}: load it with the same pool."
        )

    labelled_rows = tensors["labelled.rows"].numpy()
    labelled_classes = tensors["labelled.classes"].numpy()
    learner.pool.label(labelled_rows, labelled_classes)
    state = learner.state
    state.rounds = header["rounds"]
    state.memory = merge_arrays(header["memory"], tensors, "memory.")
    state.pending_memory = merge_arrays(header["added"], tensors, "added.")
    # Files from before pool heads exclude nothing.
    excluded = tensors.get("fitted.excluded", torch.zeros(0, dtype=torch.int64))
    if len(tensors["fitted.rows"]):  # none: it was resumed, and not fitted since
        # Only what the last fit used is in the file, not how it went.
        last_fit = FitRecord(
            state.rounds,
            tensors["fitted.rows"].numpy(),
            tensors["fitted.classes"].numpy(),
            excluded.numpy(),
        )
        state.history.append(last_fit)
    if header["models"]:
        # Networks get their weights, and estimators are fitted again as the last fit did.
        rows = tensors["fitted.rows"].numpy()
        classes = tensors["fitted.classes"].numpy()
        jobs = make_jobs(learner, rows, classes, learner.rounds, excluded.numpy())
        for position, job in enumerate(jobs):
            if isinstance(job.model, nn.Module):
                load_weights(job.model, tensors, f"model.{position}.")
            else:
                fit_estimator(job)
        learner.state.models = [job.model for job in jobs]
    return learner


def _name_and_options(strategy: Strategy) -> tuple[str, dict[str, Any]]:
    """Return what a file can hold of a strategy: its registered name, and its options."""
    name = registry.name_of(type(strategy))
    if name is None:
        raise InputError(
            f"{strategy.name} has no registered name, so it could not be loaded again: register "
            f"it with teeter.strategies.register before saving."
        )
    return name, strategy_options(strategy)
