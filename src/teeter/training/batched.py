"""Many small networks trained as one stack: each on its own rows, in its own order, with its own dropout.

A member learns what it would learn alone, but for rounding.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from teeter.errors import TrainingError
from teeter.models.inputs import materialize
from teeter.models.torch_model import prepare_batch
from teeter.seeds import stream
from teeter.training.batched_network import BatchedNetworks, DropoutMasks, can_batch
from teeter.training.config import (
    FitJob,
    TrainingConfig,
    balanced_row_weights,
    divergence_error,
    limit_threads,
    make_optimizer,
    shuffled_batches,
)

__all__ = ["fit_batched", "group_jobs"]

_WORTH_CAPTURING = 20
"""Steps from which a CUDA graph pays for its making."""

_WARM = 3
_VALIDATED = {"cuda": 512, "cpu": 64}
"""Validation rows at a time; on a CPU few enough that what a convolution leaves stays in its cache."""

_ROOM = {"cuda": 32 << 30, "cpu": 4 << 30}
"""Bytes that the weights, gradients, moments and rows of a stack may take: a fixed number, so that who is in a stack
does not hang on the memory of the day."""


def group_jobs(lessons: Sequence[FitJob]) -> tuple[list[list[FitJob]], list[FitJob]]:
    """Return lessons grouped into stacks, and those to be trained one by one, each in the order given."""
    groups: dict[Any, list[FitJob]] = {}
    alone = []
    for lesson in lessons:
        if _fits_a_stack(lesson):
            groups.setdefault(_kind(lesson), []).append(lesson)
        else:
            alone.append(lesson)
    return [part for group in groups.values() for part in _parts(group)], alone


def _fits_a_stack(lesson: FitJob) -> bool:
    return (
        isinstance(lesson.model, nn.Module)
        and can_batch([lesson.model])
        and not isinstance(lesson.inputs, Mapping)
    )


def _device(lesson: FitJob) -> torch.device:
    device: torch.device = next(lesson.model.parameters()).device
    return device


def _kind(lesson: FitJob) -> tuple[Any, ...]:
    """Return what lessons of one stack have in common."""
    judges = None if lesson.validation is None else id(lesson.validation[0])
    return (
        str(lesson.model),
        next(lesson.model.parameters()).dtype,
        len(lesson.labels),
        _device(lesson),
        judges,
    )


def _parts(group: list[FitJob]) -> list[list[FitJob]]:
    network, device = group[0].model, _device(group[0])
    each = 4 * sum(parameter.nbytes for parameter in network.parameters()) + getattr(
        group[0].inputs, "nbytes", 0
    )
    most = max(1, _ROOM.get(device.type, 4 << 30) // each)
    if device.type == "cpu" and any(isinstance(layer, nn.Conv2d) for layer in network):
        most = 1  # there convolutions of many members at once are slower than one after the other
    size = -(-len(group) // -(-len(group) // most))
    return [group[k : k + size] for k in range(0, len(group), size)]


def fit_batched(lessons: Sequence[FitJob], training: TrainingConfig) -> None:
    """Train the networks of lessons of one kind; each lesson gets its losses, its error and its share of the time."""
    started = time.perf_counter()
    course = _Course(lessons, training)
    judge = None if lessons[0].validation is None else _Judge(course.stack, *lessons[0].validation)
    orders = [stream(lesson.seed, "order") for lesson in lessons]
    losses = []
    size = sum(values.numel() for values in course.stack.parameters)
    with limit_threads(size * training.batch_size), _repeatable():
        for epoch in range(training.epochs):
            losses.append(course.epoch(orders))
            if judge is not None:
                judge.look(epoch)
    course.stack.write_back(course.stack.parameters if judge is None else judge.best)
    by_member = torch.stack(losses, dim=1).tolist()
    checking = 0.0 if judge is None else judge.seconds
    spent = time.perf_counter() - started - checking
    for k, lesson in enumerate(lessons):
        lesson.model.eval()
        lesson.losses, lesson.error = (
            by_member[k],
            divergence_error(by_member[k], training, course.inputs[k]),
        )
        if judge is not None:
            lesson.best_epoch, lesson.validated = (
                int(judge.epochs[k]),
                int(judge.right[k]) / len(judge.labels),
            )
        lesson.seconds = {"training": spent / len(lessons), "validation": checking / len(lessons)}


@contextmanager
def _repeatable() -> Iterator[None]:
    """Within it, convolutions on a GPU repeat themselves, which costs those of a stack nothing."""
    before = torch.backends.cudnn.deterministic
    torch.backends.cudnn.deterministic = True
    try:
        yield
    finally:
        torch.backends.cudnn.deterministic = before


class _Course:
    """A stack with its rows, labels and optimizer, which takes one step after the other."""

    def __init__(self, lessons: Sequence[FitJob], training: TrainingConfig) -> None:
        self.training, self.device = training, _device(lessons[0])
        networks = [lesson.model for lesson in lessons]
        self.stack = BatchedNetworks(networks)
        self.inputs = torch.stack(
            [prepare_batch(one.model, materialize(one.inputs), self.device) for one in lessons]
        )
        self.labels = torch.stack([lesson.labels for lesson in lessons]).to(self.device)
        weights = (
            [balanced_row_weights(lesson.labels) for lesson in lessons]
            if training.class_weighted
            else []
        )
        self.weights = torch.stack(weights).to(self.inputs) if weights else None
        self._require_rows_and_classes(networks[0])
        sizes = [
            len(batch)
            for batch in shuffled_batches(
                self.labels.shape[1], training.batch_size, torch.Generator()
            )
        ]
        self.sizes, self.width = sizes, max(sizes)
        on_gpu = self.device.type == "cuda"
        seeds = [stream(lesson.seed, "dropout").initial_seed() for lesson in lessons]
        self.masks = DropoutMasks(self.stack, seeds, self.width, self.inputs[0])
        self.optimizer = make_optimizer(self.stack.parameters, training, fused=True, on_gpu=on_gpu)
        self.schedule = torch.optim.lr_scheduler.MultiStepLR(
            self.optimizer, list(training.milestones), gamma=training.decay
        )
        self.members = torch.arange(len(lessons), device=self.device)[:, None]
        captures = (
            on_gpu and not training.milestones and len(sizes) * training.epochs >= _WORTH_CAPTURING
        )
        self._run: Callable[[Tensor], Tensor] = (
            _Graph(self).epoch if captures else self._plain_epoch
        )

    def _require_rows_and_classes(self, network: nn.Sequential) -> None:
        flat = not any(isinstance(layer, nn.Conv2d | nn.Flatten) for layer in network)
        if flat and self.inputs.ndim != 3:
            found = (*self.inputs.shape[1:-1], network[-1].out_features)
            raise TrainingError(
                f"{type(network).__name__} answers {found}: to be trained, it must answer (rows, classes)."
            )
        width, highest = self.stack.parameters[-1].shape[1], int(self.labels.max())
        if highest >= width:
            raise TrainingError(
                f"{type(network).__name__} answers with {width} classes, and the labels have {highest + 1}: "
                "make its last layer wider."
            )

    def epoch(self, orders: Sequence[torch.Generator]) -> Tensor:
        """Take every member through all its rows once, in an order of its own; return their mean losses (M,)."""
        drawn = torch.stack(
            [torch.randperm(self.labels.shape[1], generator=order) for order in orders]
        )
        losses = self._run(drawn)
        if self.training.milestones:
            self.schedule.step()
        return losses

    def _plain_epoch(self, order: Tensor) -> Tensor:
        total = torch.zeros(len(self.stack), device=self.device)
        for rows in order.split(self.sizes, dim=1):
            batch = rows.shape[1]
            self.masks.advance(batch)
            total += batch * self.step(rows.to(self.device), 1 / batch, self.masks.now(batch))
        return total / self.labels.shape[1]

    def step(self, rows: Tensor, shares: Tensor | float, masks: Iterator[Tensor]) -> Tensor:
        """Learn from rows (M, B), each of which counts with its share (B,) of the batch; return the losses (M,)."""
        logits = self.stack.logits(self.inputs[self.members, rows], masks)
        each = nn.functional.cross_entropy(
            logits.mT, self.labels[self.members, rows], reduction="none"
        )
        if self.weights is not None:
            each = each * self.weights[self.members, rows]
        losses = (each * shares).sum(dim=1)
        self.optimizer.zero_grad(set_to_none=True)
        losses.sum().backward()
        self.optimizer.step()
        return losses.detach()


class _Graph:
    """The steps of a course captured once as a CUDA graph and played again: the work without the waiting.

    Batches are filled up to one width with rows that do not count.
    """

    def __init__(self, course: _Course) -> None:
        self.course, device = course, course.device
        self.order = torch.zeros(
            (len(course.sizes), len(course.stack), course.width), dtype=torch.int64, device=device
        )
        self.shares = torch.zeros((len(course.sizes), course.width), device=device)
        for k, size in enumerate(course.sizes):
            self.shares[k, :size] = 1 / size
        self.counts = torch.tensor(course.sizes, dtype=torch.float32, device=device)
        self.at = torch.zeros(1, dtype=torch.int64, device=device)
        self.taken = 0
        self.total = torch.zeros(len(course.stack), device=device)
        self.graph: torch.cuda.CUDAGraph | None = None

    def epoch(self, order: Tensor) -> Tensor:
        """Take all steps of an epoch in the order (M, L)."""
        course = self.course
        parts = [
            nn.functional.pad(rows, (0, course.width - rows.shape[1]))
            for rows in order.split(course.sizes, dim=1)
        ]
        self.order.copy_(torch.stack(parts).pin_memory(), non_blocking=True)
        self.at.zero_()
        self.total.zero_()
        for _ in course.sizes:
            course.masks.advance(course.width)
            self._next()
        return self.total / course.labels.shape[1]

    def _next(self) -> None:
        if self.graph is not None:
            self.graph.replay()
        elif (
            self.taken < _WARM
        ):  # graphs want a few steps before them, on a stream that is not the main one
            aside, main = (
                torch.cuda.Stream(self.course.device),
                torch.cuda.current_stream(self.course.device),
            )
            aside.wait_stream(main)
            with torch.cuda.stream(aside):
                self._step()
            main.wait_stream(aside)
            self.taken += 1
        else:
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self._step()
            self.graph.replay()

    def _step(self) -> None:
        rows = self.order.index_select(0, self.at)[0]
        shares = self.shares.index_select(0, self.at)[0]
        self.total += self.course.step(
            rows, shares, self.course.masks.now(self.course.width)
        ) * self.counts.index_select(0, self.at)
        self.at += 1


class _Judge:
    """The weights that each member had after the epoch that was right on most validation rows."""

    def __init__(self, stack: BatchedNetworks, inputs: Any, labels: Tensor) -> None:
        device = stack.parameters[0].device
        self.stack, self.labels = stack, labels.to(device)
        self.inputs = prepare_batch(stack.networks[0], materialize(inputs), device)
        self.best = [values.detach().clone() for values in stack.parameters]
        self.right = torch.full((len(stack),), -1, device=device)
        self.epochs = torch.zeros(len(stack), dtype=torch.int64, device=device)
        self.seconds = 0.0

    def look(self, epoch: int) -> None:
        """Judge the stack as it is after ``epoch``."""
        _wait(self.labels.device)
        started = time.perf_counter()
        right, size = torch.zeros_like(self.right), _VALIDATED.get(self.labels.device.type, 64)
        with torch.no_grad():
            for rows, labels in zip(self.inputs.split(size), self.labels.split(size), strict=True):
                right += (self.stack.logits_of_all(rows).argmax(dim=2) == labels).sum(dim=1)
            better = right > self.right
            for kept, values in zip(self.best, self.stack.parameters, strict=True):
                kept[better] = values[better]
        self.right = torch.maximum(self.right, right)
        self.epochs = torch.where(better, epoch, self.epochs)
        _wait(self.labels.device)
        self.seconds += time.perf_counter() - started


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
