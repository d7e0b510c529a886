"""skorch classifiers: the network inside is what tells."""

from __future__ import annotations

import sys
from typing import Any

from teeter.errors import InputError
from teeter.models.sklearn_model import taken_apart

__all__ = ["network_in", "train_on_all", "wraps_network"]


def wraps_network(model: object) -> bool:
    """Tell whether an estimator is skorch's or a pipeline that ends in one; skorch is not imported for that."""
    return _net_of(model) is not None


def network_in(model: Any, data: Any) -> tuple[Any, Any]:
    """Return the network of a skorch classifier, also at the end of a pipeline, and the data as they come to it."""
    from sklearn.base import is_classifier

    steps, net = taken_apart(model)
    name = type(net).__name__
    if not is_classifier(net):
        raise InputError(f"{name} is not a classifier: teeter picks rows to classify.")
    if not net.initialized_:
        raise InputError(f"This {name} is not fitted yet: fit it to the labelled rows first.")
    for step in steps:
        data = step.transform(data)
    return net.module_, data


def train_on_all(model: Any) -> bool:
    """Let a skorch classifier learn from all labelled rows where it would hold back every fifth by default.

    A split or callbacks of the user's own, which may look at what is held back, stay as they are.
    """
    net = _net_of(model)
    if net is None or net.callbacks or not _splits_by_default(net):
        return False
    net.set_params(train_split=None)
    return True


def _splits_by_default(net: Any) -> bool:
    from skorch.dataset import ValidSplit

    split = net.train_split
    return isinstance(split, ValidSplit) and (split.cv, split.random_state) == (5, None)


def _net_of(model: object) -> Any:
    library = sys.modules.get("skorch")
    if library is None:
        return None
    net = taken_apart(model)[1]
    return net if isinstance(net, library.NeuralNet) else None
