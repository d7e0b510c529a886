"""skorch classifiers, alone or at the end of a pipeline: unwrap, prepare and diagnose them.

An estimator of skorch is observed by the torch module inside it. skorch itself is imported only if
the user has done so already: an estimator of skorch cannot exist before that.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from teeter.errors import InputError
from teeter.models.inputs import take_rows
from teeter.models.sklearn_model import split_pipeline
from teeter.models.torch_model import call_model, evaluation_mode, prepare_batch

__all__ = [
    "disable_train_split",
    "explain_failure",
    "is_skorch",
    "skorch_labels",
    "unwrap_network",
]

_DEFAULT_FOLDS = 5
"""skorch's default validation split: every fifth row."""


def is_skorch(model: object) -> bool:
    """Return whether an estimator is one of skorch, or a pipeline that ends in one."""
    return _find_net(model) is not None


def unwrap_network(model: Any, data: Any) -> tuple[Any, Any]:
    """Return the torch module inside an estimator of skorch, and the rows as they reach it.

    Args:
        model: the fitted classifier, or a pipeline that ends in one.
        data: rows as ``model`` takes them. The steps of a pipeline transform them.

    Raises:
        InputError: if the estimator is not a classifier, or not fitted.
    """
    from sklearn.base import is_classifier

    steps, net = split_pipeline(model)
    name = type(net).__name__
    if not is_classifier(net):
        raise InputError(f"{name} is not a classifier, but teeter needs one.")
    if not net.initialized_:
        raise InputError(f"This {name} is not fitted yet: fit it to the labelled rows first.")

    for step in steps:
        data = step.transform(data)
    return net.module_, data


def disable_train_split(model: Any) -> bool:
    """Let a skorch classifier train on all labelled rows if it would hold back some by default.

    A split that the user chose stays as it is. So does the default split of a classifier with
    callbacks, which may look at what is held back.

    Returns:
        Whether the split was disabled.
    """
    net = _find_net(model)
    if net is None or net.callbacks or not _has_default_split(net):
        return False

    net.set_params(train_split=None)
    return True


def skorch_labels(model: Any, classes: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """Return classes (L,) as an estimator trains on them: floats for skorch's binary classifier."""
    net = _find_net(model)
    if net is None:
        return classes

    # Its loss compares a single logit with the label.
    binary_classifier = sys.modules["skorch"].NeuralNetBinaryClassifier
    if isinstance(net, binary_classifier):
        return classes.astype(np.float32)
    return classes


def explain_failure(
    model: Any,
    data: Any,
    classes: npt.NDArray[np.int64],
    error: Exception,
) -> str | None:
    """Return why the training of a skorch classifier failed, and what to do.

    The type of the error suggests a cause, and the network and the rows confirm it.

    Args:
        model: the estimator that raised, or a pipeline that ends in it.
        data: (L, ...) the rows that it was fitted to.
        classes: (L,) their classes.
        error: what it raised.

    Returns:
        One sentence, or None if the cause is not one of those known here, or if ``model`` is not
        an estimator of skorch.
    """
    net = _find_net(model)
    # Before a network is initialised, the error came from a step of the pipeline.
    if net is None or not net.initialized_:
        return None

    # What each type of error may mean: too few rows to split; a label beyond the last output; rows
    # of
    # another precision than the weights.
    if isinstance(error, ValueError):
        return _explain_split(net, classes)

    _, network_inputs = unwrap_network(model, data)
    if isinstance(error, IndexError):
        return _explain_outputs(net, network_inputs, classes)
    if isinstance(error, RuntimeError):
        return _explain_precision(net, network_inputs)
    return None


def _explain_split(net: Any, classes: npt.NDArray[np.int64]) -> str | None:
    """Return what to do if there are too few rows to hold some back."""
    from skorch.dataset import ValidSplit

    split = net.train_split
    if not isinstance(split, ValidSplit) or not isinstance(split.cv, int):
        return None

    # A stratified split needs one class with a row for each fold, and a plain one as many rows.
    rows_to_split = len(classes)
    if split.stratified:
        rows_to_split = int(np.bincount(classes).max())
    if rows_to_split >= split.cv:
        return None
    return (
        f"skorch splits the labelled rows into {split.cv} parts to hold one back, but there are "
        f"too few rows: set train_split=None, or label more rows."
    )


def _explain_outputs(
    net: Any,
    data: Any,
    classes: npt.NDArray[np.int64],
) -> str | None:
    """Return what to do if the network has fewer outputs than there are classes."""
    network = net.module_
    try:
        with evaluation_mode(network, None) as device:
            first_row = take_rows(data, np.arange(1))
            result = call_model(network, prepare_batch(network, first_row, device))
    except (IndexError, RuntimeError, TypeError, ValueError):
        # The network fails on the rows themselves: its own error says more.
        return None
    if not isinstance(result, Tensor) or result.ndim != 2:
        return None

    needed = int(classes.max()) + 1
    outputs = result.shape[1]
    if outputs >= needed:
        return None
    return (
        f"The network has {outputs} outputs, but the labels have {needed} classes: make its last "
        f"layer wider."
    )


def _explain_precision(net: Any, data: Any) -> str | None:
    """Return what to do if the rows are floats of another precision than the network."""
    is_float_array = isinstance(data, np.ndarray) and data.dtype.kind == "f"
    is_float_tensor = isinstance(data, Tensor) and data.is_floating_point()
    if not is_float_array and not is_float_tensor:
        return None

    row_precision = _name_precision(data.dtype)
    expected = {_name_precision(value.dtype) for value in net.module_.parameters()}
    if not expected or row_precision in expected:
        return None

    network_precision = ", ".join(sorted(expected))
    return (
        f"The rows are {row_precision}, but the network is {network_precision}: give the pool as "
        f"float32."
    )


def _name_precision(dtype: Any) -> str:
    """Return the name of a type of numbers, the same for NumPy and torch: ``"float32"``."""
    return str(dtype).removeprefix("torch.")


def _has_default_split(net: Any) -> bool:
    """Return whether a classifier holds back rows because that is skorch's default."""
    from skorch.dataset import ValidSplit

    split = net.train_split
    if not isinstance(split, ValidSplit):
        return False
    return split.cv == _DEFAULT_FOLDS and split.random_state is None


def _find_net(model: object) -> Any:
    """Return the estimator of skorch that ``model`` is or ends in, or None."""
    library = sys.modules.get("skorch")
    if library is None:
        return None

    _, net = split_pipeline(model)
    if isinstance(net, library.NeuralNet):
        return net
    return None
