"""Train models: choose between alone and batched, and the loop that trains one network alone."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from teeter.base.arrays import choose_device
from teeter.base.seeds import seeded_global_rng, stream
from teeter.base.threads import limit_threads
from teeter.errors import InputError, TeeterError, TrainingError
from teeter.models.inputs import BatchedInputs, adapt_to, batches, materialize, take_rows
from teeter.models.sklearn_model import split_pipeline
from teeter.models.torch_model import call_model, extract_logits, prepare_batch
from teeter.training.batched import fit_batched, group_jobs
from teeter.training.config import (
    FitJob,
    FitResult,
    Trainer,
    TrainingConfig,
    balanced_row_weights,
    divergence_error,
    make_optimizer,
    shuffled_batches,
    training_threads,
)
from teeter.training.metrics import Metric

__all__ = [
    "Evaluation",
    "evaluate_logits",
    "explain_unusable_rows",
    "fit_estimator",
    "fit_jobs",
]

_LARGEST_LOSS = 1e8
"""A mean cross-entropy that no training ends with unless it diverged: the logits are as large."""

_VALIDATION_BATCH_SIZE = 1024

_PROBE_ROWS = 64
"""Rows on which a network is tested, before training for a softmax at its end, after it for use."""


def fit_jobs(jobs: Sequence[FitJob], training: TrainingConfig | Trainer) -> list[FitResult]:
    """Train the models of all jobs.

    Small networks of one architecture with equally many rows are trained together (see
    ``teeter.training.batched``), all other models one after the other.

    Args:
        jobs: what to train. Their models change in place.
        training: how torch modules are trained. Estimators have their own ``fit``.

    Returns:
        A result for each job, in the same order. If a job cannot be trained, its result has the
        ``error``, and the other jobs continue. Errors other than ``TeeterError`` are raised.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> network = nn.Sequential(nn.Linear(2, 2))
        >>> job = FitJob(network, torch.eye(2), torch.tensor([0, 1]), seed=0)
        >>> (result,) = fit_jobs([job], TrainingConfig(epochs=3))
        >>> len(result.losses)
        3
    """
    results: dict[FitJob, FitResult] = {}
    single_jobs = list(jobs)

    if isinstance(training, TrainingConfig):
        groups, single_jobs = group_jobs(jobs)
        for group in groups:
            try:
                group_results = fit_batched(group, training)
            except TeeterError as error:
                group_results = [FitResult(job.model, error=error) for job in group]
            results.update(zip(group, group_results, strict=True))

    for job in single_jobs:
        try:
            results[job] = _fit_alone(job, training)
        except TeeterError as error:
            results[job] = FitResult(job.model, error=error)

    return [_require_convergence(job, results[job], training) for job in jobs]


def _require_convergence(
    job: FitJob,
    result: FitResult,
    training: TrainingConfig | Trainer,
) -> FitResult:
    """Return the result of a job, with an error if its trained network is of no use."""
    network = result.model
    if result.error is not None or not isinstance(network, nn.Module):
        return result

    rows = np.arange(min(_PROBE_ROWS, len(job.labels)))
    device = _device_of(network)
    labels = job.labels[: len(rows)].to(device)
    inputs = _prepare_inputs(network, take_rows(job.inputs, rows), device)
    all_rows = torch.arange(len(rows), device=device)
    batch = _take_batch(network, inputs, all_rows)
    parameter_count = sum(parameter.numel() for parameter in network.parameters())
    threads = training_threads(parameter_count, len(rows))
    with limit_threads(threads), torch.no_grad():
        logits = extract_logits(call_model(network, batch))

    # The loop of another library may train a network whose output is something else.
    if not _is_class_matrix(logits):
        return result
    if int(labels.max()) >= logits.shape[1]:
        return result
    loss = float(nn.functional.cross_entropy(logits.float(), labels))
    # The losses of the epochs do not show it: they are those before each step.
    if loss < _LARGEST_LOSS:  # NaN is not
        return result

    advice = "lower the learning rate"
    if isinstance(training, TrainingConfig):
        advice = f"lower the learning rate from {training.learning_rate}"
    error = TrainingError(
        f"The loss diverged to {loss:.3g} by the end of training: {advice}, or scale the inputs."
    )
    return replace(result, error=error)


def _fit_alone(job: FitJob, training: TrainingConfig | Trainer) -> FitResult:
    """Train one model in the way that it needs, and measure the time."""
    started = time.perf_counter()

    if not isinstance(job.model, nn.Module):
        fit_estimator(job)
        result = FitResult(job.model)
    elif isinstance(training, Trainer):
        device = _device_of(job.model)
        # Other libraries draw from torch's global generator.
        dropout_seed = stream(job.seed, "dropout").initial_seed()
        with seeded_global_rng(dropout_seed, device):
            result = training.train(job)
        result.model.to(device).eval()
    else:
        result = _fit_network(job, training)

    validation_seconds = result.seconds.get("validation", 0.0)
    training_seconds = time.perf_counter() - started - validation_seconds
    return replace(
        result,
        seconds={
            "training": training_seconds,
            "validation": validation_seconds,
        },
    )


def fit_estimator(job: FitJob) -> None:
    """Fit a scikit-learn estimator in place.

    Raises:
        InputError: if the rows contain text or missing values that the estimator does not take.
    """
    # A network inside the estimator, as skorch has, draws from torch's global generator.
    with seeded_global_rng(job.seed, choose_device(None)):
        try:
            options = {}
            if job.pool is not None:
                options["pool"] = job.pool
            job.model.fit(job.inputs, job.labels.numpy(), **options)
        except TeeterError:
            raise
        except (TypeError, ValueError):
            # In words of ours if the cause is one that we know, and as it is otherwise.
            problem = explain_unusable_rows(job.inputs, job.model)
            if problem is None and job.pool is not None:
                problem = explain_unusable_rows(job.pool, job.model)
            if problem is not None:
                raise InputError(problem) from None
            raise


def _fit_network(job: FitJob, config: TrainingConfig) -> FitResult:
    """Train one network with the built-in loop.

    ``teeter.training.batched`` is the same loop for many networks: what changes here must change
    there, so that a network learns the same alone and in a batch.
    """
    network = job.model
    device = _device_of(network)
    if not any(parameter.requires_grad for parameter in network.parameters()):
        raise TrainingError(
            f"All parameters of {type(network).__name__} are frozen, so there is nothing to train."
        )

    # (L, ...) rows, (L,) labels, and (L,) weights of rows or None.
    inputs = _prepare_inputs(network, job.inputs, device)
    labels = job.labels.to(device)
    row_count = len(labels)
    highest_label = int(job.labels.max())
    row_weights = None
    if config.class_weighted:
        row_weights = balanced_row_weights(job.labels).to(device)

    optimizer = make_optimizer(network.parameters(), config)
    row_order = stream(job.seed, "order")
    best = None
    if job.validation is not None:
        validation_inputs, validation_labels = job.validation
        best = _BestCheckpoint(network, validation_inputs, validation_labels)

    # Dropout layers draw from torch's global generator, which is therefore seeded for this job.
    dropout_seed = stream(job.seed, "dropout").initial_seed()
    parameter_count = sum(parameter.numel() for parameter in network.parameters())
    threads = training_threads(parameter_count, config.batch_size)
    losses: list[float] = []
    with limit_threads(threads), seeded_global_rng(dropout_seed, device):
        probe_count = min(_PROBE_ROWS, row_count)
        probe_rows = torch.arange(probe_count, device=device)
        _require_logits(network, _take_batch(network, inputs, probe_rows))

        network.train()
        for epoch in range(config.epochs):
            total_loss = _train_epoch(
                network,
                optimizer,
                shuffled_batches(row_count, config.batch_size, row_order),
                inputs=inputs,
                labels=labels,
                row_weights=row_weights,
                highest_label=highest_label,
            )

            # The mean over rows: the last batch may be smaller than the others.
            losses.append(float(total_loss) / row_count)
            error = divergence_error(losses, config, inputs)
            if error is not None:
                return FitResult(network, losses, error=error)

            for group in optimizer.param_groups:
                group["lr"] *= config.rate_factor(epoch + 1)
            if best is not None:
                best.update(epoch)

    # Without validation rows the weights of the last epoch stay.
    if best is None:
        network.eval()
        return FitResult(network, losses)

    best.restore()
    network.eval()
    return FitResult(
        model=network,
        losses=losses,
        best_epoch=best.epoch,
        validation_accuracy=best.accuracy,
        seconds={"validation": best.seconds},
    )


def _train_epoch(
    network: nn.Module,
    optimizer: torch.optim.Optimizer,
    row_batches: Iterable[Tensor],
    *,
    inputs: Any,
    labels: Tensor,
    row_weights: Tensor | None,
    highest_label: int,
) -> Tensor:
    """Take one step for each batch of rows, and return the sum of the losses of all rows."""
    # On the device, and read once per epoch: reading each loss would make a GPU wait.
    total_loss = torch.zeros((), device=labels.device)

    for rows in row_batches:
        batch_rows = rows.to(labels.device)
        batch = _take_batch(network, inputs, batch_rows)
        logits = _forward(network, batch, len(rows))  # (B, C)
        _require_class_columns(network, logits, highest_label)
        batch_weights = None
        if row_weights is not None:
            batch_weights = row_weights[batch_rows]
        loss = _mean_loss(logits, labels[batch_rows], batch_weights)

        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        total_loss += loss.detach() * len(batch_rows)

    return total_loss


def _device_of(network: nn.Module) -> torch.device:
    """Return the device of a network that has anything to train."""
    parameter = next(network.parameters(), None)
    if parameter is None:
        raise TrainingError(
            f"{type(network).__name__} has no parameters, so there is nothing to train."
        )
    return parameter.device


def _prepare_inputs(
    network: nn.Module,
    inputs: Any,
    device: torch.device,
) -> Any:
    """Return rows as tensors on ``device``. Rows that encode their own batches stay as they are."""
    if isinstance(inputs, BatchedInputs):
        return adapt_to(inputs, network)
    return prepare_batch(network, materialize(inputs), device)


def _take_batch(
    network: nn.Module,
    inputs: Any,
    rows: Tensor,
) -> Any:
    """Return some rows of what ``_prepare_inputs`` returned, as the network takes them.

    Args:
        network: the network.
        inputs: a tensor, a mapping of tensors, or rows that encode their own batches.
        rows: (B,) positions, on the device of the network.
    """
    if isinstance(inputs, BatchedInputs):
        taken = inputs.take(rows.cpu().numpy())
        return prepare_batch(network, taken.as_one_batch(), rows.device)
    if isinstance(inputs, Mapping):
        return {name: part[rows] for name, part in inputs.items()}
    return inputs[rows]


def _require_logits(network: nn.Module, batch: Any) -> None:
    """Refuse a network that ends in a softmax: under a second one it would hardly learn."""
    network.eval()
    with torch.no_grad():
        output = extract_logits(call_model(network, batch))

    # Another shape has an error of its own, once training begins.
    if not _is_class_matrix(output):
        return

    # Logits sum to one in every row by a softmax only, not by chance.
    row_sums = output.sum(dim=1)
    sums_to_one = torch.allclose(row_sums, output.new_ones(()), atol=1e-4)
    if sums_to_one and bool((output >= 0).all()):
        raise TrainingError(
            f"{type(network).__name__} returns probabilities, but training needs logits: remove "
            f"its softmax."
        )


def _forward(
    network: nn.Module,
    batch: Any,
    rows: int,
) -> Any:
    """Return what the network answers to a batch in training mode: logits, if all is well."""
    try:
        return extract_logits(call_model(network, batch))
    except ValueError:
        # shuffled_batches avoids batches of one row, unless there is only one row in all.
        kinds = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
        normalizes = any(isinstance(module, kinds) for module in network.modules())
        if rows == 1 and normalizes:
            raise TrainingError(
                "Batch normalization cannot train on a batch of one row: label more rows."
            ) from None
        raise


def _is_class_matrix(output: Any) -> bool:
    """Return whether an output is (rows, classes), with two classes or more."""
    if not isinstance(output, Tensor) or output.ndim != 2:
        return False
    return output.shape[1] >= 2


def _require_class_columns(
    network: nn.Module,
    logits: Any,
    highest_label: int,
) -> None:
    """Refuse outputs that are not (rows, classes) with a column for every label."""
    name = type(network).__name__
    if not _is_class_matrix(logits):
        shape: Any = type(logits).__name__
        if isinstance(logits, Tensor):
            shape = tuple(logits.shape)
        raise TrainingError(
            f"{name} returns {shape}: to be trained, it must return (rows, classes)."
        )

    class_count = logits.shape[1]
    if highest_label >= class_count:
        raise TrainingError(
            f"{name} returns {class_count} classes, but the labels have {highest_label + 1}: "
            "make its last layer wider."
        )


def _mean_loss(
    logits: Tensor,
    labels: Tensor,
    row_weights: Tensor | None,
) -> Tensor:
    """Return the mean cross-entropy of logits (B, C), weighted by row (B,) if weights are given."""
    if row_weights is None:
        return nn.functional.cross_entropy(logits, labels)
    row_losses = nn.functional.cross_entropy(logits, labels, reduction="none")
    return (row_losses * row_weights).mean()


class _BestCheckpoint:
    """The weights of the epoch with the highest accuracy on the validation rows.

    The network is trained elsewhere. ``update`` copies its weights, and ``restore`` writes the best
    copy back.
    """

    def __init__(
        self,
        network: nn.Module,
        inputs: Any,
        labels: Tensor,
    ) -> None:
        self.network = network
        self.inputs = adapt_to(inputs, network)
        self.labels = labels
        self.epoch = 0
        self.accuracy = -1.0  # below any accuracy, so that the first epoch always counts
        self.seconds = 0.0
        self._state: dict[str, Tensor] = {}

    def update(self, epoch: int) -> None:
        """Save the current weights if they classify more rows correctly than all before."""
        started = time.perf_counter()
        device = _device_of(self.network)

        self.network.eval()
        predictions = []
        with torch.no_grad():
            for part in batches(self.inputs, _VALIDATION_BATCH_SIZE):
                batch = prepare_batch(self.network, part, device)
                logits = extract_logits(call_model(self.network, batch))
                predictions.append(logits.argmax(dim=1).cpu())
        self.network.train()

        # Of equally good epochs the first one stays.
        is_correct = torch.cat(predictions) == self.labels
        accuracy = float(is_correct.double().mean())
        if accuracy > self.accuracy:
            self.accuracy = accuracy
            self.epoch = epoch
            self._state = copy.deepcopy(self.network.state_dict())

        self.seconds += time.perf_counter() - started

    def restore(self) -> None:
        """Load the saved weights into the network."""
        self.network.load_state_dict(self._state)


@dataclass(frozen=True)
class Evaluation:
    """How well a model classifies labelled rows."""

    accuracy: float
    """The share of rows whose most probable class is the true one."""
    loss: float
    """The mean cross-entropy in nats: minus the log-probability of the true class."""
    rows: int
    """The number of rows evaluated."""
    ensemble_accuracy: float | None = None
    """The accuracy of an ensemble's mean probabilities. None for a single model."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Other metrics that were asked for, by name."""

    def by_name(self) -> dict[str, float]:
        """Return all that was measured, by the names of columns."""
        values = {"accuracy": self.accuracy, "loss": self.loss, **self.metrics}
        if self.ensemble_accuracy is not None:
            values["ensemble_accuracy"] = self.ensemble_accuracy
        return values


def evaluate_logits(
    logits: Tensor,
    labels: Tensor,
    posterior: Tensor | None = None,
    metrics: Mapping[str, Metric] | None = None,
) -> Evaluation:
    """Compare logits with the true classes.

    Args:
        logits: (N, C) of the model, or of the first member of an ensemble.
        labels: (N,) the true class numbers.
        posterior: (S, N, C) the logits of all S members of an ensemble.
        metrics: other metrics by name.

    Example:
        >>> import torch
        >>> evaluate_logits(torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 0])).accuracy
        0.5
    """
    # In float64: the mean of many float32 losses would round.
    predictions = logits.argmax(dim=1)
    accuracy = (predictions == labels).double().mean()
    loss = nn.functional.cross_entropy(logits.double(), labels)

    ensemble_accuracy = None
    if posterior is not None:
        # The mean of probabilities, not of logits: a member that is sure counts more.
        mean_probabilities = posterior.softmax(dim=2).mean(dim=0)
        is_correct = mean_probabilities.argmax(dim=1) == labels
        ensemble_accuracy = float(is_correct.double().mean())

    values = {}
    if metrics:
        probabilities = logits.double().softmax(dim=1).numpy()
        for name, metric in metrics.items():
            values[name] = float(metric(labels.numpy(), probabilities))

    return Evaluation(
        accuracy=float(accuracy),
        loss=float(loss),
        rows=len(labels),
        ensemble_accuracy=ensemble_accuracy,
        metrics=values,
    )


def explain_unusable_rows(data: Any, model: Any) -> str | None:
    """Return what is wrong with rows that a scikit-learn estimator refused.

    Args:
        data: the rows that it refused, in any form.
        model: the estimator, or a pipeline that ends in one. Its name is part of the message.

    Returns:
        One sentence if the rows contain text, missing or infinite values. None if they do not: the
        estimator's own error then says more.

    Example:
        >>> from sklearn.linear_model import LogisticRegression
        >>> explain_unusable_rows([[1.0], [2.0]], LogisticRegression()) is None
        True
        >>> explain_unusable_rows([[1.0], [float("nan")]], LogisticRegression())[:46]
        '1 of 2 rows contain missing or infinite values'
    """
    _, estimator = split_pipeline(model)
    name = type(estimator).__name__
    array = _as_array(data)
    if array is None:
        return None

    # Text arrays, and frames of mixed types, are not numeric.
    if array.dtype.kind not in "biufc":
        numbers = np.empty(array.shape)
        for position, value in np.ndenumerate(array):
            if value is None:
                numbers[position] = np.nan
                continue
            try:
                numbers[position] = float(value)
            except (TypeError, ValueError):
                return (
                    f"The data contain {str(value)!r}, but {name} takes only numbers: encode "
                    f"texts and categories first, for example with a vectorizer or an encoder in "
                    f"a pipeline."
                )
        array = numbers

    is_bad = ~np.isfinite(array)
    is_bad_row = is_bad.reshape(len(array), -1).any(axis=1)
    bad_rows = int(is_bad_row.sum())
    if bad_rows:
        return (
            f"{bad_rows} of {len(array)} rows contain missing or infinite values, which {name} "
            "does not take: fix or remove them, or put an imputer into a pipeline."
        )

    return None


def _as_array(data: Any) -> npt.NDArray[Any] | None:
    """Return rows as an array (N, ...), or None if they have no such form."""
    if isinstance(data, Mapping | Dataset):
        return None
    if isinstance(data, Tensor):
        return data.detach().cpu().numpy()
    if hasattr(data, "tocsr"):
        # A sparse matrix may be too large as an array. A row's sum is finite exactly if all its
        # values are (barring overflow).
        return np.asarray(data.sum(axis=1, dtype=np.float64))

    try:
        array = np.asarray(data)
    except ValueError:  # rows of different lengths
        return None
    if array.ndim == 0 or array.size == 0:
        return None
    return array
