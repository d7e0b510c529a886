"""A dataset that a function gives, for packages that bring one along."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from teeter.datasets.catalogue import DatasetSpec, published_split
from teeter.datasets.class_numbers import class_indices_from_array
from teeter.datasets.locate import Layout
from teeter.datasets.splits import LabelledRows, RawDataset
from teeter.errors import InputError, PluginError, TeeterError

__all__ = ["dataset_from_function"]


def dataset_from_function(
    load: Callable[[], Sequence[Any]],
    *,
    about: str,
    train: int,
    test: int,
    shape: Sequence[int],
    classes: Sequence[str] | int,
) -> DatasetSpec:
    """Return a dataset to be named by an entry point of the group ``teeter.datasets``.

    Args:
        load: gives x_train, y_train, x_test and y_test, arrays of rows and of class numbers from 0 up or class names.
        about: a few words on what it holds.
        train: how many training rows there are.
        test: how many test rows.
        shape: of one row: (features,), or (channels, height, width).
        classes: their names, or how many there are.
    """
    if len(shape) not in (1, 3):
        raise InputError(
            f"Rows of shape {tuple(shape)} are neither (features,) nor (channels, height, width)."
        )
    known = classes if isinstance(classes, int) else tuple(classes)
    return DatasetSpec(
        name=_called(load),
        about=about,
        train=train,
        test=test,
        shape=tuple(shape),
        classes=known,
        layouts=(Layout((), lambda _: _contents(load, known)),),
        divide=published_split,
    )


def _called(load: Callable[[], Any]) -> str:
    named = load if inspect.isroutine(load) else type(load)  # a partial has no name of its own
    return f"{named.__module__}.{named.__qualname__}"


def _contents(load: Callable[[], Sequence[Any]], classes: Sequence[str] | int) -> RawDataset:
    where = Path(_called(load))
    try:
        train, train_labels, test, test_labels = load()
    except TeeterError:
        raise
    except Exception as error:
        raise PluginError(
            f"{where} did not give x_train, y_train, x_test and y_test: {error}."
        ) from error
    first = _part(train, class_indices_from_array(train_labels, "y_train", classes, where), where)
    return RawDataset(
        first, _part(test, class_indices_from_array(test_labels, "y_test", classes, where), where)
    )


def _part(rows: Any, labels: npt.NDArray[np.int64], where: Path) -> LabelledRows:
    if len(rows) != len(labels):
        raise PluginError(
            f"{where} gives {len(rows)} rows and {len(labels)} labels: one a row is needed."
        )
    return LabelledRows(rows, labels)
