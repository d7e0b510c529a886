"""Train many small networks of one architecture at once.

Why
    An active-learning experiment trains thousands of tiny networks: every strategy, repetition and
    round has one, and an ensemble has several. A step of such a network is a few small matrix
    products, so most of its time goes into starting operations, not into arithmetic. M networks in
    one tensor program start as many operations as one network does.

    Seconds to train M networks for 10 epochs of 500 rows in batches of 64, as measured by
    ``research/speed/bench_training.py`` (``results/training_cpu.json``, ``training_h200.json``):

    ========  =============  ==  ==========  =======  ========  ==============
    network   device          M  one by one  batched  speed-up  without graphs
    ========  =============  ==  ==========  =======  ========  ==============
    MLP       one CPU core    5        0.43    0.179       2.4
    MLP       one CPU core   50        5.49    1.023       5.4
    MLP       H200            5        0.73    0.030      25             0.147
    MLP       H200           50        8.22    0.076     108             0.210
    ========  =============  ==  ==========  =======  ========  ==============

    Milliseconds for a step of 64 rows, and for the logits of 512 validation rows, of small
    convolutional networks on an H200, by torch's layers and by fused kernels
    (``research/speed/bench_steps.py``, ``results/steps_h200.json``):

    ========  ==  ============  ===========  ========  ==================  =================
    network    M  torch, step   fused, step  speed-up  torch, validation   fused, validation
    ========  ==  ============  ===========  ========  ==================  =================
    S-CNN      5          1.64         0.47       3.5                 2.3               0.70
    S-CNN     50         12.07         2.39       5.1                19.2               2.07
    K-CNN      5          5.63         0.83       6.8                 3.8               0.78
    K-CNN     50         19.33         4.52       4.3                34.1               5.65
    ========  ==  ============  ===========  ========  ==================  =================

What is batched
    ``group_jobs`` puts jobs together whose networks have the same architecture, precision, device,
    number of rows and validation rows, as far as they fit into a fixed amount of memory. The
    weights of the members lie on top of each other, (M, ...), and each layer computes all members
    in one call (``batched_network.py``). The sum of the members' losses is backpropagated: a
    member's weights are in its own loss only, so each gets the gradient that it would get alone.
    The optimizers on offer work number by number, so one optimizer over the (M, ...) tensors takes
    the steps that M optimizers would take.

What stays separate
    A member learns what it would learn alone, up to rounding, whatever the others are. For that,
    everything random comes from streams named after its own seed:

    - the order of its rows, from ``stream(seed, "order")``, a new permutation for each epoch;
    - its dropout masks, from ``stream(seed, "dropout")``, one generator per member. This is what
      ``torch.func.vmap`` over stacked modules cannot do, and why the forward pass is our own;
    - its best epoch on the validation rows: ``_BestWeights`` compares and copies per member.

    A member whose loss becomes NaN spoils no other one: it only adds NaN to a sum whose gradient is
    computed term by term. The result of that member has the error.

CUDA graphs
    On a GPU, even one program for all members waits for Python, which starts each kernel. The table
    shows what recorded steps gain where that is most of the time (last column: without them). From
    ``_MIN_STEPS_TO_CAPTURE`` steps on, ``_CudaGraphEpoch`` records one training step as a CUDA
    graph and replays it. A graph repeats the same kernels on the same memory, hence three rules:

    - What changes from step to step is in tensors at fixed addresses: the row order of the epoch,
      the step number, the dropout masks. The step number is advanced by the graph itself.
    - All batches have the same width. A last, smaller batch is padded with rows of weight 0.
    - With torch's optimizers the learning rate is part of the recording, so training with a
      changing rate is not recorded. Fused networks read theirs from a tensor.

Fused networks
    torch computes the convolutions of M networks as one convolution with M groups, which leaves
    most of a GPU idle. The benchmark registers fused kernels for S-CNN and K-CNN of the paper
    (``teeter.bench.fused_networks``), which take the steps instead where Triton and a GPU with
    bfloat16 are at hand; ``choose_program`` decides.

On a CPU
    Linear layers gain as on a GPU. Convolutions do not: one convolution with M groups is slower
    than M convolutions one after the other. ``group_jobs`` therefore leaves each network with
    convolutions in a group of its own.

State
    The weights, ``program.parameters``, are changed in place by the ``step`` of the program, which
    holds references to them, and by nothing else. ``_BestWeights`` reads them after each epoch and
    has copies of its own. ``_CudaGraphEpoch`` takes the same step
    on tensors that are overwritten before each epoch, because a graph reads fixed addresses. The
    networks of the jobs are read at the start and written once, at the end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from teeter.base.seeds import stream
from teeter.base.threads import limit_threads
from teeter.errors import TrainingError
from teeter.models.inputs import materialize
from teeter.models.torch_model import prepare_batch
from teeter.training.batched_network import BatchedProgram, can_batch, choose_program
from teeter.training.config import (
    FitJob,
    FitResult,
    TrainingConfig,
    balanced_row_weights,
    divergence_error,
    shuffled_batches,
    training_threads,
)

__all__ = [
    "fit_batched",
    "group_jobs",
]

_MIN_STEPS_TO_CAPTURE = 20
"""Training steps from which recording a CUDA graph pays off."""

_WARM_UP_STEPS = 3
"""Steps before a CUDA graph is recorded, in which libraries allocate what they need."""

_VALIDATION_BATCH_SIZE = {
    "cuda": 512,
    "cpu": 64,
}
"""Validation rows at a time; on a CPU so few that a convolution's outputs stay in its cache."""

_MEMORY_LIMIT = {
    "cuda": 32 << 30,
    "cpu": 4 << 30,
}
"""Bytes that the members and rows of a group may take.

A constant, so that grouping does not depend on the memory that is free at run time."""


def group_jobs(jobs: Sequence[FitJob]) -> tuple[list[list[FitJob]], list[FitJob]]:
    """Decide which jobs are trained together.

    Returns:
        Groups of jobs for ``fit_batched``, and the jobs that must be trained alone, each in the
        order given.
    """
    jobs_by_key: dict[tuple[Hashable, ...], list[FitJob]] = {}
    single_jobs = []
    for job in jobs:
        is_network = isinstance(job.model, nn.Module) and can_batch([job.model])
        if is_network and not isinstance(job.inputs, Mapping):
            parameter = next(job.model.parameters())
            # The identity of the validation rows: all models of a learner share theirs, and
            # comparing contents would take longer than it gains.
            validation_inputs = None
            if job.validation is not None:
                validation_inputs = id(job.validation[0])

            # The text of a network names every layer with its sizes.
            architecture = str(job.model)
            n_rows = len(job.labels)
            key = architecture, parameter.dtype, parameter.device, n_rows, validation_inputs
            same_kind = jobs_by_key.setdefault(key, [])
            same_kind.append(job)
        else:
            single_jobs.append(job)

    groups = []
    for same_kind in jobs_by_key.values():
        groups += _split_by_memory(same_kind)
    return groups, single_jobs


def _split_by_memory(jobs: list[FitJob]) -> list[list[FitJob]]:
    """Split jobs of one kind into groups of about equal size, each within the memory limit."""
    network = jobs[0].model
    device = _device_of(jobs[0])

    # Weights, gradients and the two moments of Adam, then the rows.
    weight_bytes = sum(parameter.nbytes for parameter in network.parameters())
    row_bytes = getattr(jobs[0].inputs, "nbytes", 0)
    bytes_per_job = 4 * weight_bytes + row_bytes
    memory_limit = _value_for(device, _MEMORY_LIMIT)
    max_size = max(1, memory_limit // bytes_per_job)

    has_convolutions = any(isinstance(layer, nn.Conv2d) for layer in network)
    if device.type == "cpu" and has_convolutions:
        max_size = 1

    # As few groups as possible, then as equal as possible: 7 jobs of at most 5 become 4 and 3.
    group_count = _ceil_divide(len(jobs), max_size)
    size = _ceil_divide(len(jobs), group_count)

    starts = range(0, len(jobs), size)
    return [jobs[start : start + size] for start in starts]


def _value_for(device: torch.device, values: Mapping[str, int]) -> int:
    """Return the value for a type of device. Types that are not listed are treated like a CPU."""
    return values.get(device.type, values["cpu"])


def _ceil_divide(count: int, size: int) -> int:
    return -(-count // size)


def _device_of(job: FitJob) -> torch.device:
    parameter = next(job.model.parameters())
    device: torch.device = parameter.device
    return device


def fit_batched(jobs: Sequence[FitJob], config: TrainingConfig) -> list[FitResult]:
    """Train the networks of a group from ``group_jobs`` together.

    Returns:
        A result for each job. Its seconds are an equal share of the group's.

    Raises:
        TrainingError: if the rows or labels do not fit the networks. A loss that diverges is the
            ``error`` of one result instead.
    """
    started = time.perf_counter()
    trainer = _BatchedTrainer(jobs, config)
    best = None
    if jobs[0].validation is not None:
        validation_inputs, validation_labels = jobs[0].validation
        best = _BestWeights(trainer.program, validation_inputs, validation_labels)

    row_orders = [stream(job.seed, "order") for job in jobs]
    parameter_count = sum(values.numel() for values in trainer.program.parameters)
    threads = training_threads(parameter_count, config.batch_size)
    epoch_losses = []  # (M,) each
    with limit_threads(threads), _deterministic_convolutions():
        for epoch in range(config.epochs):
            epoch_losses.append(trainer.train_epoch(row_orders))
            if best is not None:
                best.update(epoch)

    # Until here the networks of the jobs still have their initial weights. Without validation rows
    # those of the last epoch count.
    final_weights = trainer.program.parameters
    validation_seconds = 0.0
    if best is not None:
        final_weights = best.weights
        validation_seconds = best.stopwatch.total()
    trainer.program.write_back(final_weights)

    # Losses stay on the device until now: reading them after every epoch would make a GPU wait.
    losses_by_member = torch.stack(epoch_losses, dim=1).tolist()
    training_seconds = time.perf_counter() - started - validation_seconds

    results = []
    for member, job in enumerate(jobs):
        job.model.eval()
        losses = losses_by_member[member]
        best_epoch = None
        validation_accuracy = None
        if best is not None:
            best_epoch = int(best.epochs[member])
            validation_accuracy = best.accuracy(member)

        result = FitResult(
            model=job.model,
            losses=losses,
            best_epoch=best_epoch,
            validation_accuracy=validation_accuracy,
            seconds={
                "training": training_seconds / len(jobs),
                "validation": validation_seconds / len(jobs),
            },
            error=divergence_error(losses, config, trainer.inputs[member]),
        )
        results.append(result)

    return results


@contextmanager
def _deterministic_convolutions() -> Iterator[None]:
    """Let cuDNN choose repeatable convolutions. Those of a batch are no slower for it."""
    setting_before = torch.backends.cudnn.deterministic
    torch.backends.cudnn.deterministic = True
    try:
        yield
    finally:
        torch.backends.cudnn.deterministic = setting_before


class _BatchedTrainer:
    """M members with their rows, labels and the program that trains them.

    Rows, labels and row weights never change. ``step`` changes the weights of the members and the
    state of the optimizer.
    """

    def __init__(self, jobs: Sequence[FitJob], config: TrainingConfig) -> None:
        self.config = config
        self.device = _device_of(jobs[0])
        self.member_count = len(jobs)

        # (M, L, ...) rows, (M, L) labels, and (M, L) weights of rows or None. L is the same for
        # all members: group_jobs sees to it.
        inputs = []
        for job in jobs:
            rows = materialize(job.inputs)
            inputs.append(prepare_batch(job.model, rows, self.device))
        self.inputs = torch.stack(inputs)
        labels = torch.stack([job.labels for job in jobs])
        self.labels = labels.to(self.device)
        self.row_weights: Tensor | None = None
        if config.class_weighted:
            row_weights = [balanced_row_weights(job.labels) for job in jobs]
            self.row_weights = torch.stack(row_weights).to(self.inputs)
        self._require_matching_shapes(jobs[0].model)

        # All members have the same number of rows, so their batches have the same sizes.
        self.row_count = self.labels.shape[1]
        batches = shuffled_batches(self.row_count, config.batch_size, torch.Generator())
        self.batch_sizes = [len(batch) for batch in batches]
        self.max_batch_size = max(self.batch_sizes)

        self.program: BatchedProgram = choose_program(
            [job.model for job in jobs],
            config,
            dropout_seeds=[stream(job.seed, "dropout").initial_seed() for job in jobs],
            batch_size=self.max_batch_size,
            rows=self.inputs[0],
        )

        # (M, 1): with rows (M, B) it indexes the rows of each member.
        member_numbers = torch.arange(len(jobs), device=self.device)
        self.members = member_numbers[:, None]

        self.epoch = 0
        step_count = len(self.batch_sizes) * config.epochs
        is_worth_it = step_count >= _MIN_STEPS_TO_CAPTURE
        self._run_epoch: Callable[[Tensor], Tensor] = self._run_plain_epoch
        can_record = self.program.rate_is_tensor or config.has_constant_rate
        if self.device.type == "cuda" and is_worth_it and can_record:
            self._run_epoch = _CudaGraphEpoch(self).run

    def _require_matching_shapes(self, network: nn.Sequential) -> None:
        """Refuse rows that do not give (rows, classes), and labels beyond the last class."""
        name = type(network).__name__

        # Without these layers, all axes of a row but the last reach the output.
        flattens = any(isinstance(layer, nn.Conv2d | nn.Flatten) for layer in network)
        if not flattens and self.inputs.ndim != 3:
            leading_sizes = self.inputs.shape[1:-1]
            output_shape = (*leading_sizes, network[-1].out_features)
            raise TrainingError(
                f"{name} returns {output_shape}: to be trained, it must return (rows, classes)."
            )

        last_layer: Any = network[-1]
        class_count = int(last_layer.out_features)
        highest_label = int(self.labels.max())
        if highest_label >= class_count:
            raise TrainingError(
                f"{name} returns {class_count} classes, but the labels have {highest_label + 1}: "
                "make its last layer wider."
            )

    def train_epoch(self, row_orders: Sequence[torch.Generator]) -> Tensor:
        """Train every member on all its rows once, in its own order. Return mean losses (M,)."""
        orders = [torch.randperm(self.row_count, generator=order) for order in row_orders]
        losses = self._run_epoch(torch.stack(orders))  # from (M, L)
        self.epoch += 1
        factor = self.config.rate_factor(self.epoch)
        if factor != 1:
            self.program.scale_learning_rate(factor)
        return losses

    def _run_plain_epoch(self, order: Tensor) -> Tensor:
        """Take all steps of an epoch in the row order (M, L). Return mean losses (M,)."""
        total_losses = torch.zeros(self.member_count, device=self.device)
        for rows in order.split(self.batch_sizes, dim=1):
            batch_size = rows.shape[1]
            self.program.advance(batch_size)
            shares = self.inputs.new_full((batch_size,), 1 / batch_size)
            batch_losses = self.step(rows.to(self.device), shares)
            total_losses += batch_size * batch_losses

        # The mean over rows: the last batch may be smaller than the others.
        return total_losses / self.row_count

    def step(self, rows: Tensor, shares: Tensor) -> Tensor:
        """Take one training step of all members.

        Args:
            rows: (M, B) positions of the rows in ``self.inputs``.
            shares: (B,) the weight of each row in the mean over the batch.

        Returns:
            (M,) the mean loss of the batch before the step.
        """
        labels = self.labels[self.members, rows]  # (M, B)
        member_shares = shares.expand_as(rows)
        if self.row_weights is not None:
            member_shares = member_shares * self.row_weights[self.members, rows]
        return self.program.step(self.inputs, rows, labels, member_shares)


class _CudaGraphEpoch:
    """One training step recorded as a CUDA graph and replayed for all others.

    Every tensor that the recorded step reads or writes is allocated once and keeps its address.
    """

    def __init__(self, trainer: _BatchedTrainer) -> None:
        self.trainer = trainer
        device = trainer.device
        step_count = len(trainer.batch_sizes)
        member_count = trainer.member_count

        # (steps, M, B) the rows of each step of an epoch, overwritten before each epoch.
        max_batch_size = trainer.max_batch_size
        self.order = torch.zeros(
            (step_count, member_count, max_batch_size),
            dtype=torch.int64,
            device=device,
        )

        # (steps, B) the weight of each of them: 1 / batch size, and 0 for the padding of a smaller
        # batch. (steps,) how many of them are not padding. Both are the same in every epoch.
        self.shares = torch.zeros((step_count, max_batch_size), device=device)
        for step, batch_size in enumerate(trainer.batch_sizes):
            self.shares[step, :batch_size] = 1 / batch_size
        self.batch_sizes = torch.tensor(
            trainer.batch_sizes,
            dtype=torch.float32,
            device=device,
        )

        # Set to 0 before each epoch and advanced by the recorded step itself.
        self.step_number = torch.zeros(1, dtype=torch.int64, device=device)
        self.total_losses = torch.zeros(member_count, device=device)

        self.warm_up_steps = 0
        self.graph: torch.cuda.CUDAGraph | None = None

    def run(self, order: Tensor) -> Tensor:
        """Take all steps of an epoch in the row order (M, L). Return mean losses (M,)."""
        trainer = self.trainer
        padded = []
        for rows in order.split(trainer.batch_sizes, dim=1):
            missing = trainer.max_batch_size - rows.shape[1]
            padded.append(nn.functional.pad(rows, (0, missing)))

        # Pinned memory, so that the copy does not wait for the steps that are still running.
        self.order.copy_(torch.stack(padded).pin_memory(), non_blocking=True)
        self.step_number.zero_()
        self.total_losses.zero_()

        for _ in trainer.batch_sizes:
            trainer.program.advance(trainer.max_batch_size)
            # Warm up first, then record the step once, and replay it from then on.
            if self.graph is not None:
                self.graph.replay()
            elif self.warm_up_steps < _WARM_UP_STEPS:
                # Take a step on a side stream, which torch requires before a recording.
                main_stream = torch.cuda.current_stream(self.trainer.device)
                side_stream = torch.cuda.Stream(self.trainer.device)

                side_stream.wait_stream(main_stream)
                with torch.cuda.stream(side_stream):
                    self._step()
                main_stream.wait_stream(side_stream)
                self.warm_up_steps += 1
            else:
                self.graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(self.graph):  # records the step without taking it
                    self._step()
                self.graph.replay()
        return self.total_losses / trainer.row_count

    def _step(self) -> None:
        """Take the step of ``step_number``.

        Only tensors at fixed addresses are read and written.
        """
        trainer = self.trainer
        rows = self.order.index_select(0, self.step_number)[0]  # (M, B)
        shares = self.shares.index_select(0, self.step_number)[0]  # (B,)
        batch_size = self.batch_sizes.index_select(0, self.step_number)  # (1,)

        losses = trainer.step(rows, shares)
        self.total_losses += losses * batch_size
        self.step_number += 1


class _BestWeights:
    """The weights of each member after the epoch with the most correct validation rows.

    ``weights`` are copies, changed in place by ``update``: new copies after every epoch would take
    twice the memory.
    """

    def __init__(
        self,
        program: BatchedProgram,
        inputs: Any,
        labels: Tensor,
    ) -> None:
        device = program.parameters[0].device
        member_count = len(program.networks)
        self.program = program
        rows = materialize(inputs)
        self.inputs = prepare_batch(program.networks[0], rows, device)  # (V, ...)
        self.labels = labels.to(device)  # (V,)

        # Like program.parameters: (M, ...) each.
        self.weights = [values.detach().clone() for values in program.parameters]

        # (M,) correct validation rows of these weights, and the epoch that they are from. Any
        # number of correct rows is more than -1, so the first epoch always counts.
        self.correct_rows = torch.full((member_count,), -1, device=device)
        self.epochs = torch.zeros(member_count, dtype=torch.int64, device=device)
        self.stopwatch = _Stopwatch(device)

    def accuracy(self, member: int) -> float:
        """Return the share of validation rows that a member's best weights classify correctly."""
        correct = int(self.correct_rows[member])
        return correct / len(self.labels)

    def update(self, epoch: int) -> None:
        """Copy the weights of the members that are better after ``epoch`` than ever before."""
        batch_size = _value_for(self.labels.device, _VALIDATION_BATCH_SIZE)
        row_parts = self.inputs.split(batch_size)
        label_parts = self.labels.split(batch_size)
        correct_rows = torch.zeros_like(self.correct_rows)
        with torch.no_grad(), self.stopwatch:
            for rows, labels in zip(row_parts, label_parts, strict=True):
                predictions = self.program.shared_logits(rows).argmax(dim=2)  # (M, part)
                correct_rows += (predictions == labels).sum(dim=1)

            # Of equally good epochs the first one stays. Everything stays on the device: asking
            # which members are better would make a GPU wait.
            is_better = correct_rows > self.correct_rows  # (M,)
            for best, current in zip(self.weights, self.program.parameters, strict=True):
                trailing = [1] * (current.ndim - 1)
                mask = is_better.view(-1, *trailing)
                torch.where(mask, current, best, out=best)

            self.correct_rows = torch.maximum(self.correct_rows, correct_rows)
            self.epochs = torch.where(is_better, epoch, self.epochs)


class _Stopwatch:
    """Adds up the time of blocks of work. On a GPU it never waits for the work until ``total``."""

    def __init__(self, device: torch.device) -> None:
        self._on_gpu = device.type == "cuda"
        self._seconds = 0.0
        self._started = 0.0
        self._events: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    def __enter__(self) -> None:
        if not self._on_gpu:
            self._started = time.perf_counter()
            return
        start = torch.cuda.Event(enable_timing=True)
        end = torch.cuda.Event(enable_timing=True)
        start.record()
        self._events.append((start, end))

    def __exit__(self, *error: object) -> None:
        if self._on_gpu:
            _, end = self._events[-1]
            end.record()
        else:
            self._seconds += time.perf_counter() - self._started

    def total(self) -> float:
        """Return the seconds of all blocks."""
        if self._on_gpu:
            torch.cuda.synchronize()
        milliseconds = sum(float(start.elapsed_time(end)) for start, end in self._events)
        return self._seconds + milliseconds / 1000
