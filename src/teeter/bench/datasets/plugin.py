"""Make a dataset from a function, for packages that bring a dataset along."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from teeter.bench.datasets.catalogue import DatasetSpec
from teeter.bench.datasets.classes import class_indices_from_array
from teeter.bench.datasets.locate import Layout
from teeter.bench.datasets.splits import LabelledRows, RawDataset, published_split
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
    """Return a dataset that a function loads, to be named by an entry point.

    The name of the entry point, in the group ``teeter.bench.datasets``, becomes the dataset's name.

    Args:
        load: returns x_train, y_train, x_test and y_test: arrays of rows, and of class indices
            from 0 or class names.
        about: a few words on its contents.
        train: the number of training rows.
        test: the number of test rows.
        shape: the shape of one row: (features,), or (channels, height, width).
        classes: the class names, or their number.

    Raises:
        InputError: if ``shape`` has neither one nor three axes.

    Example:
        >>> def load():
        ...     return [[0.0], [1.0]], [0, 1], [[2.0]], [1]
        >>> spec = dataset_from_function(
        ...     load, about="two points", train=2, test=1, shape=(1,), classes=["low", "high"]
        ... )
        >>> spec.class_count
        2
    """
    if len(shape) not in (1, 3):
        raise InputError(f"shape is {tuple(shape)}: give (features,) or (channels, height, width).")

    if not isinstance(classes, int):
        classes = tuple(classes)

    def read(_: object) -> RawDataset:
        return _read_from_function(load, classes)

    return DatasetSpec(
        name=_qualified_name(load),
        about=about,
        train=train,
        test=test,
        shape=tuple(shape),
        classes=classes,
        layouts=(Layout((), read),),
        split=published_split,
    )


def _qualified_name(load: Callable[[], Any]) -> str:
    # A functools.partial or another callable object has no name: use that of its class.
    named = load if inspect.isroutine(load) else type(load)
    return f"{named.__module__}.{named.__qualname__}"


def _read_from_function(
    load: Callable[[], Sequence[Any]], classes: Sequence[str] | int
) -> RawDataset:
    source = _qualified_name(load)

    try:
        x_train, y_train, x_test, y_test = load()
    except TeeterError:
        raise
    except Exception as error:  # Another package's code may raise anything.
        raise PluginError(
            f"{source} did not return x_train, y_train, x_test and y_test: {error}."
        ) from error

    train = _labelled_rows(x_train, y_train, "y_train", classes, source)
    test = _labelled_rows(x_test, y_test, "y_test", classes, source)
    return RawDataset(train, test)


def _labelled_rows(
    rows: Any, labels: Any, labels_name: str, classes: Sequence[str] | int, source: str
) -> LabelledRows:
    # The function stands where messages about files name the path.
    class_indices = class_indices_from_array(labels, labels_name, classes, Path(source))
    if len(rows) != len(class_indices):
        raise PluginError(
            f"{source} returns {len(rows)} rows and {len(class_indices)} labels in {labels_name}: "
            "they must have the same number."
        )

    return LabelledRows(rows, class_indices)
