"""skorch classifiers: the network inside is what tells."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from teeter.errors import InputError
from teeter.models.sklearn_model import split_pipeline

__all__ = ["disable_train_split", "explain_failure", "is_skorch", "skorch_labels", "unwrap_network"]

_MENDS = {
    "same dtype": "The pool's numbers are not the network's kind: give the pool as float32.",
    "out of bounds": "The network answers with fewer classes than the labels have: make its last layer wider.",
    "n_splits": "skorch holds rows of each class back, and one has too few: give it train_split=None, or label more.",
}
"""What to say to an error in skorch's training, by a part of its text."""


def is_skorch(model: object) -> bool:
    """Tell whether an estimator is skorch's or a pipeline that ends in one; skorch is not imported for that."""
    return _net_of(model) is not None


def unwrap_network(model: Any, data: Any) -> tuple[Any, Any]:
    """Return the network of a skorch classifier, also at the end of a pipeline, and the data as they come to it."""
    from sklearn.base import is_classifier

    steps, net = split_pipeline(model)
    name = type(net).__name__
    if not is_classifier(net):
        raise InputError(f"{name} is not a classifier: teeter picks rows to classify.")
    if not net.initialized_:
        raise InputError(f"This {name} is not fitted yet: fit it to the labelled rows first.")
    for step in steps:
        data = step.transform(data)
    return net.module_, data


def disable_train_split(model: Any) -> bool:
    """Let a skorch classifier learn from all labelled rows where it would hold back every fifth by default.

    A split or callbacks of the user's own, which may look at what is held back, stay as they are.
    """
    net = _net_of(model)
    if net is None or net.callbacks or not _splits_by_default(net):
        return False
    net.set_params(train_split=None)
    return True


def skorch_labels(model: Any, classes: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """Return classes (L,) as an estimator learns them: skorch's binary one wants them as floats."""
    net = _net_of(model)
    binary = net is not None and isinstance(net, sys.modules["skorch"].NeuralNetBinaryClassifier)
    return classes.astype(np.float32) if binary else classes


def explain_failure(model: Any, error: Exception) -> str | None:
    """Return what to do about an error in the training of a skorch classifier; None where that is not known."""
    if _net_of(model) is None:
        return None
    return next((mend for part, mend in _MENDS.items() if part in str(error)), None)


def _splits_by_default(net: Any) -> bool:
    from skorch.dataset import ValidSplit

    split = net.train_split
    return isinstance(split, ValidSplit) and (split.cv, split.random_state) == (5, None)


def _net_of(model: object) -> Any:
    library = sys.modules.get("skorch")
    if library is None:
        return None
    net = split_pipeline(model)[1]
    return net if isinstance(net, library.NeuralNet) else None
