"""Metrics of a classifier beside accuracy and loss: by name, or as functions of your own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from teeter.base.registry import import_object, require_known
from teeter.errors import InputError

__all__ = [
    "LOWER_IS_BETTER",
    "METRICS",
    "Metric",
    "balanced_accuracy",
    "calibration_error",
    "find_metrics",
    "macro_f1",
]

_Labels: TypeAlias = npt.NDArray[np.int64]
_Probabilities: TypeAlias = npt.NDArray[np.float64]

Metric: TypeAlias = Callable[[_Labels, _Probabilities], float]
"""Takes the true class numbers (N,) and the class probabilities (N, C)."""

LOWER_IS_BETTER = frozenset({"loss", "calibration_error"})

_BINS = 15


def macro_f1(labels: _Labels, probabilities: _Probabilities) -> float:
    """Return the mean F1 over the classes that are labels or predictions.

    Example:
        >>> macro_f1(np.array([0, 0, 1]), np.array([[0.9, 0.1], [0.2, 0.8], [0.4, 0.6]]))
        0.6666666666666666
    """
    hits, labelled, predicted = _counts(labels, probabilities)
    is_used = labelled + predicted > 0
    scores = 2 * hits[is_used] / (labelled + predicted)[is_used]
    return float(scores.mean())


def balanced_accuracy(labels: _Labels, probabilities: _Probabilities) -> float:
    """Return the mean over classes of the share of their rows that are classified correctly.

    Example:
        >>> balanced_accuracy(np.array([0, 0, 1]), np.array([[0.9, 0.1], [0.2, 0.8], [0.4, 0.6]]))
        0.75
    """
    hits, labelled, _ = _counts(labels, probabilities)
    is_labelled = labelled > 0
    return float((hits[is_labelled] / labelled[is_labelled]).mean())


def calibration_error(labels: _Labels, probabilities: _Probabilities) -> float:
    """Return the expected calibration error of the most probable class, in 15 bins of equal width.

    It is the mean distance between confidence and accuracy, weighted by rows [Guo et al. 2017].

    Example:
        >>> calibration_error(np.array([0, 1]), np.array([[0.75, 0.25], [0.75, 0.25]]))
        0.25
    """
    confidence = probabilities.max(axis=1)
    is_hit = probabilities.argmax(axis=1) == labels

    # A bin has its upper edge and not its lower one, so that 1 is in the last bin.
    upper_edges = np.ceil(confidence * _BINS).astype(np.int64)
    bins = np.clip(upper_edges - 1, 0, _BINS - 1)
    surplus = np.bincount(bins, weights=is_hit - confidence, minlength=_BINS)
    return float(np.abs(surplus).sum() / len(labels))


def _counts(labels: _Labels, probabilities: _Probabilities) -> tuple[_Labels, _Labels, _Labels]:
    """Return by class (C,): rows classified correctly, rows of the class, rows predicted as it."""
    class_count = probabilities.shape[1]
    predictions = probabilities.argmax(axis=1)
    hits = np.bincount(labels[predictions == labels], minlength=class_count)
    labelled = np.bincount(labels, minlength=class_count)
    return hits, labelled, np.bincount(predictions, minlength=class_count)


METRICS: dict[str, Metric] = {
    "balanced_accuracy": balanced_accuracy,
    "calibration_error": calibration_error,
    "macro_f1": macro_f1,
}
"""The metrics that have a name."""

_ALWAYS_MEASURED = ("accuracy", "loss")
"""See ``Evaluation``; the loss is the mean log loss."""


def find_metrics(metrics: Iterable[str | Metric]) -> dict[str, Metric]:
    """Return functions by the names of their columns, without accuracy and loss.

    Args:
        metrics: names, functions, or ``package.module:function``.

    Raises:
        InputError: if two have the same name.
        UnknownNameError: if no metric has one of the names.
    """
    functions: dict[str, Metric] = {}
    for metric in metrics:
        if callable(metric):
            name = getattr(metric, "__name__", type(metric).__name__)
            function = metric
        elif ":" in metric:
            name = metric.rpartition(":")[2]
            function = import_object("metric", metric)
        elif metric in _ALWAYS_MEASURED:
            continue
        else:
            require_known("metric", metric, [*_ALWAYS_MEASURED, *METRICS])
            name = metric
            function = METRICS[metric]

        if name in functions or name in _ALWAYS_MEASURED:
            raise InputError(f"Two metrics are called {name!r}: give one of them another name.")
        functions[name] = function
    return functions
