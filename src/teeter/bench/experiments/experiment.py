"""An experiment: the rows of a setting, whose labels are known, and learners that ask for them."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from teeter.base.seeds import stream
from teeter.bench.datasets.loading import load_dataset
from teeter.bench.datasets.splits import LabelledRows, make_long_tailed, take
from teeter.bench.experiments.run_folder import PHASES, Cell, Round
from teeter.bench.experiments.settings import Setting
from teeter.bench.fused_networks.program import make_program
from teeter.errors import InputError
from teeter.learner.learner import Learner
from teeter.models.networks import build_network_like
from teeter.models.observe import is_estimator
from teeter.training.batched_network import register_program
from teeter.training.metrics import find_metrics

__all__ = [
    "Experiment",
    "RowArray",
    "initial_rows",
]

# S-CNNs and K-CNNs of all experiments, also in worker processes, are trained by fused kernels.
register_program(make_program)


RowArray = npt.NDArray[np.int64]

_MAX_DEVICE_BYTES = 16 << 30
"""A dataset of at most this size is moved to a GPU as a whole."""


class Experiment:
    """The rows of a setting, the same for all its cells.

    It plays the annotator: it knows every label, and a learner gets those it asks for.

    Args:
        setting: what to run.
        folder: where datasets are looked for. Default: as ``teeter.bench.datasets`` does.
        device: where networks are trained.
        model: a model of your own, as ``teeter.Learner`` takes it, if the setting has one.

    Attributes:
        train: the pool, with all its labels.
        test: the rows that networks are evaluated on.
        validation: the rows that choose the best epoch, if the setting has any.
        classes: the number of classes.
    """

    def __init__(
        self,
        setting: Setting,
        folder: Path | None,
        device: torch.device,
        model: Any = None,
    ) -> None:
        split = load_dataset(
            setting.dataset,
            folder=folder,
            validation=setting.validation,
            seed=setting.seed,
            embeddings=setting.embeddings,
        )
        # Thin out the classes first: a sample of a long-tailed set is long-tailed too.
        train = split.train
        if setting.imbalance > 1:
            train = make_long_tailed(train, imbalance=setting.imbalance, seed=setting.seed)
        train = _draw_rows(train, setting.train, stream(setting.seed, "train"))

        # Not the setting's seed: all seeds are compared on the same test rows.
        test = _draw_rows(split.test, setting.test, stream(0, "test"))

        self.setting = setting
        self.device = device
        self.model = model
        self.metrics = find_metrics(setting.metrics)
        # scikit-learn takes rows from the memory of the CPU only.
        rows_device = device
        if is_estimator(model):
            rows_device = torch.device("cpu")
        self.train = _move_to_device(train, rows_device)
        self.test = _move_to_device(test, rows_device)
        self.validation: LabelledRows | None = None
        if split.validation is not None:
            self.validation = _move_to_device(split.validation, device)
        self.classes = len(split.classes)

    def require_runnable(self, rounds: int) -> None:
        """Check that the network takes the rows, and that there are enough rows to ask about.

        Raises:
            InputError: if not.
        """
        if self.setting.has_own_model != (self.model is not None):
            raise InputError(
                f"The network of {self.setting.name} is {self.setting.network!r}: pass a model if "
                "it is your own, and none otherwise."
            )
        # Building one, with any seed, is the check: it raises if the shapes do not fit.
        if self.model is None:
            build_network_like(self.setting.network, self.train.inputs, self.classes, 0)

        needed = self.setting.initial + rounds * self.setting.query
        if needed > len(self.train):
            raise InputError(
                f"{self.setting.name} needs {needed} training rows, but there are only "
                f"{len(self.train)}: lower final."
            )

    def make_learner(self, cell: Cell) -> Learner:
        """Return the learner of a cell with its initial labels.

        All strategies of a repetition start with the same labels and the same network.
        """
        setting = self.setting

        # By the repetition alone, so that strategies are paired: the same start for each of them.
        seed = stream(setting.seed, "repetition", cell.repetition).initial_seed()

        def build_network(network_seed: int) -> nn.Module:
            return build_network_like(
                setting.network,
                self.train.inputs,
                self.classes,
                network_seed,
            )

        validation = None
        if self.validation is not None:
            validation = (self.validation.inputs, self.validation.labels)

        learner = Learner(
            build_network if self.model is None else self.model,
            self.train.inputs,
            setting.strategy(cell.strategy),
            classes=self.classes,
            seed=seed,
            training=setting.training,
            validation=validation,
            pool_size=setting.pool,
            device=self.device,
        )

        balanced = None
        if setting.balanced:
            balanced = self.train.labels
        rows = initial_rows(len(self.train), setting.initial, seed, balanced=balanced)
        learner.tell(rows, self.train.labels[rows])
        return learner

    def evaluate_and_ask(self, learner: Learner, cell: Cell, number: int) -> Round:
        """Evaluate a fitted learner on the test rows, and ask it which rows to label next.

        In the last round of the setting, it is not asked.
        """
        # Without training, whose memory would hide that of most strategies.
        picks: list[int] = []
        _reset_peak_memory(self.device)
        evaluation = learner.evaluate(
            self.test.inputs, self.test.labels, metrics=list(self.metrics.values())
        )
        labelled = len(learner.pool.labelled)
        if number < self.setting.rounds:
            picks = learner.ask(self.setting.query).tolist()
        peak_memory = _read_peak_memory(self.device)

        record = learner.history[-1]
        seconds = {}
        for phase in PHASES:
            # Microseconds: more digits would only make the files longer.
            seconds[phase] = round(record.seconds.get(phase, 0.0), 6)

        return Round(
            strategy=cell.strategy,
            repetition=cell.repetition,
            number=number,
            labelled=labelled,
            accuracy=evaluation.accuracy,
            loss=evaluation.loss,
            picks=tuple(picks),
            seconds=seconds,
            peak_memory=peak_memory,
            validation=record.validation_accuracy,
            ensemble_accuracy=evaluation.ensemble_accuracy,
            metrics=dict(evaluation.metrics),
        )

    def tell_labels(self, learner: Learner, result: Round) -> None:
        """Tell a learner the labels of the rows that it picked in a round."""
        rows = list(result.picks)
        learner.tell(rows, self.train.labels[rows])


def initial_rows(
    size: int, count: int, seed: int, *, balanced: npt.NDArray[np.int64] | None = None
) -> RowArray:
    """Draw the rows that are labelled first.

    Args:
        size: the number of rows in the pool.
        count: how many to draw.
        seed: decides which.
        balanced: (size,) the class of every row. If given, all classes get equally many rows, as
            far as they have them.

    Returns:
        (count,) rows.

    Raises:
        InputError: if there are fewer than ``count`` rows.

    Example:
        >>> sorted(initial_rows(3, 3, seed=0).tolist())
        [0, 1, 2]
    """
    if not 1 <= count <= size:
        raise InputError(f"Cannot begin with {count} of {size} rows: ask for 1 to {size}.")

    # NumPy's generator, not torch's: committed results depend on these rows.
    generator = np.random.default_rng(stream(seed, "initial").initial_seed())
    order = generator.permutation(size).astype(np.int64)

    if balanced is not None:
        # First the first row of every class, then the second of every class, and so on.
        classes = balanced[order]
        rank = np.empty_like(classes)
        for label in np.unique(classes):
            positions = np.flatnonzero(classes == label)
            rank[positions] = np.arange(len(positions))
        order = order[np.argsort(rank, kind="stable")]
    return order[:count]


def _draw_rows(rows: LabelledRows, count: int | None, generator: torch.Generator) -> LabelledRows:
    """Draw ``count`` rows without changing their order, or return all."""
    if count is None or count >= len(rows):
        return rows

    order = torch.randperm(len(rows), generator=generator).numpy()
    drawn = np.sort(order[:count])
    return take(rows, drawn)


def _move_to_device(rows: LabelledRows, device: torch.device) -> LabelledRows:
    """Move rows to a device, if they are a tensor that fits."""
    inputs = rows.inputs
    # Images on disk, or kept as bytes, are converted row by row and moved batch by batch.
    if not isinstance(inputs, torch.Tensor) or not inputs.is_floating_point():
        return rows
    if inputs.nbytes > _MAX_DEVICE_BYTES:
        return rows
    return replace(rows, inputs=inputs.to(device))


_CLEAR_REFS = Path("/proc/self/clear_refs")
_STATUS = Path("/proc/self/status")

_RESET_PEAK = "5"
"""What Linux takes in ``clear_refs`` to reset the peak of the resident memory."""


def _reset_peak_memory(device: torch.device) -> None:
    """Begin to measure the peak memory: of a GPU, or of the whole process on a CPU."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return

    # Without the reset, the peak would be that of the process since its start.
    with contextlib.suppress(OSError):
        _CLEAR_REFS.write_text(_RESET_PEAK, encoding="utf-8")


def _read_peak_memory(device: torch.device) -> int:
    """Return the peak memory since the reset, or 0 if the system does not report it."""
    if device.type == "cuda":
        # Counts torch's own allocations, so other processes on the GPU do not matter.
        return int(torch.cuda.max_memory_allocated(device))

    with contextlib.suppress(OSError):
        for line in _STATUS.read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                kibibytes = int(line.split()[1])
                return kibibytes * 1024
    return 0
