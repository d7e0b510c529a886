"""Explain in one sentence why training failed.

Both functions look at the data only after something went wrong: many models do take missing values
or texts, and checking a large pool before every fit would cost time for nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor
from torch.utils.data import Dataset

from teeter.errors import TrainingError
from teeter.models.sklearn_model import split_pipeline
from teeter.training.config import Trainer, TrainingConfig

_LARGEST_LOSS = 1e8
"""A mean cross-entropy that no training ends with unless it diverged: the logits are as large."""


def divergence_error(
    losses: Iterable[float], config: TrainingConfig, inputs: Any
) -> TrainingError | None:
    """Return the error to report if a loss is not a finite number, and None if all are.

    Args:
        losses: the mean loss of each epoch so far.
        config: its learning rate is part of the message.
        inputs: (L, ...) the rows trained on. They are blamed if they contain NaN or infinity.
    """
    for epoch, loss in enumerate(losses, start=1):
        if np.isfinite(loss):
            continue

        # Rows that encode their own batches (texts, images) have no numbers to look at.
        if isinstance(inputs, Tensor) and not bool(inputs.isfinite().all()):
            is_bad = ~inputs.isfinite()
            bad_rows = int(is_bad.flatten(1).any(dim=1).sum())
            return TrainingError(
                f"{bad_rows} of {len(inputs)} labelled rows contain NaN or infinite numbers: "
                "fix or remove them."
            )

        return TrainingError(
            f"The loss became {loss} in epoch {epoch}: lower the learning rate from "
            f"{config.learning_rate}, or scale the inputs."
        )

    return None


def final_divergence_error(loss: float, training: TrainingConfig | Trainer) -> TrainingError | None:
    """Return the error to report if a network is of no use after its last step, else None.

    The losses of the epochs do not show it: they are those before each step.

    Args:
        loss: the mean loss of the trained network on rows that it was trained on.
        training: its learning rate is part of the message, if it has one.
    """
    if loss < _LARGEST_LOSS:  # NaN is not
        return None

    advice = "lower the learning rate"
    if isinstance(training, TrainingConfig):
        advice = f"lower the learning rate from {training.learning_rate}"
    return TrainingError(
        f"The loss diverged to {loss:.3g} by the end of training: {advice}, or scale the inputs."
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
    bad_rows = int(is_bad.reshape(len(array), -1).any(axis=1).sum())
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
